"""What can be asked of the corpus once it is built."""

from __future__ import annotations

import pytest

from pensieve_mcp.corpus.layout import PAGE_CHARS, Layout, pack_borders, unpack_borders
from pensieve_mcp.corpus.locate import locate
from pensieve_mcp.corpus.types import Block, ChunkSet, Span, Unit
from pensieve_mcp.errors import NoSuchDocument

from .conftest import prose

SET = ChunkSet(64)


def test_a_text_of_several_pages_reads_whole_at_any_border(bench):
    text = prose(5_000)
    bench.write("big.txt", text)
    store = bench.build()

    assert len(text) > 3 * PAGE_CHARS
    for start, end in [
        (0, len(text)),
        (PAGE_CHARS - 5, PAGE_CHARS + 5),
        (PAGE_CHARS, 2 * PAGE_CHARS),
        (7, 7),
    ]:
        assert store.text(1, Span(start, end)) == text[start:end]
    assert store.text(1, Span(len(text) - 3, len(text) + 99)) == text[-3:]


def test_totals_and_lists_hold_to_a_folder(bench):
    bench.write("a/one.txt", "The first of the texts is here for you and for me.")
    bench.write("a/two.txt", "Der zweite Text ist auch für die Leser und nicht für den Autor.")
    bench.write("a.txt", "Not in the folder a, though its name begins so.")
    bench.write("a/bad.txt", "boom")
    store = bench.build()

    inside = store.totals(("docs/a",))
    assert (inside.documents, dict(inside.languages), dict(inside.skipped)) == (
        2,
        {"de": 1, "en": 1},
        {"corrupt": 1},
    )
    assert store.totals().documents == 3
    first, cursor = store.documents(("docs/a",), limit=1)
    rest, end = store.documents(("docs/a",), cursor=cursor, limit=5)
    assert [d.path for d in (*first, *rest)] == ["docs/a/one.txt", "docs/a/two.txt"] and end is None
    assert [s.path for s in store.skipped(("docs/a",), reason="corrupt")[0]] == ["docs/a/bad.txt"]
    assert store.skipped(reason="timeout")[0] == []
    assert store.has_under("docs/a") and not store.has_under("docs/b")


def test_a_misspelt_path_is_answered_with_near_names(bench):
    bench.write("reports/annual.txt", "x y z")
    store = bench.build()

    with pytest.raises(NoSuchDocument, match=r"Did you mean docs/reports/annual.txt\?"):
        store.document("annual.txt")
    with pytest.raises(NoSuchDocument, match=r"Did you mean docs/reports/annual.txt\?"):
        store.document("docs/reports/anual.txt")
    with pytest.raises(NoSuchDocument, match="analyzeText"):
        store.document("docs/zzz")


def test_scanning_follows_the_order_of_paths_whatever_the_ids(bench):
    bench.write("m.txt", prose(10, "m"))
    store = bench.build()
    bench.write("a.txt", prose(10, "a"))
    bench.build(store)
    chunks = [store.chunk_at(SET, p) for p in range(store.chunk_count(SET))]

    assert [c.position for c in chunks] == list(range(len(chunks)))
    assert chunks[0].chunk_id > chunks[-1].chunk_id
    assert "".join(map(store.chunk_text, chunks)) == prose(10, "a") + prose(10, "m")
    assert store.chunk_at(SET, len(chunks)) is None and store.chunk_at(SET, -1) is None
    assert store.position_of(chunks[1].chunk_id) == (1, len(chunks))
    assert store.chunk_range(SET) == (len(chunks), 1, max(c.chunk_id for c in chunks))
    assert [c.position for c in store.neighbours(chunks[1].chunk_id, 1)] == [0, 1, 2]


def test_every_character_has_its_chunk_and_every_passage_a_whole_one(bench):
    text = prose(300)
    bench.write("a.txt", text)
    store = bench.build()
    overlapping = ChunkSet(400, 60)
    store.ensure_chunk_set(overlapping)

    for chunk_set in (SET, overlapping):
        for offset in range(0, len(text), 97):
            chunk = store.chunk_containing(chunk_set, 1, offset)
            assert chunk.span.start <= offset < chunk.span.end
        assert store.chunk_containing(chunk_set, 1, len(text)) is None
    for passage in store.passages_of(1):
        chunk = store.chunk_containing(overlapping, 1, passage.span.start, passage.span.end)
        assert chunk.span.start <= passage.span.start and passage.span.end <= chunk.span.end
    assert store.chunk_containing(ChunkSet(999), 1, 0) is None


def test_passages_are_found_by_id_and_absent_ones_left_out(bench):
    bench.write("a.txt", prose(100))
    bench.write("b.txt", "Short.")
    store = bench.build()
    all_of_a, all_of_b = store.passages_of(1), store.passages_of(2)
    wanted = [all_of_a[3].passage_id, all_of_b[0].passage_id, 10_000, 0]

    texts = store.passage_texts(wanted)
    assert texts == {
        wanted[0]: prose(100)[all_of_a[3].span.start : all_of_a[3].span.end],
        wanted[1]: "Short.",
    }
    assert store.passages(wanted).keys() == texts.keys()


def test_a_literal_is_found_across_pages_and_passages_in_folded_form(bench):
    text = "x" * (PAGE_CHARS - 4) + " Müller-Straße. " + prose(20) + " ＭＵＥＬＬＥＲ end"
    bench.write("a.txt", text)
    bench.write("b.txt", "nothing")
    store = bench.build()

    (place,) = store.scan_literal("müller-STRASSE")
    assert place.offset == text.index("Müller") and place.document_id == 1
    passage = store.passages([place.passage_id])[place.passage_id]
    assert passage.span.start <= place.offset < passage.span.end
    assert [p.offset for p in store.scan_literal("mueller")] == [text.index("ＭＵＥＬ")]
    assert list(store.scan_literal("mueller", [2])) == []
    assert list(store.scan_literal("mueller", late=lambda: True)) == []


def test_the_outline_has_headings_with_places_and_tokens(bench):
    bench.write("a.txt", "# One\nfirst text\n\nmore of it\n\n# Two\nsecond text")
    bench.write("b.txt", "page one\fpage two")
    store = bench.build()

    outline = store.outline(1)
    assert [(e.heading, e.level, e.locator) for e in outline] == [
        ("One", 1, "§ One · line 1"),
        ("Two", 1, "§ Two · line 6"),
    ]
    assert outline[0].span.end == outline[1].span.start and all(e.tokens > 0 for e in outline)
    assert [(e.heading, e.locator) for e in store.outline(2)] == [("page 1", "p. 1"), ("page 2", "p. 2")]


@pytest.mark.parametrize(
    ("units", "blocks", "span", "lines", "told"),
    [
        ([Unit("page", 12, "", 0, 90)], [], Span(0, 9), None, "p. 12"),
        ([Unit("page", 3, "iii", 0, 9), Unit("page", 4, "iv", 9, 20)], [], Span(5, 15), None, "pp. iii–iv"),
        ([Unit("slide", 3, "Title", 0, 90)], [], Span(0, 9), None, "slide 3"),
        (
            [Unit("sheet", 1, "Sheet1", 0, 90)],
            [Block(0, 20, cells="B3:C5"), Block(20, 40, cells="D6:F9")],
            Span(5, 30),
            None,
            "Sheet1!B3:F9",
        ),
        (
            [Unit("sheet", 1, "My data", 0, 90)],
            [Block(0, 20, cells="AA1")],
            Span(0, 5),
            None,
            "'My data'!AA1",
        ),
        (
            [Unit("body", 1, "", 0, 90)],
            [Block(0, 90, ("2 Rules", "2.1 Terms"))],
            Span(0, 9),
            None,
            "§ 2.1 Terms",
        ),
        ([Unit("body", 1, "", 0, 90)], [], Span(0, 9), (40, 58), "lines 40–58"),
        ([Unit("body", 1, "", 0, 90)], [Block(0, 9, first_line=4, last_line=4)], Span(0, 9), None, "line 4"),
        ([Unit("page", 2, "", 0, 90)], [Block(0, 90, ("Terms",))], Span(0, 9), None, "p. 2 · § Terms"),
        ([Unit("message", 7, "Hello you", 0, 90)], [], Span(0, 9), None, "message 7: Hello you"),
        ([], [], Span(0, 9), None, ""),
    ],
)
def test_locators_are_what_a_person_would_say(units, blocks, span, lines, told):
    assert locate(span, units, blocks, lines=lines) == told


def test_layout_and_borders_come_back_as_they_went():
    units = (Unit("page", 1, "i", 0, 50), Unit("page", 2, "ii", 50, 99))
    blocks = (Block(0, 10, ("A",)), Block(10, 40, ("A", "B"), 3, 5), Block(50, 99, (), None, None, "A1:B2"))
    layout = Layout.unpack(Layout.of(units, blocks).pack())

    assert layout.units == units and tuple(layout.blocks()) == blocks
    assert layout.blocks_in(Span(10, 51)) == [*blocks[1:]]
    assert layout.heading_at(45) == ("A", "B")
    assert list(unpack_borders(pack_borders([0, 5, 9, 70_000]))) == [0, 5, 9, 70_000]


def test_lines_are_counted_across_pages(bench):
    lines = [f"line number {n} of the file" for n in range(1, 9_001)]
    bench.write("a.txt", "\n".join(lines))
    store = bench.build()
    at = store.text(1, Span(0, 10**9)).index("line number 8000 ")

    assert store.locator(1, Span(at, at + 60)).endswith("lines 8000–8002")

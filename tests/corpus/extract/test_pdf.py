"""PDF by PDFium: labels, outline, forms, notes, broken words, pages without text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pensieve_mcp.corpus.extract.pool import ExtractionPool
from pensieve_mcp.corpus.types import Extracted, Limits, Unreadable

from . import hostile
from .conftest import Reader


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with ExtractionPool(limits=Limits(pages=4, page_chars=200)) as pool:
        yield Reader(pool, tmp_path_factory.mktemp("pdf"))


def whole(outcome: Extracted | Unreadable) -> Extracted:
    assert isinstance(outcome, Extracted), outcome
    return outcome


def shown(*lines: str) -> bytes:
    placed = b"".join(
        b"1 0 0 1 72 %d Tm (%s) Tj " % (720 - 40 * n, line.encode()) for n, line in enumerate(lines)
    )
    return b"BT /F 12 Tf " + placed + b"ET"


def book(*pages: bytes, catalogue: bytes = b"", extra: tuple[bytes, ...] = ()) -> bytes:
    """Objects: 1 catalogue, 2 pages, 3 font, then page and content for each; `extra` follows."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R " + catalogue + b" >>",
        b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % len(pages),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, content in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F 3 0 R >> >> >>" % (5 + 2 * n)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    return hostile.pdf(*objects, *extra)


def test_pages_are_units_with_their_printed_labels(read: Reader) -> None:
    labels = b"/PageLabels << /Nums [0 << /S /r >> 2 << /S /D /St 1 >>] >>"
    document = whole(read("a.pdf", book(shown("one"), shown("two"), shown("three"), catalogue=labels)))
    assert [(unit.ordinal, unit.label) for unit in document.units] == [(1, "i"), (2, "ii"), (3, "1")]
    assert document.text == "one\ntwo\nthree\n"
    assert document.status == "ok"


def test_the_outline_heads_blocks_across_pages(read: Reader) -> None:
    outline = (
        b"<< /Type /Outlines /First 9 0 R /Last 9 0 R /Count 2 >>",
        b"<< /Title (Hives) /Parent 8 0 R /Dest [4 0 R /Fit] /First 10 0 R /Last 10 0 R /Count 1 >>",
        b"<< /Title (Floors) /Parent 9 0 R /Dest [4 0 R /Fit] >>",
    )
    content = book(
        shown("Preface", "Hives", "boxes", "FLOORS", "mites"),
        shown("more mites"),
        catalogue=b"/Outlines 8 0 R",
        extra=outline,
    )
    document = whole(read("a.pdf", content))
    found = {document.text[b.start : b.end].splitlines()[0]: b.heading for b in document.blocks}
    assert found == {
        "Preface": (),
        "Hives": ("Hives",),
        "FLOORS": ("Hives", "Floors"),
        "more mites": ("Hives", "Floors"),
    }


def test_an_outline_that_bites_its_tail_ends(read: Reader) -> None:
    outline = (
        b"<< /Type /Outlines /First 7 0 R >>",
        b"<< /Title (A) /Parent 6 0 R /Dest [4 0 R /Fit] /Next 7 0 R /First 7 0 R >>",
    )
    assert (
        whole(read("a.pdf", book(shown("honey"), catalogue=b"/Outlines 6 0 R", extra=outline))).text
        == "honey\n"
    )


def test_form_fields_and_notes_follow_the_text_of_their_page(read: Reader) -> None:
    annotations = (
        b"/Annots ["
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (Beekeeper) /V (Ada L.) /Rect [0 0 9 9] >>"
        b"<< /Type /Annot /Subtype /Text /Contents (check the queen) /Rect [0 0 9 9] >>"
        b"<< /Type /Annot /Subtype /FreeText /Contents (a box of text) /Rect [0 0 9 9] >>"
        b"<< /Type /Annot /Subtype /Link /Contents (not this) /Rect [0 0 9 9] >>]"
    )
    document = whole(read("a.pdf", hostile.pdf_with(shown("form"), page=annotations)))
    said = [document.text[b.start : b.end] for b in document.blocks]
    assert said == ["form", "Beekeeper: Ada L.", "Note: check the queen", "a box of text"]


def test_pages_without_text_are_counted_and_told(read: Reader) -> None:
    document = whole(read("a.pdf", book(shown("one"), b"", shown("three"))))
    assert [unit.ordinal for unit in document.units] == [1, 3]
    assert document.facts.warnings == ("1 of 3 pages have no text layer (scanned or blank)",)
    outcome = read("a.pdf", book(b"", b""))
    assert isinstance(outcome, Unreadable)
    assert (outcome.reason, outcome.detail) == ("no_text", "2 pages without a text layer (scanned?)")


def test_limits_of_pages_and_characters_are_told(read: Reader) -> None:
    document = whole(read("a.pdf", book(*[shown("x" * 40) for _ in range(6)])))
    assert document.facts.warnings == ("only the first 4 of 6 pages were read",)
    long = whole(read("a.pdf", book(shown(*["y" * 60 for _ in range(10)]))))
    assert len(long.text) <= 210
    assert "only the first 200 characters" in long.facts.warnings[0]


def test_a_word_broken_at_the_end_of_a_line_is_joined() -> None:
    from pensieve_mcp.corpus.extract.pdf import _BROKEN_WORD

    assert (
        _BROKEN_WORD.sub("", "thermo\ufffe\r\nregulatory, well-\r\nknown\ufffe")
        == "thermoregulatory, well-\r\nknown"
    )

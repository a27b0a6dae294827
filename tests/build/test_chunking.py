"""Cutting a text: what every set of borders promises, whatever the text (design section 4)."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.corpus.chunking import (
    ATOM_CHARS,
    PASSAGE_MAX_CHARS,
    cut,
    pack,
    validated,
)
from pensieve_mcp.corpus.types import Block, ChunkSet, Span, Unit
from pensieve_mcp.errors import Miscast
from pensieve_mcp.tokens import UNITS_PER_TOKEN, count_tokens, count_units

PIECES = st.sampled_from(
    [
        "The treaty was signed. ",
        "Who knows? ",
        "e.g. this ",
        "条约签署了。",
        "それは何ですか？",
        "यह एक वाक्य है। ",
        "ما هذا؟ ",
        "e\u0301",
        "\r\n",
        "\n\n",
        "\n",
        " ",
        "x" * 700,
        "🇩🇪",
        "👩‍👩‍👧",
        "word ",
        "0123456789",
        "    return value\n",
        "\u0301",
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=120).map("".join), st.text(max_size=400))
SETS = st.tuples(st.integers(16, 400), st.integers(0, 100)).map(
    lambda pair: ChunkSet(pair[0], min(pair[1], pair[0] // 2))
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, tuple[Unit, ...], tuple[Block, ...]]:
    pieces = draw(st.lists(TEXTS, max_size=4))
    text, units, blocks = "", [], []
    for number, piece in enumerate(pieces, start=1):
        units.append(Unit("page", number, str(number), len(text), len(text) + len(piece)))
        blocks.append(Block(len(text), len(text) + len(piece), heading=(f"h{number // 2}",)))
        text += piece
    return text, tuple(units), tuple(blocks)


def tiles(spans: list[Span], length: int) -> bool:
    place = 0
    for span in spans:
        if span.start != place or span.end <= span.start:
            return False
        place = span.end
    return place == length


@given(documents())
@settings(deadline=None, max_examples=150)
def test_passages_tile_the_text_inside_units_and_under_the_cap(document):
    text, units, blocks = document
    found = cut(text, units, blocks)
    passages = found.passage_spans()

    assert tiles(passages, len(text))
    assert all(span.end - span.start <= PASSAGE_MAX_CHARS for span in passages)
    inner = {unit.start for unit in units if 0 < unit.start < len(text)}
    assert inner <= {span.start for span in passages}
    sizes = [end - start for start, end in pairwise(found.borders)]
    assert all(0 < size <= ATOM_CHARS for size in sizes)


@given(documents(), SETS)
@settings(deadline=None, max_examples=200)
def test_chunks_cover_the_text_and_keep_their_size(document, chunk_set):
    text, units, blocks = document
    found = cut(text, units, blocks)
    chunks = pack(found, chunk_set)

    if not text:
        assert chunks == []
        return
    assert chunks[0].start == 0 and chunks[-1].end == len(text)
    for before, after in pairwise(chunks):
        assert before.start < after.start <= before.end < after.end
    if not chunk_set.overlap_tokens:
        assert tiles(chunks, len(text))
    borders = list(found.borders)
    size = chunk_set.size_tokens * UNITS_PER_TOKEN
    overlap = chunk_set.overlap_tokens * UNITS_PER_TOKEN
    for chunk in chunks:
        first, last = borders.index(chunk.start), borders.index(chunk.end)
        cost = sum(found.units[first:last])
        # Only an atom larger than the chunk may be makes it exceed, and then only by that one.
        assert cost <= size or cost - max(found.units[first:last]) <= overlap
    room = size - overlap
    for start, end in pairwise(found.passages):
        if sum(found.units[start:end]) <= room:
            span = (borders[start], borders[end])
            assert any(chunk.start <= span[0] and span[1] <= chunk.end for chunk in chunks)


@given(
    st.lists(
        st.sampled_from(["e\u0301", "n\u0303", "가", "\r\n", "👍🏽", "👩‍👩‍👧", "ab. Cd", "。"]), max_size=900
    )
)
@settings(deadline=None, max_examples=60)
def test_no_border_tears_a_character(pieces):
    text = "".join(pieces)
    for at in cut(text).borders[1:-1]:
        assert not unicodedata.combining(text[at])
        assert text[at - 1 : at + 1] != "\r\n"
        assert text[at] != "\u200d" and text[at - 1] != "\u200d"
        assert not "\U0001f3fb" <= text[at] <= "\U0001f3ff"


@given(TEXTS, st.data())
@settings(deadline=None)
def test_atom_costs_add_up_to_about_the_whole(text, data):
    found = cut(text)
    assert len(found.units) == len(found.borders) - 1
    # A border inside a run counts the run twice: at most about three tokens for each.
    assert abs(sum(found.units) - count_units(text)) <= 5_000 * max(1, len(found.units))


def sentences(count: int, salt: str = "") -> str:
    return " ".join(
        f"Sentence {number}{salt} tells of item {number * 7919 % 1009} and its owner."
        for number in range(count)
    )


def test_an_edit_leaves_the_chunks_far_from_it_alone():
    """Our decision: borders depend on the text around them, so that ids survive an edit elsewhere in the file."""
    text = sentences(4_000)
    edited = text[:60_000] + "One more sentence was put in here, rather long as it happens. " + text[60_000:]
    before = {text[span.start : span.end] for span in pack(cut(text), ChunkSet(200))}
    after = {edited[span.start : span.end] for span in pack(cut(edited), ChunkSet(200))}

    assert len(before & after) >= 0.9 * len(before)


def test_a_chunk_ends_at_a_heading_when_it_is_half_full():
    first, second = sentences(20), sentences(30, "b")
    text = first + "\n\n" + second
    at = len(first) + 2
    blocks = (Block(0, len(first), heading=("One",)), Block(at, len(text), heading=("Two",)))
    size = round(count_tokens(first) * 1.5)

    assert pack(cut(text, (), blocks), ChunkSet(size))[0] == Span(0, at)


def test_abbreviations_and_decimals_end_no_sentence():
    text = "The value of pi, i.e. about 3.14, is used in e.g. geometry and elsewhere. Then the next sentence begins."
    borders = list(cut(text).borders)

    assert borders == [0, text.index("Then"), len(text)]


def test_every_text_has_a_chunk_even_one_character():
    assert pack(cut("字"), ChunkSet()) == [Span(0, 1)]
    assert pack(cut(""), ChunkSet()) == []


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (15, 0), (100, 51), (100, -1), (2_000_000, 0)])
def test_a_senseless_size_is_refused_with_the_range(size, overlap):
    with pytest.raises(Miscast, match=r"Choose"):
        validated(ChunkSet(size, overlap))

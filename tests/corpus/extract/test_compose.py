"""Composition is pure: units tile the text, blocks ascend, and a block still says what it said in its piece."""

from __future__ import annotations

import contextlib
import re

from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.corpus.extract import wire
from pensieve_mcp.corpus.extract.compose import compose
from pensieve_mcp.corpus.types import Block, Facts, Limits, Piece

FACTS = Facts("text/plain")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Letters of every width, line ends and all kinds of dirt, dense enough to meet at borders.
texts = st.text(
    alphabet=st.sampled_from("ab é蜂🐝\t\r\n\x00\x02\x0b\x0c\x85\x9f\ud800\udfff\u2028\ufffe"), max_size=40
)


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    text = draw(texts)
    borders = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    blocks = tuple(
        Block(start, end, heading=(str(start),))
        for start, end in zip(borders[::2], borders[1::2], strict=False)
    )
    kind = draw(st.sampled_from(["body", "page", "notes"]))
    return Piece(text, kind, draw(st.integers(1, 3)), draw(st.sampled_from(["", "iv"])), blocks)


def cleaned(text: str) -> str:
    """What `T` must be, said the slow way."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub("[\x0b\x0c\x85]", " ", text)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return re.sub("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]", "", text)


@given(st.lists(pieces(), max_size=8))
def test_units_tile_and_blocks_ascend(given_pieces: list[Piece]) -> None:
    document = compose(given_pieces, FACTS, "test/1", Limits())
    assert not CONTROLS.search(document.text)
    at = 0
    for before, unit in zip([None, *document.units], document.units, strict=False):
        assert unit.start == at < unit.end
        assert before is None or (before.kind, before.ordinal) != (unit.kind, unit.ordinal)
        assert before is None or document.text[at - 1] == "\n"
        at = unit.end
    assert at == len(document.text)
    at = 0
    for block in document.blocks:
        assert at <= block.start < block.end <= len(document.text)
        at = block.end


@given(st.lists(pieces(), max_size=8))
def test_nothing_is_lost_but_dirt_and_nothing_added_but_newlines_between_units(
    given_pieces: list[Piece],
) -> None:
    document = compose(given_pieces, FACTS, "test/1", Limits())
    whole = cleaned("".join(piece.text for piece in given_pieces))
    assert document.text.replace("\n", "") == whole.replace("\n", "")
    if len({(piece.kind, piece.ordinal) for piece in given_pieces if piece.text}) <= 1:
        assert document.text == whole


@given(pieces())
def test_a_block_says_what_it_said_in_its_piece(piece: Piece) -> None:
    document = compose([piece], FACTS, "test/1", Limits())
    wanted = [cleaned(piece.text[b.start : b.end]) for b in piece.blocks]
    got = [document.text[b.start : b.end] for b in document.blocks]
    # A border between CR and LF falls to one side or the other; all else is exact.
    assert [text.strip("\n") for text in got if text.strip("\n")] == [
        text.strip("\n") for text in wanted if text.strip("\n")
    ]
    if "\r\n" not in piece.text:
        kept = [b.heading for b, text in zip(piece.blocks, wanted, strict=True) if text]
        assert [b.heading for b in document.blocks] == kept


@given(st.lists(pieces(), max_size=8), st.integers(1, 60))
def test_the_limit_of_characters_cuts_and_says_so(given_pieces: list[Piece], most: int) -> None:
    free = compose(given_pieces, FACTS, "test/1", Limits())
    bound = compose(given_pieces, FACTS, "test/1", Limits(document_chars=most))
    assert bound.text == free.text[:most] or bound.text == free.text[:most].rstrip("\n")
    assert (bound.status == "partial") == (len(free.text) > most and bound.text != free.text)
    assert all(unit.end <= len(bound.text) for unit in bound.units)
    assert all(block.end <= len(bound.text) for block in bound.blocks)


def test_line_ends_split_between_pieces_are_one() -> None:
    document = compose([Piece("a\r"), Piece("\nb\n", blocks=(Block(1, 2),))], FACTS, "test/1", Limits())
    assert document.text == "a\nb\n"
    assert document.text[document.blocks[0].start : document.blocks[0].end] == "b"


@given(st.lists(pieces(), max_size=4))
def test_frames_carry_pieces_unharmed(given_pieces: list[Piece]) -> None:
    items = [wire.Began("x/1", True), *given_pieces, FACTS, wire.Refused("corrupt", "why"), wire.Done(7)]
    frame = wire.encode(items)
    decoded = wire.decode(frame[wire.HEADER.size :])
    clean = re.compile("[\ud800-\udfff]")
    wanted = [
        Piece(clean.sub("\ufffd", i.text), i.kind, i.ordinal, i.label, i.blocks)
        if isinstance(i, Piece)
        else i
        for i in items
    ]
    assert decoded == wanted


@given(
    st.binary(max_size=60)
    | st.sampled_from(
        [
            b"[[]]",
            b"[1]",
            b'[["p"]]',
            b'[["p",1,"body",1,"",[]]]',
            b'[["r","no such reason",""]]',
            b"[" * 20_000,
        ]
    )
)
def test_gibberish_is_a_bad_frame_and_nothing_else(payload: bytes) -> None:
    with contextlib.suppress(wire.BadFrame):
        assert isinstance(wire.decode(payload), list)

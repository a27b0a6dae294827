"""From the pieces an extractor streams to one document.

Why: offsets are made in one place, by a pure function, so that every reader may think in its own small text.
Here `T` gets its form: line ends as `\\n`, control characters (but tab) gone, lone surrogates replaced, blocks
ascending and inside the text, cut at the limit of characters. Nothing else is folded. Where text comes from is
left to the extractors, where it is cut into chunks to the builder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from pensieve_mcp.corpus.types import Block, Extracted, Facts, Limits, Piece, Status, Unit

# CRLF and CR end a line; VT, FF and NEL part words and become a space; other controls vanish.
_DIRTY = re.compile("\r\n|\r|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|[\ud800-\udfff]")
_INSTEAD = {"\r\n": "\n", "\r": "\n", "\x0b": " ", "\x0c": " ", "\x85": " "}


def compose(
    pieces: Iterable[Piece], facts: Facts, extractor: str, limits: Limits, *, warnings: tuple[str, ...] = ()
) -> Extracted:
    """Join pieces into one document.

    Units tile `T` in order; blocks ascend, do not overlap and are not empty. More than `limits.document_chars`
    characters are cut off and said in a warning (`partial`). Any warning given in `warnings` makes it partial too.
    """
    texts: list[str] = []
    units: list[Unit] = []
    blocks: list[Block] = []
    at = 0
    after_cr = False
    cut = False
    for piece in pieces:
        text, inner, ended_cr = _clean(piece, after_cr)
        after_cr = ended_cr if piece.text else after_cr
        if not text:
            continue
        last = units[-1] if units else None
        new_unit = last is None or (last.kind, last.ordinal) != (piece.kind, piece.ordinal)
        if at >= limits.document_chars:
            cut = True
            break
        if new_unit and last is not None and not texts[-1].endswith("\n"):
            texts.append("\n")
            at += 1
            units[-1] = last = replace(last, end=at)
        room = limits.document_chars - at
        if len(text) > room:
            cut = True
            text = text[: max(room, 0)]
            if not text:
                break
        end = at + len(text)
        if new_unit or last is None:
            units.append(Unit(kind=piece.kind, ordinal=piece.ordinal, label=piece.label, start=at, end=end))
        else:
            units[-1] = replace(last, end=end, label=last.label or piece.label)
        _place(blocks, inner, at, end)
        texts.append(text)
        at = end
        if cut:
            break
    told = facts.warnings + warnings
    if cut:
        told += (f"only the first {limits.document_chars:,} characters were read",)
    status: Status = "partial" if cut or warnings or facts.partial else "ok"
    return Extracted(
        text="".join(texts),
        facts=replace(facts, warnings=told),
        units=tuple(units),
        blocks=tuple(blocks),
        extractor=extractor,
        status=status,
    )


def _place(blocks: list[Block], inner: Iterable[Block], base: int, end: int) -> None:
    """Append blocks with absolute offsets; what overlaps its forerunner is shortened, what is left empty dropped."""
    floor = blocks[-1].end if blocks else 0
    for block in inner:
        first = max(base + max(block.start, 0), floor)
        last = min(base + block.end, end)
        if first >= last:
            continue
        floor = last
        blocks.append(Block(first, last, block.heading, block.first_line, block.last_line, block.cells))


def _clean(piece: Piece, after_cr: bool) -> tuple[str, Iterable[Block], bool]:
    """The text in canonical form and the blocks with their offsets moved along.

    `after_cr`: the last piece ended with a carriage return, so a leading line feed belongs to it.
    """
    raw = piece.text
    ended_cr = raw.endswith("\r")
    if not (after_cr and raw.startswith("\n")) and _DIRTY.search(raw) is None:
        return raw, piece.blocks, ended_cr
    parts: list[str] = []
    # Where the text shrank: from raw offset `cuts[i][0]` on, `cuts[i][1]` characters are gone before it.
    cuts: list[tuple[int, int]] = []
    position = gone = 0
    if after_cr and raw.startswith("\n"):
        position = gone = 1
        cuts.append((1, 1))
    for match in _DIRTY.finditer(raw, position):
        parts.append(raw[position : match.start()])
        found = match.group()
        instead = _INSTEAD.get(found, "\ufffd" if found >= "\ud800" else "")
        parts.append(instead)
        position = match.end()
        if len(instead) != len(found):
            gone += len(found) - len(instead)
            cuts.append((position, gone))
    parts.append(raw[position:])
    return "".join(parts), _moved(piece.blocks, cuts), ended_cr


def _moved(blocks: Iterable[Block], cuts: list[tuple[int, int]]) -> list[Block]:
    from bisect import bisect_right

    positions = [cut[0] for cut in cuts]

    def shift(offset: int) -> int:
        at = bisect_right(positions, offset)
        return max(offset - (cuts[at - 1][1] if at else 0), 0)

    return [replace(block, start=shift(block.start), end=shift(block.end)) for block in blocks]

"""What a worker and its parent say to each other: frames of length (four bytes, big-endian) and JSON.

Both sides import this file, so it loads nothing heavy. A frame is a list of items, so that a small file costs one
frame. The parent believes nothing: `decode` checks every type, and anything odd is a `BadFrame`, after which the
worker is killed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pensieve_mcp.corpus.types import Block, Facts, Piece, SkipReason, UnitKind

HEADER = struct.Struct(">I")
MAX_FRAME_BYTES = 256 * 2**20  # 50 million characters of four bytes each, and some room
MEMORY_EXIT = 77  # the watchdog's exit status: more memory than allowed

_KINDS = frozenset(get_args(UnitKind))
_REASONS = frozenset(get_args(SkipReason))


class BadFrame(Exception):
    """The other side sent something that is no frame of ours."""


@dataclass(frozen=True, slots=True)
class Began:
    """Which extractor took the file, and whether it can start at a later unit after a crash."""

    extractor: str
    resumable: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The file could not be read (further)."""

    reason: SkipReason
    detail: str


@dataclass(frozen=True, slots=True)
class Done:
    """The file is finished, well or not; `peak_bytes` is the worker's highest memory so far."""

    peak_bytes: int


Item = Began | Piece | Facts | Refused | Done


def encode(items: Sequence[Item]) -> bytes:
    """One frame, header included. Lone surrogates, which UTF-8 cannot carry, become U+FFFD."""
    plain = [_plain(item) for item in items]
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    try:
        payload = text.encode("utf-8")
    except UnicodeEncodeError:
        payload = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text).encode("utf-8")
    if len(payload) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(payload):,} bytes")
    return HEADER.pack(len(payload)) + payload


def _plain(item: Item) -> list[Any]:
    match item:
        case Piece():
            rows: list[list[Any]] = []
            before: tuple[str, ...] = ()
            for b in item.blocks:
                # A heading path is sent once and then left out while it stays the same.
                heading = None if b.heading == before else b.heading
                before = b.heading
                if heading is None and b.first_line is None and b.cells is None and b.last_line is None:
                    rows.append([b.start, b.end])
                else:
                    rows.append([b.start, b.end, heading, b.first_line, b.last_line, b.cells])
            return ["p", item.text, item.kind, item.ordinal, item.label, rows]
        case Facts():
            told = [item.encoding, item.replaced, item.verbatim, item.warnings, item.partial]
            return ["f", item.media_type, item.title, *told]
        case Began():
            return ["b", item.extractor, item.resumable]
        case Refused():
            return ["r", item.reason, item.detail]
        case Done():
            return ["d", item.peak_bytes]


def decode(payload: bytes | bytearray | memoryview) -> list[Item]:
    """The items of one frame (header taken off). Raises BadFrame for anything but them."""
    try:
        rows = json.loads(bytes(payload))
        return [_item(row) for row in rows]
    except (ValueError, TypeError, IndexError, RecursionError) as problem:
        raise BadFrame(f"{type(problem).__name__}: {problem}"[:200]) from problem


def _item(row: Any) -> Item:
    match row:
        case ["p", str(text), str(kind), int(ordinal), str(label), list(rows)] if kind in _KINDS:
            return Piece(text, kind, ordinal, label, _blocks(rows))  # type: ignore[arg-type]  # checked against the literal
        case [
            "f",
            str(media),
            str(title),
            encoding,
            int(replaced),
            bool(verbatim),
            list(warnings),
            bool(partial),
        ]:
            if not (encoding is None or isinstance(encoding, str)) or not all(
                isinstance(w, str) for w in warnings
            ):
                raise ValueError("facts with a wrong type in them")
            return Facts(media, title, encoding, replaced, verbatim, tuple(warnings), partial)
        case ["b", str(extractor), bool(resumable)]:
            return Began(extractor, resumable)
        case ["r", str(reason), str(detail)] if reason in _REASONS:
            return Refused(reason, detail)  # type: ignore[arg-type]  # checked against the literal
        case ["d", int(peak)]:
            return Done(peak)
    raise ValueError(f"no item of ours: {str(row)[:80]}")


def _blocks(rows: list[Any]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    before: tuple[str, ...] = ()
    for row in rows:
        if not isinstance(row, list) or len(row) not in (2, 6):
            raise ValueError(f"no block of ours: {str(row)[:80]}")
        start, end = row[0], row[1]
        if type(start) is not int or type(end) is not int:
            raise ValueError(f"no offsets: {str(row)[:80]}")
        if len(row) == 2:
            blocks.append(Block(start, end, before))
            continue
        heading, first, last, cells = row[2:]
        if heading is not None:
            before = tuple(_text(part) for part in heading)
        blocks.append(
            Block(start, end, before, _count(first), _count(last), None if cells is None else _text(cells))
        )
    return tuple(blocks)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text expected")
    return value


def _count(value: Any) -> int | None:
    if value is not None and not isinstance(value, int):
        raise ValueError("number expected")
    return value

"""How a document's text and its structure lie on disk: pages of 64k characters, units and blocks in columns.

A chunk of a 200 MB file must cost one or two pages, and a document with a million rows must not cost a million
Python objects to be looked at. Pure functions between values and bytes; `store.py` keeps the bytes.
"""

from __future__ import annotations

import json
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pensieve_mcp.corpus.types import Block, Span, Unit

PAGE_CHARS = 65_536
_LEVEL = 1  # level 6 saves a tenth of the size for three times the time


def text_pages(text: str) -> Iterator[tuple[int, int, bytes]]:
    """(page number, line its first character stands on, compressed bytes) for each 64k characters."""
    line = 1
    for start in range(0, len(text), PAGE_CHARS):
        page = text[start : start + PAGE_CHARS]
        yield start // PAGE_CHARS, line, zlib.compress(page.encode("utf-8", "surrogatepass"), _LEVEL)
        line += page.count("\n")


def page_text(data: bytes) -> str:
    return zlib.decompress(data).decode("utf-8", "surrogatepass")


def pack_borders(borders: Sequence[int]) -> bytes:
    """Ascending offsets, as differences."""
    steps = array("I", (after - before for before, after in zip([0, *borders], borders, strict=False)))
    return zlib.compress(steps.tobytes(), _LEVEL)


def unpack_borders(data: bytes) -> array[int]:
    steps = array("I")
    steps.frombytes(zlib.decompress(data))
    borders = array("q", bytes(8 * len(steps)))
    at = 0
    for place, step in enumerate(steps):
        at += step
        borders[place] = at
    return borders


@dataclass(frozen=True, slots=True)
class Layout:
    """Units and blocks of a document. Blocks stay in columns and become values only where they are asked for."""

    units: tuple[Unit, ...]
    starts: array[int]
    ends: array[int]
    headings: list[list[str]]  # distinct heading paths
    heading_of: array[int]  # per block, number in `headings`
    lines: list[list[int | None]]  # per block [first, last], or empty when none has lines
    cells: list[str | None]  # per block, or empty

    @classmethod
    def of(cls, units: Sequence[Unit], blocks: Sequence[Block]) -> Layout:
        numbers: dict[tuple[str, ...], int] = {}
        heading_of = array("q", [numbers.setdefault(block.heading, len(numbers)) for block in blocks])
        return cls(
            tuple(units),
            array("q", [block.start for block in blocks]),
            array("q", [block.end for block in blocks]),
            [list(heading) for heading in numbers],
            heading_of,
            [[b.first_line, b.last_line] for b in blocks] if any(b.first_line for b in blocks) else [],
            [b.cells for b in blocks] if any(b.cells for b in blocks) else [],
        )

    def block(self, number: int) -> Block:
        first, last = self.lines[number] if self.lines else (None, None)
        return Block(
            self.starts[number],
            self.ends[number],
            tuple(self.headings[self.heading_of[number]]),
            first,
            last,
            self.cells[number] if self.cells else None,
        )

    def blocks(self) -> list[Block]:
        return [self.block(number) for number in range(len(self.starts))]

    def units_in(self, span: Span) -> tuple[Unit, ...]:
        """The units a span touches; they follow each other and never overlap."""
        first = bisect_right(self.units, span.start, key=lambda unit: unit.end)
        return self.units[first : bisect_left(self.units, span.end, key=lambda unit: unit.start)]

    def blocks_in(self, span: Span) -> list[Block]:
        """The blocks a span touches; for a long stretch its first and last thousand."""
        first = bisect_right(self.ends, span.start)
        last = bisect_left(self.starts, span.end)
        if last - first <= 2_000:
            return [self.block(number) for number in range(first, last)]
        return [self.block(n) for n in (*range(first, first + 1_000), *range(last - 1_000, last))]

    def heading_at(self, offset: int) -> tuple[str, ...]:
        number = bisect_right(self.starts, offset) - 1
        return tuple(self.headings[self.heading_of[number]]) if number >= 0 else ()

    def pack(self) -> bytes:
        whole: dict[str, Any] = {
            "units": [[u.kind, u.ordinal, u.label, u.start, u.end] for u in self.units],
            "starts": _steps(self.starts),
            "sizes": [end - start for start, end in zip(self.starts, self.ends, strict=True)],
            "headings": self.headings,
            "of": self.heading_of.tolist() if len(self.headings) > 1 else [],
            "lines": self.lines,
            "cells": self.cells,
        }
        return zlib.compress(json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode(), _LEVEL)

    @classmethod
    def unpack(cls, data: bytes) -> Layout:
        whole = json.loads(zlib.decompress(data))
        starts = array("q")
        at = 0
        for step in whole["starts"]:
            at += step
            starts.append(at)
        ends = array("q", [start + size for start, size in zip(starts, whole["sizes"], strict=True)])
        return cls(
            tuple(
                Unit(kind, ordinal, label, start, end) for kind, ordinal, label, start, end in whole["units"]
            ),
            starts,
            ends,
            whole["headings"],
            array("q", whole["of"]) if whole["of"] else array("q", bytes(8 * len(starts))),
            whole["lines"],
            whole["cells"],
        )


def _steps(starts: Sequence[int]) -> list[int]:
    return [after - before for before, after in zip([0, *starts], starts, strict=False)]

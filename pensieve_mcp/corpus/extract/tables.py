"""Rows of a sheet to blocks that carry their cell range.

Why: workbooks, open or not, old or new, are cited the same way, `Sheet1!B3:F9`. Rows stand on a line each, their
cells parted by tabs; empty cells and rows are never made. A block ends at an empty row or when it is long enough to be
read at once, and its range is the smallest that holds its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pensieve_mcp.corpus.extract.writing import UnitWriter
from pensieve_mcp.corpus.types import Limits, Piece

_BLOCK_CHARS = 800  # a passage is at most 1,000
_BLOCK_ROWS = 50

Cell = tuple[int, str]  # column from 1, text


class SheetWriter:
    """Gathers the rows of one sheet."""

    def __init__(self, ordinal: int, name: str, limits: Limits) -> None:
        self.unit = UnitWriter("sheet", ordinal, name)
        self.rows = 0
        self.cut_cells = False
        self._limits = limits
        self._lines: list[str] = []
        self._chars = 0
        self._range = (0, 0, 0, 0)  # first column, first row, last column, last row

    @property
    def full(self) -> bool:
        return self.rows >= self._limits.table_rows

    def row(self, number: int, cells: Sequence[Cell]) -> None:
        """Add a row that has content; `number` counts from 1 and grows."""
        if len(cells) > self._limits.row_cells:
            self.cut_cells = True
            cells = cells[: self._limits.row_cells]
        most = self._limits.cell_chars
        kept = [(column, " ".join(text[:most].split("\n")).strip()) for column, text in cells]
        kept = [(column, text) for column, text in kept if text]
        if not kept or self.full:
            return
        self.rows += 1
        line = "\t".join(text for _, text in kept)
        first, last = kept[0][0], kept[-1][0]
        _, top, _, bottom = self._range
        gap = number != bottom + 1
        if self._lines and (gap or self._chars + len(line) > _BLOCK_CHARS or len(self._lines) >= _BLOCK_ROWS):
            self.close_block()
        if not self._lines:
            self._range = (first, number, last, number)
        else:
            left, top, right, _ = self._range
            self._range = (min(left, first), top, max(right, last), number)
        self._lines.append(line)
        self._chars += len(line) + 1

    def close_block(self) -> None:
        if self._lines:
            left, top, right, bottom = self._range
            start, end = f"{column_letters(left)}{top}", f"{column_letters(right)}{bottom}"
            self.unit.block("\n".join(self._lines), cells=start if start == end else f"{start}:{end}")
        self._lines, self._chars = [], 0

    def take(self) -> Iterator[Piece]:
        yield from self.unit.take()

    def rest(self) -> Iterator[Piece]:
        self.close_block()
        yield from self.unit.rest()

    def warnings(self) -> Iterator[str]:
        name = self.unit.label or f"sheet {self.unit.ordinal}"
        if self.full:
            yield f"{name}: only the first {self._limits.table_rows:,} rows were read"
        if self.cut_cells:
            yield f"{name}: only the first {self._limits.row_cells:,} cells of a row were read"


def column_letters(number: int) -> str:
    """1 is A, 27 is AA."""
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def column_number(reference: str) -> int:
    """The column of `BC12`, from 1; 0 when there is none."""
    number = 0
    for char in reference[:8]:
        if "A" <= char <= "Z":
            number = number * 26 + ord(char) - 64
        elif char != "$":
            break
    return number

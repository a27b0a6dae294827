"""Where a stretch of a document stands, in words a person can use: `p. 12`, `Sheet1!B3:F9`, `§ 2.1 Terms`.

Pure: it is given the units and blocks the stretch touches. Pages and slides come first, since a person turns to
them; then cells, headings, lines. Leaves finding units and lines to `store.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pensieve_mcp.corpus.types import Block, Span, Unit

MAX_CHARS = 80  # a locator stands in every result line
HEADING_CHARS = 48

_CELLS = re.compile(r"\$?([A-Z]{1,3})\$?(\d+)(?::\$?([A-Z]{1,3})\$?(\d+))?\Z")
_PLAIN_SHEET = re.compile(r"\w+\Z")
_NAMED = {  # singular, plural; the number follows
    "page": ("p.", "pp."),
    "slide": ("slide", "slides"),
    "chapter": ("chapter", "chapters"),
    "message": ("message", "messages"),
    "cell": ("cell", "cells"),
    "footnote": ("footnote", "footnotes"),
    "comment": ("comment", "comments"),
}
_BARE = {"notes": "notes", "header": "header", "footnote": "footnotes", "comment": "comments"}


def locate(
    span: Span,
    units: Sequence[Unit],
    blocks: Sequence[Block],
    *,
    lines: tuple[int, int] | None = None,
) -> str:
    """The locator of a span; empty when nothing is known but the document.

    `units` and `blocks` are the document's, or those the span touches, in order. `lines` are the one-based lines of
    the file where its text is the file's own.
    """
    touched = [unit for unit in units if unit.start < span.end and unit.end > span.start]
    inside = [block for block in blocks if block.start < span.end and block.end > span.start]
    place = _units(touched, inside)
    # A page tells it all; a chapter, a message or a plain body wants its heading beside it.
    heading = _heading(inside)
    if place and heading and not _pages(touched) and _last_part(place) == heading:
        heading = ""
    if lines is None and not place:
        lines = _block_lines(inside)
    told = (
        f"lines {lines[0]}–{lines[1]}"
        if lines and lines[0] != lines[1]
        else f"line {lines[0]}"
        if lines
        else ""
    )
    if place:
        return _joined(place, f"§ {heading}" if heading else "")
    return _joined(f"§ {heading}" if heading else "", told)


def _joined(first: str, second: str) -> str:
    if first and second and len(first) + len(second) + 3 <= MAX_CHARS:
        return f"{first} · {second}"
    return first or second


def _last_part(place: str) -> str:
    return place.split(": ", 1)[-1]


def _pages(units: Sequence[Unit]) -> bool:
    return bool(units) and units[0].kind in ("page", "slide", "sheet")


def _units(units: Sequence[Unit], blocks: Sequence[Block]) -> str:
    if not units:
        return ""
    first = units[0]
    if first.kind == "body":
        return _short(first.label) if len(units) == 1 else ""  # an attachment has its name
    same = [unit for unit in units if unit.kind == first.kind]
    if first.kind == "sheet":
        return _sheets(same, blocks)
    if first.kind in ("page", "slide"):
        one, many = _NAMED[first.kind]
        return f"{one} {_number(first)}" if len(same) == 1 else f"{many} {_number(first)}–{_number(same[-1])}"
    if first.kind in ("chapter", "message"):
        one, many = _NAMED[first.kind]
        if len(same) > 1:
            return f"{many} {first.ordinal}–{same[-1].ordinal}"
        label = _short(first.label)
        return (
            f"{one} {first.ordinal}: {label}"
            if label and label != str(first.ordinal)
            else f"{one} {first.ordinal}"
        )
    if first.kind == "cell":
        return f"cell {first.ordinal}" if len(same) == 1 else f"cells {first.ordinal}–{same[-1].ordinal}"
    name = _BARE[first.kind]
    label = _short(first.label)
    return label if label and label.lower() != name else name


def _number(unit: Unit) -> str:
    """A page's own number where it has one (`iv`, `A-3`), else its place."""
    label = unit.label.strip()
    return label if label and len(label) <= 12 and unit.kind == "page" else str(unit.ordinal)


def _sheets(units: Sequence[Unit], blocks: Sequence[Block]) -> str:
    names = [_short(unit.label) or f"sheet {unit.ordinal}" for unit in units]
    if len(units) > 1:
        return f"{names[0]} to {names[-1]}"
    cells = _range([block.cells for block in blocks if block.cells])
    if not cells:
        return names[0]
    name = names[0] if _PLAIN_SHEET.match(names[0]) else f"'{names[0]}'"
    return f"{name}!{cells}"


def _range(cells: Sequence[str]) -> str:
    """The smallest range that holds all of these."""
    columns: list[int] = []
    rows: list[int] = []
    for text in cells:
        match = _CELLS.match(text.rsplit("!", 1)[-1])
        if match is None:
            return cells[0] if len(cells) == 1 else ""
        for column, row in ((match[1], match[2]), (match[3], match[4])):
            if column:
                columns.append(_column_number(column))
                rows.append(int(row))
    if not columns:
        return ""
    first = f"{_column_name(min(columns))}{min(rows)}"
    last = f"{_column_name(max(columns))}{max(rows)}"
    return first if first == last else f"{first}:{last}"


def _column_number(name: str) -> int:
    number = 0
    for letter in name:
        number = number * 26 + ord(letter) - 64
    return number


def _column_name(number: int) -> str:
    name = ""
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name


def _heading(blocks: Sequence[Block]) -> str:
    """The heading the span begins under: the innermost of its first block that has one."""
    for block in blocks:
        # The columns of a table stand as its heading, for searching; lines and cells tell a person more.
        if block.heading and " | " not in block.heading[-1]:
            return _short(block.heading[-1])
    return ""


def _block_lines(blocks: Sequence[Block]) -> tuple[int, int] | None:
    first = next((block.first_line for block in blocks if block.first_line is not None), None)
    if first is None:
        return None
    last = next((b.last_line or b.first_line for b in reversed(blocks) if b.first_line is not None), None)
    return first, max(first, last or first)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= HEADING_CHARS else line[: HEADING_CHARS - 1].rstrip() + "…"

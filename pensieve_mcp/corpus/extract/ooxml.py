"""What Word, PowerPoint and Excel packages share: paragraphs, tables, text boxes, charts, the title.

Why own: see docs/decisions/0002-own-office-readers.md. One handler reads WordprocessingML and DrawingML alike, since
both say `p`, `r`, `t`, `tbl`, `tr`, `tc`; prefixes are ignored, so that strict and transitional files read the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pensieve_mcp.corpus.extract.package import Attributes, Package, attribute

_LONG_CELL_CHARS = 1_500  # a table whose cells hold pages is layout; its paragraphs stand for themselves
_CHART_CHARS = 20_000
_SKIPPED = frozenset(("Fallback", "moveFrom", "del", "rt", "instrText", "delText", "tblGrid", "binData"))


@dataclass(slots=True)
class Paragraph:
    """A paragraph while it is open, with what its properties say."""

    words: list[str] = field(default_factory=list)
    style: str = ""
    outline: int | None = None  # zero-based level set on the paragraph itself


@dataclass(slots=True)
class _Table:
    cells: list[list[str]] = field(default_factory=list)
    paragraphs: list[str] | None = None  # of the open cell


class Paragraphs:
    """Turns a stream of XML events into paragraphs and table rows.

    `emit(text, paragraph)` is called for each; `paragraph` is None for a row, whose cells are parted by tabs.
    Text boxes nest inside paragraphs and come out before the paragraph they hang on. Tracked deletions, the old place
    of moved text, field codes and phonetic readings are left out.
    """

    def __init__(self, emit: Callable[[str, Paragraph | None], None]) -> None:
        self._emit = emit
        self._open: list[Paragraph] = []
        self._tables: list[_Table | None] = []  # None: a text box inside a cell begins a text of its own
        self._skipping = 0
        self._in_text = False
        self._in_run = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if self._skipping or name in _SKIPPED:
            self._skipping += 1
            return
        match name:
            case "t":
                self._in_text = True
            case "p":
                self._open.append(Paragraph())
            case "r":
                self._in_run += 1
            case "tab" | "ptab" if self._in_run:
                self._say("\t")
            case "br" | "cr":
                self._say("\n")
            case "noBreakHyphen":
                self._say("-")
            case "softHyphen":
                self._say("\u00ad")
            case "pStyle" if self._open:
                self._open[-1].style = attribute(attributes, "val")
            case "outlineLvl" if self._open:
                level = attribute(attributes, "val")
                self._open[-1].outline = int(level) if level.isdigit() else None
            case "tbl":
                self._tables.append(_Table())
            case "txbxContent":
                self._tables.append(None)
            case "tr" if self._tables and (table := self._tables[-1]):
                table.cells = []
            case "tc" if self._tables and (table := self._tables[-1]):
                table.paragraphs = []
            case "fld" if attributes.get("type") == "slidenum":
                self._skipping = 1

    def end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        match name:
            case "t":
                self._in_text = False
            case "r":
                self._in_run = max(self._in_run - 1, 0)
            case "p" if self._open:
                paragraph = self._open.pop()
                self._paragraph("".join(paragraph.words), paragraph)
            case "tc" if self._tables and (table := self._tables[-1]):
                table.cells.append(table.paragraphs or [])
                table.paragraphs = None
            case "tr" if self._tables and (table := self._tables[-1]):
                cells, table.cells = table.cells, []
                self._row(cells)
            case "tbl" | "txbxContent" if self._tables:
                self._tables.pop()

    def data(self, text: str) -> None:
        if self._in_text and not self._skipping:
            self._say(text)

    def _say(self, text: str) -> None:
        if self._open:
            self._open[-1].words.append(text)

    def _paragraph(self, text: str, paragraph: Paragraph) -> None:
        table = self._tables[-1] if self._tables else None
        if table is not None and table.paragraphs is not None:
            if text.strip():
                table.paragraphs.append(text)
        else:
            self._emit(text, paragraph)

    def _row(self, cells: list[list[str]]) -> None:
        outer = self._tables[-2] if len(self._tables) > 1 else None
        if outer is not None and outer.paragraphs is not None:
            # A table within a cell: its rows are paragraphs of that cell.
            outer.paragraphs.append(" ".join(" ".join(cell) for cell in cells if cell))
        else:
            for text in join_cells(cells):
                self._emit(text, None)


def join_cells(cells: list[list[str]]) -> list[str]:
    """A row as one line with tabs, or, where cells hold whole pages, as their paragraphs."""
    if any(sum(map(len, cell)) > _LONG_CELL_CHARS for cell in cells):
        return [text for cell in cells for text in cell]
    return ["\t".join(" ".join(cell).replace("\n", " ") for cell in cells).rstrip("\t")]


class _Strings:
    """All text of a chart or diagram: `t` of its labels and, if asked, `v` of its series."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.found: list[str] = []
        self.chars = 0
        self._wanted = wanted
        self._words: list[str] | None = None

    def start(self, name: str, attributes: Attributes) -> None:
        if name in self._wanted:
            self._words = []

    def end(self, name: str) -> None:
        if name in self._wanted and self._words is not None:
            text = "".join(self._words).strip()
            self._words = None
            if text and self.chars < _CHART_CHARS:
                self.found.append(text)
                self.chars += len(text)

    def data(self, text: str) -> None:
        if self._words is not None:
            self._words.append(text)


def drawn_text(package: Package, part: str, warnings: list[str]) -> str:
    """The words of a chart (with the values of its series) or a SmartArt diagram, in order, else ""."""
    strings = _Strings(frozenset(("t", "v")))
    package.parse_aside(part, strings, warnings, "a chart or diagram")
    return " ".join(strings.found)


def title_of(package: Package) -> str:
    """The title in the document's properties."""
    for relation in package.relations("").values():
        if relation.kind == "core-properties" and relation.target in package:
            strings = _Strings(frozenset(("title",)))
            package.parse_aside(relation.target, strings, [], "")  # a title is no text
            return strings.found[0] if strings.found else ""
    return ""

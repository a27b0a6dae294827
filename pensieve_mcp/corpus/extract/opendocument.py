"""ODT, ODS, ODP and their templates: one stream of `content.xml`, then headers and footers of `styles.xml`.

Notes and comments become units of their own, each sheet and slide one, repeated cells and rows stand once, counted
spaces are clamped (a file of 2 KB may ask for two thousand million). Deleted text under tracked changes is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.extract.ooxml import join_cells
from pensieve_mcp.corpus.extract.package import Attributes, Package, attribute
from pensieve_mcp.corpus.extract.tables import Cell, SheetWriter
from pensieve_mcp.corpus.extract.writing import Headings, UnitWriter
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, UnitKind, Unreadable

_MOST_SPACES = 100  # of one text:s; more is layout, or a bomb
_WHITE = re.compile(r"[ \t\r\n]+")
_SKIPPED = frozenset(
    ("tracked-changes", "note-citation", "ruby-text", "forms", "sequence-decls", "creator", "date", "scripts")
)
# These hold paragraphs of their own inside a paragraph, whose text does not go on within them.
_BARRIERS = frozenset(("note-body", "annotation", "text-box", "custom-shape", "object"))


class OpenDocumentExtractor:
    name = "odf"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        package = Package(file, limits)
        if "content.xml" not in package:
            raise Unreadable("corrupt", "an OpenDocument file without content.xml")
        warnings: list[str] = []
        if "META-INF/manifest.xml" in package:
            manifest = _Manifest()
            package.parse_aside("META-INF/manifest.xml", manifest, warnings, "the manifest")
            if manifest.encrypted:
                raise Unreadable("encrypted", "an OpenDocument file protected by a password")
        media_type = "application/vnd.oasis.opendocument.text"
        if "mimetype" in package:
            media_type = (
                package.read("mimetype", 4_096).decode("ascii", "replace").strip()[:100] or media_type
            )
        meta = _Meta()
        package.parse_aside("meta.xml", meta, warnings, "the title")
        title = " ".join("".join(meta.title).split())
        yield Facts(media_type, title=title)
        content = _Content(limits, warnings)
        for _ in package.parse_as_far_as_it_goes("content.xml", content, warnings, "the text"):
            yield from content.take()
        yield from content.rest()
        styles = _Furniture()
        if (
            "spreadsheet" not in media_type
        ):  # there they are sheet names and page numbers, as `???` and `Page 1`
            package.parse_aside("styles.xml", styles, warnings, "headers and footers")
        for ordinal, (label, texts) in enumerate(styles.unique(), start=1):
            writer = UnitWriter("header", ordinal, label)
            for text in texts:
                writer.block(text)
            yield from writer.rest()
        yield Facts(media_type, title=title, warnings=tuple(warnings), partial=bool(warnings))


class _Manifest:
    encrypted = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "encryption-data":
            self.encrypted = True

    def end(self, name: str) -> None: ...
    def data(self, text: str) -> None: ...


class _Meta:
    def __init__(self) -> None:
        self.title: list[str] = []
        self._listening = False

    def start(self, name: str, attributes: Attributes) -> None:
        self._listening = name == "title"

    def end(self, name: str) -> None:
        self._listening = False

    def data(self, text: str) -> None:
        if self._listening:
            self.title.append(text)


class _Texts:
    """Paragraphs out of events: spaces, tabs, line breaks, skipped parts. Subclasses say what becomes of them."""

    def __init__(self) -> None:
        self._open: list[list[str] | None] = []  # words of open paragraphs; None is a barrier
        self._skipping = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if self._skipping or name in _SKIPPED:
            self._skipping += 1
            return
        if name in ("p", "h"):
            self._open.append([])
        elif name in _BARRIERS:
            self._open.append(None)
        elif name == "s":
            count = attribute(attributes, "c", "1")
            self._say(" " * (min(int(count), _MOST_SPACES) if count.isdigit() else 1))
        elif name == "tab":
            self._say("\t")
        elif name == "line-break":
            self._say("\n")
        self.opened(name, attributes)

    def end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        if name in ("p", "h") and self._open and self._open[-1] is not None:
            self.paragraph("".join(self._open.pop() or ()).strip(" \n"))
        elif name in _BARRIERS and self._open:
            self._open.pop()
        self.closed(name)

    def data(self, text: str) -> None:
        if not self._skipping:
            self._say(_WHITE.sub(" ", text))

    def _say(self, text: str) -> None:
        if self._open and (words := self._open[-1]) is not None:
            words.append(text)

    def opened(self, name: str, attributes: Attributes) -> None: ...
    def closed(self, name: str) -> None: ...
    def paragraph(self, text: str) -> None: ...


class _Furniture(_Texts):
    """Headers and footers of the page styles."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[tuple[str, list[str]]] = []
        self._inside: str | None = None

    def opened(self, name: str, attributes: Attributes) -> None:
        if name.split("-")[0] in ("header", "footer") and not name.endswith(("style", "decl")):
            self._inside = name.split("-")[0]
            self._found.append((self._inside, []))

    def closed(self, name: str) -> None:
        if name.split("-")[0] in ("header", "footer"):
            self._inside = None

    def paragraph(self, text: str) -> None:
        if self._inside and text.strip():
            self._found[-1][1].append(text)

    def unique(self) -> Iterator[tuple[str, list[str]]]:
        seen = set()
        for label, texts in self._found:
            if texts and tuple(texts) not in seen:
                seen.add(tuple(texts))
                yield label, texts


class _Table:
    def __init__(self) -> None:
        self.cells: list[list[str]] = []
        self.paragraphs: list[str] | None = None


class _Content(_Texts):
    def __init__(self, limits: Limits, warnings: list[str]) -> None:
        super().__init__()
        self.warnings = warnings
        self._limits = limits
        self._ready: list[Piece] = []
        self._unit = UnitWriter("body", 1)
        self._aside: list[UnitWriter] = []  # open footnote, comment or speaker notes
        self._asides: dict[tuple[UnitKind, int], UnitWriter] = {}
        self._headings = Headings()
        self._level = 0
        self._tables: list[_Table] = []
        self._sheet: SheetWriter | None = None
        self._sheets = self._slides = 0
        self._in_spreadsheet = self._in_title = False
        self._row = self._column = 0
        self._row_repeat = self._column_repeat = 1
        self._row_cells: list[Cell] = []
        self._value = ""

    def take(self) -> Iterator[Piece]:
        yield from self._ready
        self._ready.clear()
        yield from self._unit.take()
        if self._sheet is not None:
            yield from self._sheet.take()

    def rest(self) -> Iterator[Piece]:
        yield from self._ready
        if self._sheet is not None:  # the file broke off within a sheet
            yield from self._sheet.rest()
        yield from self._unit.rest()
        for writer in self._asides.values():
            yield from writer.rest()

    def opened(self, name: str, attributes: Attributes) -> None:
        match name:
            case "h":
                level = attribute(attributes, "outline-level", "1")
                self._level = int(level) if level.isdigit() else 1
            case "p":
                self._level = 0
            case "spreadsheet":
                self._in_spreadsheet = True
            case "table":
                self._open_table(attributes)
            case "table-row":
                self._row_repeat = _repeat(attributes, "number-rows-repeated")
                self._column, self._row_cells = 0, []
                if self._tables:
                    self._tables[-1].cells = []
            case "table-cell" | "covered-table-cell" if self._tables:
                self._tables[-1].paragraphs = []
                self._column_repeat = _repeat(attributes, "number-columns-repeated")
                self._value = next(
                    (
                        v
                        for k in ("string-value", "date-value", "time-value", "boolean-value", "value")
                        if (v := attribute(attributes, k))
                    ),
                    "",
                )
            case "page" if attribute(attributes, "master-page-name") or attributes:
                self._slides += 1
                self._headings = Headings()
                self._unit = UnitWriter("slide", self._slides)
            case "frame" | "custom-shape":
                self._in_title = attribute(attributes, "class") == "title"
            case "notes":
                self._aside.append(
                    self._aside_writer("notes", self._slides, f"notes of slide {self._slides}")
                )
            case "note":
                label = "endnotes" if attribute(attributes, "note-class") == "endnote" else "footnotes"
                self._aside.append(self._aside_writer("footnote", 2 if label == "endnotes" else 1, label))
            case "annotation":
                self._aside.append(self._aside_writer("comment", 1, "comments"))

    def closed(self, name: str) -> None:
        match name:
            case "table" if self._tables:
                self._tables.pop()
                if self._sheet is not None and not self._tables:
                    self.warnings.extend(self._sheet.warnings())
                    self._ready.extend(self._sheet.rest())
                    self._sheet = None
            case "table-cell" | "covered-table-cell" if self._tables:
                self._close_cell(self._tables[-1])
            case "table-row" if self._tables:
                self._close_row()
            case "page" if self._slides:
                self._ready.extend(self._unit.rest())
                for writer in self._asides.values():
                    self._ready.extend(writer.rest())
                self._asides.clear()
                self._unit = UnitWriter("body", 1)
            case "frame" | "custom-shape":
                self._in_title = False
            case "notes" | "note" | "annotation" if self._aside:
                self._aside.pop()

    def paragraph(self, text: str) -> None:
        if self._aside:
            self._aside[-1].block(text, self._headings.path)
        elif self._tables and (paragraphs := self._tables[-1].paragraphs) is not None:
            if text.strip():
                paragraphs.append(text)
        elif self._sheet is not None:
            self._sheet.close_block()
            self._sheet.unit.block(text)
        elif self._in_title and self._unit.kind == "slide":
            self._unit.label = " ".join(text.split())[:200] or self._unit.label
            self._unit.block(text, self._headings.open(1, text))
        else:
            path = (
                self._headings.open(self._level, text)
                if self._level and text.strip()
                else self._headings.path
            )
            self._unit.block(text, path)

    def _aside_writer(self, kind: UnitKind, ordinal: int, label: str) -> UnitWriter:
        return self._asides.setdefault((kind, ordinal), UnitWriter(kind, ordinal, label))

    def _open_table(self, attributes: Attributes) -> None:
        if self._in_spreadsheet and not self._tables:
            self._sheets += 1
            self._row = 0
            self._sheet = SheetWriter(self._sheets, attribute(attributes, "name"), self._limits)
        self._tables.append(_Table())

    def _close_cell(self, table: _Table) -> None:
        paragraphs, table.paragraphs = table.paragraphs or [], None
        if self._sheet is not None and len(self._tables) == 1:
            text = "\n".join(paragraphs) or self._value
            if text:
                self._row_cells.append((self._column + 1, text))
            self._column += self._column_repeat
        else:
            table.cells.append(paragraphs)
        self._value = ""

    def _close_row(self) -> None:
        table = self._tables[-1]
        if self._sheet is not None and len(self._tables) == 1:
            if self._row_cells:
                self._sheet.row(self._row + 1, self._row_cells)
            self._row += self._row_repeat
            self._row_cells = []
            return
        cells, table.cells = table.cells, []
        outer = self._tables[-2] if len(self._tables) > 1 else None
        if outer is not None and outer.paragraphs is not None:
            outer.paragraphs.append(" ".join(" ".join(cell) for cell in cells if cell))
            return
        writer = self._aside[-1] if self._aside else self._unit
        for text in join_cells(cells):
            writer.block(text, self._headings.path)


def _repeat(attributes: Attributes, name: str) -> int:
    count = attribute(attributes, name, "1")
    return max(int(count), 1) if count.isdigit() and len(count) < 12 else 1

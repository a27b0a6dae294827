"""XLSX and XLSM as a stream: a unit for each sheet, a block for each cell range.

Numbers are written as Excel would hold them (15 digits), dates by their number format as ISO, in the 1900 or the 1904
system, error values as they are. Two cells at opposite corners cost two cells: nothing is ever laid out as a grid.
Formulas are left out, their last values read. Hidden sheets are read too.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.extract.ooxml import Paragraph, Paragraphs, drawn_text, title_of
from pensieve_mcp.corpus.extract.package import Attributes, Package, attribute
from pensieve_mcp.corpus.extract.tables import Cell, SheetWriter, column_number
from pensieve_mcp.corpus.extract.writing import UnitWriter
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, Unreadable

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

_STRINGS_BYTES = 400_000_000  # of memory for shared strings; a bomb of POI's tests took 4 GB
_STRING_COST_BYTES = 60  # of a Python string beside its characters
_DATE_IDS = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
_LAST_DAY = 2_958_466  # 10000-01-01
_LITERALS = re.compile(r'"[^"]*"|\\.|\[(?!h|m|s)[^\]]*\]|_.|\*.', re.I)


def is_date_format(code: str) -> bool:
    """Whether a number format shows a date or a time."""
    bare = _LITERALS.sub("", code)
    return "general" not in bare.lower() and re.search(r"[ymdhs]", bare, re.I) is not None


class SheetsExtractor:
    name = "xlsx"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        return self.extract_from(file, hint, limits, 1)

    def extract_from(
        self, file: BinaryIO, hint: FileHint, limits: Limits, first: int
    ) -> Iterator[Piece | Facts]:
        package = Package(file, limits)
        main = package.main_part()
        if main is None or main not in package:
            raise Unreadable("corrupt", "the part that holds the workbook is missing")
        facts = Facts(MEDIA_TYPE, title=title_of(package))
        yield facts
        workbook = _Workbook()
        package.parse_whole(main, workbook)
        relations = package.relations(main)
        strings, styles = _Strings(), _Styles()
        warnings: list[str] = []
        for relation in relations.values():
            if relation.kind == "styles":
                package.parse_aside(relation.target, styles, warnings, "number formats")
            elif relation.kind == "sharedStrings" and relation.target in package:
                for _ in package.parse(relation.target, strings):
                    yield facts  # a sign of life: a big table of strings takes its time
        for number, (name, rid) in enumerate(workbook.sheets, start=1):
            part = relations[rid].target if rid in relations else ""
            if number < first:
                continue
            if part not in package:
                warnings.append(f"sheet {name} is missing from the file")
                continue
            writer = SheetWriter(number, name, limits)
            rows = _Rows(strings.found, styles.dates, workbook.epoch, writer)
            for _ in package.parse_as_far_as_it_goes(part, rows, warnings, f"sheet {name}"):
                yield from writer.take()
                if writer.full:
                    break
            yield from _drawn(package, part, writer, warnings)
            yield from list(writer.rest()) or (
                [] if writer.unit.wrote else [Piece("", "sheet", number, name)]
            )
            yield from _comments(package, part, number, name, warnings)
            warnings.extend(writer.warnings())
        yield Facts(MEDIA_TYPE, title=facts.title, warnings=tuple(warnings), partial=bool(warnings))


class _Workbook:
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []  # name, relation id
        self.epoch = datetime.datetime(1899, 12, 30)

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "sheet":
            rid = next((value for key, value in attributes.items() if key.endswith(":id")), "")
            self.sheets.append((attributes.get("name", ""), rid))
        elif name == "workbookPr" and attributes.get("date1904") in ("1", "true", "on"):
            self.epoch = datetime.datetime(1904, 1, 1)

    def end(self, name: str) -> None: ...
    def data(self, text: str) -> None: ...


class _Strings:
    """The table of shared strings, phonetic readings left out."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._words: list[str] = []
        self._in_text = False
        self._phonetic = 0
        self._cost = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "t":
            self._in_text = not self._phonetic
        elif name == "rPh":
            self._phonetic += 1

    def end(self, name: str) -> None:
        if name == "t":
            self._in_text = False
        elif name == "rPh":
            self._phonetic -= 1
        elif name == "si":
            text = "".join(self._words)
            self._words.clear()
            self.found.append(text)
            self._cost += _STRING_COST_BYTES + len(text)
            if self._cost > _STRINGS_BYTES:
                raise Unreadable(
                    "bomb", f"{len(self.found):,} shared strings take more than {_STRINGS_BYTES:,} bytes"
                )

    def data(self, text: str) -> None:
        if self._in_text:
            self._words.append(text)


class _Styles:
    """Which cell styles show dates, as the numbers cells name them by."""

    def __init__(self) -> None:
        self.dates: set[str] = set()
        self._formats: dict[str, bool] = {}
        self._inside = False
        self._index = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "numFmt":
            self._formats[attributes.get("numFmtId", "")] = is_date_format(attributes.get("formatCode", ""))
        elif name == "cellXfs":
            self._inside = True
        elif name == "xf" and self._inside:
            number = attributes.get("numFmtId", "0")
            builtin = number.isdigit() and int(number) in _DATE_IDS
            if self._formats.get(number, builtin):
                self.dates.add(str(self._index))
            self._index += 1

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._inside = False

    def data(self, text: str) -> None: ...


class _Rows:
    def __init__(
        self, strings: list[str], dates: set[str], epoch: datetime.datetime, writer: SheetWriter
    ) -> None:
        self._strings = strings
        self._dates = dates
        self._epoch = epoch
        self._writer = writer
        self._row = 0
        self._column = 0
        self._cells: list[Cell] = []
        self._type = ""
        self._style = ""
        self._words: list[str] = []
        self._listening = False
        self._phonetic = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "c":
            reference = attributes.get("r")
            self._column = (column_number(reference) if reference else 0) or self._column + 1
            self._type = attributes.get("t", "n")
            self._style = attributes.get("s", "")
            self._words = []
        elif name == "v" or name == "t":
            self._listening = not self._phonetic
        elif name == "rPh":
            self._phonetic += 1
        elif name == "row":
            number = attributes.get("r", "")
            self._row = int(number) if number.isdigit() else self._row + 1
            self._column = 0
            self._cells = []

    def data(self, text: str) -> None:
        if self._listening:
            self._words.append(text)

    def end(self, name: str) -> None:
        if name == "v" or name == "t":
            self._listening = False
        elif name == "c":
            if self._words:
                text = self._value("".join(self._words))
                if text:
                    self._cells.append((self._column, text))
        elif name == "rPh":
            self._phonetic -= 1
        elif name == "row" and self._cells:
            self._writer.row(self._row, self._cells)
            self._cells = []

    def _value(self, raw: str) -> str:
        match self._type:
            case "s":
                return self._strings[int(raw)] if raw.isdigit() and int(raw) < len(self._strings) else ""
            case "b":
                return "TRUE" if raw == "1" else "FALSE"
            case "n":
                return self._number(raw)
            case _:
                return raw

    def _number(self, raw: str) -> str:
        if self._style not in self._dates and raw.isdigit() and len(raw) < 16:
            return raw
        try:
            value = float(raw)
        except ValueError:
            return raw
        if self._style in self._dates and 0 <= value < _LAST_DAY:
            return self._date(value)
        return format(value, ".15g")

    def _date(self, value: float) -> str:
        if self._epoch.year == 1899 and value < 60:
            value += 1  # Excel counts a 29 February 1900 that never was
            time_only = value < 2
        else:
            time_only = value < 1
        try:
            moment = self._epoch + datetime.timedelta(seconds=round(value * 86_400))
        except OverflowError:
            return format(value, ".15g")
        if time_only:
            return moment.strftime("%H:%M:%S")
        return moment.date().isoformat() if moment.time() == datetime.time() else moment.isoformat(" ")


def _drawn(package: Package, part: str, writer: SheetWriter, warnings: list[str]) -> Iterator[Piece]:
    """Charts and text boxes that lie on a sheet, as blocks without cells after its rows."""
    writer.close_block()
    for relation in package.relations(part).values():
        if relation.kind != "drawing" or relation.target not in package:
            continue

        def keep(text: str, paragraph: Paragraph | None) -> None:
            writer.unit.block(text)

        package.parse_aside(relation.target, Paragraphs(keep), warnings, "drawings")
        for inner in package.relations(relation.target).values():
            if inner.kind in ("chart", "chartEx", "diagramData") and inner.target in package:
                writer.unit.block(drawn_text(package, inner.target, warnings))
    yield from writer.take()


class _Remarks:
    """Comments of a sheet, with the cell each belongs to."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._cell = ""
        self._words: list[str] = []
        self._listening = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name in ("comment", "threadedComment"):
            self._cell = attribute(attributes, "ref")
            self._words = []
        elif name in ("t", "text"):
            self._listening = True

    def end(self, name: str) -> None:
        if name in ("comment", "threadedComment"):
            self.found.append((self._cell, "".join(self._words).strip()))
        elif name in ("t", "text"):
            self._listening = False

    def data(self, text: str) -> None:
        if self._listening:
            self._words.append(text)


def _comments(package: Package, part: str, number: int, name: str, warnings: list[str]) -> Iterator[Piece]:
    remarks = _Remarks()
    for relation in package.relations(part).values():
        if relation.kind in ("comments", "threadedComment") and relation.target in package:
            package.parse_aside(relation.target, remarks, warnings, "comments")
    writer = UnitWriter("comment", number, f"comments on {name}")
    for cell, text in remarks.found:
        writer.block(text, cells=cell or None)
    yield from writer.rest()

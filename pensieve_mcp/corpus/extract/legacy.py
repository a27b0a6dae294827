"""Office files from before 2007, .xlsb and .msg, by the optional extra `legacy`.

The only file that knows office_oxide, python_calamine and olefile. All three are native or old code on old formats,
and run in the worker like the rest. Without the extra the answer is `unsupported` with the line that installs it.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from typing import Any, BinaryIO

from pensieve_mcp.corpus.extract.ooxml import join_cells
from pensieve_mcp.corpus.extract.tables import SheetWriter
from pensieve_mcp.corpus.extract.writing import Headings, UnitWriter
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, Unreadable

INSTALL = 'pip install "pensieve-statelm[legacy]"'


def _library(name: str, suffix: str) -> Any:
    try:
        return import_module(name)
    except ImportError as problem:
        raise Unreadable("unsupported", f"{suffix} needs the extra `legacy`: {INSTALL}") from problem


class OldOfficeExtractor:
    """Word, PowerPoint and Excel 97 to 2003, by office_oxide's tree of sections, headings, paragraphs and tables."""

    version = 1
    native = True
    media_type = ""

    def __init__(self) -> None:
        self.name = self.format

    format = ""

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        library = _library("office_oxide", f".{self.format}")
        data = file.read()
        try:
            tree: dict[str, Any] = library.Document.from_bytes(data, self.format).to_ir()
        except library.OfficeOxideError as problem:
            said = str(problem)
            raise Unreadable(
                "encrypted" if "crypt" in said.lower() or "password" in said.lower() else "corrupt", said
            ) from problem
        title = str((tree.get("metadata") or {}).get("title") or "").strip()
        yield Facts(self.media_type, title=title)
        for number, section in enumerate(tree.get("sections") or (), start=1):
            yield from self.section(section, number, limits)
        yield Facts(self.media_type, title=title)

    def section(self, section: dict[str, Any], number: int, limits: Limits) -> Iterator[Piece]:
        raise NotImplementedError


class OldWordExtractor(OldOfficeExtractor):
    format = "doc"
    media_type = "application/msword"

    def __init__(self) -> None:
        super().__init__()
        self._headings = Headings()

    def section(self, section: dict[str, Any], number: int, limits: Limits) -> Iterator[Piece]:
        if number == 1:
            self._headings = Headings()
        body = UnitWriter("body", 1)
        _blocks(section.get("elements"), body, self._headings)
        yield from body.rest()
        yield from _furniture(section, number)


class OldSlidesExtractor(OldOfficeExtractor):
    format = "ppt"
    media_type = "application/vnd.ms-powerpoint"

    def section(self, section: dict[str, Any], number: int, limits: Limits) -> Iterator[Piece]:
        slide = UnitWriter("slide", number, str(section.get("title") or "")[:200])
        headings = Headings()
        headings.open(1, slide.label)
        _blocks(section.get("elements"), slide, headings)
        yield from slide.rest()
        notes = UnitWriter("notes", number, f"notes of slide {number}")
        for text in _texts(section.get("notes")):
            notes.block(text, headings.path)
        yield from notes.rest()


class OldSheetsExtractor(OldOfficeExtractor):
    format = "xls"
    media_type = "application/vnd.ms-excel"

    def section(self, section: dict[str, Any], number: int, limits: Limits) -> Iterator[Piece]:
        sheet = SheetWriter(number, str(section.get("title") or ""), limits)
        for element in section.get("elements") or ():
            if element.get("type") != "table":
                sheet.close_block()
                for text in _texts(element):
                    sheet.unit.block(text)
                continue
            for row, cells in enumerate(element.get("rows") or (), start=1):
                found = [
                    (column, "\n".join(_texts(cell)))
                    for column, cell in enumerate(cells.get("cells") or (), start=1)
                ]
                sheet.row(row, [(column, text) for column, text in found if text])
                yield from sheet.take()
        yield from sheet.rest()


def _blocks(elements: Any, writer: UnitWriter, headings: Headings) -> None:
    for element in elements or ():
        kind = element.get("type")
        if kind == "heading":
            text = "".join(_texts(element))
            writer.block(text, headings.open(int(element.get("level") or 1), text))
        elif kind == "table":
            for row in element.get("rows") or ():
                for line in join_cells([_texts(cell) for cell in row.get("cells") or ()]):
                    writer.block(line, headings.path)
        else:
            for text in _texts(element):
                writer.block(text, headings.path)


def _furniture(section: dict[str, Any], number: int) -> Iterator[Piece]:
    for place, (key, label) in enumerate((("header", "header"), ("footer", "footer"))):
        writer = UnitWriter("header", 2 * number - 1 + place, label)
        for text in _texts(section.get(key)):
            writer.block(text)
        yield from writer.rest()
    for key in ("footnotes", "endnotes"):
        writer = UnitWriter("footnote", number, key)
        for text in _texts(section.get(key)):
            writer.block(text)
        yield from writer.rest()


def _texts(node: Any) -> list[str]:
    """The paragraphs below a node of the tree, in order; runs of text within one are joined. Without recursion."""
    paragraphs: list[str] = []
    words: list[str] = []
    stack: list[Any] = [node]
    end = object()
    while stack:
        at = stack.pop()
        if at is end:
            if words:
                paragraphs.append("".join(words))
            words = []
        elif isinstance(at, list):
            stack.extend(reversed(at))
        elif isinstance(at, dict):
            if at.get("type") == "text" and isinstance(at.get("text"), str):
                words.append(at["text"])
                continue
            if at.get("type") in ("paragraph", "heading"):
                stack.append(end)
            stack.extend(value for value in reversed(at.values()) if isinstance(value, list | dict))
    if words:
        paragraphs.append("".join(words))
    return [text for text in paragraphs if text.strip()]


class BinarySheetsExtractor:
    """.xlsb by calamine, which aborts on cells that lie far apart: the worker's death is then the answer."""

    name = "xlsb"
    version = 1
    native = True

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        library = _library("python_calamine", ".xlsb")
        media_type = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
        yield Facts(media_type)
        try:
            workbook = library.CalamineWorkbook.from_filelike(BytesIO(file.read()))
        except library.PasswordError as problem:
            raise Unreadable("encrypted", "the workbook needs a password") from problem
        except (library.CalamineError, OSError) as problem:
            raise Unreadable("corrupt", str(problem)) from problem
        warnings: list[str] = []
        for number, name in enumerate(workbook.sheet_names, start=1):
            try:
                sheet = workbook.get_sheet_by_name(name)
            except (library.CalamineError, OSError) as problem:
                warnings.append(f"sheet {name} could not be read: {problem}")
                continue
            writer = SheetWriter(number, name, limits)
            top, left = sheet.start or (0, 0)
            for row, values in enumerate(sheet.iter_rows(), start=top + 1):
                cells = [(left + column, _shown(value)) for column, value in enumerate(values, start=1)]
                writer.row(row, [(column, text) for column, text in cells if text])
                yield from writer.take()
            yield from writer.rest()
            warnings.extend(writer.warnings())
        yield Facts(media_type, warnings=tuple(warnings), partial=bool(warnings))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return format(value, ".15g")
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(" ")
    return "" if value is None else str(value)


class OutlookMessageExtractor:
    """.msg: headers, body (plain, else HTML) and names of attachments, by the property streams of [MS-OXMSG]."""

    name = "msg"
    version = 1
    media_type = "application/vnd.ms-outlook"

    _HEADERS = (
        ("Subject", "0037"),
        ("From", "0C1A"),
        ("From address", "5D01"),
        ("To", "0E04"),
        ("Cc", "0E03"),
    )

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        library = _library("olefile", ".msg")
        try:
            container = library.OleFileIO(file)
        except OSError as problem:
            raise Unreadable("corrupt", str(problem)) from problem
        with container:
            message = _Message(container)
            subject = message.text("0037")
            yield Facts(self.media_type, title=subject)
            writer = UnitWriter("message", 1, subject[:200])
            head = [f"{label}: {value}" for label, key in self._HEADERS if (value := message.text(key))]
            sent = message.time(0x0039) or message.time(0x0E06)
            if sent:
                head.append(f"Date: {sent}")
            writer.block("\n".join(head))
            body = message.text("1000")
            if body.strip():
                for paragraph in body.replace("\r\n", "\n").split("\n\n"):
                    writer.block(paragraph)
            else:
                for text in _html_blocks(message.binary("1013"), limits):
                    writer.block(text)
            for name in message.attachments():
                writer.block(f"Attachment: {name}")
            yield from writer.rest()
            yield Facts(self.media_type, title=subject)


class _Message:
    def __init__(self, container: Any) -> None:
        self._container = container
        properties = self._stream("__properties_version1.0")
        self._fixed: dict[int, bytes] = {}
        # 32 bytes of head, then 16 each: type, id, flags, value.
        for at in range(32, len(properties) - 15, 16):
            tag = struct.unpack_from("<I", properties, at)[0]
            self._fixed[tag >> 16] = properties[at + 8 : at + 16]
        raw = self._fixed.get(0x3FFD) or self._fixed.get(0x3FDE) or b""
        number = struct.unpack_from("<I", raw)[0] if raw else 1252
        self._encoding = "utf-8" if number == 65001 else f"cp{number}"

    def _stream(self, name: str) -> bytes:
        if not self._container.exists(name):
            return b""
        return bytes(self._container.openstream(name).read())

    def text(self, key: str, prefix: str = "") -> str:
        wide = self._stream(f"{prefix}__substg1.0_{key}001F")
        if wide:
            return wide.decode("utf-16-le", "replace").rstrip("\x00").strip()
        narrow = self._stream(f"{prefix}__substg1.0_{key}001E")
        try:
            return narrow.decode(self._encoding, "replace").rstrip("\x00").strip()
        except LookupError:
            return narrow.decode("cp1252", "replace").rstrip("\x00").strip()

    def binary(self, key: str) -> bytes:
        return self._stream(f"__substg1.0_{key}0102")

    def time(self, key: int) -> str:
        raw = self._fixed.get(key)
        ticks = struct.unpack("<Q", raw)[0] if raw else 0  # of 100 ns since 1601
        if not 0 < ticks < 2**62:
            return ""
        try:
            moment = datetime.datetime(1601, 1, 1) + datetime.timedelta(microseconds=ticks // 10)
        except OverflowError:
            return ""
        return moment.strftime("%Y-%m-%d %H:%M:%S UTC")

    def attachments(self) -> Iterator[str]:
        folders = dict.fromkeys(
            path[0] for path in self._container.listdir() if path[0].startswith("__attach_version1.0_")
        )
        for folder in folders:
            name = (
                self.text("3707", f"{folder}/")
                or self.text("3704", f"{folder}/")
                or self.text("3001", f"{folder}/")
            )
            if name:
                yield name


def _html_blocks(html: bytes, limits: Limits) -> Iterator[str]:
    from pensieve_mcp.corpus.extract.registry import text_readers

    if not html.strip():
        return
    try:
        for item in text_readers()[".html"].extract(BytesIO(html), FileHint("body.html", len(html)), limits):
            if isinstance(item, Piece):
                for block in item.blocks:
                    yield item.text[block.start : block.end]
    except Unreadable as problem:
        if problem.reason not in ("empty", "no_text"):
            raise

"""XML to text: the words between tags, the attributes worth reading, the line of the file.

On expat with a stack of our own: no tree, no recursion, nothing fetched from outside. A file that is no
well-formed XML is read as the plain text it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from pensieve_mcp.corpus.decode import TextStream
from pensieve_mcp.corpus.extract.text_blocks import Flat, Pages, Wording, facts_of, open_text, verbatim
from pensieve_mcp.corpus.extract.text_html import declared_charset
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, Unreadable

_WORTH = frozenset(
    [
        "title",
        "alt",
        "label",
        "name",
        "description",
        "summary",
        "caption",
        "text",
        "value",
        "content",
        "desc",
        "note",
        "comment",
    ]
)
_PLAIN = frozenset(
    [
        "p",
        "para",
        "title",
        "text",
        "span",
        "div",
        "li",
        "td",
        "th",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "b",
        "i",
        "em",
        "strong",
        "a",
        "v",
        "tspan",
        "simpara",
    ]
)
_ENTITY_CHARS = 10_000  # what entities may declare in all; expat bounds how far they expand


class _Broken(Exception):
    """Not well-formed."""


class _Reader:
    """Expat's callbacks. A frame per open element: its name, whether it has text, whether it stands in a line."""

    def __init__(self, pages: Pages, depth: int) -> None:
        from xml.parsers import expat

        self.pages, self.depth = pages, depth
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        parser.EntityDeclHandler = self._entity
        self.parser: Any = parser
        self.errors = expat.ExpatError
        self._frames: list[list[Any]] = []  # [tag, has text, inline, has children]
        self._row: list[str] = []
        self._line = 1
        self._declared = 0
        self.title = ""

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        inline = bool(self._frames and self._frames[-1][1])
        if self._frames:
            self._frames[-1][3] = True
        if not inline:
            self._flush(None)
        if len(self._frames) < self.depth:
            self._frames.append([tag, False, inline, False])
        else:
            self._frames.append(["", False, True, True])
        for name, value in attributes.items():
            local = name.rpartition(":")[2].lower()
            words = value.split()
            if (
                words
                and not name.startswith("xmlns")
                and (local in _WORTH or len(words) > 2)
                and "://" not in value
            ):
                if self._row:
                    self._row.append(" · ")
                else:
                    self._line = self.parser.CurrentLineNumber
                self._row.append(f"{local}: {' '.join(words)}")

    def _end(self, tag: str) -> None:
        frame = self._frames.pop()
        if not frame[2]:
            self._flush(frame if frame[1] and not frame[3] else None)
        elif self._row and not self._row[-1].endswith(" "):
            self._row.append("")

    def _data(self, data: str) -> None:
        if not self._row:
            if data.isspace():
                return
            self._line = self.parser.CurrentLineNumber
        if self._frames and not data.isspace():
            frame = self._frames[-1]
            if not frame[1] and self._row and not frame[2]:
                self._row.append(" · ")  # attributes stand before it
            frame[1] = True
        self._row.append(data)

    def _entity(self, name: str, is_parameter: int, value: str | None, *_: object) -> None:
        self._declared += len(value or "")
        if self._declared > _ENTITY_CHARS:
            raise Unreadable("bomb", "entities declare too much")

    def _flush(self, frame: list[Any] | None) -> None:
        text = " ".join("".join(self._row).split())
        self._row.clear()
        if not text:
            return
        names = tuple(f[0] for f in self._frames[-4:] if f[0])
        if frame is not None:
            if frame[0].lower() == "title" and not self.title:
                self.title = text
            if frame[0].lower() not in _PLAIN:
                text = f"{frame[0]}: {text}"
        self.pages.add(text, names, self._line, self.parser.CurrentLineNumber)


class Xml:
    """XML of any kind."""

    name, version = "xml", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        declared = declared_charset(file.read(1024))
        stream = open_text(file, hint, limits, declared)
        held: list[Piece] = []
        try:
            for piece in self._pieces(stream, limits):
                if isinstance(piece, Facts):
                    yield from held
                    yield piece
                    return
                held.append(piece)
        except _Broken as error:
            again = open_text(file, hint, limits, declared)
            for item in verbatim(again, "application/xml", Flat()):
                if isinstance(item, Facts):
                    told = (*item.warnings, f"not well-formed XML ({error}); read as plain text")
                    item = Facts(
                        item.media_type, item.title, item.encoding, item.replaced, item.verbatim, told
                    )
                yield item

    @staticmethod
    def _pieces(stream: TextStream, limits: Limits) -> Iterator[Piece | Facts]:
        pages, words = Pages(), Wording()
        reader = _Reader(pages, limits.xml_depth)
        try:
            for text in stream:
                reader.parser.Parse(text.encode("utf-8", "replace"), False)
                if pages.is_full:
                    body, blocks = pages.take()
                    yield from words.let(Piece(body, blocks=blocks))
            reader.parser.Parse(b"", True)
        except reader.errors as error:
            if error.code == 43:  # XML_ERROR_AMPLIFICATION_LIMIT_BREACH
                raise Unreadable("bomb", "entities expand without bound") from error
            raise _Broken(str(error)) from error
        body, blocks = pages.take()
        if body:
            yield from words.let(Piece(body, blocks=blocks))
        words.check()
        yield facts_of(stream, "application/xml", title=reader.title)

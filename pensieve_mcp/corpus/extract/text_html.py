"""HTML and XHTML to text: what a reader sees, line by line, with headings and the line of the source.

On `html.parser` of the standard library, which is linear and gives positions (facts section 0). Its slow spots
on broken markup are kept from it: comments and sections that never end, and a tail without a closing `>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import BinaryIO

from pensieve_mcp.corpus.decode import TextStream, clean, decode
from pensieve_mcp.corpus.extract.text_blocks import Pages, Wording, open_text, too_large
from pensieve_mcp.corpus.extract.text_outline import Levels
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, UnitKind, Unreadable

_BLOCK = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "dd",
        "details",
        "dialog",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "menu",
        "nav",
        "ol",
        "optgroup",
        "option",
        "p",
        "pre",
        "section",
        "select",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
        "caption",
        "title",
    ]
)
_SKIP = frozenset(["script", "style", "template", "svg", "iframe", "object", "noscript", "textarea"])
_HEADINGS = {f"h{n}": n for n in range(1, 7)}
_META = re.compile(rb"<meta[^>]{0,300}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_:.\-]{2,40})", re.I)
_XML = re.compile(rb"^\s{0,99}<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([A-Za-z0-9_.\-]{2,40})")
_BREAK = "\0"  # stands for <br> until white space is folded; control characters were removed before
_SPACE = "\1"  # stands for a space inside <pre>


def declared_charset(head: bytes) -> str | None:
    """The charset an HTML or XML file names itself, from its first bytes."""
    match = _XML.search(head[:1024]) or _META.search(head)
    return match[1].decode("ascii") if match else None


class _Reader(HTMLParser):
    def __init__(self, pages: Pages, turn: Callable[[], None], *, lines: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.pages = pages
        self.turn = turn
        self.lines = lines
        self.title = ""
        self._levels = Levels()
        self._path: tuple[str, ...] = ()
        self._skip: str | None = None
        self._skip_depth = 0
        self._pre = 0
        self._text: list[str] = []
        self._line = 1
        self._element = ""
        self._no_end: dict[str, int] = {}

    def flush(self) -> None:
        if not self._text:
            return
        text = "".join(self._text)
        self._text.clear()
        rows = [" ".join(part.split()) for part in text.split(_BREAK)]
        text = "\n".join(rows).strip("\n")
        if _SPACE in text:
            text = "\n".join(part.rstrip() for part in text.replace(_SPACE, " ").split("\n"))
        if not text.strip():
            return
        if self._element == "title" and not self.title:
            self.title = " ".join(text.split())
        level = _HEADINGS.get(self._element)
        if level is not None:
            self._path = self._levels.enter(level, text)
        line = self._line if self.lines else None
        self.pages.add(text, self._path, line, self.getpos()[0] if self.lines else None)
        self.turn()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skip is not None:
            self._skip_depth += tag == self._skip
            return
        if tag in _SKIP:
            self._skip, self._skip_depth = tag, 1
            return
        if tag in _BLOCK:
            self.flush()
            self._line = self.getpos()[0]
            self._element = tag
            self._pre += tag == "pre"
        elif tag == "br":
            self._text.append(_BREAK)
        elif tag in ("td", "th") and self._text:
            self._text.append(" \t ")
        for name, value in attrs:
            if value and name in ("alt", "title") and value.strip():
                if not self._text:
                    self._line = self.getpos()[0]
                self._text.append(f" {clean(value)} ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("svg", "object", "iframe", "template") or (tag in _SKIP and self._skip is None):
            return
        self.handle_starttag(tag, attrs)
        if tag == "pre":
            self._pre -= 1

    def handle_endtag(self, tag: str) -> None:
        if self._skip is not None:
            if tag == self._skip:
                self._skip_depth -= 1
            if self._skip_depth <= 0 or tag in ("body", "html"):
                self._skip = None
            return
        if tag in _BLOCK:
            self.flush()
            self._element = ""
            self._line = self.getpos()[0]
            if tag == "pre" and self._pre:
                self._pre -= 1

    def handle_data(self, data: str) -> None:
        if self._skip is not None:
            return
        if not self._text:
            words = data.lstrip()
            if not words:
                return
            self._line = self.getpos()[0] + data.count("\n", 0, len(data) - len(words))
        if self._pre:
            data = clean(data).replace(" ", _SPACE).replace("\t", _SPACE * 4).replace("\n", _BREAK)
            self._text.append(data)
        else:
            self._text.append(data if data.isprintable() else clean(data))

    def parse_html_declaration(self, i: int) -> int:
        """In place of the library's, which looks for an end that is not there again and again, or asserts."""
        raw = self.rawdata
        if raw.startswith("<!--", i):
            end = self._find("-->", i + 4)
            return end + 3 if end >= 0 else i + 4  # a comment that never ends hides nothing
        if raw.startswith("<![CDATA[", i):
            end = self._find("]]>", i + 9)
            if end < 0:
                return i + 9
            self.handle_data(raw[i + 9 : end])
            return end + 3
        end = self._find(">", i + 2)
        return end + 1 if end >= 0 else i + 2

    def _find(self, mark: str, start: int) -> int:
        if start >= self._no_end.get(mark, len(self.rawdata) + 1):
            return -1
        end = self.rawdata.find(mark, start)
        if end < 0:
            self._no_end[mark] = start
        return end

    def parse_pi(self, i: int) -> int:
        end = self._find(">", i + 2)
        return end + 1 if end >= 0 else i + 2

    def error(self, message: str) -> None:
        raise Unreadable("corrupt", message)


def html_pieces(
    data: bytes | str,
    *,
    kind: UnitKind = "body",
    ordinal: int = 1,
    label: str = "",
    declared: str | None = None,
    fallback: str | None = None,
    lines: bool = True,
) -> Iterator[Piece | Facts]:
    """The text of an HTML document in pieces of one unit, then its Facts (title, encoding).

    `lines` gives blocks the line of the source; switch it off where the source is no file of its own. Yields no
    piece for a document without text: only whoever asks knows whether that is an error.
    """
    encoding, replaced = None, 0
    if isinstance(data, bytes):
        own = declared or declared_charset(data[:65536])
        decoded = decode(data, declared=own, fallback=fallback)
        text, encoding, replaced = decoded.text, decoded.encoding, decoded.replaced
    else:
        text = clean(data.replace("\r\n", "\n").replace("\r", "\n"))
    pages, done = Pages(), list[Piece]()

    def turn() -> None:
        if pages.is_full:
            done.append(_piece(pages, kind, ordinal, label))

    reader = _Reader(pages, turn, lines=lines)
    # What follows the last ">" can hold no tag; the parser would search it once for each "<" in it.
    end = text.rfind(">") + 1
    # The whole text at once: what the parser holds back between two feeds it would read again each time.
    reader.feed(text[:end])
    left, reader.rawdata = reader.rawdata, ""
    if left:  # a tag that never closes, as far as that goes: keep its words
        reader.handle_data(_unescape(re.sub(r"<[^<>]{0,1000}>?", " ", left)))
    if end < len(text):
        reader.handle_data(_unescape(text[end:]))
    reader.flush()
    yield from done
    piece = _piece(pages, kind, ordinal, label)
    if piece.text:
        yield piece
    warnings = (f"{replaced:,} characters could not be decoded as {encoding}",) if replaced else ()
    yield Facts("text/html", reader.title, encoding, replaced, False, warnings)


def _unescape(text: str) -> str:
    from html import unescape

    return clean(unescape(text))


def _piece(pages: Pages, kind: UnitKind, ordinal: int, label: str) -> Piece:
    text, blocks = pages.take()
    return Piece(text, kind, ordinal, label, blocks)


class Html:
    """HTML files; charset by BOM, strict UTF-8, `<meta>`, detector."""

    name, version = "html", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        too_large(hint, limits)
        head = file.read(65536)
        if not head:
            raise Unreadable("empty", "0 bytes")
        stream: TextStream = open_text(file, hint, limits, declared_charset(head))
        words = Wording()
        facts: Facts | None = None
        for item in html_pieces("".join(stream)):
            if isinstance(item, Piece):
                yield from words.let(item)
            else:
                facts = item
        words.check()
        if facts is not None:
            from pensieve_mcp.corpus.extract.text_blocks import facts_of

            yield facts_of(stream, "text/html", title=facts.title)

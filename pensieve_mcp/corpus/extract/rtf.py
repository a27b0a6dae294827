"""RTF: an own tokenizer, with code pages per font, Unicode escapes and hidden groups.

Why own: the usual stripper loses headers, footnotes and code pages. Groups are a list, not recursion, so that a
million open braces cost a list of a million. Pictures and the like are skipped; tables come as rows with tabs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from pensieve_mcp.corpus.extract.writing import Headings, UnitWriter
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, UnitKind, Unreadable

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)",
    re.S,
)
_MOST_GROUPS = 200_000
_CHARSETS = {
    0: "cp1252", 1: "cp1252", 2: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab",
    134: "gbk", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255",
    178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437", 255: "cp850",
}  # fmt: skip
_HIDDEN = frozenset(
    b"fonttbl colortbl stylesheet info pict object themedata datastore generator listtable listoverridetable rsidtbl "
    b"mmathPr xmlnstbl latentstyles filetbl revtbl pgptbl nonshppict colorschememapping fldinst bkmkstart bkmkend falt "
    b"panose author operator listtext pntext sp tc xe rxe deleted".split()
)
# After `\*` unknown groups are hidden; these hold text all the same.
_SHOWN = frozenset(b"shpinst shptxt shppict nestrow annotation ud".split())
_SPECIAL = {
    b"emdash": "\u2014", b"endash": "\u2013", b"bullet": "\u2022", b"lquote": "\u2018", b"rquote": "\u2019",
    b"ldblquote": "\u201c", b"rdblquote": "\u201d", b"emspace": "\u2003", b"enspace": "\u2002", b"tab": "\t",
    b"cell": "\t", b"nestcell": "\t", b"line": "\n",
}  # fmt: skip
_ASIDE: dict[bytes, UnitKind] = {
    b"footnote": "footnote", b"annotation": "comment", b"header": "header", b"headerl": "header", b"headerr": "header",
    b"headerf": "header", b"footer": "header", b"footerl": "header", b"footerr": "header", b"footerf": "header",
}  # fmt: skip
_ENDS = frozenset((b"par", b"sect", b"page", b"row", b"nestrow"))


@dataclass(slots=True)
class _Group:
    hidden: bool = False
    skip: int = 1  # \ucN: bytes that stand in for a Unicode character
    encoding: str = "cp1252"
    in_fonts: bool = False
    aside: UnitKind | None = None
    level: int = 0  # of the heading, from \outlinelevelN or the style


class RtfExtractor:
    """Reads RTF whole (its tokens are small) and yields body, then footnotes, comments, headers."""

    name = "rtf"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        data = file.read()
        if not data.lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"{\\rtf"):
            raise Unreadable("corrupt", "no RTF header")
        yield Facts("application/rtf")
        yield from _Reading(data).pieces()
        yield Facts("application/rtf", title=_title(data))


class _Reading:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._group = _Group()
        self._stack: list[_Group] = []
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._base = "cp1252"
        self._bytes = bytearray()  # waits for its encoding: a character may span tokens
        self._words: dict[UnitKind | None, list[str]] = {}
        self._writers: dict[UnitKind | None, UnitWriter] = {None: UnitWriter("body", 1)}
        self._headings = Headings()
        self._levels = _heading_styles(data)

    def pieces(self) -> Iterator[Piece]:
        data = self._data
        position, drop, star = 0, 0, False
        scan = _TOKEN.scanner  # type: ignore[attr-defined]  # undocumented, as old as re
        matches = scan(data)
        while (match := matches.match()) is not None or position < len(data):
            if match is None:
                # A lone backslash at the end, or a byte no rule takes: step over it.
                position += 1
                matches = scan(data, position)
                continue
            position = match.end()
            word, number, hexed, symbol, brace, plain = match.groups()
            group = self._group
            if plain is not None:
                if not group.hidden:
                    taken = min(drop, len(plain))
                    drop -= taken
                    self._bytes += plain[taken:]
            elif hexed is not None:
                if not group.hidden:
                    if drop:
                        drop -= 1
                    else:
                        self._bytes.append(int(hexed, 16))
            elif brace == b"{":
                self._flush()
                if len(self._stack) >= _MOST_GROUPS:
                    raise Unreadable("corrupt", f"more than {_MOST_GROUPS:,} open groups")
                self._stack.append(replace(group))
                drop = 0
            elif brace == b"}":
                self._flush()
                if self._stack:
                    before = self._stack.pop()
                    if group.aside is not None and before.aside is None:
                        self._paragraph(group.aside)
                    self._group = before
                drop = 0
            elif symbol is not None:
                if symbol == b"*":
                    star = True
                    continue
                self._symbol(symbol)
            elif word is not None:
                value = int(number) if number is not None else None
                if word == b"bin":
                    position += max(value or 0, 0)
                    matches = scan(data, position)
                elif word == b"u":
                    if not group.hidden and value is not None:
                        self._flush()
                        self._say(chr(value & 0xFFFF))
                        drop = group.skip
                else:
                    self._word(word, value, star)
                    yield from self._writers[None].take()
            star = False
        self._flush()
        self._paragraph(None)
        for writer in self._writers.values():
            yield from writer.rest()

    def _symbol(self, symbol: bytes) -> None:
        if self._group.hidden:
            return
        self._flush()
        if symbol in b"\\{}":
            self._say(symbol.decode())
        elif symbol == b"~":
            self._say("\u00a0")
        elif symbol == b"_":
            self._say("-")
        elif symbol in b"\r\n":
            self._paragraph(self._group.aside)

    def _word(self, word: bytes, value: int | None, star: bool) -> None:
        group = self._group
        if word == b"fonttbl":
            group.in_fonts = group.hidden = True
        elif group.in_fonts:
            if word == b"f":
                self._font = value or 0
            elif word == b"fcharset" and value in _CHARSETS:
                self._fonts[self._font] = _CHARSETS[value]
            elif word == b"cpg" and value:
                self._fonts[self._font] = f"cp{value}"
        elif word in _HIDDEN or (star and word not in _SHOWN):
            self._flush()
            group.hidden = True
        elif group.hidden:
            return
        elif word in _ASIDE:
            self._flush()
            group.aside = _ASIDE[word]
            group.level = 0
            self._writers.setdefault(group.aside, UnitWriter(group.aside, 1, _label(word)))
        elif word in _ENDS:
            self._flush()
            self._paragraph(group.aside)
        elif word in _SPECIAL:
            self._flush()
            self._say(_SPECIAL[word])
        elif word == b"ansicpg":
            self._base = group.encoding = f"cp{value}" if value else "cp1252"
        elif word == b"mac":
            self._base = group.encoding = "mac_roman"
        elif word == b"uc":
            group.skip = min(value or 0, 16)
        elif word == b"f":
            self._flush()
            group.encoding = self._fonts.get(value or 0, self._base)
        elif word == b"plain":
            self._flush()
            group.encoding = self._base
        elif word == b"pard":
            group.level = 0
        elif word == b"s":
            group.level = self._levels.get(value or 0, 0)
        elif word == b"outlinelevel" and value is not None and 0 <= value < 9:
            group.level = value + 1
        elif word == b"v" and value != 0:
            group.hidden = True

    def _say(self, text: str) -> None:
        self._words.setdefault(self._group.aside, []).append(text)

    def _flush(self) -> None:
        if self._bytes:
            try:
                text = self._bytes.decode(self._group.encoding, "replace")
            except LookupError:
                text = self._bytes.decode("cp1252", "replace")
            self._say(text)
            self._bytes.clear()

    def _paragraph(self, aside: UnitKind | None) -> None:
        text = "".join(self._words.pop(aside, ()))
        if any("\ud800" <= c <= "\udfff" for c in text):  # \u gives UTF-16 halves, one at a time
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        level = self._group.level if aside is None else 0
        text = text.rstrip("\t ")
        path = self._headings.open(level, text) if level and text.strip() else self._headings.path
        self._writers[aside].block(text, path if aside is None else ())


def _label(word: bytes) -> str:
    if word.startswith(b"header"):
        return "header"
    return "footer" if word.startswith(b"footer") else ""


def _heading_styles(data: bytes) -> dict[int, int]:
    """Heading level by style number, for styles called `heading 1` to `heading 9`."""
    levels: dict[int, int] = {}
    start = data.find(b"{\\stylesheet")
    if start < 0:
        return levels
    for match in re.finditer(
        rb"\{[^{}]*?\\s(\d+)\b[^{}]*? heading (\d)[^{}]*;\s*\}", data[start : start + 262_144], re.I
    ):
        levels[int(match.group(1))] = int(match.group(2))
    return levels


def _title(data: bytes) -> str:
    match = re.search(rb"\{\\title ([^\\{}]{1,300})\}", data[:65_536])
    title = match.group(1).decode("cp1252", "replace").strip() if match else ""
    return title if title.strip("? ") else ""  # question marks alone: it was lost when the file was written

"""EPUB: the chapters of the spine, in order, each once.

Chapters are HTML and read by the HTML extractor; their names come from the table of contents, else from their first
heading. A spine that names one chapter 20,000 times is read once. Books whose chapters are encrypted are told so;
fonts that are only obfuscated are no reason to stop.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import BinaryIO

from pensieve_mcp.corpus.extract.package import Attributes, Package, attribute, href
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, Unreadable

MEDIA_TYPE = "application/epub+zip"

_CHAPTER_BYTES = 64 * 2**20


class EpubExtractor:
    name = "epub"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        return self.extract_from(file, hint, limits, 1)

    def extract_from(
        self, file: BinaryIO, hint: FileHint, limits: Limits, first: int
    ) -> Iterator[Piece | Facts]:
        from pensieve_mcp.corpus.extract.registry import text_readers

        package = Package(file, limits)
        book = _Book()
        opf = _package_document(package)
        package.parse_whole(opf, book)
        folder = posixpath.dirname(opf)
        chapters = list(dict.fromkeys(href(folder, book.items[i]) for i in book.spine if i in book.items))
        if _encrypted(package).intersection(chapter.lower() for chapter in chapters):
            raise Unreadable("encrypted", "the chapters of the book are encrypted (DRM)")
        names = _chapter_names(package, folder, book)
        title = " ".join("".join(book.title).split())
        yield Facts(MEDIA_TYPE, title=title)
        html = text_readers()[".html"]
        warnings: list[str] = []
        for number, part in enumerate(chapters[: limits.pages], start=1):
            if number < first:
                continue
            label = names.get(part.lower(), "")
            if part not in package:
                warnings.append(f"chapter {number} ({part}) is missing from the file")
                continue
            wrote = False
            try:
                content = package.read(part, _CHAPTER_BYTES)
                items = html.extract(BytesIO(content), FileHint("chapter.xhtml", len(content)), limits)
                for piece in _chapter(items, number, label):
                    label = piece.label
                    wrote = True
                    yield piece
            except Unreadable as problem:
                if problem.reason in ("bomb", "encrypted"):
                    raise
                if problem.reason not in ("empty", "no_text"):
                    warnings.append(
                        f"chapter {number} ({part}) could not be read: {problem.reason}, {problem.detail}"
                    )
            if not wrote:
                yield Piece("", "chapter", number, label)
        if not chapters:
            raise Unreadable("corrupt", "the book's spine names no chapter that is in it")
        yield Facts(MEDIA_TYPE, title=title, warnings=tuple(warnings), partial=bool(warnings))


def _chapter(items: Iterator[Piece | Facts], number: int, label: str) -> Iterator[Piece]:
    for item in items:
        if isinstance(item, Piece) and item.text:
            if not label:
                label = next((block.heading[0] for block in item.blocks if block.heading), "")
            # Lines of a file inside the book would help nobody; a block ends before its newline, as elsewhere here.
            blocks = tuple(
                replace(block, end=block.start + len(said), first_line=None, last_line=None)
                for block in item.blocks
                if (said := item.text[block.start : block.end].rstrip("\n"))
            )
            yield Piece(item.text, "chapter", number, label, blocks)


def _package_document(package: Package) -> str:
    container = _Container()
    if "META-INF/container.xml" in package:
        package.parse_whole("META-INF/container.xml", container)
    for part in (*container.found, *(name for name in package.names if name.lower().endswith(".opf"))):
        if part in package:
            return part
    raise Unreadable("corrupt", "the book has no package document (.opf)")


class _Quiet:
    def end(self, name: str) -> None: ...
    def data(self, text: str) -> None: ...


class _Container(_Quiet):
    def __init__(self) -> None:
        self.found: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "rootfile":
            self.found.append(attribute(attributes, "full-path"))


class _Book:
    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.spine: list[str] = []
        self.title: list[str] = []
        self.nav = ""
        self.ncx = ""
        self._in_title = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "item":
            link = attribute(attributes, "href")
            self.items[attribute(attributes, "id")] = link
            if "nav" in attribute(attributes, "properties").split():
                self.nav = link
            elif attribute(attributes, "media-type") == "application/x-dtbncx+xml":
                self.ncx = link
        elif name == "itemref":
            self.spine.append(attribute(attributes, "idref"))
        elif name == "title" and not self.title:
            self._in_title = True

    def end(self, name: str) -> None:
        if name == "title":
            self._in_title = False

    def data(self, text: str) -> None:
        if self._in_title:
            self.title.append(text)


class _Contents:
    """Names by chapter part, from the EPUB 3 nav (`a`) or the EPUB 2 ncx (`navLabel`, `content`). The first counts."""

    def __init__(self, folder: str) -> None:
        self.names: dict[str, str] = {}
        self._folder = folder
        self._words: list[str] | None = None
        self._link = ""
        self._text = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "a":
            self._link = attribute(attributes, "href")
            self._words = []
        elif name == "navLabel":
            self._words = []
        elif name == "content" and self._text:
            self._name(attribute(attributes, "src"), self._text)
            self._text = ""

    def end(self, name: str) -> None:
        if name in ("a", "navLabel") and self._words is not None:
            text = " ".join("".join(self._words).split())[:200]
            self._words = None
            if name == "a":
                self._name(self._link, text)
            else:
                self._text = text

    def data(self, text: str) -> None:
        if self._words is not None:
            self._words.append(text)

    def _name(self, link: str, text: str) -> None:
        if text and link and ":" not in link.partition("/")[0]:
            self.names.setdefault(href(self._folder, link).lower(), text)


def _chapter_names(package: Package, folder: str, book: _Book) -> dict[str, str]:
    for link in (book.nav, book.ncx):
        part = href(folder, link) if link else ""
        if part in package:
            contents = _Contents(posixpath.dirname(part))
            try:
                package.parse_whole(part, contents)
            except Unreadable as problem:
                # A table of contents that is no sound XML, or declares entities, costs the names only.
                if problem.reason not in ("corrupt", "bomb"):
                    raise
            if contents.names:
                return contents.names
    return {}


class _Encryption(_Quiet):
    """Parts that are really encrypted; obfuscated fonts have an algorithm of their own."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._obfuscated = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "EncryptionMethod":
            algorithm = attribute(attributes, "Algorithm")
            self._obfuscated = "obfuscation" in algorithm or "#RC" in algorithm
        elif name == "CipherReference" and not self._obfuscated:
            self.found.add(href("", attribute(attributes, "URI")).lower())


def _encrypted(package: Package) -> set[str]:
    reader = _Encryption()
    package.parse_whole("META-INF/encryption.xml", reader)
    return reader.found

"""DOCX and DOCM: body, then headers and footers, footnotes, endnotes, comments, diagrams and charts.

Relationships are followed, names are not guessed: an Office 365 file calls its main part `document2.xml`. Headings
come from outline levels and from styles, whatever a language calls them. Numbers that Word only draws (lists,
`2.1`) are not in the file and not in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.extract.ooxml import Paragraph, Paragraphs, drawn_text, title_of
from pensieve_mcp.corpus.extract.package import Attributes, Package, Relation, attribute
from pensieve_mcp.corpus.extract.writing import Headings, UnitWriter
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, UnitKind, Unreadable

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

_HEADING_NAME = re.compile(r"heading\s*([1-9])$", re.I)
# Part kind -> unit kind and label, in the order they are read after the body.
_ASIDE: tuple[tuple[str, UnitKind, str], ...] = (
    ("header", "header", "header"),
    ("footer", "header", "footer"),
    ("footnotes", "footnote", "footnotes"),
    ("endnotes", "footnote", "endnotes"),
    ("comments", "comment", "comments"),
)


class WordExtractor:
    name = "docx"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        package = Package(file, limits)
        main = package.main_part()
        if main is None or main not in package:
            raise Unreadable("corrupt", "the part that holds the document is missing")
        title = title_of(package)
        yield Facts(MEDIA_TYPE, title=title)
        relations = list(package.relations(main).values())
        warnings: list[str] = []
        levels = _heading_levels(package, relations, warnings)
        body = UnitWriter("body", 1)
        headings = Headings()

        def emit(text: str, paragraph: Paragraph | None) -> None:
            level = _level(paragraph, levels)
            path = headings.open(level, text) if level and text.strip() else headings.path
            body.block(text, path)

        for _ in package.parse_as_far_as_it_goes(main, Paragraphs(emit), warnings, "the text"):
            yield from body.take()
        yield from body.rest()
        yield from _asides(package, relations, warnings)
        yield from _drawings(package, relations, warnings)
        yield Facts(MEDIA_TYPE, title=title, warnings=tuple(warnings), partial=bool(warnings))


def _level(paragraph: Paragraph | None, levels: dict[str, int]) -> int:
    if paragraph is None:
        return 0
    if paragraph.outline is not None:
        return paragraph.outline + 1 if paragraph.outline < 9 else 0
    return levels.get(paragraph.style, 0)


def _asides(package: Package, relations: list[Relation], warnings: list[str]) -> Iterator[Piece]:
    ordinals: dict[UnitKind, int] = {}
    seen: set[tuple[str, ...]] = set()
    for wanted, kind, label in _ASIDE:
        for part in sorted({r.target for r in relations if r.kind == wanted and r.target in package}):
            texts: list[str] = []
            reader = _Noted(lambda text, _, into=texts: into.append(text))  # type: ignore[misc]
            for _ in package.parse_as_far_as_it_goes(part, reader, warnings, f"the {label}"):
                pass
            texts = [text for text in texts if text.strip()]
            if not texts or tuple(texts) in seen:  # first page, odd and even pages mostly say the same
                continue
            seen.add(tuple(texts))
            ordinals[kind] = ordinals.get(kind, 0) + 1
            writer = UnitWriter(kind, ordinals[kind], label)
            for text in texts:
                writer.block(text)
            yield from writer.rest()


def _drawings(package: Package, relations: list[Relation], warnings: list[str]) -> Iterator[Piece]:
    writer = UnitWriter("notes", 1, "drawings")
    for part in dict.fromkeys(
        r.target for r in relations if r.kind in ("diagramData", "chart") and r.target in package
    ):
        writer.block(drawn_text(package, part, warnings))
    yield from writer.rest()


class _Noted(Paragraphs):
    """Paragraphs of notes and comments; a comment's first one begins with its author's name."""

    _author = ""

    def start(self, name: str, attributes: Attributes) -> None:
        super().start(name, attributes)
        if name == "comment":
            self._author = attribute(attributes, "author")
        elif name == "p" and self._author and self._open:
            self._open[-1].words.append(f"{self._author}: ")
            self._author = ""


class _Styles:
    """Heading level by style id; a style without a level of its own has that of the one it is based on."""

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        self._based: dict[str, str] = {}
        self._id = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "style":
            self._id = (
                attribute(attributes, "styleId") if attribute(attributes, "type") == "paragraph" else ""
            )
        elif not self._id:
            return
        elif name == "name":
            called = attribute(attributes, "val")
            match = _HEADING_NAME.match(called)
            if match:
                self.levels.setdefault(self._id, int(match.group(1)))
            elif called.lower() == "title":
                self.levels.setdefault(self._id, 1)
        elif name == "basedOn":
            self._based[self._id] = attribute(attributes, "val")
        elif name == "outlineLvl":
            level = attribute(attributes, "val")
            if level.isdigit():
                self.levels[self._id] = int(level) + 1 if int(level) < 9 else 0

    def end(self, name: str) -> None:
        if name == "style":
            self._id = ""

    def data(self, text: str) -> None: ...

    def resolved(self) -> dict[str, int]:
        out = dict(self.levels)
        for style in self._based:
            at, steps = style, 0
            while at not in self.levels and at in self._based and steps < 20:
                at, steps = self._based[at], steps + 1
            if at in self.levels:
                out[style] = self.levels[at]
        return out


def _heading_levels(package: Package, relations: list[Relation], warnings: list[str]) -> dict[str, int]:
    styles = _Styles()
    for relation in relations:
        if relation.kind == "styles":
            package.parse_aside(relation.target, styles, warnings, "styles")
    return styles.resolved()

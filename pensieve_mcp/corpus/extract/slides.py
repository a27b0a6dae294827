"""PPTX and PPTM: a unit for each slide, in the order of the show, and one for its speaker notes.

Text boxes, tables, SmartArt, charts and comments of a slide are read; the slide's title is the heading of all that is
on it. Hidden slides count, since people number them; what stands only on the master does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.extract.ooxml import Paragraph, Paragraphs, drawn_text, title_of
from pensieve_mcp.corpus.extract.package import Attributes, Package, attribute
from pensieve_mcp.corpus.extract.writing import Headings, UnitWriter
from pensieve_mcp.corpus.types import Facts, FileHint, Limits, Piece, Unreadable

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


class SlidesExtractor:
    name = "pptx"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        return self.extract_from(file, hint, limits, 1)

    def extract_from(
        self, file: BinaryIO, hint: FileHint, limits: Limits, first: int
    ) -> Iterator[Piece | Facts]:
        package = Package(file, limits)
        main = package.main_part()
        if main is None or main not in package:
            raise Unreadable("corrupt", "the part that holds the presentation is missing")
        title = title_of(package)
        yield Facts(MEDIA_TYPE, title=title)
        order = _Order()
        package.parse_whole(main, order)
        relations = package.relations(main)
        parts = [relations[rid].target for rid in order.ids if rid in relations]
        warnings: list[str] = []
        for number, part in enumerate(parts[: limits.pages], start=1):
            if number < first:
                continue
            if part not in package:
                warnings.append(f"slide {number} is missing from the file")
                continue
            yield from _slide(package, part, number, warnings)
        if len(parts) > limits.pages:
            warnings.append(f"only the first {limits.pages:,} of {len(parts):,} slides were read")
        yield Facts(MEDIA_TYPE, title=title, warnings=tuple(warnings), partial=bool(warnings))


def _slide(package: Package, part: str, number: int, warnings: list[str]) -> Iterator[Piece]:
    shapes = _Shapes()
    _read(package, part, shapes, f"slide {number}", warnings)
    headings = Headings()
    heading = headings.open(1, shapes.title)
    writer = UnitWriter("slide", number, " ".join(shapes.title.split())[:200])
    for text in shapes.texts:
        writer.block(text, heading)
    notes = UnitWriter("notes", number, f"notes of slide {number}")
    comments = UnitWriter("comment", number, f"comments on slide {number}")
    for relation in package.relations(part).values():
        if relation.target not in package:
            continue
        if relation.kind in ("diagramData", "chart", "chartEx"):
            writer.block(drawn_text(package, relation.target, warnings), heading)
        elif relation.kind == "notesSlide":
            said = _Shapes()
            _read(package, relation.target, said, f"the notes of slide {number}", warnings)
            for text in said.texts:
                notes.block(text, heading)
        elif relation.kind == "comments":
            remarks = _Remarks()
            _read(package, relation.target, remarks, f"the comments on slide {number}", warnings)
            for text in remarks.texts:
                comments.block(text, heading)
    # An empty piece says where we are, should the next slide be fatal.
    wrote = list(writer.rest()) or [Piece("", "slide", number, writer.label)]
    yield from wrote
    yield from notes.rest()
    yield from comments.rest()


def _read(package: Package, part: str, handler: Paragraphs, what: str, warnings: list[str]) -> None:
    for _ in package.parse_as_far_as_it_goes(part, handler, warnings, what):
        pass


class _Order:
    def __init__(self) -> None:
        self.ids: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "sldId":
            # `id` is a number of its own; the relation stands in the attribute with a prefix.
            for key, value in attributes.items():
                if key.endswith(":id"):
                    self.ids.append(value)

    def end(self, name: str) -> None: ...
    def data(self, text: str) -> None: ...


class _Shapes(Paragraphs):
    """Paragraphs of a slide; those in a title placeholder make its title."""

    def __init__(self) -> None:
        super().__init__(self._keep)
        self.texts: list[str] = []
        self.title = ""
        self._placeholder = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "sp":
            self._placeholder = ""
        elif name == "ph":
            self._placeholder = attribute(attributes, "type", "body")
        super().start(name, attributes)

    def _keep(self, text: str, paragraph: Paragraph | None) -> None:
        if self._placeholder == "sldNum" or not text.strip():
            return
        if self._placeholder in ("title", "ctrTitle"):
            self.title = f"{self.title} {text}".strip()
        self.texts.append(text)

    def end(self, name: str) -> None:
        super().end(name)
        if name == "sp":
            self._placeholder = ""


class _Remarks(Paragraphs):
    """Comments: the old form says `text`, the new one has paragraphs."""

    def __init__(self) -> None:
        super().__init__(lambda text, _: self.texts.append(text))
        self.texts: list[str] = []
        self._words: list[str] | None = None

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "text":
            self._words = []
        super().start(name, attributes)

    def end(self, name: str) -> None:
        super().end(name)
        if name == "text" and self._words is not None:
            self.texts.append("".join(self._words))
            self._words = None

    def data(self, text: str) -> None:
        super().data(text)
        if self._words is not None:
            self._words.append(text)

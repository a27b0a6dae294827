"""Texts that stand in their file as they are read: stretches of whole lines, cut into blocks under headings.

Line n of the text is line n of the file, so no line numbers are kept. Blocks are runs of paragraphs, not
lines: a log of 200 MB must not become four million objects. What a heading is, each format says by an
`Outline` (`text_outline.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Protocol

from pensieve_mcp.corpus.decode import TextStream
from pensieve_mcp.corpus.types import Block, Facts, FileHint, Limits, Piece, Unreadable

BLOCK_CHARS = 1_200  # two passages: short paragraphs are taken together up to here
SOFT_CUT_CHARS = 65_536  # facts section 7: a line longer than this is cut, in blocks only
PIECE_CHARS = 2**20
BLANK_CHARS = 2**24  # white space held back in the hope of a word

Heading = tuple[int, tuple[str, ...]]  # where it begins in the stretch, and the whole path from the top


class Outline(Protocol):
    """Finds the headings of one document; asked stretch by stretch, keeps what it must remember between."""

    @property
    def title(self) -> str: ...

    def headings(self, text: str) -> Iterator[Heading]: ...


class Flat:
    """No headings."""

    title = ""

    def headings(self, text: str) -> Iterator[Heading]:
        return iter(())


def whole_lines(stretches: Iterable[str]) -> Iterator[str]:
    """The same text in stretches that end at line ends, but for lines longer than a stretch."""
    rest = ""
    for text in stretches:
        text = rest + text
        cut = text.rfind("\n") + 1
        if cut == 0:
            if len(text) < PIECE_CHARS:
                rest = text
                continue
            cut = len(text)
        yield text[:cut]
        rest = text[cut:]
    if rest:
        yield rest


def fill(
    text: str, start: int, end: int, heading: tuple[str, ...], first_line: int | None = None
) -> Iterator[Block]:
    """Blocks that tile [start, end): border at the last blank line that fits, else the last line end, else cut."""
    while start < end:
        stop = end
        if end - start > BLOCK_CHARS:
            limit = start + BLOCK_CHARS
            stop = text.rfind("\n\n", start + 1, limit)
            if stop >= 0:
                stop += 2
                while stop < end and text[stop] == "\n" and stop < limit:
                    stop += 1
            else:
                stop = text.rfind("\n", start, limit) + 1
                if stop <= start:
                    stop = text.find("\n", limit, min(end, start + SOFT_CUT_CHARS)) + 1
                if stop <= start:
                    stop = min(end, start + SOFT_CUT_CHARS)
        yield Block(start, stop, heading, first_line, first_line)
        start = stop


def outlined(
    text: str, outline: Outline, above: tuple[str, ...]
) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Blocks of a stretch, and the heading path that holds at its end (`above` holds at its start)."""
    blocks: list[Block] = []
    start = 0
    for at, path in outline.headings(text):
        if at > start:
            blocks.extend(fill(text, start, at, above))
            start = at
        above = path
    blocks.extend(fill(text, start, len(text), above))
    return tuple(blocks), above


class Wording:
    """Counts what passes and refuses a document without a word."""

    def __init__(self) -> None:
        self.seen = False
        self._held: list[Piece] = []
        self._held_chars = 0

    def let(self, piece: Piece) -> Iterator[Piece]:
        """Hold pieces of white space back until there is a word."""
        if not self.seen:
            if self._held_chars < BLANK_CHARS and not piece.text.strip():
                self._held.append(piece)
                self._held_chars += len(piece.text)
                return
            self.seen = True
            yield from self._held
            self._held.clear()
        yield piece

    def check(self) -> None:
        """Raises Unreadable "empty"."""
        if not self.seen:
            raise Unreadable("empty", "no text in it")


def too_large(hint: FileHint, limits: Limits) -> None:
    """Raises Unreadable "too_large"."""
    if hint.size_bytes > limits.text_file_bytes:
        detail = f"{hint.size_bytes:,} bytes; the limit for text is {limits.text_file_bytes:,}"
        raise Unreadable("too_large", detail)


def open_text(file: BinaryIO, hint: FileHint, limits: Limits, declared: str | None = None) -> TextStream:
    """Decode the file. Raises Unreadable "binary", "empty", "too_large"."""
    too_large(hint, limits)
    if hint.size_bytes == 0 and not file.read(1):
        raise Unreadable("empty", "0 bytes")
    return TextStream(file, declared=declared, fallback=hint.fallback_encoding)


def facts_of(stream: TextStream, media_type: str, *, title: str = "", verbatim: bool = False) -> Facts:
    """What is known once the stream is read to its end."""
    warnings: tuple[str, ...] = ()
    if stream.replaced:
        warnings = (f"{stream.replaced:,} characters could not be decoded as {stream.encoding.name}",)
    elif stream.encoding.confidence < 0.5:
        warnings = (f"the encoding {stream.encoding.name} is a guess",)
    return Facts(media_type, title, stream.encoding.name, stream.replaced, verbatim, warnings)


def verbatim(stream: TextStream, media_type: str, outline: Outline) -> Iterator[Piece | Facts]:
    """The file's own text, line by line, in blocks under their headings. Raises Unreadable "empty"."""
    words = Wording()
    above: tuple[str, ...] = ()
    told = False
    for number, text in enumerate(whole_lines(stream)):
        if not told and (number or len(text) >= PIECE_CHARS):
            # A long text may be cut off, or its reading ended, before all is known of it.
            told = True
            yield facts_of(stream, media_type, title=outline.title, verbatim=True)
        blocks, above = outlined(text, outline, above)
        yield from words.let(Piece(text, blocks=blocks))
    words.check()
    yield facts_of(stream, media_type, title=outline.title, verbatim=True)


class Pages:
    """Builds pieces of text that is composed rather than copied: lines with the place they come from."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._chars = 0

    def add(
        self, text: str, heading: tuple[str, ...] = (), first: int | None = None, last: int | None = None
    ) -> None:
        """One block, ended by a line end. Long ones are cut softly."""
        if not text:
            return
        if not text.endswith("\n"):
            text += "\n"
        start = self._chars
        if len(text) <= SOFT_CUT_CHARS:
            self._blocks.append(
                Block(start, start + len(text), heading, first, last if last is not None else first)
            )
        else:
            self._blocks.extend(
                Block(start + b.start, start + b.end, heading, first, last if last is not None else first)
                for b in fill(text, 0, len(text), heading)
            )
        self._parts.append(text)
        self._chars += len(text)

    @property
    def is_full(self) -> bool:
        return self._chars >= PIECE_CHARS // 4

    def take(self) -> tuple[str, tuple[Block, ...]]:
        """The text and blocks gathered so far; begins anew."""
        taken = "".join(self._parts), tuple(self._blocks)
        self._parts, self._blocks, self._chars = [], [], 0
        return taken

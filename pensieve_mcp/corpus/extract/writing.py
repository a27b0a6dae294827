"""How readers of rich formats write: blocks with their heading path, gathered into pieces of a unit.

Why: all of them count the same offsets and keep the same path of headings. Each block ends with a newline in the
text; its span leaves the newline out.
"""

from __future__ import annotations

from collections.abc import Iterator

from pensieve_mcp.corpus.types import Block, Piece, UnitKind

PIECE_CHARS = 32_000  # a piece is handed on when it has this many
_TITLE_CHARS = 200  # of a heading in a path; a longer one is a paragraph in disguise
_LEVELS = 9


class Headings:
    """The path of headings above a place."""

    def __init__(self) -> None:
        self._stack: list[tuple[int, str]] = []
        self.path: tuple[str, ...] = ()

    def open(self, level: int, title: str) -> tuple[str, ...]:
        """A heading begins; returns the path with it, which is the heading's own block's path too."""
        level = min(max(level, 1), _LEVELS)
        title = " ".join(title.split())[:_TITLE_CHARS]
        while self._stack and self._stack[-1][0] >= level:
            self._stack.pop()
        if title:
            self._stack.append((level, title))
        self.path = tuple(name for _, name in self._stack)
        return self.path


class UnitWriter:
    """Blocks of one unit, in pieces."""

    def __init__(self, kind: UnitKind = "body", ordinal: int = 1, label: str = "") -> None:
        self.kind: UnitKind = kind
        self.ordinal = ordinal
        self.label = label
        self.wrote = False
        self._texts: list[str] = []
        self._blocks: list[Block] = []
        self._chars = 0

    def block(self, text: str, heading: tuple[str, ...] = (), cells: str | None = None) -> None:
        """Add a paragraph, row group or the like; white space alone is dropped."""
        text = text.strip("\n")
        if not text or text.isspace():
            return
        self._blocks.append(Block(self._chars, self._chars + len(text), heading, cells=cells))
        self._texts.append(text + "\n")
        self._chars += len(text) + 1

    def take(self, least_chars: int = PIECE_CHARS) -> Iterator[Piece]:
        """The piece gathered so far if it has that many characters."""
        if self._chars >= max(least_chars, 1):
            yield Piece("".join(self._texts), self.kind, self.ordinal, self.label, tuple(self._blocks))
            self.wrote = True
            self._texts, self._blocks, self._chars = [], [], 0

    def rest(self) -> Iterator[Piece]:
        """What is left, however little."""
        yield from self.take(1)

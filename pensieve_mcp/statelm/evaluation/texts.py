"""The haystack: paragraphs of Python's own documentation and standard library, as many as are wanted, none twice.

About three million tokens lie on any machine with Python. Another Python has other text, so a bed is named by
the digest of what was written, and records of different text are not mixed.
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.tokens import count_tokens

LEAST_CHARS, MOST_CHARS = 60, 1_200
APART = ("site-packages", "test", "tests", "idlelib", "turtledemo", "lib2to3", "__pycache__")


@lru_cache(maxsize=1)
def paragraphs_of_python() -> tuple[str, ...]:
    """Paragraphs of the reference topics, then of the library's sources, in a fixed order."""
    from pydoc_data import topics

    pieces = [topics.topics[name] for name in sorted(topics.topics)]
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not set(path.relative_to(root).parts) & set(APART):
            pieces.append(path.read_text("utf-8", "replace"))
    return tuple(_paragraphs(pieces))


def paragraphs_of_folder(folder: Path) -> tuple[str, ...]:
    """The same of text files of one's own."""
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".txt", ".md", ".rst", ".py"))
    return tuple(_paragraphs(path.read_text("utf-8", "replace") for path in files))


def _paragraphs(pieces: Iterator[str] | Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for piece in pieces:
        for part in re.split(r"\n\s*\n", piece):
            for text in _pieces(part.strip("\n")):
                if len(text) >= LEAST_CHARS and text not in seen:
                    seen.add(text)
                    yield text


def _pieces(text: str) -> Iterator[str]:
    """An overlong paragraph in several, parted at ends of lines; a line of its own that is longer is left out."""
    held = ""
    for line in text.splitlines(keepends=True):
        if len(line) > MOST_CHARS:
            continue
        if len(held) + len(line) > MOST_CHARS:
            yield held.strip("\n")
            held = ""
        held += line
    if held.strip():
        yield held.strip("\n")


def haystack(source: Sequence[str], tokens: int, dice: random.Random) -> list[str]:
    """Paragraphs in drawn order with about so many tokens together. Raises WorkspaceError where there are too few."""
    found: list[str] = []
    total = 0
    for place in dice.sample(range(len(source)), len(source)):
        if total >= tokens:
            return found
        found.append(source[place])
        total += count_tokens(source[place]) + 1
    if total >= tokens * 0.98:
        return found
    raise WorkspaceError(
        f"The text here has {total:,} tokens; {tokens:,} are wanted.",
        hint="Name a folder with more text: --text FOLDER, or ask for shorter lengths.",
        slug="too_little_text",
    )


def hide(haystack: list[str], facts: Sequence[str], depths: Sequence[float]) -> list[str]:
    """The paragraphs with each fact as one of its own, at its depth (0 the beginning, 1 the end)."""
    places = sorted(
        (round(depth * len(haystack)), order, fact)
        for order, (fact, depth) in enumerate(zip(facts, depths, strict=True))
    )
    whole: list[str] = []
    last = 0
    for place, _, fact in places:
        whole += [*haystack[last:place], fact]
        last = place
    return whole + haystack[last:]

"""Near spellings for words that no passage holds: real words of the texts, so that asking for them hits."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pensieve_mcp.index import fields
from pensieve_mcp.index.lexical import LexicalIndex
from pensieve_mcp.index.question import Asked
from pensieve_mcp.index.types import PassageTexts

LIMIT = 3
SHORTEST = 4  # letters; every short word is near to some other
_WORD = re.compile(r"[^\W_]+")


def near_words(index: LexicalIndex, asked: Asked, texts: PassageTexts | None) -> tuple[str, ...]:
    """At most three words or pairs of words; none without texts, since stems are no words. Raises StorageError."""
    found: list[str] = []
    for word in asked.unknown[:LIMIT]:
        if len(word) < SHORTEST or word.isdigit():
            continue
        pair = index.split_word(word)
        if pair:
            found.append(pair)
        if texts is not None:
            given = texts(index.near(word))
            nearest = _nearest(word, list(given.values()))
            if nearest:
                found.append(nearest)
    return tuple(dict.fromkeys(found))[:LIMIT]


def sentence(suggested: Sequence[str]) -> list[str]:
    """What a reader is told of them; nothing for none."""
    return [f"Spelled nearly so: {', '.join(suggested)}."] if suggested else []


def _nearest(word: str, texts: Sequence[str]) -> str:
    counts: dict[str, int] = {}
    for text in texts:
        for other in _WORD.findall(fields.fold(text).lower()):
            counts[other] = counts.get(other, 0) + 1
    allowed = 1 if len(word) <= 5 else 2
    ranked = sorted(
        (distance, -often, other)
        for other, often in counts.items()
        if abs(len(other) - len(word)) <= allowed + 3 and (distance := edits(word, other)) <= allowed + 1
    )
    return ranked[0][2] if ranked else ""


def edits(one: str, other: str) -> int:
    """Letters put in, left out, changed or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            cost = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]

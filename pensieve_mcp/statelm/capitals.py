"""Questions in a language that writes every noun with a capital letter: what of them is a name, and what is held.

In German a capital is no sign of a name, and words bend more than in English. So a noun behind an article counts
like other words, one without ("von Velsand", "Maren Holt") like a name; words are alike that begin alike. For the
policy without a model alone; the bundled one speaks English.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pensieve_mcp.corpus.languages import guess_language
from pensieve_mcp.statelm.sentences import WORD, words

CAPITALISING = frozenset({"de"})
BEFORE_NOUNS = frozenset(
    word
    for line in (
        "der die das des dem den ein eine einen einem einer eines im am zum zur vom beim ins ans",
        "kein keine keinen keiner welche welcher welches welchen welchem viele vielen wieviel",
        "mein meine seine sein seiner ihr ihre ihrer dieser diese dieses diesem jeder jede jedes jedem",
    )
    for word in line.split()
)
SMALL = BEFORE_NOUNS | frozenset(
    word
    for line in (
        "wer wen wem wessen was wann wo wohin woher warum wie womit wofür wodurch und oder in an auf aus bei mit",
        "nach von vor zu für über unter um seit bis durch ist sind war waren wird werden wurde wurden hat haben",
        "hatte kann können soll sich es er sie man nicht auch noch als dass",
    )
    for word in line.split()
)
COUNTING = frozenset(("viele", "vielen", "wieviel"))
ALIKE, BENT = 4, 3  # letters that two forms of a word share at least, and that one may have more
NAME, NOUN, OTHER = 3.0, 2.0, 1.0
LEAST_ASKED = (
    0.5  # of what is asked besides names, in the sentence itself: one about the same thing is no answer
)
BEFORE = 0.5  # of a word that stands in the sentences before: the thing spoken of


def capitalises(text: str) -> bool:
    """Whether the text is in such a language."""
    return guess_language(text) in CAPITALISING


@dataclass(frozen=True, slots=True)
class Wanted:
    """The words of a question that say something, lower case, by what they are."""

    names: frozenset[str]
    weights: dict[str, float]
    counted: frozenset[str] = frozenset()  # of what the number is asked

    @classmethod
    def of(cls, question: str) -> Wanted:
        found = WORD.findall(question)
        names: set[str] = set()
        weights: dict[str, float] = {}
        counted: set[str] = set()
        for place, word in enumerate(found):
            low = word.lower()
            if low in SMALL:
                continue
            digits = any(c.isdigit() for c in word)
            noun = place > 0 and word[0].isupper()
            if digits or (noun and found[place - 1].lower() not in BEFORE_NOUNS):
                names.add(low)
            if place > 0 and found[place - 1].lower() in COUNTING:
                counted.add(low)
            weights[low] = NAME if low in names else NOUN if noun else OTHER
        return cls(frozenset(names), weights, frozenset(counted))

    def score(self, sentence: str, before: str) -> float:
        """Share of the question that the sentence holds, 0 to 1; what stands in those before counts half. 0 where a
        name is in neither, or the sentence holds too little of what is asked besides, or not the thing that is counted.
        """
        here, around = set(words(sentence)), set(words(before))
        if not self.weights or not all(_named(name, here | around) for name in self.names):
            return 0.0
        held = {word for word in self.weights if any(alike(word, other) for other in here)}
        asked = self.weights.keys() - self.names
        if not self.counted <= held or self._weight(asked & held) < LEAST_ASKED * self._weight(asked):
            return 0.0
        near = {word for word in self.weights.keys() - held if any(alike(word, other) for other in around)}
        return (self._weight(held) + BEFORE * self._weight(near)) / self._weight(self.weights)

    def _weight(self, some: Iterable[str]) -> float:
        return sum(self.weights[word] for word in some)


def alike(one: str, other: str) -> bool:
    """Whether two words may be forms of one: `Fässer` and `Fässern`, `gründete` and `gegründet`."""
    return any(_begin_alike(a, b) for a in (one, _bare(one)) for b in (other, _bare(other)))


def _begin_alike(one: str, other: str) -> bool:
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    shared = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return shared >= ALIKE and shared >= len(short) - BENT + 1 and len(long) - shared <= BENT


def _bare(word: str) -> str:
    return word[2:] if word.startswith("ge") and len(word) > ALIKE + 2 else word


def _named(name: str, around: set[str]) -> bool:
    """A name, perhaps with an ending: `Velsands`."""
    return any(
        word == name or (len(name) > 2 and word.startswith(name) and len(word) - len(name) <= 2)
        for word in around
    ) or (name.endswith("s") and name[:-1] in around)

"""A question as the word index understands it: which terms, in which fields, worth how much.

A question is text, not syntax: nothing in it can be an error, `NOT` and `a=b` are words like others; only
quotes mean something. Asking for the terms is `lexical.py`'s business, analysing them is here, through the
small port `Vocabulary`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pensieve_mcp.index import fields

MAX_WORDS = 48  # distinct words of one question that are looked up; the rarest are kept
MAX_GRAMS = 96
MAX_CHARS = 200_000  # what of a question is read at all
MAX_PHRASES = 8
BM25_CEILING = 2.2  # k1 + 1 with tantivy's k1 = 1.2: the most one term can give, times its idf

WEIGHTS: Mapping[str, float] = {
    "body": 1.0,
    "world": 1.0,
    "parts": 1.0,
    "grams": 1.0,
    "prefix": 0.3,
    "marks": 0.5,
    "about": 0.3,
}

# Words that ask rather than tell: the English list of tantivy, and asking words, which an encyclopaedia hardly
# holds, so that BM25 would take them for rare and telling.
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
what which who whom whose when where why how do does did has have had can could would should shall may might
i me my we our us you your he him his she her its them been being were am from about
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

Term = tuple[str, str, float]
"""Field, indexed form, weight."""


class Vocabulary(Protocol):
    """What the word index tells of its words. `split` gives (plain, English stem, world stem) of each word."""

    def split(self, text: str) -> list[tuple[str, str, str]]: ...

    def holding(self, field: str, form: str) -> int:
        """How many passages hold this form in this field."""
        ...

    def size(self) -> int:
        """How many passages there are."""
        ...


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a question (or a stretch of an unspaced script) and where it is looked up; `terms` that no
    passage holds are left out, so an empty tuple means that the index does not know the word."""

    text: str
    terms: tuple[Term, ...]
    spaced: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, analysed. `bound` is the most BM25 a passage can reach (facts/retrieval 5: U(q))."""

    words: tuple[Word, ...]
    extras: tuple[Term, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    bound: float = 0.0
    show: tuple[str, ...] = ()  # what to highlight, folded
    notes: tuple[str, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """The words that no passage holds."""
        return tuple(word.text for word in self.words if not word.terms and word.spaced)

    @property
    def terms(self) -> tuple[Term, ...]:
        """All that is looked up, each once."""
        every = [term for word in self.words for term in word.terms]
        return tuple(dict.fromkeys([*every, *self.extras]))

    def loosened(self) -> Asked:
        """The same without the demand that phrases stand as they are."""
        return dataclasses.replace(self, phrases=())

    def with_phrase(self, phrase: tuple[str, ...]) -> Asked:
        """The same with the demand that this phrase alone stands as it is."""
        return dataclasses.replace(self, phrases=(phrase,))


def analyse(text: str, vocabulary: Vocabulary) -> Asked:
    """Analyse a question. Never raises for any text."""
    notes: list[str] = []
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS]
        notes.append(f"Only the first {MAX_CHARS:,} characters of the question were read.")
    text = fields.fold(text)
    spaced = fields.spaced_words(text)
    words = _words(spaced, vocabulary)
    grams, singles = _grams(text, vocabulary)
    extras = _extras(spaced, vocabulary)
    if len(words) > MAX_WORDS or len(grams) > MAX_GRAMS:
        number = len(words) + len(grams)
        words = _rarest(words, MAX_WORDS, vocabulary)
        grams = _rarest(grams, MAX_GRAMS, vocabulary)
        extras, singles = extras[:MAX_WORDS], singles[:MAX_WORDS]
        notes.append(
            f"The question has {number:,} different words; the {len(words) + len(grams)} rarest were used."
        )
    extras += singles
    bound = sum(_most(word, vocabulary) for word in (*words, *grams))
    bound += sum(most(term, vocabulary) for term in extras)
    show = dict.fromkeys(term[1] for word in (*words, *grams) for term in word.terms if term[0] != "about")
    show.update(dict.fromkeys(word.text for word in (*words, *grams)))
    show.update(dict.fromkeys(term[1] for term in extras if term[0] == "marks"))
    return Asked((*words, *grams), tuple(extras), quoted(text), bound, tuple(show), tuple(notes))


def _words(spaced: str, vocabulary: Vocabulary) -> list[Word]:
    distinct = dict.fromkeys(vocabulary.split(spaced))
    telling = [forms for forms in distinct if forms[0] not in STOP_WORDS] or list(distinct)
    found = []
    for plain, english, world in telling:
        forms = (("body", english), ("world", world), ("parts", english), ("about", world))
        found.append(Word(plain, tuple(_live(forms, vocabulary))))
    return found


def _grams(text: str, vocabulary: Vocabulary) -> tuple[list[Word], list[Term]]:
    words: dict[str, Word] = {}
    singles: dict[str, Term] = {}
    for run in () if text.isascii() else fields.runs(text):
        several, characters = fields.pieces(run)
        for gram in several or characters:
            if gram not in words:
                terms = _live((("grams", gram), ("about", gram)), vocabulary)
                words[gram] = Word(gram, tuple(terms), spaced=False)
        if several:
            singles.update(
                (term[1], term) for term in _live((("grams", one) for one in characters), vocabulary)
            )
    return list(words.values()), list(singles.values())


def _extras(spaced: str, vocabulary: Vocabulary) -> list[Term]:
    asked: dict[tuple[str, str], None] = {}
    for _, part, _ in vocabulary.split(fields.parts(spaced)):
        asked["parts", part] = None
    for mark in fields.marks(spaced).split():
        asked["marks", mark] = None
    for head in fields.prefixes(spaced).split():
        if head not in STOP_WORDS:
            asked["prefix", head] = None
    return _live(asked, vocabulary)


def _live(forms: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> list[Term]:
    return [(name, form, WEIGHTS[name]) for name, form in forms if vocabulary.holding(name, form)]


def most(term: Term, vocabulary: Vocabulary) -> float:
    """The most BM25 that this term alone can give a passage, times its weight."""
    holding = vocabulary.holding(term[0], term[1])
    # Removed passages are counted in `holding` until tantivy merges them away, but not in `size`.
    size = max(vocabulary.size(), holding)
    return term[2] * BM25_CEILING * math.log(1 + (size - holding + 0.5) / (holding + 0.5))


def _most(word: Word, vocabulary: Vocabulary) -> float:
    """A word unknown to the index counts as the rarest there can be: what matches without it matches weakly."""
    if not word.terms:
        return BM25_CEILING * math.log(1 + (vocabulary.size() + 0.5) / 0.5)
    telling = [term for term in word.terms if term[0] != "about"]
    return max(most(term, vocabulary) for term in telling or word.terms)


def _rarest(words: list[Word], limit: int, vocabulary: Vocabulary) -> list[Word]:
    known = [word for word in words if word.terms]
    known.sort(key=lambda word: max(vocabulary.holding(term[0], term[1]) for term in word.terms))
    return known[:limit] or words[:limit]


_QUOTES: Mapping[str, str] = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」", "『": "』"}


def quoted(text: str) -> tuple[tuple[str, ...], ...]:
    """The quoted phrases that hold a word; a quote without its partner is just a sign."""
    found: list[tuple[str, ...]] = []
    place = 0
    while place < len(text) and len(found) < MAX_PHRASES:
        close = _QUOTES.get(text[place])
        end = text.find(close, place + 1) if close else -1
        if end > 0:
            words = tuple(text[place + 1 : end].split())
            if 0 < len(words) <= MAX_WORDS and any(map(_has_word, words)):
                found.append(words)
            place = end
        elif close and len(text) > 10_000:
            break  # no partner in a very long text: looking again for each sign would take for ever
        place += 1
    return tuple(found)


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))

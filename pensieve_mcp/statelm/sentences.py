"""Sentences of a text and how well one answers a question: shared by the policy without a model, the grammar of the
compact dialect, and the evidence of notes."""

from __future__ import annotations

import re

BORDER = re.compile(r"(?<=[.!?。！？])[\"”')\]]*\s+|\n\s*\n|(?<=[。！？])")
WORD = re.compile(r"\w+(?:[-'’]\w+)*")
MAX_SENTENCE_CHARS = 320
STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "in",
        "on",
        "at",
        "to",
        "for",
        "by",
        "is",
        "was",
        "were",
        "are",
        "am",
        "be",
        "been",
        "did",
        "do",
        "does",
        "what",
        "which",
        "who",
        "whom",
        "whose",
        "where",
        "when",
        "how",
        "many",
        "much",
        "and",
        "or",
        "with",
        "that",
        "this",
        "these",
        "those",
        "it",
        "its",
        "from",
        "as",
        "has",
        "have",
        "had",
        "i",
        "my",
        "me",
        "you",
        "your",
        "name",
        "called",
        "there",
        "their",
        "they",
        "he",
        "she",
        "his",
        "her",
        "not",
        "into",
        "about",
        "than",
        "then",
    ]
)

ORDERS = frozenset(("list", "name", "tell", "give", "find", "say", "show", "please"))
OF_ONESELF = re.compile(r"\b(?:I|[Mm](?:y|e|ine|yself)|[Ww]e|[Oo]ur)\b")
LATEST = re.compile(
    r"\b(?:latest|newest|current(?:ly)?|now|nowadays|today|these days|most recent(?:ly)?|up to date|"
    r"at (?:the moment|present)|(?:last|final)(?! (?:year|month|week|night|name|time|names)\b))\b",
    re.I,
)


def sentences(text: str) -> list[str]:
    """Sentences on one line each; overlong ones are cut at a word, since a quote should be short."""
    found = []
    for piece in BORDER.split(text):
        one = " ".join((piece or "").split())
        while len(one) > MAX_SENTENCE_CHARS:
            cut = one.rfind(" ", 0, MAX_SENTENCE_CHARS)
            cut = cut if cut > MAX_SENTENCE_CHARS // 2 else MAX_SENTENCE_CHARS
            found.append(one[:cut].strip())
            one = one[cut:].strip()
        if one:
            found.append(one)
    return found


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def asks_latest(question: str) -> bool:
    """Whether of several values only the last one counts: "the latest", "currently", "now"; "last year" is a time."""
    return LATEST.search(question) is not None


def of_oneself(text: str) -> bool:
    """Whether somebody speaks of themselves in it: a question about "my" is answered where one says "I"."""
    return OF_ONESELF.search(text) is not None


def without_latest(question: str) -> str:
    """The question without the words that ask for the latest: no statement need hold them."""
    return LATEST.sub(" ", question)


def content_words(text: str) -> list[str]:
    """Words that say something, in order; all words where there are no others."""
    kept = [word for word in words(text) if word not in STOP]
    return kept or words(text)


def query_of(question: str) -> str:
    """The words of a question that say something, as a query, in their own letters; an order at its beginning
    ("List the …") is left out."""
    found = WORD.findall(question)
    if found and found[0].lower() in ORDERS:
        found = found[1:]
    kept = [word for word in found if word.lower() not in STOP]
    return " ".join(kept or found)


def stem(word: str) -> str:
    """A crude English stem: enough to match `founded` with `founder`."""
    return re.sub(r"(?:ings?|ers?|ors?|ed|es|s|d|e)$", "", word) if len(word) > 4 else word


def stems(text: str) -> set[str]:
    return {stem(word) for word in content_words(text)}


def normal(text: str) -> str:
    """For comparing answers: lower case, words only, no articles."""
    return " ".join(word for word in words(text) if word not in ("a", "an", "the"))


def coverage(question: str, sentence: str) -> float:
    """Share of the question's content words that a sentence holds; names and numbers count three times, 0 to 1."""
    weights = {stem(word.lower()): _weight(word, place) for place, word in enumerate(WORD.findall(question))
               if word.lower() not in STOP}  # fmt: skip
    if not weights:
        return 0.0
    held = stems(sentence) | {stem(word) for word in words(sentence)}
    return sum(weight for one, weight in weights.items() if one in held) / sum(weights.values())


def _weight(word: str, place: int) -> float:
    return 3.0 if place and (word[0].isupper() or any(c.isdigit() for c in word)) else 1.0


def names(question: str) -> set[str]:
    """Proper names and numbers of a question: what an answer must be about."""
    found = WORD.findall(question)
    return {
        word.lower()
        for place, word in enumerate(found)
        if ((place and word[0].isupper()) or any(c.isdigit() for c in word)) and word.lower() not in STOP
    }

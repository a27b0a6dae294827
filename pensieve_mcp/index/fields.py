"""Text to the values of the search fields, by script.

One analysis for passages and for questions: whatever is done to a text here is done to a query by the same
function, so that `2026.4.10` or `multi-agent` can never be split one way when written and another way when
asked (complaints qmd #563, #463). Word splitting and stemming are tantivy's and happen in `lexical.py`; this
file decides *which* texts need which field, with cheap gates, so that plain English pays for one field only.

| field | holds | filled when |
| --- | --- | --- |
| `body` | the words, unspaced scripts taken out | no Cyrillic, Greek or Arabic letters |
| `world` | the same, stemmed for four scripts | such letters |
| `prefix` | first five letters of each word | Latin letters beyond ASCII |
| `grams` | 2-grams and singles of Han, Kana, Hangul; 3-grams of Thai, Lao, Khmer, Burmese | such letters |
| `parts` | parts of camelCase, snake_case and ACRONYMWords | such words |
| `marks` | words with signs, whole: `c++ #tag a=b 50% foo@bar.com 2026.4.10 multi-agent` | such words |
| `about` | words of title, heading and path | always, short, small weight |
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

VERSION = 1  # raise when any value below would come out differently: indexes are then rebuilt

PREFIX_LETTERS = 5  # language-free help for inflected Latin-script languages (facts: tr .702 to .735)
LONGEST_MARK = 64  # characters; longer ones are addresses of pages and blobs, nobody types them whole

_UNSPACED = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U000323af"
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_RUN = re.compile(f"[{_UNSPACED}]+|[{_SOUTH_EAST}]+")
_IS_SOUTH_EAST = re.compile(f"[{_SOUTH_EAST}]")
_WORLD = re.compile("[\u0370-\u03ff\u0400-\u052f\u0600-\u06ff\u0750-\u077f\u1f00-\u1fff]")
LATIN_BEYOND_ASCII = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
_WORD = re.compile(r"[^\W_]+")

_IDENTIFIER_GATE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[A-Z]{2}[a-z]")
_IDENTIFIER = re.compile(r"\b(?=\w*[a-z0-9][A-Z]|\w*[^\W_]_[^\W_]|\w*[A-Z]{2,}[a-z])\w+\b")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_MARK_GATE = re.compile(r"[#@$%+=_/&]|\w[.:\-]\w")
_MARK = re.compile(r"[#@$]\w[\w\-]*|\w+(?:[.@:/=+\-_&]\w+){1,7}|\w+(?:\+\+|[#%])")

_AROUND = ".,;:!?\"'()[]{}<>*`“”‘’«»„…—–"  # stands beside words and is part of no mark there

# Signs inside words that writers set or leave out at will: soft hyphen, combining accents left after
# composing, Hebrew points, Arabic vowels and tatweel, Indic viramas and nuktas (else they split the word).
_DROPPED = re.compile(
    "[\u00ad\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u093c\u094d\u09bc\u09cd\u0a3c\u0a4d\u0abc\u0acd\u0b3c\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca\ufe00-\ufe0f]"
)


@dataclass(frozen=True, slots=True)
class Values:
    """What is indexed of one passage, or asked by one question; an empty string leaves the field out."""

    body: str = ""
    world: str = ""
    prefix: str = ""
    grams: str = ""
    parts: str = ""
    marks: str = ""


def fold(text: str) -> str:
    """NFKC, without the signs writers set at will. Case stays (identifiers need it). Lengths may change."""
    if text.isascii():
        return text
    return _DROPPED.sub("", unicodedata.normalize("NFKC", text))


def fold_literal(text: str) -> str:
    """For mode exact: NFKC and caseless, nothing else taken away."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def values(text: str) -> Values:
    """The field values of a passage or a question."""
    text = fold(text)
    odd = oddities(text)
    if text.isascii():
        return Values(body=text, parts=parts(odd), marks=marks(odd))
    runs = grams(text)
    spaced = _RUN.sub(" ", text) if runs else text
    world = _WORLD.search(spaced) is not None
    return Values(
        body="" if world else spaced,
        world=spaced if world else "",
        prefix=prefixes(spaced) if LATIN_BEYOND_ASCII.search(spaced) else "",
        grams=runs,
        parts=parts(oddities(spaced) if runs else odd),
        marks=marks(oddities(spaced) if runs else odd),
    )


def spaced_words(text: str) -> str:
    """A folded text without its runs of unspaced scripts, which are `grams`' business."""
    return text if text.isascii() else _RUN.sub(" ", text)


def prefixes(text: str) -> str:
    """First letters of each word, lower case, accents kept (they part words that fold together)."""
    return " ".join(word[:PREFIX_LETTERS] for word in _WORD.findall(text.lower()))


def runs(text: str) -> list[str]:
    """The stretches of unspaced scripts in a folded text."""
    return _RUN.findall(text)


def pieces(run: str) -> tuple[list[str], list[str]]:
    """(n-grams, single characters) of one run; South-East Asian scripts have no singles."""
    if _IS_SOUTH_EAST.match(run):
        return ([run] if len(run) <= 3 else [run[i : i + 3] for i in range(len(run) - 2)]), []
    return [run[i : i + 2] for i in range(len(run) - 1)], list(run)


def sure_grams(run: str) -> list[str]:
    """The n-grams that every longer run around this one has as well; none for a run that is too short."""
    several, _ = pieces(run)
    return [gram for gram in several if len(gram) == (3 if _IS_SOUTH_EAST.match(run) else 2)]


def grams(text: str) -> str:
    """Runs of unspaced scripts as n-grams and single characters, parted by blanks."""
    if text.isascii():
        return ""
    found: list[str] = []
    for run in _RUN.findall(text):
        several, single = pieces(run)
        found += several
        found += single
    return " ".join(found)


def oddities(text: str) -> str:
    """The words that could be identifiers or hold signs, parted by blanks.

    Neither `parts` nor `marks` looks across white space, so they find in these words what they find in the whole
    text; plain words, nearly all of prose, are passed over at the price of a few string methods.
    """
    odd = []
    for word in text.split():
        bare = word.strip(_AROUND)
        if not bare.isalpha() or not (bare.islower() or bare[1:].islower() or len(bare) == 1):
            odd.append(word)
    return " ".join(odd)


def parts(text: str) -> str:
    """Parts of identifiers: `getHTTPResponse path_hooks` gives `get HTTP Response path hooks`."""
    if not _IDENTIFIER_GATE.search(text):
        return ""
    return " ".join(" ".join(_PART.findall(name)) for name in _IDENTIFIER.findall(text))


def marks(text: str) -> str:
    """Words that hold signs, whole and in lower case."""
    if not _MARK_GATE.search(text):
        return ""
    return " ".join(mark for mark in _MARK.findall(text.lower()) if len(mark) <= LONGEST_MARK)


@lru_cache(maxsize=1024)  # all passages of a document share title and path
def about(title: str, heading: str, path: str) -> str:
    """Words of title, heading and path, each once, split at signs and at the parts of identifiers."""
    text = fold(f"{title} {heading} {path}")
    words = _WORD.findall(spaced_words(text).lower())
    words += parts(text).lower().split()
    words += grams(text).split()
    return " ".join(dict.fromkeys(words))


@lru_cache(maxsize=4096)
def folders(path: str) -> tuple[str, ...]:
    """All a path lies under, itself included: `r/a/b.txt` gives `r`, `r/a`, `r/a/b.txt`."""
    steps = [place for place in range(1, len(path)) if path[place] == "/"]
    return (*(path[:step] for step in steps), path)

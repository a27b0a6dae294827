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
from collections.abc import Sequence
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
    if text.isascii():
        parts, marks = _of_odd_words(text.split())
        return Values(body=text, parts=parts, marks=marks)
    signs = _signs(text)
    if signs & _TO_FOLD:
        text = fold(text)
        signs = _signs(text)
    runs = grams(text) if signs & _IN_RUNS else ""
    spaced = _RUN.sub(" ", text) if runs else text
    parts, marks = _of_odd_words(spaced.split())
    world = signs & _OF_WORLD
    return Values(
        body="" if world else spaced,
        world=spaced if world else "",
        prefix=prefixes(spaced) if signs & _LATIN else "",
        grams=runs,
        parts=parts,
        marks=marks,
    )


_TO_FOLD, _IN_RUNS, _OF_WORLD, _LATIN = 1, 2, 4, 8
_ASCII = bytes(range(128))
REMEMBERED_WORDS = 100_000  # some 15 MB
_REMEMBERED_LENGTH = 32  # characters; longer words hardly come twice


class _Signs(dict[str, int]):
    """What one character beyond ASCII asks for, remembered. A text without a sign to fold is as `fold` leaves it:
    whatever joins with the character before it is a mark (category M), a Hangul letter of parts or, since Unicode
    16, a vowel of Kirat Rai."""

    def __missing__(self, sign: str) -> int:
        folded = (
            unicodedata.category(sign).startswith("M")
            or "\u1100" <= sign <= "\u11ff"
            or "\U00016d63" <= sign <= "\U00016d6a"
            or _DROPPED.match(sign) is not None
            or not unicodedata.is_normalized("NFKC", sign)
        )
        found = (
            _TO_FOLD * folded
            | _IN_RUNS * (_RUN.match(sign) is not None)
            | _OF_WORLD * (_WORLD.match(sign) is not None)
            | _LATIN * (LATIN_BEYOND_ASCII.match(sign) is not None)
        )
        self[sign] = found
        return found


_sign = _Signs()


def _signs(text: str) -> int:
    """All that any character of a text asks for. Four regular expressions over the text cost ten times as much."""
    beyond = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")
    found = 0
    for sign in set(beyond):
        found |= _sign[sign]
    return found


_Odd = tuple[
    bool, str | None, bool, str | None
]  # opens the field `parts`, what stands there; the same for `marks`


class _OddWords(dict[str, "_Odd | None"]):
    """What words between blanks give to `parts` and `marks`, remembered; None for plain words, nearly all of prose.

    Neither field looks across white space, so a word gives the same wherever it stands.
    """

    def __missing__(self, word: str) -> _Odd | None:
        bare = word.strip(_AROUND)
        odd = None
        if not bare.isalpha() or not (bare.islower() or bare[1:].islower() or len(bare) == 1):
            opens_parts = _IDENTIFIER_GATE.search(word) is not None
            opens_marks = _MARK_GATE.search(word) is not None
            several = whole = None
            if opens_parts or ("_" in word and not word.isascii()):
                names = _IDENTIFIER.findall(word)
                several = " ".join(" ".join(_PART.findall(name)) for name in names) if names else None
            if opens_marks:
                found = [mark for mark in _MARK.findall(word.lower()) if len(mark) <= LONGEST_MARK]
                whole = " ".join(found) if found else None
            if opens_marks or opens_parts or several is not None:
                odd = opens_parts, several, opens_marks, whole
        if len(word) <= _REMEMBERED_LENGTH:
            if len(self) >= REMEMBERED_WORDS:
                self.clear()
            self[word] = odd
        return odd


_odd_words = _OddWords()


def _of_odd_words(words: Sequence[str]) -> tuple[str, str]:
    """(parts, marks) of the words of a text, as `parts` and `marks` give them of the whole."""
    odd = list(filter(None, map(_odd_words.__getitem__, words)))
    if not odd:
        return "", ""
    several = whole = ""
    if any(opens for opens, _, _, _ in odd):
        several = " ".join(found for _, found, _, _ in odd if found is not None)
    if any(opens for _, _, opens, _ in odd):
        whole = " ".join(found for _, _, _, found in odd if found is not None)
    return several, whole


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

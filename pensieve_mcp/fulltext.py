"""What is written and asked when notes and history are searched inside `pensieve.db` with FTS5.

FTS5's own tokenizer finds whole words between spaces, so almost nothing in Chinese, Japanese or Thai. Here
the text is segmented before it is stored (runs of such scripts as pairs of neighbours, their single
characters and the parts of camelCase beside them), and a query is segmented the same way. A query is text,
not syntax: any string gives an expression that FTS5 accepts, or none. The document index has its own, richer
analysis; this one serves what must be findable in the transaction that writes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

SHADOW_VERSION = 1
"""Part of what a contentless table was filled with: another rule means filling it anew."""

TOKENIZER = "porter unicode61 categories 'L* N* Co Mn Mc'"
MAX_WORD_CHARS = 64  # longer runs are keys and encoded data, found by their beginning
MAX_TERMS = 48  # a query of 100,000 characters is answered by its first terms

Found = Literal["all", "any", "prefix"]
"""How a hit matched: all terms, any of them, or their beginnings."""

# Scripts written without spaces between words, and Korean, whose words carry endings.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    r"\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
_INDIC = r"\u0900-\u0963\u0966-\u0dff"  # vowel signs are no letters to `\w`
_PIECE = re.compile(rf"(?P<run>[{_UNSPACED}]+)|(?P<word>(?:[^\W{_UNSPACED}]|[{_INDIC}])+)")
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」|„([^“”]+)[“”]')
_MARKS = re.compile(
    r"[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u0610-\u061a\u0640\u064b-\u065f\u0670]"
)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Shadow:
    """What FTS5 is given for a text: `body` in reading order, `parts` without order or repeats."""

    body: str
    parts: str


def _plain(text: str) -> str:
    """Without accents and vowel points, compatibility forms unified; case is kept."""
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _MARKS.sub("", decomposed))


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """(written without spaces?, piece) in reading order."""
    for match in _PIECE.finditer(_plain(text)):
        run = match["run"]
        if run is not None:
            yield True, run
        elif match["word"].strip("_"):
            yield False, match["word"]


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)] or [run]


def shadow(text: str) -> Shadow:
    """The text as FTS5 is to see it. Pure; any string, lone surrogates included."""
    body: list[str] = []
    parts: dict[str, None] = {}
    for unspaced, piece in _pieces(text):
        if unspaced:
            body += _pairs(piece)
            parts.update(dict.fromkeys(piece))
        else:
            body.append(piece[:MAX_WORD_CHARS].casefold())
            halves = _CAMEL.findall(piece[:MAX_WORD_CHARS]) if len(piece) > 3 else []
            if len(halves) > 1:
                parts.update(dict.fromkeys(half.casefold() for half in halves if len(half) > 1))
    return Shadow(" ".join(body), " ".join(parts))


def _quote(words: list[str]) -> str:
    return '"' + " ".join(words).replace('"', '""') + '"'


def _terms(text: str) -> Iterator[list[str]]:
    for unspaced, piece in _pieces(text):
        yield _pairs(piece) if unspaced else [piece[:MAX_WORD_CHARS].casefold()]


def match_expressions(query: str) -> list[tuple[Found, str]]:
    """FTS5 expressions for a query, strictest first; empty when there is nothing in it to look for.

    Quoted phrases stay together in the first. Pure; never raises.
    """
    query = query[: MAX_TERMS * 200]
    phrases: dict[tuple[str, ...], None] = {}
    for match in _QUOTED.finditer(query):
        words = [word for term in _terms(next(group for group in match.groups() if group)) for word in term]
        if words:
            phrases[tuple(words[:MAX_TERMS])] = None
    for term in _terms(_QUOTED.sub(" ", query)):
        phrases[tuple(term[:MAX_TERMS])] = None
        if len(phrases) >= MAX_TERMS:
            break
    if not phrases:
        return []
    words = list(dict.fromkeys(word for phrase in phrases for word in phrase))[:MAX_TERMS]
    expressions: list[tuple[Found, str]] = [("all", " AND ".join(_quote(list(phrase)) for phrase in phrases))]
    if len(words) > 1:
        expressions.append(("any", " OR ".join(_quote([word]) for word in words)))
    prefixes = [word for word in words if len(word) >= 3]
    if prefixes:
        expressions.append(("prefix", " OR ".join(f"{_quote([word])} *" for word in prefixes)))
    return expressions


def snippet(text: str, query: str, *, width_chars: int = 180) -> str:
    """A stretch of the text around the first place where a term of the query stands, on one line."""
    folded = text.casefold()
    place = -1
    if len(folded) == len(text):  # else offsets would not fit; rare letters such as ß change the length
        for word in dict.fromkeys(piece.casefold() for _, piece in _pieces(query[:2_000])):
            place = folded.find(word)
            if place < 0 and len(word) > 4:
                place = folded.find(word[: len(word) - 2])
            if place >= 0:
                break
    start = max(0, place - width_chars // 3)
    cut = " ".join(text[start : start + width_chars].split())
    return f"{'…' if start else ''}{cut}{'…' if start + width_chars < len(text) else ''}"

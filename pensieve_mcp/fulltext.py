"""What is written and asked when notes and history are searched inside `pensieve.db` with FTS5.

FTS5's own tokenizer finds whole words between spaces, so almost nothing in Chinese, Japanese or Thai. Here
the text is segmented before it is stored (runs of such scripts as pairs of neighbours, their single
characters and the parts of camelCase beside them), and a query is segmented the same way. A query is text,
not syntax: any string gives an expression that FTS5 accepts, or none. The document index has its own, richer
analysis; this one serves what must be findable in the transaction that writes it.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

SHADOW_VERSION = 1
"""Part of what a contentless table was filled with: another rule means filling it anew."""

TOKENIZER = "porter unicode61 categories 'L* N* Co Mn Mc'"
MAX_WORD_CHARS = 64  # longer runs are keys and encoded data, found by their beginning
MAX_TERMS = 48  # a query of 100,000 characters is answered by its first terms

Found = Literal["all", "any", "prefix"]
"""How a hit matched: all terms, any of them, or their beginnings."""

# Words that ask rather than tell; a question of several words is ranked by the others.
_STOP_WORDS = (
    "a an and are as at be been being but by can could did do does for from had has have he her him his how i if in "
    "into is it its may me might my no not of on or our she should such than that the their them then there these "
    "they this those to us was we were what when where which who whom whose why will with would you your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Scripts written without spaces between words, and Korean, whose words carry endings.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    r"\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
_INDIC = r"\u0900-\u0963\u0966-\u0dff"  # vowel signs are no letters to `\w`
_PIECE = re.compile(rf"[{_UNSPACED}]++|(?:[0-9A-Za-z_]++|[^\W{_UNSPACED}]|[{_INDIC}])++")
_SEPARATED = bytes(byte if byte > 127 or chr(byte).isalnum() or byte == 95 else 32 for byte in range(256))
_UNSPACED_FIRST = re.compile(rf"[{_UNSPACED}]")
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
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _MARKS.sub("", decomposed))


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """(written without spaces?, piece) in reading order."""
    for piece in _PIECE.findall(_plain(text)):
        if not piece.isascii() and _UNSPACED_FIRST.match(piece):
            yield True, piece
        elif piece.strip("_"):
            yield False, piece


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)] or [run]


def shadow(text: str) -> Shadow:
    """The text as FTS5 is to see it. Pure; any string, lone surrogates included.

    Nothing reaches across ASCII white space and punctuation, and what stands between repeats itself: each of these
    stretches is looked at once.
    """
    stretches = text.encode("utf-8", "surrogatepass").translate(_SEPARATED).split()
    seen: dict[bytes, str] = {}
    parts: dict[str, None] = {}
    for stretch in dict.fromkeys(stretches):
        body: list[str] = []
        for unspaced, piece in _pieces(stretch.decode("utf-8", "surrogatepass")):
            if unspaced:
                body += _pairs(piece)
                parts.update(dict.fromkeys(piece))
            else:
                body.append(piece[:MAX_WORD_CHARS].casefold())
                halves = _CAMEL.findall(piece[:MAX_WORD_CHARS]) if len(piece) > 3 else ()
                if len(halves) > 1:
                    parts.update(dict.fromkeys(half.casefold() for half in halves if len(half) > 1))
        seen[stretch] = " ".join(body)
    return Shadow(" ".join(filter(None, map(seen.__getitem__, stretches))), " ".join(parts))


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
    words = [word for word in words if word not in STOP_WORDS] or words
    expressions: list[tuple[Found, str]] = [("all", " AND ".join(_quote(list(phrase)) for phrase in phrases))]
    if len(words) > 1 or len(phrases) > 1:
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


# --- ranking ------------------------------------------------------------------------------------------------

BM25_CEILING = 2.2  # k1 + 1 with FTS5's k1 = 1.2: the most one word can give, times its idf
# Weights of BM25 over its bound beside a cosine, chosen on half of the questions of benchmarks/recollection.py, which
# share few words with what they ask for; where one row holds all words of a question, words are trusted more.
WORDS_WEIGHT, TRUE_WORDS_WEIGHT, ALL_WORDS_WEIGHT = 0.35, 0.3, 0.5
TRUE_COSINE = 0.2  # of the second look: 93 % of the right answers lie above, 8 % of the others
NEAR_COSINE = 0.1  # what means less alike is found by words only; right answers begin there
LOOKED_TWICE = 20  # best rows that are compared once more, as far as the time goes
COUNTED_WORDS = 12  # whose frequencies are looked up for the bound


class Nearness(Protocol):
    """How near one question is in meaning to what is stored, by row: a port, since vectors lie elsewhere."""

    weight: float
    """0 to 1: how far the encoder knows the script and language of the question."""

    def best(self, count: int) -> Mapping[int, float]:
        """The nearest rows with their cosines."""
        ...

    def of(self, rows: Sequence[int]) -> Mapping[int, float]:
        """Cosines of these rows, those that are known."""
        ...

    def closer(self, texts: Mapping[int, str]) -> Mapping[int, float]:
        """Truer cosines of these rows' texts, in the order given, as far as the time goes; none without a model."""
        ...


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows with their scores, higher is better; `total` counts all that match."""

    scores: dict[int, float]
    total: int
    found: Found
    words: dict[int, float] = field(
        default_factory=dict
    )  # of each, BM25 over its bound; empty without meaning

    def looked_twice(self, near: Nearness | None, text: Callable[[int], str | None]) -> Ranked:
        """The best rows scored once more by truer vectors of their texts; they stand before the rest."""
        if near is None or near.weight < 1.0:
            return self
        head = sorted(self.scores, key=lambda row: (-self.scores[row], row))[:LOOKED_TWICE]
        truer = near.closer({row: shown for row in head if (shown := text(row))})
        if not truer:
            return self
        weight = 0.0 if not self.words else ALL_WORDS_WEIGHT if self.found == "all" else TRUE_WORDS_WEIGHT
        worded = {row for row, share in self.words.items() if share > 0.0}
        scores = {
            row: weight * self.words.get(row, 0.0) + (1 - weight) * cosine
            for row, cosine in truer.items()
            if row in worded or cosine >= TRUE_COSINE
        }
        least = min(scores.values(), default=0.0)
        rest = {
            row: min(score, least) for row, score in self.scores.items() if row in worded and row not in truer
        }
        scores |= rest
        return replace(self, scores=scores, total=self.total - len(self.scores) + len(scores))


@dataclass(frozen=True, slots=True)
class Searched:
    """The rows of an FTS5 table that a search looks at: `source` and `where` with `values` say which; `bare` is the
    same without the full text, up to the name of the row's id. `weights` are those of the columns."""

    table: str
    weights: tuple[float, ...]
    source: str
    where: str
    values: tuple[Any, ...]
    bare: str

    def count(self, db: Database, expression: str) -> int:
        sql = f"SELECT count(*) {self.source} WHERE {self.where} AND {self.table} MATCH ?"
        return int(db.conn.execute(sql, (*self.values, expression)).fetchone()[0])

    def scores(self, db: Database, expression: str, limit: int) -> dict[int, float]:
        """BM25 of the best rows, higher is better."""
        if not expression:
            return {}
        rows = db.conn.execute(
            f"SELECT {self.table}.rowid, bm25({self.table}, {', '.join(map(str, self.weights))}) {self.source} "
            f"WHERE {self.where} AND {self.table} MATCH ? ORDER BY 2, {self.table}.rowid DESC LIMIT ?",
            (*self.values, expression, limit),
        )
        return {int(row[0]): -float(row[1]) for row in rows}

    def known(self, db: Database, rows: Sequence[int]) -> set[int]:
        """Those of these rows that are looked at."""
        if not rows:
            return set()
        name = self.bare.rsplit(" ", 1)[1]
        sql = f"SELECT {name} {self.bare} IN (SELECT value FROM json_each(?))"
        return {int(row[0]) for row in db.conn.execute(sql, (*self.values, json.dumps(list(rows))))}

    def bound(self, db: Database, query: str) -> float:
        """The most BM25 that a row could reach for this question."""
        size = int(db.conn.execute(f"SELECT count(*) FROM {self.table}_docsize").fetchone()[0])
        terms = dict.fromkeys(word for term in _terms(query) for word in term)
        words = [word for word in terms if word not in STOP_WORDS] or list(terms)
        ideal = 0.0
        for word in words[:COUNTED_WORDS]:
            sql = f"SELECT count(*) FROM {self.table} WHERE {self.table} MATCH ?"
            holding = int(db.conn.execute(sql, (_quote([word]),)).fetchone()[0])
            ideal += max(1e-6, math.log((size - holding + 0.5) / (holding + 0.5)))
        return max(BM25_CEILING * ideal, 1e-6)


def rank(
    db: Database,
    query: str,
    searched: Searched,
    limit: int,
    *,
    near: Nearness | None = None,
    words: bool = True,
    strict: bool = True,
) -> Ranked:
    """Rows for a question: all its words first (unless not `strict`), then any, then beginnings; with `near` by meaning
    too, without `words` by meaning alone.

    BM25 is divided by the most it could be and the cosine added, each with its weight, so a weak keyword match gives
    way by itself. Never raises for what the query says.
    """
    found: Found = "all"
    total, lexical = 0, dict[int, float]()
    for found, expression in match_expressions(query) if words else ():
        if (strict or found != "all") and (total := searched.count(db, expression)):
            lexical = searched.scores(db, expression, limit)
            break
    if near is None:
        return Ranked(lexical, total, found if total else "all")
    close = {row: cosine for row, cosine in near.best(limit).items() if cosine >= NEAR_COSINE}
    known = searched.known(db, [row for row in close if row not in lexical])
    cosines = {row: cosine for row, cosine in close.items() if row in lexical or row in known}
    cosines |= near.of([row for row in lexical if row not in cosines])
    if not words:
        return Ranked(cosines, len(cosines), "any")
    # What means alike is scored by those of its words that are asked for, too.
    partly = searched.scores(db, _any(query), limit) if known else {}
    bound = searched.bound(db, query)
    asked = {
        row: min(1.0, max(lexical.get(row, 0.0), partly.get(row, 0.0)) / bound)
        for row in {*lexical, *cosines}
    }
    share = (1.0 - (ALL_WORDS_WEIGHT if total and found == "all" else WORDS_WEIGHT)) * near.weight
    scores = {row: (1.0 - share) * word + share * cosines.get(row, 0.0) for row, word in asked.items()}
    best = sorted(scores, key=lambda row: (-scores[row], row))[:limit]
    return Ranked(
        {row: scores[row] for row in best},
        total + len(known),
        found if total else "any",
        {row: asked[row] for row in best},
    )


def _any(query: str) -> str:
    return next((expression for found, expression in match_expressions(query) if found != "all"), "")

"""Finding a quote in a text though it was copied by eye, by a model or out of a PDF: evidence rests on this.

A quote is first looked for as it is. Then white space, line-end hyphens, soft hyphens, ligatures, curly quotes,
dashes and composed letters may differ; letter case only if nothing else helps. Pure, but for the search through many
documents, which reads them from the store. Nothing fuzzier than that: a changed word is not the same quote.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from pensieve_mcp.corpus.types import ChunkSet, Span

if TYPE_CHECKING:
    from pensieve_mcp.corpus.store import CorpusStore

How = Literal["exact", "folded", "caseless"]

MAX_MATCHES = 50  # of one quote in one text: "the" is no evidence
PIECE_CHARS = 400  # of a quote per regular expression; compiling longer ones costs more than it finds

_INVISIBLE = "\u00ad\u200b-\u200d\u2060\ufeff"
_SKIP = f"[{_INVISIBLE}]*"
# Between two letters a line may have been broken: with a hyphen or without one that was there.
_BROKEN = rf"{_SKIP}(?:[-\u2010\u2011\u00ad][ \t]*\n\s*)?"
_SPACE = rf"[\s{_INVISIBLE}]+"
_ALIKE = {
    **dict.fromkeys("'’‘‛ʼ′´`", "['’‘‛ʼ′´`]"),
    **dict.fromkeys('"“”„‟«»″', "(?:[\"“”„‟«»″]|'')"),
    **dict.fromkeys("-‐‑‒–—―−", "(?:[-‐‑‒–—―−]|--)"),
    "…": r"(?:…|\.\.\.)",
}
_LIGATURES = {"ff": "ﬀ", "fi": "ﬁ", "fl": "ﬂ", "st": "ﬆ"}
_LONG_LIGATURES = {"ffi": "(?:f{b}f{b}i|ﬃ|ﬀ{b}i|f{b}ﬁ)", "ffl": "(?:f{b}f{b}l|ﬄ|ﬀ{b}l|f{b}ﬂ)"}
_HYPHEN_AT_LINE_END = re.compile(rf"(?<=\w)[-\u2010\u00ad][ \t]*\n\s*(?=\w)|[{_INVISIBLE}]")


@dataclass(frozen=True, slots=True)
class Match:
    """A place of a quote in a text, and how alike it is."""

    span: Span
    how: How


@dataclass(frozen=True, slots=True)
class QuotePlace:
    """A place of a quote in the corpus."""

    document_id: int
    path: str
    span: Span
    how: How
    locator: str
    chunk_id: int | None  # of the set asked for


def find_quote(text: str, quote: str) -> list[Match]:
    """All places of a quote in a text, at most 50, all found in the same way, the strictest that finds any."""
    wanted = quote.strip()
    if not wanted:
        return []
    exact: list[Match] = []
    at = text.find(wanted)
    while at >= 0 and len(exact) < MAX_MATCHES:
        exact.append(Match(Span(at, at + len(wanted)), "exact"))
        at = text.find(wanted, at + len(wanted))
    if exact:
        return exact
    pieces = _pieces(wanted)
    if not pieces:
        return []
    for how, flags in (("folded", 0), ("caseless", re.IGNORECASE)):
        found: list[Match] = []
        patterns = [_compiled(piece, flags) for piece in pieces]
        for first in patterns[0].finditer(text):
            end = first.end()
            for pattern in patterns[1:]:
                more = pattern.match(text, end)
                if more is None:
                    break
                end = more.end()
            else:
                found.append(Match(Span(first.start(), end), how))  # type: ignore[arg-type]  # of the two literals
                if len(found) >= MAX_MATCHES:
                    break
        if found:
            return found
    return []


def choose(
    text: str,
    matches: Sequence[Match],
    *,
    near: int | None = None,
    prefix: str = "",
    suffix: str = "",
) -> Match | None:
    """Of several places of a quote the one that is meant: the words around it decide, then nearness to an offset."""

    def likeness(match: Match) -> tuple[int, int]:
        before = text[max(0, match.span.start - 2 * len(prefix)) : match.span.start]
        after = text[match.span.end : match.span.end + 2 * len(suffix)]
        around = _common(before[::-1], prefix[::-1]) + _common(after, suffix)
        return around, -abs(match.span.start - near) if near is not None else 0

    return max(matches, key=likeness, default=None)


def _common(one: str, other: str) -> int:
    """Characters that two texts begin with alike; white space does not count."""
    alike = 0
    for a, b in zip(
        (sign for sign in one if not sign.isspace()),
        (sign for sign in other if not sign.isspace()),
        strict=False,
    ):
        if a != b:
            break
        alike += 1
    return alike


ANCHOR_CHARS = 8  # of what stood before or after a quote: fewer are found anywhere
SHOWN_CHARS = 300  # of what stands in a quote's place now
WINDOW_CHARS = 20_000  # around the old place, looked through for the likest sentence
LIKE = 0.5  # share of words that a sentence has in common with the quote whose place it took

_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+|\n|\Z)")


def stands_now(text: str, quote: str, *, near: int, prefix: str = "", suffix: str = "") -> str:
    """What stands in the place of a quote that is not there any more; empty when nothing can be told.

    Between the words that stood around it, else the sentence nearby that has most words in common.
    """
    start = _end_of(text, prefix, near)
    end = _start_of(text, suffix, start if start is not None else near)
    room = 3 * len(quote) + SHOWN_CHARS
    if start is not None and end is not None and start < end <= start + room:
        return _shown(text[start:end])
    low = max(0, near - WINDOW_CHARS)
    words = set(re.findall(r"\w+", quote.casefold()))
    best, share = "", LIKE
    for match in _SENTENCE.finditer(text, low, min(len(text), near + len(quote) + WINDOW_CHARS)):
        other = set(re.findall(r"\w+", match[0].casefold()))
        if other and words and (alike := len(words & other) / len(words | other)) > share:
            best, share = match[0], alike
    if best:
        return _shown(best)
    if start is not None:
        return _shown(text[start : start + len(quote)])
    if end is not None:
        return _shown(text[max(0, end - len(quote)) : end])
    return ""


def _end_of(text: str, prefix: str, near: int) -> int | None:
    if len(prefix.strip()) < ANCHOR_CHARS:
        return None
    found = choose(text, find_quote(text, prefix), near=near - len(prefix))
    return found.span.end if found is not None else None


def _start_of(text: str, suffix: str, near: int) -> int | None:
    if len(suffix.strip()) < ANCHOR_CHARS:
        return None
    found = choose(text, [m for m in find_quote(text, suffix) if m.span.start >= near], near=near)
    return found.span.start if found is not None else None


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1].rstrip() + "…"


def find_in_chunk(store: CorpusStore, chunk_id: int, quote: str) -> list[QuotePlace]:
    """Places of a quote in one chunk, else in the rest of its document. Raises NoSuchChunk."""
    chunk = store.chunk(chunk_id)
    inside = find_quote(store.chunk_text(chunk), quote)
    if inside:
        start = chunk.span.start
        return [
            _place(
                store,
                chunk.document_id,
                Match(Span(m.span.start + start, m.span.end + start), m.how),
                chunk_id,
            )
            for m in inside
        ]
    return []


def find_in_document(
    store: CorpusStore, document_id: int, quote: str, *, chunk_set: ChunkSet | None = None
) -> list[QuotePlace]:
    """Places of a quote in one document. Raises NoSuchDocument."""
    document = store.document_by_id(document_id)
    text = store.text(document_id, Span(0, document.chars))
    places = []
    for match in find_quote(text, quote):
        chunk = (
            store.chunk_containing(chunk_set, document_id, match.span.start, match.span.end)
            if chunk_set
            else None
        )
        places.append(_place(store, document_id, match, chunk.chunk_id if chunk else None))
    return places


def find_in_corpus(
    store: CorpusStore,
    quote: str,
    *,
    under: Iterable[str] = (),
    chunk_set: ChunkSet | None = None,
    late: Callable[[], bool] = lambda: False,
) -> tuple[list[QuotePlace], bool]:
    """Places of a quote in all documents under these paths, and whether all of them were looked through.

    `late` is asked between documents. Finds where there are several: the caller tells them all.
    """
    places: list[QuotePlace] = []
    cursor: str | None = None
    while True:
        documents, cursor = store.documents(tuple(under), cursor=cursor, limit=500)
        for document in documents:
            if late():
                return places, False
            places += find_in_document(store, document.document_id, quote, chunk_set=chunk_set)
            if len(places) >= MAX_MATCHES:
                return places, False
        if cursor is None:
            return places, True


def _place(store: CorpusStore, document_id: int, match: Match, chunk_id: int | None) -> QuotePlace:
    document = store.document_by_id(document_id)
    return QuotePlace(
        document_id, document.path, match.span, match.how, store.locator(document_id, match.span), chunk_id
    )


def _pieces(quote: str) -> list[str]:
    """The quote as it would stand in plain typing, in pieces."""
    plain = unicodedata.normalize("NFKC", _HYPHEN_AT_LINE_END.sub("", quote)).strip()
    if not any(map(str.isalnum, plain)):
        return []  # only signs: exact or not at all
    return [plain[at : at + PIECE_CHARS] for at in range(0, len(plain), PIECE_CHARS)]


@lru_cache(maxsize=64)
def _compiled(piece: str, flags: int) -> re.Pattern[str]:
    parts: list[str] = []
    at = 0
    before = ""
    while at < len(piece):
        char = piece[at]
        if char.isspace():
            while at < len(piece) and piece[at].isspace():
                at += 1
            parts.append(_SPACE)
            before = " "
            continue
        if char.isalnum() and before.isalnum():
            parts.append(_BROKEN)
        elif before and before != " ":
            parts.append(_SKIP)
        long = _LONG_LIGATURES.get(piece[at : at + 3])
        short = _LIGATURES.get(piece[at : at + 2])
        if long is not None:
            parts.append(long.replace("{b}", _BROKEN))
            at += 3
        elif short is not None:
            parts.append(f"(?:{piece[at]}{_BROKEN}{piece[at + 1]}|{short})")
            at += 2
        elif piece.startswith("...", at):
            parts.append(r"(?:…|\.\.\.)")
            at += 3
        else:
            parts.append(_ALIKE.get(char) or _letter(char))
            at += 1
        before = piece[at - 1]
    return re.compile("".join(parts), flags)


def _letter(char: str) -> str:
    """A character, also as it may stand uncomposed, in full width, or as a compatible form."""
    others = {char}
    decomposed = unicodedata.normalize("NFD", char)
    others.add(decomposed)
    if "!" <= char <= "~":
        others.add(chr(ord(char) + 0xFEE0))
    if len(others) == 1:
        return re.escape(char)
    if all(len(other) == 1 for other in others):
        return f"[{''.join(re.escape(other) for other in sorted(others))}]"
    return f"(?:{'|'.join(re.escape(other) for other in sorted(others, key=len, reverse=True))})"


# -- literals over whole documents ---------------------------------------------------------------------------


def fold(text: str) -> str:
    """NFKC and caseless, as mode exact compares."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def folded_places(pages: Iterable[str], literal: str, late: Callable[[], bool]) -> Iterator[int]:
    """Offsets at which a folded literal begins in a text that comes page by page.

    Pages are joined by a tail long enough for the literal, so that nothing is missed between two. Ends when `late()`.
    """
    wanted = fold(literal)
    if not wanted:
        return
    keep = 4 * len(wanted) + 16  # a folded character may come from up to a few
    tail = ""
    base = 0
    last = -1
    for page in pages:
        if late():
            return
        text = tail + page
        for at in _places(text, wanted):
            if base + at > last:
                last = base + at
                yield last
        tail = text[-keep:]
        base += len(text) - len(tail)


def _places(text: str, wanted: str) -> list[int]:
    folded = fold(text)
    if wanted not in folded:
        return []
    offsets: list[int] | None = None
    if not text.isascii() and (len(folded) != len(text) or folded != "".join(map(fold, text))):
        # Folding changed lengths: fold character by character, with the offset each result came from.
        parts: list[str] = []
        offsets = []
        for at, char in enumerate(text):
            part = fold(char)
            parts.append(part)
            offsets.extend([at] * len(part))
        folded = "".join(parts)
    found = []
    at = folded.find(wanted)
    while at >= 0:
        found.append(at if offsets is None else offsets[at])
        at = folded.find(wanted, at + len(wanted))
    return found

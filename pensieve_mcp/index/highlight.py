"""Where a passage answers: up to three short stretches of it. Pure: text and folded terms in, spans out.

A passage found by its words shows where they stand; one found by meaning shows the stretch that means it, which
is the one whose vector was nearest: `stretches` cuts for the third tier of vectors and for what is shown alike.

Terms are what the index searched by (stems, character pairs, words with signs), so a word is met by its
beginning, and unspaced scripts by substring. Spans are code points of the passage as given.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pensieve_mcp.index import fields

LONGEST = 180  # characters of one highlight
SHORTEST = 60  # shorter sentences take their neighbour along
_ENDING_LETTERS = 5  # a word may go on this far behind its stem: tast|es, comput|ation

_SENTENCE = re.compile(
    r"[^.!?。！？؟।\n]*(?:[.!?。！？؟।]+(?=[\s\"'”’)\]]|$|[^\x00-\x7f])[\"'”’)\]]*|[.!?]+|\n+|$)"
)
_WORD = re.compile(r"[^\W_]+")
_CLUSTER = re.compile("(?s:.)[\u0300-\u036f\u3099\u309a\u1160-\u11ff]*")


@dataclass(frozen=True, slots=True)
class Highlight:
    """[start, end) of the passage, the text there, and the spans of the words met (same offsets)."""

    start: int
    end: int
    text: str
    met: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Met:
    start: int
    end: int
    term: str


def highlights(
    text: str, terms: Sequence[str], *, limit: int = 3, longest: int = LONGEST
) -> tuple[Highlight, ...]:
    """The stretches that hold most of the terms, in reading order; the lead when none is met."""
    met = find(text, terms)
    if not met:
        return lead(text, longest=longest)
    chosen = _chosen(_windows(text, longest, met), met, [], limit)
    return tuple(_made(text, window, met) for window in sorted(chosen))


def _chosen(
    windows: list[tuple[int, int]], met: Sequence[_Met], chosen: list[tuple[int, int]], limit: int
) -> list[tuple[int, int]]:
    """`chosen` and, up to `limit`, those apart from it that hold most terms it does not hold yet."""
    windows = [window for window in windows if any(_inside(window, one) for one in met)]
    windows = [window for window in windows if all(_apart(window, other) for other in chosen)]
    covered = {one.term for one in met if any(_inside(window, one) for window in chosen)}
    while windows and len(chosen) < limit:
        best = max(windows, key=lambda window: (_gain(window, met, covered), -window[0]))
        if chosen and _gain(best, met, covered) <= 0.5:
            break
        chosen = [*chosen, best]
        covered |= {one.term for one in met if _inside(best, one)}
        windows = [window for window in windows if _apart(window, best)]
    return chosen


def _apart(window: tuple[int, int], other: tuple[int, int]) -> bool:
    return window[1] <= other[0] or window[0] >= other[1]


def stretches(text: str) -> tuple[tuple[int, int], ...]:
    """The spans that have a vector of their own in the third tier, in reading order: sentences, short ones joined
    and long ones cut. Stored vectors are told apart by their place in this order, so another cut means other vectors.
    """
    return tuple(_windows(text, LONGEST, ()))


def shown(text: str, terms: Sequence[str], stretch: int = 0, *, limit: int = 3) -> tuple[Highlight, ...]:
    """What a reader sees of a passage, the most telling first: the stretch (counted from 1) that was nearest in
    meaning, then stretches with words of the question that it lacks, unless the passage holds but one such word,
    which is chance. Without a stretch: `highlights`."""
    spans = stretches(text) if stretch else ()
    if not 0 < stretch <= len(spans):
        return highlights(text, terms, limit=limit)
    met = find(text, terms)
    chosen = [spans[stretch - 1]]
    if len({one.term for one in met}) > 1:
        chosen = _chosen(_windows(text, LONGEST, met), met, chosen, limit)
    return tuple(_made(text, window, met) for window in chosen)


def lead(text: str, *, longest: int = LONGEST) -> tuple[Highlight, ...]:
    """The first stretch that reads like a sentence, for passages found by meaning alone."""
    windows = _windows(text, longest, ())
    if not windows:
        return ()
    full = [window for window in windows[:4] if window[1] - window[0] >= SHORTEST]
    return (_made(text, (full or windows)[0], ()),)


def find(text: str, terms: Sequence[str]) -> list[_Met]:
    """Every place a term is met, ascending, each word once."""
    folded, places = _folded(text)
    words: dict[str, list[str]] = {}
    loose: list[str] = []
    for raw in terms:
        term = fields.fold(raw).lower()
        if not term:
            continue
        if _WORD.fullmatch(term) and not fields.runs(term):
            words.setdefault(term[:2], []).append(term)
        else:
            loose.append(term)
    met: dict[tuple[int, int], str] = {}
    for word in _WORD.finditer(folded):
        found = next((term for term in words.get(word.group()[:2], ()) if _same(word.group(), term)), None)
        if found is not None:
            met[word.start(), word.end()] = found
    for term in loose:
        start = folded.find(term)
        while start >= 0:
            met.setdefault((start, start + len(term)), term)
            start = folded.find(term, start + 1)
    return [_Met(places[start], places[end], term) for (start, end), term in sorted(met.items())]


def _same(word: str, term: str) -> bool:
    if word == term:
        return True
    if len(term) < 3 or abs(len(word) - len(term)) > _ENDING_LETTERS:
        return False
    stem = term[:-1] if term[-1] in "iy" and len(term) > 3 else term  # happi, happy, happiness
    return word.startswith(stem)


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """Folded text and, for each of its offsets, the offset in `text`."""
    if text.isascii():
        return text.lower(), range(len(text) + 1)
    letters: list[str] = []
    places: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        piece = cluster.group()
        if not piece.isascii():
            piece = fields.fold(piece)
            if fields.LATIN_BEYOND_ASCII.match(piece):
                piece = "".join(
                    one for one in unicodedata.normalize("NFD", piece) if not unicodedata.combining(one)
                )
        piece = piece.lower()
        letters.append(piece)
        places += [cluster.start()] * len(piece)
    places.append(len(text))
    return "".join(letters), places


def _windows(text: str, longest: int, met: Sequence[_Met]) -> list[tuple[int, int]]:
    """Sentences cut or joined to at most `longest` characters, without blanks at their ends."""
    found: list[tuple[int, int]] = []
    for sentence in _SENTENCE.finditer(text):
        start, end = _trimmed(text, sentence.start(), sentence.end())
        if start == end:
            continue
        if found and found[-1][1] - found[-1][0] < SHORTEST and end - found[-1][0] <= longest:
            found[-1] = (found[-1][0], end)
        elif end - start <= longest:
            found.append((start, end))
        else:
            found += _cut(text, start, end, longest, met)
    return found


def _cut(text: str, start: int, end: int, longest: int, met: Sequence[_Met]) -> list[tuple[int, int]]:
    """A long sentence as windows at word borders; the first begins so that the first met word is inside."""
    found: list[tuple[int, int]] = []
    inside = [one for one in met if start <= one.start < end]
    if inside and inside[0].start - start > longest // 2:
        start = _border(text, max(start, inside[0].start - longest // 3), inside[0].start)
    while start < end:
        stop = min(start + longest, end)
        if stop < end:
            back = text.rfind(" ", start + longest // 2, stop + 1)
            if back > 0:
                stop = back
            split = next((one for one in inside if one.start < stop < one.end), None)
            if split is not None and split.start > start:
                stop = split.start
        first, last = _trimmed(text, start, stop)
        if first < last:
            found.append((first, last))
        start = stop
    return found


def _border(text: str, place: int, before: int) -> int:
    blank = text.find(" ", place, before)
    return blank + 1 if blank >= 0 else place


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _inside(window: tuple[int, int], one: _Met) -> bool:
    return window[0] <= one.start and one.end <= window[1]


def _gain(window: tuple[int, int], met: Sequence[_Met], covered: set[str]) -> float:
    terms = [one.term for one in met if _inside(window, one)]
    new = set(terms) - covered
    return sum(1.0 + min(len(term), 10) / 10 for term in new) + 0.05 * (len(terms) - len(new))


def _made(text: str, window: tuple[int, int], met: Sequence[_Met]) -> Highlight:
    inside = tuple((one.start, one.end) for one in met if _inside(window, one))
    return Highlight(window[0], window[1], text[window[0] : window[1]], inside)

"""Where a text may be cut: atoms, passages made of atoms, chunks made of passages.

Pure functions on a document's canonical text. An *atom* is a sentence, a block or a piece of an over-long one;
*passages* (what is searched) are runs of atoms inside one unit; *chunks* (what is read) are runs of whole passages,
or of atoms where a passage is larger than the chunk may be. Among the places where a run may end, the choice
depends on the text around the border and not on what came before, so that an edit changes the chunks near it and
the rest keep their text, and with it their ids. Leaves ids, storage and locators to others.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pensieve_mcp.corpus.types import Block, ChunkSet, Span, Unit
from pensieve_mcp.errors import Miscast
from pensieve_mcp.tokens import UNITS_PER_TOKEN, measure_spans

CHUNKER = "atoms-1"
"""Name of the cutting rule, part of the corpus fingerprint."""

ATOM_CHARS = 500  # cap: half a passage at most, so that passages can be filled evenly
ATOM_MIN_CHARS = 40  # shorter sentences join the next; a border costs time and "No. 5" is no sentence
PASSAGE_CHARS = 800  # a passage is closed between half of this and this: about 600 in the mean
SECTION_CHARS = 200  # a section this long is a passage of its own
PASSAGE_MAX_CHARS = 1_000  # above it a single vector loses single facts
MIN_CHUNK_TOKENS = 16  # below it nearly every sentence would be larger than its chunk
MAX_CHUNK_TOKENS = 1_000_000
CLUSTER_CHARS = 64  # a longer pile of combining marks is noise, and is cut

UNIT, HEADING, PARAGRAPH, SENTENCE = 3, 2, 1, 0  # strength of a border

# A border stands after the match. Latin full stops need white space behind them and no small letter after it
# ("e.g. this", "etc. and"); CJK, Indic and Arabic ones stand alone.
# One class in front lets the engine skip to the next candidate.
_ENDS = re.compile(
    r"[\n.!?…。！？｡।॥؟۔።](?:"
    r"(?<=\n)[ \t]*\n\s*"
    r"|(?<=[.!?…])[\"'”’»)\]]*\s+(?![a-zà-öø-ÿ])"
    r"|(?<=[。！？｡])[」』”’）〉》】\"']*\s*"
    r"|(?<=[।॥؟۔።])[।॥؟۔።]*\s*"
    r")"
)
_WORD_GAPS = re.compile(r"\s+|(?<=[,;:、，；：])")


@dataclass(frozen=True, slots=True)
class Cut:
    """A document's atoms. `borders` has one entry more than there are atoms, from 0 to the text's length."""

    borders: array[int]
    strengths: bytes  # strength of the border at the start of each atom; the first is UNIT
    marks: array[int]  # a hash of the text right after each atom's start
    units: list[int]  # thousandths of a token of each atom
    passages: array[int]  # atom number at which each passage starts, then the count of atoms
    torn: Sequence[int] = ()  # atoms that begin inside a run of characters, so that costs do not add up there

    def passage_spans(self) -> list[Span]:
        starts = [self.borders[atom] for atom in self.passages]
        return [Span(start, end) for start, end in pairwise(starts)]


def validated(chunk_set: ChunkSet) -> ChunkSet:
    """The set as asked for, or Miscast when its sizes make no sense."""
    size, overlap = chunk_set.size_tokens, chunk_set.overlap_tokens
    if not MIN_CHUNK_TOKENS <= size <= MAX_CHUNK_TOKENS:
        raise Miscast(
            f"chunk_size {size:,} is out of range.",
            hint=f"Choose {MIN_CHUNK_TOKENS} to {MAX_CHUNK_TOKENS:,} tokens; 1,000 is usual.",
            slug="bad_chunk_size",
        )
    if not 0 <= overlap <= size // 2:
        raise Miscast(
            f"overlap {overlap:,} does not fit chunk_size {size:,}.",
            hint=f"Choose 0 to {size // 2:,} tokens, half of the chunk at most.",
            slug="bad_overlap",
        )
    return chunk_set


def cut(text: str, units: Sequence[Unit] = (), blocks: Sequence[Block] = ()) -> Cut:
    """Find the atoms and passages of a text. Passages tile it, stay inside one unit and under 1,000 characters."""
    length = len(text)
    if not length:
        return Cut(array("q", [0]), b"", array("q"), [], array("q", [0]))
    strong = _structure(length, units, blocks)
    borders = _atom_borders(text, strong)
    strengths = bytearray(len(borders) - 1)
    for number in range(len(strengths)):
        start = borders[number]
        level = strong.get(start)
        if level is None:
            level = PARAGRAPH if text.endswith("\n\n", 0, start) else SENTENCE
        strengths[number] = level
    strengths[0] = UNIT
    crc = zlib.crc32
    marks = array("q", [crc(text[at : at + 48].encode("utf-8", "surrogatepass")) for at in borders[:-1]])
    passages = _pack_passages(borders, strengths, marks)
    costs, torn = measure_spans(text, borders)
    return Cut(borders, bytes(strengths), marks, costs, passages, torn)


def pack(found: Cut, chunk_set: ChunkSet) -> list[Span]:
    """The chunks of one set. A chunk stays within `size_tokens` unless it is a single atom.

    Without overlap the chunks tile the text. With it each chunk but the first begins with the atoms before it that
    fit into `overlap_tokens`. A passage that fits into size minus overlap lies whole in one chunk.
    """
    validated(chunk_set)
    atoms = len(found.units)
    if not atoms:
        return []
    sums = array("q", [0])
    total = 0
    for cost in found.units:
        total += cost
        sums.append(total)
    size = chunk_set.size_tokens * UNITS_PER_TOKEN
    overlap = chunk_set.overlap_tokens * UNITS_PER_TOKEN
    items = _items(found, sums, size - overlap)
    spans: list[Span] = []
    place = 0
    last = len(items) - 1
    begin = 0
    while place < last:
        first = items[place]
        # Never as far back as the last chunk began, or that one would be contained in this one.
        # Without overlap not even an atom that costs nothing, such as a blank, is taken twice.
        begin = (
            min(first, max(begin + 1, bisect_left(sums, sums[first] - overlap)))
            if spans and overlap
            else first
        )
        room = sums[begin] + size
        # Number of the furthest item border that still fits; at least one item is taken, however large.
        most = max(place + 1, bisect_right(items, bisect_right(sums, room) - 1, place + 1) - 1)
        place = most if most >= last else _choose(found, items, sums, place, most, size, first)
        spans.append(Span(found.borders[begin], found.borders[items[place]]))
    return spans


def _choose(
    found: Cut, items: Sequence[int], sums: Sequence[int], place: int, most: int, size: int, first: int
) -> int:
    half = bisect_left(items, bisect_left(sums, sums[first] + size // 2), place + 1, most)
    # Headings and units count once the chunk is half full; lesser borders only in the last three eighths.
    best, rank = most, (-1, 0)
    late = sums[first] + size * 5 // 8
    for candidate in range(half, most + 1):
        atom = items[candidate]
        strength = found.strengths[atom]
        if strength < HEADING and sums[atom] < late and candidate < most:
            continue
        this = (strength, -found.marks[atom])
        if this >= rank:
            best, rank = candidate, this
    return best


def _items(found: Cut, sums: Sequence[int], room: int) -> list[int]:
    """Atom numbers at which a chunk may end: passage starts, and all atoms of passages that do not fit."""
    items: list[int] = []
    for start, end in pairwise(found.passages):
        if sums[end] - sums[start] <= room:
            items.append(start)
        else:
            items.extend(range(start, end))
    items.append(found.passages[-1])
    return items


def _pack_passages(borders: Sequence[int], strengths: Sequence[int], marks: Sequence[int]) -> array[int]:
    starts = array("q", [0])
    atoms = len(strengths)
    first = 0
    while first < atoms:
        begin = borders[first]
        best, rank = first + 1, (-1, -1, 0)
        atom = first + 1
        while atom < atoms:
            if strengths[atom] == UNIT:
                if borders[atom] - begin <= PASSAGE_MAX_CHARS:
                    best = atom
                break
            size = borders[atom] - begin
            if size > PASSAGE_MAX_CHARS:
                break
            if size > PASSAGE_CHARS and rank[0] >= 0 and strengths[atom] < HEADING:
                atom += 1
                continue
            if size >= PASSAGE_CHARS // 2 or (strengths[atom] == HEADING and size >= SECTION_CHARS):
                this = (1, strengths[atom], -marks[atom])
            else:
                this = (-1, atom, 0)  # too short yet: it counts only when nothing better comes before the cap
            if this >= rank:
                best, rank = atom, this
            atom += 1
        else:
            if borders[atoms] - begin <= PASSAGE_MAX_CHARS:
                best = atoms
        first = best
        starts.append(first)
    return starts


def _structure(length: int, units: Sequence[Unit], blocks: Sequence[Block]) -> dict[int, int]:
    strong: dict[int, int] = {}
    heading: tuple[str, ...] | None = None
    for block in blocks:
        if 0 < block.start < length:
            strong[block.start] = HEADING if block.heading != heading else PARAGRAPH
        heading = block.heading
    for unit in units:
        for at in (unit.start, unit.end):
            if 0 < at < length:
                strong[at] = UNIT
    return strong


def _atom_borders(text: str, strong: dict[int, int]) -> array[int]:
    length = len(text)
    plain = text.isascii()
    forced = sorted(strong)
    forced.append(length)
    borders = array("q", [0])
    ends = [match.end() for match in _ENDS.finditer(text)]
    place = 0
    last = 0
    for stop in forced:
        while place < len(ends) and ends[place] < stop:
            end = ends[place]
            place += 1
            if end - last < ATOM_MIN_CHARS:
                continue
            if not plain and not _may_cut(text, end):
                continue
            if end - last > ATOM_CHARS:
                _split(text, last, end, borders)
            borders.append(end)
            last = end
        if stop == last:
            continue
        if stop - last > ATOM_CHARS:
            _split(text, last, stop, borders)
        borders.append(stop)
        last = stop
    return borders


def _split(text: str, start: int, end: int, borders: array[int]) -> None:
    """Cut an over-long atom at line ends, else at word gaps, else where a character ends."""
    while end - start > ATOM_CHARS:
        limit = start + ATOM_CHARS
        at = text.rfind("\n", start + ATOM_MIN_CHARS, limit) + 1
        if not at:
            at = text.rfind(" ", start + ATOM_CHARS // 4, limit) + 1
        if not at:
            at = max(
                (gap.end() for gap in _WORD_GAPS.finditer(text, start + ATOM_CHARS // 4, limit)),
                default=limit,
            )
        at = _safe(text, at, start)
        borders.append(at)
        start = at


def _may_cut(text: str, at: int) -> bool:
    """Whether a character begins at `at`: no combining mark, joiner, variation selector or pair is torn."""
    after = text[at]
    if after < "\u0300":
        return not (after == "\n" and text[at - 1] == "\r")
    if unicodedata.category(after) in ("Mn", "Me", "Mc", "Sk") or after in "\u200c\u200d\u2060\ufeff":
        return False
    before = text[at - 1]
    if before == "\u200d":
        return False
    if "\U0001f1e6" <= after <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff":
        return False  # a flag is two of them; a row of flags is kept whole up to the cap
    if "\udc00" <= after <= "\udfff" and "\ud800" <= before <= "\udbff":
        return False
    if "\u1160" <= after <= "\u11ff" and "\u1100" <= before <= "\u11ff":
        return False
    return not ("\U000e0020" <= after <= "\U000e007f")


def _safe(text: str, at: int, start: int) -> int:
    if at >= len(text):
        return at
    lowest = max(start + 1, at - CLUSTER_CHARS)
    for candidate in range(at, lowest - 1, -1):
        if _may_cut(text, candidate):
            return candidate
    return at

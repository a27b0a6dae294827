"""How many tokens a text costs: one counter for chunks, budget and schemas.

A server that sits in front of any model cannot carry every tokenizer, so this is an estimate by script: it never
loads a model, knows no vocabulary and treats special-token strings as plain text. The weights are fitted to the
mean of three current vocabularies; how far off it is per language stands in `docs/decisions/0004-token-counter.md`.
Leaves to others: what a budget is, and where chunks end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

COUNTER = "script-2"
"""Name of the counting rule. It is part of the corpus fingerprint: another rule means other chunk borders."""

UNITS_PER_TOKEN = 1_000
"""The rule adds whole thousandths of a token, so that sums over parts do not depend on their order."""

# In UTF-8 the first byte of a character tells its script, and continuation bytes can be dropped in the same C
# pass. So one `bytes.translate` turns a text into one class letter per character, and everything else is `count`.
_CONTINUATION = bytes(range(0x80, 0xC0))


_SCRIPT_LETTERS = "lgcbivskhfe"


def _code(letter: str) -> int:
    """Classes of characters beyond ASCII have the high bit, so that `isascii` tells whether there are any."""
    return ord(letter) | 0x80 if letter in _SCRIPT_LETTERS else ord(letter)


def _classes() -> bytes:
    table = bytearray(b"p" * 256)  # p: punctuation, symbols, controls
    for first, last, letter in (
        (0x30, 0x39, "0"),
        (0x41, 0x5A, "A"),
        (0x61, 0x7A, "a"),
        (0x5F, 0x5F, "_"),
        (0x20, 0x20, " "),
        (0x09, 0x09, "t"),
        (0x0A, 0x0A, "n"),
        (0x0D, 0x0D, "n"),
        (0xC3, 0xC9, "l"),  # Latin with marks
        (0xCE, 0xCF, "g"),  # Greek
        (0xD0, 0xD4, "c"),  # Cyrillic
        (0xD5, 0xDF, "b"),  # Armenian, Hebrew, Arabic, Syriac
        (0xE0, 0xE0, "i"),  # Indic, Thai, Lao
        (0xE1, 0xE1, "v"),  # Vietnamese, Georgian, Khmer, old Hangul
        (0xE2, 0xE2, "s"),  # dashes, curly quotes, arrows, boxes
        (0xE3, 0xE3, "k"),  # kana, CJK punctuation
        (0xE4, 0xED, "h"),  # Han, Hangul
        (0xEE, 0xEF, "f"),  # full width, presentation forms
        (0xF0, 0xFF, "e"),  # emoji and other planes
    ):
        for byte in range(first, last + 1):
            table[byte] = _code(letter)
    return bytes(table)


def _only(letters: str) -> bytes:
    """A table that keeps these classes as `w` and blanks the rest: a run then ends where `w ` stands."""
    codes = set(map(_code, letters))
    return bytes(ord("w") if byte in codes else ord(" ") for byte in range(256))


_CLASS = _classes()
_WORD, _DIGIT, _LINE, _MARK = _only("aAlv"), _only("0"), _only("n"), _only("p")
_BLANK, _TAB = _only(" "), _only("t")

# Thousandths of a token, fitted by non-negative least squares on the relative error over samples of 3,000
# characters of 27 kinds of text. Bounds were set where the samples do not speak (a run of 1,000 digits or `=`).
_PER_WORD, _PER_FOUR_LETTERS, _PER_SEVEN_LETTERS = 615, 587, 115
_PER_CAPITAL, _PER_CAMEL_HUMP, _PER_LETTER_DIGIT = 198, 575, 126
_PER_DIGIT, _PER_DIGIT_RUN = 300, 1_331
_PER_MARK, _PER_MARK_RUN = 30, 749
_PER_LINE_END_RUN, _PER_BLANK_RUN = 217, 1_177
_SCRIPTS = tuple(  # (class, its runs or None, per character, per run)
    (bytes([_code(letter)]), _only(letter) if per_run else None, per_character, per_run)
    for letter, per_character, per_run in (
        ("l", 1_000, 0),
        ("v", 50, 0),
        ("c", 200, 688),
        ("g", 345, 620),
        ("b", 237, 707),
        ("i", 453, 249),
        ("s", 1_300, 0),
        ("k", 649, 0),
        ("h", 791, 0),
        ("f", 1_200, 0),
        ("e", 2_000, 0),
    )
)


def _bound() -> frozenset[bytes]:
    """Neighbours that cost another sum apart than side by side: of one run, or a pair that is counted."""
    runs = ["aAlv", "0", "n", "p", " ", "t"]
    runs += [chr(kind[0] & 0x7F) for kind, table, _, _ in _SCRIPTS if table is not None]
    pairs = [one + other for run in runs for one in run for other in run]
    pairs += ["a0", "0a", "A0", "0A"]
    return frozenset(bytes(map(_code, pair)) for pair in pairs)


_BOUND = _bound()


def _runs(kinds: bytes, table: bytes) -> int:
    kept = kinds.translate(table)
    return kept.count(b"w ") + kept.endswith(b"w")


def _units_of_blanks(kinds: bytes) -> int:
    rows = kinds.translate(_BLANK)  # blank is `w` here: a run of two or more ends in `ww `
    return _PER_BLANK_RUN * (rows.count(b"ww ") + rows.endswith(b"ww"))


def _units_of_kinds(kinds: bytes) -> int:
    count = kinds.count
    words = kinds.translate(_WORD)
    units = (
        _PER_WORD * (words.count(b"w ") + words.endswith(b"w"))
        + _PER_FOUR_LETTERS * words.count(b"wwww")
        + _PER_SEVEN_LETTERS * words.count(b"wwwwwww")
        + _PER_CAPITAL * count(b"A")
        + _PER_CAMEL_HUMP * count(b"aA")
    )
    if marks := count(b"p"):
        units += _PER_MARK * marks + _PER_MARK_RUN * _runs(kinds, _MARK)
    if digits := count(b"0"):
        units += _PER_DIGIT * digits + _PER_DIGIT_RUN * _runs(kinds, _DIGIT)
        units += _PER_LETTER_DIGIT * (count(b"a0") + count(b"0a") + count(b"A0") + count(b"0A"))
    if count(b"n"):
        units += _PER_LINE_END_RUN * _runs(kinds, _LINE)
    if b"  " in kinds:
        units += _units_of_blanks(kinds)
    if b"t" in kinds:
        units += _PER_BLANK_RUN * _runs(kinds, _TAB)
    return units


def _units_of_scripts(kinds: bytes) -> int:
    units = 0
    for kind, table, per_character, per_run in _SCRIPTS:
        if found := kinds.count(kind):
            units += per_character * found
            if table is not None:
                units += per_run * _runs(kinds, table)
    return units


def count_units(text: str) -> int:
    """Estimated cost in thousandths of a token. Parts that end in white space add up to the whole, but for runs
    of blanks or line ends that a border cuts."""
    kinds = text.encode("utf-8", "surrogatepass").translate(_CLASS, _CONTINUATION)
    units = _units_of_kinds(kinds)
    return units if kinds.isascii() else units + _units_of_scripts(kinds)


def count_tokens(text: str) -> int:
    """Estimated tokens of a text; zero only for the empty text.

    An estimate: on English, code, JSON and the larger languages it lies within about 15 % of what current models
    count, on a single sentence it may be further off.
    """
    return tokens_of_units(count_units(text)) if text else 0


def tokens_of_units(units: int) -> int:
    """Whole tokens of a text that is not empty."""
    return max(1, round(units / UNITS_PER_TOKEN))


class _Shapes(dict[bytes, int]):
    """Costs of stretches without a blank, remembered by their classes: `aaap` stands for `the,` and `and.` alike."""

    def __missing__(self, kinds: bytes) -> int:
        units = _units_of_kinds(kinds)
        if not kinds.isascii():
            units += _units_of_scripts(kinds)
        if len(kinds) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED_SHAPES:
                self.clear()
            self[kinds] = units
        return units


_REMEMBERED_SHAPES = 50_000  # some 6 MB; prose has a few thousand
_REMEMBERED_LENGTH = 32  # longer ones hardly come twice
_shapes = _Shapes()


def count_spans(text: str, borders: Sequence[int]) -> list[int]:
    """Thousandths of a token of each stretch between neighbouring borders (ascending code point offsets in `text`).

    For packing: n + 1 borders give n numbers that may be added in any grouping.
    """
    return measure_spans(text, borders)[0]


def measure_spans(text: str, borders: Sequence[int]) -> tuple[list[int], list[int]]:
    """`count_spans`, and the places in `borders` where a run is cut, such as a word or a row of blanks.

    A stretch without such a border inside costs exactly what its parts cost together.
    """
    # One class byte per character, so character offsets are byte offsets here.
    kinds = text.encode("utf-8", "surrogatepass").translate(_CLASS, _CONTINUATION)
    units = []
    torn = []
    cost = _shapes.__getitem__
    blank = b"  " in kinds
    for place, (start, end) in enumerate(pairwise(borders)):
        part = kinds[start:end]
        # No run but that of blanks crosses a blank, and no pair does.
        spent = sum(map(cost, part.split(b" ")))
        if blank and b"  " in part:
            spent += _units_of_blanks(part)
        units.append(spent)
        if kinds[start - 1 : start + 1] in _BOUND:
            torn.append(place)
    return units, torn

"""Notes under different keys that seem to say opposite things of the same: found by rule, for a reader to look at.

Two sentences are about the same when nearly all their words are; they disagree when exactly one number, date, time or
weekday differs, or when one denies what the other says. What differs in its words on both sides speaks of two things,
and a number that names one (`room 3`, `version 2`) belongs to the subject. So much is left unseen, on purpose: a false
alarm costs a reader more than a conflict that the next reader finds. Pure; English words, numbers of any language.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pensieve_mcp.notebook.checks import folded
from pensieve_mcp.notebook.types import Note

LEAST_WORDS = 3  # shared: of fewer words too many things can be said
FEW_WORDS = 2  # enough where the notes are tied otherwise, and all words are the same
ALIKE, ALIKE_UNRELATED = (
    0.6,
    0.75,
)  # of all words of both sentences; the second where nothing else ties the notes
SENTENCES = 40  # of one note that are compared
SERIES = 3  # sentences that differ in their numbers alone: from so many on they count something
BUCKET = 60  # sentences that share a word and are compared: a word in more of them tells nothing


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SENTENCE = re.compile(r"[^.!?;\n]+(?:[.](?=\d)[^.!?;\n]+)*")
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH = {name[:3]: place for place, name in enumerate(_MONTHS, 1)}
_MONTH_NAME = "|".join([*_MONTHS, *(name[:3] for name in _MONTHS), "sept"])
_DATE = re.compile(
    rf"\b(?:(?P<iso>\d{{4}}-\d\d-\d\d)|(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? "
    rf"(?P<m1>{_MONTH_NAME})\b\.?,?(?: (?P<y1>\d{{4}}))?"
    rf"|(?P<m2>{_MONTH_NAME})\b\.? (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b,?(?: (?P<y2>\d{{4}}))?)"
)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_TOKEN = re.compile(rf"@date(?P<date>\d+)@|(?P<number>{_NUMBER.pattern})|(?P<word>{_WORD.pattern})")
_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_UNITS = {word: number for number, word in enumerate(_SMALL_NUMBERS.split())}
_TENS_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = {word: 10 * number for number, word in enumerate(_TENS_WORDS.split(), 2)}
_WEEKDAYS = _set("monday tuesday wednesday thursday friday saturday sunday")
_LABELS = _set(
    "entry test task case run file question episode example fact note message room chapter page section figure table "
    "version phase step day week item line level floor part unit ticket issue volume article paragraph appendix type "
    "class grade model number no nr quarter sprint round v q"
)
_DENIALS = _set("not no never without cannot nor neither none")
_OPPOSITES = {
    other: word
    for word, others in {
        "open": "closed shut",
        "enabled": "disabled",
        "allowed": "forbidden prohibited banned disallowed",
        "on": "off",
        "required": "optional",
        "true": "false",
        "valid": "invalid",
        "safe": "unsafe dangerous",
        "public": "private",
        "succeeded": "failed",
        "before": "after",
        "above": "below",
        "increased": "decreased fell dropped",
        "supported": "unsupported",
        "available": "unavailable",
        "present": "absent",
        "alive": "dead",
        "possible": "impossible",
        "legal": "illegal",
    }.items()
    for other in others.split()
}
_SMALL = _set(
    "a an and are as at be been being but by can could did do does for from had has have he her him his i if in into "
    "is it its may might must of or our shall she should so such than that the their them then there these they this "
    "those to up us was we were which who will with would you your about also just only still now currently today"
)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two notes and the sentences that disagree. `pair` names both as they are now: it is told once."""

    one: Note
    other: Note
    said: str
    otherwise: str

    @property
    def pair(self) -> str:
        both = sorted(f"{note.key}\0{note.summary}\0{note.content}" for note in (self.one, self.other))
        return hashlib.sha256("\0\0".join(both).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Sentence:
    """What a sentence speaks of, its numbers and dates in their order, and how often it denies."""

    text: str
    words: frozenset[str]
    values: tuple[tuple[str, str], ...]  # (class, value), in their order
    denials: int


def conflicts(notes: Iterable[Note]) -> Iterator[Conflict]:
    """Each pair of notes once, in the order of their first. Linear in the notes but for sentences that share words."""
    sentences: list[tuple[Note, Sentence]] = []
    holding: dict[str, list[int]] = defaultdict(list)
    every = [(note, said) for note in notes for said in _sentences(note)]
    counted: dict[frozenset[str], set[tuple[tuple[str, str], ...]]] = defaultdict(set)
    for _, said in every:
        counted[said.words].add(said.values)
    for note, said in every:
        if len(counted[said.words]) < SERIES:
            for word in said.words:
                holding[word].append(len(sentences))
            sentences.append((note, said))
    told: set[tuple[str, str]] = set()
    for place, (note, said) in enumerate(sentences):
        seen: Counter[int] = Counter()
        for word in said.words:
            if len(holding[word]) <= BUCKET:
                seen.update(other for other in holding[word] if other > place)
        for other_place in sorted(seen):
            other, otherwise = sentences[other_place]
            if other.key == note.key or (note.key, other.key) in told:
                continue
            if _disagree(note, said, other, otherwise):
                told.add((note.key, other.key))
                yield Conflict(note, other, said.text, otherwise.text)


def against(note: Note, others: Iterable[Note]) -> list[Conflict]:
    """What of these others disagrees with one note."""
    ours = list(_sentences(note))
    found = []
    for other in others:
        if other.key == note.key:
            continue
        theirs = list(_sentences(other))
        for said in ours:
            wrong = next((one for one in theirs if _disagree(note, said, other, one)), None)
            if wrong is not None:
                found.append(Conflict(note, other, said.text, wrong.text))
                break
    return found


def subjects(note: Note, most: int = 3) -> list[str]:
    """What a note's first sentences are about, as words to look for others by: its numbers are left out."""
    said = (one for one, _ in zip(_sentences(note), range(most), strict=False))
    return [" ".join(_WORD.findall(" ".join(_NUMBER.sub(" ", one.text).split()))) for one in said]


def _disagree(note: Note, said: Sentence, other: Note, otherwise: Sentence) -> bool:
    shared = said.words & otherwise.words
    if len(shared) < FEW_WORDS or (said.words - shared and otherwise.words - shared):
        return False
    alike = len(shared) / len(said.words | otherwise.words)
    if len(shared) < LEAST_WORDS or alike < ALIKE_UNRELATED:
        enough = alike >= (ALIKE if len(shared) >= LEAST_WORDS else 1.0)
        if not enough or not _related(note, other):
            return False
    if _elsewhere(note, other):
        return False
    if [kind for kind, _ in said.values] != [kind for kind, _ in otherwise.values]:
        return False
    differing = [
        kind for (kind, one), (_, two) in zip(said.values, otherwise.values, strict=True) if one != two
    ]
    if said.denials % 2 != otherwise.denials % 2:
        return not differing
    if len(differing) != 1:
        return False
    return differing[0] != "year" or len(said.values) == 1  # beside another number a year says which


def _related(one: Note, other: Note) -> bool:
    """Whether anything besides their words ties two notes together: a link, a document, a part of their keys."""
    if one.key in other.links or other.key in one.links or set(one.links) & set(other.links):
        return True
    if {piece.path for piece in one.evidence if piece.path} & {piece.path for piece in other.evidence}:
        return True
    return bool(_parts(one.key) & _parts(other.key))


def _parts(key: str) -> set[str]:
    return {folded(part) for part in re.split(r"[/\s_\-.]+", key) if len(part) > 2}


def _elsewhere(one: Note, other: Note) -> bool:
    """Whether they speak of different places: paths or projects of their own."""
    general = ("", "workspace")
    return (
        one.applies_to != other.applies_to
        and one.applies_to not in general
        and other.applies_to not in general
    )


def _sentences(note: Note) -> Iterator[Sentence]:
    seen: dict[str, None] = {}
    for text in (note.summary, note.content):
        for match in _SENTENCE.finditer(unicodedata.normalize("NFKC", text)):
            if sentence := " ".join(match[0].split()):
                seen[sentence] = None
            if len(seen) >= SENTENCES:
                break
    for sentence in seen:
        said = read(sentence)
        if len(said.words) >= FEW_WORDS:
            yield said


def read(sentence: str) -> Sentence:
    """Any text is taken for one sentence."""
    dates: list[str] = []

    def date(match: re.Match[str]) -> str:
        day, month = match["d1"] or match["d2"], match["m1"] or match["m2"]
        year = match["y1"] or match["y2"] or ""
        dates.append(match["iso"] or f"{year}-{_MONTH[month[:3]]:02}-{int(day):02}")
        return f" @date{len(dates) - 1}@ "

    words: dict[str, None] = {}
    values: list[tuple[str, str]] = []
    denials = 0
    before = ""
    tens = 0
    for match in _TOKEN.finditer(_DATE.sub(date, sentence.casefold())):
        if match["date"]:
            values.append(("date", dates[int(match["date"])]))
        elif match["number"]:
            value = match["number"]
            if before in _LABELS:
                words[f"{before} {value}"] = None
            elif re.fullmatch(r"(?:1[5-9]|20)\d\d", value):
                values.append(("year", value))
            else:
                values.append(("number", _plain_number(value)))
        else:
            word = match["word"].replace("’", "'")
            if word in _UNITS and (tens or word != "one" or before not in _SMALL):
                if tens and values:
                    values[-1] = ("number", str(tens + _UNITS[word]))
                elif before in _LABELS:
                    words[f"{before} {_UNITS[word]}"] = None
                else:
                    values.append(("number", str(_UNITS[word])))
                tens, before = 0, word
                continue
            if word in _TENS:
                values.append(("number", str(_TENS[word])))
                tens, before = _TENS[word], word
                continue
            if word in _WEEKDAYS or word.removesuffix("s") in _WEEKDAYS:
                values.append(("weekday", word.removesuffix("s")))
            elif word in _DENIALS or word.endswith("n't"):
                denials += 1
            elif word in _MONTHS and (
                word != "may" or before in ("in", "since", "until", "of", "by", "from")
            ):
                words[word] = None
            elif word not in _SMALL:
                if word in _OPPOSITES:
                    denials += 1
                    word = _OPPOSITES[word]
                words[_stem(word)] = None
            before, tens = word, 0
            continue
        before, tens = "", 0
    return Sentence(sentence, frozenset(words), tuple(values), denials)


def _plain_number(text: str) -> str:
    """`1,204` and `1204`, `8.0` and `8` are one number; `10:30` stays a time."""
    if ":" in text:
        return text
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    return text.rstrip("0").rstrip(".") if "." in text else text.lstrip("0") or "0"


def _stem(word: str) -> str:
    """Enough to see that `pays` and `paid rents` are about `pay` and `rent`."""
    for end in ("ing", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word[: -len(end)]
    return word[:-1] if word.endswith("e") and len(word) > 4 else word

"""Words of results: short, facts first, no banners. What we print is paid for in someone's context window."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

# How the state of a hit's file is said, where there is something to say.
STALE = {"changed": "file changed since", "gone": "file is gone", "unreadable": "file cannot be read now"}


def count(number: int, one: str, many: str = "") -> str:
    """`1 document`, `1,204 documents`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def is_first(note: str) -> bool:
    """Whether a search's note changes what its hits mean, so that it stands before them: none holds a word."""
    return "No passage holds any of the words" in note


def bytes_of(text: str) -> int:
    """Size as a host counts it: UTF-8 bytes."""
    return len(text.encode("utf-8", "surrogatepass"))


def cut_to_bytes(text: str, limit: int) -> int:
    """Characters of `text` that fit in `limit` bytes, ending at a line or word border where one is near."""
    if limit <= 0:
        return 0
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= limit:
        return len(text)
    end = len(encoded[:limit].decode("utf-8", "ignore"))
    for border in ("\n", " "):
        at = text.rfind(border, max(0, end - 400), end)
        if at > 0:
            return at + 1
    return end


def one_line(text: str, limit: int = 200) -> str:
    """A text on one line, shortened with an ellipsis."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1].rstrip() + "…"


def listing(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def read_in_part(documents: int) -> str:
    """How many documents miss something of their file, as a clause."""
    return f"{count(documents, 'document')} {'was' if documents == 1 else 'were'} read in part"


def shares(counts: Mapping[str, int], limit: int = 6) -> str:
    """`pdf 12, md 9, … 3 more`: the largest first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} {number:,}" for name, number in ranked[:limit]]
    if len(ranked) > limit:
        shown.append(f"… {len(ranked) - limit} more")
    return ", ".join(shown)


def short_type(media_type: str) -> str:
    """`docx` for the long name of a Word file."""
    import mimetypes

    if media_type in ("application/xml", "text/xml"):
        return "xml"  # the table's first ending for it is that of style sheets
    known = mimetypes.guess_extension(media_type)
    return known.lstrip(".") if known else media_type.rsplit("/", 1)[-1].removeprefix("x-")


def formats_line(formats: Mapping[str, int]) -> str:
    """`shares` of media types, by their short names."""
    named: dict[str, int] = {}
    for media_type, number in formats.items():
        name = short_type(media_type)
        named[name] = named.get(name, 0) + number
    return shares(named)


def as_text(value: object) -> str:
    """Note content as published may be any object; we keep text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def handles(numbers: Sequence[int], limit: int = 8) -> str:
    """`m3, m4, m7`, runs as `m3–m9`."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    words = [f"m{a}" if a == b else f"m{a}, m{b}" if b == a + 1 else f"m{a}–m{b}" for a, b in runs]
    return ", ".join(words[:limit]) + (f" and {len(words) - limit} more" if len(words) > limit else "")


def chunk_ids(numbers: Iterable[int]) -> str:
    """`c7`, `c7–c9`; ids that do not follow one another are parted: `c7–c9, c40`. In the order given."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"c{run[0]}" if len(run) == 1 else f"c{run[0]}–c{run[-1]}" for run in runs)

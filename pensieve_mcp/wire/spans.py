"""Where the values of a JSON text lie, to the byte, without decoding and encoding it anew.

Why own: an edited request must differ from the host's in the named places and nowhere else, and no JSON library
tells both where a value stands and how it was written. Bytes are looked at as Latin-1, one character for each
byte, so that places in the text are places in the body and the standard library's scanner, which is C, can pass
over what nobody asks about. Structure that is skipped is not judged: a body that is wrong somewhere else goes on
to whoever it is for, who says so in its own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pensieve_mcp.errors import PensieveError

Span = tuple[int, int]
"""Start and end of a value in the body, in bytes; `end` is the first one not in it. A string's span has its quotes."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Unreadable(PensieveError):
    """The body is no JSON of a shape we know; it is passed on as it came."""

    slug = "unreadable_request"


_BLANK = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_SCALAR = re.compile(r"[-+.0-9A-Za-z]++")
_KEY = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.S)
_NEXT = re.compile(r"[ \t\n\r]*+([],}])[ \t\n\r]*+")
_SMALL = re.compile(
    r'"([^"\\]*+)"[ \t\n\r]*+:[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.0-9A-Za-z]++)'
    r"[ \t\n\r]*+([,}])[ \t\n\r]*+",
    re.S,
)  # a member whose value is no object or list, up to what follows it: most are, and one look is quicker than four
_MARK = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.S)
_ESCAPE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u....|\\.|[^\\]++", re.S)
# Numbers become floats, since Python refuses integers of more than 4,300 digits; nobody looks at them.
_decoder = json.JSONDecoder(strict=False, parse_int=float)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


def _wrong(place: int, what: str) -> Unreadable:
    return Unreadable(f"At byte {place} {what}.", hint="The body is passed on as it came.")


def blank(text: str, place: int) -> int:
    """The first place that is no white space."""
    found = _BLANK.match(text, place)
    assert found is not None
    return found.end()


def skip(text: str, place: int) -> int:
    """The end of the value that begins here. Raises Unreadable."""
    first = text[place : place + 1]
    if first == '"':
        if (found := _STRING.match(text, place)) is None:
            raise _wrong(place, "a string has no end")
        return found.end()
    if first and first in "{[":
        try:
            return int(_scan(text, place)[1])
        except RecursionError:
            return _skip_deep(text, place)
        except (ValueError, StopIteration) as error:
            raise _wrong(place, f"there is no JSON: {error}") from None
    if (found := _SCALAR.match(text, place)) is None:
        raise _wrong(place, "a value is missing")
    return found.end()


def _skip_deep(text: str, place: int) -> int:
    """As `skip`, for what is nested deeper than the scanner goes."""
    open_marks: list[str] = []
    while (found := _MARK.search(text, place)) is not None:
        place, mark = found.end(), found[0]
        if mark in ("{", "["):
            open_marks.append(mark)
        elif mark in ("}", "]"):
            if not open_marks or open_marks.pop() + mark not in ("{}", "[]"):
                break
            if not open_marks:
                return place
    raise _wrong(place, "brackets do not match")


def walk_members(
    text: str,
    place: int,
    visit: Callable[[str, int], int | None],
    *,
    small: dict[str, Span] | None = None,
) -> int:
    """Go through an object's members in order; answers its end. `visit(key, value_start)` answers the value's
    end, or None to have it passed over. Where `small` is given, values that are no object or list go there, unvisited.
    Raises Unreadable.
    """
    if text[place : place + 1] != "{":
        raise _wrong(place, "there is no object")
    place = blank(text, place + 1)
    if text[place : place + 1] == "}":
        return place + 1
    while True:
        if small is not None and (found := _SMALL.match(text, place)) is not None and found[1].isascii():
            small[found[1]] = found.span(2)
            if found[3] == "}":
                return found.end(3)
            place = found.end()
            continue
        found = _KEY.match(text, place)
        if found is None:
            raise _wrong(place, "a key with its colon is missing")
        key, start = found[1], found.end()
        if "\\" in key or not key.isascii():
            key = str(decoded(f'"{key}"'.encode("latin-1"), place))
        end = visit(key, start)
        place = skip(text, start) if end is None else end
        mark = _NEXT.match(text, place)
        if mark is None or mark[1] == "]":
            raise _wrong(place, "an object does not go on")
        if mark[1] == "}":
            return mark.end(1)
        place = mark.end()


def walk_elements(
    text: str, place: int, visit: Callable[[int], int | None], *, after: int | None = None
) -> int:
    """As `walk_members`, for an array. `after`: the end of an element up to which the array is known already."""
    if after is None:
        if text[place : place + 1] != "[":
            raise _wrong(place, "there is no array")
        place = blank(text, place + 1)
        if text[place : place + 1] == "]":
            return place + 1
    while True:
        if after is None:
            end = visit(place)
            place = skip(text, place) if end is None else end
        else:
            place, after = after, None
        mark = _NEXT.match(text, place)
        if mark is None or mark[1] == "}":
            raise _wrong(place, "an array does not go on")
        if mark[1] == "]":
            return mark.end(1)
        place = mark.end()


def members(
    text: str, place: int, inside: Mapping[str, Callable[[int], int]] = NOTHING
) -> tuple[dict[str, Span], int]:
    """Where each member's value lies, and the object's end. Of a key that stands twice the last counts, as
    every reader we know has it.

    A list under a key of `inside` is gone through by what stands there, which is given its place and answers its end:
    what is read anyway need not be passed over first.
    """
    found: dict[str, Span] = {}

    def visit(key: str, start: int) -> int:
        reader = inside.get(key) if text.startswith("[", start) else None
        end = skip(text, start) if reader is None else reader(start)
        found[key] = (start, end)
        return end

    return found, walk_members(text, place, visit, small=found)


def elements(text: str, place: int) -> tuple[list[Span], int]:
    """Where each element lies, and the array's end."""
    found: list[Span] = []

    def visit(start: int) -> int:
        end = skip(text, start)
        found.append((start, end))
        return end

    return found, walk_elements(text, place, visit)


def decoded(raw: bytes, place: int = 0) -> Any:
    """The value of a small piece. Raises Unreadable."""
    try:
        return _decoder.decode(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise _wrong(place, f"there is no JSON: {error}") from None


def encoded(text: str) -> bytes:
    """A JSON string, in ASCII: it stands the same in any encoding of the body."""
    return json.dumps(text).encode("ascii")


def places_in_string(raw: bytes, wanted: Iterable[int]) -> list[int]:
    """Byte offsets in `raw`, a JSON string with its quotes, of these ascending character offsets of its value.

    Characters are counted as `decoded` counts them.
    """
    places: list[int] = []
    targets = iter(wanted)
    target = next(targets, None)
    place, count, end = 1, 0, len(raw) - 1
    while target is not None:
        if target == count:
            places.append(place)
            target = next(targets, None)
            continue
        found = _ESCAPE.match(raw, place, end)
        if found is None:
            raise _wrong(place, f"a string ends before its character {target}")
        piece = found[0]
        if piece[:1] == b"\\":
            place, count = found.end(), count + 1
            continue
        characters = piece.decode("utf-8", "surrogateescape")
        if count + len(characters) <= target:
            place, count = found.end(), count + len(characters)
        else:
            place += len(characters[: target - count].encode("utf-8", "surrogateescape"))
            count = target
    return places


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes that stand from `start` to `end` in place of what was there; an insertion has both the same."""

    start: int
    end: int
    new: bytes


def splice(body: bytes, edits: Iterable[Edit]) -> bytes:
    """The body with these places changed and everything else as it was. Raises ValueError for edits that overlap."""
    view, place = memoryview(body), 0  # a large body is copied once
    parts: list[bytes | memoryview] = []
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        if edit.start < place or edit.end < edit.start or edit.end > len(body):
            raise ValueError(f"the edit of {edit.start} to {edit.end} overlaps what ends at {place}")
        parts += (view[place : edit.start], edit.new)
        place = edit.end
    return b"".join((*parts, view[place:])) if parts else body

"""The short names a model points with: `m12` a message, `h7f3a` a host's result, `c48` a chunk.

One grammar for all doors (our decision, design section 6): `m12`, `12`, `h7f3a`, `3-5,12`, `m12.2` is a part
of a long message. Reversed ranges are put in order, since a model that writes `9-7` means 7 to 9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pensieve_mcp.errors import Miscast

MAX_RANGE = 10_000  # a longer range is a slip of the pen, and would only fill memory

_ONE = re.compile(r"(?:m?([0-9]{1,15})(?:\.([0-9]{1,6}))?|(h[0-9a-f]{2,32}))\Z", re.IGNORECASE)
_RANGE = re.compile(r"m?([0-9]{1,15})\s*(?:-|–|\.\.)\s*m?([0-9]{1,15})\Z", re.IGNORECASE)
_CHUNK = re.compile(r"c?([0-9]{1,15})\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One message pointed at: `number` for ours, `host` for a host's own result (`h7f3a`), never both.

    `part` is the one-based part of a long message, or None for the whole. `from_range` marks numbers that a
    range produced: absent ones among them are passed over instead of being an error.
    """

    number: int | None = None
    host: str | None = None
    part: int | None = None
    from_range: bool = False

    def __str__(self) -> str:
        name = self.host if self.host is not None else f"m{self.number}"
        return f"{name}.{self.part}" if self.part is not None else name


def message_handle(number: int) -> str:
    return f"m{number}"


def chunk_handle(chunk_id: int) -> str:
    return f"c{chunk_id}"


def parse_message_ids(text: str | int) -> list[MessageRef]:
    """Read a `msg_id` argument, in the order given, without repeats.

    Raises Miscast with the grammar in its hint.
    """
    hint = "Write a handle as it stands at the head of a result: m12, several as m3,m7 or a range 3-5."
    if isinstance(text, bool):
        raise Miscast(f"msg_id must be a handle, not {text!r}.", hint=hint, slug="bad_handle")
    raw = str(text).strip().strip("[]").replace("'", "").replace('"', "")
    refs: dict[MessageRef, None] = {}
    for piece in re.split(r"[,;\s]+(?![-–])", re.sub(r"\s*(-|–|\.\.)\s*", r"\1", raw)):
        if not piece:
            continue
        if one := _ONE.match(piece):
            number, part, host = one.groups()
            refs[
                MessageRef(
                    number=int(number) if number is not None else None,
                    host=host.lower() if host else None,
                    part=int(part) if part is not None else None,
                )
            ] = None
        elif both := _RANGE.match(piece):
            first, last = sorted((int(both[1]), int(both[2])))
            if last - first >= MAX_RANGE:
                raise Miscast(
                    f"The range {piece} covers {last - first + 1:,} messages; at most {MAX_RANGE:,} go in one call.",
                    hint=hint,
                    slug="bad_handle",
                )
            for number_ in range(first, last + 1):
                refs[MessageRef(number=number_, from_range=True)] = None
        else:
            raise Miscast(f"{piece[:80]!r} is not a message handle.", hint=hint, slug="bad_handle")
    if not refs:
        raise Miscast("msg_id is empty.", hint=hint, slug="bad_handle")
    return list(refs)


def parse_cursor(cursor: str | None) -> int:
    """The position that a `next_cursor` of ours means; 0 for none. Raises Miscast for one that no answer gave."""
    if not cursor:
        return 0
    if not re.fullmatch(r"[0-9]{1,12}", cursor):
        raise Miscast(
            f"cursor is {cursor[:40]!r}, which no answer gave.",
            hint="Pass next_cursor of the last answer, or none.",
            slug="bad_cursor",
        )
    return int(cursor)


def parse_chunk_id(value: str | int) -> int:
    """`48` or `c48` as a number. Raises Miscast."""
    match = None if isinstance(value, bool) else _CHUNK.match(str(value).strip())
    if match is None:
        raise Miscast(
            f"{str(value)[:80]!r} is not a chunk id.",
            hint="Chunk ids are numbers such as 48 or c48; searchEngine lists them.",
            slug="bad_handle",
        )
    return int(match[1])

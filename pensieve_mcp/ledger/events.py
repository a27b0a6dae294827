"""The history of a conversation as values, and what of it a model sees now.

s' = F(s, a, o) of the StateLM paper: F appends, and applies deletions. Here F is `fold(events)`; history is
never edited, a deletion is one more event. The loop, the MCP server and the gateway share it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pensieve_mcp.ledger.entries import Entries

REFUSALS = re.compile(
    r"\bnot\s+(?:found|stated|mentioned|in the documents)\b|\bdo(?:es)?\s+not\s+(?:say|state|mention)\b|\bno\s+answer\b"
    r"|^\s*unknown\W*$",
    re.I,
)

IN_MIND = "in_mind"
"""Entry of an episode's `extra`: tokens of the prompt after each result, by whoever printed it."""

Role = Literal["assistant", "tool", "user", "system"]


@dataclass(frozen=True, slots=True)
class Message:
    """A call (`assistant`) or a result (`tool`) with its handle's number. Content lies in blobs by digest."""

    number: int
    role: Role
    tool: str
    tokens: int
    digest: bytes
    label: str = ""  # what a stub calls it: `report.pdf p. 12`, `search “treaty”`
    handle: str | None = None  # `h7f3a` for a host's own result, else None and the name is m<number>
    invoking: int | None = None  # number of the call that this result answers
    host_call_id: str | None = None
    is_error: bool = False
    part_of: int | None = None
    chunk_ids: tuple[int, ...] = ()
    kept_thought: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    message: Message


@dataclass(frozen=True, slots=True)
class Forgot:
    numbers: tuple[int, ...]
    reason: str = ""
    keep_thought: bool = False
    summary: str = ""
    parts: tuple[tuple[int, int], ...] = ()  # (message, one-based part) forgotten in part
    part_tokens: tuple[int, ...] = ()  # what each of `parts` took, in their order; missing ones count nothing


@dataclass(frozen=True, slots=True)
class Recalled:
    """Undo of Forgot: the messages stand in their old places as they were."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    numbers: tuple[int, ...]
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Compacted:
    """The host summarised or dropped what came before; what it still holds is unknown."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    """`finish` answered one question; the episode goes on."""

    answer: str
    citations: tuple[str, ...] = ()


def refuses(answer: str) -> bool:
    """Whether an answer says that the documents do not say."""
    return not answer.strip() or (bool(REFUSALS.search(answer)) and len(answer) < 200)


Event = Said | Forgot | Recalled | Pinned | Compacted | Sealed


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it stands in the transcript now."""

    message: Message
    forgotten: bool = False
    summary: str = ""
    keep_thought: bool = False
    pinned: bool = False
    forgotten_parts: tuple[int, ...] = ()
    part_tokens: int = 0  # what the forgotten parts took, less a mark for each
    compacted: bool = False  # said before the host compacted: likely gone there, counted as nothing


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is visible. `rounds` counts calls, as the paper's conv_rounds does.

    `freed_tokens` is what stands forgotten now: recalling takes it back. `peak_tokens` is the most that was
    ever visible.
    """

    entries: Sequence[Entry] = Entries()
    rounds: int = 0
    visible_tokens: int = 0
    peak_tokens: int = 0
    freed_tokens: int = 0
    sealed: tuple[Sealed, ...] = ()
    by_number: Mapping[int, int] = field(default_factory=dict, compare=False)  # number → place in entries
    compactions: int = 0
    touched: list[int] = field(default_factory=list, compare=False, repr=False)
    """Places said or changed, in order, of the folding this came from: shared with later transcripts of it, which have
    more of them. Whoever keeps a view looks only at what is new."""
    touches: int = field(default=0, compare=False, repr=False)
    """How many of `touched` this transcript knows of."""


def fold(events: Iterable[Event]) -> Transcript:
    """The transcript after these events. Pure; never raises on any sequence of events."""
    from pensieve_mcp.ledger.folding import Folder  # it needs the values of this file

    return Folder(events).transcript()

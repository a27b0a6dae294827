"""What stands where something was forgotten.

A stub is constant once written, because a changed one costs the provider's prompt cache. Ours is one line
that names the tool, the source, the size and the way back, in a form nobody takes for content. The published
wording (StateLM, reference code) is for trained weights, which know it. In our own loop old runs of stubs
coalesce, so that they cannot fill the window: the paper's own failure (section 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

from pensieve_mcp.ledger.events import Entry, Message
from pensieve_mcp.tokens import count_tokens

Wording = Literal["ours", "published"]

PUBLISHED = "Content has been deleted to save space."
"""The reference implementation's sentence, verbatim: trained weights have seen no other."""

PART_STUB_TOKENS = 28  # what `part_stub` costs, with a number of six digits
MAX_LABEL_CHARS = 80
MAX_SUMMARY_CHARS = 2_000
SHORT_BELOW = 3  # a stub of more than a third of what it stands for would win back too little: the short form
BLOCK_GROUPS = (512, 64, 8)
"""Old stubs coalesce in blocks of these many calls, so that a line changes rarely and 500 rounds need some
fifteen lines instead of a thousand."""
KEPT_LAST = 16  # entries that never coalesce


def _one_line(text: str, limit_chars: int) -> str:
    """Brackets and line ends would let a label end our line early."""
    line = " ".join(text.replace("[", "(").replace("]", ")").split())
    return line if len(line) <= limit_chars else line[: limit_chars - 1] + "…"


def handle_of(message: Message) -> str:
    return message.handle or f"m{message.number}"


def stub(entry: Entry, *, wording: Wording = "ours", restorable: bool = True) -> str:
    """The text of one forgotten message. `restorable` False where its reader has no restoreContext.

    Depends on the message and its Forgot event alone. Messages too small for a full line get a short one.
    """
    message = entry.message
    thought = message.kept_thought if entry.keep_thought else ""
    if wording == "published":
        body = PUBLISHED
    else:
        body = _ours(entry, restorable)
        if not entry.summary and count_tokens(body) * SHORT_BELOW > message.tokens:
            body = f"[pensieve: {handle_of(message)} forgotten]"
    return f"{thought}\n{body}" if thought else body


@lru_cache(maxsize=8_192)
def stub_tokens(words: str) -> int:
    """Tokens of a stub; the same stubs are counted again at every replay of a conversation."""
    return count_tokens(words)


def part_stub(message: Message, part: int, *, wording: Wording = "ours") -> str:
    """What stands for one forgotten part of a message that is otherwise there."""
    if wording == "published":
        return PUBLISHED
    handle = f"{handle_of(message)}.{part}"
    return f"[pensieve: {handle} forgotten · restoreContext {handle} brings it back]"


def _ours(entry: Entry, restorable: bool) -> str:
    message = entry.message
    handle = handle_of(message)
    what = "call" if message.role == "assistant" else "result"
    facts = [f"pensieve: {handle} forgotten", _one_line(f"{message.tool} {what}".strip(), 60)]
    if message.label:
        facts.append(_one_line(message.label, MAX_LABEL_CHARS))
    facts.append(f"{message.tokens:,} tokens")
    if entry.summary:
        facts.append(f"summary: {_one_line(entry.summary, MAX_SUMMARY_CHARS)}")
    if restorable:
        facts.append(f"restoreContext {handle} brings it back")
    return "[" + " · ".join(facts) + "]"


def published_result(
    msg_id: int, invoking: int | None, tool: str, *, reading_progress: str | None = None
) -> dict[str, Any]:
    """A forgotten tool result in the reference code's JSON shape; chunk reads keep their progress."""
    shape: dict[str, Any] = {
        "msg_id": msg_id,
        "msg_id(invoking_assistant)": invoking,
        "status": "success",
        "message": PUBLISHED,
        "original_tool": tool,
    }
    if reading_progress is not None:
        shape["reading_progress"] = reading_progress
    return shape


def published_arguments() -> dict[str, Any]:
    """What a forgotten call's arguments become: id and function name stay, so that providers see a pair."""
    return {"message": PUBLISHED}


def standing_tokens(entry: Entry) -> int:
    """Tokens the entry takes in the prompt now; a stub never counts more than what it stands for."""
    if entry.compacted:
        return 0
    remaining = max(0, entry.message.tokens - entry.part_tokens)
    return min(remaining, stub_tokens(stub(entry))) if entry.forgotten else remaining


@dataclass(frozen=True)
class Run:
    """A block of forgotten calls with their results, shown as one line: printed at every turn, counted once."""

    entries: tuple[Entry, ...]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(entry.message.number for entry in self.entries)

    @cached_property
    def tokens(self) -> int:
        """What its messages took before they were forgotten."""
        return sum(entry.message.tokens for entry in self.entries)

    def line(self, *, wording: Wording = "ours") -> str:
        return PUBLISHED if wording == "published" else self._line

    @cached_property
    def _line(self) -> str:
        first, last = min(self.numbers), max(self.numbers)
        return (
            f"[pensieve: m{first} to m{last} forgotten · {len(self.entries)} messages · "
            f"{self.tokens:,} tokens · restoreContext {first}-{last} brings them back]"
        )


class Coalescing:
    """`coalesced`, one entry at a time: a long reading is not gone through anew at every turn."""

    def __init__(self) -> None:
        self._shown: list[Entry | Run] = []
        self._run: list[list[Entry]] = []  # groups of stubs that stand side by side
        self._group: list[Entry] = []  # a call with its results, or a message that stands alone

    def copy(self) -> Coalescing:
        """One that goes its own way from here."""
        other = Coalescing()
        other._shown, other._run, other._group = list(self._shown), list(self._run), list(self._group)
        return other

    def add(self, entry: Entry) -> None:
        if not self._belongs(entry):
            self._end_group()
            self._group = []
        self._group.append(entry)

    def shown(self, last: Sequence[Entry]) -> list[Entry | Run]:
        """What was added, then these, which stay as they are. Ends it."""
        if last and self._belongs(last[0]):
            self._close()  # the pair reaches into what stays
            self._shown.extend(self._group)
        else:
            self._end_group()
            self._close()
        return [*self._shown, *last]

    def _belongs(self, entry: Entry) -> bool:
        group = self._group
        return (
            bool(group) and entry.message.role == "tool" and entry.message.invoking == group[0].message.number
        )

    def _end_group(self) -> None:
        group = self._group
        if all(e.forgotten and not e.summary and not e.keep_thought and not e.pinned for e in group):
            self._run += [group] if group else []
            if len(self._run) == BLOCK_GROUPS[0]:
                self._block(self._run)
                self._run = []
        else:
            self._close()
            self._shown.extend(group)

    def _close(self) -> None:
        place = 0
        for size in BLOCK_GROUPS:
            while len(self._run) - place >= size:
                self._block(self._run[place : place + size])
                place += size
        self._shown.extend(entry for group in self._run[place:] for entry in group)
        self._run = []

    def _block(self, groups: Iterable[list[Entry]]) -> None:
        self._shown.append(Run(tuple(entry for group in groups for entry in group)))


def coalesced(entries: Sequence[Entry], *, keep_last: int = KEPT_LAST) -> list[Entry | Run]:
    """The transcript with old runs of stubs as single lines; the last `keep_last` entries stay as they are.

    Calls and results stay paired: a run holds both or neither. Runs only grow at their end, in whole blocks.
    """
    cut = max(0, len(entries) - keep_last)
    coalescing = Coalescing()
    for entry in entries[:cut]:
        coalescing.add(entry)
    return coalescing.shown(entries[cut:])

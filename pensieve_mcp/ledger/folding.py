"""`fold`, one event at a time: a long conversation is not folded anew for every call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pensieve_mcp.ledger.entries import Growing, Places
from pensieve_mcp.ledger.events import (
    Compacted,
    Entry,
    Event,
    Forgot,
    Pinned,
    Recalled,
    Said,
    Sealed,
    Transcript,
)
from pensieve_mcp.ledger.stubs import PART_STUB_TOKENS, standing_tokens

NEVER_FORGOTTEN = ("user", "system")


class Folder:
    """Takes events one after another; `transcript()` equals `fold` of all of them. Not for several threads.

    What cannot be applied is passed over, since history is never edited and a replay must not fail: unknown
    numbers, a number said twice, forgetting what is pinned, a user's, or forgotten already (a stub stays as
    it was first written).
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._entries: Growing[Entry] = Growing()
        self._places: dict[int, int] = {}
        self._touched: list[int] = []
        self._sealed: list[Sealed] = []
        self._rounds = self._visible = self._peak = self._freed = self._compactions = 0
        self._made: Transcript | None = None
        self.extend(events)

    def copy(self) -> Folder:
        """One that goes its own way from here."""
        other = Folder()
        other.__dict__.update(self.__dict__)
        other._entries, other._places = Growing(self._entries.values), dict(self._places)
        other._touched, other._sealed = list(self._touched), list(self._sealed)
        return other

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Apply one event. Never raises on a value of the Event types."""
        self._made = None
        if isinstance(event, Said):
            self._say(event)
        elif isinstance(event, Forgot):
            for number in event.numbers:
                self._forget(number, event)
            sizes = (*event.part_tokens, *[0] * len(event.parts))
            for (number, part), tokens in zip(event.parts, sizes, strict=False):
                self._forget_part(number, part, tokens)
        elif isinstance(event, Recalled):
            for number in event.numbers:
                self._recall(number)
        elif isinstance(event, Pinned):
            for number in event.numbers:
                if (entry := self._at(number)) is not None:
                    self._put(replace(entry, pinned=event.pinned))
        elif isinstance(event, Compacted):
            self._compactions += 1
            for entry in list(self._entries.values):
                if not entry.compacted:
                    self._put(replace(entry, compacted=True))
        elif isinstance(event, Sealed):
            self._sealed.append(event)
        self._peak = max(self._peak, self._visible)

    def transcript(self) -> Transcript:
        if self._made is None:
            self._made = Transcript(
                entries=self._entries.entries(),
                rounds=self._rounds,
                visible_tokens=self._visible,
                peak_tokens=self._peak,
                freed_tokens=self._freed,
                sealed=tuple(self._sealed),
                by_number=Places(self._places, len(self._places)),
                compactions=self._compactions,
                touched=self._touched,
                touches=len(self._touched),
            )
        return self._made

    def entries(self) -> Sequence[Entry]:
        """All messages as they stand now; not to be kept, since it changes with the next event."""
        return self._entries.values

    def entry(self, number: int) -> Entry | None:
        """A message as it stands now."""
        return self._at(number)

    def _at(self, number: int) -> Entry | None:
        place = self._places.get(number)
        return None if place is None else self._entries.values[place]

    def _say(self, event: Said) -> None:
        message = event.message
        if message.number in self._places:
            return
        self._places[message.number] = len(self._entries.values)
        self._touched.append(len(self._entries.values))
        self._entries.append(Entry(message))
        self._visible += standing_tokens(self._entries.values[-1])
        if message.role == "assistant":
            self._rounds += 1

    def _put(self, entry: Entry) -> None:
        place = self._places[entry.message.number]
        before = self._entries.values[place]
        self._entries.put(place, entry)
        self._touched.append(place)
        self._visible += standing_tokens(entry) - standing_tokens(before)
        self._freed += _freed(entry) - _freed(before)

    def _forget(self, number: int, event: Forgot) -> None:
        entry = self._at(number)
        if entry is None or entry.forgotten or entry.pinned or entry.message.role in NEVER_FORGOTTEN:
            return
        self._put(replace(entry, forgotten=True, summary=event.summary, keep_thought=event.keep_thought))

    def _forget_part(self, number: int, part: int, tokens: int) -> None:
        entry = self._at(number)
        if entry is None or entry.pinned or entry.message.role in NEVER_FORGOTTEN:
            return
        if part in entry.forgotten_parts:
            return
        self._put(
            replace(
                entry,
                forgotten_parts=tuple(sorted((*entry.forgotten_parts, part))),
                part_tokens=entry.part_tokens + max(0, tokens - PART_STUB_TOKENS),
            )
        )

    def _recall(self, number: int) -> None:
        entry = self._at(number)
        if entry is not None:
            self._put(
                replace(
                    entry, forgotten=False, summary="", keep_thought=False, forgotten_parts=(), part_tokens=0
                )
            )


def _freed(entry: Entry) -> int:
    """Tokens that forgetting won back; what the host dropped by itself is not our doing."""
    return entry.message.tokens - standing_tokens(replace(entry, compacted=False))


@dataclass(frozen=True, slots=True)
class Standing:
    """What stood in the prompt after an event: tokens, and how many there would be had nothing been deleted."""

    event: Event
    visible: int
    undeleted: int


def standing(events: Sequence[Event], in_mind: Sequence[int] = ()) -> Iterator[Standing]:
    """Event by event: by the fold, or as counted where the prompt was printed.

    `in_mind` has the size of the prompt after each result, as a loop wrote it down that holds its prompt itself; a list
    of another length belongs to other events and does not count.
    """
    results = sum(isinstance(event, Said) and event.message.role == "tool" for event in events)
    counted = list(in_mind) if len(in_mind) == results else []
    folder = Folder()
    place = said = last = beside = 0
    for event in events:
        folder.add(event)
        visible = folder.transcript().visible_tokens
        is_result = isinstance(event, Said) and event.message.role == "tool"
        said += event.message.tokens if isinstance(event, Said) else 0
        if counted and place < len(counted) and (is_result or isinstance(event, Forgot | Recalled)):
            last = counted[place]  # a deletion is written before its result, and counted with it
            beside = max(0, last - visible)
        elif not counted or not place:
            last = visible
        place += is_result
        yield Standing(event, last, max(last, said + beside))

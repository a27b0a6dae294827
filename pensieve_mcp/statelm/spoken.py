"""What the loop looks at every turn, carried on from turn to turn: a late turn of a long reading costs what an early
one does. Knows the ledger's entries, and nothing of dialects; what it answers is a fold of them like any other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from pensieve_mcp.ledger.events import Entry, Transcript

LAG = 64  # entries at the end that are gone through anew: what changes lies there nearly always


class Fold(Protocol):
    """The state after some entries."""

    def add(self, entry: Entry) -> None: ...

    def copy(self) -> Self:
        """One that goes its own way from here; costs no more the longer the conversation is."""


F = TypeVar("F", bound=Fold)


class Carried(Generic[F]):
    """A fold up to a place that lags behind the end. An entry before it that changes begins it anew."""

    def __init__(self, start: Callable[[], F]) -> None:
        self._start = start
        self._state = start()
        self._place = 0

    def changed(self, place: int) -> None:
        if place < self._place:
            self._state, self._place = self._start(), 0

    def upto(self, entries: Sequence[Entry], end: int) -> F:
        lagging = max(self._place, end - LAG)
        for place in range(self._place, lagging):
            self._state.add(entries[place])
        self._place = lagging
        state = self._state.copy()
        for place in range(lagging, end):
            state.add(entries[place])
        return state


class Spoken:
    """Calls and results of one folding, in order, as they stand now. Places count them from 0."""

    def __init__(self, touched: list[int]) -> None:
        self.touched = touched
        self.entries: list[Entry] = []
        self.answers: list[int] = []  # places of results
        self.whole: list[int] = []  # places of what stands there whole and may go
        self.forgotten: list[int] = []
        self.whole_results = 0
        self.known = 0
        self._places: dict[int, int] = {}  # by number
        self._of_tool: dict[str, list[int]] = {}  # results, errors among them
        self._standing: dict[str, list[int]] = {}  # of these those that were not forgotten
        self._worked: Counter[str] = Counter()  # results that are no errors
        self._folds: dict[str, Carried[Any]] = {}

    def catch_up(self, transcript: Transcript) -> None:
        """Look at what was said or changed since the last time."""
        for place in self.touched[self.known : transcript.touches]:
            entry = transcript.entries[place]
            if entry.message.role not in ("assistant", "tool"):
                continue
            here = self._places.get(entry.message.number)
            if here is None:
                self._add(entry)
            else:
                self._change(here, entry)
        self.known = transcript.touches

    def _add(self, entry: Entry) -> None:
        message, here = entry.message, len(self.entries)
        self._places[message.number] = here
        self.entries.append(entry)
        if message.role == "tool":
            self.answers.append(here)
            self._of_tool.setdefault(message.tool, []).append(here)
            self._worked[message.tool] += not message.is_error
        self._stands(here, entry)

    def _change(self, here: int, entry: Entry) -> None:
        before = self.entries[here]
        self.entries[here] = entry
        for places in (self.whole, self.forgotten, self._standing.get(entry.message.tool, [])):
            at = bisect_left(places, here)
            if places[at : at + 1] == [here]:
                del places[at]
        self.whole_results -= _is_whole(before) and before.message.role == "tool"
        self._stands(here, entry)
        for fold in self._folds.values():
            fold.changed(here)

    def _stands(self, here: int, entry: Entry) -> None:
        is_result = entry.message.role == "tool"
        if _is_whole(entry):
            insort(self.whole, here)
            self.whole_results += is_result
        if entry.forgotten:
            insort(self.forgotten, here)
        elif is_result:
            insort(self._standing.setdefault(entry.message.tool, []), here)

    def at(self, number: int) -> Entry | None:
        """A call or result by its number."""
        here = self._places.get(number)
        return None if here is None else self.entries[here]

    def newest(self, places: Sequence[int], most: int | None = None) -> tuple[Entry, ...]:
        """Entries at these places, of many the last so many."""
        return tuple(self.entries[here] for here in (places if most is None else places[-most:]))

    def results(self, *tools: str) -> list[Entry]:
        """All results of these tools, in order."""
        places = [here for tool in dict.fromkeys(tools) for here in self._of_tool.get(tool, ())]
        return [self.entries[here] for here in sorted(places)]

    def standing(self, tool: str) -> list[Entry]:
        """Those of a tool that were not forgotten, errors among them."""
        return [self.entries[here] for here in self._standing.get(tool, ())]

    def last(self, tool: str) -> Entry | None:
        """The last result of a tool that is no error."""
        for here in reversed(self._of_tool.get(tool, ())):
            if not self.entries[here].message.is_error:
                return self.entries[here]
        return None

    def worked(self, *tools: str) -> int:
        """How many results of these tools are no errors."""
        return sum(self._worked[tool] for tool in tools)

    def fold(self, name: str, start: Callable[[], F], end: int | None = None) -> F:
        """The state after the first `end` entries (all), to be changed at will. `name` tells folds apart."""
        carried: Carried[F] = self._folds.setdefault(name, Carried(start))
        return carried.upto(self.entries, len(self.entries) if end is None else end)


def _is_whole(entry: Entry) -> bool:
    return not entry.forgotten and not entry.pinned

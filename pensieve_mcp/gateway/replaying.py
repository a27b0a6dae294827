"""A conversation lived again: item by item it becomes the ledger's events, request by request deletions are timed.

Most of it was in the request before. So the state after all but the last few messages is kept with the item that
it follows on, and the next request goes on from there. Such an item stands in a later conversation only when every
byte before it is the same (see `wire.reading.Earlier`), so this changes no answer; a property test holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pensieve_mcp.gateway.reading import (
    DELETE,
    HOST_NUMBERS,
    RESTORE,
    Asked,
    Facts,
    Known,
    Lines,
    asked,
    host_call,
    host_result,
    may_be_stubbed,
    may_have_handle,
    own_result,
    said_from,
)
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN, Policy, Timing
from pensieve_mcp.ledger.events import Entry, Event, Forgot, Pinned, Recalled, Said
from pensieve_mcp.ledger.folding import Folder
from pensieve_mcp.ledger.hostnames import HostNames
from pensieve_mcp.ledger.parts import recalled_parts
from pensieve_mcp.wire.conversation import Conversation, Item
from pensieve_mcp.wire.names import own_tool

LAST_ELEMENTS = 4
"""Messages at the end that the next request may well hold differently: hosts move their caching marks."""
KEPT_STATES = 3  # for a conversation: it may be forked, or tried again from a little before


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides besides the conversation. Host results of `handle_tokens` and more have a handle; None: none has."""

    facts: Facts
    policy: Policy
    handle_tokens: int | None
    before_tokens: int = 0


class Replay:
    """The state after the items so far. `known` are the messages with a handle, by number."""

    def __init__(self, rules: Rules, lines: Lines) -> None:
        self.rules = rules
        self.known: dict[int, Known] = {}
        self.folder = Folder()
        self.timing = Timing(rules.policy, rules.before_tokens)
        self._lines = lines
        self._calls: dict[str, tuple[int, Item, str | None]] = {}
        self._names = HostNames()
        self._forgotten: set[int] = set()  # places
        self._spoken = False
        self._place = 0
        self._kept: tuple[Item, ...] = ()

    @classmethod
    def of(cls, conversation: Conversation, rules: Rules, lines: Lines) -> Replay:
        """All of the conversation, with the request that is made now."""
        items = conversation.items
        state = cls._kept_in(items, rules) or cls(rules, lines)
        borders = conversation.borders
        settled = borders[-LAST_ELEMENTS - 1][1] if len(borders) > LAST_ELEMENTS else 0
        if settled > state._place:
            state = state.copy()
            state._advance(conversation, settled)
            state._keep(items[settled - 1])
        state = state.copy()
        state._advance(conversation, len(items))
        state.timing.request(state._forgotten)
        return state

    @classmethod
    def _kept_in(cls, items: tuple[Item, ...], rules: Rules) -> Replay | None:
        for item in reversed(items):
            state = item.memo.get("replay")
            if isinstance(state, cls) and state.rules == rules:
                return state
        return None

    def _keep(self, item: Item) -> None:
        """From here on this state is not changed any more, only copied."""
        for old in self._kept[: 1 - KEPT_STATES]:
            old.memo.pop("replay", None)
        self._kept = (*self._kept[1 - KEPT_STATES :], item)
        item.memo["replay"] = self

    def copy(self) -> Replay:
        other = Replay.__new__(Replay)
        other.__dict__.update(self.__dict__)
        other.known, other._calls = dict(self.known), dict(self._calls)
        other._forgotten = set(self._forgotten)
        other.folder, other.timing, other._names = self.folder.copy(), self.timing.copy(), self._names.copy()
        return other

    def messages(self) -> Iterator[tuple[Known, Entry]]:
        """Each with a handle, and how it stands."""
        for entry in self.folder.entries():
            yield self.known[entry.message.number], entry

    # -- going on --------------------------------------------------------------------------------------------

    def _advance(self, conversation: Conversation, end: int) -> None:
        for place in range(self._place, end):
            item = conversation.items[place]
            assistant = item.kind == "call" or item.role == "assistant"
            if assistant and not self._spoken and place:
                self.timing.request(self._forgotten)  # what stands before it was sent to get it
            self._spoken = assistant
            self.timing.add(max(1, (item.span[1] - item.span[0]) // BYTES_PER_TOKEN))
            if item.kind == "call" and item.call_id:
                facts = self.rules.facts
                ours = own_tool(item.name, item.namespace, facts.servers, facts.tools)
                self._calls[item.call_id] = (place, item, ours)
            elif item.kind == "result" and item.call_id in self._calls:
                self._result(conversation, place, item)
        self._place = end

    def _result(self, conversation: Conversation, place: int, item: Item) -> None:
        call_place, call, ours = self._calls[item.call_id]
        if ours is not None:
            read = own_result(conversation, self.rules.facts, place, item, call_place, call, ours)
            if read is None:
                return
            number = read.result.message.number
            if number in self.known or number - 1 in self.known:
                return  # a number stands once; a second one is not ours, or the host repeats itself
            self._say(read.result)
            self._say(read.call)
            if read.succeeded and ours in (DELETE, RESTORE) and (wanted := asked(conversation, call)):
                self._heed(conversation, ours, wanted, number - 1)
        elif (least := self.rules.handle_tokens) is not None:
            # Small ones have a name, too, which nobody is told: a host may clear an old result, and the name that
            # another one got because of it must not change.
            handle = self._names.name(item.call_id, HOST_NUMBERS + place)
            if handle is not None and may_have_handle(conversation, item, call, least):
                self._host_result(conversation, place, item, call, handle)

    def _host_result(
        self, conversation: Conversation, place: int, item: Item, call: Item, handle: str
    ) -> None:
        least = self.rules.handle_tokens or 0
        known = host_result(conversation, place, item, call, handle, self._lines, least)
        if known is not None:
            self._say(known)

    def _host_call(self, conversation: Conversation, number: int, tool: str) -> list[int]:
        """The number of the call that this result of the host answers, if its arguments can be deleted; of one that
        never was there is nothing to restore.
        """
        result = self.known[number]
        place, call, _ = self._calls[result.item.call_id]
        if HOST_NUMBERS + place not in self.known:
            if tool == RESTORE or not may_be_stubbed(conversation, call):
                return []
            self._say(host_call(conversation, result, place, call))
        return [HOST_NUMBERS + place]

    def _say(self, known: Known) -> None:
        self.known[known.message.number] = known
        self.folder.add(Said(known.message))

    # -- deleting and restoring ------------------------------------------------------------------------------

    def _heed(self, conversation: Conversation, tool: str, wanted: Asked, before: int) -> None:
        """A deletion or restoration that succeeded; ids that this conversation does not hold are another's and
        pass by, and so do numbers that were not given `before` the call: a range may reach beyond.
        """
        numbers: list[int] = []
        parts: list[tuple[int, int]] = []
        for ref in wanted.refs:
            if ref.host is not None:
                found = [one for one in self._names.find(ref.host) if one in self.known]
                if len(found) != 1:
                    continue  # when in doubt nothing is deleted
                number = found[0]
                if tool == RESTORE or (wanted.keep_thought and wanted.pin is None):
                    numbers += self._host_call(conversation, number, tool)
            elif ref.number is None or ref.number not in self.known or ref.number >= before:
                continue
            else:
                number = ref.number
            if ref.part is None:
                numbers.append(number)
            else:
                parts.append((number, ref.part))
        if tool == RESTORE:
            self._happen(Recalled(tuple(dict.fromkeys(numbers))))
            self._restore_parts(conversation, [part for part in parts if part[0] not in numbers])
        elif wanted.pin is not None:
            self._happen(Pinned(tuple(numbers), wanted.pin))
        else:
            self._happen(Forgot(tuple(numbers), reason=DELETE, summary=wanted.summary, parts=tuple(parts)))

    def _restore_parts(self, conversation: Conversation, parts: list[tuple[int, int]]) -> None:
        for number in dict.fromkeys(number for number, _ in parts):
            entry, known = self.folder.entry(number), self.known[number]
            if entry is None or not known.is_ours:
                continue
            text = said_from(conversation.text_of(known.item))
            for event in recalled_parts(entry, {part for n, part in parts if n == number}, text):
                self._happen(event)

    def _happen(self, event: Event) -> None:
        self.folder.add(event)
        if isinstance(event, Forgot | Recalled):
            for number in event.numbers:
                known, entry = self.known[number], self.folder.entry(number)
                if entry is not None and entry.forgotten and not known.is_stub:
                    self._forgotten.add(known.place)
                else:
                    self._forgotten.discard(known.place)

"""The conversation in a request as the ledger's events: which messages have a handle, what was forgotten of them.

Only calls of our own configured server count, and only those that succeeded: their result begins with a handle
line that is no error's. A line that looks like one inside a document is text, since ids are never taken from
there: `m` ids come from the head of our own results, `h` ids from the host's call ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.handles import MessageRef, parse_message_ids
from pensieve_mcp.ledger.events import Event, Forgot, Message, Pinned, Recalled, Said
from pensieve_mcp.ledger.parts import split_parts
from pensieve_mcp.ledger.store import HOST_HANDLE_DIGITS, host_handle
from pensieve_mcp.tokens import count_tokens
from pensieve_mcp.wire.conversation import Conversation, Item
from pensieve_mcp.wire.names import own_tool
from pensieve_mcp.wire.openai import arguments_of

DELETE, RESTORE = "deleteContext", "restoreContext"
HOST_NUMBERS = 10**15
"""Host messages have no number of ours; theirs begin here, above any that the ledger gives."""

_HEAD = re.compile(
    r"\A(?:Wall time: [0-9.]+ seconds\n)?(?:Output:\n)?(?:\{\s*\"handle\":\s*\")?"
    r"m(?P<number>\d{1,14}) · (?P<facts>[^\n\"]*)"
)
_STUB = re.compile(
    r"\A(?:Wall time: [0-9.]+ seconds\n)?(?:Output:\n)?\[pensieve: (?P<handle>m\d{1,14}|h[0-9a-f]{2,32}) forgotten"
)
_TOKENS = re.compile(r"(?:\A| · )(?P<tokens>[\d,]+) tokens(?: · |\Z)")
_TRUTHS = dict.fromkeys(("true", "1", "1.0", "yes", "on", "t", "y"), True) | dict.fromkeys(
    ("false", "0", "0.0", "no", "off", "f", "n"), False
)
_LABEL_KEYS = (
    "file_path",
    "path",
    "filePath",
    "notebook_path",
    "command",
    "cmd",
    "pattern",
    "query",
    "url",
    "prompt",
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the request itself does not say. `servers` are the names our server is configured under, `tools` its
    tools. `number_of` gives the number of a result of ours whose handle line the host did not pass on, or None.
    """

    servers: frozenset[str]
    tools: frozenset[str]
    number_of: Callable[[str], int | None] = lambda call_id: None


@dataclass(frozen=True, slots=True)
class Known:
    """A message with a handle, and the item where it stands."""

    place: int  # in the conversation's items
    item: Item
    message: Message
    is_ours: bool
    is_stub: bool = False  # somebody, perhaps we, put a stub there already
    line: str = ""  # the handle line of a host's result
    digest: bytes = b""  # of a result of ours as we said it


@dataclass(slots=True)
class Story:
    """`events` with the item after whose reading each is known."""

    known: dict[int, Known] = field(default_factory=dict)  # by number
    events: list[tuple[int, Event]] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_story(conversation: Conversation, facts: Facts, *, handle_bytes: int | None) -> Story:
    """The events of this conversation. `handle_bytes`: host results from this size on may be spoken of by an h
    handle; None where they have none. Never raises.
    """
    return _Teller(conversation, facts, handle_bytes).tell()


class _Teller:
    def __init__(self, conversation: Conversation, facts: Facts, handle_bytes: int | None) -> None:
        self._conversation = conversation
        self._facts = facts
        self._handle_bytes = handle_bytes
        self._calls: dict[str, tuple[int, Item, str | None]] = {}
        self._by_handle: dict[str, int] = {}
        self._story = Story()

    def tell(self) -> Story:
        spoken = False
        for place, item in enumerate(self._conversation.items):
            assistant = item.kind == "call" or item.role == "assistant"
            if assistant and not spoken and place:
                self._story.requests.append(place)  # what stands before it was sent to get it
            spoken = assistant
            if item.kind == "call" and item.call_id:
                ours = own_tool(item.name, item.namespace, self._facts.servers, self._facts.tools)
                self._calls[item.call_id] = (place, item, ours)
            elif item.kind == "result" and item.call_id in self._calls:
                self._result(place, item)
        self._story.requests.append(len(self._conversation.items))
        return self._story

    def _result(self, place: int, item: Item) -> None:
        call_place, call, ours = self._calls[item.call_id]
        if ours is not None:
            self._own_result(place, item, call_place, call, ours)
        elif self._may_have_handle(item):
            self._host_result(place, item, call)

    def _may_have_handle(self, item: Item) -> bool:
        """Words or pictures of the host's own tools, large enough; what loads tools is none of ours to touch."""
        if self._handle_bytes is None or item.body is None:
            return False
        heads = [self._conversation.raw[start : min(end, start + 200)] for start, end in item.blocks]
        if any(b'"tool_reference"' in head for head in heads):
            return False
        if not item.texts and not any(b'"image"' in head for head in heads):
            return False
        return item.body[1] - item.body[0] >= self._handle_bytes or self._begins_with_stub(item)

    def _begins_with_stub(self, item: Item) -> bool:
        return any(self._conversation.raw.startswith(b'"[pensieve: h', span[0]) for span in item.texts)

    def _own_result(self, place: int, item: Item, call_place: int, call: Item, tool: str) -> None:
        read = self._read_own(place, item, call_place, call, tool)
        if read is None:
            return
        known, call_known, heeded = read
        number = known.message.number
        if number in self._story.known or number - 1 in self._story.known:
            return  # a number stands once; a second one is not ours, or the host repeats itself
        self._say(known, call_known)
        if heeded:
            self._heed(place, tool, call, number - 1)

    def _read_own(
        self, place: int, item: Item, call_place: int, call: Item, tool: str
    ) -> tuple[Known, Known, bool] | None:
        """The result, its call, and whether it succeeded; worked out once for an item that stays as it is."""
        key = (self._facts, place, call_place)
        made = item.memo.get("own")
        if made is not None and made[0] == key and made[1] is call:
            return made[2]  # type: ignore[no-any-return]
        text = self._conversation.text_of(item)
        head, stub = _HEAD.match(text), _STUB.match(text)
        facts = ""
        number: int | None
        if head is not None:
            number = int(head["number"])
            facts = head["facts"]
        elif stub is not None:
            number = int(stub["handle"][1:]) if stub["handle"].startswith("m") else None
            facts = text[stub.end() :].split("\n", 1)[0]
        else:
            number = self._facts.number_of(item.call_id)
        if number is None:
            return None
        failed = item.is_error or facts.startswith("error ·") or " · error ·" in facts
        tokens = _TOKENS.search(facts)
        message = Message(
            number,
            "tool",
            tool,
            int(tokens["tokens"].replace(",", "")) if tokens else count_tokens(text),
            b"",
            label=facts[: tokens.start()] if tokens else "",
            invoking=number - 1,
            host_call_id=item.call_id,
            is_error=failed,
        )
        head_at = head.start("number") - 1 if head is not None else 0
        said = text[head_at:].encode("utf-8", "surrogatepass") if head is not None else b""
        known = Known(
            place,
            item,
            message,
            is_ours=True,
            is_stub=stub is not None,
            digest=hashlib.sha256(said).digest() if said else b"",
        )
        # The ledger reserves two numbers at a time: the call's is the one before its result's.
        call_known = Known(
            call_place,
            call,
            self._call_message(call, number - 1, tool),
            is_ours=True,
            is_stub=self._is_gone(call),
        )
        result = (known, call_known, not failed)
        item.memo["own"] = (key, call, result)
        return result

    def _call_message(self, call: Item, number: int, tool: str) -> Message:
        size = 0 if call.body is None else len(self._conversation.bytes_of(call.body)) // 4 + 8
        return Message(number, "assistant", tool, size, b"", host_call_id=call.call_id)

    def _is_gone(self, call: Item) -> bool:
        return call.body is not None and b"[pensieve: " in self._conversation.bytes_of(call.body)[:60]

    def _host_result(self, place: int, item: Item, call: Item) -> None:
        handle = self._new_handle(item.call_id)
        if handle is None:
            return
        number = HOST_NUMBERS + place
        message = Message(
            number,
            "tool",
            call.name if not call.namespace else f"{call.namespace}/{call.name}",
            0,
            b"",
            label=self._label(call),
            handle=handle,
            host_call_id=item.call_id,
            is_error=item.is_error,
        )
        self._by_handle[handle] = number
        self._say(Known(place, item, message, is_ours=False, is_stub=self._begins_with_stub(item)))

    def _new_handle(self, call_id: str) -> str | None:
        """From the call id alone; longer where an earlier result of this conversation has that name already, so
        that a name never changes while the conversation grows. None for a second result of one call.
        """
        for digits in range(HOST_HANDLE_DIGITS, 33):
            handle = host_handle(call_id, digits)
            if handle not in self._by_handle:
                return handle
            if self._story.known[self._by_handle[handle]].message.host_call_id == call_id:
                return None
        return None

    def _label(self, call: Item) -> str:
        try:
            arguments = arguments_of(self._conversation, call)
        except PensieveError:
            return ""
        if not isinstance(arguments, dict):
            return ""
        for key in _LABEL_KEYS:
            value = arguments.get(key)
            if isinstance(value, list) and value and isinstance(value[-1], str):
                value = value[-1]
            if isinstance(value, str) and value.strip():
                return " ".join(value.split())[:60]
        return ""

    def _say(self, *known: Known) -> None:
        place = known[0].place  # a call is spoken of from its result on
        for one in known:
            self._story.known[one.message.number] = one
            self._story.events.append((place, Said(one.message)))

    def _heed(self, place: int, tool: str, call: Item, before: int) -> None:
        """A deletion or restoration that succeeded, as an event; ids that this conversation does not hold are
        another's and pass by, and so do numbers that were not given `before` the call: a range may reach beyond.
        """
        if tool not in (DELETE, RESTORE):
            return
        asked = call.memo.get("asked")
        if asked is None:
            asked = call.memo["asked"] = (self._asked(call),)
        if asked[0] is None:
            return
        refs, pin, summary = asked[0]
        numbers: list[int] = []
        parts: list[tuple[int, int]] = []
        for ref in refs:
            number = self._by_handle.get(ref.host) if ref.host is not None else ref.number
            if number is None or number not in self._story.known:
                continue
            if ref.host is None and number >= before:
                continue
            if ref.part is None:
                numbers.append(number)
            else:
                parts.append((number, ref.part))
        event: Event
        if tool == RESTORE:
            event = Recalled(tuple(dict.fromkeys(numbers + [number for number, _ in parts])))
        elif pin is not None:
            event = Pinned(tuple(numbers), pin)
        else:
            event = Forgot(tuple(numbers), reason=DELETE, summary=summary, parts=tuple(parts))
        self._story.events.append((place, event))

    def _asked(self, call: Item) -> tuple[list[MessageRef], bool | None, str] | None:
        """What a deletion or restoration names, whether it pins, and its summary; None for what cannot be read:
        when in doubt nothing is deleted."""
        try:
            arguments = arguments_of(self._conversation, call)
            given = arguments.get("msg_id") if isinstance(arguments, dict) else None
            if not isinstance(arguments, dict) or given is None:
                return None
            refs = parse_message_ids(int(given) if isinstance(given, float) else str(given))
        except (PensieveError, ValueError, OverflowError):
            return None
        pin = arguments.get("pin")
        wanted = None if pin is None else _TRUTHS.get(str(pin).strip().lower())
        if pin is not None and wanted is None:
            return None
        summary = arguments.get("summary")
        return refs, wanted, " ".join(summary.split()) if isinstance(summary, str) else ""


def part_borders(text: str) -> list[int]:
    """Where the parts of a result of ours begin, and its end, in characters."""
    borders = [0]
    for part in split_parts(text):
        borders.append(borders[-1] + len(part))
    return borders

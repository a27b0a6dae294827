"""What one call and its result tell: which message it is, what it wants forgotten or back, what a host's is called.

Only calls of our own configured server count, and only those that succeeded: their result begins with a handle
line that is no error's. A line that looks like one inside a document is text, since ids are never taken from
there: `m` ids come from the head of our own results, `h` ids from the host's call ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.handles import MessageRef, parse_message_ids
from pensieve_mcp.ledger.events import Message
from pensieve_mcp.ledger.parts import split_parts
from pensieve_mcp.tokens import count_tokens
from pensieve_mcp.wire.conversation import Conversation, Item
from pensieve_mcp.wire.openai import arguments_of

DELETE, RESTORE = "deleteContext", "restoreContext"
HOST_NUMBERS = 10**15
"""Host messages have no number of ours; theirs begin here, above any that the ledger gives."""
BYTES_A_PICTURE_TOKEN = 400  # base64 of a picture; providers count its area, which nobody here knows
MOST_LINES = 20_000

_HEAD = re.compile(
    r"\A(?:Wall time: [0-9.]+ seconds\n)?(?:Output:\n)?(?:\{\s*\"handle\":\s*\")?"
    r"m(?P<number>\d{1,14}) · (?P<facts>[^\n\"]*)"
)
_STUB = re.compile(
    r"\A(?:Wall time: [0-9.]+ seconds\n)?(?:Output:\n)?\[pensieve: (?P<handle>m\d{1,14}|h[0-9a-f]{2,32}) forgotten"
)
_CALL_STUB = re.compile(
    rb'\A"?\{\s*\\?"pensieve\\?":\s*\\?"(?:\[pensieve: )?(?:m\d{1,14}|h[0-9a-f]{2,32}) forgotten'
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call of ours with its result. Not succeeded: an error, or the host's user refused it."""

    call: Known
    result: Known
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What a deletion or restoration names."""

    refs: tuple[MessageRef, ...]
    pin: bool | None = None
    summary: str = ""
    keep_thought: bool = False  # of a host's call its arguments, too


class Lines:
    """Tokens of the host's results by their bytes, kept from request to request: a result is counted once."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, int] = {}

    def tokens(self, raw: bytes, count: Callable[[], int]) -> int:
        """What `count` answers for a result of these bytes."""
        key = hashlib.sha256(raw).digest()
        if (found := self._tokens.get(key)) is None:
            if len(self._tokens) > MOST_LINES:
                self._tokens.clear()
            found = self._tokens[key] = count()
        return found


# -- our own calls ---------------------------------------------------------------------------------------------------


def own_result(
    conversation: Conversation, facts: Facts, place: int, item: Item, call_place: int, call: Item, tool: str
) -> Exchange | None:
    """The exchange, or None for a result that bears no number of ours. Worked out once for an item that stays
    as it is.
    """
    key = (facts, place, call_place)
    made = item.memo.get("own")
    if made is not None and made[0] == key and made[1] is call:
        return made[2]  # type: ignore[no-any-return]
    text = conversation.text_of(item)
    head, stub = _HEAD.match(text), _STUB.match(text)
    said = ""
    number: int | None
    if head is not None:
        number = int(head["number"])
        said = head["facts"]
    elif stub is not None:
        number = int(stub["handle"][1:]) if stub["handle"].startswith("m") else None
        said = text[stub.end() :].split("\n", 1)[0]
    else:
        number = facts.number_of(item.call_id)
    if number is None:
        return None
    failed = item.is_error or said.startswith("error ·") or " · error ·" in said
    tokens = _TOKENS.search(said)
    message = Message(
        number,
        "tool",
        tool,
        int(tokens["tokens"].replace(",", "")) if tokens else count_tokens(text),
        b"",
        label=said[: tokens.start()] if tokens else "",
        invoking=number - 1,
        host_call_id=item.call_id,
        is_error=failed,
    )
    words = b"" if head is None else said_from(text).encode("utf-8", "surrogatepass")
    result = Known(
        place,
        item,
        message,
        is_ours=True,
        is_stub=stub is not None,
        digest=hashlib.sha256(words).digest() if words else b"",
    )
    # The ledger reserves two numbers at a time: the call's is the one before its result's.
    size = 0 if call.body is None else len(conversation.bytes_of(call.body)) // 4 + 8
    asking = Known(
        call_place,
        call,
        Message(number - 1, "assistant", tool, size, b"", host_call_id=call.call_id),
        is_ours=True,
        is_stub=is_stubbed_call(conversation, call),
    )
    exchange = Exchange(asking, result, not failed)
    item.memo["own"] = (key, call, exchange)
    return exchange


def said_from(text: str) -> str:
    """A result of ours without what a host wrote before it; nothing where it bears no handle line."""
    head = _HEAD.match(text)
    return "" if head is None else text[head.start("number") - 1 :]


def asked(conversation: Conversation, call: Item) -> Asked | None:
    """What a deletion or restoration names; None for what cannot be read: when in doubt nothing is deleted."""
    made = call.memo.get("asked")
    if made is None:
        made = call.memo["asked"] = (_asked(conversation, call),)
    return made[0]


def _asked(conversation: Conversation, call: Item) -> Asked | None:
    try:
        arguments = arguments_of(conversation, call)
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
    return Asked(
        tuple(refs),
        wanted,
        " ".join(summary.split()) if isinstance(summary, str) else "",
        _TRUTHS.get(str(arguments.get("keep_thought")).strip().lower(), False),
    )


def is_stubbed_call(conversation: Conversation, call: Item) -> bool:
    """Whether its arguments are a stub already."""
    if call.body is None:
        return False
    head = conversation.bytes_of(call.body)[:120]
    return _CALL_STUB.match(head) is not None or (call.is_free and head.startswith(b'"[pensieve: '))


def part_borders(text: str) -> list[int]:
    """Where the parts of a result of ours begin, and its end, in characters."""
    borders = [0]
    for part in split_parts(text):
        borders.append(borders[-1] + len(part))
    return borders


# -- the host's own results ------------------------------------------------------------------------------------------


def may_have_handle(conversation: Conversation, item: Item, call: Item, handle_tokens: int) -> bool:
    """Words or pictures of the host's own tools, large enough, or the answer to a call that is; what loads tools is
    none of ours to touch.
    """
    if item.body is None:
        return False
    made = item.memo.get("may")
    if made is None or made[0] != handle_tokens or made[1] is not call:
        may = _may_have_handle(conversation, item, call, handle_tokens)
        made = item.memo["may"] = (handle_tokens, call, may)
    return made[2]


def _may_have_handle(conversation: Conversation, item: Item, call: Item, handle_tokens: int) -> bool:
    heads = [conversation.raw[start : min(end, start + 200)] for start, end in item.blocks]
    if any(b'"tool_reference"' in head for head in heads):
        return False
    if not item.texts and not any(b'"image"' in head for head in heads):
        return False
    # Two bytes a token is less than any text takes but Chinese, Japanese and Korean; those are counted anyway.
    least = handle_tokens * 2
    return _size(item) >= least or _size(call) >= least or _begins_with_stub(conversation, item)


def host_result(
    conversation: Conversation,
    place: int,
    item: Item,
    call: Item,
    handle: str,
    lines: Lines,
    handle_tokens: int,
) -> Known | None:
    """A host's result by its name; None where neither it nor its call has so many tokens. One that stands there as a
    stub has no tokens. What is large in the call is told, since it can be deleted with the result.
    """
    key = (place, handle, handle_tokens)
    made = item.memo.get("host")
    if made is not None and made[0] == key and made[1] is call:
        return made[2]  # type: ignore[no-any-return]
    is_stub = _begins_with_stub(conversation, item)
    tokens = 0
    if not is_stub and item.body is not None:
        tokens = lines.tokens(
            conversation.bytes_of(item.body), lambda: _tokens_of(conversation, item, handle)
        )
    message = Message(
        HOST_NUMBERS + place,
        "tool",
        call.name if not call.namespace else f"{call.namespace}/{call.name}",
        tokens,
        b"",
        label=_label(conversation, call),
        handle=handle,
        host_call_id=item.call_id,
        is_error=item.is_error,
    )
    arguments = 0
    if call.body is not None and _size(call) >= handle_tokens * 2:
        raw = conversation.bytes_of(call.body)
        arguments = lines.tokens(raw, lambda: count_tokens(raw.decode("utf-8", "replace")))
    known: Known | None = None
    if is_stub or max(tokens, arguments) >= handle_tokens:
        words = " ".join(part for part in (message.tool, message.label) if part)
        large = arguments >= handle_tokens
        more = f" · {arguments:,} in its call, which keep_thought drops too" if large else ""
        line = "" if is_stub else f"{handle} · {words} · {tokens:,} tokens{more}\n"
        known = Known(place, item, message, is_ours=False, is_stub=is_stub, line=line)
    item.memo["host"] = (key, call, known)
    return known


def may_be_stubbed(conversation: Conversation, call: Item) -> bool:
    """Whether the provider takes other arguments for it: those of its own tools (OpenAI's local shell) have a form."""
    return call.body is not None and (conversation.dialect == "anthropic" or call.in_string or call.is_free)


def host_call(conversation: Conversation, result: Known, place: int, call: Item) -> Known:
    """The call that a host's result answers, under the result's name: whoever restores one restores both."""
    message = replace(
        result.message,
        number=HOST_NUMBERS + place,
        role="assistant",
        tokens=_size(call) // 4 + 8,
        is_error=False,
    )
    return Known(place, call, message, is_ours=False, is_stub=is_stubbed_call(conversation, call))


def host_text(conversation: Conversation, item: Item, handle: str) -> str:
    """What a host's result says, without the handle line that another gateway may have put there."""
    text = conversation.text_of(item)
    return text.partition("\n")[2] if text.startswith(f"{handle} · ") else text


def _tokens_of(conversation: Conversation, item: Item, handle: str) -> int:
    text = host_text(conversation, item, handle)
    return count_tokens(text) if text else _size(item) // BYTES_A_PICTURE_TOKEN


def _size(item: Item) -> int:
    return 0 if item.body is None else item.body[1] - item.body[0]


def _begins_with_stub(conversation: Conversation, item: Item) -> bool:
    return any(conversation.raw.startswith(b'"[pensieve: h', span[0]) for span in item.texts)


def _label(conversation: Conversation, call: Item) -> str:
    try:
        arguments = arguments_of(conversation, call)
    except PensieveError:
        return ""
    if not isinstance(arguments, dict):
        return ""
    for key in _LABEL_KEYS:
        value = arguments.get(key)
        if isinstance(value, list) and value and isinstance(value[-1], str):
            value = value[-1]
        if isinstance(value, str) and value.strip():
            # half a surrogate pair is no text, and no answer that says it can be sent
            return " ".join(value.split())[:60].encode("utf-8", "replace").decode("utf-8")
    return ""

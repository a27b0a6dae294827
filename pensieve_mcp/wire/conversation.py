"""What the dialects have in common: a request's messages in order, each with its places in the body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pensieve_mcp.wire.spans import Span, decoded

Kind = Literal["call", "result", "text", "thinking", "other"]
Dialect = Literal["anthropic", "responses", "chat"]


@dataclass(frozen=True, slots=True)
class Item:
    """One call, result or other piece of a message. Spans are places in the request's body."""

    kind: Kind
    role: str  # user, assistant, system, developer, tool; empty where the dialect names none
    span: Span
    call_id: str = ""
    name: str = ""  # of a call: as the host writes it
    namespace: str = ""
    body: Span | None = None  # a call's arguments, a result's content
    in_string: bool = False  # arguments that are JSON within a string, or free text (`is_free`)
    is_free: bool = False
    texts: tuple[Span, ...] = ()  # of a result: its strings, quotes included
    blocks: tuple[Span, ...] = ()  # of a result: the elements of its content where that is a list
    is_error: bool = False
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What others worked out from these bytes, kept while the item is (see `reading.Earlier`)."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request as read. `raw` is its whole body."""

    dialect: Dialect
    raw: bytes
    items: tuple[Item, ...]
    model: str = ""
    stream: bool = False
    has_server_state: bool = False  # the request names an earlier one, so earlier messages are not in it
    session: str = ""  # what the host calls the conversation, where the body says so
    parts: dict[str, int] = field(default_factory=dict)  # sizes in bytes of system, tools and messages
    top: dict[str, Span] = field(default_factory=dict)
    borders: tuple[tuple[int, int], ...] = ()  # end of each element of the list, and the items up to there

    def bytes_of(self, span: Span) -> bytes:
        return self.raw[span[0] : span[1]]

    def text_of(self, item: Item) -> str:
        """The words of a result, its blocks joined by line ends. Lone bytes that are no UTF-8 come as surrogates."""
        return "\n".join(str(decoded(self.bytes_of(span), span[0])) for span in item.texts)


Reader = Callable[["bytes", "Conversation | None"], Conversation]

"""Which dialect a request is in, by its path."""

from __future__ import annotations

from pensieve_mcp.wire.anthropic import read as read_anthropic
from pensieve_mcp.wire.conversation import Conversation, Dialect, Reader
from pensieve_mcp.wire.openai import read_chat, read_responses
from pensieve_mcp.wire.reading import Earlier

READERS: dict[Dialect, Reader] = {"anthropic": read_anthropic, "responses": read_responses, "chat": read_chat}


def dialect_of(path: str) -> Dialect | None:
    """`…/messages`, `…/responses` or `…/chat/completions`; else None, and the request is none of our business.

    `…/messages/count_tokens` counts as well: what it counts is what would be sent.
    """
    path = path.rstrip("/").removesuffix("/count_tokens")
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/chat/completions"):
        return "chat"
    return "responses" if path.endswith("/responses") else None


def read_request(raw: bytes, dialect: Dialect, earlier: Earlier | None = None) -> Conversation:
    """The conversation in a request's body. With `earlier`, what an earlier request began with is not read again.
    Raises Unreadable.
    """
    reader = READERS[dialect]
    return reader(raw, None) if earlier is None else earlier.read(raw, dialect, reader)

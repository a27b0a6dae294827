"""Anthropic Messages: `messages` of content blocks; `tool_use` and `tool_result` are paired by id.

Source: the published API and requests recorded from Claude Code and opencode. Blocks of other types (thinking,
images, server tools, search results) are read as far as their type and left alone.
"""

from __future__ import annotations

import json

from pensieve_mcp.wire.conversation import Conversation, Item, Kind
from pensieve_mcp.wire.spans import Span, blank, decoded, elements, members, skip, walk_elements, walk_members

CALLS = frozenset({"tool_use"})
KINDS: dict[str, Kind] = {
    "tool_use": "call",
    "tool_result": "result",
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
}


def read(raw: bytes) -> Conversation:
    """The conversation of a Messages request. Raises Unreadable."""
    return _Reader(raw).conversation()


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.text = raw.decode("latin-1")
        self.items: list[Item] = []
        self.top: dict[str, Span] = {}

    def conversation(self) -> Conversation:
        walk_members(self.text, blank(self.text, 0), self._top)
        return Conversation(
            dialect="anthropic",
            raw=self.raw,
            items=tuple(self.items),
            model=self._string("model"),
            stream=self.text[slice(*self.top.get("stream", (0, 0)))] == "true",
            session=_session(self._value("metadata")),
            parts={key: b - a for key, (a, b) in self.top.items() if key in ("system", "tools", "messages")},
        )

    def _top(self, key: str, start: int) -> int:
        if key == "messages":
            self.items.clear()
            end = walk_elements(self.text, start, self._message)
        else:
            end = skip(self.text, start)
        self.top[key] = (start, end)
        return end

    def _value(self, key: str) -> object:
        span = self.top.get(key)
        return None if span is None else decoded(self.raw[span[0] : span[1]], span[0])

    def _string(self, key: str) -> str:
        value = self._value(key)
        return value if isinstance(value, str) else ""

    def _message(self, start: int) -> int:
        found, end = members(self.text, start)
        role = string_at(self.raw, found.get("role"))
        content = found.get("content")
        if content is None:
            return end
        if self.text[content[0]] != "[":
            self.items.append(Item("text", role, content))
            return end
        for block in elements(self.text, content[0])[0]:
            self.items.append(
                self._block(role, block) if self.text[block[0]] == "{" else Item("other", role, block)
            )
        return end

    def _block(self, role: str, span: Span) -> Item:
        found, _ = members(self.text, span[0])
        kind = KINDS.get(string_at(self.raw, found.get("type")), "other")
        if kind == "call":
            return Item(
                "call",
                role,
                span,
                call_id=string_at(self.raw, found.get("id")),
                name=string_at(self.raw, found.get("name")),
                body=found.get("input"),
            )
        if kind == "result":
            body = found.get("content")
            texts, blocks = content_texts(self.text, self.raw, body, ("text",))
            return Item(
                "result",
                role,
                span,
                call_id=string_at(self.raw, found.get("tool_use_id")),
                body=body,
                texts=texts,
                blocks=blocks,
                is_error=self.text[slice(*found.get("is_error", (0, 0)))] == "true",
            )
        return Item(kind, role, span)


def string_at(raw: bytes, span: Span | None) -> str:
    """The string that stands there, or nothing for any other value."""
    if span is None or raw[span[0] : span[0] + 1] != b'"':
        return ""
    return str(decoded(raw[span[0] : span[1]], span[0]))


def content_texts(
    text: str, raw: bytes, body: Span | None, types: tuple[str, ...]
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The strings of a result's content and its blocks: content is a string, or a list of blocks of which those
    of these types hold a `text`.
    """
    if body is None:
        return (), ()
    first = text[body[0]]
    if first == '"':
        return (body,), ()
    if first != "[":
        return (), ()
    texts: list[Span] = []
    blocks, _ = elements(text, body[0])
    for block in blocks:
        if text[block[0]] != "{":
            continue
        found, _ = members(text, block[0])
        words = found.get("text")
        if words is not None and text[words[0]] == '"' and string_at(raw, found.get("type")) in types:
            texts.append(words)
    return tuple(texts), tuple(blocks)


def _session(metadata: object) -> str:
    """Claude Code writes its session into the user id, as JSON or after `_session_`."""
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return ""
    if user.startswith("{"):
        try:
            value = json.loads(user).get("session_id")
        except (ValueError, AttributeError):
            return ""
        return value if isinstance(value, str) else ""
    return user.rpartition("_session_")[2] if "_session_" in user else ""

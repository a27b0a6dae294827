"""Anthropic Messages: `messages` of content blocks; `tool_use` and `tool_result` are paired by id.

Source: the published API and requests recorded from Claude Code and opencode. Blocks of other types (thinking,
images, server tools, search results) are read as far as their type and left alone.
"""

from __future__ import annotations

import json

from pensieve_mcp.wire.conversation import Conversation, Item, Kind
from pensieve_mcp.wire.reading import TopReader, string_at
from pensieve_mcp.wire.spans import Span, elements, members

KINDS: dict[str, Kind] = {
    "tool_use": "call",
    "tool_result": "result",
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
}


def read(raw: bytes, earlier: Conversation | None = None) -> Conversation:
    """The conversation of a Messages request; `earlier` is one that may begin like it. Raises Unreadable."""
    return _Reader(raw, earlier).conversation()


class _Reader(TopReader):
    text_of_string = False

    def conversation(self) -> Conversation:
        self.walk()
        return Conversation(
            dialect="anthropic",
            raw=self.raw,
            items=tuple(self.items),
            model=self.string("model"),
            stream=self.is_true("stream"),
            session=_session(self.value("metadata")),
            parts=self.sizes({"system": "system", "tools": "tools", "messages": "messages"}),
            top=self.top,
            borders=tuple(self.borders),
        )

    def _element(self, start: int) -> int:
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

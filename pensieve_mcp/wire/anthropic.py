"""Anthropic Messages: `messages` of content blocks; `tool_use` and `tool_result` are paired by id.

Source: the published API and requests recorded from Claude Code and opencode. Blocks of other types (thinking,
images, server tools, search results) are read as far as their type and left alone.
"""

from __future__ import annotations

import json

from pensieve_mcp.wire.conversation import Conversation, Item, Kind
from pensieve_mcp.wire.reading import TopReader, string_at
from pensieve_mcp.wire.spans import Span, members, skip, walk_elements

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


_Block = tuple[Span, dict[str, Span], "Pieces"]
"""Where it stands, its members, and its content where that is a list."""


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
        blocks: list[_Block] = []
        found, end = members(self.text, start, {"content": lambda place: self._blocks(place, blocks)})
        role = string_at(self.raw, found.get("role"))
        content = found.get("content")
        if content is None:
            return end
        if self.text[content[0]] != "[":
            self.items.append(Item("text", role, content))
            return end
        self.items += [self._item(role, block) for block in blocks]
        return end

    def _blocks(self, start: int, blocks: list[_Block]) -> int:
        blocks.clear()

        def visit(place: int) -> int:
            pieces = Pieces(self.text, self.raw, ("text",))
            found: dict[str, Span] = {}
            if self.text.startswith("{", place):
                found, end = members(self.text, place, {"content": pieces.read})
            else:
                end = skip(self.text, place)
            blocks.append(((place, end), found, pieces))
            return end

        return walk_elements(self.text, start, visit)

    def _item(self, role: str, block: _Block) -> Item:
        span, found, pieces = block
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
            texts, blocks = pieces.of(body)
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


class Pieces:
    """The strings of a result's content and its blocks: content is a string, or a list of blocks of which those
    of these types hold a `text`. `read` goes through such a list while the result is read.
    """

    def __init__(self, text: str, raw: bytes, types: tuple[str, ...]) -> None:
        self._text, self._raw, self._types = text, raw, types
        self._texts: list[Span] = []
        self._blocks: list[Span] = []

    def read(self, start: int) -> int:
        """Through the list that begins here; answers its end. Of two the last counts. Raises Unreadable."""
        self._texts.clear()
        self._blocks.clear()
        return walk_elements(self._text, start, self._block)

    def _block(self, start: int) -> int:
        if not self._text.startswith("{", start):
            end = skip(self._text, start)
        else:
            found, end = members(self._text, start)
            words = found.get("text")
            is_text = string_at(self._raw, found.get("type")) in self._types
            if is_text and words is not None and self._text[words[0]] == '"':
                self._texts.append(words)
        self._blocks.append((start, end))
        return end

    def of(self, body: Span | None) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Strings and blocks of the content that stands there."""
        if body is None:
            return (), ()
        if self._text[body[0]] == '"':
            return (body,), ()
        return (tuple(self._texts), tuple(self._blocks)) if self._text[body[0]] == "[" else ((), ())


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

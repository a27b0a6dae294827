"""OpenAI's two dialects. Responses: `input` items, `function_call` and `function_call_output` paired by `call_id`.
Chat Completions: `messages`, `tool_calls` of the assistant and messages of the role `tool`.

Source: the published API and requests recorded from Codex.
"""

from __future__ import annotations

from pensieve_mcp.wire.anthropic import Pieces
from pensieve_mcp.wire.conversation import Conversation, Item
from pensieve_mcp.wire.reading import TopReader, string_at
from pensieve_mcp.wire.spans import Span, decoded, elements, members, skip

RESPONSES_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
RESPONSES_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
TEXT_TYPES = ("text", "input_text", "output_text")


class _Responses(TopReader):
    list_key = "input"

    def conversation(self) -> Conversation:
        self.walk()
        return Conversation(
            dialect="responses",
            raw=self.raw,
            items=tuple(self.items),
            model=self.string("model"),
            stream=self.is_true("stream"),
            has_server_state=bool(self.string("previous_response_id") or "conversation" in self.top),
            session=self.string("prompt_cache_key"),
            parts=self.sizes({"instructions": "system", "tools": "tools", self.list_key: "messages"}),
            top=self.top,
            borders=tuple(self.borders),
        )

    def _element(self, start: int) -> int:
        if self.text[start : start + 1] != "{":
            return skip(self.text, start)
        pieces = Pieces(self.text, self.raw, TEXT_TYPES)
        found, end = members(self.text, start, {"output": pieces.read})
        kind, span = string_at(self.raw, found.get("type")), (start, end)
        role = string_at(self.raw, found.get("role"))
        if (arguments := RESPONSES_CALLS.get(kind)) is not None:
            body = found.get(arguments)
            self.items.append(
                Item(
                    "call",
                    "assistant",
                    span,
                    call_id=string_at(self.raw, found.get("call_id")),
                    name=string_at(self.raw, found.get("name")) or kind,
                    namespace=string_at(self.raw, found.get("namespace")),
                    body=body,
                    in_string=body is not None and self.text[body[0]] == '"',
                    is_free=kind == "custom_tool_call",
                )
            )
        elif kind in RESPONSES_RESULTS:
            body = found.get("output")
            texts, blocks = pieces.of(body)
            call_id = string_at(self.raw, found.get("call_id"))
            self.items.append(
                Item("result", "tool", span, call_id=call_id, body=body, texts=texts, blocks=blocks)
            )
        elif kind == "reasoning":
            self.items.append(Item("thinking", "assistant", span))
        elif role:
            self.items.append(Item("text", role, span))
        else:
            self.items.append(Item("other", "assistant" if kind.endswith("_call") else "tool", span))
        return end


class _Chat(TopReader):
    def conversation(self) -> Conversation:
        self.walk()
        return Conversation(
            dialect="chat",
            raw=self.raw,
            items=tuple(self.items),
            model=self.string("model"),
            stream=self.is_true("stream"),
            session=self.string("prompt_cache_key"),
            parts=self.sizes({"instructions": "system", "tools": "tools", self.list_key: "messages"}),
            top=self.top,
            borders=tuple(self.borders),
        )

    def _element(self, start: int) -> int:
        if self.text[start : start + 1] != "{":
            return skip(self.text, start)
        pieces = Pieces(self.text, self.raw, TEXT_TYPES)
        found, end = members(self.text, start, {"content": pieces.read})
        role, span = string_at(self.raw, found.get("role")), (start, end)
        if role == "tool":
            body = found.get("content")
            texts, blocks = pieces.of(body)
            call_id = string_at(self.raw, found.get("tool_call_id"))
            self.items.append(
                Item("result", role, span, call_id=call_id, body=body, texts=texts, blocks=blocks)
            )
            return end
        self.items.append(Item("text", role, found.get("content", span)))
        calls = found.get("tool_calls")
        if calls is not None and self.text[calls[0]] == "[":
            for call in elements(self.text, calls[0])[0]:
                self._call(call)
        return end

    def _call(self, span: Span) -> None:
        if self.text[span[0]] != "{":
            return
        found, _ = members(self.text, span[0])
        function = found.get("function") or found.get("custom")
        if function is None or self.text[function[0]] != "{":
            return
        inner, _ = members(self.text, function[0])
        body = inner.get("arguments") or inner.get("input")
        self.items.append(
            Item(
                "call",
                "assistant",
                span,
                call_id=string_at(self.raw, found.get("id")),
                name=string_at(self.raw, inner.get("name")),
                body=body,
                in_string=body is not None and self.text[body[0]] == '"',
                is_free="custom" in found,
            )
        )


def read_responses(raw: bytes, earlier: Conversation | None = None) -> Conversation:
    """The conversation of a Responses request; `earlier` is one that may begin like it. Raises Unreadable."""
    return _Responses(raw, earlier).conversation()


def read_chat(raw: bytes, earlier: Conversation | None = None) -> Conversation:
    """The conversation of a Chat Completions request. Raises Unreadable."""
    return _Chat(raw, earlier).conversation()


def arguments_of(conversation: Conversation, item: Item) -> object:
    """A call's arguments as a value, in any dialect; None where there are none or they are no JSON."""
    if item.body is None or item.is_free:
        return None
    value = decoded(conversation.bytes_of(item.body), item.body[0])
    return (
        decoded(value.encode("utf-8", "surrogateescape"))
        if item.in_string and isinstance(value, str)
        else value
    )

"""Conversations as hosts would send them, in every dialect, from a list of steps."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pensieve_mcp.gateway.reading import Facts
from pensieve_mcp.spellbook.registry import spellbook

DIALECTS = ("anthropic", "responses", "chat")
FACTS = Facts(frozenset({"pensieve"}), frozenset(spellbook()))
LONG = "The treaty was signed at Velsay. " * 40
NAMES = {
    "anthropic": "mcp__pensieve__{}",
    "responses": "{}",
    "chat": "pensieve_{}",
}


@dataclass
class Step:
    """One call with its result. `tool` of ours, or a host's name when `host`."""

    call_id: str
    tool: str
    arguments: dict[str, Any]
    result: str
    host: bool = False
    is_error: bool = False
    server: str = "pensieve"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Talk:
    """Builds steps; numbers are given as the ledger gives them, two to a call."""

    steps: list[Step] = field(default_factory=list)
    last: int = 0

    def own(
        self, tool: str, arguments: dict[str, Any], words: str, *, facts: str = "", is_error: bool = False
    ) -> int:
        """A call of ours; answers its result's number."""
        self.last += 2
        middle = "error · " if is_error else f"{facts} · " if facts else ""
        text = f"m{self.last} · {middle}{max(1, len(words) // 4):,} tokens · 20,000 left\n{words}"
        self.steps.append(Step(f"call_{len(self.steps):04}", tool, arguments, text, is_error=is_error))
        return self.last

    def read(self, words: str, chunk: int = 1) -> int:
        return self.own("readChunk", {"chunk_id": chunk}, words, facts=f"c{chunk} · report.md § {chunk}")

    def delete(self, msg_id: str | int, **more: Any) -> int:
        return self.own("deleteContext", {"msg_id": msg_id, **more}, f"Deleted {msg_id}.")

    def restore(self, msg_id: str) -> int:
        return self.own("restoreContext", {"msg_id": msg_id}, f"Restored {msg_id} in its old place.")

    def host(self, words: str, tool: str = "Read", **arguments: Any) -> str:
        """A call of the host's own tool; answers its call id."""
        call_id = f"call_{len(self.steps):04}"
        self.steps.append(Step(call_id, tool, arguments or {"file_path": "src/x.py"}, words, host=True))
        return call_id

    def body(
        self, dialect: str, *, upto: int | None = None, indent: int | None = None, ascii_only: bool = False
    ) -> bytes:
        """The request that is sent after the last step."""
        made = {"anthropic": _anthropic, "responses": _responses, "chat": _chat}[dialect](self.steps[:upto])
        return json.dumps(made, ensure_ascii=ascii_only, indent=indent).encode()


def _name(step: Step, dialect: str) -> str:
    return step.tool if step.host else NAMES[dialect].format(step.tool).replace("pensieve", step.server)


def _anthropic(steps: list[Step]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Work h7f3a · m2 · 3 tokens"}]
    for step in steps:
        thought = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk/+=="}
        call = {
            "type": "tool_use",
            "id": step.call_id,
            "name": _name(step, "anthropic"),
            "input": step.arguments,
        }
        messages.append({"role": "assistant", "content": [thought, {"type": "text", "text": "so"}, call]})
        content: Any = step.result if step.host else [{"type": "text", "text": step.result}]
        result = {"tool_use_id": step.call_id, "type": "tool_result", "content": content, **step.extra}
        if step.is_error:
            result["is_error"] = True
        messages.append({"role": "user", "content": [result]})
    if steps:
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    return {"model": "m", "system": [{"type": "text", "text": "s", "cache_control": {}}], "messages": messages,
            "tools": tools, "stream": True, "x_unknown": {"a": [1e5, None]}}  # fmt: skip


def _responses(steps: list[Step]) -> dict[str, Any]:
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Work"}]}
    ]
    for step in steps:
        items.append({"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA==", "summary": []})
        call = {"type": "function_call", "name": _name(step, "responses"), "arguments": json.dumps(step.arguments),
                "call_id": step.call_id}  # fmt: skip
        if not step.host:
            call["namespace"] = f"mcp__{step.server}"
        items.append(call)
        output: Any = step.result
        if not step.host:
            output = [{"type": "input_text", "text": "Wall time: 0.0123 seconds\nOutput:"},
                      {"type": "input_text", "text": step.result}]  # fmt: skip
        items.append({"type": "function_call_output", "call_id": step.call_id, "output": output})
    return {"model": "m", "input": items, "tools": [{"type": "function", "name": "exec"}], "store": False}


def _chat(steps: list[Step]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Work"}]
    for step in steps:
        function = {"name": _name(step, "chat"), "arguments": json.dumps(step.arguments)}
        call = {"id": step.call_id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": step.call_id, "content": step.result})
    return {"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}


def deleted_talk() -> Talk:
    talk = Talk()
    talk.delete(f"m{talk.read(LONG)}")
    return talk

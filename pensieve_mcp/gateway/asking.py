"""The gateway's rule for whoever holds a conversation as steps: plugins of hosts that let one change messages.

It makes a request of the steps and lets `rewrite` answer, so that a plugin and the gateway cannot differ. What a plugin
does with the answer, and when, is its own affair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pensieve_mcp.gateway.reading import Facts
from pensieve_mcp.gateway.rewrite import rewrite
from pensieve_mcp.gateway.timing import Policy


def forgotten(steps: Sequence[Mapping[str, Any]], facts: Facts) -> dict[str, dict[str, Any]]:
    """What stands in place of which result or call: `{"results": {id: text}, "calls": {id: arguments}}`.

    A step is a call with its result, in order: `id`, `tool` as the host calls it, `input`, `text`, `isError`. What is
    no step, or has an id that stood before, passes by. Never raises.
    """
    body, known = _request(steps)
    raw = json.dumps(body).encode("ascii")
    new, _ = rewrite(raw, "anthropic", facts, Policy("eager"))
    answer: dict[str, dict[str, Any]] = {"results": {}, "calls": {}}
    if new == raw:
        return answer
    for message in json.loads(new)["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_use" and block["input"] != known[block["id"]][0]:
                answer["calls"][block["id"]] = block["input"]
            elif block["type"] == "tool_result" and block["content"] != known[block["tool_use_id"]][1]:
                answer["results"][block["tool_use_id"]] = block["content"]
    return answer


def _request(steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, tuple[Any, str]]]:
    """The conversation as a request, and input and text of each step by its id."""
    messages: list[dict[str, Any]] = []
    known: dict[str, tuple[Any, str]] = {}
    for step in steps:
        if not isinstance(step, Mapping):
            continue
        name, tool, text = step.get("id"), step.get("tool"), step.get("text")
        given = step.get("input")
        if not (isinstance(name, str) and isinstance(tool, str) and isinstance(text, str)) or name in known:
            continue
        known[name] = (given if isinstance(given, dict) else {}, text)
        call = {"type": "tool_use", "id": name, "name": tool, "input": known[name][0]}
        result = {
            "type": "tool_result",
            "tool_use_id": name,
            "content": text,
            "is_error": bool(step.get("isError")),
        }
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"messages": messages}, known

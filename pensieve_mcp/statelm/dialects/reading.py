"""Calls that models write into their text: in tags, in a code fence, or bare. Lenient, since a call that can be read is
worth more than an error."""

from __future__ import annotations

import json
import re
from typing import Any

from pensieve_mcp.statelm.turns import Call, Reply

TAGGED = re.compile(r"<tool_call>\s*(\{.*?\})\s*(?:</tool_call>|\Z)", re.S)
FENCED = re.compile(r"```(?:json|tool_call)?\s*(\{.*?\})\s*```", re.S)
THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.S)


def thought_and_calls(reply: Reply) -> tuple[str, list[Call]]:
    """The provider's calls, else those found in the text; the rest of the text is the thought."""
    text = THINKING.sub("", reply.text).strip()
    if reply.calls:
        return text, list(reply.calls)
    for pattern in (TAGGED, FENCED):
        calls = [call for match in pattern.finditer(text) if (call := call_from(match[1])) is not None]
        if calls:
            return pattern.sub("", text).strip(), calls
    if text.startswith("{") and (call := call_from(text)) is not None:
        return "", [call]
    return text, []


def call_from(text: str) -> Call | None:
    """`{"name": …, "arguments": {…}}`, arguments perhaps as text; None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = arguments_from(value.get("arguments", value.get("parameters", {})))
    return None if arguments is None else Call(value["name"], arguments)


def arguments_from(value: Any) -> dict[str, Any] | None:
    """Arguments as an object; None where there is none in it."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError:
            return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None

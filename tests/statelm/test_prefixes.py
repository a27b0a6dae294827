"""How much of a request is the beginning of the one before: what prompt caches and keys and values live by. Counted in
bytes of the prompt as servers print it: tools, then messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from pensieve_mcp.statelm.backends import Backend, Choice
from pensieve_mcp.statelm.backends.anthropic import Anthropic
from pensieve_mcp.statelm.backends.openai import OpenAI
from pensieve_mcp.statelm.dialects.ours import Ours
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.workspace import Workspace

OPENAI = "https://api.openai.com/v1"
SERVER = "http://127.0.0.1:8080/v1"
READS = 18


class Line:
    """Stands in for the connection: keeps what was sent, and answers with what a tidy reader does next."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], list[dict[str, Any]]]) -> None:
        self.sent: list[dict[str, Any]] = []
        self._answer = answer
        self._todo = [
            step
            for number in range(READS)
            for step in ("read", *(["note"] if number % 3 == 0 else []), "delete")
        ] + ["finish"]

    def stream(
        self, path: str, body: Mapping[str, Any], take: Callable[[Iterator[dict[str, Any]]], Any]
    ) -> Any:
        self.sent.append(json.loads(json.dumps(body)))
        place = len(self.sent)
        last = next(text for text in reversed(texts(body)) if " · c" in text) if place > 2 else ""
        name, given = {
            "search": ("searchEngine", {"keyword": "herons river mill"}),
            "read": ("readChunk", {"enable_scan": True}),
            "note": ("note", {"key": f"day {place}", "summary": "herons", "content": "We saw herons."}),
            "delete": ("deleteContext", {"msg_id": last.split(" ", 1)[0]}),
            "finish": ("finish", {"answer": "many"}),
        }["search" if place == 1 else self._todo[place - 2]]
        return take(iter(self._answer(name, given)))

    def close(self) -> None:
        """Nothing is open."""


def texts(body: Mapping[str, Any]) -> list[str]:
    found = []
    for message in body["messages"]:
        content = message.get("content")
        found += [content] if isinstance(content, str) else [str(b.get("content", "")) for b in content or ()]
    return found


def openai_says(name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(given)}
    delta = {"tool_calls": [{"index": 0, "id": "a", "function": function}]}
    return [{"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}, {"done": True}]


def anthropic_says(name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {"usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": name}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "input_json_delta", "partial_json": json.dumps(given)}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]  # fmt: skip


def common(one: str, two: str) -> int:
    """Letters of their common beginning."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )


def kept(bodies: list[dict[str, Any]]) -> float:
    """Share of all bytes but the first request's that the one before began with, word for word."""
    prompts = [
        "\n".join(json.dumps(part) for part in (*body["tools"], body.get("system"), *body["messages"]))
        for body in bodies
    ]
    same = sum(common(one, two) for one, two in pairwise(prompts))
    return same / sum(len(one) for one in prompts[1:])


def sent(workspace: Workspace, make: Callable[[Any], Backend], answer: Any) -> list[dict[str, Any]]:
    line = Line(answer)
    asked = Loop.over(workspace, "How many herons?", Ours()).run(make(line))
    assert asked.answer == "many" and asked.metrics.errors == 0 and asked.metrics.deletions == READS
    return line.sent


@pytest.fixture
def shares(workspace: Workspace) -> dict[str, float]:
    found = {}
    for name, url, constrain in (
        ("allowed", OPENAI, None),
        ("strict", OPENAI, True),
        ("narrow", SERVER, True),
        ("required", SERVER, None),
        ("free", SERVER, False),
    ):
        choice = Choice("openai", "m", url, constrain=constrain)
        found[name] = kept(sent(workspace, lambda line, c=choice: OpenAI(c, poster=line), openai_says))
        for key in [one.key for one in workspace.notebook.list().lines]:
            workspace.notebook.purge(key)
    return found


def test_a_list_of_allowed_tools_keeps_the_beginning_and_naming_ids_in_schemas_loses_it(
    shares: dict[str, float],
) -> None:
    assert min(shares["required"], shares["free"]) > 0.8 and shares["allowed"] > shares["required"]
    assert max(shares["strict"], shares["narrow"]) < 0.5


def test_anthropic_is_told_up_to_where_to_keep_what_it_computed(workspace: Workspace) -> None:
    choice = Choice("anthropic", "m", "http://127.0.0.1:9", key="k")
    bodies = sent(workspace, lambda line: Anthropic(choice, poster=line), anthropic_says)

    for body in bodies:
        marks = [block for block in body["system"] if "cache_control" in block]
        blocks = [block for message in body["messages"] for block in message["content"]]
        assert len(marks) == 1 and [block for block in blocks if "cache_control" in block] == blocks[-1:]
        for block in (*body["system"], *blocks):
            block.pop("cache_control", None)
    assert kept(bodies) > 0.7

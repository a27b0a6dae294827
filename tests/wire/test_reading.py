"""What an earlier request began with is not read again, for as many conversations as memory is given to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pensieve_mcp.wire import reading
from pensieve_mcp.wire.conversation import Conversation
from pensieve_mcp.wire.dialects import read_request
from pensieve_mcp.wire.reading import Earlier


def request(name: str, turns: int) -> bytes:
    """Conversations that differ in their call ids alone, as those of one host on one task do; the last message is
    marked for caching, so it changes from turn to turn."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"{name}-{turn}", "name": "Read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"{name}-{turn}", "content": "as before " * 40}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    messages[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    return json.dumps({"system": "s" * 9_000, "messages": messages}).encode()


def taken_over(before: Conversation, after: Conversation) -> int:
    """Items that were not read again."""
    return sum(a is b for a, b in zip(before.items, after.items, strict=False))


def test_each_of_many_conversations_goes_on_from_its_own_last_request() -> None:
    earlier = Earlier()
    first = [read_request(request(f"c{n:02}", 6), "anthropic", earlier) for n in range(40)]
    again = [read_request(request(f"c{n:02}", 7), "anthropic", earlier) for n in range(40)]

    assert [taken_over(a, b) for a, b in zip(first, again, strict=True)] == [12] * 40
    assert [one.items for one in again] == [
        read_request(request(f"c{n:02}", 7), "anthropic").items for n in range(40)
    ]


def test_what_is_kept_is_bounded_and_the_longest_unused_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one = read_request(request("a", 6), "anthropic")
    monkeypatch.setattr(reading, "MOST_BYTES", 2 * (len(one.raw) + 13 * reading.ITEM_BYTES) + 5_000)
    earlier = Earlier()
    first = {name: read_request(request(name, 6), "anthropic", earlier) for name in "abc"}

    assert taken_over(first["a"], read_request(request("a", 7), "anthropic", earlier)) <= 1
    assert taken_over(first["c"], read_request(request("c", 7), "anthropic", earlier)) == 12
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    last = read_request(request("d", 6), "anthropic", earlier)
    assert taken_over(last, read_request(request("d", 7), "anthropic", earlier)) == 12

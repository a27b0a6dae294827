"""What an answer cost is read off it, streamed or not, however it is cut into pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.wire.usage import Usage, UsageReader

ANTHROPIC: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 900,
     "cache_creation_input_tokens": 90, "output_tokens": 1}}},
    {"type": "content_block_delta", "delta": {"text": 'say "usage": 7'}},
    {"type": "message_delta", "usage": {"output_tokens": 42}},
]  # fmt: skip
RESPONSES = [
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.completed", "response": {"usage": {"input_tokens": 1000, "output_tokens": 42,
     "input_tokens_details": {"cached_tokens": 900}}}},
]  # fmt: skip
CHAT = [
    {"choices": [{"delta": {"content": "x"}}], "usage": None},
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 42,
            "prompt_tokens_details": {"cached_tokens": 900},
        },
    },
]
CASES: list[tuple[Any, list[dict[str, Any]], Usage]] = [
    ("anthropic", ANTHROPIC, Usage(1000, 900, 90, 42)),
    ("responses", RESPONSES, Usage(1000, 900, 0, 42)),
    ("chat", CHAT, Usage(1000, 900, 0, 42)),
]


@given(st.sampled_from(CASES), st.integers(1, 50), st.booleans())
def test_a_streamed_answer_tells_its_cost(
    case: tuple[Any, list[dict[str, Any]], Usage], size: int, crlf: bool
) -> None:
    dialect, events, expected = case
    end = "\r\n" if crlf else "\n"
    stream = "".join(f"event: {e.get('type')}{end}data: {json.dumps(e)}{end}{end}" for e in events).encode()
    reader = UsageReader(dialect, stream=True)
    for start in range(0, len(stream), size):
        reader.feed(stream[start : start + size])

    assert reader.usage() == expected


@pytest.mark.parametrize(("dialect", "events", "expected"), CASES[1:])
def test_an_answer_in_one_piece_tells_its_cost(
    dialect: Any, events: list[dict[str, Any]], expected: Usage
) -> None:
    reader = UsageReader(dialect, stream=False)
    reader.feed(json.dumps(events[-1].get("response", events[-1])).encode())

    assert reader.usage() == expected


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_tell_nothing_and_raise_nothing(data: bytes, stream: bool) -> None:
    reader = UsageReader("anthropic", stream=stream)
    reader.feed(data)
    reader.feed(b'\ndata: {"usage": [1], "message": {"usage": 3}}\n')

    assert reader.usage() is None

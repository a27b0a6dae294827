"""Calls read off a model's answer, in every dialect, streamed or not, in whatever pieces it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.wire.calls import Call, CallReader, arguments_digest
from pensieve_mcp.wire.conversation import Dialect

ARGUMENTS = {"msg_id": "m2", "summary": "Größe „ü“ \n }"}
WORDS = json.dumps(ARGUMENTS)
DIGEST = arguments_digest(ARGUMENTS)


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: x\ndata: {json.dumps(event)}\n\n".encode() for event in [{"type": "ping"}, *events]
    )


def block(place: int, name: str) -> dict[str, Any]:
    made = {"type": "tool_use", "id": name, "name": "N", "input": {}}
    return {"type": "content_block_start", "index": place, "content_block": made}


def delta(place: int, **fields: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": place, "delta": fields}


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": fields}


def chat(delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}


STREAMS: dict[Dialect, bytes] = {
    "anthropic": sse(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        delta(0, type="text_delta", text="content_block"),
        {"type": "content_block_stop", "index": 0},
        block(1, "a"),
        delta(1, type="input_json_delta", partial_json=WORDS[:9]),
        delta(1, type="input_json_delta", partial_json=WORDS[9:]),
        {"type": "content_block_stop", "index": 1},
        block(2, "b"),
        {"type": "content_block_stop", "index": 2},
    ),
    "responses": sse(
        {"type": "response.output_item.added", "item": {"type": "function_call", "call_id": "a"}},
        item(type="message", content=[]),
        item(type="function_call", call_id="a", name="N", namespace="S", arguments=WORDS),
        item(type="function_call", call_id="b", name="N", arguments=""),
    ),
    "chat": sse(
        chat({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "N", "arguments": ""}}]}),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": WORDS[:5]}}]}),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": WORDS[5:]}}]}),
        chat({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "N", "arguments": "{}"}}]}),
        chat({}, "tool_calls"),
    ),
}  # fmt: skip
WHOLE: dict[Dialect, dict[str, Any]] = {
    "anthropic": {
        "content": [
            {"type": "text", "text": "x"},
            {"type": "tool_use", "id": "a", "name": "N", "input": ARGUMENTS},
            {"type": "tool_use", "id": "b", "name": "N", "input": {}},
        ]
    },
    "responses": {
        "output": [
            {"type": "function_call", "call_id": "a", "name": "N", "namespace": "S", "arguments": WORDS},
            {"type": "function_call", "call_id": "b", "name": "N", "arguments": "{}"},
        ]
    },
    "chat": {
        "choices": [
            {
                "message": {
                    "tool_calls": [
                        {"id": "a", "function": {"name": "N", "arguments": WORDS}},
                        {"id": "b", "function": {"name": "N", "arguments": "{}"}},
                    ]
                }
            }
        ]
    },
}
dialects = pytest.mark.parametrize("dialect", sorted(STREAMS))


def expected(dialect: Dialect) -> list[Call]:
    namespace = "S" if dialect == "responses" else ""
    return [Call("a", "N", namespace, DIGEST), Call("b", "N", "", arguments_digest({}))]


@dialects
@given(data=st.data())
def test_a_stream_tells_its_calls_however_it_is_cut(dialect: Dialect, data: st.DataObject) -> None:
    stream = STREAMS[dialect]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = CallReader(dialect, stream=True)
    found: list[Call] = []
    for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[first:last])

    assert found == expected(dialect)
    assert reader.end() == []


@dialects
def test_a_call_is_told_with_the_bytes_that_complete_it(dialect: Dialect) -> None:
    """Not later: with them the host may make it."""
    reader = CallReader(dialect, stream=True)
    lines = STREAMS[dialect].splitlines(keepends=True)
    told = [len(reader.feed(line)) for line in lines]
    assert sum(told) == 2
    last = max(n for n, count in enumerate(told) if count)
    assert all(not line.startswith(b"data:") for line in lines[last + 1 :])


@dialects
def test_an_answer_in_one_piece_tells_its_calls_at_its_end(dialect: Dialect) -> None:
    reader = CallReader(dialect, stream=False)
    body = json.dumps(WHOLE[dialect]).encode()
    assert reader.feed(body[:20]) == [] and reader.feed(body[20:]) == []
    assert reader.end() == expected(dialect)


@dialects
@pytest.mark.parametrize("stream", [True, False])
@given(noise=st.binary(max_size=200))
def test_noise_tells_nothing_and_raises_nothing(dialect: Dialect, stream: bool, noise: bytes) -> None:
    reader = CallReader(dialect, stream=stream)
    marks = b'data: {"type":"content_block_stop","index":{}} "tool_calls" "finish_reason" response.output_item.done\n'
    assert reader.feed(noise + b"\n" + marks + b"data: [1]\n" + noise) == []
    assert reader.end() == []


def test_arguments_are_the_same_whatever_their_order() -> None:
    assert arguments_digest({"a": 1, "b": "ü"}) == arguments_digest({"b": "ü", "a": 1})
    assert arguments_digest({"a": 1}) != arguments_digest({"a": "1"})


def test_arguments_that_are_no_object_are_no_call() -> None:
    event = item(type="function_call", call_id="a", name="N", arguments="[1")
    assert CallReader("responses", stream=True).feed(sse(event)) == []

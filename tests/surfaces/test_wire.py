"""Lines that are no messages, protocols older and newer than ours: real processes, answered in the protocol's words."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
READ = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "readNote", "arguments": {}}}


def piped(parameters: Any, *lines: str | dict[str, Any]) -> list[dict[str, Any]]:
    """What the server answers to these lines; the input ends behind them."""
    how = parameters()
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    done = subprocess.run(
        [how.command, *how.args],
        env=how.env,
        input=text.encode("utf-8", "surrogatepass"),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


LONE = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"readNote","arguments":{"key":"\\ud83d"}}}'


@pytest.mark.parametrize(
    ("line", "number", "code", "words"),
    [
        pytest.param("this is not JSON", None, -32700, "not JSON", id="no JSON"),
        pytest.param(json.dumps(READ)[:-3], None, -32700, "not JSON", id="half a message"),
        pytest.param(LONE, 7, -32700, "surrogate", id="half a surrogate pair"),
        pytest.param("[" * 5_000, None, -32700, "not JSON", id="deep"),
        pytest.param('{"id": 7, "method": "tools/list"}', 7, -32600, "JSON-RPC 2.0", id="no version"),
        pytest.param('{"jsonrpc": "2.0", "id": 7}', 7, -32600, "JSON-RPC 2.0", id="no method"),
        pytest.param(
            '{"jsonrpc": "2.0", "id": "a", "method": "x", "params": [1]}', "a", -32600, "JSON-RPC", id="list"
        ),
        pytest.param(json.dumps([READ]), None, -32600, "batches", id="a batch"),
        pytest.param(
            '{"jsonrpc":"1.0","id":{"a":1},"method":"x"}', None, -32600, "2.0", id="an id that is none"
        ),
    ],
)
def test_a_line_that_is_no_message_is_answered_and_the_next_one_served(
    parameters: Any, line: str, number: Any, code: int, words: str
) -> None:
    answers = piped(parameters, INITIALIZE, INITIALIZED, line, READ)
    found = {answer["id"]: answer for answer in answers if "id" in answer}

    assert set(found) == {1, number, 9}
    assert found[number]["error"]["code"] == code and words in found[number]["error"]["message"]
    assert "isError" not in found[9]["result"] or not found[9]["result"]["isError"]


@pytest.mark.parametrize(
    "line",
    ["", "   ", '{"method": "notifications/odd"}', '{"jsonrpc":"2.0","id":3,"result":1,"error":2}'],
)
def test_what_wants_no_answer_gets_none(parameters: Any, line: str) -> None:
    """JSON-RPC: a notification is never answered, nor is an answer, nor is nothing."""
    answers = piped(parameters, INITIALIZE, INITIALIZED, line, READ)

    assert [answer["id"] for answer in answers if "id" in answer] == [1, 9]


def test_before_the_greeting_too(parameters: Any) -> None:
    answers = piped(parameters, "hello?", INITIALIZE, INITIALIZED, READ)

    assert [answer["id"] for answer in answers if "id" in answer] == [None, 1, 9]


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-03-26", "2025-06-18", "1999-01-01", "2099-12-31"])
def test_an_older_and_an_unknown_protocol_are_served_as_far_as_we_can(parameters: Any, asked: str) -> None:
    """The server names the revision it speaks: the one asked for, or its own; the client decides."""
    greeting = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": asked}}
    answers = {one["id"]: one for one in piped(parameters, greeting, INITIALIZED, READ) if "id" in one}
    spoken = answers[1]["result"]["protocolVersion"]

    assert spoken == asked if "2024" <= asked <= "2026" else spoken.startswith("2025-")
    assert not answers[9]["result"].get("isError")


def test_a_newer_protocol_is_told_which_ones_there_are(parameters: Any) -> None:
    """A client of the stateless era whose revision we do not know can fall back to one that we name."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2031-01-01",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    (answer,) = [one for one in piped(parameters, asked) if "id" in one]

    assert "2026-07-28" in json.dumps(answer["error"])

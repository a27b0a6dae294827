"""Real coding agents started by `pensieve run`, with a scripted model: what they deleted is not in what is sent.

Skipped aloud where an agent is not installed. A fresh home each time, no telemetry, nothing beyond the loopback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_runs import binary
from scripted_model import ScriptedModel, tool_results
from stages import HOST_SECRET, PROMPT, SECRET, Stage, handle, stage

from pensieve_mcp import sample

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(600)]


def reading(host: str) -> dict[str, Any]:
    """The host's own tool reads a file."""
    return {
        "claude": {"tool": "Read", "args": {"file_path": "big.txt"}},
        "codex": {"tool": "exec_command", "args": {"cmd": "cat big.txt"}},
        "opencode": {"tool": "read", "args": {"filePath": "big.txt"}},
    }[host]


FIRST = {
    "claude": ["-p", PROMPT, "--allowedTools", "mcp__pensieve", "Read"],
    "codex": ["exec", "--skip-git-repo-check", PROMPT],
    "opencode": ["run", PROMPT],
}
AGAIN = {
    "claude": ["-p", "Go on.", "--continue", "--allowedTools", "mcp__pensieve", "Read"],
    "codex": ["exec", "--skip-git-repo-check", "resume", "--last", "Go on."],
    "opencode": ["run", "--continue", "Go on."],
}

hosts = pytest.mark.parametrize(
    "host",
    [
        pytest.param(host, marks=pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed"))
        for host in FIRST
    ],
)


@pytest.fixture
def turns(host: str, tmp_path: Path) -> list[list[dict[str, Any]]]:
    read = reading(host)
    key, name = next(iter(read["args"].items()))
    if host != "codex":
        read["args"][key] = str(tmp_path / "work" / name)
    return [
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [read],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(1, "h")}}],
        [{"tool": "checkBudget", "args": {}}],
        [{"text": "FIRST END"}],
        # a new process of host, server and gateway goes on with the conversation
        [{"tool": "restoreContext", "args": {"msg_id": handle(0, "m")}}],
        [{"tool": "restoreContext", "args": {"msg_id": handle(1, "h")}}],
        [{"text": "SECOND END"}],
        [{"text": "THIRD END"}],
    ]


@pytest.fixture
def played(host: str, turns: list[list[dict[str, Any]]], tmp_path: Path) -> Iterator[Stage]:
    with ScriptedModel(turns) as model:
        yield stage(host, tmp_path, model)


@hosts
def test_the_whole_cycle_with_resume_and_restart(host: str, played: Stage) -> None:
    configured = played.configured()
    told = played.run(*FIRST[host])
    sent = played.sent()
    first = [one["body"] for one in played.model.turns_taken()][-5:]
    results = tool_results(played.model.turns_taken()[-1]["body"])

    assert [SECRET in body for body in sent][-6:] == [False, True, True, False, False, False]
    assert [HOST_SECRET in body for body in sent][-6:] == [False, False, True, True, False, False]
    asked = len(sent)
    assert results[0]["text"].endswith("brings it back]") and results[1]["text"].startswith("[pensieve: h")
    assert "whole conversation is seen by the gateway" in results[4]["text"]
    assert "2 messages forgotten" in told and "1 chunk read, 1 result of the host" in told

    played.run(*AGAIN[host])
    later = played.sent()[asked:]
    assert [SECRET in body for body in later][-3:] == [False, True, True]
    assert [HOST_SECRET in body for body in later][-3:] == [False, False, True]
    played.run(*AGAIN[host])
    last = played.sent()[-1]
    assert SECRET in last and HOST_SECRET in last
    restored = tool_results(played.model.turns_taken()[-1]["body"])
    assert restored[0]["text"] == tool_results(first[1])[0]["text"], "to the byte"
    assert restored[1]["text"] == tool_results(first[2])[1]["text"]
    assert played.model.done()
    assert played.configured() == configured


def sentences(text: str) -> list[str]:
    """Runs of words of one line, the longest first."""
    return sorted(re.findall(r"[A-Za-z]+(?: [a-z]+){4,}", text), key=len, reverse=True)


@hosts
def test_the_whole_cycle_over_the_sample_library(host: str, tmp_path: Path) -> None:
    """Search, read, note with a quote, delete, finish; in the next session restore. Both deleted results leave the
    prompt and stay out; the note's quote, which the model wrote itself, stays in.
    """
    found = lambda results: "c" + re.search(r"\bc(\d+) · ", results[0]["text"])[1]  # type: ignore[index]  # noqa: E731
    evidence = lambda results: [  # noqa: E731
        {"chunk_id": found(results), "quote": sentences(results[1]["text"])[0]}
    ]
    note = {"key": "light", "summary": "A finding", "content": "As quoted.", "evidence": evidence}
    turns: list[list[dict[str, Any]]] = [
        [
            {
                "tool": "searchEngine",
                "args": {"keyword": "the keeper of the light", "queries": ["barrels of oil"]},
            }
        ],
        [{"tool": "readChunk", "args": {"chunk_id": found}}],
        [{"tool": "note", "args": note}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(1, "m")}}],
        [{"tool": "finish", "args": {"answer": "Found.", "citations": ["light"]}}],
        [{"text": "FIRST END"}],
        [{"tool": "restoreContext", "args": {"msg_id": handle(1, "m")}}],
        [{"text": "SECOND END"}],
    ]
    with ScriptedModel(turns) as model:
        played = stage(host, tmp_path, model, Path(sample.__file__).parent / "library")
        told = played.run(*FIRST[host])
        before = tool_results(model.turns_taken()[-4]["body"])[1]["text"]
        quote, *others = sentences(before)
        secret = next(one for one in others if one not in quote)
        sent = played.sent()[-7:]
        assert [secret in body for body in sent] == [False, False, True, True, True, False, False]
        assert quote in sent[-1] and "2 messages forgotten" in told
        last = tool_results(model.turns_taken()[-1]["body"])
        assert "Evidence: 1 ok." in last[2]["text"] and all("· error" not in one["text"] for one in last)

        played.run(*AGAIN[host])
        assert [secret in body for body in played.sent()[-2:]] == [False, True]
        assert tool_results(model.turns_taken()[-1]["body"])[1]["text"] == before, "to the byte"
        assert model.done()

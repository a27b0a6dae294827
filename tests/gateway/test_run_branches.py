"""Sub-agents and forks in real coding agents behind the gateway: each conversation forgets for itself.

Skipped aloud where an agent is not installed. A fresh home each time, no telemetry, nothing beyond the loopback.
"""

from __future__ import annotations

import json
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from host_runs import binary
from scripted_model import ScriptedModel, tool_results
from stages import PROMPT, SECRET, Lanes, Stage, handle, stage

from pensieve_mcp.workspace import Workspace

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(600)]

Turns = list[list[dict[str, Any]]]
READ = {"tool": "readChunk", "args": {"chunk_id": "1"}}
BUDGET: dict[str, Any] = {"tool": "checkBudget", "args": {}}
CODEX = ["exec", "--skip-git-repo-check"]
START = {
    "claude": ["-p", PROMPT, "--allowedTools", "mcp__pensieve", "Agent"],
    "codex": [*CODEX, PROMPT],
    "codex with its newer agents": [*CODEX, "-c", "features.multi_agent_v2=true", PROMPT],
    "opencode": ["run", PROMPT],
}


def hosts(*names: str) -> Any:
    return pytest.mark.parametrize(
        "host",
        [
            pytest.param(
                name,
                marks=pytest.mark.skipif(
                    binary(name.split()[0]) is None, reason=f"{name.split()[0]} is not installed"
                ),
            )
            for name in names
        ],
    )


def agent_of(results: list[dict[str, Any]]) -> str:
    """The last sub-agent's id, as Codex told it."""
    return str(json.loads(next(r["text"] for r in reversed(results) if "agent_id" in r["text"]))["agent_id"])


def begins(host: str, word: str, *, forked: bool = False) -> Turns:
    """The turns in which a sub-agent of this host is begun with a task, and waited for."""
    task = f"{word}: read the chunk."
    if host == "claude":
        arguments = {"description": "read", "subagent_type": "general-purpose", "run_in_background": False}
        return [[{"tool": "Agent", "args": {**arguments, "prompt": task}}]]
    if host == "opencode":
        arguments = {"description": "read", "subagent_type": "general"}
        return [[{"tool": "task", "args": {**arguments, "prompt": task}}]]
    wait: dict[str, Any] = {"timeout_ms": 120_000}
    if host == "codex":
        return [
            [{"tool": "spawn_agent", "args": {"message": task}}],
            [{"tool": "wait_agent", "args": {**wait, "targets": lambda results: [agent_of(results)]}}],
        ]
    named = {"message": task, "task_name": word.lower(), "fork_turns": "all" if forked else "none"}
    return [[{"tool": "spawn_agent", "args": named}], [{"tool": "wait_agent", "args": wait}]]


class Told:
    """The requests of a lane, oldest first: those in which a tool of ours may be called."""

    def __init__(self, played: Stage, lanes: Lanes) -> None:
        self.bodies: dict[str, list[dict[str, Any]]] = {word: [] for word in lanes.lanes}
        for request in played.model.turns_taken():
            self.bodies[lanes.lane(request["body"])].append(request["body"])

    def holds(self, word: str, count: int) -> list[bool]:
        """Whether the last `count` requests of the lane hold the text."""
        return [SECRET in json.dumps(body, ensure_ascii=False) for body in self.bodies[word][-count:]]

    def result(self, word: str, place: int, request: int = -1) -> str:
        return str(tool_results(self.bodies[word][request])[place]["text"])


def episodes_of(played: Stage, results: list[dict[str, Any]]) -> set[int]:
    """The conversations of the ledger in which these results of ours stand, by the handles at their heads."""
    found: set[int] = set()
    with Workspace.open([played.library], environment=played.environment) as workspace:
        for place in range(len(results)):
            found.add(workspace.ledger.find(int(handle(place, "m")(results)[1:])).episode_id)
    return found


@hosts(*START)
def test_a_subagents_deletion_is_its_own_and_so_is_the_main_conversations(host: str, tmp_path: Path) -> None:
    """All read the same chunk. The first sub-agent deletes its copy and restores it; then the main conversation
    deletes its own, and the second sub-agent keeps what it read.
    """
    main: Turns = [
        [READ],
        *begins(host, "ALPHA"),
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        *begins(host, "BETA"),
        [BUDGET],
        [{"text": "MAIN END"}],
    ]
    alpha: Turns = [
        [READ],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"tool": "restoreContext", "args": {"msg_id": handle(0, "m")}}],
        [{"text": "SUB END"}],
    ]
    lanes = Lanes(main, ALPHA=alpha, BETA=[[READ], [BUDGET], [{"text": "SUB END"}]])
    with ScriptedModel([]) as model:
        model.script = lanes  # type: ignore[assignment]
        played = stage(host.split()[0], tmp_path, model)
        played.run(*START[host])
    told = Told(played, lanes)

    assert lanes.done()
    assert told.holds("ALPHA", 4) == [False, True, False, True]
    assert told.result("ALPHA", 0) == told.result("ALPHA", 0, request=-3), "restored to the byte"
    assert "Restored m" in told.result("ALPHA", 2)
    assert told.holds("BETA", 3) == [False, True, True]
    after = len(begins(host, "BETA")) + 2  # requests after the main conversation's own deletion
    assert told.holds("", after + 2) == [True] * 2 + [False] * after
    assert "whole conversation is seen by the gateway" in told.result("", -1)
    ours = [one for one in tool_results(told.bodies[""][-1]) if " · " in one["text"][:60]]
    seen = [
        episodes_of(played, part)
        for part in (ours, *(tool_results(told.bodies[w][-1]) for w in ("ALPHA", "BETA")))
    ]
    assert all(len(one) == 1 for one in seen)
    # Codex names each agent's conversation to the server; for the others all of a session is one in the ledger
    assert len(set.union(*seen)) == (3 if host.startswith("codex") else 1)


class Together(Lanes):
    """Both sub-agents ask for their budget at the same time: neither is answered before the other has asked."""

    def __init__(self, *args: Any, **others: Turns) -> None:
        super().__init__(*args, **others)
        self.barrier = threading.Barrier(len(others))

    def turn(self, body: dict[str, Any]) -> Any:
        taken, actions = super().turn(body)
        if self.lane(body) and BUDGET in actions:
            self.barrier.wait(60)
        return taken, actions


@hosts("claude", "opencode")
def test_subagents_at_once_are_told_each_its_own_size(host: str, tmp_path: Path) -> None:
    """They share an episode of the ledger with the main conversation, but not their prompts."""
    both = [begins(host, word)[0][0] for word in ("ALPHA", "BETA")]
    main: Turns = [[READ], both, [BUDGET], [{"text": "MAIN END"}]]
    alpha: Turns = [[READ], [READ], [BUDGET], [BUDGET], [{"text": "SUB END"}]]
    lanes = Together(main, ALPHA=alpha, BETA=[[BUDGET], [BUDGET], [{"text": "SUB END"}]])
    with ScriptedModel([]) as model:
        model.script = lanes  # type: ignore[assignment]
        played = stage(host, tmp_path, model)
        played.run(*START[host])
    assert lanes.done()

    asked: list[tuple[str, int]] = []  # what was told, and the size of the request that asked
    for word in lanes.lanes:
        requests = [one for one in played.model.turns_taken() if lanes.lane(one["body"]) == word]
        for request, after in pairwise(requests):
            if any(str(block.get("name")).endswith("checkBudget") for block in request["reply"]["content"]):
                text = tool_results(after["body"])[-1]["text"]
                asked.append((text, request["reply"]["usage"]["input_tokens"]))
    assert len(asked) == 5
    for text, size in asked:
        told = re.search(r"\n([\d,]+) of [\d,]+ tokens in mind", text)
        assert told is not None
        used = int(told[1].replace(",", ""))
        if host == "opencode" and "asked at the same moment" in text:  # it names no call to the server
            assert used >= size and any(used - other in (0, 10) for _, other in asked)
        else:
            assert used - size in (0, 10), "the answer's own size may be known only after it was asked"


@hosts("codex with its newer agents")
def test_a_forked_subagent_may_delete_what_it_inherited(host: str, tmp_path: Path) -> None:
    """It begins with the main conversation's history, which keeps what it read."""
    main: Turns = [[READ], *begins(host, "ALPHA", forked=True), [BUDGET], [{"text": "MAIN END"}]]
    alpha: Turns = [
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [BUDGET],
        [{"tool": "restoreContext", "args": {"msg_id": handle(0, "m")}}],
        [{"text": "SUB END"}],
    ]
    lanes = Lanes(main, ALPHA=alpha)
    with ScriptedModel([]) as model:
        model.script = lanes  # type: ignore[assignment]
        played = stage("codex", tmp_path, model)
        played.run(*START[host])
    told = Told(played, lanes)

    assert lanes.done()
    assert told.holds("ALPHA", 4) == [True, False, False, True]
    assert told.result("ALPHA", 0) == told.result("ALPHA", 0, request=-4), "restored to the byte"
    assert "whole conversation is seen by the gateway" in told.result("ALPHA", -2)
    assert told.holds("", 4) == [True] * 4


@hosts("claude", "codex", "opencode")
def test_a_fork_and_its_origin_forget_each_for_itself(host: str, tmp_path: Path) -> None:
    turns: Turns = [
        [READ],
        [{"text": "FIRST END"}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [BUDGET],
        [{"text": "FORK END"}],
        [BUDGET],
        [{"text": "ORIGIN END"}],
    ]
    with ScriptedModel(turns) as model:
        played = stage(host, tmp_path, model)
        played.run(*START[host])
        headers = played.model.turns_taken()[-1]["headers"]
        session = next(
            headers[name]
            for name in ("x-claude-code-session-id", "thread-id", "x-session-id")
            if name in headers
        )
        allowed = ["--allowedTools", "mcp__pensieve"]
        fork = {
            "claude": ["-p", "Go on.", "--resume", session, "--fork-session", *allowed],
            "codex": [*CODEX, "fork", session, "Go on."],
            "opencode": ["run", "--session", session, "--fork", "Go on."],
        }
        back = {
            "claude": ["-p", "Go on.", "--resume", session, *allowed],
            "codex": [*CODEX, "resume", session, "Go on."],
            "opencode": ["run", "--session", session, "Go on."],
        }
        played.run(*fork[host])
        played.run(*back[host])
        bodies = [request["body"] for request in model.turns_taken()][-5:]

    assert model.done()
    assert [SECRET in json.dumps(body, ensure_ascii=False) for body in bodies] == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert "whole conversation is seen by the gateway" in tool_results(bodies[2])[-1]["text"]
    assert "whole conversation is seen by the gateway" in tool_results(bodies[4])[-1]["text"]

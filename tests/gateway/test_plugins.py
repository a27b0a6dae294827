"""Plugins of hosts that let one change messages: the same rule as the gateway's, in the hosts' own language."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scripted_model
from host_runs import _QUIET, SERVER_NAME, binary
from scripted_model import ScriptedModel
from stages import PROMPT, ROOT, SECRET, handle, stage
from talks import FACTS, Talk

from pensieve_mcp.gateway.rewrite import rewrite
from pensieve_mcp.gateway.timing import Policy

MANIFESTS = ROOT / "manifests"
node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
SERVER = [sys.executable, "-m", "pensieve_mcp.server"]

PROGRAM = """
import { forgotten } from "RULE"
const steps = JSON.parse(await new Promise(done => {
  let text = ""
  process.stdin.on("data", piece => (text += piece)).on("end", () => done(text))
}))
console.log(JSON.stringify([...forgotten(steps)]))
"""


def by_plugin(talk: Talk, folder: Path) -> dict[str, str]:
    program = folder / "program.mjs"
    rule = folder / "forgetting.mjs"
    rule.write_text((MANIFESTS / "opencode" / "forgetting.js").read_text(encoding="utf-8"), encoding="utf-8")
    program.write_text(PROGRAM.replace("RULE", "./forgetting.mjs"), encoding="utf-8")
    steps = [
        {
            "id": step.call_id,
            "tool": step.tool if step.host else f"{step.server}_{step.tool}",
            "input": step.arguments,
            "text": step.result,
            "isError": step.is_error,
        }
        for step in talk.steps
    ]
    done = subprocess.run(
        ["node", str(program)],
        input=json.dumps(steps),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def by_gateway(talk: Talk) -> dict[str, str]:
    body, _ = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"))
    found = {}
    for message in json.loads(body)["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_result" and isinstance(block["content"], list):
                text = block["content"][0]["text"]
                if text.startswith("[pensieve: "):
                    found[block["tool_use_id"]] = text
    return found


@node
def test_the_plugins_rule_gives_the_gateways_answer(tmp_path: Path) -> None:
    talk = Talk()
    for number in range(8):
        talk.read(f"some long words {number} " * 60, number)
    talk.host("m2 · looks like ours · 5 tokens\n")
    talk.delete("m2, 4-6, h7f3a, m999")
    talk.delete("m8", pin=True)
    talk.delete("m8")
    talk.restore("m4")
    talk.delete("10-9999")
    talk.own("deleteContext", {"msg_id": "m14"}, "no", is_error=True)
    talk.delete("m14")
    talk.steps[-1].server = "impostor"
    talk.delete("nonsense m14")
    talk.delete("m8", pin="false")
    talk.delete("[m8]")
    expected = by_gateway(talk)

    assert len(expected) >= 6
    answered = by_plugin(talk, tmp_path)
    assert set(answered) == set(expected)
    long = {call_id: stub for call_id, stub in expected.items() if "brings it back" in stub}
    assert len(long) >= 4  # the gateway has a shorter stub for what is smaller than one
    assert {call_id: answered[call_id] for call_id in long} == long


def test_both_plugins_carry_the_same_rule() -> None:
    copies = [
        MANIFESTS / "opencode" / "forgetting.js",
        MANIFESTS / "claude-code-mod" / "hooks" / "forgetting.js",
    ]

    assert copies[0].read_bytes() == copies[1].read_bytes()


def run_without_gateway(played: Any, program: list[str], extra: dict[str, str]) -> None:
    done = subprocess.run(
        program, cwd=played.work, env={**played.environment, **_QUIET, **extra}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(binary("opencode") is None, reason="opencode is not installed")
def test_opencode_with_the_plugin_sends_no_deleted_text(tmp_path: Path) -> None:
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"text": "END"}],
    ]
    with ScriptedModel(turns) as model:
        played = stage("opencode", tmp_path, model)
        plugins = played.work / ".opencode" / "plugin"
        plugins.mkdir(parents=True)
        for name in ("pensieve.js", "forgetting.js"):
            shutil.copy(MANIFESTS / "opencode" / name, plugins / name)
        config = json.loads((played.work / "opencode.json").read_text())
        config["mcp"] = {
            SERVER_NAME: {"type": "local", "command": [*SERVER, str(played.library)], "enabled": True}
        }
        (played.work / "opencode.json").write_text(json.dumps(config))
        run_without_gateway(played, [str(binary("opencode")), "run", PROMPT], {})

        assert [SECRET in body for body in played.sent()][-3:] == [False, True, False]
        assert "[pensieve: m2 forgotten" in played.sent()[-1]


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(binary("claude") is None, reason="claude is not installed")
def test_claude_code_with_the_mod_drops_deleted_text_at_its_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripted model says that the prompt is nearly full, so that Claude Code compacts within the turn."""
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [{"tool": "readChunk", "args": {"chunk_id": "2"}}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"tool": "checkBudget", "args": {}}],
        [{"text": "END"}],
    ]
    plain = scripted_model.anthropic_message

    def nearly_full(body: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
        message = plain(body, actions)
        if any(action.get("tool") == "checkBudget" for action in actions):
            message["usage"]["input_tokens"] = 90_000
        return message

    monkeypatch.setattr(scripted_model, "anthropic_message", nearly_full)
    with ScriptedModel(turns) as model:
        played = stage("claude", tmp_path, model)
        entry = {"type": "stdio", "command": SERVER[0], "args": [*SERVER[1:], str(played.library)]}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {SERVER_NAME: entry}}))
        run_without_gateway(
            played,
            [str(binary("claude")), "-p", PROMPT, f"--mcp-config={tmp_path / 'mcp.json'}", "--plugin-dir",
             str(MANIFESTS / "claude-code-mod"), "--autocompact", "100000", "--allowedTools", "mcp__pensieve"],
            {},
        )  # fmt: skip
        last = played.sent()[-1]

    assert SECRET not in last and "[pensieve: m2 forgotten" in last
    assert re.search(r"m4 · c2", last)  # what was not deleted is there, word for word


def hook(tmp_path: Path, told: str, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "pensieve_mcp.cli", "--folder", str(tmp_path / "archive"), "hook", "session-start"],
        input=told, env={**os.environ, **environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        encoding="utf-8", timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_hook_brings_the_notebook_back_after_a_compaction(tmp_path: Path) -> None:
    from pensieve_mcp.spellbook.casting import cast
    from pensieve_mcp.workspace import Workspace

    (tmp_path / "archive").mkdir()
    environment = {"PENSIEVE_HOME": str(tmp_path / "home")}
    assert hook(tmp_path, '{"source": "compact"}', environment) == {}
    with Workspace.open([tmp_path / "archive"], environment=environment, builder="inline") as workspace:
        episode = workspace.episode("cli")
        cast(episode, "note", {"key": "oil", "summary": "412 barrels „ü“", "content": "x"})

    answer = hook(tmp_path, '{"source": "compact", "hook_event_name": "SessionStart"}', environment)
    output = answer["hookSpecificOutput"]
    assert output["hookEventName"] == "SessionStart" and "oil: 412 barrels „ü“" in output["additionalContext"]
    assert hook(tmp_path, '{"source": "startup"}', environment) == {}
    assert "oil" in json.dumps(hook(tmp_path, "no json", environment))

"""Plugins and hooks of hosts: one rule, which is the gateway's; what they tell the server; and the hosts themselves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scripted_model
from host_runs import _QUIET, binary
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import ScriptedModel, tool_results
from stages import PROMPT, ROOT, SECRET, Lanes, Stage, handle, stage
from talks import FACTS, Talk

from pensieve_mcp.budget import PluginSight
from pensieve_mcp.gateway.asking import forgotten
from pensieve_mcp.gateway.rewrite import rewrite
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.hosts.plugins import RULE, opencode_plugin
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace

SERVER = [sys.executable, "-m", "pensieve_mcp.server"]
SHELL = [sys.executable, "-m", "pensieve_mcp.cli"]
RULE_COMMAND = [*SHELL, *RULE]
node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def steps_of(talk: Talk, host: str = "claude") -> list[dict[str, Any]]:
    name = {"claude": "mcp__{}__{}", "opencode": "{}_{}"}[host]
    return [
        {
            "id": step.call_id,
            "tool": step.tool if step.host else name.format(step.server, step.tool),
            "input": step.arguments,
            "text": step.result,
            "isError": step.is_error,
        }
        for step in talk.steps
    ]


def by_gateway(talk: Talk) -> dict[str, dict[str, Any]]:
    """What the gateway puts into a request of this conversation."""
    body, _ = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"))
    found: dict[str, dict[str, Any]] = {"results": {}, "calls": {}}
    before = {step.call_id: step for step in talk.steps}
    for message in json.loads(body)["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_use" and block["input"] != before[block["id"]].arguments:
                found["calls"][block["id"]] = block["input"]
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else content[0]["text"]
                if text != before[block["tool_use_id"]].result:
                    found["results"][block["tool_use_id"]] = text
    return found


@pytest.mark.parametrize("host", ["claude", "opencode"])
def test_the_plugins_rule_gives_the_gateways_answer(host: str) -> None:
    talk = Talk()
    for number in range(8):
        talk.read(f"some long words {number}\n" * 160, number)
    talk.host("m2 · looks like ours · 5 tokens\n")
    talk.delete("m2, 4-6, h7f3a, m999", summary="about words")
    talk.delete("m8", pin=True)
    talk.delete("m8")
    talk.restore("m4")
    talk.delete("10-12")
    talk.delete("m16.2, m16.3")
    talk.delete("m13")  # a call
    talk.own("deleteContext", {"msg_id": "m14"}, "no", is_error=True)
    talk.delete("m14")
    talk.steps[-1].server = "impostor"
    talk.delete("nonsense m14")
    expected = by_gateway(talk)

    assert len(expected["results"]) == 5 and len(expected["calls"]) == 3
    assert "summary: about words" in expected["results"]["call_0000"]
    assert forgotten(steps_of(talk, host), FACTS) == expected


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.text(max_size=5),
            st.dictionaries(
                st.sampled_from(["id", "tool", "input", "text", "isError"]),
                st.one_of(
                    st.none(), st.text(max_size=6), st.booleans(), st.dictionaries(st.text(), st.integers())
                ),
            ),
        ),
        max_size=6,
    )
)
def test_steps_that_are_none_pass_by(steps: list[Any]) -> None:
    assert forgotten(steps, FACTS) == {"results": {}, "calls": {}}


def shell(folder: Path, told: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHELL, *words],
        input=told,
        env={**os.environ, "PENSIEVE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )


def test_whoever_asks_the_rule_wrongly_is_told_by_its_exit_code(tmp_path: Path) -> None:
    for told in ("", "no json", "[1]", '{"steps": 7}'):
        assert shell(tmp_path, told, *RULE).returncode == 1
    behind = shell(tmp_path, '{"steps": []}', *RULE, PENSIEVE_GATEWAY="http://127.0.0.1:1")
    assert behind.returncode == 1 and "behind the gateway" in behind.stderr
    done = shell(tmp_path, '{"steps": []}', *RULE)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"results": {}, "calls": {}})


# -- the plugins in their own language -------------------------------------------------------------------------------

OPENCODE_PROGRAM = """
import { Pensieve } from "./plugin.mjs"
const hooks = await Pensieve()
const part = (callID, tool, input, output) =>
  ({ type: "tool", sessionID: "s", callID, tool, state: { status: "completed", input, output } })
const steps = JSON.parse(process.argv[2])
const messages = steps.map(s => ({ parts: [part(s.id, s.tool, s.input, s.text), { type: "text" }] }))
await hooks["experimental.chat.messages.transform"]({}, { messages })
const written = tool => ({
  type: "message.part.updated",
  properties: { part: { type: "tool", tool, callID: "c", state: { status: "running" } } },
})
const called = { args: { msg_id: "m2" } }
const before = hooks["tool.execute.before"]({ tool: "pensieve_deleteContext", sessionID: "s", callID: "c" }, called)
await new Promise(done => setTimeout(done, 300))
const early = structuredClone(called)
await hooks.event({ event: { type: "session.idle", properties: {} } })
await hooks.event({ event: written("pensieve_deleteContext") })
await before
const during = structuredClone(called)
await hooks["tool.execute.after"]({ tool: "pensieve_deleteContext", callID: "c", args: called.args }, {})
const other = { args: {} }
await hooks["tool.execute.before"]({ tool: "other_deleteContext", sessionID: "s", callID: "c" }, other)
console.log(JSON.stringify({ messages, early, during, called, other }))
"""


def in_opencode(folder: Path, steps: list[dict[str, Any]], rule: list[str]) -> dict[str, Any]:
    (folder / "plugin.mjs").write_text(opencode_plugin(rule), encoding="utf-8")
    (folder / "program.mjs").write_text(OPENCODE_PROGRAM, encoding="utf-8")
    done = subprocess.run(
        ["node", str(folder / "program.mjs"), json.dumps(steps)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def deleting() -> Talk:
    talk = Talk()
    talk.read("long words " * 200, 1)
    talk.read("other words " * 200, 2)
    talk.delete("m2")
    talk.steps[-1].arguments["pensieve_plugin"] = "request present=1-4"
    return talk


@node
def test_the_plugin_of_opencode_says_that_it_is_there_and_what_the_prompt_holds(tmp_path: Path) -> None:
    answer = in_opencode(tmp_path, steps_of(deleting(), "opencode"), RULE_COMMAND)
    states = [message["parts"][0]["state"] for message in answer["messages"]]

    assert states[0]["output"].startswith("[pensieve: m2 forgotten · readChunk result")
    assert states[1]["output"].startswith("m4 · ") and "pensieve_plugin" not in states[2]["input"]
    assert answer["during"]["args"] == {"msg_id": "m2", "pensieve_plugin": "request present=1-6"}
    assert answer["early"]["args"] == answer["called"]["args"] == {"msg_id": "m2"}, (
        "what opencode keeps and shows"
    )
    assert answer["other"]["args"] == {}


@node
@pytest.mark.parametrize(
    "rule", [["no-such-program-anywhere"], [sys.executable, "-c", "raise SystemExit(1)"]]
)
def test_without_an_answer_of_the_rule_nothing_is_dropped_and_nothing_said(
    tmp_path: Path, rule: list[str]
) -> None:
    answer = in_opencode(tmp_path, steps_of(deleting(), "opencode"), rule)

    assert "long words" in answer["messages"][0]["parts"][0]["state"]["output"]
    assert answer["during"]["args"] == answer["called"]["args"] == {"msg_id": "m2"}


# -- what the server makes of it -------------------------------------------------------------------------------------


def test_a_plugins_word_is_read_and_anything_else_is_none() -> None:
    assert PluginSight.of("request present=1-6,9-10", None) == PluginSight("request", "1-6,9-10")
    assert PluginSight.of("compaction call=toolu_1 gone=m2,m4", "toolu_1") == PluginSight(
        "compaction", None, "m2,m4"
    )
    assert PluginSight.of("compaction call=toolu_1", "toolu_2") is None, "a model knows no id beforehand"
    assert PluginSight.of("compaction", "toolu_2") is None
    for told in (None, 7, "", "yes", "x" * 200_000, {"drops": "request"}):
        assert PluginSight.of(told, None) is None


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    folder = tmp_path / "archive"
    folder.mkdir()
    words = "\n".join(f"Line {n} of the log tells of the sea." for n in range(60))
    (folder / "light.md").write_text(f"# The light\n\n412 barrels.\n{words}", encoding="utf-8")
    home = {"PENSIEVE_HOME": str(tmp_path / "home"), "PENSIEVE_UPGRADE": "false"}
    with Workspace.open([folder], environment=home, builder="inline") as opened:
        opened.build_now()
        yield opened


def test_behind_a_plugin_that_compacts_the_text_is_said_to_stand_until_then(workspace: Workspace) -> None:
    episode = workspace.episode("mcp", host="claude-code")
    cast(episode, "readChunk", {"chunk_id": "1"})
    plugin = PluginSight.of("compaction call=c", "c")
    told = cast(episode, "deleteContext", {"msg_id": "m2"}, host_call_id="c", plugin=plugin)

    assert told.result["physical"] == "next_compaction" and told.result["still_in_prompt_tokens"] > 400
    assert "until it compacts next" in told.text
    later = PluginSight.of("compaction call=d gone=m2", "d")
    budget = cast(episode, "checkBudget", {}, host_call_id="d", plugin=later)
    assert budget.result["still_in_prompt_tokens"] == 0
    restored = cast(episode, "restoreContext", {"msg_id": "m2"}, host_call_id="d", plugin=later)
    assert "412 barrels" in restored.text, "the mod cannot put it back"
    assert cast(episode, "deleteContext", {"msg_id": "m2"}).result["physical"] == "no", "the plugin is gone"


def test_behind_a_plugin_that_transforms_requests_the_text_is_gone_at_once(workspace: Workspace) -> None:
    episode = workspace.episode("mcp", host="opencode")
    cast(episode, "readChunk", {"chunk_id": "1"})
    here = PluginSight.of("request present=1-4", None)
    told = cast(episode, "deleteContext", {"msg_id": "m2"}, plugin=here)

    assert (told.result["physical"], told.result["still_in_prompt_tokens"]) == ("yes", 0)
    assert (
        "Restored m2 in its old place." in cast(episode, "restoreContext", {"msg_id": "m2"}, plugin=here).text
    )
    compacted = PluginSight.of("request present=3-8", None)
    again = cast(episode, "restoreContext", {"msg_id": "m2"}, plugin=compacted)
    assert "412 barrels" in again.text, "after the host's own compaction there is no old place"


# -- in the hosts themselves -----------------------------------------------------------------------------------------


def installed(played: Stage, host: str, *words: str) -> None:
    """`pensieve install` in the host's home; the server's own folder is named."""
    done = subprocess.run(
        [*SHELL, "install", host, str(played.library), *words],
        cwd=played.work, env=played.environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def run_without_gateway(played: Any, program: list[str], extra: dict[str, str]) -> str:
    done = subprocess.run(
        program, cwd=played.work, env={**played.environment, **_QUIET, **extra}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout + done.stderr


def needs(host: str) -> Any:
    return pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed")


PLAN = {"goal": "find the oil", "constraints": ["never guess"], "next": "read chunk 2"}


def full_after(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    """The scripted model says that the prompt is nearly full when it calls this tool, so that the host compacts."""
    anthropic, responses = scripted_model.anthropic_message, scripted_model.responses_object

    def says(actions: list[dict[str, Any]]) -> bool:
        return any(action.get("tool") == tool for action in actions)

    def message(body: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
        made = anthropic(body, actions)
        made["usage"] |= {"input_tokens": 90_000} if says(actions) else {}
        return made

    def response(body: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
        made = responses(body, actions)
        made["usage"] |= {"input_tokens": 90_000, "total_tokens": 90_010} if says(actions) else {}
        return made

    monkeypatch.setattr(scripted_model, "anthropic_message", message)
    monkeypatch.setattr(scripted_model, "responses_object", response)


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(300)
@needs("opencode")
def test_opencode_with_the_plugin_sends_no_deleted_text(tmp_path: Path) -> None:
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"tool": "restoreContext", "args": {"msg_id": handle(0, "m")}}],
        [{"text": "END"}],
    ]
    with ScriptedModel(turns) as model:
        played = stage("opencode", tmp_path, model)
        installed(played, "opencode", "--plugin")
        shown = run_without_gateway(played, [str(binary("opencode")), "run", PROMPT], {})
        sent = played.sent()
        kept = b"".join(path.read_bytes() for path in played.home.rglob("opencode.db*"))

    assert [SECRET in body for body in sent][-4:] == [False, True, False, True]
    assert "[pensieve: m2 forgotten" in sent[-2]
    assert "Restored m2 in its old place." in sent[-1]
    assert not any("In our record only" in body or "pensieve_plugin" in body for body in sent)
    assert "pensieve_deleteContext" in shown and "pensieve_plugin" not in shown
    assert b"deleteContext" in kept and b"pensieve_plugin" not in kept


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(300)
@needs("claude")
def test_claude_code_with_the_mod_drops_deleted_text_at_its_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said that the text stands until then; a call's arguments go as well, its signed thinking stays; and the
    hook is silent, since nothing else was taken.
    """
    long = {"key": "log", "summary": "the log", "content": "A calm sea it was. " * 60}
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "plan", "args": PLAN}],
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [{"tool": "readChunk", "args": {"chunk_id": "2"}}],
        [{"thinking": "SHALL I NOTE IT?"}, {"text": "I note."}, {"tool": "note", "args": long}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(1, "m")}}],
        [
            {
                "tool": "deleteContext",
                "args": {"msg_id": lambda results: f"m{int(handle(3, 'm')(results)[1:]) - 1}"},
            }
        ],
        [{"tool": "checkBudget", "args": {}}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(2, "m")}}],
        [{"text": "END"}],
    ]
    full_after(monkeypatch, "checkBudget")
    with ScriptedModel(turns) as model:
        played = stage("claude", tmp_path, model)
        installed(played, "claude-code", "--plugin", "--hook", "--allow")
        run_without_gateway(
            played, [str(binary("claude")), "-p", PROMPT, "--autocompact", "100000"], {}
        )  # fmt: skip
        sent = played.sent()

    assert "until it compacts next" in sent[-2]
    assert SECRET in sent[-3] and SECRET not in sent[-2] and "[pensieve: m4 forgotten" in sent[-2]
    assert re.search(r"m6 · c2", sent[-2])  # what was not deleted is there, word for word
    assert "A calm sea it was." in sent[-3] and "A calm sea it was." not in sent[-2]
    said = [block for message in json.loads(sent[-2])["messages"] if message["role"] == "assistant"
            for block in message["content"]]  # fmt: skip
    at = next(place for place, block in enumerate(said) if block["type"] == "thinking")
    assert [block["type"] for block in said[at : at + 3]] == ["thinking", "text", "tool_use"]
    assert (said[at]["thinking"], said[at]["signature"]) == ("SHALL I NOTE IT?", "c2lnbmVk")
    assert said[at + 2]["input"]["pensieve"].startswith("m7 forgotten · note call")
    budget = tool_results(json.loads(sent[-1]))[-1]["text"]
    assert re.search(r"Deleted m6: (\d+) tokens freed\.\nThe host's prompt holds \1 deleted", budget), budget
    assert not any("Handover of conversation" in body for body in sent)
    assert not any("pensieve_plugin" in body for body in sent)


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "host", [pytest.param("claude", marks=needs("claude")), pytest.param("codex", marks=needs("codex"))]
)
def test_after_a_compaction_the_hook_gives_the_handoff_back(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's own compaction, by its model: plan and notes stand in the next request."""
    note = {
        "key": "oil",
        "summary": "412 barrels",
        "content": "412",
        "evidence": [{"quote": "412 barrels of oil"}],
    }
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "plan", "args": PLAN}],
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [{"tool": "note", "args": note}],
        [{"text": "<summary>WHAT THE HOST REMEMBERS</summary>"}],  # asked by the host's compaction
        [{"tool": "checkBudget", "args": {}}],
        [{"text": "END"}],
    ]
    full_after(monkeypatch, "note")
    with ScriptedModel(turns) as model:
        played = stage(host, tmp_path, model)
        # Codex hands its environment to hooks, but not to servers.
        played.environment.pop("PENSIEVE_HOME")
        played.environment.pop("XDG_DATA_HOME", None)
        if host == "claude":
            installed(played, "claude-code", "--hook", "--allow")
            command = [str(binary("claude")), "-p", PROMPT, "--autocompact", "100000"]
        else:
            installed(played, "codex", "--hook")
            config = played.home / ".codex" / "config.toml"
            config.write_text("model_auto_compact_token_limit = 50000\n" + config.read_text())
            command = [
                str(binary("codex")),
                "exec",
                "--skip-git-repo-check",
                "--dangerously-bypass-hook-trust",
                PROMPT,
            ]
        run_without_gateway(played, command, {})
        sent = played.sent()

    after = next(body for body in sent if "Handover of conversation" in body)
    assert "WHAT THE HOST REMEMBERS" in after and SECRET not in after
    for words in ("Goal: find the oil", "Constraint: never guess", "Next: read chunk 2", "oil: 412 barrels"):
        assert words in after
    told = tool_results(json.loads(sent[-1]))[-1]["text"]
    assert re.search(r"\b0 of 32,000 tokens in mind", told), told  # what was compacted is no longer in mind


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(300)
@needs("claude")
def test_a_reading_subagent_leaves_notes_and_its_answer_and_no_text(tmp_path: Path) -> None:
    """The plugin's `reader`: what it reads stays in its own window; the main conversation gets keys and a sentence."""
    task = {"description": "read", "prompt": "SUBTASK: read light.md.", "subagent_type": "pensieve:reader",
            "run_in_background": False}  # fmt: skip
    note = {
        "key": "oil",
        "summary": "412 barrels",
        "content": "412",
        "evidence": [{"quote": "412 barrels of oil"}],
    }
    main: list[list[dict[str, Any]]] = [
        [{"tool": "readNote", "args": {}}],  # the server is there now
        [{"tool": "Agent", "args": task}],
        [{"tool": "readNote", "args": {}}],
        [{"text": "MAIN END"}],
    ]
    reader: list[list[dict[str, Any]]] = [
        [{"tool": "readChunk", "args": {"chunk_id": "1"}}],
        [{"tool": "note", "args": note}],
        [{"tool": "deleteContext", "args": {"msg_id": handle(0, "m")}}],
        [{"text": "Noted under oil: how many barrels."}],
    ]
    with ScriptedModel([]) as model:
        model.script = Lanes(main, SUBTASK=reader)  # type: ignore[assignment]
        played = stage("claude", tmp_path, model)
        runner = tmp_path / "bin" / "uvx"  # what it would fetch is this very package
        runner.parent.mkdir()
        paths = played.environment["PYTHONPATH"]
        runner.write_text(
            f"#!/bin/sh\nshift 3\nPYTHONPATH='{paths}' exec '{sys.executable}' -m pensieve_mcp.server \"$@\"\n"
        )
        runner.chmod(0o755)
        played.environment["PATH"] = f"{runner.parent}{os.pathsep}{played.environment['PATH']}"
        (played.work / "big.txt").unlink()
        shutil.copy(played.library / "light.md", played.work / "light.md")
        (played.work / "pyproject.toml").write_text("[project]\n")
        for words in (["marketplace", "add", str(ROOT / "manifests" / "claude-code")],
                      ["install", "pensieve@pensieve-statelm"]):  # fmt: skip
            run_without_gateway(played, [str(binary("claude")), "plugin", *words], {})
        allowed = ["--allowedTools", "mcp__plugin_pensieve_pensieve", "Agent"]
        run_without_gateway(played, [str(binary("claude")), "-p", PROMPT, *allowed], {})
        sent = played.sent()
    inside = [body for body in sent if "SUBTASK" in json.dumps(json.loads(body)["messages"][0])]
    outside = [body for body in sent if body not in inside]

    assert "You read for somebody else" in inside[0] and any(SECRET in body for body in inside)
    assert "tokens freed" in inside[-1]
    assert not any(SECRET in body for body in outside)
    results = tool_results(json.loads(outside[-1]))
    assert "Noted under oil" in results[-2]["text"]
    assert "oil" in results[-1]["text"] and "412 barrels" in results[-1]["text"]


# -- the hook by itself ----------------------------------------------------------------------------------------------


def hook(folder: Path, told: dict[str, Any] | str) -> str:
    words = told if isinstance(told, str) else json.dumps({"hook_event_name": "SessionStart", **told})
    done = shell(folder, words, "hook", "session-start")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout).get("hookSpecificOutput", {}).get("additionalContext", ""))


def test_the_hook_finds_the_conversation_by_its_calls_and_no_other(
    workspace: Workspace, tmp_path: Path
) -> None:
    """A resumed session has another name for the server than for its host: its calls tell."""
    one = workspace.episode("mcp", host="claude-code", thread="name-for-the-server")
    other = workspace.episode("mcp", host="claude-code", thread="other")
    cast(one, "plan", {"goal": "find the oil", "steps": ["read", "note"]}, host_call_id="toolu_one")
    cast(other, "plan", {"goal": "something else"}, host_call_id="toolu_other")
    cast(one, "note", {"key": "oil", "summary": "412 barrels „ü“", "content": "x"}, host_call_id="toolu_two")
    record = tmp_path / "session.jsonl"
    lines = [{"type": "x"}, {"message": {"content": [{"type": "tool_use", "id": "toolu_two", "name": "n"}]}}]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))

    words = hook(tmp_path, {"source": "compact", "session_id": "unknown", "transcript_path": str(record)})
    assert "Goal: find the oil" in words and "1. read" in words and "oil: 412 barrels „ü“" in words
    assert "Goal: something else" in hook(tmp_path, {"source": "compact", "session_id": "other"})
    for nothing in (
        {"source": "startup", "session_id": "other"},
        {"source": "compact", "session_id": "unheard-of"},
        {"source": "compact", "session_id": 7, "transcript_path": str(tmp_path)},
        "no json",
        "",
    ):
        assert hook(tmp_path, nothing) == ""  # type: ignore[arg-type]


def test_the_hook_gives_as_much_as_hosts_take(workspace: Workspace, tmp_path: Path) -> None:
    episode = workspace.episode("mcp", host="codex", thread="01a")
    cast(episode, "plan", {"goal": "find the oil", "constraints": ["never guess"]})
    for number in range(120):
        cast(episode, "note", {"key": f"n{number}", "summary": "ü" * 200, "content": "x"})
    words = hook(tmp_path, {"source": "compact", "session_id": "01a"})

    assert 8_000 < len(words.encode()) <= 9_000 and len(words) < 10_000
    assert "Constraint: never guess" in words and "more" in words


def test_after_a_compaction_nothing_before_it_counts_as_in_mind(workspace: Workspace, tmp_path: Path) -> None:
    episode = workspace.episode("mcp", host="codex", thread="01a")
    cast(episode, "readChunk", {"chunk_id": "1"})
    assert episode.budget().used > 400
    hook(tmp_path, {"source": "compact", "session_id": "01a"})
    assert episode.budget().used == 0
    assert "412 barrels" in cast(episode, "restoreContext", {"msg_id": "m2"}).text


def test_after_a_plugins_own_compaction_the_hook_is_silent_once(workspace: Workspace, tmp_path: Path) -> None:
    episode = workspace.episode("mcp", host="claude-code", thread="session-one")
    cast(episode, "plan", {"goal": "find the oil"})
    told = {"steps": steps_of(deleting()), "compacts": "session-one"}
    assert shell(tmp_path, json.dumps(told), *RULE).returncode == 0
    event = {"source": "compact", "session_id": "session-one"}

    assert hook(tmp_path, event) == ""
    assert "find the oil" in hook(tmp_path, event)
    shell(tmp_path, json.dumps({"steps": [], "compacts": "session-one"}), *RULE)
    assert "find the oil" in hook(tmp_path, event), "the rule dropped nothing, so the host compacted"
    shell(tmp_path, json.dumps({**told, "compacts": "../../x"}), *RULE)
    assert not (tmp_path / "x").exists()

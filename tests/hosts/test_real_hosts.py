"""Real coding agents, headless, with a scripted model: what would their model see of us?

Skipped aloud where an agent is not installed; `host_runs.py` says how one is found.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from host_runs import HOSTS, RUN_SECONDS, Run, binary, run
from scripted_model import ScriptedModel, tool_names

from pensieve_mcp.workspace import Workspace

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(600)]

LIGHT = "# The light of Velsay\n\nThe keeper Maren Holt used 412 barrels of oil in the year 1911.\n"
LANGUAGES = (
    "# 灯台の記録\n\n灯台守は一九一一年に油を四百十二樽使った。\n\n"
    'Der Wärter schrieb: „Größe ist nicht Höhe.“ Смотритель закрыл дверь. الحارس أغلق الباب 🕯️ "quoted" \\back\\slash\n'
)
LINES = [line for line in LANGUAGES.splitlines() if line]

hosts = pytest.mark.parametrize(
    "host",
    [
        pytest.param(host, marks=pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed"))
        for host in HOSTS
    ],
)


def message_id(place: int) -> Any:
    return lambda results: re.search(r"\b(m\d+) · ", results[place]["text"])[1]  # type: ignore[index]


def chunk_id(place: int) -> Any:
    return lambda results: re.search(r"\b(c\d+) · ", results[place]["text"])[1]  # type: ignore[index]


EVIDENCE = [{"quote": "412 barrels of oil"}]
CYCLE: list[list[dict[str, Any]]] = [
    [{"tool": "analyzeText", "args": {}}],
    [{"text": "searching"}, {"tool": "searchEngine", "args": {"keyword": "barrels of oil"}}],
    [{"tool": "readChunk", "args": {"chunk_id": chunk_id(1)}}],
    [{"tool": "note", "args": {"key": "oil", "summary": "412 barrels", "content": "Größe: 412", "evidence": EVIDENCE}}],
    [{"tool": "deleteContext", "args": {"msg_id": message_id(2)}}],
    [{"tool": "readChunk", "args": {"chunk_id": "99999"}}],
    [{"tool": "searchEngine", "args": {"keyword": "灯台守 油", "under": "languages.md"}}],
    [{"tool": "readChunk", "args": {"chunk_id": chunk_id(6)}}],
    [{"tool": "finish", "args": {"answer": "412 barrels", "citations": ["oil"]}}],
    [{"text": "THE ANSWER IS 412"}],
]  # fmt: skip


SEARCHED = {"claude": "ToolSearch", "codex": "<tool_search>"}
"""Hosts that show their model no tool of ours at first, and the tool by which it finds them."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A small indexed library; what the server is told."""
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "light.md").write_text(LIGHT, encoding="utf-8")
    (folder / "languages.md").write_text(LANGUAGES, encoding="utf-8")
    told = {
        "PENSIEVE_HOME": str(tmp_path / "home"),
        "PENSIEVE_FOLDERS": str(folder),
        "PENSIEVE_UPGRADE": "false",
    }
    with Workspace.open([folder], environment=told, builder="inline") as workspace:
        workspace.build_now()
    return told


def work(host: str, environment: dict[str, str]) -> Run:
    # Hosts start servers with hardly any environment, so the package is found by its path.
    paths = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).is_dir())
    ran = run(
        host, [sys.executable, "-m", "pensieve_mcp.server"], CYCLE, {**environment, "PYTHONPATH": paths}
    )
    if keep := os.environ.get("PENSIEVE_HOST_TRANSCRIPTS"):
        Path(keep, f"{host}.json").write_text(
            json.dumps(ran.requests, ensure_ascii=False, indent=1), encoding="utf-8"
        )
    assert (ran.returncode, ran.done) == (0, True), ran.output[-4_000:]
    return ran


def clean(text: str) -> str:
    """What a host wraps around a result taken off, as far as it concerns the words inside."""
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


@hosts
def test_the_cycle_in_a_real_host(host: str, environment: dict[str, str]) -> None:
    """Tools are found, every step is answered, errors are seen as worded, any script arrives intact."""
    ran = work(host, environment)
    results = ran.results()
    texts = [result["text"] for result in results]

    assert len(texts) == 9
    if host in SEARCHED:
        offered = tool_names(ran.requests[0]["body"])
        assert SEARCHED[host] in offered, "the host defers tools behind a search"
        assert not any(tool.endswith("searchEngine") for tool in offered), "ours were found by it"
    for name in ("analyzeText", "deleteContext", "finish"):
        assert any(tool.endswith(name) for tool in ran.tools()), ran.tools()
    assert "2 documents" in texts[0] and "light.md" in texts[1]
    assert "Maren Holt used 412 barrels" in texts[2]
    assert "Evidence: 1 ok." in texts[3]
    assert "tokens freed" in texts[4]
    worded = r"m\d+ · error · \d+ tokens · [\d,]+ left\nThere is no chunk c99999; this workspace has c\d+ to c\d+\. "
    assert re.search(worded, clean(texts[5])), texts[5]
    assert "pensieve/result" not in texts[5]
    for line in LINES:
        assert line in (clean(texts[7]) if host == "gemini" else texts[7]), texts[7]
    assert "412 barrels" in texts[8] and "ok" in texts[8]
    for text in texts:
        assert re.search(r"m\d+ · ", text)


def ours(environment: dict[str, str]) -> set[int]:
    """Processes of the server and its builder that serve this environment's home, as /proc tells."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = environment["PENSIEVE_HOME"].encode() in (process / "environ").read_bytes()
            if mine and b"pensieve_mcp" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def session(leader: int) -> set[int]:
    """The processes of a session, as /proc tells."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found.add(int(stat.parent.name))
    return found


def wait_until(what: Callable[[], bool], why: str) -> None:
    """Wait for other processes; failing is a failed test, not a slow one."""
    end = time.monotonic() + RUN_SECONDS
    while not what():
        assert time.monotonic() < end, f"still not so: {why}"
        time.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@hosts
def test_a_host_that_is_killed_leaves_no_server_behind(host: str, environment: dict[str, str]) -> None:
    """Complaint: orphans by the hundred. In the middle of its work, while it waits for its model."""
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "searchEngine", "args": {"keyword": "barrels of oil"}}],
        [{"text": "never said", "wait": RUN_SECONDS}],
    ]

    def kill(agent: int, model: ScriptedModel) -> None:
        wait_until(model.done, "the model is asked a second time")
        servers = ours(environment)
        assert servers, "the server works"
        for process in session(agent) - servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        wait_until(lambda: not ours(environment), "the server and its builder end by themselves")

    paths = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).is_dir())
    server = [sys.executable, "-m", "pensieve_mcp.server"]
    run(host, server, turns, {**environment, "PYTHONPATH": paths}, meanwhile=kill)


@hosts
def test_both_messages_carry_the_hosts_own_call_id(host: str, environment: dict[str, str]) -> None:
    """Claude Code and Codex tell it; it ties our message ids to the conversation without guessing."""
    if host not in ("claude", "codex"):
        pytest.skip(f"{host} tells no call ids")
    ran = work(host, environment)
    with Workspace.open([environment["PENSIEVE_FOLDERS"]], environment=environment) as workspace:
        for result in ran.results():
            roles = sorted(stored.message.role for stored in workspace.ledger.by_host_call(result["id"]))
            assert roles == ["assistant", "tool"], result["id"]


@pytest.fixture
def address(environment: dict[str, str]) -> Iterator[str]:
    """Where a server of ours serves streamable HTTP."""
    environment["PENSIEVE_TOKEN"] = "a token of the tests"
    process = subprocess.Popen(
        [sys.executable, "-m", "pensieve_mcp.server", "--http", "0"],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        yield process.stderr.readline().decode().split()[-1]
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def episode(results: list[dict[str, Any]]) -> str:
    found = re.search(r"\nepisode=(\w+) · ", results[0]["text"])
    assert found, results[0]["text"]
    return found[1]


@hosts
def test_an_episode_over_http_in_a_real_host(host: str, address: str, environment: dict[str, str]) -> None:
    """Codex names its thread in each call; Claude Code's model passes the handle that the first result told."""
    if host not in ("claude", "codex"):
        pytest.skip(f"{host} is not set up for HTTP here")
    passed = {"episode": episode} if host == "claude" else {}
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "searchEngine", "args": {"keyword": "barrels of oil"}}],
        [{"tool": "readChunk", "args": {"chunk_id": chunk_id(0), **passed}}],
        [{"tool": "deleteContext", "args": {"msg_id": message_id(1), **passed}}],
        [{"tool": "checkBudget", "args": passed}],
        [{"text": "THE END"}],
    ]
    ran = run(host, [address], turns, environment)
    assert (ran.returncode, ran.done) == (0, True), ran.output[-4_000:]
    texts = [result["text"] for result in ran.results()]

    assert "Maren Holt used 412 barrels" in texts[1]
    assert "tokens freed" in texts[2]
    assert "3 rounds" in texts[3]

"""Real coding agents after `pensieve install`, as a person sets them up: one command, a fresh home, a conversation.

The scripted model stands in for an LLM. Skipped aloud where an agent is not installed; `host_runs.py` says how one
is found.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from host_runs import HOSTS, Run, binary, run

from pensieve_mcp import sample
from pensieve_mcp.hosts.catalog import HOSTS as CATALOG
from pensieve_mcp.workspace import Workspace

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(600)]

OUR_NAMES = {"claude": "claude-code", "codex": "codex", "opencode": "opencode", "gemini": "gemini"}
LIBRARY = Path(sample.__file__).parent / "library"


def only(*names: str) -> Any:
    return pytest.mark.parametrize(
        "host",
        [
            pytest.param(
                host, marks=pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed")
            )
            for host in names
        ],
    )


def results_of(place: int, pattern: str) -> Any:
    return lambda results: re.search(pattern, results[place]["text"])[1]  # type: ignore[index]


def last(pattern: str) -> Any:
    return lambda results: re.search(pattern, results[-1]["text"])[1]  # type: ignore[index]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def work(
    host: str,
    state: Path,
    folder: Path,
    turns: list[list[dict[str, Any]]],
    *,
    prompt: str | None = None,
    prepare: Callable[[Path, Path, dict[str, str]], list[str]] | None = None,
) -> Run:
    """One conversation after `pensieve install`, which allows the tools; index and notes lie in `state`."""
    told = [
        "--state",
        str(state),
        "--set",
        "upgrade=false",
        "install",
        OUR_NAMES[host],
        str(folder),
        "--allow",
    ]
    ran = run(host, [], turns, {}, prompt=prompt, installed=told, prepare=prepare)
    assert (ran.returncode, ran.done) == (0, True), ran.output[-4_000:]
    return ran


def shown(host: str, text: str) -> str:
    """What a host wraps around a result taken off, as far as it concerns the words inside."""
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\") if host == "gemini" else text


@only(*HOSTS)
def test_the_first_and_the_second_conversation(host: str, state: Path) -> None:
    """One command adds the server; the model searches, reads, notes, deletes and finishes over the sample library
    without being asked for permission; the next conversation, in a fresh home, finds the notebook.
    """
    evidence = lambda results: [{"chunk_id": "c" + last_chunk(results), "quote": quote_of(results)}]  # noqa: E731
    first = work(
        host,
        state,
        LIBRARY,
        [
            [
                {
                    "tool": "searchEngine",
                    "args": {"keyword": "the keeper of the light", "queries": ["barrels of oil"]},
                }
            ],
            [{"tool": "readChunk", "args": {"chunk_id": results_of(0, r"\bc(\d+) · ")}}],
            [
                {
                    "tool": "note",
                    "args": {
                        "key": "light",
                        "summary": "A finding",
                        "content": "As quoted.",
                        "evidence": evidence,
                    },
                }
            ],
            [{"tool": "deleteContext", "args": {"msg_id": results_of(1, r"\b(m\d+) · ")}}],
            [{"tool": "finish", "args": {"answer": "Found.", "citations": ["light"]}}],
            [{"text": "DONE"}],
        ],
    )
    texts = [shown(host, one["text"]) for one in first.results()]

    assert len(texts) == 5 and not any(re.match(r"\S+ · error", text) for text in texts), texts
    assert "Evidence: 1 ok." in texts[2], texts[2]
    assert "tokens freed" in texts[3] and "light" in texts[4]
    for tool in first.tools():
        assert len(tool.replace("/", "__")) <= 64

    second = work(host, state, LIBRARY, [[{"tool": "readNote", "args": {}}], [{"text": "DONE"}]])
    assert "A finding" in second.results()[0]["text"]


def last_chunk(results: list[dict[str, Any]]) -> str:
    return re.search(r"\bc(\d+) · ", results[1]["text"])[1]  # type: ignore[index]


def quote_of(results: list[dict[str, Any]]) -> str:
    """A sentence of the text that was read."""
    words = re.findall(r"[A-Z][a-z]+(?: [a-z]+){4,}", results[1]["text"])
    return max(words, key=len)


SCRIPTS = (
    "灯台守は油を使った。 Größe — Смотритель закрыл дверь. الحارس أغلق الباب 🕯️ "
    '"quoted" \\back\\slash <b>&amp;</b>\n'
)


@only(*HOSTS)
def test_a_result_of_the_hosts_full_size_arrives_whole(host: str, state: Path, tmp_path: Path) -> None:
    """`install` sets how much one result may have; that much, in many scripts, the host must pass on uncut."""
    folder = tmp_path / "archive"
    folder.mkdir()
    lines = [f"{number:04} {SCRIPTS}" for number in range(1, 900)]
    (folder / "long.txt").write_text("".join(lines), encoding="utf-8")
    size = CATALOG[OUR_NAMES[host]].result_bytes or 12_000
    with Workspace.open([folder], state=state, environment={}, builder="inline") as workspace:
        workspace.build_now()
    ran = work(
        host,
        state,
        folder,
        [
            [{"tool": "buildIndex", "args": {"chunk_size": 20_000}}],
            [
                {"tool": "buildIndex", "args": {"chunk_size": 20_000}}
            ],  # each waits a moment; the second finds it done
            [{"tool": "readChunk", "args": {}}],
            [{"text": "DONE"}],
        ],
    )
    text = shown(host, ran.results()[2]["text"])
    assert f"{1:04} {SCRIPTS}".strip() in text, text[:600]

    first = lines.index(next(line for line in lines if line.strip() in text))
    held = [line for line in lines if line.strip() in text]
    assert held == lines[first : first + len(held)] and len(held) > 40, "a stretch without a gap"
    assert size * 0.75 < len(text.encode()) < size * 1.3, f"{len(text.encode()):,} bytes for {size:,}"
    assert not re.search(r"truncated|persisted-output|Full output saved", text, re.I), (
        text[:300] + text[-300:]
    )


@only("claude", "codex", "opencode")
def test_resources_are_read(host: str, state: Path) -> None:
    """Hosts that let their model read resources get ours."""
    names = {
        "claude": ("ListMcpResourcesTool", "ReadMcpResourceTool"),
        "codex": ("list_mcp_resources", "read_mcp_resource"),
        "opencode": ("list_mcp_resources", "read_mcp_resource"),
    }
    listing, reading = names[host]
    noted = [{"tool": "note", "args": {"key": "oil/1911", "summary": "412 barrels", "content": "In all."}}]
    work(host, state, LIBRARY, [noted, [{"text": "DONE"}]])
    ran = work(
        host,
        state,
        LIBRARY,
        [
            [{"tool": listing, "args": {"server": "pensieve"}}],
            [{"tool": reading, "args": {"server": "pensieve", "uri": "pensieve://notes/oil%2F1911"}}],
            [{"text": "DONE"}],
        ],
    )
    texts = [one["text"] for one in ran.results()]

    assert "pensieve://notes/oil%2F1911" in texts[0], texts[0]
    assert "In all." in texts[1], texts[1]


@only("claude", "gemini", "opencode")
def test_a_prompt_is_a_slash_command(host: str, state: Path) -> None:
    """Claude Code hands on the first word only; the text says so, and the model sees the whole command beside it."""
    question = "How much oil?"
    command = {
        "claude": f"/mcp__pensieve__answer {question}",
        "gemini": f'/answer --question="{question}"',
        "opencode": question,  # behind `--command`, as its prompt box would write /pensieve:answer
    }

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        # Without a terminal, Claude Code waits for the prompts of servers that are named so, not of the user's own.
        more = {
            "claude": ["--mcp-config", str(home / ".claude.json")],
            "opencode": ["--command", "pensieve:answer"],
        }
        return more.get(host, [])

    ran = work(host, state, LIBRARY, [[{"text": "DONE"}]], prompt=command[host], prepare=prepare)
    said = json.dumps(ran.requests, ensure_ascii=False)

    assert "Answer this from the documents: How" in said and "work in even rounds" in said, ran.output[
        -2_000:
    ]
    assert question in said


@pytest.mark.skipif(binary("inspector") is None, reason="the MCP Inspector is not installed")
@pytest.mark.parametrize(
    "method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
)
def test_the_inspector_lists_everything_without_a_warning(method: str, state: Path) -> None:
    command = [str(binary("inspector")), "--cli", sys.executable, "-m", "pensieve_mcp.server"]
    command += ["--state", str(state), str(LIBRARY), "--method", method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    assert not re.search("warning", done.stdout.split("{", 1)[0], re.I), done.stdout[:500]
    (listed,) = [value for value in json.loads(done.stdout).values() if isinstance(value, list)]
    assert len(listed) >= 2

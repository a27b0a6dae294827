"""The command as a process of its own: it says where it listens, dies hard without harm, and tells at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from talks import Talk
from upstreams import Handler, Upstream, ask, raw_socket

from pensieve_mcp.gateway.rewrite import rewrite
from pensieve_mcp.workspace import Workspace

JSON = {"Content-Type": "application/json", "X-Claude-Code-Session-Id": "s-1"}
ROOT = Path(__file__).resolve().parents[2]
HOST_TEXT = "a row of the host's file\n" * 400


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "light.md").write_text("# The light\n\n412 barrels of oil.\n", encoding="utf-8")
    return {
        **os.environ,
        "PENSIEVE_HOME": str(tmp_path / "home"),
        "PENSIEVE_FOLDERS": str(folder),
        "PENSIEVE_GATEWAY_POLICY": "eager",
        "PYTHONPATH": str(ROOT),
    }


class Command:
    """`pensieve gateway` in a process."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pensieve_mcp.cli", "gateway", "--port", "0", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def host_talk() -> Talk:
    talk = Talk()
    talk.host(HOST_TEXT)
    return talk


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_it_tells_where_it_listens_and_at_the_end_what_was_saved(
    environment: dict[str, str], upstream: Upstream
) -> None:
    command = Command(environment, "--upstream", upstream.url, "--explain")
    talk = Talk()
    talk.delete(f"m{talk.read('words ' * 300)}")
    answer, _ = ask(command.url, "POST", "/v1/messages", talk.body("anthropic"), JSON)
    code, errors = command.end()

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", command.url) and answer.status == 200
    assert code == 0
    assert "1 deleted" in errors and "eager: at once" in errors
    assert "1 request; 1 chunk read, 0 results of the host with a handle; 1 message forgotten." in errors
    assert "By the provider's count" in errors


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_in_the_middle_of_a_stream_it_leaves_a_ledger_that_the_next_one_uses(
    environment: dict[str, str], upstream: Upstream
) -> None:
    """Once the host has a call of ours, all that the call may name is safe."""
    go_on = threading.Event()
    call = {"type": "tool_use", "id": "toolu_1", "name": "mcp__pensieve__checkBudget", "input": {}}

    def hanging(handler: Handler, body: bytes) -> None:
        handler.begin_stream()
        start = {"type": "content_block_start", "index": 0, "content_block": call}
        for event in (start, {"type": "content_block_stop", "index": 0}):
            handler.piece(b"data: " + json.dumps(event).encode() + b"\n\n")
        go_on.wait(60)

    upstream.behaviour = hanging
    body = host_talk().body("anthropic")
    first = Command(environment, "--upstream", upstream.url)
    head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Claude-Code-Session-Id: s-1\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with raw_socket(first.url) as line:
        line.sendall(head.encode() + body)
        got = b""
        while b"content_block_stop" not in got:
            got += line.recv(4096)
        first.end(signal.SIGKILL)
        while piece := _received(line):
            got += piece
    go_on.set()
    assert not got.endswith(b"0\r\n\r\n")  # cut off, not ended

    handle = _handle(body)
    with Workspace.open([environment["PENSIEVE_FOLDERS"]], environment=environment) as workspace:
        assert workspace.ledger.content(workspace.ledger.find(handle).message) == HOST_TEXT
    upstream.behaviour = lambda handler, body: handler.whole(200, b"{}")
    second = Command(environment, "--upstream", upstream.url)
    talk = host_talk()
    talk.delete(handle)
    assert ask(second.url, "POST", "/v1/messages", talk.body("anthropic"), JSON)[0].status == 200
    second.end()
    assert b"a row of the host's file" not in upstream.got[-1].body


def _received(line: Any) -> bytes:
    try:
        return bytes(line.recv(4096))
    except ConnectionError:
        return b""


def _handle(body: bytes) -> str:
    from talks import FACTS

    from pensieve_mcp.gateway.timing import Policy

    return rewrite(body, "anthropic", FACTS, Policy(), handle_tokens=500)[1].host_results[0].handle


def test_without_an_upstream_it_says_what_to_give(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pensieve_mcp.cli", "gateway"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "--upstream" in done.stderr


HOST = """
import json, os, signal, sys, time, urllib.request
place = sys.argv[1:]
config = next(a for a in place if a.startswith("--mcp-config=")).partition("=")[2]
entry = json.load(open(config))["mcpServers"]["pensieve"]
body = sys.stdin.buffer.read()
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
request = urllib.request.Request(url, body, {"content-type": "application/json"})
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print(urllib.request.urlopen(request).status, place[-1], "pensieve_mcp.server" in entry["args"], flush=True)
if place[-1] == "wait":
    while True:  # each sleep ends soon: a signal may come just before one begins
        time.sleep(0.05)
sys.exit(7)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the host is a script")
@pytest.mark.parametrize("ending", ["done", "wait"])
def test_run_passes_arguments_exit_code_and_signals(
    environment: dict[str, str], upstream: Upstream, tmp_path: Path, ending: str
) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!{sys.executable}\n{HOST}", encoding="utf-8")
    program.chmod(0o755)
    talk = Talk()
    talk.delete(f"m{talk.read('SECRET words ' * 300)}")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pensieve_mcp.cli",
            "run",
            "--program",
            str(program),
            "--explain",
            str(tmp_path / "explained.txt"),
            "claude",
            "--flag",
            ending,
        ],
        env={**environment, "ANTHROPIC_BASE_URL": upstream.url, "HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(talk.body("anthropic"))
    process.stdin.close()
    said = process.stdout.readline()
    if ending == "wait":
        process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    errors = process.stderr.read() if process.stderr else b""
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()

    assert said == f"200 {ending} True\n".encode()
    assert code == (9 if ending == "wait" else 7)
    assert b"1 message forgotten" in errors
    assert b"SECRET" not in upstream.got[0].body
    explained = (tmp_path / "explained.txt").read_text(encoding="utf-8")
    assert (
        "/v1/messages: " in explained
        and "1 deleted" in explained
        and "taken out; eager: at once." in explained
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_that_does_not_wake_the_main_thread_reaches_the_host_too(name: str) -> None:
    """As one does that comes just before the main thread lies down: here another thread takes it."""
    script = f"""
import os, signal, sys, threading
from pensieve_mcp.cli.gateway import _Host
idle = threading.Thread(target=threading.Event().wait, daemon=True)
idle.start()
threading.Timer(0.3, signal.pthread_kill, (idle.ident, signal.{name})).start()
host = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); time.sleep(60)"
with _Host() as ours:
    print(ours.run([sys.executable, "-c", host], dict(os.environ)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=40,
        check=True,
    )
    assert int(done.stdout) == 128 + getattr(signal, name)

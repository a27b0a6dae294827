"""`pensieve run` with a script in place of the host: however it ends, its end is ours, and nothing stays behind."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.gateway.hosts import Server, launch, route

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the host is a script, and signals are sent")
ROOT = Path(__file__).resolve().parents[2]
ODD = "Größe 100% 'q' \"z\" {x} 灯台 \U0001f56f"

HOST = """
import json, os, signal, sys, time
if sys.argv[-1] == "--version":
    print("0.9.3 (a fake)")
    sys.exit()
told = os.environ["TOLD"]
def end(number, frame):
    os.write(1, b"signal %d\\n" % number)  # print may be in the middle of another
    os._exit(40 + number)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, end)
with open(told, "w") as file:
    json.dump({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}, file)
print("here", flush=True)
if sys.argv[-1] == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[-1] == "wait":
    while True:  # each sleep ends soon: a signal may come just before one begins
        time.sleep(0.05)
sys.exit(int(sys.argv[-1]))
"""


class Bench:
    """A home, a workspace in a folder whose name is hard to pass on, and a host that tells how it was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = folder / ODD
        self.library.mkdir()
        (self.library / "light.md").write_text("# The light\n\n412 barrels.\n", encoding="utf-8")
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.home = folder / "home"
        (self.home / ".codex").mkdir(parents=True)
        (self.home / ".codex" / "config.toml").write_text('model = "x" # mine\n')
        (self.home / ".claude").mkdir()
        (self.home / ".claude" / "settings.json").write_text('{"env": {"A": "b"}}\n')
        (self.home / ".config" / "opencode").mkdir(parents=True)
        (self.home / ".config" / "opencode" / "opencode.json").write_text('{"model": "a/b"} // mine\n')
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.scratch),
            "PENSIEVE_HOME": str(folder / "state"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p and Path(p).is_dir())]),
            "ANTHROPIC_API_KEY": "x",
            "LC_ALL": "C.UTF-8",
        }
        done = self.pensieve("index", str(self.library))
        assert done.returncode == 0, done.stderr

    def pensieve(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pensieve_mcp.cli", *words], env=self.environment, cwd=self.home,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=120,
        )  # fmt: skip

    def host(self, name: str) -> Path:
        program = self.folder / f"{name} {ODD}"
        program.write_text(f"#!{sys.executable}\n{HOST}", encoding="utf-8")
        program.chmod(0o755)
        return program

    def start(self, host: str, ending: str, number: int = 0) -> subprocess.Popen[str]:
        self.environment["TOLD"] = str(self.folder / f"told{number}.json")
        return subprocess.Popen(
            [sys.executable, "-m", "pensieve_mcp.cli", "run", "--program", str(self.host(host)), host, "a b", ending],
            env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True,
        )  # fmt: skip

    def told(self, number: int = 0) -> dict[str, Any]:
        return json.loads((self.folder / f"told{number}.json").read_text())  # type: ignore[no-any-return]

    def fingerprints(self) -> dict[str, str]:
        """Of every file in the home: the person's configuration."""
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.home.rglob("*"))
            if path.is_file()
        }

    def left_behind(self) -> list[str]:
        return [str(path) for path in self.scratch.rglob("*")] + [
            str(path) for path in (self.folder / "state").rglob("*.episode")
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def server_of(host: str, told: dict[str, Any]) -> dict[str, Any]:
    """Our server's entry as this host is told it, and whether the host sends its requests to the gateway."""
    if host == "claude":
        config = next(word for word in told["argv"] if word.startswith("--mcp-config="))
        assert told["env"]["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
        return {"at": config.partition("=")[2]}
    if host == "codex":
        import tomllib

        options = [told["argv"][at + 1] for at, word in enumerate(told["argv"]) if word == "-c"]
        read = tomllib.loads("\n".join(options))
        assert read["openai_base_url"].startswith("http://127.0.0.1:")
        return read["mcp_servers"]["pensieve"]  # type: ignore[no-any-return]
    content = json.loads(told["env"]["OPENCODE_CONFIG_CONTENT"])
    assert content["provider"]["anthropic"]["options"]["baseURL"].startswith("http://127.0.0.1:")
    return content["mcp"]["pensieve"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("host", ["claude", "codex", "opencode"])
def test_arguments_exit_code_and_an_untouched_home(host: str, bench: Bench) -> None:
    before = bench.fingerprints()
    process = bench.start(host, "7")
    out, errors = process.communicate(timeout=120)

    assert (process.returncode, out) == (7, "here\n"), errors
    assert "pensieve: Nothing passed the gateway." in errors and "Traceback" not in errors
    assert f"{host} ended with 7 before it asked its model anything. Not logged in? Then " in errors
    assert f"This is {host} 0.9.3, older than the one that this was tried with" in errors
    told = bench.told()
    assert told["env"]["PENSIEVE_GATEWAY"].startswith("http://127.0.0.1:")
    assert told["argv"][-2:] == ["a b", "7"]
    entry = server_of(host, told)
    words = [*entry.get("args", []), *entry.get("command", [])]
    assert host == "claude" or str(bench.library) in words, "every letter of the folder's name arrives"
    assert bench.fingerprints() == before and not bench.left_behind()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_is_passed_on_and_the_hosts_answer_to_it_is_ours(name: str, bench: Bench) -> None:
    number = getattr(signal, name)
    process = bench.start("claude", "wait")
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.send_signal(number)
    out, errors = process.communicate(timeout=120)

    assert (process.returncode, out) == (40 + number, f"signal {int(number)}\n"), errors
    assert "Nothing passed the gateway" in errors and not bench.left_behind()
    assert "logged in" not in errors, "somebody ended it"


def test_a_host_that_crashes_is_told_by_the_exit_code(bench: Bench) -> None:
    process = bench.start("codex", "crash")
    _, errors = process.communicate(timeout=120)

    assert process.returncode == 128 + signal.SIGKILL
    assert "Traceback" not in errors and not bench.left_behind()


def test_two_at_once_have_each_their_own(bench: Bench) -> None:
    first = bench.start("opencode", "wait", 1)
    assert first.stdout is not None and first.stdout.readline() == "here\n"
    second = bench.start("opencode", "0", 2)
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 0 and first.poll() is None
    assert "If opencode did talk to a model" in errors and "logged in" not in errors
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)

    entries = [server_of("opencode", bench.told(number)) for number in (1, 2)]
    runs = {entry["environment"]["PENSIEVE_RUN"] for entry in entries}
    gateways = {
        json.loads(bench.told(n)["env"]["OPENCODE_CONFIG_CONTENT"])["provider"]["anthropic"]["options"][
            "baseURL"
        ]
        for n in (1, 2)
    }
    assert len(runs) == 2 and len(gateways) == 2 and first.returncode == 40 + signal.SIGTERM


def test_a_host_that_is_not_there_or_no_program_is_said(bench: Bench) -> None:
    missing = bench.pensieve("run", "codex", "exec")
    assert missing.returncode == 1 and "npm install -g @openai/codex" in missing.stderr
    assert "--program" in missing.stderr
    named = bench.pensieve("run", "--program", str(bench.folder / "nothing"), "codex")
    assert named.returncode == 1 and "nothing cannot be started: No such file" in named.stderr
    assert f"--program named {bench.folder / 'nothing'}" in named.stderr
    assert "Name the host's program" not in named.stderr, "that was done"
    for behind in (["--program", "/nonexistent"], ["exec", "--program=/nonexistent"]):
        given = bench.pensieve("run", "codex", *behind)
        assert given.returncode == 1 and "npm install" not in given.stderr
        assert "pensieve run --program /nonexistent codex" in given.stderr
    document = bench.library / "light.md"
    plain = bench.pensieve("run", "--program", str(document), "codex")
    assert plain.returncode == 1 and "cannot be started: Permission denied" in plain.stderr
    assert not bench.left_behind()


def test_a_question_about_the_host_itself_is_no_failure(bench: Bench) -> None:
    done = bench.pensieve("run", "--program", str(bench.host("claude")), "claude", "--version")
    assert (done.returncode, done.stdout) == (0, "0.9.3 (a fake)\n")
    assert done.stderr.endswith("pensieve: Nothing passed the gateway.\n")


def test_a_port_in_use_is_said(bench: Bench) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = bench.pensieve("gateway", "--anthropic", "--port", port)
    assert refused.returncode == 1 and f"port {port}" in refused.stderr and "--port" in refused.stderr


def test_the_configuration_of_claude_code_holds_any_path(tmp_path: Path) -> None:
    place = route("claude", "claude", {}, tmp_path)
    entry = Server((f"/opt/{ODD}/python", "-m", "x", f"/data/{ODD}"), {"PENSIEVE_HOME": f"/h/{ODD}"})
    started = launch("claude", place, "http://127.0.0.1:1", entry, ["-p", "x"], {}, tmp_path)
    config = json.loads(Path(started.arguments[0].partition("=")[2]).read_text(encoding="utf-8"))
    server = config["mcpServers"]["pensieve"]

    assert [server["command"], *server["args"]] == list(entry.command) and server["env"] == entry.environment
    assert started.arguments[1:] == ("-p", "x")

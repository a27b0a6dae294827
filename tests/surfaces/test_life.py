"""How the program starts and ends: real processes.

Complaints behind it: orphaned servers by the hundred, since hosts keep the pipe open or die hard; libraries
that print into the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.workspace import Workspace

INITIALIZE = {
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
PATIENT = """
import sys
from pensieve_mcp.server import relaying, running
relaying.ANSWERING_SECONDS = 1e6
sys.exit(running.run(sys.argv[1:]))
"""
Start = Callable[..., "subprocess.Popen[bytes]"]

posix = pytest.mark.skipif(os.name != "posix", reason="processes are watched otherwise there")


@pytest.fixture
def start(parameters: Any) -> Any:
    started: list[subprocess.Popen[bytes]] = []

    def make(
        *arguments: str, folder: Any = ..., cwd: Path | None = None, patient: bool = False, **variables: str
    ) -> subprocess.Popen[bytes]:
        """`patient`: it waits for answers for ever, so that a wait in vain does not pass for none."""
        how = parameters(*arguments, **({} if folder is ... else {"folder": folder}), **variables)
        assert how.args[:2] == ["-m", "pensieve_mcp.server"]
        process = subprocess.Popen(
            [how.command, *(["-c", PATIENT, *how.args[2:]] if patient else how.args)],
            env=how.env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # words it no longer reads
                    stream.close()


def say(process: subprocess.Popen[bytes], *messages: dict[str, Any]) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next message with an id; anything else on stdout fails here."""
    assert process.stdout is not None
    while True:
        message = json.loads(process.stdout.readline())
        if "id" in message:
            return dict(message)


def call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


def wait_until(what: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something outside this process; failing is a failed test, not a slow one."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            pytest.fail(f"still not so after {seconds:g} s")
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:  # another system, or gone between the two looks
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def test_the_first_answers_wait_for_nothing_heavy(start: Start) -> None:
    """Complaint: hosts drop a server whose start loads models and libraries. Seen in the interpreter's own list."""
    server = start(PYTHONPROFILEIMPORTTIME="1")
    say(server, INITIALIZE, INITIALIZED, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert [hear(server)["id"], hear(server)["id"]] == [1, 2]
    server.kill()
    assert server.stderr is not None
    lines = server.stderr.read().decode().splitlines()
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}

    assert {"mcp", "pydantic", "pensieve_mcp"} <= loaded, "the list is there"
    assert not loaded & {
        "sqlite_utils",
        "numpy",
        "tantivy",
        "tokenizers",
        "onnxruntime",
        "pypdfium2",
        "torch",
    }


def test_the_end_of_stdin_ends_the_server(start: Start) -> None:
    server = start()
    say(server, INITIALIZE, INITIALIZED)
    hear(server)
    assert server.stdin is not None
    server.stdin.close()

    assert server.wait(timeout=30) == 0


def test_calls_that_were_piped_in_are_answered_before_the_end(start: Start) -> None:
    """As from a shell: some lines, then the end of the input."""
    server = start()
    lines = [INITIALIZE, INITIALIZED, call(2, "note", {"key": "k", "summary": "s", "content": "c"})]
    out, _ = server.communicate(b"".join(json.dumps(line).encode() + b"\n" for line in lines), timeout=60)
    answers = {message.get("id"): message for message in map(json.loads, out.splitlines())}

    assert server.returncode == 0
    assert "Noted" in text_of(answers[2])


def test_answers_that_wait_for_a_slow_reader_are_written_before_the_end(start: Start) -> None:
    """Fault: once its handler was done, an answer not yet written was dropped at the end of the input."""
    server = start()
    assert server.stdin is not None and server.stdout is not None
    lists = [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(2, 32)]
    say(server, INITIALIZE, INITIALIZED, *lists)
    server.stdin.close()
    hear(server)
    time.sleep(2)  # the pipe is full: they are more than it holds
    out = server.stdout.read()

    assert len(out) > 2 * 65_536
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == list(range(2, 32))
    assert server.wait(timeout=30) == 0


def test_a_call_that_takes_its_time_is_answered_after_the_end_of_the_input(parameters: Any) -> None:
    """Fault: three seconds after the end of the input it got "Connection closed"."""
    script = """
import sys, anyio
from pensieve_mcp.server.running import run
from pensieve_mcp.server.surface import Surface
at_once = Surface._call
async def slowly(self, ctx, params):
    await anyio.sleep(5)
    return await at_once(self, ctx, params)
Surface._call = slowly
run(sys.argv[1:])
"""
    how = parameters()
    lines = [INITIALIZE, INITIALIZED, call(2, "checkBudget", {})]
    done = subprocess.run(
        [sys.executable, "-c", script, *how.args[2:]],
        env=how.env,
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=50,
    )
    answers = {message.get("id"): message for message in map(json.loads, done.stdout.splitlines())}

    assert "result" in answers[2], done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ids", [(1, 1, 1), (1, "1", 1), ("a", "a", 2)])
def test_requests_of_one_id_are_all_answered_before_the_end(start: Start, ids: tuple[Any, ...]) -> None:
    """Fault: the first answer to an id ended the wait for the others of it."""
    server = start()
    asked = [
        call(ids[0], "note", {"key": "k", "summary": "s", "content": "c"}),
        call(ids[1], "checkBudget", {}),
        {"jsonrpc": "2.0", "id": ids[2], "method": "tools/list"},
    ]
    lines = [{**INITIALIZE, "id": 0}, INITIALIZED, *asked]
    out, _ = server.communicate(b"".join(json.dumps(line).encode() + b"\n" for line in lines), timeout=60)
    answers = [message for message in map(json.loads, out.splitlines()) if "id" in message]

    assert sorted(map(str, ids)) == sorted(str(message["id"]) for message in answers[1:])
    assert all("result" in message for message in answers)


def test_a_cancelled_call_is_not_waited_for_however_its_id_is_spelled(start: Start) -> None:
    server = start(patient=True)
    say(server, {**INITIALIZE, "id": 0}, INITIALIZED)
    hear(server)
    build = call("01", "buildIndex", {})  # type: ignore[arg-type]  # an id may be text
    gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    say(server, build, gone)
    server.communicate(timeout=60)

    assert server.returncode == 0


def test_a_host_that_leaves_before_its_answers_is_an_ordinary_end(start: Start) -> None:
    server = start()
    assert server.stdin is not None and server.stdout is not None and server.stderr is not None
    lists = [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(2, 32)]
    say(server, INITIALIZE, INITIALIZED, *lists)
    hear(server)
    server.stdout.close()
    server.stdin.close()

    assert (server.wait(timeout=60), server.stderr.read()) == (0, b"")


def test_a_question_to_a_person_is_not_waited_for_when_the_input_has_ended(start: Start) -> None:
    server = start(patient=True, PENSIEVE_NOTE_DELETES="ask")
    can_ask = json.loads(json.dumps(INITIALIZE))
    can_ask["params"]["capabilities"] = {"elicitation": {}}
    noted = call(2, "note", {"key": "k", "summary": "s", "content": "c"})
    delete = call(3, "updateNote", {"key": "k", "mode": "delete"})
    say(server, can_ask, INITIALIZED, noted)
    hear(server)
    hear(server)
    out, _ = server.communicate(json.dumps(delete).encode() + b"\n", timeout=60)
    messages = list(map(json.loads, out.splitlines()))

    assert [message["method"] for message in messages if "method" in message and "id" in message] == [
        "elicitation/create"
    ]
    assert "person" in text_of(next(message for message in messages if message.get("id") == 3))
    assert server.returncode == 0


@posix
def test_a_signal_that_does_not_wake_the_main_thread_ends_the_process_too() -> None:
    """As one does that comes just before the main thread lies down: here another thread takes it."""
    script = """
import signal, threading, time
from pensieve_mcp.server.lifeline import Lifeline
Lifeline(lambda: print("closed", flush=True)).heed_signals()
idle = threading.Thread(target=threading.Event().wait, daemon=True)
idle.start()
threading.Timer(0.2, signal.pthread_kill, (idle.ident, signal.SIGTERM)).start()
time.sleep(60)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL
    )

    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


@posix
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_the_server_in_order(start: Start, name: str) -> None:
    server = start()
    say(server, INITIALIZE, INITIALIZED, call(2, "note", {"key": "k", "summary": "s", "content": "c"}))
    hear(server)
    assert "Noted" in text_of(hear(server))
    server.send_signal(getattr(signal, name))

    assert server.wait(timeout=30) == 0


@posix
def test_a_server_whose_host_died_ends_though_its_pipe_stays_open(parameters: Any, tmp_path: Path) -> None:
    how = parameters()
    reading, writing = os.pipe()
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()",
            how.command,
            *how.args,
        ],
        env=how.env,
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    os.close(reading)
    assert host.stdout is not None
    server = int(host.stdout.readline())
    try:
        os.write(writing, json.dumps(INITIALIZE).encode() + b"\n")
        assert json.loads(host.stdout.readline())["id"] == 1
        host.kill()
        host.wait()
        wait_until(lambda: not alive(server))
    finally:
        os.close(writing)
        host.stdout.close()
        if alive(server):
            os.kill(server, signal.SIGKILL)


def descendants(pid: int) -> set[int]:
    """Processes below this one, as /proc tells."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found |= {int(stat.parent.name), *descendants(int(stat.parent.name))}
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["end of stdin", "SIGKILL"])
def test_builder_and_readers_go_with_the_server(start: Start, library: Path, how: str) -> None:
    """Though a build is in full swing, and even when the server has no chance to clean up."""
    for number in range(3_000):
        (library / f"page{number}.md").write_text(
            f"# Page {number}\n\n" + "The sea was rough. " * 200, encoding="utf-8"
        )
    server = start()
    say(server, INITIALIZE, INITIALIZED, call(2, "buildIndex", {}))
    hear(server)
    assert "Building" in text_of(hear(server))
    below = descendants(server.pid)
    assert len(below) >= 2, "a builder and at least one reader"

    if how == "end of stdin":
        assert server.stdin is not None
        server.stdin.close()
    else:
        server.send_signal(getattr(signal, how))
    server.wait(timeout=30)

    wait_until(lambda: not any(alive(pid) for pid in below))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_after_a_kill_during_the_first_build_the_next_server_goes_on_and_says_so(
    start: Start, library: Path
) -> None:
    """The first search of the next conversation must not pass a part for the whole, nor ask for what goes on anyway."""
    for number in range(3_000):
        (library / f"page{number}.md").write_text(
            f"# Page {number}\n\n" + "The sea was rough. " * 200, encoding="utf-8"
        )
    first = start()
    say(first, INITIALIZE, INITIALIZED, call(2, "searchEngine", {"keyword": "rough sea"}))
    hear(first)
    assert "Still indexing" in text_of(hear(first))
    below = descendants(first.pid)
    first.kill()
    first.wait()
    wait_until(lambda: not any(alive(pid) for pid in below))

    second = start()
    say(second, INITIALIZE, INITIALIZED, call(2, "searchEngine", {"keyword": "rough sea"}))
    assert "0 of 0" not in hear(second)["result"]["instructions"]
    told = text_of(hear(second))
    assert re.search(
        r"Still indexing: [\d,]+ documents can be searched, [\d,]+ of 3,003 files are left\.", told
    ), told
    assert "call buildIndex" not in told.lower()


def test_stdout_is_the_protocol_even_when_a_library_prints(start: Start, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Chatty:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sqlite_utils':\n"
        "            print('a greeting'); os.write(1, b'a raw greeting\\n')\n"
        "sys.meta_path.insert(0, Chatty())\n"
    )
    server = start(PYTHONPATH=str(tmp_path))
    say(server, INITIALIZE, INITIALIZED, call(2, "readNote", {}))
    assert server.stdin is not None and server.stdout is not None and server.stderr is not None
    assert [hear(server)["id"], hear(server)["id"]] == [1, 2]
    server.stdin.close()
    rest = server.stdout.read().decode()

    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    told = server.stderr.read().decode()
    assert "a greeting" in told and "a raw greeting" in told


def test_without_a_folder_the_server_starts_and_every_call_says_how_to_give_one(
    start: Start, tmp_path: Path
) -> None:
    server = start(folder=None, cwd=tmp_path)
    say(
        server,
        INITIALIZE,
        INITIALIZED,
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        call(3, "searchEngine", {"keyword": "oil"}),
    )

    assert "was given none" in hear(server)["result"]["instructions"]
    answers = {answer["id"]: answer for answer in (hear(server), hear(server))}
    assert len(answers[2]["result"]["tools"]) == 12
    assert answers[3]["result"]["isError"] is True
    assert "PENSIEVE_FOLDERS" in text_of(answers[3]) and str(tmp_path) in text_of(answers[3])


def test_a_folder_that_is_missing_is_told_and_found_once_it_is_there(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    server = start(folder=folder)
    say(server, INITIALIZE, INITIALIZED, call(2, "readNote", {}))
    assert str(folder) in hear(server)["result"]["instructions"]
    refused = hear(server)
    assert refused["result"]["isError"] and str(folder) in text_of(refused)

    folder.mkdir()
    say(server, call(3, "readNote", {}))
    assert "isError" not in (answer := hear(server)["result"]) or not answer["isError"]


@pytest.mark.parametrize("arguments", [("--set", "no_pair"), ("--http", "nowhere")])
def test_options_that_cannot_be_served_end_with_status_2_and_words(
    start: Start, arguments: tuple[str, str]
) -> None:
    server = start(*arguments)
    out, told = server.communicate(timeout=60)

    assert (server.returncode, out) == (2, b"")
    assert told.startswith(b"pensieve-mcp: ") and arguments[1].encode() in told


def test_a_server_on_databases_of_a_newer_version_says_so_in_every_call(
    start: Start, library: Path, environment: dict[str, str]
) -> None:
    """Two versions side by side: the older one starts, lists its tools, and tells what to do."""
    with Workspace.open([library], environment=environment, builder="inline") as workspace:
        workspace.build_now()
        workspace.notebook.write("k", summary="s", content="c")
        database = workspace.state / "pensieve.db"
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        for basin, last in db.execute(
            "SELECT basin, max(number) FROM _pensieve_migrations GROUP BY basin"
        ).fetchall():
            future = (basin, last + 1, "future", "r", "pensieve 9.9", "")
            db.execute("INSERT INTO _pensieve_migrations VALUES (?, ?, ?, ?, ?, ?)", future)
            newer = (last + 1, "pensieve 9.9", basin)
            db.execute("UPDATE _pensieve_basins SET oldest_writer = ?, program = ? WHERE basin = ?", newer)

    server = start()
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    say(server, INITIALIZE, INITIALIZED, listing, call(3, "searchEngine", {"keyword": "oil"}))
    answers = {answer["id"]: answer for answer in (hear(server), hear(server), hear(server))}

    assert len(answers[2]["result"]["tools"]) == 12
    assert answers[3]["result"]["isError"] is True
    told = text_of(answers[3])
    assert "newer version (pensieve 9.9)" in told and "Update pensieve-statelm" in told, told

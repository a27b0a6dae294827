"""askStateLM in real coding agents: a whole question is handed over, and the agent's limit of a call does not end it.

The reader's model is scripted as well: an endpoint on the loopback that writes when it is let. Skipped aloud where an
agent is not installed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from host_runs import Run, binary, run

from pensieve_mcp.workspace import Workspace

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(600)]

QUESTION = "How many barrels of oil did the keeper use in 1911?"
OUR_NAMES = {"claude": "claude-code", "codex": "codex"}
QUOTE = "The keeper Maren Holt used 412 barrels of oil in the year 1911."
READING: list[tuple[str, dict[str, Any]]] = [
    ("searchEngine", {"keyword": "barrels of oil"}),
    ("readChunk", {"chunk_id": 1}),
    ("note", {"key": "oil", "summary": "412 barrels", "content": "412", "evidence": [{"quote": QUOTE}]}),
    ("finish", {"answer": "412 barrels", "citations": ["oil"]}),
]

hosts = pytest.mark.parametrize(
    "host",
    [
        pytest.param(host, marks=pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed"))
        for host in OUR_NAMES
    ],
)


class Reader:
    """The model of the reader: one call of `READING` a request, once it is let. Until then it writes on and on."""

    def __init__(self) -> None:
        self.url = ""
        self.let = threading.Event()
        self.gone = threading.Event()  # who asked hung up in the middle of a reply
        self.replies = 0


@contextmanager
def reading() -> Iterator[Reader]:
    reader = Reader()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                while not reader.let.wait(0.1):
                    self._event({"delta": {"content": "."}})
            except OSError:
                reader.gone.set()
                return
            name, arguments = READING[reader.replies]
            reader.replies += 1
            call = {
                "index": 0,
                "id": f"id{reader.replies}",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            self._event({"delta": {"tool_calls": [call]}})
            self._event({"delta": {}, "finish_reason": "tool_calls"})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, choice: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    reader.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield reader
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def reader() -> Iterator[Reader]:
    with reading() as made:
        yield made


def work(
    host: str, folder: Path, reader: Reader, turns: list[list[dict[str, Any]]], *, waits: int, limit: int
) -> Run:
    """A conversation after `pensieve install`: our calls wait 0.8 × `waits` s, the host gives up after `limit`."""
    library = folder / "archive"
    library.mkdir()
    (library / "light.md").write_text(f"# The light of Velsay\n\n{QUOTE}\n", encoding="utf-8")
    state = folder / "state"
    with Workspace.open([library], state=state, environment={}, builder="inline") as workspace:
        workspace.build_now()
    settings = {
        "upgrade": "false",
        "ask_backend": "openai",
        "ask_url": reader.url,
        "ask_model": "m",
        "call_seconds": waits,
    }
    told = [
        "--state",
        str(state),
        *(word for pair in settings.items() for word in ("--set", f"{pair[0]}={pair[1]}")),
    ]
    told += ["install", OUR_NAMES[host], str(library)]
    told += ["--allow"] if host == "claude" else []  # in Codex the tool must be allowed by its annotations

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        environment["MCP_TOOL_TIMEOUT"] = str(limit * 1_000)
        return ["-c", f"mcp_servers.pensieve.tool_timeout_sec={limit}"] if host == "codex" else []

    ran = run(host, [], turns, {}, installed=told, prepare=prepare)
    assert (ran.returncode, ran.done) == (0, True), ran.output[-4_000:]
    return ran


@hosts
def test_a_question_that_takes_longer_than_the_hosts_limit_is_answered(
    host: str, tmp_path: Path, reader: Reader
) -> None:
    """It runs on in the background; the same call again waits on, and the model has the answer in its next request."""

    def let(results: list[dict[str, Any]]) -> str:
        reader.let.set()
        return QUESTION

    asks = [
        [{"tool": "askStateLM", "args": {"question": question}}] for question in (QUESTION, QUESTION, let)
    ]
    ran = work(host, tmp_path, reader, [*asks, [{"text": "END"}]], waits=4, limit=6)
    texts = [result["text"] for result in ran.results()]

    for text in texts[:2]:
        assert re.search(r"m\d+ · reading · .*\nStill reading after \d+ s: .*Ask the same again", text), text
    assert "412 barrels" in texts[2] and f"“{QUOTE}”" in texts[2]
    assert re.search(r"\[c1 archive/light\.md .*: ok\]", texts[2]) and "grounded: true" in texts[2], texts[2]
    assert reader.replies == len(READING) and not reader.gone.is_set(), "one question, read once, to its end"


@hosts
def test_a_call_that_the_host_gives_up_ends_the_reading(host: str, tmp_path: Path, reader: Reader) -> None:
    """The host cancels what its limit ended; nobody would hear the answer. Then the conversation goes on."""

    def hung_up(results: list[dict[str, Any]]) -> str:
        return f"the reader was left: {reader.gone.wait(60)}"

    turns: list[list[dict[str, Any]]] = [
        [{"tool": "askStateLM", "args": {"question": QUESTION}}],
        [{"tool": "searchEngine", "args": {"keyword": hung_up}}],
        [{"text": "END"}],
    ]
    ran = work(host, tmp_path, reader, turns, waits=25, limit=2)

    assert "the reader was left: True" in json.dumps(ran.requests[-1]["body"])
    assert reader.replies == 0 and "Still reading" not in ran.results()[0]["text"]
    assert re.match(r".*?m\d+ · ", ran.results()[1]["text"], re.S), "the server answers on"

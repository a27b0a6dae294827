"""A question is given up although its model server says nothing: at the shell, over MCP, by Ctrl-C. On the loopback.

The server stays silent until a test lets it go, so what ends before has ended without it.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

sys.path.insert(0, str(Path(__file__).parent))
from server import Answer, Mute, events, mute, serving

from pensieve_mcp.cli import INTERRUPTED
from pensieve_mcp.spellbook.entrusting import Asks
from pensieve_mcp.statelm import asking
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.turns import Prompt, Reply
from pensieve_mcp.workspace import Workspace

pytestmark = pytest.mark.timeout(120)  # a wait that cannot be given up lasts three minutes

QUESTION = "Who founded the Arvale Museum?"
PROMPT = Prompt(({"role": "user", "content": "Q"},))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n"
BEGUN = {
    "openai": HEAD + events({"choices": [{"delta": {"content": "I look."}}]})[0],
    "anthropic": HEAD
    + events({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "I look."}})[0],
}
WHOLE = {
    "openai": events({"choices": [{"delta": {"content": "Yes."}, "finish_reason": "stop"}]}),
    "anthropic": events(
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Yes."}},
        {"type": "message_stop"},
    ),
}
REFUSED = b"HTTP/1.1 503 Busy\r\ncontent-length: 99999\r\n\r\nI am"

both = pytest.mark.parametrize("backend", ["openai", "anthropic"])


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert "waiting" not in [thread.name for thread in threading.enumerate()]


@both
@pytest.mark.parametrize("beginning", [b"", HEAD, REFUSED], ids=["silent", "no word", "half a refusal"])
def test_a_question_is_cancelled_while_its_server_says_nothing(
    workspace: Workspace, home: Path, backend: str, beginning: bytes
) -> None:
    with mute(beginning) as server:
        asked = asking.ask(
            workspace, QUESTION, Choice(backend, "m", server.url, key="k"), home=home, cancelled=server.asked.is_set
        )  # fmt: skip
        assert asked.ended == "cancelled" and server.was_left() and not server.released.is_set()


@both
def test_a_question_is_cancelled_while_its_server_is_stuck_in_a_reply(
    workspace: Workspace, home: Path, backend: str
) -> None:
    heard: list[str] = []
    with mute(BEGUN[backend]) as server:
        asked = asking.ask(
            workspace,
            QUESTION,
            Choice(backend, "m", server.url, key="k"),
            home=home,
            hear=lambda text: heard.append(text) if text else None,
            cancelled=lambda: bool(heard),  # after the word, so that only the silence behind it is left
        )
        assert asked.ended == "cancelled" and server.was_left() and not server.released.is_set()

    assert heard == ["I look."]


@both
def test_a_question_is_cancelled_while_its_server_keeps_silent_about_encryption(
    workspace: Workspace, home: Path, backend: str
) -> None:
    with mute() as server:
        choice = Choice(backend, "m", server.url.replace("http:", "https:"), key="k")
        asked = asking.ask(workspace, QUESTION, choice, home=home, cancelled=server.asked.is_set)
        assert asked.ended == "cancelled" and server.was_left() and not server.released.is_set()


def test_a_question_is_cancelled_while_its_server_is_looked_up(
    workspace: Workspace, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, released = threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        looked_up.set()
        released.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    choice = Choice("openai", "m", "http://model.example.org")
    asked = asking.ask(workspace, QUESTION, choice, home=home, cancelled=looked_up.is_set)
    assert asked.ended == "cancelled" and not released.is_set()
    released.set()


def interrupting(server: Mute) -> None:
    """Ctrl-C as soon as the server was asked; no thread is woken by it, as on Windows."""
    threading.Thread(target=lambda: server.asked.wait() and _thread.interrupt_main(), daemon=True).start()


@both
@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_ends_a_question_whose_server_says_nothing(
    workspace: Workspace, home: Path, backend: str, begun: bool
) -> None:
    with mute(BEGUN[backend] if begun else b"") as server:
        interrupting(server)
        with pytest.raises(KeyboardInterrupt):
            asking.ask(workspace, QUESTION, Choice(backend, "m", server.url, key="k"), home=home)
        assert server.was_left() and not server.released.is_set()


@both
def test_a_reply_can_be_had_after_one_that_was_given_up(backend: str) -> None:
    """The connection that was given up is not used again."""
    wanted = False

    def hear(text: str) -> None:
        if not wanted and server.asked.is_set():
            raise KeyboardInterrupt

    body = b"".join(WHOLE[backend])
    with mute(b"", f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body) as server:
        model = open_backend(Choice(backend, "m", server.url, key="k"), hear=hear)
        with pytest.raises(KeyboardInterrupt):
            model.reply(PROMPT)
        assert server.was_left()
        wanted = True
        reply = model.reply(PROMPT)
        model.close()

    assert reply == Reply("Yes.")


@both
def test_a_question_that_an_mcp_call_gave_up_ends_although_its_server_says_nothing(
    open_workspace: Callable[..., Workspace], home: Path, backend: str
) -> None:
    with mute() as server:
        workspace = open_workspace(ask_backend=backend, ask_model="m", ask_url=server.url)
        asks = Asks.of(workspace, {"PENSIEVE_HOME": str(home), "PENSIEVE_ASK_KEY": "k"})
        assert asks is not None
        job = asks.join(QUESTION, ())
        server.asked.wait()
        asks.cancel(QUESTION, ())
        job.done.wait()
        assert job.answer is not None and job.answer["ended"] == "cancelled"
        assert server.was_left() and not server.released.is_set()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@both
async def test_a_cancelled_call_of_the_program_lets_its_silent_server_go(
    folder: Path, home: Path, backend: str
) -> None:
    with mute() as server:
        environment = {
            **os.environ,
            "PENSIEVE_HOME": str(home),
            "PENSIEVE_ASK_BACKEND": backend,
            "PENSIEVE_ASK_MODEL": "m",
            "PENSIEVE_ASK_URL": server.url,
            "PENSIEVE_ASK_KEY": "k",
        }
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "pensieve_mcp.server", str(folder)], env=environment
        )
        async with Client(stdio_client(program)) as client:
            await client.call_tool("buildIndex", {})
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "askStateLM", {"question": QUESTION})
                await anyio.to_thread.run_sync(server.asked.wait)
                group.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(server.was_left) and not server.released.is_set()


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows sends Ctrl-C to whole consoles, this one included"
)
@both
def test_ctrl_c_at_the_shell_ends_a_question_whose_server_says_nothing(
    folder: Path, home: Path, backend: str
) -> None:
    with mute() as server:
        command = [sys.executable, "-m", "pensieve_mcp.cli", "ask", QUESTION, str(folder)]
        with subprocess.Popen(
            [*command, "--backend", backend, "--model", "m", "--url", server.url],
            env={**os.environ, "PENSIEVE_HOME": str(home), "PENSIEVE_ASK_KEY": "k"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            server.asked.wait()
            process.send_signal(signal.SIGINT)
            _, told = process.communicate()
        assert process.returncode == INTERRUPTED and "Interrupted" in told and "Traceback" not in told
        assert server.was_left() and not server.released.is_set()


def test_a_backend_that_nobody_closed_keeps_no_program_from_ending(tmp_path: Path) -> None:
    script = """
import sys
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.turns import Prompt

def hear(text):
    if text:
        raise KeyboardInterrupt

backend = open_backend(Choice("openai", "m", sys.argv[1]), hear=hear)
try:
    backend.reply(Prompt(({"role": "user", "content": "Q"},)))
except KeyboardInterrupt:
    print("given up")
"""
    with mute(BEGUN["openai"]) as server:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", script, server.url],
            capture_output=True,
            text=True,
            check=True,
        )
        assert not server.released.is_set()

    assert done.stdout == "given up\n" and not done.stderr


def test_a_name_that_is_still_being_looked_up_keeps_no_program_from_ending() -> None:
    script = """
import socket
import threading
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.turns import Prompt

looked_up = threading.Event()

def look_up(*_, **__):
    looked_up.set()
    threading.Event().wait()

def hear(text):
    if looked_up.is_set():
        raise KeyboardInterrupt

socket.getaddrinfo = look_up
backend = open_backend(Choice("openai", "m", "http://model.example.org"), hear=hear)
try:
    backend.reply(Prompt(({"role": "user", "content": "Q"},)))
except KeyboardInterrupt:
    print("given up")
backend.close()
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "given up\n" and not done.stderr


@both
def test_a_connection_is_used_again(backend: str) -> None:
    with serving([Answer(WHOLE[backend])], kept=True) as served:
        model = open_backend(Choice(backend, "m", served.url, key="k"))
        replies = [model.reply(PROMPT) for _ in range(3)]
        model.close()

    assert replies == [Reply("Yes.")] * 3 and len(served.askers) == 1

"""The model in this process: heard as it writes, broken off in the middle, and refused in words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm import asking
from pensieve_mcp.statelm.backends import Choice, memory
from pensieve_mcp.statelm.backends.local import Local
from pensieve_mcp.statelm.dialects.compact import Compact
from pensieve_mcp.statelm.dialects.ours import Ours
from pensieve_mcp.statelm.loop import Cancelled, Loop
from pensieve_mcp.statelm.turns import Prompt
from pensieve_mcp.workspace import Workspace

PROMPT = Prompt((), text="the prompt", grammar='root ::= "x"', stop=("\n",), max_output_tokens=8)
LONG = Prompt((), text="the " * 40, grammar="root ::= [a-z ]{1500}", stop=("\n",), max_output_tokens=1_500)
TIMINGS = {"cache_n": 30, "prompt_n": 12, "predicted_n": 3}


def piece(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": text, "index": 0, "finish_reason": None, **more}]}


REPLY = [
    {"choices": [{"text": "", "index": 0}], "prompt_progress": {"total": 42, "processed": 0}},
    piece("read"),
    piece(" 2"),
    {**piece("", finish_reason="stop"), "timings": TIMINGS},
]


class Engine:
    """Stands in for xllamacpp: plays events, swallows what the listener raises as the real one does, and stops where it
    is told to."""

    def __init__(self, events: list[Any] | Exception, load: Exception | None = None) -> None:
        self.events, self.load = events, load
        self.requests: list[dict[str, Any]] = []
        self.told = 0
        self.params: Any = None

    def module(self) -> ModuleType:
        engine = self

        class Server:
            def __init__(self, params: Any) -> None:
                engine.params = params
                if engine.load is not None:
                    raise engine.load

            def handle_completions(self, request: dict[str, Any], take: Callable[[Any], bool]) -> None:
                engine.requests.append(request)
                if isinstance(engine.events, Exception):
                    raise engine.events
                for event in engine.events:
                    engine.told += 1
                    if take(event):
                        return

            handle_chat_completions = handle_completions

            def handle_metrics(self) -> None: ...

        made = ModuleType("xllamacpp")
        made.__dict__.update(Server=Server, CommonParams=lambda: SimpleNamespace(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()))  # fmt: skip
        return made


Opened = Callable[..., tuple[Local, Engine]]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 60)

    def make(
        events: list[Any] | Exception, *, load: Exception | None = None, **more: Any
    ) -> tuple[Local, Engine]:
        engine = Engine(events, load)
        monkeypatch.setitem(sys.modules, "xllamacpp", engine.module())
        return Local(Choice("local", str(path)), **more), engine

    return make


def test_words_are_heard_as_they_come_and_make_one_reply(played: Opened) -> None:
    heard: list[str] = []
    backend, engine = played(REPLY, hear=heard.append)
    reply = backend.reply(PROMPT)

    assert reply.text == "read 2" and not reply.cut
    assert [text for text in heard if text] == ["read", " 2"]
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens, reply.usage.output_tokens) == (42, 30, 3)
    assert engine.requests[0]["stream"] is True and engine.requests[0]["grammar"] == PROMPT.grammar


def test_pieces_of_a_chat_and_of_text_are_read_alike_and_a_limit_is_told(played: Opened) -> None:
    chat = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
        {"choices": [{"index": 0, "delta": {"content": "Pel"}}]},
        '{"choices": [{"index": 0, "delta": {"content": "ham"}}]}',
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        {"choices": []},
    ]
    backend, _ = played(chat)
    reply = backend.reply(Prompt(({"role": "user", "content": "?"},), max_output_tokens=8))

    assert reply.text == "Pelham" and reply.cut


@pytest.mark.parametrize("at", [0, 1, 2])
def test_it_is_broken_off_where_nobody_wants_it_any_more_while_the_prompt_is_read_too(
    played: Opened, at: int
) -> None:
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        if len(heard) > at:
            raise Cancelled("Nobody wants it.", hint="")

    backend, engine = played(REPLY, hear=hear)
    with pytest.raises(Cancelled):
        backend.reply(PROMPT)

    assert engine.told == at + 1, "not one piece more"


def test_a_key_pressed_in_the_middle_is_not_swallowed(played: Opened) -> None:
    def hear(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        played(REPLY, hear=hear)[0].reply(PROMPT)


def test_a_reply_that_takes_too_long_is_ended(played: Opened) -> None:
    backend, engine = played([piece("la ")] * 50, reply_seconds=-1.0)
    with pytest.raises(BackendError, match="still replying") as error:
        backend.reply(PROMPT)

    assert engine.told == 1 and error.value.slug == "too_slow_reply"


@pytest.mark.parametrize(
    "events",
    [
        RuntimeError("the request exceeds the available context size"),
        [{"error": {"code": 400, "message": "the request exceeds the available context size"}}],
        [{"error": "the request exceeds the available context size"}],
        [*REPLY[:2], {"error": {"message": "the request exceeds the available context size"}}],
    ],
)
def test_what_the_runtime_says_is_passed_on(played: Opened, events: Any) -> None:
    with pytest.raises(BackendError, match="exceeds the available context size") as error:
        played(events)[0].reply(PROMPT)

    assert "window" in error.value.hint


def test_a_model_that_the_runtime_cannot_load_is_told(played: Opened) -> None:
    with pytest.raises(BackendError, match=r"model\.gguf cannot be loaded: no tensors") as error:
        played([], load=RuntimeError("no\n tensors"))

    assert "damaged" in error.value.hint and "memory" in error.value.hint


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(played: Opened) -> None:
    with pytest.raises(BackendError, match="of memory") as error:
        played([], load=AssertionError("was loaded"), memory=lambda: 10)

    assert error.value.slug == "no_memory" and "--backend openai" in error.value.hint
    assert played(REPLY, memory=lambda: None)[0].reply(PROMPT).text == "read 2"


def test_states_of_earlier_prompts_are_not_kept_in_memory(played: Opened) -> None:
    """The runtime would keep up to 8 GB of them: a server that is asked all day would grow for ever."""
    _, engine = played(REPLY)
    assert engine.params.cache_ram_mib == 0


def test_the_window_is_as_large_as_asked_for_and_no_larger_than_trained_for(
    played: Opened, tmp_path: Path, workspace: Workspace
) -> None:
    _, engine = played(REPLY)
    assert engine.params.n_ctx == 4_096, "the file does not say"
    trained = str(tiny.base(tmp_path / "tiny.gguf"))
    for asked_for, given in ((1_000, 1_000), (32_000, 2_048)):
        choice = Choice("local", trained, options={"context_tokens": str(asked_for)})
        assert Local(choice).context_tokens == engine.params.n_ctx == given
    asking.ask(
        workspace,
        "Who?",
        Choice("local", str(tmp_path / "model.gguf")),
        home=tmp_path,
        dialect_name="published",
    )
    assert engine.params.n_ctx == int(workspace.settings.window_tokens / 0.85), "our count may be 15 % off"


@pytest.mark.parametrize(
    ("context", "window"), [(2_048, 1_740), (8_192, 6_963), (1_000_000, 32_000), (None, 32_000)]
)
def test_the_loop_keeps_to_the_window_of_the_model(
    workspace: Workspace, context: int | None, window: int
) -> None:
    loop = Loop.over(workspace, "Who?", Ours())
    loop.fit(context)

    assert loop.conversation.settings.window_tokens == window
    assert loop.conversation.budget().left <= window - 158
    small = Loop.over(workspace, "Who?", Compact())
    small.fit(context)
    assert small.conversation.settings.window_tokens == min(window, 2_200)


def test_the_least_of_what_limits_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CONTAINER", limit)
    free = memory.memory_bytes()
    limit.write_text("1000\n", encoding="ascii")
    assert memory.memory_bytes() == 1_000
    limit.write_text("max\n", encoding="ascii")
    assert memory.memory_bytes() == free
    assert os.name == "nt" or (free or 0) > 2**20


def test_a_question_is_cancelled_in_the_middle_of_a_local_reply(
    played: Opened, workspace: Workspace, tmp_path: Path
) -> None:
    _, engine = played([piece("la ")] * 50)
    heard: list[str] = []
    asked = asking.ask(
        workspace,
        "Who founded it?",
        Choice("local", str(tmp_path / "model.gguf")),
        home=tmp_path,
        hear=heard.append,
        cancelled=lambda: len(heard) >= 3,
    )

    assert asked.ended == "cancelled" and len(heard) == 3 and engine.told == 4
    assert workspace.ledger.episode(asked.episode).state == "closed"


# -- the real one, where it is installed ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    return tiny.base(tmp_path_factory.mktemp("model") / "noise.gguf")


@pytest.fixture
def speaking(noise: Path) -> Iterator[Callable[..., Local]]:
    opened: list[Local] = []

    def make(**more: Any) -> Local:
        opened.append(Local(Choice("local", str(noise), options={"context_tokens": "2048"}), **more))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()


def test_the_real_runtime_is_heard_and_stops_where_it_is_told_to(speaking: Callable[..., Local]) -> None:
    heard: list[str] = []
    most = 10_000

    def hear(text: str) -> None:
        heard.append(text)
        if len("".join(heard)) >= most:
            raise Cancelled("Enough.", hint="")

    backend = speaking(hear=hear)
    whole = backend.reply(
        Prompt((), text="the " * 40, grammar="root ::= [a-z]{30}", stop=("x",), max_output_tokens=99)
    )
    assert "".join(heard) == whole.text and len([text for text in heard if text]) > 5
    heard.clear()
    most = 8
    with pytest.raises(Cancelled):
        backend.reply(LONG)
    assert 8 <= len("".join(heard)) < 100, "of 1,500"
    most = 10_000
    again = backend.reply(
        Prompt((), text="the " * 40, grammar='root ::= "yes"', stop=("x",), max_output_tokens=9)
    )
    assert again.text == "yes"


def test_nobody_else_on_the_machine_can_ask_the_model_or_see_what_it_was_asked(
    speaking: Callable[..., Local],
) -> None:
    """The runtime serves HTTP on the loopback of its own accord."""
    backend = speaking()
    address = backend._server.listening_address.removeprefix("http://")
    asked = '{"prompt": "a", "n_predict": 1}'
    for method, path in (("POST", "/completion"), ("GET", "/slots"), ("GET", "/props"), ("GET", "/metrics")):
        with closing(HTTPConnection(address, timeout=10)) as line:
            line.request(method, path, asked if method == "POST" else None)
            assert line.getresponse().status == 401
    assert backend.reply(Prompt((), text="a", grammar='root ::= "yes"', max_output_tokens=8)).text == "yes"


def test_a_model_that_was_never_asked_is_closed(noise: Path) -> None:
    """Fault: the runtime, ended before its loop turned, never came back; so a run that goes on hung for ever."""
    script = f"""
from pensieve_mcp.statelm.backends import Choice, open_backend
for _ in range(10):
    open_backend(Choice("local", {str(noise)!r})).close()
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True, stdin=subprocess.DEVNULL)


INTERRUPTED = """
import os, signal, sys, threading, time
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.turns import Prompt
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may be started with it ignored
choice = Choice("local", sys.argv[1], options={"context_tokens": "2048"})
press = lambda: os.kill(os.getpid(), signal.SIGINT)
"""
WHILE_LOADING = """
for number in range(30):
    after = threading.Timer(number * 0.003, press)
    try:
        after.start()
        backend = open_backend(choice)
        time.sleep(0.3)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    after.join()
"""
WHILE_WRITING = """
heard, writes = [], threading.Event()
def hear(text):
    heard.append(text)
    if len(heard) == 8:
        writes.set()
        time.sleep(0.05)  # whoever presses comes to it while the model goes on
def later():
    writes.wait()
    time.sleep(0.06)
    press()
threading.Thread(target=later).start()
backend = open_backend(choice, hear=hear)
try:
    backend.reply(Prompt((), text="the " * 40, grammar="root ::= [a-z ]{1500}", max_output_tokens=1500))
except KeyboardInterrupt:
    print("interrupted", len(heard) < 1500, flush=True)
print(backend.reply(Prompt((), text="a", grammar='root ::= "yes"', max_output_tokens=8)).text)
backend.close()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [(WHILE_LOADING, "interrupted\n" * 30), (WHILE_WRITING, "interrupted True\nyes\n")],
    ids=["loading", "writing"],
)
def test_ctrl_c_ends_what_the_model_does(noise: Path, meanwhile: str, says: str) -> None:
    """Fault: it was swallowed where the runtime called back, and a load that it came with never ended."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED + meanwhile, str(noise)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (done.returncode, done.stdout) == (0, says), done.stderr[-2000:]


def test_the_real_runtime_is_broken_off_while_it_reads_a_long_prompt(speaking: Callable[..., Local]) -> None:
    calls = 0

    def hear(text: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Cancelled("Enough.", hint="")

    backend = speaking(hear=hear)
    with pytest.raises(Cancelled):
        backend.reply(
            Prompt((), text="a long text. " * 130, grammar='root ::= "yes"', stop=("x",), max_output_tokens=9)
        )
    assert calls == 2
    last = backend.reply(
        Prompt((), text="a long text. " * 130, grammar='root ::= "yes"', stop=("x",), max_output_tokens=9)
    )
    assert last.usage.cached_tokens < last.usage.prompt_tokens - 500, "it had not been read to its end"


@pytest.mark.parametrize("prompt", [
    Prompt((), text="the " * 4_000, grammar='root ::= "yes"', max_output_tokens=8),
    Prompt((), text="the", grammar="root ::= (", max_output_tokens=8),
])  # fmt: skip
def test_what_the_real_runtime_refuses_is_a_worded_error_and_the_next_reply_is_whole(
    speaking: Callable[..., Local], prompt: Prompt
) -> None:
    backend = speaking()
    with pytest.raises(BackendError, match=r"The model failed: .+"):
        backend.reply(prompt)
    assert backend.reply(Prompt((), text="a", grammar='root ::= "yes"', max_output_tokens=8)).text == "yes"

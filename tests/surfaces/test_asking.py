"""askStateLM: a thirteenth tool where a backend is configured, in the background, with progress, cancellable."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from pensieve_mcp.errors import BackendError
from pensieve_mcp.spellbook.entrusting import AT_ONCE, Asks
from pensieve_mcp.spellbook.registry import ORDER
from pensieve_mcp.tokens import count_tokens

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])
QUESTION = "How many barrels of oil did the keeper Maren Holt use?"


class Reader:
    """Stands in for the loop: tells two turns, then waits until the test lets it answer."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.ended: list[str] = []
        self.error: Exception | None = None

    def __call__(self, question: str, paths: Any, told: Any, cancelled: Any) -> dict[str, Any]:
        self.asked.append((question, tuple(paths)))
        told("turn 1, searchEngine, 120 tokens in mind.")
        told("turn 2, readChunk, 900 tokens in mind.")
        self.begun.release()
        while not self.go_on.wait(0.01):
            if cancelled():
                self.ended.append("cancelled")
                return answer("", ended="cancelled", found=False)
        if self.error is not None:
            raise self.error
        self.ended.append("finished")
        return answer("412 barrels", ended="finished", found=True)


def answer(text: str, *, ended: str, found: bool) -> dict[str, Any]:
    return {
        "answer": text, "found": found, "grounded": found, "policy": "model", "ended": ended, "detail": "",
        "citations": [{"path": "archive/light.md", "locator": "Oil", "chunk_id": 1, "quote": "412 barrels of oil",
                       "state": "ok"}] if found else [],
        "metrics": {"rounds": 4, "peak_tokens": 900}, "model": "m", "episode": "e1",
    }  # fmt: skip


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def with_fake(serve: Serve, environment: dict[str, str], reader: Reader) -> Callable[..., Any]:
    """A server whose reader is the test's, and which waits only so long for it."""

    def make(wait_seconds: float = 0.2, **options: Any) -> Any:
        environment["PENSIEVE_ASK_BACKEND"] = "extractive"
        surface = serve(**options)
        surface.opening.workspace().asks = Asks(lambda: reader, wait_seconds=wait_seconds)
        return surface

    return make


async def begun(reader: Reader) -> None:
    assert await anyio.to_thread.run_sync(lambda: reader.begun.acquire(timeout=30))


@eras
@pytest.mark.parametrize("explicit", [False, True])
async def test_it_is_there_only_where_a_backend_is_configured(
    serve: Serve, environment: dict[str, str], mode: str, explicit: bool
) -> None:
    async with Client(serve(explicit=explicit).server, mode=mode) as client:
        without = [tool.name for tool in (await client.list_tools()).tools]
        refused = await client.call_tool("askStateLM", {"question": QUESTION})
    environment["PENSIEVE_ASK_BACKEND"] = "extractive"
    async with Client(serve(explicit=explicit).server, mode=mode) as client:
        tools = (await client.list_tools()).tools

    assert without == list(ORDER)
    assert refused.is_error and "no spell 'askStateLM'" in refused.content[0].text
    assert [tool.name for tool in tools] == [*ORDER, "askStateLM"]
    one = tools[-1]
    assert {"question", "paths"} <= set(one.input_schema["properties"]) and one.input_schema["required"] == [
        "question"
    ]
    assert one.annotations.open_world_hint is False and one.annotations.read_only_hint is False
    assert count_tokens(json.dumps(one.model_dump(exclude_none=True))) < 220


@pytest.mark.parametrize(
    ("backend", "url", "open_world"),
    [
        ("openai", "", True),
        ("openai", "https://api.example.org/v1", True),
        ("anthropic", "http://192.168.1.7:8080", True),
        ("openai", "http://localhost.example.org/v1", True),
        ("openai", "http://[", True),
        ("openai", "http://127.0.0.1:8080/v1", False),
        ("openai", "http://[::1]:8080/v1", False),
        ("openai", "http://localhost:11434/v1", False),
        ("local", "", False),
        ("auto", "", False),
    ],
)
async def test_it_reaches_the_open_world_where_its_backend_is_on_another_machine(
    serve: Serve, environment: dict[str, str], backend: str, url: str, open_world: bool
) -> None:
    """Codex refuses such a tool when nobody is there to allow it; a reader on this machine needs nobody."""
    environment |= {"PENSIEVE_ASK_BACKEND": backend, "PENSIEVE_ASK_URL": url}
    async with Client(serve().server) as client:
        tool = (await client.list_tools()).tools[-1]
    assert (tool.name, tool.annotations.open_world_hint) == ("askStateLM", open_world)


@eras
async def test_without_a_model_it_answers_with_the_sentence_and_says_so(
    serve: Serve, environment: dict[str, str], mode: str
) -> None:
    environment["PENSIEVE_ASK_BACKEND"] = "extractive"
    async with Client(serve().server, mode=mode) as client:
        result = await client.call_tool("askStateLM", {"question": QUESTION})

    text = result.content[0].text
    assert not result.is_error and "The keeper Maren Holt used 412 barrels of oil" in text
    assert "light.md" in text and "grounded: true" in text and "policy: extractive" in text
    typed = result.meta["pensieve/result"]
    assert (
        typed["state"] == "answered" and typed["grounded"] is True and typed["citations"][0]["state"] == "ok"
    )
    assert typed["trajectory"]


async def test_it_is_structured_where_asked(serve: Serve, environment: dict[str, str]) -> None:
    environment["PENSIEVE_ASK_BACKEND"] = "extractive"
    async with Client(serve(structured=True).server) as client:
        (tool,) = [t for t in (await client.list_tools()).tools if t.name == "askStateLM"]
        result = await client.call_tool("askStateLM", {"question": QUESTION, "paths": ["light.md"]})

    assert set(result.structured_content) <= set(tool.output_schema["properties"])
    assert (
        result.structured_content["grounded"] is True and json.loads(result.content[0].text)["found"] is True
    )


@eras
async def test_past_the_limit_it_tells_how_far_it_is_and_the_same_call_fetches_the_answer(
    with_fake: Callable[..., Any], reader: Reader, mode: str
) -> None:
    async with Client(with_fake().server, mode=mode) as client:
        early = await client.call_tool("askStateLM", {"question": QUESTION})
        again = await client.call_tool("askStateLM", {"question": f" {QUESTION} "})
        reader.go_on.set()
        done = await client.call_tool("askStateLM", {"question": QUESTION})
        kept = await client.call_tool("askStateLM", {"question": QUESTION})

    for result in (early, again):
        assert not result.is_error and result.meta["pensieve/result"]["state"] == "reading"
        assert "Still reading" in result.content[0].text and "turn 2, readChunk" in result.content[0].text
    assert "412 barrels" in done.content[0].text and "[c1 archive/light.md Oil: ok]" in done.content[0].text
    assert "412 barrels" in kept.content[0].text, "a host that lost the answer can fetch it again"
    assert len(reader.asked) == 1, "one question, read once"


@eras
async def test_progress_is_told_turn_by_turn(
    with_fake: Callable[..., Any], reader: Reader, mode: str
) -> None:
    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        reader.go_on.set()

    async with Client(with_fake(wait_seconds=15).server, mode=mode) as client:
        await client.call_tool("askStateLM", {"question": QUESTION}, progress_callback=hear)

    assert told[0] == (2, "turn 2, readChunk, 900 tokens in mind.")


@eras
async def test_a_cancelled_call_ends_the_reading(
    with_fake: Callable[..., Any], reader: Reader, mode: str
) -> None:
    async with Client(with_fake(wait_seconds=15).server, mode=mode) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "askStateLM", {"question": QUESTION})
            await begun(reader)
            group.cancel_scope.cancel()
        with anyio.fail_after(20):
            while not reader.ended:
                await anyio.sleep(0.01)
        reader.go_on.set()
        anew = await client.call_tool("askStateLM", {"question": QUESTION})

    assert reader.ended == ["cancelled", "finished"] and "412 barrels" in anew.content[0].text


async def test_what_the_backend_says_is_told_and_the_next_call_tries_anew(
    with_fake: Callable[..., Any], reader: Reader
) -> None:
    reader.error = BackendError("The endpoint is down.", hint="Start it.")
    reader.go_on.set()
    async with Client(with_fake().server) as client:
        broken = await client.call_tool("askStateLM", {"question": QUESTION})
        reader.error = None
        mended = await client.call_tool("askStateLM", {"question": QUESTION})

    assert broken.is_error and "The endpoint is down. Start it." in broken.content[0].text
    assert "412 barrels" in mended.content[0].text


async def test_only_so_many_questions_run_at_once(with_fake: Callable[..., Any], reader: Reader) -> None:
    async with Client(with_fake().server) as client:
        for number in range(AT_ONCE):
            await client.call_tool("askStateLM", {"question": f"{QUESTION} {number}"})
        refused = await client.call_tool("askStateLM", {"question": "Another one?"})
        reader.go_on.set()

    assert refused.is_error and f"{AT_ONCE} questions are being answered already" in refused.content[0].text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"question": "  "}, "1 to"),
        ({"question": "x" * 5_000}, "1 to"),
        ({}, "needs question"),
        ({"question": QUESTION, "paths": ["nowhere.md"]}, "nowhere.md"),
        ({"question": QUESTION, "path": "light.md"}, "paths"),
    ],
)
async def test_bad_arguments_are_told_and_nothing_is_asked(
    with_fake: Callable[..., Any], reader: Reader, arguments: dict[str, Any], words: str
) -> None:
    async with Client(with_fake().server) as client:
        result = await client.call_tool("askStateLM", arguments)

    assert result.is_error and words in result.content[0].text and not reader.asked


async def test_closing_the_server_ends_what_is_being_read(
    with_fake: Callable[..., Any], reader: Reader
) -> None:
    surface = with_fake()
    async with Client(surface.server) as client:
        await client.call_tool("askStateLM", {"question": QUESTION})
    await anyio.to_thread.run_sync(surface.opening.close)

    assert reader.ended == ["cancelled"]


async def test_the_program_over_stdio_takes_it_from_a_settings_file(
    parameters: Callable[..., StdioServerParameters], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "settings.toml").write_text('ask_backend = "extractive"\n', encoding="utf-8")
    async with Client(stdio_client(parameters())) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("askStateLM", {"question": QUESTION})

    assert names[-1] == "askStateLM" and "412 barrels" in result.content[0].text

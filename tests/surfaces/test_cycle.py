"""The whole job over the protocol: list, analyze, search, read, note, delete, find again, restore, plan,
finish.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import ResourceTemplateReference

from pensieve_mcp.corpus.types import BuildProgress

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])
PATIENCE_SECONDS = 90


async def ready(client: Client) -> dict[str, Any]:
    """Until the background build is done; the tool answers at once each time."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            result = await client.call_tool("buildIndex", {})
            assert not result.is_error, result.content[0].text
            if result.meta["pensieve/result"]["state"] == "ready":
                return dict(result.meta["pensieve/result"])
            await anyio.sleep(0.1)


async def work(client: Client) -> dict[str, Any]:
    """Every step of the job; the typed result of each by tool name, in `text` what the model saw."""
    seen: dict[str, Any] = {"text": {}}

    async def cast(name: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(name, arguments)
        text = result.content[0].text
        assert not result.is_error, text
        assert re.match(r"m\d+ · ", text), text
        assert len(text.encode()) <= 12_000
        seen[name], seen["text"][name] = result.meta["pensieve/result"], text
        seen.setdefault("ids", []).append(result.meta["pensieve/message"]["msg_id"])
        return dict(result.meta["pensieve/result"])

    assert len((await client.list_tools()).tools) == 12
    seen["buildIndex"] = await ready(client)
    await cast("analyzeText")
    hit = (await cast("searchEngine", keyword="barrels of oil in 1911"))["retrieved_chunks"][0]
    part = (await cast("readChunk", chunk_id=hit["chunk_id"]))["retrieved_chunk"][0]
    read = seen["ids"][-1]
    await cast(
        "note",
        key="oil",
        summary="412 barrels in 1911",
        content="Maren Holt.",
        evidence=[{"chunk_id": part["chunk_id"], "quote": "412 barrels of oil"}],
    )
    await cast("deleteContext", msg_id=read)
    history = await client.call_tool("searchEngine", {"keyword": "Maren Holt", "scope": "history"})
    assert read in [found["id"] for found in history.meta["pensieve/result"]["hits"]]
    restored = (await cast("restoreContext", msg_id=read))["restored"][0]
    assert restored["content"] == seen["text"]["readChunk"]
    await cast("plan", goal="How much oil?", next="finish")
    await cast("checkBudget")
    await cast("finish", answer="412 barrels", citations=[f"c{part['chunk_id']}", "oil"])
    return seen


@eras
async def test_the_whole_cycle_in_process(serve: Serve, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        seen = await work(client)

    assert seen["analyzeText"]["total_documents"] == 3
    assert (
        seen["note"]["evidence"][0]["state"] == "ok"
        and seen["note"]["evidence"][0]["path"] == "archive/light.md"
    )
    assert [citation["state"] for citation in seen["finish"]["citations"]] == ["ok", "ok"]


@eras
async def test_the_whole_cycle_over_stdio_and_a_restart_finds_the_notebook(
    parameters: Any, mode: str
) -> None:
    async with Client(parameters(), mode=mode) as client:
        first = await work(client)
    async with Client(parameters(), mode=mode) as client:
        notes = (await client.call_tool("readNote", {})).meta["pensieve/result"]["notes"]
        again = (await client.call_tool("readChunk", {"chunk_id": first["readChunk"]["chunk_id"]})).meta[
            "pensieve/result"
        ]
        budget = (await client.call_tool("checkBudget", {})).meta["pensieve/result"]
        instructions = client.instructions

    assert [note["key"] for note in notes] == ["oil"]
    assert again["retrieved_chunk"][0]["content"] == first["readChunk"]["retrieved_chunk"][0]["content"]
    assert budget["conv_rounds"] < 5, "a new process without ids from the host begins a new episode"
    assert "3 documents, indexed" in instructions[:250]


async def test_published_names_of_results(serve: Serve) -> None:
    """Payload names of the paper's reference implementation, where they exist (design, section 6)."""
    async with Client(serve().server) as client:
        seen = await work(client)

    assert {"retrieved_chunks", "keywords", "message"} <= set(seen["searchEngine"])
    assert {"chunk_id", "relevance_score", "highlights"} <= set(seen["searchEngine"]["retrieved_chunks"][0])
    assert {"retrieved_chunk", "reading_progress"} <= set(seen["readChunk"])
    assert {"chunk_id", "content", "start_pos", "end_pos"} <= set(seen["readChunk"]["retrieved_chunk"][0])
    assert {"index_id", "total_chunks", "first_chunk_id", "last_chunk_id"} <= set(seen["buildIndex"])
    assert {"total_tokens", "total_documents"} <= set(seen["analyzeText"])
    assert {"status", "key"} <= set(seen["note"])
    assert {"conv_rounds", "available_tokens", "available_rounds"} <= set(seen["checkBudget"])
    assert {"status", "deleted"} <= set(seen["deleteContext"])
    assert "final_answer" in seen["finish"]


async def test_text_in_any_script_arrives_as_it_is(serve: Serve, library: Path) -> None:
    async with Client(serve().server) as client:
        await ready(client)
        found = await client.call_tool("searchEngine", {"keyword": "灯台守 油", "under": "languages.md"})
        chunk_id = found.meta["pensieve/result"]["retrieved_chunks"][0]["chunk_id"]
        read = await client.call_tool("readChunk", {"chunk_id": chunk_id})

    for line in (library / "languages.md").read_text(encoding="utf-8").splitlines():
        assert line in read.content[0].text


async def test_documents_and_chunks_are_resources(serve: Serve) -> None:
    async with Client(serve().server) as client:
        await ready(client)
        documents = (await client.read_resource("pensieve://documents")).contents[0].text
        completion = (
            await client.complete(
                ResourceTemplateReference(uri="pensieve://chunks/{id}"), {"name": "id", "value": ""}
            )
        ).completion
        chunk = (await client.read_resource(f"pensieve://chunks/{completion.values[0]}")).contents[0].text

    assert documents.startswith("3 documents") and "archive/logs/oil.csv" in documents
    assert completion.total == len(completion.values) >= 3
    assert chunk.startswith(f"c{completion.values[0]} · archive/")


@eras
async def test_progress_is_told_to_whoever_asks(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """While buildIndex waits its short while; a build that takes as long as the test listens."""
    surface = serve()
    workspace = surface.opening.workspace()
    heard_enough = threading.Event()
    steps = itertools.count(1)

    def build(
        chunk_set: object = None, *, under: tuple[str, ...] = (), wait_seconds: float = 0
    ) -> BuildProgress:
        if wait_seconds:
            assert heard_enough.wait(timeout=PATIENCE_SECONDS)
        return BuildProgress("building", 3, 9)

    monkeypatch.setattr(workspace, "build", build)
    monkeypatch.setattr(workspace, "progress", lambda: BuildProgress("building", next(steps), 9))
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(*progress: Any) -> None:
        told.append(progress)
        if len(told) == 2:
            heard_enough.set()

    async with Client(surface.server, mode=mode) as client:
        result = await client.call_tool("buildIndex", {}, progress_callback=hear)

    assert result.meta["pensieve/result"]["state"] == "building"
    (first, total, words), (second, _, _) = told[:2]
    assert first < second and total == 9 and words == f"{first:g} of 9 documents"


async def test_whoever_listens_to_the_documents_is_told_of_a_build(serve: Serve, library: Path) -> None:
    async with Client(serve().server) as client, Client(serve().server) as other:
        await ready(other)
        async with client.listen(resource_subscriptions=["pensieve://documents"]) as events:
            (library / "new.md").write_text("# New\n\nA new page.\n", encoding="utf-8")
            await ready(other)
            with anyio.fail_after(PATIENCE_SECONDS):
                event = await anext(aiter(events))
        text = (await client.read_resource("pensieve://documents")).contents[0].text

    assert event.uri == "pensieve://documents" and text.startswith("4 documents")


@pytest.mark.parametrize(
    "call", [("searchEngine", {"keyword": "barrels of oil"}), ("readChunk", {}), ("analyzeText", {})]
)
async def test_over_a_small_folder_the_very_first_call_finds_something(
    serve: Serve, call: tuple[str, dict[str, str]]
) -> None:
    async with Client(serve().server) as client:
        result = await client.call_tool(*call)

    assert not result.is_error, result.content[0].text
    assert "archive/" in result.content[0].text


async def test_two_servers_share_one_workspace(parameters: Any) -> None:
    async with Client(parameters()) as one, Client(parameters()) as two:
        await ready(one)
        await ready(two)

        async def write(client: Client, name: str) -> None:
            for number in range(10):
                result = await client.call_tool(
                    "note", {"key": f"{name}{number}", "summary": "s", "content": "c"}
                )
                assert not result.is_error, result.content[0].text
                found = await client.call_tool("searchEngine", {"keyword": "oil"})
                assert not found.is_error, found.content[0].text

        async with anyio.create_task_group() as group:
            group.start_soon(write, one, "a")
            group.start_soon(write, two, "b")
        notes = (await two.call_tool("readNote", {})).meta["pensieve/result"]["notes"]

    assert len(notes) == 20

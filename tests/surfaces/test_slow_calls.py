"""A call that takes too long, or that nobody waits for any more, costs nobody else anything and is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.client.client import Client

from pensieve_mcp.server import surface as surface_module
from pensieve_mcp.server import workers

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


class Slow:
    """Makes `plan` wait until the test lets it go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.done = threading.Semaphore(0)
        self._cast = surface_module.cast

    def cast(self, episode: Any, name: str, arguments: Any, **more: Any) -> Any:
        if name != "plan":
            return self._cast(episode, name, arguments, **more)
        self.begun.release()
        self.go_on.wait()
        try:
            return self._cast(episode, name, arguments, **more)
        finally:
            self.done.release()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(surface_module, "cast", made.cast)
    yield made
    made.go_on.set()


async def took_place(client: Client, slow: Slow) -> None:
    """Let the waiting call go on, and see that what it did stands."""
    slow.go_on.set()
    assert await anyio.to_thread.run_sync(lambda: slow.done.acquire(timeout=30))
    history = await client.call_tool("searchEngine", {"keyword": "lighthouse", "scope": "history"})
    assert history.meta["pensieve/result"]["hits"], history.content[0].text


@eras
async def test_past_its_deadline_a_call_is_told_and_goes_on(
    serve: Serve, environment: dict[str, str], slow: Slow, mode: str
) -> None:
    """Complaint: a wedged call hangs the session for hours."""
    environment["PENSIEVE_CALL_SECONDS"] = "2"
    async with Client(serve().server, mode=mode) as client:
        await client.call_tool("readNote", {})
        late = await client.call_tool("plan", {"goal": "find the lighthouse"})
        assert late.is_error
        assert late.content[0].text.startswith(
            "plan has not answered within 2 seconds. It goes on in the background"
        )
        assert late.meta["pensieve/message"]["msg_id"] is None
        await took_place(client, slow)


@eras
async def test_a_cancelled_call_leaves_the_rest_alone(serve: Serve, slow: Slow, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "plan", {"goal": "find the lighthouse"})
            assert await anyio.to_thread.run_sync(lambda: slow.begun.acquire(timeout=30))
            group.cancel_scope.cancel()
        meanwhile = await client.call_tool("readNote", {})
        assert not meanwhile.is_error
        await took_place(client, slow)


async def test_hanging_calls_do_not_pile_up_without_end(
    serve: Serve, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_RUNNING", 3)
    async with Client(serve().server) as client:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(client.call_tool, "plan", {"goal": "find the lighthouse"})
                assert await anyio.to_thread.run_sync(lambda: slow.begun.acquire(timeout=30))
            refused = await client.call_tool("readNote", {})
            slow.go_on.set()
        after = await client.call_tool("readNote", {})

    assert refused.is_error and "3 earlier calls are still running" in refused.content[0].text
    assert not after.is_error

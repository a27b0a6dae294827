"""Being told that something changed, in both eras, also when another process did it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import ResourceListChangedNotification, ResourceUpdatedNotification

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:resources/")]

Serve = Callable[..., Any]
PATIENCE_SECONDS = 20


def note(key: str) -> dict[str, str]:
    return {"key": key, "summary": "s", "content": "c"}


async def test_a_newer_client_is_told_of_the_notes_it_listens_to(serve: Serve) -> None:
    async with (
        Client(serve().server) as client,
        client.listen(
            resources_list_changed=True, resource_subscriptions=["pensieve://notes/caf%C3%A9"]
        ) as events,
    ):
        await client.call_tool("note", note("other"))
        await client.call_tool("note", note("café"))
        told = []
        with anyio.fail_after(PATIENCE_SECONDS):
            async for event in events:
                told.append(event)
                if any(getattr(event, "uri", "") == "pensieve://notes/caf%C3%A9" for event in told):
                    break

    assert {type(event).__name__ for event in told} == {"ResourcesListChanged", "ResourceUpdated"}


async def test_a_note_of_another_process_is_told_too(serve: Serve) -> None:
    """Another server over the same workspace: it has a notebook and connections of its own."""
    async with (
        Client(serve().server) as client,
        Client(serve().server) as other,
        client.listen(resource_subscriptions=["pensieve://notes"]) as events,
    ):
        await other.call_tool("note", note("from elsewhere"))
        with anyio.fail_after(PATIENCE_SECONDS):
            event = await anext(aiter(events))

    assert event.uri == "pensieve://notes"


async def test_an_older_client_is_told_what_it_subscribed_to(serve: Serve) -> None:
    heard: list[Any] = []
    updated = anyio.Event()

    async def hear(message: Any) -> None:
        heard.append(message)
        if isinstance(message, ResourceUpdatedNotification) and message.params.uri == "pensieve://notes/mine":
            updated.set()

    async with (
        Client(serve().server, mode="legacy", message_handler=hear) as client,
        Client(serve().server) as other,
    ):
        assert (
            client.server_capabilities.resources.subscribe
            and client.server_capabilities.resources.list_changed
        )
        await client.subscribe_resource("pensieve://notes/mine")
        await client.call_tool("note", note("not mine"))
        await other.call_tool("note", note("mine"))
        with anyio.fail_after(PATIENCE_SECONDS):
            await updated.wait()
        await client.unsubscribe_resource("pensieve://notes/mine")

    assert any(isinstance(message, ResourceListChangedNotification) for message in heard)
    assert not any(
        isinstance(message, ResourceUpdatedNotification) and message.params.uri != "pensieve://notes/mine"
        for message in heard
    )


async def test_the_episode_is_told_after_each_call(serve: Serve) -> None:
    async with (
        Client(serve().server) as client,
        client.listen(resource_subscriptions=["pensieve://episode"]) as events,
    ):
        await client.call_tool("checkBudget", {})
        with anyio.fail_after(PATIENCE_SECONDS):
            event = await anext(aiter(events))

    assert event.uri == "pensieve://episode"


async def test_nobody_looks_while_nobody_listens(serve: Serve) -> None:
    surface = serve()
    looks = 0
    real = surface.watch.look

    async def counted() -> None:
        nonlocal looks
        looks += 1
        await real()

    surface.watch.look = counted
    async with Client(surface.server) as client:
        await client.call_tool("readNote", {})
        await anyio.sleep(0.2)  # ten times the pause between looks
        quiet = looks
        async with client.listen(resource_subscriptions=["pensieve://notes"]):
            with anyio.fail_after(PATIENCE_SECONDS):
                while looks < 3:
                    await anyio.sleep(0.01)

    assert quiet == 0

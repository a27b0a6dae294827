"""Which conversation a call belongs to, as the hosts' own ids tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mcp.client.client import Client

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


async def rounds(client: Client, arguments: dict[str, Any] | None = None, **meta: str) -> int:
    result = await client.call_tool("checkBudget", arguments or {}, meta=meta or None)
    assert not result.is_error, result.content[0].text
    return int(result.meta["pensieve/result"]["conv_rounds"])


async def test_a_process_is_one_episode(serve: Serve) -> None:
    surface = serve()
    async with Client(surface.server) as client:
        assert await rounds(client) == 0
    async with Client(surface.server) as client:
        assert await rounds(client) == 1
    async with Client(serve().server) as client:
        assert await rounds(client) == 0, "another process begins anew"


async def test_threads_of_codex_are_episodes_and_survive_a_restart(serve: Serve) -> None:
    """Codex names thread and call in the metadata of each call."""
    async with Client(serve().server) as client:
        assert await rounds(client, threadId="t1", callId="call_1") == 0
        assert await rounds(client, threadId="t2", callId="call_2") == 0
        assert await rounds(client, threadId="t1", callId="call_3") == 1
    async with Client(serve().server) as client:
        assert await rounds(client, threadId="t1", callId="call_4") == 2


async def test_a_session_of_claude_code_survives_a_restart(serve: Serve) -> None:
    """Claude Code names the call in the metadata and the session in the environment."""
    session = {"CLAUDE_CODE_SESSION_ID": "s1"}
    call = {"claudecode/toolUseId": "toolu_1"}
    async with Client(serve(host_environment=session).server) as client:
        assert await rounds(client, **call) == 0
    async with Client(serve(host_environment=session).server) as client:
        assert await rounds(client, **call) == 1
        assert await rounds(client) == 0, "a host that only inherited the variable is another conversation"
    async with Client(serve(host_environment={"CLAUDE_CODE_SESSION_ID": "s2"}).server) as client:
        assert await rounds(client, **call) == 0


async def test_the_hosts_own_call_id_is_kept_with_both_messages(serve: Serve) -> None:
    """What ties our message ids to the host's, so that a gateway can find them."""
    surface = serve()
    async with Client(surface.server) as client:
        result = await client.call_tool("readNote", {}, meta={"claudecode/toolUseId": "toolu_77"})
    ledger = surface.opening.workspace().ledger
    found = ledger.by_host_call("toolu_77")

    assert {f"m{stored.message.number}" for stored in found} == {
        result.meta["pensieve/message"]["msg_id"],
        result.meta["pensieve/message"]["invoking_msg_id"],
    }


async def test_over_http_the_first_call_mints_an_episode(serve: Serve) -> None:
    async with Client(serve(explicit=True).server) as client:
        tools = (await client.list_tools()).tools
        assert all(
            "episode" in tool.input_schema["properties"]
            and "episode" not in tool.input_schema.get("required", [])
            for tool in tools
        )
        first = await client.call_tool("readNote", {})
        handle = first.meta["pensieve/episode"]
        second = await client.call_tool("readNote", {"episode": handle})

        assert first.content[0].text.splitlines()[1] == f"episode={handle} · pass it with every further call"
        assert len(handle) >= 20
        assert handle not in second.content[0].text and second.meta["pensieve/episode"] == handle
        assert await rounds(client, {"episode": handle}) == 2
        other = await client.call_tool("readNote", {})
        assert other.meta["pensieve/episode"] != handle


@pytest.mark.parametrize(
    ("spell", "arguments"),
    [("checkBudget", {}), ("deleteContext", {"msg_id": "m2"}), ("finish", {"answer": "x"})],
)
async def test_what_means_nothing_in_a_new_episode_refuses_to_begin_one(
    serve: Serve, spell: str, arguments: dict[str, str]
) -> None:
    async with Client(serve(explicit=True).server) as client:
        result = await client.call_tool(spell, arguments)

    assert result.is_error and "pensieve/episode" not in result.meta
    assert f"{spell} needs the episode it belongs to. Pass episode=" in result.content[0].text


@pytest.mark.parametrize("handle", ["nobody's", "", "m2", 7, "x" * 5000, "\x00"])
async def test_a_handle_nobody_gave_is_refused(serve: Serve, handle: Any) -> None:
    async with Client(serve(explicit=True).server) as client:
        result = await client.call_tool("readNote", {"episode": handle})

    assert result.is_error and "episode" in result.content[0].text


async def test_over_http_a_session_in_the_servers_own_environment_means_nothing(serve: Serve) -> None:
    """The server may have been started from a shell of Claude Code; its clients are others."""
    surface = serve(explicit=True, host_environment={"CLAUDE_CODE_SESSION_ID": "s1"})
    async with Client(surface.server) as client:
        call = {"claudecode/toolUseId": "toolu_1"}
        handles = {
            (await client.call_tool("readNote", {}, meta=call)).meta["pensieve/episode"] for _ in range(2)
        }
        assert "Pass it as `episode`" in client.instructions and len(client.instructions) < 2_000

    assert len(handles) == 2


async def test_an_episode_is_read_by_its_handle(serve: Serve) -> None:
    async with Client(serve(explicit=True).server) as client:
        first = await client.call_tool("plan", {"goal": "find the oil"})
        text = (
            (await client.read_resource(f"pensieve://episode/{first.meta['pensieve/episode']}"))
            .contents[0]
            .text
        )

    assert "Goal: find the oil" in text


async def test_over_stdio_no_tool_has_an_episode_argument(serve: Serve) -> None:
    async with Client(serve().server) as client:
        assert not any(
            "episode" in tool.input_schema["properties"] for tool in (await client.list_tools()).tools
        )
        result = await client.call_tool("readNote", {"episode": "x"})

    assert result.is_error and "no argument 'episode'" in result.content[0].text

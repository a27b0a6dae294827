"""Streamable HTTP with real processes: both eras, token, names of hosts."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from pensieve_mcp.server.web import names_of

Serving = tuple[str, str]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture
def serving(parameters: Callable[..., Any]) -> Iterator[Serving]:
    """Address and token of a running server, as it tells them on stderr."""
    how = parameters("--http", "0")
    process = subprocess.Popen(
        [how.command, *how.args], env=how.env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stderr is not None
    try:
        address = re.search(r"serving (\S+)", process.stderr.readline().decode())
        token = re.search(r"token (\S+)", process.stderr.readline().decode())
        assert address and token
        yield address[1], token[1]
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def client_of(serving: Serving, http: httpx2.AsyncClient, mode: str = "auto") -> Client:
    return Client(streamable_http_client(serving[0], http_client=http), mode=mode)


def knowing(token: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)


@eras
@pytest.mark.anyio
async def test_an_episode_over_http(serving: Serving, mode: str) -> None:
    async with knowing(serving[1]) as http, client_of(serving, http, mode) as client:
        assert len((await client.list_tools()).tools) == 12
        first = await client.call_tool("note", {"key": "oil", "summary": "412 barrels", "content": "c"})
        handle = first.meta["pensieve/episode"]
        assert f"episode={handle}" in first.content[0].text
        read = await client.call_tool("readNote", {"key": "oil", "episode": handle})
        budget = await client.call_tool("checkBudget", {"episode": handle})

    assert "412 barrels" in read.content[0].text
    assert budget.meta["pensieve/result"]["conv_rounds"] == 2


@pytest.mark.anyio
async def test_an_older_clients_session_keeps_its_episode(serving: Serving) -> None:
    async with knowing(serving[1]) as http:
        async with client_of(serving, http, "legacy") as client:
            await client.call_tool("readNote", {})
            budget = await client.call_tool("checkBudget", {})
            assert budget.meta["pensieve/result"]["conv_rounds"] == 1
        async with client_of(serving, http, "legacy") as client:
            assert (await client.call_tool("checkBudget", {})).is_error, "another session, another episode"


@pytest.mark.filterwarnings("ignore:resources/")
@eras
@pytest.mark.anyio
async def test_changes_are_told_over_http(serving: Serving, mode: str) -> None:
    heard = anyio.Event()

    async def hear(message: Any) -> None:
        if "updated" in getattr(message, "method", ""):
            heard.set()

    async with (
        knowing(serving[1]) as http,
        knowing(serving[1]) as other_http,
        Client(
            streamable_http_client(serving[0], http_client=http), mode=mode, message_handler=hear
        ) as client,
        client_of(serving, other_http) as other,
    ):
        if mode == "legacy":
            await client.subscribe_resource("pensieve://notes")
            await other.call_tool("note", {"key": "k", "summary": "s", "content": "c"})
            with anyio.fail_after(20):
                await heard.wait()
        else:
            async with client.listen(resource_subscriptions=["pensieve://notes"]) as events:
                await other.call_tool("note", {"key": "k", "summary": "s", "content": "c"})
                with anyio.fail_after(20):
                    assert (await anext(aiter(events))).uri == "pensieve://notes"


@pytest.mark.anyio
async def test_nobody_gets_in_without_the_token(serving: Serving) -> None:
    address, token = serving
    async with httpx2.AsyncClient() as http:
        answers = [
            await http.post(address, json={}, headers=headers)
            for headers in (
                {},
                {"Authorization": f"Bearer {token[:-1]}"},
                {"Authorization": token},
                {"Authorization": "Bearer é".encode()},
            )
        ]

    assert [answer.status_code for answer in answers] == [401] * 4
    assert answers[0].headers["www-authenticate"].startswith("Bearer")


@pytest.mark.anyio
async def test_other_names_and_other_pages_are_refused(serving: Serving) -> None:
    """DNS rebinding: a page of the web that reaches the loopback has another Host or Origin."""
    address, token = serving
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with knowing(token) as http:
        elsewhere = await http.post(address, json=body, headers={"Host": "evil.example:80"})
        page = await http.post(address, json=body, headers={"Origin": "http://evil.example"})
        near = await http.post(address, json=body, headers={"Origin": "http://localhost.evil.example:1"})

    assert (elsewhere.status_code, page.status_code, near.status_code) == (421, 403, 403)


@pytest.mark.anyio
async def test_a_port_in_use_is_told(serving: Serving, parameters: Callable[..., Any]) -> None:
    port = serving[0].rsplit(":", 1)[1].split("/")[0]
    how = parameters("--http", port)
    done = subprocess.run([how.command, *how.args], env=how.env, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr and "0 takes a free one" in done.stderr


def test_a_server_is_asked_by_its_own_names_only() -> None:
    assert names_of("127.0.0.1", ()) == ("127.0.0.1", "localhost", "::1")
    assert names_of("docs.example", ("other.example",)) == ("docs.example", "other.example")
    assert {"127.0.0.1", "localhost", socket.gethostname()} <= set(names_of("0.0.0.0", ()))

"""A call stands in the ledger before the host has the end of it; else the server would say `no` to a host that is
here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from talks import FACTS, Talk
from upstreams import Handler, Upstream

from pensieve_mcp.gateway.proxy import Upstream as Place
from pensieve_mcp.gateway.serving import RunningGateway
from pensieve_mcp.settings import Settings
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace

HEADERS = {"Content-Type": "application/json", "X-Claude-Code-Session-Id": "session-1"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "mcp__pensieve__deleteContext", "input": {}}
BEFORE_THE_END = [
    {"type": "content_block_start", "index": 0, "content_block": CALL},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": '{"msg_id": "m2"}'},
    },
]
THE_END = {"type": "content_block_stop", "index": 0}


def event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "light.md").write_text("# The light\n\n412 barrels.\n", encoding="utf-8")
    home = {"PENSIEVE_HOME": str(tmp_path / "home"), "PENSIEVE_UPGRADE": "false"}
    with Workspace.open([folder], environment=home, builder="inline") as opened:
        opened.build_now()
        yield opened


def said(workspace: Workspace) -> str:
    """What the server answers the call with, at this moment."""
    episode = workspace.episode("mcp", host="claude-code", thread="session-1")
    number = next((e.message.number for e in episode.transcript().entries if e.message.role == "tool"), None)
    if number is None:
        number = cast(episode, "readChunk", {"chunk_id": "1"}).message["msg_id"].removeprefix("m")
    told = cast(episode, "deleteContext", {"msg_id": f"m{number}"}, host_call_id="toolu_1")
    return str(told.result["physical"])


@pytest.mark.parametrize("streamed", [True, False])
def test_the_server_knows_of_a_call_when_the_host_can_make_it(workspace: Workspace, streamed: bool) -> None:
    go_on = threading.Event()

    def answer(handler: Handler, body: bytes) -> None:
        if not streamed:
            handler.whole(200, json.dumps({"content": [CALL], "padding": "x" * 300_000}).encode())
            return
        handler.begin_stream()
        handler.piece(b"".join(map(event, BEFORE_THE_END)))
        go_on.wait(30)
        handler.piece(event(THE_END) + event({"type": "message_stop"}))
        handler.end_stream()

    body = Talk().body("anthropic")
    asked = json.loads(body) | {"tools": [{"name": "x"}]}
    with (
        Upstream(answer) as upstream,
        RunningGateway(
            (Place.of(upstream.url),),
            Settings(gateway_policy="eager"),
            lambda: workspace,
            tools=FACTS.tools,
        ) as running,
    ):
        place = urlsplit(running.url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        connection.request("POST", "/v1/messages", json.dumps(asked), HEADERS)
        got = connection.getresponse()
        if streamed:
            assert b"partial_json" in got.read1()
            assert said(workspace) == "no", "the model has not called yet, as far as anybody knows"
            go_on.set()
            assert b"content_block_stop" in got.read1()
        else:
            got.read()
        assert said(workspace) == "yes"
        got.read()
        connection.close()
        running.keeper._workspace = None  # the fixture closes it

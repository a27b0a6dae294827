"""What goes wrong on the way behaves as without us: hanging, cutting off, refusing; what is large or unknown passes."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import httpx2
import pytest
from door import PATHS, Called, events, house
from talks import DIALECTS, FACTS, LONG, Talk, deleted_talk
from upstreams import Handler, Upstream, ask, raw_socket

from pensieve_mcp.gateway.proxy import Proxy
from pensieve_mcp.gateway.proxy import Upstream as Place
from pensieve_mcp.gateway.rewrite import rewrite
from pensieve_mcp.gateway.serving import RunningGateway
from pensieve_mcp.gateway.telling import explained
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.settings import Settings

EAGER = Settings(gateway_policy="eager")
JSON = {"Content-Type": "application/json"}
dialects = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.fixture
def gateway(upstream: Upstream) -> Iterator[RunningGateway]:
    with RunningGateway((Place.of(upstream.url),), EAGER, None, tools=FACTS.tools) as running:
        yield running


def test_an_upstream_that_hangs_is_waited_for_and_holds_up_nobody_else(
    gateway: RunningGateway, upstream: Upstream
) -> None:
    """A model may think for long; how long is worth waiting for is the host's to decide."""
    hanging, go_on = threading.Event(), threading.Event()

    def behave(handler: Handler, body: bytes) -> None:
        if b"SLOW" in body:
            hanging.set()
            assert go_on.wait(60)
        handler.whole(200, b'{"late": true}' if b"SLOW" in body else b"{}")

    upstream.behaviour = behave
    slow = deleted_talk()
    slow.read("SLOW")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, gateway.url, "POST", "/v1/messages", slow.body("anthropic"), JSON)
        assert hanging.wait(60)
        quick = ask(gateway.url, "POST", "/v1/messages", deleted_talk().body("anthropic"), JSON)
        assert (quick[0].status, quick[1]) == (200, b"{}") and not waiting.done()
        go_on.set()
        assert waiting.result(60)[1] == b'{"late": true}'


class Unreachable(httpx2.AsyncBaseTransport):
    """A network that swallows what is sent."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("nobody answers", request=request)


@dialects
def test_an_upstream_that_cannot_be_connected_in_time_is_told_as_ours(
    upstream: Upstream, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Proxy, "_new_client", lambda self: httpx2.AsyncClient(transport=Unreachable()))
    with RunningGateway((Place.of(upstream.url),), EAGER, None, tools=FACTS.tools) as gateway:
        answer, text = ask(gateway.url, "POST", PATHS[dialect], deleted_talk().body(dialect), JSON)

    assert (answer.status, answer.headers["x-pensieve-gateway"]) == (504, "unreachable")
    error = json.loads(text)["error"]
    assert error["message"].startswith("pensieve gateway: http://127.0.0.1")
    assert error["type"] == ("api_error" if dialect == "anthropic" else "server_error")


@dialects
@pytest.mark.parametrize("status", [400, 404, 413, 429, 500, 503, 529])
def test_an_upstreams_error_passes_byte_for_byte_also_compressed(
    gateway: RunningGateway, upstream: Upstream, dialect: str, status: int
) -> None:
    words = gzip.compress(b'{ "error" :\t{"message": "their own \xc3\xa9"} }\n', mtime=1)
    upstream.behaviour = lambda handler, body: handler.whole(
        status, words, content_encoding="gzip", request_id="req_1", x_ratelimit="0"
    )
    asked = ask(gateway.url, "POST", PATHS[dialect], deleted_talk().body(dialect), JSON)

    assert (asked[0].status, asked[1]) == (status, words)
    assert (asked[0].headers["request-id"], asked[0].headers["content-encoding"]) == ("req_1", "gzip")
    assert gateway.keeper.totals.refused == 1


@dialects
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_stream_that_is_cut_off_arrives_as_far_as_it_came_and_leaves_no_call_behind(
    tmp_path: Path, dialect: str, place: int
) -> None:
    """The call's end never came, so no host can make it; the conversation goes on with the next request."""
    called = Called("call_9", "mcp__pensieve__deleteContext", {"msg_id": "m2"})
    whole = b"".join(events(dialect, called, 100))
    call = whole.index(b"deleteContext")
    part = (whole[: call - 40], whole[: call + 5], whole[: whole.index(b"\n", call) - 3])[place]

    def cut(handler: Handler, body: bytes) -> None:
        handler.begin_stream()
        handler.piece(part)
        handler.break_off()

    with house(tmp_path, {"light.md": "412 barrels."}) as here:
        said = here.conversation(dialect, "s1")
        said.call("readChunk", chunk_id="1")
        usual, here.upstream.behaviour = here.upstream.behaviour, cut
        with pytest.raises(IncompleteRead) as caught:
            ask(here.gateway.url, "POST", PATHS[dialect], said.body(), said.headers)
        assert caught.value.partial == part
        here.upstream.behaviour = usual

        assert said.turn() == said.body()
        assert not said.call("checkBudget").is_error
        sighting = said.episode.sighting()
        assert sighting is not None and "call_9" not in {seen.call_id for seen in sighting.calls}
        assert here.gateway.keeper.totals.troubles == []


def test_noise_in_a_stream_passes_as_it_is(gateway: RunningGateway, upstream: Upstream) -> None:
    noise = [b"data: {broken\n\n", b"\xff\xfe\x00", b"event: x\r\n\r\n", b"data: [DONE]\n\n", b"data: " * 9]

    def behave(handler: Handler, body: bytes) -> None:
        handler.begin_stream()
        for piece in noise:
            handler.piece(piece)
        handler.end_stream()

    upstream.behaviour = behave
    for dialect in DIALECTS:
        asked = ask(gateway.url, "POST", PATHS[dialect], deleted_talk().body(dialect), JSON)
        assert (asked[0].status, asked[1]) == (200, b"".join(noise))


@dialects
def test_a_very_large_body_loses_what_was_deleted_and_nothing_else(
    gateway: RunningGateway, upstream: Upstream, dialect: str
) -> None:
    talk = Talk()
    first = talk.read("DOOMED " * 400_000)
    talk.read("kept „ü“ " * 900_000, 2)
    talk.delete(f"m{first}")
    body = talk.body(dialect)
    ask(gateway.url, "POST", PATHS[dialect], body, JSON)
    arrived = upstream.got[0].body

    start = body.index(b"DOOMED")
    assert len(body) > 10_000_000 and b"DOOMED" not in arrived
    end = body.rindex(b"DOOMED ") + len(b"DOOMED ")
    shorter = arrived.index(b"[pensieve: m2 forgotten")
    assert body[: shorter - 1] == arrived[: shorter - 1] and shorter <= start
    assert arrived.endswith(body[end:])


@pytest.mark.parametrize("handles", [True, False])
def test_pictures_thoughts_and_marks_that_nobody_deleted_pass_byte_for_byte(
    upstream: Upstream, handles: bool
) -> None:
    """Of the user, and of a result that stays; whatever order and spelling the host has for them."""
    pixels = base64.b64encode(bytes(range(256)) * 40).decode()
    picture = {"source": {"data": pixels, "media_type": "image/png", "type": "base64"}, "type": "image"}
    talk = deleted_talk()
    talk.read("other", 2)
    data: dict[str, Any] = json.loads(talk.body("anthropic"))
    data["messages"][0]["content"] = [picture, {"type": "text", "text": "look"}]
    kept = data["messages"][-1]["content"][0]
    kept["content"] = [
        *kept["content"],
        picture,
        {"type": "hologram", "text": LONG, "cache_control": {"x": 1}},
    ]
    data["messages"].append({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "AA=="}]})
    body = json.dumps(data, indent=1, ensure_ascii=True).encode()
    with RunningGateway(
        (Place.of(upstream.url),), EAGER, None, tools=FACTS.tools, handles=handles
    ) as gateway:
        ask(gateway.url, "POST", "/v1/messages", body, JSON)
    arrived = upstream.got[0].body

    doomed = json.dumps(data["messages"][2]["content"][0]["content"][0]["text"]).encode()
    stub = arrived[arrived.index(b'"[pensieve: ') : arrived.index(b' back]"') + len(b' back]"')]
    assert body.count(doomed) == 1 and arrived == body.replace(doomed, stub)


def test_it_answers_to_other_names_where_it_was_told_to_listen_there(upstream: Upstream) -> None:
    def status(running: RunningGateway) -> bytes:
        with raw_socket(f"http://127.0.0.1:{running.url.rpartition(':')[2]}") as line:
            line.sendall(b"GET /v1/models HTTP/1.1\r\nHost: build.example\r\nConnection: close\r\n\r\n")
            return line.recv(100)[9:12]

    place = (Place.of(upstream.url),)
    with RunningGateway(place, EAGER, None, tools=FACTS.tools) as at_home:
        assert at_home.url.startswith("http://127.0.0.1:") and status(at_home) == b"421"
    with RunningGateway(place, EAGER, None, tools=FACTS.tools, bind="0.0.0.0") as abroad:
        assert status(abroad) == b"200"


def test_an_explanation_says_what_waits_and_what_was_taken_out_and_why() -> None:
    talk = Talk()
    first = talk.read(LONG * 6)
    for chunk in range(2, 12):
        talk.read(LONG * 4, chunk)
    talk.delete(f"m{first}")
    lines = {}
    for policy in (Policy("threshold"), Policy("eager"), Policy("batched"), Policy("batched", horizon=500)):
        body = talk.body("anthropic")
        out, report = rewrite(body, "anthropic", FACTS, policy)
        told = list(explained("/v1/messages", report, policy))
        lines[policy.name, policy.horizon] = told[1]
        assert told[0].startswith(f"/v1/messages: {len(body):,} bytes came, {len(out):,} went on; ")
    assert "1 deleted" in lines["threshold", 20] and "tokens: waits; " in lines["threshold", 20]
    assert "tokens: taken out; eager: at once." in lines["eager", 20]
    assert "tokens: waits; saves the price of" in lines["batched", 20]
    assert (
        "cached tokens behind it" in lines["batched", 20] and "tokens: taken out; " in lines["batched", 500]
    )
    unread = rewrite(b"{broken", "chat", FACTS, Policy())[1]
    assert "Passed on as it came: " in list(explained("/x", unread, Policy()))[1]

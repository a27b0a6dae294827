"""The proxy lets pass: what it cannot improve behaves as if it were not there."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import logging
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead
from typing import Any

import pytest
from talks import FACTS, Talk, deleted_talk
from upstreams import Handler, Upstream, ask, raw_socket

from pensieve_mcp.errors import StorageError, WorkspaceError
from pensieve_mcp.gateway.bodies import MOST_BYTES
from pensieve_mcp.gateway.proxy import Upstream as Place
from pensieve_mcp.gateway.serving import RunningGateway
from pensieve_mcp.gateway.telling import summary
from pensieve_mcp.settings import Settings

EAGER = Settings(gateway_policy="eager")
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def gateway(upstream: Upstream) -> Iterator[RunningGateway]:
    with RunningGateway(
        (Place.of(upstream.url + "/base"),), EAGER, None, tools=FACTS.tools, handles=False
    ) as running:
        yield running


# -- what goes there -----------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/responses", "/v1/chat/completions"])
def test_a_request_without_deletions_arrives_as_it_left(
    gateway: RunningGateway, upstream: Upstream, path: str
) -> None:
    body = b' {"model" : "m",\t"messages":[{"role":"user","content":"\\u00e9\xc3\xa9"}],"input":[ ],"x":1.0e5 }\n'
    answer, _ = ask(gateway.url, "POST", path, body, JSON)

    assert answer.status == 200
    assert upstream.got[0].body == body
    assert upstream.got[0].path == "/base" + path


def test_deleted_text_does_not_arrive(gateway: RunningGateway, upstream: Upstream) -> None:
    for dialect, path in (
        ("anthropic", "/v1/messages"),
        ("responses", "/v1/responses"),
        ("chat", "/v1/chat/completions"),
    ):
        ask(gateway.url, "POST", path, deleted_talk().body(dialect), JSON)

        assert b"Velsay" not in upstream.got[-1].body
        assert b"[pensieve: m2 forgotten" in upstream.got[-1].body
        assert upstream.got[-1].header("content-length") == str(len(upstream.got[-1].body))


def test_headers_pass_and_authorisation_is_never_logged(
    gateway: RunningGateway, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "sk-ant-very-secret"
    sent = {**JSON, "X-Api-Key": secret, "Authorization": f"Bearer {secret}", "Anthropic-Beta": "a,b",
            "Proxy-Connection": "x", "Accept-Encoding": "br, gzip;q=0.5, zstd", "Cookie": "c=1"}  # fmt: skip
    ask(gateway.url, "POST", "/v1/messages", deleted_talk().body("anthropic"), sent)
    ask(gateway.url, "POST", "/v1/messages", b"{broken", sent)

    got = upstream.got[0]
    assert got.header("x-api-key") == secret and got.header("authorization") == f"Bearer {secret}"
    assert got.header("anthropic-beta") == "a,b" and got.header("cookie") == "c=1"
    assert got.header("accept-encoding") == "gzip;q=0.5, zstd" and got.header("proxy-connection") is None
    assert got.header("host") == upstream.url.removeprefix("http://") and got.header("user-agent") is None
    assert secret not in caplog.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models?limit=1"),
        ("HEAD", "/"),
        ("DELETE", "/v1/files/a%2Fb"),
        ("POST", "/v1/files"),
        ("OPTIONS", "/x"),
        ("PUT", "/v1/x"),
    ],
)
def test_other_methods_and_paths_pass(
    gateway: RunningGateway, upstream: Upstream, method: str, path: str
) -> None:
    body = b"\x00\xffbinary" if method in ("POST", "PUT") else b""
    answer, text = ask(gateway.url, method, path, body)

    assert answer.status == 200 and (method == "HEAD") == (text == b"")
    assert (upstream.got[0].method, upstream.got[0].path, upstream.got[0].body) == (
        method,
        "/base" + path,
        body,
    )


def test_a_chunked_request_passes(gateway: RunningGateway, upstream: Upstream) -> None:
    body = deleted_talk().body("anthropic")
    with raw_socket(gateway.url) as line:
        head = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        line.sendall(
            head
            + b"".join(
                b"%x\r\n%s\r\n" % (len(body[i : i + 700]), body[i : i + 700])
                for i in range(0, len(body), 700)
            )
            + b"0\r\n\r\n"
        )
        assert line.recv(100).startswith(b"HTTP/1.1 200")

    assert b"[pensieve: m2 forgotten" in upstream.got[0].body and b"Velsay" not in upstream.got[0].body


def zstd() -> Any:
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


COMPRESSIONS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (gzip.compress, gzip.decompress),
    "deflate": (zlib.compress, zlib.decompress),
    "zstd": (lambda plain: zstd().compress(plain), lambda packed: zstd().decompress(packed)),
}


@pytest.mark.parametrize("encoding", COMPRESSIONS)
def test_a_compressed_request_is_opened_edited_and_closed_again(
    gateway: RunningGateway, upstream: Upstream, encoding: str
) -> None:
    """Codex compresses with Zstandard where it is logged in with ChatGPT."""
    pack, unpack = COMPRESSIONS[encoding]
    headers = {**JSON, "Content-Encoding": encoding}
    untouched = pack(Talk().body("anthropic"))
    ask(gateway.url, "POST", "/v1/messages", untouched, headers)
    ask(gateway.url, "POST", "/v1/messages", pack(deleted_talk().body("anthropic")), headers)

    assert upstream.got[0].body == untouched
    assert upstream.got[1].header("content-encoding") == encoding
    plain = unpack(upstream.got[1].body)
    assert b"Velsay" not in plain and b"[pensieve: m2 forgotten" in plain


@pytest.mark.parametrize("encoding", COMPRESSIONS)
@pytest.mark.parametrize("cut", [False, True])
def test_what_a_compressed_answer_cost_is_read_and_the_answer_passes_as_it_is(
    gateway: RunningGateway, upstream: Upstream, encoding: str, cut: bool
) -> None:
    pack, _ = COMPRESSIONS[encoding]
    words = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(200))
    plain = json.dumps({"content": words, "usage": {"input_tokens": 777, "output_tokens": 1}})
    answer = pack(plain.encode())
    answer = answer[: len(answer) // 2] if cut else answer
    upstream.behaviour = lambda handler, body: handler.whole(200, answer, Content_Encoding=encoding)
    body = json.dumps({**json.loads(Talk().body("anthropic")), "tools": [{"name": "x"}]}).encode()
    got = ask(gateway.url, "POST", "/v1/messages", body, {**JSON, "Accept-Encoding": encoding})

    assert got[1] == answer and got[0].headers["content-encoding"] == encoding
    ask(gateway.url, "GET", "/v1/models")  # the gateway is through with the first
    assert gateway.keeper.totals.prompt == (0 if cut else 777)


def test_a_body_compressed_otherwise_or_badly_passes_unread_and_is_said(
    gateway: RunningGateway, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    bomb = gzip.compress(b" " * (MOST_BYTES + 5))
    broken = [("gzip", b"no gzip"), ("zstd", b"no zstd"), ("zstd", zstd().compress(b"x" * 999)[:-4])]
    for encoding, body in (("br", b"\x0b\x02\x80"), ("gzip", bomb), *broken):
        ask(gateway.url, "POST", "/v1/messages", body, {**JSON, "Content-Encoding": encoding})
        assert upstream.got[-1].body == body

    assert caplog.text.count("passed on unread") == 5


def test_a_body_of_a_hundred_megabytes_passes_through(gateway: RunningGateway, upstream: Upstream) -> None:
    body = b'{"messages": [], "x": "' + b"y" * 100_000_000 + b'"}'
    answer, _ = ask(gateway.url, "POST", "/v1/messages", body, JSON)

    assert answer.status == 200 and upstream.got[0].body == body


def test_a_host_that_breaks_off_its_request_sends_nothing_on(
    gateway: RunningGateway, upstream: Upstream
) -> None:
    with raw_socket(gateway.url) as line:
        line.sendall(
            b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{"messages"'
        )
    ask(gateway.url, "GET", "/after")

    assert [got.path for got in upstream.got] == ["/base/after"]


def test_small_pieces_of_an_answer_go_at_once(gateway: RunningGateway) -> None:
    """The event loop sets TCP_NODELAY for sockets that say they are TCP; else each event waits some 40 ms."""
    assert gateway._socket.proto == socket.IPPROTO_TCP


# -- what comes back -----------------------------------------------------


def test_an_answer_streams_while_it_is_made(gateway: RunningGateway, upstream: Upstream) -> None:
    first_seen = threading.Event()

    def slowly(handler: Handler, body: bytes) -> None:
        handler.begin_stream()
        handler.piece(b"data: one\n\n")
        assert first_seen.wait(30)  # the second piece is made when the first was read
        handler.piece(b"data: two\n\n")
        handler.end_stream()

    upstream.behaviour = slowly
    with raw_socket(gateway.url) as line:
        body = deleted_talk().body("anthropic")
        line.sendall(
            b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        got = b""
        while b"data: one" not in got:
            got += line.recv(4096)
        first_seen.set()
        while not got.endswith(b"0\r\n\r\n"):
            got += line.recv(4096)

    assert b"data: two" in got and b"text/event-stream" in got


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529, 302, 204])
def test_the_upstreams_own_errors_pass(gateway: RunningGateway, upstream: Upstream, status: int) -> None:
    words = b"" if status == 204 else b'{"type":"error","error":{"type":"x","message":"theirs"}}'
    upstream.behaviour = lambda handler, body: handler.whole(
        status, words, retry_after="7", Location="http://elsewhere/"
    )
    answer, text = ask(gateway.url, "POST", "/v1/messages", deleted_talk().body("anthropic"), JSON)

    assert (answer.status, text, answer.headers["retry-after"]) == (status, words, "7")
    assert answer.headers["x-pensieve-gateway"] is None and len(upstream.got) == 1


def test_an_upstream_that_is_not_there_is_told_clearly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with RunningGateway((Place.of(f"http://127.0.0.1:{port}"),), EAGER, None, tools=FACTS.tools) as gateway:
        answer, text = ask(gateway.url, "POST", "/v1/messages", Talk().body("anthropic"), JSON)

    assert (answer.status, answer.headers["x-pensieve-gateway"]) == (502, "unreachable")
    assert "pensieve gateway: http://127.0.0.1" in json.loads(text)["error"]["message"]
    told = list(summary(gateway.keeper.totals))
    assert told == [
        "Requests that did not reach the model's API: 1. Is the network there, and the address right (--upstream)?"
    ]


def test_the_summary_counts_what_was_taken_and_what_was_refused(
    gateway: RunningGateway, upstream: Upstream
) -> None:
    body = deleted_talk().body("anthropic")
    ask(gateway.url, "POST", "/v1/messages", body, JSON)
    ask(
        gateway.url, "POST", "/v1/messages", Talk().body("anthropic"), JSON
    )  # without tools: it passed all the same
    upstream.behaviour = lambda handler, body: handler.whole(401, b"{}")
    ask(gateway.url, "POST", "/v1/messages", body, JSON)

    totals = gateway.keeper.totals
    assert (totals.requests, totals.refused, totals.unreached) == (2, 1, 0)
    assert totals.saved_tokens > 0 and len(totals.forgotten) == 1
    assert any("answered with an error, which the host shows: 1." in line for line in summary(totals))


@pytest.mark.parametrize("announced", [False, True])
def test_an_answer_that_breaks_off_breaks_off(
    gateway: RunningGateway, upstream: Upstream, announced: bool
) -> None:
    def broken(handler: Handler, body: bytes) -> None:
        if announced:
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b"half")
        else:
            handler.begin_stream()
            handler.piece(b"data: half\n\n")
        handler.break_off()

    upstream.behaviour = broken
    with pytest.raises((IncompleteRead, ConnectionError)):
        ask(gateway.url, "POST", "/v1/messages", Talk().body("anthropic"), JSON)


def test_a_host_that_leaves_ends_the_upstreams_work(gateway: RunningGateway, upstream: Upstream) -> None:
    def endless(handler: Handler, body: bytes) -> None:
        handler.begin_stream()
        while not upstream.left.is_set():
            handler.piece(b"data: " + b"x" * 50_000 + b"\n\n")

    upstream.behaviour = endless
    with raw_socket(gateway.url) as line:
        body = Talk().body("anthropic")
        line.sendall(
            b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        assert line.recv(100)

    assert upstream.left.wait(30)


def test_a_host_that_leaves_while_the_upstream_is_silent_ends_it_too(
    gateway: RunningGateway, upstream: Upstream
) -> None:
    asked = threading.Event()

    def silent(handler: Handler, body: bytes) -> None:
        asked.set()
        if handler.connection.recv(1) == b"":  # the gateway hung up
            upstream.left.set()

    upstream.behaviour = silent
    with raw_socket(gateway.url) as line:
        line.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        assert asked.wait(30)

    assert upstream.left.wait(30)


# -- what is refused -----------------------------------------------------


def test_a_web_socket_is_told_to_use_plain_requests(gateway: RunningGateway, upstream: Upstream) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "a",
        "Sec-WebSocket-Version": "13",
    }
    answer, _ = ask(gateway.url, "GET", "/v1/responses", b"", upgrade)

    assert answer.status == 426 and not upstream.got


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET http://evil.example/ HTTP/1.1", "127.0.0.1", 400),
        ("CONNECT evil.example:443 HTTP/1.1", "127.0.0.1", 400),
        ("GET /v1/models HTTP/1.1", "evil.example", 421),
        ("GET /v1/models HTTP/1.1", "evil.example:80", 421),
        ("GET //evil.example/x HTTP/1.1", "127.0.0.1", 200),
        ("GET /v1/models HTTP/1.1", "[::1]:9", 200),
    ],
)
def test_it_is_no_open_proxy(
    gateway: RunningGateway, upstream: Upstream, line: str, host: str, status: int
) -> None:
    with raw_socket(gateway.url) as wire:
        wire.sendall(f"{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        got = wire.recv(1000)

    assert got.startswith(f"HTTP/1.1 {status}".encode())
    assert all(one.path.startswith("/base/") for one in upstream.got)


@pytest.mark.parametrize("url", ["ftp://x", "https://u:p@host", "nonsense", "https://host/?q=1", ""])
def test_an_upstream_that_is_no_api_is_refused(url: str) -> None:
    with pytest.raises(WorkspaceError):
        Place.of(url)


# -- many and broken -----------------------------------------------------


def test_two_hosts_at_once_get_each_their_own(gateway: RunningGateway, upstream: Upstream) -> None:
    def by_content(handler: Handler, body: bytes) -> None:
        handler.whole(200, b"OTHER" if b"OTHER" in body else b"plain")

    upstream.behaviour = by_content
    other = Talk()
    other.read("OTHER " * 200)
    talks = [deleted_talk(), other] * 25
    with ThreadPoolExecutor(10) as pool:
        answers = list(
            pool.map(lambda t: ask(gateway.url, "POST", "/v1/messages", t.body("anthropic"), JSON)[1], talks)
        )

    assert answers == [b"plain", b"OTHER"] * 25
    assert sum(b"forgotten" in got.body for got in upstream.got) == 25


def test_a_ledger_that_cannot_be_written_stops_nothing(upstream: Upstream) -> None:
    def full_disk() -> None:
        raise StorageError("The disk is full.", hint="Make room.", slug="disk_full")

    with RunningGateway((Place.of(upstream.url),), EAGER, full_disk, tools=FACTS.tools) as gateway:  # type: ignore[arg-type]
        talk = deleted_talk()
        talk.host("words " * 2_000)
        for _ in range(3):
            answer, _ = ask(gateway.url, "POST", "/v1/messages", talk.body("anthropic"), JSON)
            assert answer.status == 200
    assert all(b"forgotten" in got.body for got in upstream.got)
    assert gateway.keeper.totals.troubles == ["The disk is full. Make room."]
    assert gateway.keeper.totals.requests == 3


def test_broken_json_reaches_the_upstream_as_it_is(gateway: RunningGateway, upstream: Upstream) -> None:
    for body in (b"", b"{", b"null", b'{"messages": 3}', b'{"messages": [[[["', b"[" * 300_000, b"\xff\xfe"):
        answer, _ = ask(gateway.url, "POST", "/v1/messages", body, JSON)
        assert answer.status == 200 and upstream.got[-1].body == body

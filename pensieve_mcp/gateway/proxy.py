"""The bytes' way through: host → here → the configured upstream, and back as they come.

A plain ASGI application, and the only file that knows the HTTP client. It goes nowhere but to the configured
upstreams, answers to loopback names only unless told otherwise, follows no redirect, keeps no cookie, and neither
adds, reads nor logs what authorises a request. What we cannot read is passed on; what goes wrong is the
upstream's own answer, or says in a header and in words that it comes from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.gateway.bodies import MOST_BYTES, Opener, Sealed, closed, opened
from pensieve_mcp.gateway.keeping import Keeper
from pensieve_mcp.gateway.rewrite import Report
from pensieve_mcp.gateway.threads import Thread, thread_of
from pensieve_mcp.wire.calls import CallReader
from pensieve_mcp.wire.conversation import Dialect
from pensieve_mcp.wire.dialects import dialect_of
from pensieve_mcp.wire.usage import UsageReader

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Rewriter = Callable[[bytes, Dialect], tuple[bytes, Report]]

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"expect",
    )
)  # RFC 9110, 7.6.1; and `expect`, which the server has answered
OWN_HEADER = b"x-pensieve-gateway"
CONNECT_SECONDS = 60.0
IN_THREAD_BYTES = 400_000  # reading more than this takes longer than other streams should wait
PIECE_BYTES = 2**18  # the network's layers copy what they are given at once
WRITE_SECONDS = 2.0  # an answer waits so long for new handles to stand in the ledger
ERROR_TYPES = {"anthropic": "api_error", "responses": "server_error", "chat": "server_error"}


class Broken(Exception):
    """The upstream broke off in the middle of its answer; ours breaks off, too."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where requests below `prefix` go. `url` has no query and no slash at its end."""

    prefix: str
    url: str

    @classmethod
    def of(cls, url: str, prefix: str = "") -> Upstream:
        """Raises WorkspaceError for what is no http address."""
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise WorkspaceError(
                f"{url!r} is no address of an API.",
                hint="Give it as https://HOST or https://HOST/PATH.",
                slug="bad_upstream",
            )
        if parts.username or parts.password:
            raise WorkspaceError(
                "The upstream's address holds a password.",
                hint="Leave it out: the host sends its own authorisation, which passes through.",
                slug="bad_upstream",
            )
        return cls(prefix.rstrip("/"), url.strip().rstrip("/"))


class Proxy:
    """The application. One event loop; `close` when it ends."""

    def __init__(
        self,
        upstreams: tuple[Upstream, ...],
        rewriter: Rewriter,
        keeper: Keeper,
        *,
        host_names: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "[::1]"}),
        told: Callable[[str, Report], None] | None = None,
    ) -> None:
        """`host_names`: names that a client may call us by, None for any. `told` hears of each request."""
        self._upstreams = sorted(upstreams, key=lambda one: -len(one.prefix))
        self._bases = {one: httpx2.URL(one.url) for one in upstreams}
        self._rewriter = rewriter
        self._keeper = keeper
        self._host_names = host_names
        self._told = told
        self._client: httpx2.AsyncClient | None = None
        # One after the other: reading is not quicker in two threads, and each large body takes its size several times.
        self._large = ThreadPoolExecutor(1, thread_name_prefix="gateway-large")

    # -- life --------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._client = self._new_client()
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._client is not None:
                    await self._client.aclose()
                self._large.shutdown(wait=False)
                await send({"type": "lifespan.shutdown.complete"})
                return

    @staticmethod
    def _new_client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            # Reading has no limit: a model may think for long, and the host has its own.
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            follow_redirects=False,
        )

    # -- one request -------------------------------------------------------------------------------------------

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers: Headers = list(scope["headers"])
        by_name = dict(headers)
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        if not path.startswith(b"/") or scope["method"] == "CONNECT":
            await self._refuse(send, 400, "This is no open proxy: it goes to its configured upstream only.")
            return
        if not self._is_known_host(by_name.get(b"host", b"")):
            await self._refuse(send, 421, "This gateway does not answer to that host name.")
            return
        if b"upgrade" in by_name:
            # Codex tries a WebSocket first; told so, it falls back to plain requests at once.
            await self._refuse(send, 426, "No WebSocket here; plain requests are answered.")
            return
        upstream = next(
            (u for u in self._upstreams if path.decode("latin-1").startswith(u.prefix + "/")), None
        )
        if upstream is None:
            await self._refuse(send, 404, "Nothing is configured at this path.")
            return
        dialect = dialect_of(path.decode("latin-1")) if scope["method"] == "POST" else None
        passing = _Passing(self, upstream, dialect, scope, headers, receive, send)
        await passing.go()

    def _is_known_host(self, value: bytes) -> bool:
        if self._host_names is None:
            return True
        name = value.decode("latin-1").lower()
        return (name if name.endswith("]") else name.rpartition(":")[0] or name) in self._host_names

    @staticmethod
    async def _refuse(send: Send, status: int, words: str, kind: str = "api_error") -> None:
        error = {"type": kind, "message": f"pensieve gateway: {words}"}
        body = json.dumps({"type": "error", "error": error}).encode()
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                    (OWN_HEADER, b"refused" if status < 500 else b"unreachable"),
                ],
            }
        )
        await send({"type": "http.response.body", "body": body})


class _Passing:
    """One request on its way."""

    def __init__(
        self,
        proxy: Proxy,
        upstream: Upstream,
        dialect: Dialect | None,
        scope: Mapping[str, Any],
        headers: Headers,
        receive: Receive,
        send: Send,
    ) -> None:
        self._proxy = proxy
        self._upstream = upstream
        self._dialect: Dialect | None = dialect
        self._scope = scope
        self._headers = headers
        self._receive = receive
        self._send = send
        self._taken = asyncio.Event()  # the whole body was taken from the host
        self._gone = False
        self._begun = False
        self._counted = False
        self._report: Report | None = None
        self._thread = Thread()
        self._is_news = False  # it shows what the server must know before the model calls it
        self._written: Future[int | None] | None = None

    async def go(self) -> None:
        """Pass it on, and stop when the host is gone."""
        exchange = asyncio.ensure_future(self._exchange())
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({exchange, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not exchange.done():
                exchange.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await exchange
        finally:
            for task in (watch, exchange):
                if not task.done():
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _watch(self) -> None:
        await self._taken.wait()
        while not self._gone:
            if (await self._receive())["type"] == "http.disconnect":
                return

    async def _exchange(self) -> None:
        content, length = await self._content()
        if self._gone:
            return
        client = self._proxy._client
        assert client is not None
        query: bytes = self._scope.get("query_string", b"")
        path: bytes = (self._scope.get("raw_path") or self._scope["path"].encode())[
            len(self._upstream.prefix) :
        ]
        base = self._proxy._bases[self._upstream]
        target = base.raw_path.rstrip(b"/") + path + (b"?" + query if query else b"")
        request = httpx2.Request(
            self._scope["method"],
            base.copy_with(raw_path=target),
            headers=_onward(self._headers, length, observed=self._dialect is not None),
            content=content,
        )
        answer: httpx2.Response | None = None
        try:
            answer = await client.send(request, stream=True, auth=_untouched)
            await self._pass_back(answer)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            if self._gone:
                return
            if self._begun:
                raise Broken(type(error).__name__) from None
            self._count(None)
            words = f"{self._upstream.url} cannot be reached: {type(error).__name__}: {error}"
            status = 504 if isinstance(error, httpx2.TimeoutException) else 502
            await self._proxy._refuse(
                self._send, status, words, ERROR_TYPES.get(self._dialect or "", "api_error")
            )
        finally:
            if answer is not None:
                await answer.aclose()
            elif not self._counted and self._report is not None and not self._is_estimate():
                self._proxy._keeper.given_up()

    # -- there -------------------------------------------------------------------------------------------------

    async def _content(self) -> tuple[bytes | AsyncIterator[bytes], int | None]:
        """What goes on as the body, and its length: None as it was announced."""
        if self._dialect is None:
            if self._scope["method"] in ("GET", "HEAD", "OPTIONS") and not any(
                name in (b"content-length", b"transfer-encoding") for name, _ in self._headers
            ):
                self._taken.set()
                return b"", None
            return self._rest(b""), None
        parts: list[bytes] = []
        size = 0
        async for part in self._rest(b""):
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                log.warning(
                    "A request of more than %d MB is passed through without being read.", MOST_BYTES >> 20
                )
                return self._rest(b"".join(parts)), None
        if self._gone:
            return b"", None
        body = b"".join(parts)
        parts.clear()  # of a large body no more copies than are needed
        new = await self._rewritten(body)
        return (new if len(new) <= PIECE_BYTES else _in_pieces(new)), len(new)

    async def _rest(self, before: bytes) -> AsyncIterator[bytes]:
        if before:
            yield before
        while not self._taken.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone = True
                self._taken.set()
                return
            if not message.get("more_body", False):
                self._taken.set()
            if body := message.get("body", b""):
                yield body

    async def _rewritten(self, body: bytes) -> bytes:
        assert self._dialect is not None
        encoding = _value(self._headers, b"content-encoding")
        try:
            plain = opened(body, encoding)
        except Sealed as reason:
            log.warning("A request is passed on unread: %s.", reason)
            self._tell(Report(self._dialect, len(body), len(body), notes=(f"Passed on unread: {reason}.",)))
            return body
        if len(plain) > IN_THREAD_BYTES:
            loop, proxy = asyncio.get_running_loop(), self._proxy
            new, report = await loop.run_in_executor(proxy._large, proxy._rewriter, plain, self._dialect)
        else:
            new, report = self._proxy._rewriter(plain, self._dialect)
        self._tell(report)
        return body if new is plain or new == plain else closed(new, encoding)

    def _tell(self, report: Report) -> None:
        self._report = report
        path = self._scope["path"]
        if self._proxy._told is not None:
            self._proxy._told(path, report)
        if report.has_tools and not self._is_estimate():
            keeper = self._proxy._keeper
            thread = thread_of(dict(self._headers), report.session)
            self._thread = thread
            self._is_news = keeper.saw_request(report, thread)

    def _is_estimate(self) -> bool:
        """Whether it only asks how many tokens a request would have."""
        path: str = self._scope["path"]
        return path.rstrip("/").endswith("/count_tokens")

    def _count(self, status: int | None) -> None:
        self._counted = True
        if self._report is not None and not self._is_estimate():
            self._proxy._keeper.count(self._report, status)

    def _write_news(self) -> None:
        """Once, and not while the request is on its way: the model takes longer than that to call."""
        if self._is_news:
            self._is_news = False
            assert self._report is not None
            self._written = self._proxy._keeper.write(self._report, self._thread)

    # -- and back ----------------------------------------------------------------------------------------------

    async def _pass_back(self, answer: httpx2.Response) -> None:
        listed = _listed(answer.headers.raw)
        headers = [(n.lower(), v) for n, v in answer.headers.raw if n.lower() not in HOP_BY_HOP | listed]
        self._begun = True
        await self._send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        stream = self._looked_at(answer)
        if stream is None or self._dialect is None or self._report is None:
            self._count(answer.status_code)
            self._write_news()
            if self._written is not None:
                self._proxy._keeper.hurry()  # the model may name a new handle in this very answer
                await _until_written(self._written)
            async for chunk in answer.aiter_raw():
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        keeper, report = self._proxy._keeper, self._report
        reader = UsageReader(self._dialect, stream=stream)
        calls = CallReader(self._dialect, stream=stream)
        turn = keeper.new_turn(report, self._thread)
        opener = Opener(_value(headers, b"content-encoding"))
        held = b""  # of an answer in one piece the end waits until its calls are written
        called: Future[int | None] | None = None
        try:
            async for chunk in answer.aiter_raw():
                plain = opener.feed(chunk)
                if found := calls.feed(plain):
                    self._write_news()
                    # Before the host has the end of a call it must stand in the ledger that the call passed here.
                    called = keeper.saw_calls(report, self._thread, turn, found, reader.usage())
                    await _until_written(called)
                ready, held = (chunk, held) if stream else (held, chunk)
                if ready:
                    await self._send({"type": "http.response.body", "body": ready, "more_body": True})
                reader.feed(plain)
                self._write_news()
                if not self._counted:  # when the first bytes are through, as all that is for us alone
                    self._count(answer.status_code)
            if held:
                if found := calls.end():
                    called = keeper.saw_calls(report, self._thread, turn, found, reader.usage())
                    await _until_written(called)
                await self._send({"type": "http.response.body", "body": held, "more_body": True})
        finally:
            if not self._counted:
                self._count(answer.status_code)
            again, urgent = self._written is not None, called is not None
            keeper.saw_answer(report, self._thread, reader.usage(), turn, again=again, urgent=urgent)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _looked_at(self, answer: httpx2.Response) -> bool | None:
        """Whether the answer comes as a stream of events; None for one that nobody looks at."""
        if (
            self._dialect is None
            or self._report is None
            or not self._report.has_tools
            or answer.status_code != 200
        ):
            return None
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            return True
        return False if kind.startswith("application/json") else None


async def _in_pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


async def _until_written(written: Future[int | None] | None) -> None:
    """Wait for the ledger, but not for long: a conversation does not stop for it."""
    if written is not None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(written)), WRITE_SECONDS)


def _untouched(request: httpx2.Request) -> httpx2.Request:
    """In place of the client's own authorisation (from a .netrc or an address): the host's stays as it is."""
    return request


def _value(headers: Headers, name: bytes) -> str:
    return b",".join(value for key, value in headers if key.lower() == name).decode("latin-1")


def _listed(headers: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Names that `Connection` makes hop-by-hop."""
    return frozenset(_value(headers, b"connection").lower().replace(" ", "").encode("latin-1").split(b","))


def _onward(headers: Headers, length: int | None, *, observed: bool) -> Headers:
    """The headers that go on. `length` replaces the announced one; an answer that we look at may come only in
    encodings that we can open.
    """
    drop = HOP_BY_HOP | _listed(headers) | {b"host"}
    if length is not None:
        drop |= {b"content-length"}
    onward = [(name, value) for name, value in headers if name not in drop]
    if observed:
        onward = [(n, _readable(v) if n == b"accept-encoding" else v) for n, v in onward]
    if length is not None:
        onward.append((b"content-length", str(length).encode()))
    return onward


def _readable(accepted: bytes) -> bytes:
    kept = [
        part.strip()
        for part in accepted.split(b",")
        if part.split(b";")[0].strip().lower() in (b"gzip", b"x-gzip", b"deflate", b"zstd", b"identity")
    ]
    return b", ".join(kept) or b"identity"

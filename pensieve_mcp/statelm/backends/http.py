"""Requests to model servers: streamed lines, retries, and errors in words. The HTTP library is known to this file.

A request is tried again where that can help: no connection, too many requests, a server's own fault, a stream
cut before its end. What a server says about the reason is passed on, the key never.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.backends.waiting import Waiting

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

TRIES = 4
FIRST_WAIT_SECONDS = 1.0
MOST_WAIT_SECONDS = 30.0
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 180.0  # between two lines of a stream: a large prompt on a slow machine takes long to begin
REPLY_SECONDS = (
    1_200.0  # of one whole reply: some 2,000 tokens on a slow machine; drops must not go on for ever
)
MAX_LINE_CHARS = 4_000_000
MAX_REPLY_LINES = 200_000
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Refused(BackendError):
    """The server does not take the request. `status` is its answer's."""

    slug = "refused"

    def __init__(self, message: str, *, hint: str, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Cut(Exception):
    """A stream ended before its end mark."""


class Poster:
    """Posts JSON to one server. `sleep` is for tests."""

    def __init__(
        self,
        base: str,
        headers: Mapping[str, str],
        *,
        silence_seconds: float = SILENCE_SECONDS,
        sleep: Callable[[float], None] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called every second, at least, whatever is waited for, and ends it all where it raises."""
        import httpx2

        self._http = httpx2
        self.base = base.rstrip("/")
        self._sleep = sleep or self._pause
        self._check = check
        self._waiting = Waiting(check)
        try:
            self._client = httpx2.AsyncClient(
                headers=dict(headers),
                timeout=httpx2.Timeout(silence_seconds, connect=CONNECT_SECONDS),
                follow_redirects=False,
            )
            scheme = httpx2.URL(self.base).scheme
        except (ValueError, TypeError, httpx2.InvalidURL) as error:
            raise BackendError(
                f"{base[:200]!r} is no address of a server: {error}.", hint=_URL_HINT
            ) from error
        if scheme not in ("http", "https"):
            raise BackendError(f"{base[:200]!r} is no address of a server.", hint=_URL_HINT, slug="bad_url")

    def stream(self, path: str, body: Mapping[str, Any], take: Callable[[Iterator[dict[str, Any]]], T]) -> T:
        """Post, and let `take` make a value of the events. Raises BackendError when no try came to its end."""
        reason = ""
        wait = FIRST_WAIT_SECONDS
        for attempt in range(1, TRIES + 1):
            asked_wait = None
            try:
                with self._posted(path, body) as response:
                    if response.status_code == 200:
                        return take(_events(self._lines(response)))
                    reason = _reason(response.status_code, self._waiting.wait(response.aread()))
                    if response.status_code not in RETRIED:
                        status = response.status_code
                        raise Refused(f"{self.base} answered {reason}", hint=_hint(status), status=status)
                    asked_wait = _seconds(response.headers.get("retry-after"))
            except (
                Cut,
                self._http.RemoteProtocolError,
                self._http.ReadError,
                self._http.DecodingError,
            ) as error:
                reason = f"the reply was cut off ({_said(error)})"
            except self._http.TimeoutException:
                reason = "no answer in time"
            except self._http.TransportError as error:
                reason = f"no connection ({_said(error)})"
            except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
                reason = f"a reply that could not be understood ({type(error).__name__}: {str(error)[:100]})"
            if attempt < TRIES:
                pause = asked_wait if asked_wait is not None else wait * random.uniform(0.8, 1.2)
                self._sleep(min(MOST_WAIT_SECONDS, pause))
                wait *= 2
        raise BackendError(
            f"{self.base} could not be used, tried {TRIES} times: {reason}.",
            hint="Is the server running, and is the address right? --url sets it.",
            slug="unreachable",
        )

    @contextmanager
    def _posted(self, path: str, body: Mapping[str, Any]) -> Iterator[httpx2.Response]:
        request = self._client.build_request("POST", self.base + path, json=body)
        response = self._waiting.wait(self._sent(request))
        try:
            yield response
        finally:
            self._waiting.wait(response.aclose())

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        """The library forgets a connection that is given up while it agrees on encryption: that one is closed here."""
        connected: list[Any] = []

        async def trace(event: str, told: Mapping[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                connected.append(told["return_value"])

        request.extensions["trace"] = trace
        try:
            return await self._client.send(request, stream=True)
        except asyncio.CancelledError:
            for connection in connected:
                await connection.aclose()
            raise

    def _lines(self, response: httpx2.Response) -> Iterator[str]:
        """Ended by a line feed, a carriage return or both, as server-sent events are; what else ends lines in Python
        (U+2028, U+0085) may stand within one. Raises BackendError for a line or a reply without end.
        """
        pieces = response.aiter_text()

        async def following() -> str | None:
            return await anext(pieces, None)

        ending = time.monotonic() + REPLY_SECONDS
        begun: list[str] = []
        size = 0
        while (piece := self._waiting.wait(following())) is not None:
            if time.monotonic() > ending:
                raise BackendError(
                    f"The server was still replying after {REPLY_SECONDS:,.0f} seconds.",
                    hint="Ask another model, or one that runs faster here.",
                    slug="too_slow_reply",
                )
            first, *more = _LINE_END.split(piece)
            begun.append(first)
            size += len(first)
            for line in more:
                yield "".join(begun)
                begun, size = [line], len(line)
            if size > MAX_LINE_CHARS:
                raise _endless()
        if size:
            yield "".join(begun)

    def _pause(self, seconds: float) -> None:
        self._check()
        while seconds > 0:
            time.sleep(min(1.0, seconds))
            seconds -= 1.0
            self._check()

    def close(self) -> None:
        self._waiting.close(self._client.aclose)


_LINE_END = re.compile(r"\r\n|\n|\r")
_URL_HINT = "For example --url http://127.0.0.1:11434/v1"


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent stream; `[DONE]` becomes {"done": True}. A server that does not stream sends
    one object."""
    plain: list[str] = []
    for number, line in enumerate(lines):
        if len(line) > MAX_LINE_CHARS or number > MAX_REPLY_LINES:
            raise _endless()
        if line.startswith("data:"):
            text = line[5:].strip()
            if text == "[DONE]":
                yield {"done": True}
                continue
            yield _object(text)
        elif line and not line.startswith((":", "event:", "id:", "retry:")):
            plain.append(line)
    if plain:
        yield {**_object("\n".join(plain)), "whole": True}


def _endless() -> BackendError:
    return BackendError("The server's reply has no end.", hint="Ask another model.", slug="endless")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Cut(f"not JSON: {text[:60]!r}") from error
    if not isinstance(value, dict):
        raise Cut(f"not an object: {text[:60]!r}")
    return value


def _said(error: BaseException) -> str:
    """The system's own words beneath an error of the connection, where there are any."""
    beneath: BaseException | None = error
    while beneath is not None:
        if isinstance(beneath, OSError) and beneath.errno is not None:
            if str(beneath.strerror).startswith(
                "Connect call failed"
            ):  # asyncio's words, in place of the system's
                beneath = OSError(beneath.errno, os.strerror(beneath.errno))
            return str(beneath)[:200]
        if isinstance(beneath, BaseExceptionGroup):  # of several addresses
            beneath = beneath.exceptions[-1]
        else:
            beneath = beneath.__cause__ or beneath.__context__
    return str(error)[:200] or type(error).__name__


def _reason(status: int, body: bytes) -> str:
    text = body[:2_000].decode("utf-8", "replace")
    try:
        value = json.loads(text)
        error = value.get("error", value) if isinstance(value, dict) else value
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    except ValueError:
        pass
    return f"{status}: {' '.join(text.split())[:300]}"


def _hint(status: int) -> str:
    if status in (401, 403):
        return "The key is missing or wrong; it is read from the environment (pensieve ask --help names the variable)."
    if status == 404:
        return "The address or the model's name is not known there; --url and --model set them."
    if status == 400:
        return "The server does not take this request; its window may be smaller than window_tokens."
    return "Its log may tell more."


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None

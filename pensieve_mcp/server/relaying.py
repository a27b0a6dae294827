"""Between the pipe and the SDK: every message is passed on, and the end of the input only when what was asked before
it is answered.

The SDK drops at the end of its input whatever it has not written yet. Scripts pipe their calls in and close; a slow
reader or a busy machine must not cost them an answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import anyio
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from pensieve_mcp.server.malformed import answer_to

log = logging.getLogger(__name__)

ANSWERING_SECONDS = (
    30.0  # a host that closes our input to end us sends a signal after some seconds, and is heeded
)
_LASTS_FOR_EVER = "subscriptions/listen"  # answered when the client leaves


class Relay:
    """One connection. The SDK is served `incoming` and `outgoing`; `carry` runs beside it."""

    def __init__(self) -> None:
        # no room in them: what was taken from us has reached whoever comes next
        self._to_server, self.incoming = anyio.create_memory_object_stream[Any](0)
        self.outgoing, self._from_server = anyio.create_memory_object_stream[SessionMessage](0)
        # requests of the client that wait for our answer: how many of each id, since some clients give one twice
        self._theirs: Counter[RequestId] = Counter()
        self._ours: dict[RequestId, RequestId] = {}  # and of the server that wait for the client's
        self._changed = anyio.Event()

    async def carry(self, stdin: Any, stdout: Any) -> None:
        """Until the SDK has closed its end; what it said by then is handed to `stdout`, which is closed."""
        async with stdout, self._from_server, anyio.create_task_group() as group:
            group.start_soon(self._carry_in, stdin, stdout)
            async for message in self._from_server:
                await stdout.send(message)
                self._said(message.message)
            group.cancel_scope.cancel()

    async def _carry_in(self, stdin: Any, stdout: Any) -> None:
        async with self._to_server:
            async for message in stdin:
                if not isinstance(message, Exception):
                    self._heard(message.message)
                    await self._to_server.send(message)
                elif (told := answer_to(message)) is not None:
                    log.warning("a line on stdin was no message: %s", told.error.message)
                    await stdout.send(SessionMessage(told))
            with anyio.move_on_after(ANSWERING_SECONDS):
                while self._theirs:
                    while self._ours:
                        await self._to_server.send(SessionMessage(_nobody_there(self._ours.popitem()[1])))
                    await self._changed.wait()

    def _heard(self, message: Any) -> None:
        if isinstance(message, JSONRPCRequest) and message.method != _LASTS_FOR_EVER:
            self._theirs[coerce_request_id(message.id)] += 1
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            if (cancelled := cancelled_request_id_from_params(message.params)) is not None:
                self._settled(cancelled)  # such a one gets no answer
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._ours.pop(coerce_request_id(message.id), None)

    def _said(self, message: Any) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ours[coerce_request_id(message.id)] = message.id
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._settled(message.id)
        self._changed.set()
        self._changed = anyio.Event()

    def _settled(self, request: RequestId) -> None:
        key = coerce_request_id(request)
        if self._theirs[key] > 1:
            self._theirs[key] -= 1
        else:
            del self._theirs[key]  # a Counter takes it where there is none


def _nobody_there(request: RequestId) -> JSONRPCError:
    gone = ErrorData(code=CONNECTION_CLOSED, message="The input has ended: nobody can answer this.")
    return JSONRPCError(jsonrpc="2.0", id=request, error=gone)

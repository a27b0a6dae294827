"""From the command line to a served connection, and to an orderly end.

stdout belongs to the protocol: the SDK keeps it to itself while serving and sends whatever a library prints to
stderr.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.server.options import Options, read

if TYPE_CHECKING:
    from pensieve_mcp.server.lifeline import Lifeline
    from pensieve_mcp.server.surface import Surface

log = logging.getLogger(__name__)

SETTLE_SECONDS = (
    3.0  # for calls that were being answered when the end came, so that their messages are recorded
)


def run(argv: Sequence[str] | None) -> int:
    """Serve until the host leaves. Ends the process itself, but for options that cannot be served (status 2)."""
    environment = dict(os.environ)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="pensieve-mcp: %(message)s")
    try:
        options = read(argv, environment, _working_directory())
    except PensieveError as error:
        sys.stderr.write(f"pensieve-mcp: {error}\n")
        return 2
    for problem in options.problems():
        # a host shows this in its log, a person sees it at once; a model is told by every call
        sys.stderr.write(f"pensieve-mcp: {problem}\n  The server goes on and tells this to every call.\n")
    surface, lifeline = _assemble(options, environment)
    lifeline.heed_signals(asleep=options.http is None)
    if options.http is None:
        lifeline.watch_parent()
        status = _serve_stdio(surface)
    else:
        from pensieve_mcp.server.web import serve

        try:
            status = serve(surface, options)
        except PensieveError as error:
            sys.stderr.write(f"pensieve-mcp: {error}\n")
            status = 2
    lifeline.end(status, "the client is gone")


def _assemble(options: Options, environment: Mapping[str, str]) -> tuple[Surface, Lifeline]:
    from pensieve_mcp.server.lifeline import Lifeline
    from pensieve_mcp.server.opening import Opening
    from pensieve_mcp.server.surface import Surface

    opening = Opening.of(options, environment)
    surface = Surface(opening, environment, explicit=options.http is not None, structured=options.structured)

    def close() -> None:
        surface.workers.settle(SETTLE_SECONDS)
        opening.close()

    return surface, Lifeline(close)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # removed under us
        return Path(os.sep)


def _serve_stdio(surface: Surface) -> int:
    import anyio
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage

    from pensieve_mcp.server.malformed import answer_to

    async def serve() -> None:
        send, relayed = anyio.create_memory_object_stream[Any](0)

        async def relay(incoming: Any, outgoing: Any) -> None:
            """Pass messages on and answer what is none; the end of the input only when what was asked before it is
            answered.
            """
            async with send:
                async for message in incoming:
                    if not isinstance(message, Exception):
                        await send.send(message)
                    elif (told := answer_to(message)) is not None:
                        log.warning("a line on stdin was no message: %s", told.error.message)
                        await outgoing.send(SessionMessage(told))
                with anyio.move_on_after(SETTLE_SECONDS):
                    await surface.quiet()

        async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
            group.start_soon(relay, incoming, outgoing)
            await surface.server.run(relayed, outgoing, surface.server.create_initialization_options())
            group.cancel_scope.cancel()

    try:
        anyio.run(serve)
    except BaseExceptionGroup as group:
        # A host that dies while an answer is written breaks the pipe: an ordinary end.
        _, other = group.split((BrokenPipeError, ConnectionError))
        if other is not None:
            log.error("the connection failed", exc_info=other)
            return 1
    return 0

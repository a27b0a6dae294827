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
from typing import TYPE_CHECKING

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.server.options import Options, read

if TYPE_CHECKING:
    from pensieve_mcp.server.lifeline import Lifeline
    from pensieve_mcp.server.surface import Surface

log = logging.getLogger(__name__)

SETTLE_SECONDS = 3.0  # for work whose caller has gone, so that its messages are recorded


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

    from pensieve_mcp.server.relaying import Relay

    async def serve() -> None:
        async with stdio_server() as (stdin, stdout), anyio.create_task_group() as group:
            relay = Relay()
            group.start_soon(relay.carry, stdin, stdout)
            await surface.server.run(
                relay.incoming, relay.outgoing, surface.server.create_initialization_options()
            )

    try:
        anyio.run(serve)
    except BaseExceptionGroup as group:
        # A host that dies while an answer is written breaks the pipe: an ordinary end.
        _, other = group.split((BrokenPipeError, ConnectionError, anyio.BrokenResourceError))
        if other is not None:
            log.error("the connection failed", exc_info=other)
            return 1
    return 0

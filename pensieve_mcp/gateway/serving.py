"""A gateway that runs: rewriter, keeper and proxy put together and served. The only file that knows the HTTP server.

It runs in a thread, so that whoever starts it (the command, or `pensieve run` with a host beside it) keeps the
main thread for signals.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.gateway.keeping import Keeper
from pensieve_mcp.gateway.proxy import Proxy, Upstream
from pensieve_mcp.gateway.reading import Facts
from pensieve_mcp.gateway.rewrite import Lines, Report, rewrite
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.settings import Settings
from pensieve_mcp.wire.conversation import Dialect
from pensieve_mcp.wire.names import own_tool
from pensieve_mcp.wire.reading import Earlier

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
STOP_SECONDS = 8.0
SWITCH_SECONDS = 0.0005
HEADER_BYTES = 256 * 1024  # hosts put whole JSON objects into headers


def policy_of(settings: Settings) -> Policy:
    """The policy that the settings describe."""
    return Policy(
        name=settings.gateway_policy,  # type: ignore[arg-type]  # the setting's choices are the policy's names
        cached=settings.gateway_cached_percent / 100,
        written=settings.gateway_written_percent / 100,
        horizon=settings.gateway_horizon,
        window_tokens=settings.gateway_window_tokens,
        pressure_percent=settings.gateway_pressure_percent,
        least_tokens=settings.gateway_least_tokens,
    )


class RunningGateway:
    """`with RunningGateway(…) as gateway: … gateway.url …`. `keeper.totals` is the summary."""

    def __init__(
        self,
        upstreams: tuple[Upstream, ...],
        settings: Settings,
        open_workspace: Callable[[], Workspace] | None,
        *,
        tools: frozenset[str],
        servers: frozenset[str] = frozenset({"pensieve"}),
        handles: bool = True,
        bind: str = "127.0.0.1",
        port: int = 0,
        run: str = "",
        told: Callable[[str, Report], None] | None = None,
    ) -> None:
        """`tools` are the names of our server's tools. `handles` gives the host's own results names. `bind`
        beyond the loopback is for whoever asks for it.

        Raises WorkspaceError when the port is taken.
        """
        policy = policy_of(settings)
        facts = Facts(servers, tools)
        lines, earlier = Lines(), Earlier()
        handle_tokens = settings.gateway_handle_tokens if handles else None

        def rewriter(body: bytes, dialect: Dialect) -> tuple[bytes, Report]:
            return rewrite(
                body, dialect, facts, policy, handle_tokens=handle_tokens, lines=lines, earlier=earlier
            )

        def own(name: str, namespace: str) -> str | None:
            return own_tool(name, namespace, servers, tools)

        self.keeper = Keeper(open_workspace, policy, run=run, own_tool=own)
        loopback = _is_loopback(bind)
        proxy = Proxy(upstreams, rewriter, self.keeper, host_names=LOOPBACK if loopback else None, told=told)
        try:
            self._socket = _listening(bind, port)
        except OSError as error:
            raise WorkspaceError(
                f"Cannot listen on {bind} port {port}: {error.strerror or error}.",
                hint="Choose another --port; 0 takes a free one.",
                slug="cannot_listen",
            ) from error
        name = f"[{bind}]" if ":" in bind else bind
        self.url = f"http://{name}:{self._socket.getsockname()[1]}"
        self._proxy = proxy
        self._thread: threading.Thread | None = None

    def __enter__(self) -> RunningGateway:
        import uvicorn

        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a broken stream is no fault of ours
        config = uvicorn.Config(
            self._proxy,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="gateway", daemon=True
        )
        self._thread.start()
        self.keeper.begin()
        # Else a stream waits up to 5 ms whenever the ledger's thread works in Python.
        self._switching = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setswitchinterval(self._switching)
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        self.keeper.close()
        self._socket.close()


def _listening(bind: str, port: int) -> socket.socket:
    """A listening socket that says it is TCP: the event loop then sends small pieces at once, and an event of
    a stream does not wait 40 ms for the acknowledgement of the one before.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two programs share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((bind, port))
        listening.listen(512)
    except OSError:
        listening.close()
        raise
    return listening


def _is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"

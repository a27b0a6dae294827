"""Streamable HTTP: one path, a bearer token, this machine only unless asked otherwise.

Web pages can reach a port on the loopback, so a token is always wanted and Host and Origin are checked against
the names this server is meant to have (DNS rebinding). Encryption is left to whatever stands in front.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import threading
from typing import TYPE_CHECKING

from pensieve_mcp.server.options import LOOPBACK, BadOption, Options

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp, Receive, Scope, Send

    from pensieve_mcp.server.surface import Surface

PATH = "/mcp"
TOKEN_BYTES = 32
LAST_SECONDS = 5  # after the grace; then the process ends as it is, its databases are safe at any moment
GRACE_SECONDS = 3  # open streams are cut after that at the end
MAX_BODY_BYTES = 20 * 2**20  # an argument may have 16 MB; more is refused before it is read


class Bearer:
    """Lets through whoever knows the token. Compares in constant time."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._expected):
                body = b"Give the server's token: Authorization: Bearer TOKEN\n"
                headers = [
                    (b"content-type", b"text/plain"),
                    (b"content-length", str(len(body)).encode()),
                    (b"www-authenticate", b'Bearer realm="pensieve"'),
                ]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": body})
                return
        await self._app(scope, receive, send)


def application(surface: Surface, token: str, names: tuple[str, ...]) -> ASGIApp:
    """The ASGI application: `/mcp` behind token, Host and Origin checks. `names` are the hosts clients may ask
    for.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    shown = [f"[{name}]" if ":" in name else name for name in names]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[host for name in shown for host in (name, f"{name}:*")],
        allowed_origins=[
            f"{scheme}://{origin}"
            for name in shown
            for scheme in ("http", "https")
            for origin in (name, f"{name}:*")
        ],
    )
    app = surface.server.streamable_http_app(
        streamable_http_path=PATH, transport_security=security, max_request_body_size=MAX_BODY_BYTES
    )
    return Bearer(app, token)


def names_of(host: str, extra: tuple[str, ...]) -> tuple[str, ...]:
    """Host names under which a server bound to `host` may be asked: its own, and on every interface also this
    machine's.
    """
    anywhere = host in ("0.0.0.0", "::", "")
    own = (socket.gethostname(),) if anywhere else (host,)
    local = ("127.0.0.1", "localhost", "::1") if anywhere or host in LOOPBACK else ()
    return tuple(dict.fromkeys((*own, *local, *extra)))


def serve(surface: Surface, options: Options) -> int:
    """Serve until a signal ends it. Tells address and, if it made one up, the token on stderr. Raises BadOption
    for an address that cannot be had.
    """
    import uvicorn

    assert options.http is not None
    host, port = options.http
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise BadOption(
            f"Cannot listen on {host}:{port}: {error.strerror or error}.",
            hint="Choose another port; 0 takes a free one.",
        ) from error
    token = options.token or secrets.token_urlsafe(TOKEN_BYTES)
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"pensieve-mcp: serving http://{shown}:{port}{PATH}\n")
    if options.token is None:
        sys.stderr.write(f"pensieve-mcp: token {token}\n")
    sys.stderr.flush()
    app = application(surface, token, names_of(host, options.allowed_hosts))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
        ws="none",
    )

    class Ending(uvicorn.Server):
        """Ends in order when asked to, and in any case: a log nobody reads must not keep it alive."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            last = threading.Timer(GRACE_SECONDS + LAST_SECONDS, os._exit, (1,))
            last.daemon = True
            last.start()
            super().handle_exit(sig, frame)

    Ending(config).run(sockets=[listening])
    return 0

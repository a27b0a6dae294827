"""A model's API on the loopback that does as it is told, and keeps every byte it got."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Behaviour = Callable[["Handler", bytes], None]


@dataclass
class Got:
    """One request as it arrived."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k.lower() == name), None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Upstream

    def log_message(self, *args: Any) -> None:
        pass

    def whole(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin_stream(self, kind: str = "text/event-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _any(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.owner.got.append(Got(self.command, self.path, list(self.headers.items()), body))
        try:
            self.owner.behaviour(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.owner.left.set()
            self.close_connection = True

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_OPTIONS = _any


def echo(handler: Handler, body: bytes) -> None:
    """A short answer that says what it cost."""
    usage = {"input_tokens": len(body) // 4, "output_tokens": 7}
    handler.whole(200, json.dumps({"type": "message", "content": [], "usage": usage}).encode())


@dataclass
class Upstream:
    """`with Upstream() as upstream: … upstream.url … upstream.got`."""

    behaviour: Behaviour = echo
    got: list[Got] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)  # the other side went away

    def __enter__(self) -> Upstream:
        handler = type("Bound", (Handler,), {"owner": self})
        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.httpd.shutdown()
        self.httpd.server_close()


def ask(
    url: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[HTTPResponse, bytes]:
    """One request and its whole answer."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def raw_socket(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or 80), timeout=60)

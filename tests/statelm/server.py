"""A model server on the loopback that answers what a test tells it to, and keeps what it was asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any


@dataclass
class Answer:
    """One answer: `pieces` are written one after another, `pause` seconds apart; `cut` closes the line before the
    announced end."""

    pieces: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    pause: float = 0.0


def events(*values: Any) -> list[bytes]:
    """A server-sent stream of these objects."""
    return [f"data: {v if isinstance(v, str) else json.dumps(v)}\n\n".encode() for v in values]


@dataclass
class Served:
    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: int = 0  # askers that went away in the middle
    askers: set[Any] = field(default_factory=set)  # one for each connection


@contextmanager
def serving(
    answers: list[Answer] | Callable[[dict[str, Any], int], Answer], *, kept: bool = False
) -> Iterator[Served]:
    """Serve these answers in order; past the last the last one again. `kept`: a connection takes many requests."""
    served = Served("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if kept else "HTTP/1.0"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            served.asked.append({"path": self.path, **json.loads(body)})
            served.headers.append({name.lower(): value for name, value in self.headers.items()})
            served.askers.add(self.client_address)
            place = len(served.asked) - 1
            answer = (
                answers(served.asked[-1], place)
                if callable(answers)
                else answers[min(place, len(answers) - 1)]
            )
            whole = b"".join(answer.pieces)
            self.send_response(answer.status)
            self.send_header("content-length", str(len(whole) + (100 if answer.cut else 0)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in answer.pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                    time.sleep(answer.pause)
            except OSError:  # nobody listens any more
                served.left += 1
            self.close_connection = not kept

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mute:
    """What a server that says nothing saw. `asked`: a request came, and what there is to say was said."""

    url: str
    asked: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def was_left(self) -> bool:
        """Whether the asker closed its connection by itself; waits until it is closed."""
        self.left.wait()
        return not self.released.is_set()


@contextmanager
def mute(*said: bytes) -> Iterator[Mute]:
    """Takes connections, says this at the first request of each (in order; past the last the last one again), and keeps
    it open and silent until the end of the block."""
    server = Mute("")
    open_now: list[socket.socket] = []

    class Handler(BaseRequestHandler):
        request: socket.socket

        def handle(self) -> None:
            saying = said[min(len(open_now), len(said) - 1)] if said else b""
            open_now.append(self.request)
            try:
                self.request.recv(65_536)
                self.request.sendall(saying)
                server.asked.set()
                while self.request.recv(65_536):
                    pass
            except OSError:  # the asker went away before it was answered
                pass
            server.left.set()

    listening = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    try:
        yield server
    finally:
        server.released.set()
        listening.shutdown()
        for asker in open_now:
            with suppress(OSError):  # it went by itself
                asker.shutdown(socket.SHUT_RDWR)
        listening.server_close()  # waits for the handlers
        thread.join()

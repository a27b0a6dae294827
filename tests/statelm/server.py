"""A model server on the loopback that answers what a test tells it to, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


@contextmanager
def serving(answers: list[Answer] | Callable[[dict[str, Any], int], Answer]) -> Iterator[Served]:
    """Serve these answers in order; past the last the last one again."""
    served = Served("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            served.asked.append({"path": self.path, **json.loads(body)})
            served.headers.append({name.lower(): value for name, value in self.headers.items()})
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
            self.close_connection = True

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

"""An HTTP server ends when asked to, whoever hangs on and though nobody reads its log (found by breaking in)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_it_ends_with_sixty_half_sent_requests_and_an_unread_log(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("A wombat digs.", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log_reads, log_writes = os.pipe()
    command = [sys.executable, "-m", "pensieve_mcp.server", "--http", f"127.0.0.1:{port}", "--token", "t"]
    command += ["--state", str(tmp_path / "state"), str(tmp_path / "docs")]
    environment = os.environ | {"PENSIEVE_HOME": str(tmp_path / "home")}
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log_writes, env=environment)
    os.close(log_writes)
    held: list[socket.socket] = []
    try:
        ends = time.monotonic() + 60
        while not held:
            try:
                held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            except OSError:
                assert time.monotonic() < ends and server.poll() is None
                time.sleep(0.1)
        held += [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(59)]
        for one in held:
            one.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer t\r\n"
                b"Content-Type: application/json\r\n"
                b"Accept: application/json, text/event-stream\r\nContent-Length: 500\r\n\r\n{"
            )
        server.send_signal(signal.SIGTERM)
        server.wait(40)
    finally:
        server.kill()
        server.wait()
        os.close(log_reads)
        for one in held:
            one.close()

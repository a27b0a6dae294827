"""One worker process as its parent sees it: spawn, ask, read frames by a deadline, kill.

Why apart from the pool: this is all that differs between systems. POSIX hands the file over as a descriptor
beside the request, on a Unix socket; Windows duplicates its handle into the worker and talks over pipes. Who
gets which file, and what a death means, is left to the pool.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from pensieve_mcp.corpus.extract import wire
from pensieve_mcp.corpus.types import Limits

_READ_BYTES = 262_144
# `-I -S` leaves a bare import path, which we fill with our own: so wheels, editable installs, checkouts and zips
# are all found alike, and nothing of the working folder or the environment is.
_BOOT = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from pensieve_mcp.corpus.extract.worker import main
main(sys.argv[2])
"""
# What a Python may need to start at all; nothing else of our environment reaches a worker.
_KEPT_VARIABLES = (
    "SYSTEMROOT",
    "WINDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
)


class Gone(Exception):
    """The worker closed its channel: it died."""


class Line(Protocol):
    def send(self, payload: bytes, file: int) -> None: ...
    def receive(self, seconds: float) -> bytes:
        """Some bytes. Raises TimeoutError, or Gone at the end of the stream."""
        ...

    def close(self) -> None: ...


class SocketLine:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, payload: bytes, file: int) -> None:
        self._connection.settimeout(10)  # the request fits the socket's buffer, unless the worker is stopped
        try:
            sent = socket.send_fds(self._connection, [payload], [file])
            if sent < len(payload):
                self._connection.sendall(payload[sent:])
        except (ConnectionError, BrokenPipeError) as problem:
            raise Gone from problem

    def receive(self, seconds: float) -> bytes:
        self._connection.settimeout(max(seconds, 0.001))
        try:
            data = self._connection.recv(_READ_BYTES)
        except ConnectionError as problem:
            raise Gone from problem
        if not data:
            raise Gone
        return data

    def close(self) -> None:
        self._connection.close()


class PipeLine:
    """Over stdin and stdout; a thread reads, since a pipe cannot be waited for with a limit on Windows."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True, name="extract-pipe")
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed under us
            while data := os.read(self._out.fileno(), _READ_BYTES):
                self._received.put(data)
        self._received.put(b"")

    def send(self, payload: bytes, file: int) -> None:
        try:
            self._in.write(payload)
            self._in.flush()
        except OSError as problem:
            raise Gone from problem

    def receive(self, seconds: float) -> bytes:
        try:
            data = self._received.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            raise TimeoutError from None
        if not data:
            raise Gone
        return data

    def close(self) -> None:
        with contextlib.suppress(OSError):  # unsent bytes to a dead worker
            self._in.close()
        self._reader.join(timeout=5)
        self._out.close()


class Worker:
    """A running worker. Not thread-safe: whoever borrowed it from the pool has it alone."""

    def __init__(self, limits: Limits, memory_bytes: int, readers: str | None, *, pipes: bool) -> None:
        self.files = 0
        self.ended = False  # its channel is at its end, as when it is dying
        self.first_peak_bytes = 0
        self.peak_bytes = 0
        self._pipes = pipes
        self._buffer = bytearray()
        ours = theirs = None
        if not pipes:
            ours, theirs = socket.socketpair()
        options = {
            "socket": None if theirs is None else theirs.fileno(),
            "memory": memory_bytes,
            "limits": asdict(limits),
            "readers": readers,
        }
        try:
            self.process = subprocess.Popen(
                [
                    _python(),
                    "-I",
                    "-S",
                    "-X",
                    "utf8",
                    "-c",
                    _BOOT,
                    json.dumps(_import_path()),
                    json.dumps(options),
                ],
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
                cwd=Path(sys.executable).anchor or None,  # no folder of ours is kept busy
                pass_fds=() if theirs is None else (theirs.fileno(),),
                start_new_session=sys.platform != "win32",
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except BaseException:
            if ours is not None:
                ours.close()
            raise
        finally:
            if theirs is not None:
                theirs.close()
        self._line: Line = PipeLine(self.process) if ours is None else SocketLine(ours)

    def ask(self, request: dict[str, Any], file: int, path: str | None) -> None:
        """Send one request. Raises Gone, or TimeoutError when the worker takes nothing."""
        if self._pipes:
            request = {**request, **self._handed_over(file, path)}
        payload = json.dumps(request).encode()
        self.files += 1
        self._line.send(wire.HEADER.pack(len(payload)) + payload, file)

    def _handed_over(self, file: int, path: str | None) -> dict[str, Any]:
        """How a worker behind pipes gets at the file: by a handle of its own on Windows, elsewhere by its path."""
        if sys.platform == "win32":
            import _winapi
            import msvcrt

            # Made in the worker's process: it reads what we opened, whatever lies at the path by then.
            target = int(self.process._handle)  # type: ignore[attr-defined,unused-ignore]  # as multiprocessing does
            same = _winapi.DUPLICATE_SAME_ACCESS
            ours = _winapi.GetCurrentProcess()
            return {
                "handle": _winapi.DuplicateHandle(ours, msvcrt.get_osfhandle(file), target, 0, False, same)
            }
        return {"path": path}

    def frame(self, silence_seconds: float, deadline: float) -> list[wire.Item]:
        """The next frame. `deadline` on time.monotonic. Raises TimeoutError, Gone or wire.BadFrame."""
        silent_until = time.monotonic() + silence_seconds
        wanted = wire.HEADER.size
        while True:
            if wanted == wire.HEADER.size and len(self._buffer) >= wanted:
                size = wire.HEADER.unpack_from(self._buffer)[0]
                if size > wire.MAX_FRAME_BYTES:
                    raise wire.BadFrame(f"a frame of {size:,} bytes was announced")
                wanted += size
            if wanted > wire.HEADER.size and len(self._buffer) >= wanted:
                payload = bytes(self._buffer[wire.HEADER.size : wanted])
                del self._buffer[:wanted]
                return wire.decode(payload)
            left = min(silent_until, deadline) - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._buffer += self._line.receive(left)

    def kill(self) -> tuple[int, str]:
        """End the process and its group now. The exit status it had (negative: a signal) and its last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # One that died by itself tells why; the moment is for the system to reap it.
            self.process.wait(timeout=0 if self._alive() else 1)
        by_itself = self.process.poll()
        if by_itself is None:
            self._signal_group()
            self.process.wait()
        words = self._last_words()
        self._line.close()
        return (self.process.returncode if by_itself is None else by_itself), words

    def close(self) -> None:
        """Let an idle worker end by closing its channel; kill it if it lingers."""
        self._line.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._signal_group()
            self.process.wait()
        self._last_words()

    def _alive(self) -> bool:
        return self.process.poll() is None and not self.ended

    def _signal_group(self) -> None:
        if sys.platform == "win32":
            self.process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        """The end of what it wrote to stderr; closes the pipe. Called once the process is dead."""
        stderr = self.process.stderr
        if stderr is None or stderr.closed:
            return ""
        with stderr:
            if sys.platform != "win32":
                os.set_blocking(stderr.fileno(), False)  # a grandchild may hold the other end
            data = stderr.read(65_536) or b""
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        return (fatal or lines or [""])[-1][:200]


def _python() -> str:
    """The interpreter itself: in a Windows venv `sys.executable` is a launcher, and its child beyond our reach."""
    base = getattr(sys, "_base_executable", None)
    return str(base if sys.platform == "win32" and base else sys.executable)


def _import_path() -> list[str]:
    """Where the worker finds what we found: our own import path without relative entries, and our package's home."""
    home = str(Path(__file__).resolve().parents[3])
    entries = [entry for entry in sys.path if entry and Path(entry).is_absolute()]
    return entries if home in entries else [home, *entries]


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC", "OMP_NUM_THREADS": "1"}

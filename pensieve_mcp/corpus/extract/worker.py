"""The program that reads one file after the other, and may die of any of them.

Why a program of its own: native readers abort, hang and swallow memory on bad files. The worker bounds itself
(address space, core, file size, descriptors, niceness, a watchdog on resident memory), gets each file as an open
descriptor and no path, and streams what it reads, so that a death on page 900 leaves 899. It ends when its channel
closes, when its parent is gone, or, stuck in native code, by an alarm that needs no interpreter.

Which reader takes a file is left to the registry, when to kill and what to keep to the pool.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from pensieve_mcp.corpus.extract import registry, wire
from pensieve_mcp.corpus.types import Extractor, Facts, FileHint, Limits, Piece, Unreadable

FLUSH_CHARS = 48_000  # of text per frame: a few pages; keeps both sides busy
FLUSH_SECONDS = 0.2  # a killed pure-Python reader loses at most this much
WATCH_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
ALARM_SLACK_SECONDS = 30  # the parent kills first; the alarm is for orphans stuck in native code


class Channel(Protocol):
    def receive(self) -> tuple[dict[str, Any], int | None] | None: ...
    def send(self, frame: bytes) -> None: ...


class SocketChannel:
    """Requests with a descriptor beside them, over a Unix socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        data, descriptors, _, _ = socket.recv_fds(self._connection, 65_536, 1)
        if not data:
            return None
        while len(data) < wire.HEADER.size or len(data) < wire.HEADER.size + wire.HEADER.unpack_from(data)[0]:
            more = self._connection.recv(65_536)
            if not more:
                return None
            data += more
        return json.loads(data[wire.HEADER.size :]), descriptors[0] if descriptors else None

    def send(self, frame: bytes) -> None:
        self._connection.sendall(frame)


class PipeChannel:
    """Requests with a handle in them, over stdin and stdout: for Windows, which passes no descriptors.

    Elsewhere, where only tests come this way, there is a path in them.
    """

    def __init__(self) -> None:
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # a library that prints must not speak into the channel
        os.close(null)

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        head = self._in.read(wire.HEADER.size)
        if len(head) < wire.HEADER.size:
            return None
        request: dict[str, Any] = json.loads(self._in.read(wire.HEADER.unpack(head)[0]))
        if sys.platform == "win32":
            import msvcrt

            return request, msvcrt.open_osfhandle(request["handle"], os.O_RDONLY | os.O_BINARY)
        try:
            return request, os.open(request["path"] or "", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return request, None

    def send(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            view = view[self._out.write(view) :]


def peak_memory_bytes() -> int:
    """The highest resident memory this process had, in bytes.

    On Linux not from getrusage, whose peak outlives exec: a worker started by a large process would begin with that
    one's peak, and end itself over it.
    """
    if sys.platform == "win32":
        return _windows_peak()
    if sys.platform == "linux":
        try:
            with open("/proc/self/status", "rb") as status:  # noqa: PTH123  # pathlib is not loaded here
                for line in status:
                    if line.startswith(b"VmHWM:"):
                        return int(line.split()[1]) * 1024
        except OSError:
            pass  # no /proc in this container: the figure below is the best there is
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _windows_peak() -> int:
    import ctypes
    from ctypes import wintypes

    class Counters(ctypes.Structure):
        _fields_ = [("cb", wintypes.DWORD), ("faults", wintypes.DWORD)] + [
            (name, ctypes.c_size_t)
            for name in ("peak", "now", "a", "b", "c", "d", "pagefile", "peak_pagefile")
        ]

    counters = Counters()
    counters.cb = ctypes.sizeof(counters)
    windll = ctypes.windll  # type: ignore[attr-defined,unused-ignore]  # exists on Windows only
    psapi, kernel = windll.psapi, windll.kernel32
    kernel.GetCurrentProcess.restype = wintypes.HANDLE
    psapi.GetProcessMemoryInfo.argtypes = [wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD]
    psapi.GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.cb)
    return int(counters.peak)


def bound_this_process(memory_bytes: int) -> None:
    """Set what the system can enforce: memory, core, writes, descriptors, niceness."""
    if sys.platform == "win32":
        return
    import resource

    wanted = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 64)]
    if sys.platform == "linux":
        wanted.append((resource.RLIMIT_AS, memory_bytes))
    for which, value in wanted:
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    if sys.platform == "linux":
        _die_with_parent()
    with contextlib.suppress(OSError):  # already at the nicest allowed
        os.nice(10)


def _die_with_parent() -> None:
    """Have the kernel end us with the thread that started us: the watchdog does not run in a stopped process."""
    with contextlib.suppress(
        ImportError, OSError, AttributeError
    ):  # a Python or libc without it keeps the watchdog
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Watchdog:
    """Ends the process when its memory passes the limit or its parent is gone. Native code releases the GIL."""

    def __init__(self, memory_bytes: int) -> None:
        self.busy = False
        self.peak_bytes = peak_memory_bytes()  # as last looked at: asking for each small file would be dear
        self._memory_bytes = memory_bytes
        self._parent = os.getppid()
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH_SECONDS if self.busy else 5 * WATCH_SECONDS)
            self.peak_bytes = peak_memory_bytes()
            if self.peak_bytes > self._memory_bytes:
                os._exit(wire.MEMORY_EXIT)
            if os.getppid() != self._parent:
                os._exit(0)


class Outbox:
    """Gathers items into frames. Keeps count of characters, so that no more than the limit is ever sent."""

    def __init__(self, channel: Channel, limits: Limits) -> None:
        self._channel = channel
        self._items: list[wire.Item] = []
        self._chars = 0
        self._sent_at = time.monotonic()
        self._left = limits.document_chars + 1  # one too many tells the parent that something was cut
        self.eager = False  # send every piece at once: the reader is native code and may take us down

    def put(self, item: wire.Item) -> bool:
        """Take one item; false when the document is full."""
        if isinstance(item, Piece):
            if len(item.text) > self._left:
                item = Piece(item.text[: self._left], item.kind, item.ordinal, item.label, item.blocks)
            self._left -= len(item.text)
            self._chars += len(item.text) + 40 * len(item.blocks)
        self._items.append(item)
        if self.eager or self._chars > FLUSH_CHARS or time.monotonic() - self._sent_at > FLUSH_SECONDS:
            self.flush()
        return self._left > 0

    def flush(self) -> None:
        if self._items:
            self._channel.send(wire.encode(self._items))
        self._items = []
        self._chars = 0
        self._sent_at = time.monotonic()


def items_of(
    extractor: Extractor, file: BinaryIO, hint: FileHint, limits: Limits, first: int
) -> Iterator[Piece | Facts]:
    """What the extractor yields, from unit `first` on if it can start there."""
    start_at = getattr(extractor, "extract_from", None)
    if start_at is not None:
        return start_at(file, hint, limits, first)  # type: ignore[no-any-return]  # registry.Resumable
    return extractor.extract(file, hint, limits)


def serve(
    request: dict[str, Any], descriptor: int | None, limits: Limits, channel: Channel, peak: Callable[[], int]
) -> None:
    """Read one file and send all of it, or the reason why not. Dies of nothing Python can catch."""
    outbox = Outbox(channel, limits)
    try:
        if descriptor is None:
            raise Unreadable("unreadable", "the file could not be opened")
        hint = FileHint(request["name"], request["size"], request["encoding"])
        with os.fdopen(descriptor, "rb") as file:
            file.seek(0)
            extractor = registry.choose(file, hint, limits)
            file.seek(0)
            outbox.eager = getattr(extractor, "native", False)
            outbox.put(wire.Began(registry.label(extractor), hasattr(extractor, "extract_from")))
            for item in items_of(extractor, file, hint, limits, request["first"]):
                if not outbox.put(item):
                    break
    except Unreadable as problem:
        outbox.put(wire.Refused(problem.reason, problem.detail[:500]))
    except MemoryError:
        outbox.put(
            wire.Refused("out_of_memory", f"more than {request['memory']:,} bytes of memory were needed")
        )
    except RecursionError:
        outbox.put(wire.Refused("corrupt", "nested too deeply"))
    except OSError as problem:
        outbox.put(wire.Refused("unreadable", f"{type(problem).__name__}: {problem}"[:500]))
    except Exception as problem:
        # A reader's own bug or a malformed file: it costs this file, with the place of the fault told.
        outbox.put(wire.Refused("corrupt", f"{type(problem).__name__}: {problem} ({_place(problem)})"[:500]))
    outbox.put(wire.Done(peak()))
    outbox.flush()


def _place(problem: Exception) -> str:
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"  # noqa: PTH119


def main(options_json: str) -> None:
    """Serve files until the channel closes. `options_json`: socket (descriptor or null), memory, limits."""
    options = json.loads(options_json)
    memory: int = options["memory"]
    limits = Limits(**options["limits"])
    given = options["socket"]
    channel: Channel = PipeChannel() if given is None else SocketChannel(socket.socket(fileno=given))
    with contextlib.suppress(OSError, AttributeError):  # Windows has it from 3.12 on
        os.set_blocking(2, False)  # a full stderr pipe must not stop us
    bound_this_process(memory)
    if options.get("readers"):
        registry.add_readers_of(options["readers"])
    faulthandler.enable()
    watchdog = Watchdog(memory * 4 // 5)
    alarm = getattr(signal, "alarm", lambda seconds: None)
    with contextlib.suppress(ConnectionError, BrokenPipeError, KeyboardInterrupt):
        while (received := channel.receive()) is not None:
            request, descriptor = received
            request["memory"] = memory
            watchdog.busy = True
            alarm(int(request["seconds"]) + ALARM_SLACK_SECONDS)
            serve(request, descriptor, limits, channel, lambda: watchdog.peak_bytes)
            alarm(0)
            watchdog.busy = False

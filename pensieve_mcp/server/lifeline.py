"""A server whose host died ends itself.

Hosts that die hard leave servers behind by the hundred: some keep the pipe open in a child, some never close
it. So besides the end of stdin the parent's id is watched. Under the SDK a reader thread sits in a blocking
read that nothing can wake, so the end is `os._exit`, after what must be closed was closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from pensieve_mcp.heeding import Heeding

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # often enough that nobody notices a leftover, seldom enough to cost nothing
CLOSING_SECONDS = 8.0  # a build that does not stop by then is left to its own lifeline


class Lifeline:
    """Ends this process once, whoever asks first: the parent's death, a signal or the end of stdin."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._ending = threading.Lock()

    def watch_parent(self) -> None:
        """Watch the process that started us, in a daemon thread."""
        parent = os.getppid()
        if parent <= 1 and sys.platform != "win32":
            return  # started by the system's first process: there is nobody whose death would show
        wait = _wait_for_windows_parent if sys.platform == "win32" else _wait_for_posix_parent

        def watch() -> None:
            wait(parent)
            self.end(0, "the host is gone")

        threading.Thread(target=watch, name="lifeline", daemon=True).start()

    def heed_signals(self, *, asleep: bool = True) -> None:
        """SIGTERM and, where there is one, SIGHUP and SIGINT end the process in order. Call from the main
        thread. `asleep`: it may sleep for long; a web server wakes by itself, and ends its answers at a signal first.
        """
        Heeding(
            ("SIGTERM", "SIGHUP", "SIGINT"),
            lambda number: self.end(0, signal.Signals(number).name),
            asleep=asleep,
        )

    def end(self, status: int, why: str) -> NoReturn:
        """Close within a bounded time, flush and leave. Never returns; a second caller waits for the first."""
        with self._ending:
            log.info("ending: %s", why)
            closing = threading.Thread(target=self._closed, daemon=True)
            closing.start()
            closing.join(CLOSING_SECONDS)
            with contextlib.suppress(Exception):  # stderr's reader may be the host that died
                logging.shutdown()
                sys.stderr.flush()
            os._exit(status)

    def _closed(self) -> None:
        try:
            self._close()
        except Exception:
            log.exception("closing failed")


def _wait_for_posix_parent(parent: int) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(LOOK_SECONDS)


def _wait_for_windows_parent(parent: int) -> None:
    if sys.platform == "win32":  # pragma: no cover
        import ctypes

        # getppid keeps its value there when the parent dies, so we wait for the process itself.
        synchronize, forever = 0x0010_0000, 0xFFFF_FFFF
        handle = ctypes.windll.kernel32.OpenProcess(synchronize, False, parent)
        if handle:
            ctypes.windll.kernel32.WaitForSingleObject(handle, forever)
            return
    threading.Event().wait()

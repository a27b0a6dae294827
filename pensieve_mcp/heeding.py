"""Signals that are heeded although the main thread sleeps. What is done about them is their owners' business.

A handler in Python runs when the main thread wakes; it sleeps on where another thread took the signal, or where
the signal came just before it lay down. The wake-up descriptor is written at once, and a thread of ours reads it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from types import FrameType


class Heeding:
    """Calls `heed` with the number of each of these signals, in a thread of its own. Make it in the main thread.

    Names that this system lacks are left out, and so are signals that whoever started us (nohup) wants ignored.
    `asleep`: the main thread may sleep for long; without it the wake-up descriptor stays another's.
    """

    def __init__(self, names: Iterable[str], heed: Callable[[int], None], *, asleep: bool = True) -> None:
        self._heed = heed
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        self._previous: dict[
            int, signal.Handlers | int | Callable[[int, FrameType | None], object] | None
        ] = {}
        for name in names:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._tell)
        self._descriptor: int | None = None
        if asleep:
            self._descriptor = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def _tell(self, number: int, _: FrameType | None) -> None:
        """The ordinary handler: only where the descriptor is another's has it something to say."""
        if self._descriptor is None:
            with contextlib.suppress(
                BlockingIOError
            ):  # so many were told already that one more says nothing new
                self._told.send(bytes([number]))

    def _listen(self) -> None:
        with self._heard:
            while told := self._heard.recv(1):
                if told[0] in self._previous:
                    self._heed(told[0])

    def end(self) -> None:
        """Put back what was there before. Only in the main thread."""
        if self._descriptor is not None:
            signal.set_wakeup_fd(self._descriptor)
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._told.close()  # the thread hears the end

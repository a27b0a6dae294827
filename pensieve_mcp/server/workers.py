"""Blocking work on a few threads, each piece with a deadline.

A thread cannot be stopped. When a caller gives up or its time is over, the thread goes on and what it writes
into the ledger stays written; only the answer no longer reaches anybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from pensieve_mcp.errors import PensieveError

T = TypeVar("T")

MOST_AT_ONCE = 8  # what one client asks in parallel; the work is bound by disk and one database
MOST_RUNNING = (
    32  # with those whose callers have gone: past this something hangs, and more would only pile up
)


class TooSlow(PensieveError):
    """The deadline passed. The work goes on in the background."""

    slug = "too_slow"


class Busy(PensieveError):
    """Too much is still running."""

    slug = "busy"


class Workers:
    """Runs blocking functions for the event loop."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None
        self._idle = threading.Condition()
        self._running = 0

    async def run(self, what: str, seconds: float, function: Callable[[], T]) -> T:
        """The function's result. Raises TooSlow after `seconds`, Busy when too many run already, and whatever
        it raises.
        """
        if self._limiter is None:  # it belongs to an event loop
            self._limiter = anyio.CapacityLimiter(MOST_AT_ONCE)
        if self._running >= MOST_RUNNING:
            raise Busy(
                f"{self._running} earlier calls are still running.",
                hint="Wait a little, then ask one thing at a time.",
            )

        def counted() -> T:
            with self._idle:
                self._running += 1
            try:
                return function()
            finally:
                with self._idle:
                    self._running -= 1
                    self._idle.notify_all()

        try:
            with anyio.fail_after(seconds):
                return await anyio.to_thread.run_sync(counted, abandon_on_cancel=True, limiter=self._limiter)
        except TimeoutError:
            raise TooSlow(
                f"{what} has not answered within {seconds:g} seconds.",
                hint="It goes on in the background, and searchEngine with scope history finds its answer later. "
                "Or ask for less at once.",
            ) from None

    def settle(self, seconds: float) -> bool:
        """Wait until nothing runs, at most so long. Whether nothing runs."""
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, seconds)

"""Waits that can be given up. A blocking read cannot be interrupted, a coroutine can: coroutines run on an event loop
in a thread of its own, and whoever waits for one looks up twice a second. What is run is others' business.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")

STEP_SECONDS = 0.5  # between two looks at whether anybody still wants what is waited for
ENDING_SECONDS = 5.0  # to close what is open, which waits for nobody


class Waiting:
    """One event loop, begun with the first wait. Waits come from one thread at a time. Close it."""

    def __init__(self, check: Callable[[], None]) -> None:
        """`check` is called every half second of a wait, and ends it where it raises."""
        self._check = check
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises. It is cancelled where `check` raises, or Ctrl-C comes, which is passed on."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop or self._begin())
        try:
            while not wait([future], STEP_SECONDS).done:
                self._check()
            return future.result()
        finally:
            future.cancel()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what still runs, then run `last`, where there was anything to wait for, and end the thread."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return

        async def end() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                if not task.cancelling():  # it is closing what it had open
                    task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await last()
            await loop.shutdown_asyncgens()

        try:
            asyncio.run_coroutine_threadsafe(end(), loop).result(ENDING_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(ENDING_SECONDS)

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        loop.set_default_executor(_Aside())
        # a daemon: what nobody closed does not keep the interpreter from ending
        self._thread = threading.Thread(target=_turn, args=(loop,), name="waiting", daemon=True)
        self._thread.start()
        return loop


class _Aside(ThreadPoolExecutor):
    """Where names are looked up, which nothing interrupts: the interpreter's end waits for the threads of a pool,
    for these it does not.
    """

    def submit(self, work: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*args, **named))
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=run, name="looking up", daemon=True).start()
        return future


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()  # a name that is still being looked up is left to itself

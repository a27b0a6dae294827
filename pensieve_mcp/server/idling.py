"""What the HTTP server does while nobody asks: it makes one notebook of the notes of many conversations.

Only a server that many reach runs long enough to be idle, and only one process at a time consolidates, whoever starts
it. A call that comes in meanwhile ends it before anything is published; the next quiet time goes on. Where a model is
to word notes, the shell does it in a process of its own: doors do not know each other, and a model's memory goes with
its process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import anyio

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.server.opening import Opening

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

LOOKS = 4  # in one quiet time
LEAST_LOOK_SECONDS = 0.05
MOST_LOOK_SECONDS = 30.0
CHECK_SECONDS = 0.2  # whether a call came in while another process works


class Idling:
    """Knows when the last call was, and how everything stood when it was consolidated last."""

    def __init__(
        self, opening: Opening, environment: Mapping[str, str], *, busy: Callable[[], bool] = lambda: False
    ) -> None:
        self._opening = opening
        self._environment = environment
        self._busy = busy
        self._last_call = time.monotonic()
        self._seen: tuple[int, int] | None = None
        self._ending = False

    def called(self) -> None:
        """A call came in, or was answered."""
        self._last_call = time.monotonic()

    async def run(self) -> None:
        """Consolidate in each quiet time in which something is new; until cancelled."""
        try:
            while True:
                workspace = self._opening.peek()
                quiet = workspace.settings.consolidate_idle_seconds if workspace is not None else 0
                look = (quiet or MOST_LOOK_SECONDS) / LOOKS
                await anyio.sleep(min(MOST_LOOK_SECONDS, max(LEAST_LOOK_SECONDS, look)))
                if workspace is not None and quiet and self.quiet_for(quiet):
                    await anyio.to_thread.run_sync(self.step, workspace, abandon_on_cancel=True)
        finally:
            self._ending = True

    def quiet_for(self, seconds: float) -> bool:
        return not self._busy() and time.monotonic() - self._last_call >= seconds

    def step(self, workspace: Workspace) -> bool:
        """Consolidate once if something is new. Answers whether it was done. Blocks; never raises: what went wrong
        stands in the log, and is tried again when something is new."""
        try:
            now = _standing(workspace)
            if now == self._seen:
                return False
            began = self._last_call

            def interrupted() -> bool:
                return self._ending or self._busy() or self._last_call != began

            done = (
                self._with_model(workspace, interrupted) if workspace.settings.consolidate_backend else None
            )
            if done is None:
                done = _by_rule(workspace, interrupted)
            if done:
                self._seen = _standing(workspace)
            return done
        except PensieveError as error:
            if error.slug == "interrupted":
                return False
            log.warning("consolidating failed: %s", error)
        except Exception:
            log.exception("consolidating failed")
        self._seen = now
        return False

    def _with_model(self, workspace: Workspace, interrupted: Callable[[], bool]) -> bool | None:
        """By the shell, with a model. None when that failed: the rules are left."""
        settings = workspace.settings
        command = [
            *(sys.executable, "-m", "pensieve_mcp.cli", "--state", str(workspace.state), "consolidate"),
            *("--backend", settings.consolidate_backend, "--json"),
            *(("--model", settings.consolidate_model) if settings.consolidate_model else ()),
            *(("--url", settings.consolidate_url) if settings.consolidate_url else ()),
        ]
        environment = {**os.environ, **self._environment}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        try:
            while True:
                try:
                    _, said = process.communicate(timeout=CHECK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if interrupted():
                        return False
        finally:
            if process.poll() is None:
                process.terminate()  # in any place: what is not published whole is not there
                process.communicate()
        if process.returncode:
            log.warning(
                "consolidating with a model failed: %s", said.decode("utf-8", "replace")[-500:].strip()
            )
            return None
        return True


def _by_rule(workspace: Workspace, interrupted: Callable[[], bool]) -> bool:
    from pensieve_mcp.consolidation import consolidate

    done = consolidate(workspace, cancelled=interrupted)
    if done.made:
        log.info("consolidated: %d changes", len(done.made))
    for problem in done.problems:
        log.warning("%s", problem)
    return not done.busy


def _standing(workspace: Workspace) -> tuple[int, int]:
    return workspace.notebook.change_counter(), workspace.ledger.last_event()

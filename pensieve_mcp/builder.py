"""Building in a process of its own, so that a server answers at once whatever is being read and indexed.

`python -m pensieve_mcp.builder --state DIR` is told what to do in JSON lines on stdin and tells in JSON lines on
stdout; `Background` is the side that starts it. It ends when its stdin closes or its parent dies, never later: what it
had committed stays, and the next build goes on from there. How a build works is `building.py`'s.

    in   {"settings": {…}}                                    the first line
         {"do": "build", "chunk_size": 1000, "overlap": 0, "under": [], "verify": false,
          "retry": false, "rebuild": false}
    out  {"event": "progress" | "done" | "error" | "upgrade", …}
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from pensieve_mcp.corpus.types import BuildProgress, ChunkSet
from pensieve_mcp.errors import BackendError, PensieveError, StorageError

if TYPE_CHECKING:
    from pensieve_mcp.settings import Settings

log = logging.getLogger(__name__)

NICENESS = 5  # whoever waits for an answer goes first
WATCH_SECONDS = 2.0
LAST_WORDS_SECONDS = 10.0  # between the parent's end and ours; then the next build does the rest
CLOSE_SECONDS = 5.0
UPGRADE_SECONDS = 60.0
UPGRADE_PAUSE_SECONDS = 1.0  # between slices, so that another process can get the lease
LEASE_SECONDS = 30.0


class Home(Protocol):
    """What the starting side needs to know of its workspace."""

    @property
    def state(self) -> Path: ...
    @property
    def settings(self) -> Settings: ...


class Background:
    """The builder process as its workspace sees it. Starts on first use, and again should it have died."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._asked = 0
        self._failure: Mapping[str, str] | None = None

    def start(
        self,
        chunk_set: ChunkSet,
        *,
        under: Sequence[str] = (),
        verify: bool = False,
        retry: bool = False,
        rebuild: bool = False,
    ) -> None:
        """Ask for a build; returns at once. A request while one runs is done after it."""
        command = {
            "do": "build",
            "chunk_size": chunk_set.size_tokens,
            "overlap": chunk_set.overlap_tokens,
            "under": list(under),
            "verify": verify,
            "retry": retry,
            "rebuild": rebuild,
        }
        with self._lock:
            self._failure = None
            if self._process is None or self._process.poll() is not None:
                self._spawn()
            self._asked += 1
            self._idle.clear()
            self._send(command)

    def _spawn(self) -> None:
        self._asked = 0
        program = [sys.executable, "-m", "pensieve_mcp.builder", "--state", str(self._home.state)]
        # Its own import path is ours: a checkout, a zip or a wheel alike.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        try:
            process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            raise StorageError(
                f"The builder could not be started: {error.strerror or error}.",
                hint="Run pensieve index, which builds in its own process.",
                slug="builder_not_started",
            ) from error
        self._process = process
        self._send({"settings": dataclasses.asdict(self._home.settings)})
        threading.Thread(target=self._listen, args=(process,), name="builder", daemon=True).start()

    def _send(self, line: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            self._idle.set()  # it has just died: `checked` tells so

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                try:
                    told = json.loads(line)
                except ValueError:
                    log.warning("builder: %r", line[:200])
                    continue
                with self._lock:
                    if told["event"] in ("done", "error"):
                        self._asked -= 1
                        self._failure = told if told["event"] == "error" else None
                        if self._asked <= 0:
                            self._idle.set()
        process.wait()
        with self._lock:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()  # `_send` may have left something in it
            if self._process is process and self._asked > 0:
                self._failure = {
                    "message": f"The builder ended with exit status {process.returncode}.",
                    "hint": "Call buildIndex to go on from where it was.",
                }
                self._asked = 0
            if self._process is process:
                self._idle.set()

    @property
    def busy(self) -> bool:
        """Whether something asked for is not done yet."""
        return not self._idle.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all that was asked for is done; False when the time is over first."""
        return self._idle.wait(seconds)

    def checked(self, progress: BuildProgress) -> BuildProgress:
        """The progress in the databases, corrected by what is known of the process."""
        with self._lock:
            failure = self._failure
        if failure is not None:
            detail = f"{failure.get('message', '')} {failure.get('hint', '')}".strip()
            return dataclasses.replace(progress, state="failed", detail=detail)
        if self.busy and progress.state != "building":
            return dataclasses.replace(progress, state="building", detail=progress.detail or "starting")
        return progress

    def close(self) -> None:
        """End the process: what it has committed stays."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._idle.set()


# -- the process itself --------------------------------------------------------------------------------------


class _Builder:
    def __init__(self, state: Path, commands: IO[bytes], events: IO[str]) -> None:
        self.state = state
        self.commands = commands
        self.events = events
        self.waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self.stopping = threading.Event()

    def run(self) -> int:
        first = self.commands.readline()
        if not first:
            return 0
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        threading.Thread(target=self._watch, name="parent", daemon=True, args=(os.getppid(),)).start()
        from pensieve_mcp.workspace import Workspace

        settings = json.loads(first).get("settings", {})
        with Workspace.open(
            state=self.state, environment=os.environ, arguments=settings, builder="inline"
        ) as workspace:
            while (command := self._next(workspace)) is not None:
                self._build(workspace, command)
        return 0

    def _read(self) -> None:
        """Commands as they come; the end of them is the end of us."""
        try:
            for line in self.commands:
                self.waiting.put(json.loads(line))
        except (OSError, ValueError) as error:
            log.error("builder: a command could not be read: %s", error)
        self._stop()

    def _watch(self, parent: int) -> None:
        """The pipe tells that the parent is gone, unless somebody else holds its other end."""
        while not self.stopping.wait(WATCH_SECONDS):
            if os.name != "nt" and os.getppid() != parent:
                self._stop()

    def _stop(self) -> None:
        if self.stopping.is_set():
            return
        self.stopping.set()
        self.waiting.put(None)
        # A reader or a model may hang: nothing it does is worth outliving the parent for.
        timer = threading.Timer(LAST_WORDS_SECONDS, os._exit, (3,))
        timer.daemon = True
        timer.start()

    def _next(self, workspace: Any) -> Mapping[str, Any] | None:
        """The next command; while there is none, the third tier is worked on."""
        left = bool(workspace.settings.upgrade)
        while not self.stopping.is_set():
            if left and self.waiting.empty() and workspace.progress().state == "ready":
                left = self._upgrade(workspace)
            try:
                return self.waiting.get(timeout=UPGRADE_PAUSE_SECONDS if left else None)
            except queue.Empty:
                continue
        return None

    def _upgrade(self, workspace: Any) -> bool:
        """A slice of the third tier; whether there is more to do, now or once another process lets us."""
        from pensieve_mcp import building

        try:
            return not building.upgrade(
                workspace.corpus,
                workspace.plan(),
                seconds=UPGRADE_SECONDS,
                cancel=lambda: self.stopping.is_set() or not self.waiting.empty(),
                progress=lambda told: self._tell(
                    "upgrade", passages=told.passages, upgraded=told.upgraded_passages
                ),
            )
        except (BackendError, StorageError) as error:
            self._tell("upgrade", slug=error.slug, message=error.message, hint=error.hint)
            return False

    def _build(self, workspace: Any, command: Mapping[str, Any]) -> None:
        chunk_set = ChunkSet(int(command.get("chunk_size", 1_000)), int(command.get("overlap", 0)))
        try:
            plan = workspace.plan(
                chunk_set,
                under=tuple(command.get("under", ())),
                verify=bool(command.get("verify")),
                retry=bool(command.get("retry")),
                rebuild=bool(command.get("rebuild")),
            )
            told = workspace.build_now(plan, progress=self._tell_progress, cancel=self.stopping.is_set)
        except PensieveError as error:
            self._tell("error", slug=error.slug, message=error.message, hint=error.hint)
        except Exception as error:
            log.exception("The build failed")
            self._tell(
                "error",
                slug="error",
                message=f"The build failed unexpectedly: {type(error).__name__}: {error}.",
                hint="The log has the details; buildIndex tries again.",
            )
        else:
            self._tell("done", **dataclasses.asdict(told))

    def _tell_progress(self, progress: BuildProgress) -> None:
        self._tell("progress", **dataclasses.asdict(progress))

    def _tell(self, event: str, **facts: Any) -> None:
        try:
            self.events.write(json.dumps({"event": event, **facts}) + "\n")
            self.events.flush()
        except OSError:
            self._stop()  # nobody listens any more


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pensieve_mcp.builder", description="Builds a workspace's index.")
    parser.add_argument("--state", required=True, type=Path, help="the workspace's state folder")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(NICENESS)
    # What a library prints must not look like an event.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", closefd=True)
    os.dup2(2, 1)
    with events:
        return _Builder(given.state, sys.stdin.buffer, events).run()


if __name__ == "__main__":
    sys.exit(main())

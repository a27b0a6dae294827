"""The workspace behind this server, opened when first needed and only once.

Why not at start: opening loads databases and numerical libraries, and a host waits for the first answer. A
folder that is missing now may be there at the next call, so a failure is told and tried again, never
remembered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.server.options import Options
from pensieve_mcp.settings import ENV_PREFIX, Settings

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.5
STRUCTURED_BYTES = 10_500  # of text: a host counts bytes of JSON, which is longer than the text it escapes


class Opening:
    """Hands out the workspace. Safe to use from several threads."""

    def __init__(self, options: Options, open_workspace: Callable[[], Workspace]) -> None:
        self.options = options
        self._open = open_workspace
        self._lock = threading.Lock()
        self._workspace: Workspace | None = None
        self._closed = False
        self._answer_bytes: int | None = None
        self._first_look = threading.Lock()
        self._looked = False

    @classmethod
    def of(cls, options: Options, environment: Mapping[str, str]) -> Opening:
        """The opening that a command line asks for."""

        settings = dict(options.settings)
        spared = options.structured and "result_bytes" not in settings
        spared = spared and f"{ENV_PREFIX}RESULT_BYTES" not in environment
        if spared:
            settings["result_bytes"] = str(STRUCTURED_BYTES)

        def open_workspace() -> Workspace:
            if not options.given:
                raise options.no_folder()
            from pensieve_mcp.workspace import Workspace

            workspace = Workspace.open(
                options.folders,
                name=options.workspace,
                state=options.state,
                environment=environment,
                arguments=settings,
            )
            return with_reader(workspace, environment)

        opening = cls(options, open_workspace)
        opening._answer_bytes = Settings().result_bytes if spared else None
        return opening

    def workspace(self) -> Workspace:
        """The open workspace. Raises PensieveError, worded, when there is none to open or it cannot be opened."""
        with self._lock:
            if self._closed:
                raise PensieveError("The server is ending.", hint="Start it again.", slug="ending")
            if self._workspace is None:
                self._workspace = self._open()
            return self._workspace

    def asking(self) -> bool:
        """Whether whole questions can be asked, so that there is a tool for it. Opens no database; False where there is
        nothing to open."""
        try:
            return self.options.given and self.workspace().asks is not None
        except PensieveError:  # every call tells it
            return False

    def asking_stays_here(self) -> bool:
        """Whether such a question is answered on this machine alone; where `asking`."""
        asks = self.workspace().asks
        return asks is not None and bool(asks.stays_here)

    def answer_bytes(self) -> int:
        """Most bytes an answer may have, as a host counts them."""
        return self._answer_bytes or self.workspace().settings.result_bytes

    def peek(self) -> Workspace | None:
        """The workspace if it is open already; never opens and never waits."""
        return self._workspace

    def begin(self) -> None:
        """Open the workspace and start the first look at its folders, in the background of whoever calls.
        Failures are logged: the next call tells them to its reader.
        """
        try:
            workspace = self.workspace()
            if workspace.settings.auto_index:
                workspace.build(wait_seconds=0)
        except PensieveError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("the workspace could not be prepared")

    def first_look(self, seconds: float, most: float) -> None:
        """Before a call that looks at the documents: where nothing can be searched yet, begin and wait `seconds`
        for the whole of a small folder, and up to `most` for the first documents of a larger one, so that the first
        search of a first conversation finds something. Does so once; others wait meanwhile.

        Raises PensieveError, as opening and building do.
        """
        workspace = self.workspace()
        if self._looked or not workspace.settings.auto_index:
            return
        with self._first_look:
            if self._looked:
                return
            ending = time.monotonic() + min(most, 0.8 * workspace.settings.call_seconds)
            progress = workspace.progress()
            while progress.state != "ready" and not progress.searchable:
                # Building may have begun already, with the start: this joins it. One that was interrupted goes on.
                progress = workspace.build(wait_seconds=seconds)
                if progress.state != "building" or time.monotonic() >= ending:
                    break
                seconds = LOOK_AGAIN_SECONDS
            self._looked = True

    def close(self) -> None:
        """Close the workspace, its builder and its workers. Nothing opens it again."""
        with self._lock:
            self._closed = True
            workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()


def with_reader(workspace: Workspace, environment: Mapping[str, str]) -> Workspace:
    """The workspace, with somebody to ask whole questions where a backend is configured."""
    if workspace.settings.ask_backend:
        from pensieve_mcp.spellbook.entrusting import Asks

        workspace.asks = Asks.of(workspace, environment)
    return workspace

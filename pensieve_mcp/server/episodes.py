"""Which conversation a call belongs to.

stdio: a process is one episode, unless the host names its thread in the call's metadata; then a restart of the
same host session resumes its episode. HTTP: the protocol of 2026-07-28 has no sessions, so an episode has a
handle that nobody can guess; it is minted by the first call and passed as an argument from then on. An older
client's HTTP session keeps its episode by itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pensieve_mcp.episode import RUN_VARIABLE, handle_of_run
from pensieve_mcp.errors import Miscast
from pensieve_mcp.server.opening import Opening

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.workspace import Workspace

CLAUDE_CALL = "claudecode/toolUseId"
CLAUDE_SESSION_VARIABLE = "CLAUDE_CODE_SESSION_ID"
HANDLE_ARGUMENT = "episode"
MOST_KEPT = 256  # open episodes; one is a few hundred bytes, and a forgotten one is opened anew
NEED_AN_EPISODE = frozenset({"checkBudget", "deleteContext", "restoreContext", "finish"})
"""Spells that mean nothing in a new episode: over HTTP they refuse to begin one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call comes from, as its metadata says. `thread` and `call_id` are the host's own ids, empty if it
    gives none.
    """

    host: str = ""
    thread: str = ""
    call_id: str | None = None
    session: str = ""  # a lasting connection of an older HTTP client
    handle: str | None = None  # the `episode` argument
    run: str = ""  # of `pensieve run`, whose gateway knows the conversation better than a session's name does

    @classmethod
    def of(
        cls,
        meta: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        client: str = "",
        session: str = "",
        handle: str | None = None,
    ) -> Origin:
        """Read a call's `_meta`. Claude Code names the call there and the session in the environment; Codex
        names both.
        """
        run = environment.get(RUN_VARIABLE, "")
        if call := _text(meta.get(CLAUDE_CALL)):
            # The variable alone proves nothing: another host started from a shell of Claude Code inherits it.
            name = environment.get(CLAUDE_SESSION_VARIABLE, "")
            # A resumed session has another name in the environment than where it is resumed from.
            return cls("claude-code", name, call, session, handle, run)
        if thread := _text(meta.get("threadId")):
            return cls("codex", thread, _text(meta.get("callId")) or None, session, handle)
        return cls(client, "", None, session, handle, run)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 512 else ""


@dataclass(frozen=True, slots=True)
class Found:
    """An episode and whether this call began it."""

    episode: Episode
    begun: bool


class Episodes:
    """Opens and remembers the episodes of this server. Safe to use from several threads; blocks on the ledger."""

    def __init__(self, opening: Opening, *, explicit: bool) -> None:
        self._opening = opening
        self._explicit = explicit  # HTTP: episodes are named by handle
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Episode] = OrderedDict()
        self._latest: Episode | None = None
        self._watched: Workspace | None = None
        self._replaced = False

    def _look(self, workspace: Workspace) -> None:
        """Episodes lie in `pensieve.db`: with another file in its place, those kept here are of no use."""
        if self._watched is not workspace:
            self._watched = workspace
            workspace.connections.when_replaced(self._forget)
        workspace.connections.check()
        if self._replaced:
            self._replaced = False
            self._kept.clear()
            self._latest = None

    def _forget(self) -> None:
        self._replaced = True  # whoever finds out may hold our lock

    def of_call(self, origin: Origin, spell: str) -> Found:
        """The episode of a call. Raises Miscast for a handle nobody gave, or for a spell that cannot begin an
        episode, and whatever opening the workspace raises.
        """
        workspace = self._opening.workspace()
        with self._lock:
            self._look(workspace)
            if origin.handle is not None:
                return self._keep(("handle", origin.handle), lambda: self._by_handle(origin))
            if origin.run and (found := self._of_run(workspace, origin)) is not None:
                return found
            if origin.thread:
                return self._keep(
                    (origin.host, origin.thread),
                    lambda: workspace.episode("mcp", host=origin.host, thread=origin.thread),
                )
            if not self._explicit:
                return self._keep(("process", ""), lambda: workspace.episode("mcp", host=origin.host))
            if origin.session and (kept := self._kept.get(("session", origin.session))) is not None:
                self._latest = kept
                return Found(kept, False)
            if spell in NEED_AN_EPISODE:
                raise Miscast(
                    f"{spell} needs the episode it belongs to.",
                    hint=f"Pass {HANDLE_ARGUMENT}=… as your first result told it; a first call of analyzeText or "
                    "searchEngine without it begins a new episode.",
                    slug="no_episode",
                )
            episode = workspace.episode("mcp", host=origin.host)
            if origin.session:
                self._remember(("session", origin.session), episode)
            self._remember(("handle", episode.handle), episode)
            self._latest = episode
            return Found(episode, True)

    def _of_run(self, workspace: Workspace, origin: Origin) -> Found | None:
        """The episode that the gateway of this run named, if it did."""
        handle = handle_of_run(workspace.state, origin.run)
        if handle is None:
            return None
        try:
            return self._keep(
                ("handle", handle), lambda: workspace.episode("mcp", host=origin.host, handle=handle)
            )
        except Miscast:  # purged meanwhile
            return None

    def current(self, session: str = "") -> Episode | None:
        """The episode that `pensieve://episode` shows: the last one that was active, over HTTP only the
        session's own.
        """
        with self._lock:
            return self._kept.get(("session", session)) if self._explicit else self._latest

    def by_handle(self, handle: str) -> Episode:
        """Raises Miscast for a handle nobody gave."""
        with self._lock:
            self._look(self._opening.workspace())
            return self._keep(("handle", handle), lambda: self._by_handle(Origin(handle=handle))).episode

    def _by_handle(self, origin: Origin) -> Episode:
        handle = (origin.handle or "").strip()
        if not handle:
            raise Miscast(
                f"{HANDLE_ARGUMENT} is empty.",
                hint="Pass the handle your first result told, or leave it out to begin anew.",
                slug="no_such_episode",
            )
        return self._opening.workspace().episode("mcp", host=origin.host, handle=handle)

    def _keep(self, key: tuple[str, str], make: Any) -> Found:
        episode = self._kept.get(key)
        begun = episode is None
        if episode is None:
            episode = make()
        self._remember(key, episode)
        self._latest = episode
        return Found(episode, begun)

    def _remember(self, key: tuple[str, str], episode: Episode) -> None:
        self._kept[key] = episode
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

"""hook: what hosts and their plugins ask of us while they work. Nobody types it.

`session-start` answers a host's hook: after a compaction the conversation's own handoff comes back. `forgotten` is the
one rule that plugins ask which results and calls stand forgotten.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.output import put, say
from pensieve_mcp.cli.shell import NearGroup, Shell, command_options
from pensieve_mcp.errors import Miscast, PensieveError, WorkspaceError
from pensieve_mcp.places import typed

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.workspace import Workspace

HOOK_BYTES = 9_000  # hosts cut what a hook adds at 10,000 characters
MOST_TRANSCRIPT_BYTES = 4_000_000  # of the end of a host's own record, where its last calls stand
MOST_CALLS = 200
MARK_SECONDS = 120.0  # from a plugin's compaction to the hook after it
SOURCES = ("compact", "resume")  # when a window begins with less than was there, or anew
HOSTS = ("claude-code", "codex")
_SESSION = re.compile(r"[A-Za-z0-9-]{8,64}")
_CALL_ID = re.compile(rb'"(?:id|call_id|tool_use_id)"\s*:\s*"([A-Za-z0-9_.:-]{6,120})"')


@click.group(cls=NearGroup, hidden=True)
def hook() -> None:
    """What hosts and their plugins ask while they work."""


@hook.command("session-start", short_help="Give a compacted conversation its handoff back.")
@command_options
def session_start(shell: Shell) -> None:
    """Give a compacted or resumed conversation its handoff: goal, constraints, plan, findings, what is open.

    Reads the host's JSON on stdin, answers JSON. Never fails: a hook that fails stops nothing but annoys.
    """
    told = _told()
    words = ""
    if told.get("source") in SOURCES and not _was_ours(shell, told):
        try:
            words = _remembered(shell, told)
        except PensieveError as error:
            say(str(error))
    output = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": words}}
    put(json.dumps(output if words else {}, ensure_ascii=True))


@hook.command("forgotten", short_help="Tell a plugin what stands forgotten.")
@click.option(
    "--server-name", "servers", multiple=True, help="Name of our server in the host, if not pensieve."
)
@command_options
def forgotten(shell: Shell, servers: tuple[str, ...]) -> None:
    """Tell a plugin what stands forgotten: `{"steps": […]}` on stdin, replaced results and arguments out.

    Anything else is refused with exit code 1, so that a plugin knows that nobody answers it.
    """
    from pensieve_mcp.episode import GATEWAY_VARIABLE
    from pensieve_mcp.gateway.asking import forgotten as rule
    from pensieve_mcp.gateway.reading import Facts
    from pensieve_mcp.spellbook.registry import spellbook

    if shell.environment.get(GATEWAY_VARIABLE):
        raise Miscast(
            "This host is behind the gateway, which takes deleted text out of its requests.",
            hint="Nothing is left to do for a plugin.",
            slug="gateway_is_there",
        )
    told = _told()
    steps = told.get("steps")
    if not isinstance(steps, list):
        raise Miscast("There are no steps on stdin.", hint='Send {"steps": […]}.', slug="no_steps")
    facts = Facts(frozenset(servers) or frozenset({"pensieve"}), frozenset(spellbook()))
    answer = rule(steps, facts)
    if answer["results"] and (mark := _mark(shell, told.get("compacts"))) is not None:
        with contextlib.suppress(OSError):  # without it the hook speaks once too often, and nothing is lost
            mark.parent.mkdir(parents=True, exist_ok=True)
            for old in mark.parent.iterdir():  # where no hook is set up, nobody takes them
                if time.time() - old.stat().st_mtime > MARK_SECONDS:
                    old.unlink()
            mark.touch()
    put(json.dumps(answer, ensure_ascii=True))


def _mark(shell: Shell, session: object) -> Path | None:
    """Where a plugin leaves word that it did a session's compaction itself; None for what is no session's name."""
    from pensieve_mcp.settings import data_folder

    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        return None
    return data_folder(shell.environment) / "compacted" / session


def _was_ours(shell: Shell, told: Mapping[str, Any]) -> bool:
    """Whether our plugin did this compaction, which took nothing but what was deleted: then nothing needs to come
    back. The word is taken, so that it counts once.
    """
    mark = _mark(shell, told.get("session_id")) if told.get("source") == "compact" else None
    try:
        at = mark.stat().st_mtime if mark is not None else 0.0
        if mark is not None:
            mark.unlink()
    except OSError:
        return False
    return time.time() - at < MARK_SECONDS


def _told() -> Mapping[str, Any]:
    try:
        told = json.loads(sys.stdin.buffer.read() or b"{}")
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


# -- which conversation ----------------------------------------------------------------------------------------------


def _remembered(shell: Shell, told: Mapping[str, Any]) -> str:
    """The conversation's handoff, within what hosts take from a hook; empty where it is none of ours."""
    from pensieve_mcp.ledger.events import Compacted
    from pensieve_mcp.spellbook.handoff import Handoff, as_text, gather

    thread = told.get("session_id")
    calls = _last_calls(told.get("transcript_path"))
    for workspace in _workspaces(shell):
        with workspace:
            episode = _episode(workspace, thread if isinstance(thread, str) else "", calls)
            if episode is None:
                continue
            if told.get("source") == "compact":
                episode.append([Compacted("told by the host's hook")])
            record = gather(episode)
            empty = Handoff(record.episode, record.workspace)
            return "" if record == empty else as_text(record, max_bytes=HOOK_BYTES)
    return ""


def _workspaces(shell: Shell) -> Iterator[Workspace]:
    """The one that is named, else all, the last used first: the conversation itself says in which it was."""
    from pensieve_mcp.workspace import Workspace, list_workspaces

    if shell.folders or shell.name or shell.state:
        yield shell.open()
        return
    for info in list_workspaces(shell.environment):
        try:
            yield Workspace.open(
                state=info.state, environment=shell.environment, arguments=shell.settings, builder="inline"
            )
        except PensieveError as error:
            say(str(error))


def _episode(workspace: Workspace, thread: str, calls: list[str]) -> Episode | None:
    """By the calls in the host's own record, the latest first, since a resumed conversation may have another name
    for the server than for its host; else by that name. Never another's.
    """
    for call_id in calls:
        if stored := workspace.ledger.by_host_call(call_id):
            return workspace.episode("cli", handle=workspace.ledger.episode(stored[-1].episode_id).handle)
    if thread:
        for record in workspace.ledger.episodes(limit=1_000):
            if record.thread == thread and record.host in HOSTS:
                return workspace.episode("cli", handle=record.handle)
    return None


def _last_calls(path: object) -> list[str]:
    """Ids of calls at the end of a host's record of the conversation, the latest first; empty where it has none."""
    if not isinstance(path, str) or not path:
        return []
    try:
        with typed(path).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_TRANSCRIPT_BYTES))
            data = file.read(MOST_TRANSCRIPT_BYTES)
    except (OSError, WorkspaceError):
        return []
    found = dict.fromkeys(match[1].decode("ascii") for match in reversed(list(_CALL_ID.finditer(data))))
    return list(found)[:MOST_CALLS]

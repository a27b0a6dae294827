"""Whether an entry's command starts our server, which version of it, and whether another one is about.

The commonest trouble: a program that is not there, a runner that is not installed, a Python that lacks the package, two
versions side by side. What else can be wrong with an entry is `checkup.py`'s.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pensieve_mcp.hosts.catalog import (
    COMMAND,
    DISTRIBUTION,
    RUNNERS,
    Host,
    Launch,
    Place,
    Scope,
    launcher_length,
    program_name,
    words,
)
from pensieve_mcp.hosts.changes import State
from pensieve_mcp.hosts.machine import Machine

VERSION_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one host. `advice` is what to do, where something is to be done."""

    host: str
    state: State
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of ours and where it stands."""

    host: Host
    scope: Scope
    place: Place
    name: str
    value: dict[str, Any]
    whole: Mapping[str, Any]
    """The file's data, for limits that stand beside the entry."""


def ask_version(command: list[str]) -> str:
    """The version that a server's command tells; empty if it tells none. Raises OSError, subprocess.TimeoutExpired."""
    done = subprocess.run(
        [*command, "--version"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=VERSION_SECONDS,
    )
    match = re.search(r"([0-9]+(?:\.\w+)+)", done.stdout) if done.returncode == 0 else None
    return match[1] if match else ""


def again(entry: Entry) -> str:
    """The command that writes this entry anew."""
    scope = " --scope project" if entry.scope == "project" else ""
    return f"pensieve install {entry.host.name}{scope}"


def starting(
    entry: Entry,
    machine: Machine,
    version: str,
    asked: Callable[[list[str]], str],
) -> Iterator[Finding]:
    """Whether the entry's command starts the server, and which version of it."""
    length = launcher_length(entry.value)
    command = words(entry.value)[:length]
    title = entry.host.title
    if entry.value.get("enabled") is False or entry.value.get("disabled") is True:
        yield Finding(title, "note", f"{entry.name} is switched off", "Switch it on in the host.")
        return
    program = command[0]
    runner = program_name(program) in RUNNERS
    if not machine.path(program).is_absolute():
        found = machine.which(program)
        if found is None and runner:
            yield _no_runner(entry, f"{program}, which is not on the path")
            return
        if found is None:
            yield Finding(
                title, "bad", f"{program} is not on the path", f"{again(entry)} writes its full path."
            )
            return
        yield Finding(
            title,
            "note",
            f"starts {program} by its bare name; desktop programs often have another path",
            f"{again(entry)} writes its full path.",
        )
        command = [found, *command[1:]]
    elif not machine.exists(machine.path(program)) and runner:
        yield _no_runner(entry, f"{program}, which is not there")
        return
    elif not machine.exists(machine.path(program)):
        yield Finding(title, "bad", f"starts {program}, which is not there", again(entry))
        return
    if runner:
        if (pinned := pinned_version(command)) not in ("", version):
            yield Finding(title, "note", f"starts version {pinned}; this is {version}", again(entry))
        yield Finding(
            title,
            "note",
            f"starts through {program}, which downloads at the first start; a host may give up meanwhile",
            f"uv tool install {DISTRIBUTION}, then {again(entry)}",
        )
        return  # asking it for its version would download
    try:
        told = asked(command)
    except subprocess.TimeoutExpired:
        yield Finding(
            title, "bad", f"{program} did not tell its version within {VERSION_SECONDS} s", again(entry)
        )
        return
    except OSError as error:
        yield Finding(title, "bad", f"{program} cannot be started: {error.strerror}", again(entry))
        return
    if not told:
        yield Finding(
            title,
            "bad",
            f"{' '.join(command)} does not start our server: its Python lacks the package",
            f"pip install {DISTRIBUTION} there, or {again(entry)}",
        )
    elif told != version:
        yield Finding(title, "note", f"starts version {told}; this is {version}", again(entry))


def _no_runner(entry: Entry, what: str) -> Finding:
    return Finding(
        entry.host.title,
        "bad",
        f"starts through {what}",
        f"{again(entry)} starts this installation instead; or install uv.",
    )


def pinned_version(command: list[str]) -> str:
    """The version of ours that a runner is told to fetch; empty where it takes any."""
    for word in command:
        if match := re.fullmatch(rf"{DISTRIBUTION}(?:==|@)([\w.+!-]+)", word):
            return "" if match[1] == "latest" else match[1]
    return ""


def other_installation(
    machine: Machine,
    start: Launch,
    version: str,
    *,
    asked: Callable[[list[str]], str] = ask_version,
) -> Finding | None:
    """Another version of ours on the path than the one that `start` begins; None where there is none."""
    found = machine.which(COMMAND)
    if found is None or machine.path(found) == machine.path(start.command):
        return None
    try:
        told = asked([found])
    except (OSError, subprocess.TimeoutExpired):
        told = ""
    if told == version:
        return None
    return Finding(
        "other version",
        "note",
        f"{COMMAND} on the path is {found}, {f'version {told}' if told else 'which does not tell its version'}; "
        f"this is {version}, started by {start.command}",
        "Keep one of them (uv tool upgrade or uninstall, or pip): of two on one workspace the newer one decides how "
        "documents are read. pensieve install HOST writes the one that it is called from.",
    )

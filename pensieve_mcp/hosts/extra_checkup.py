"""What `pensieve doctor` says of plugins and hooks of ours: whether what they ask is there, and is of this version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePath

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.hosts import editing, extras, files
from pensieve_mcp.hosts.catalog import HOSTS, Host, Launch
from pensieve_mcp.hosts.changes import State
from pensieve_mcp.hosts.machine import Machine

Line = tuple[Host, State, str, str]
"""Host, state, what is so, what to do."""


def extra_findings(
    machine: Machine, project: PurePath | None, version: str, served: set[str]
) -> Iterator[Line]:
    """Over all hosts, in the user's places and the project's. `served` names the hosts where our server is set up.
    Never raises for what it reads.
    """
    for host in HOSTS.values():
        for inside in (None, project) if project is not None else (None,):
            if extras.has_plugin(host, machine, inside):
                yield from _plugin(host, machine, inside, version, served)
            if host.hook is not None:
                yield from _hook(host, machine, inside)


def _again(host: Host, project: PurePath | None, flag: str) -> str:
    return f"pensieve install {host.name}{' --scope project' if project is not None else ''} --{flag}"


def _plugin(
    host: Host, machine: Machine, project: PurePath | None, version: str, served: set[str]
) -> Iterator[Line]:
    wanted = extras.plugin_files(host, machine, project, Launch("x"), version)
    again = _again(host, project, "plugin")
    stale = False
    for path, text in wanted.items():
        try:
            there = files.read(Path(path)).text
        except PensieveError as error:
            yield host, "bad", f"{path}: {error.message}", error.hint
            return
        stale = stale or _without_rule(there) != _without_rule(text)
        program = extras.asked_program(there)
        if program is not None and not _is_there(program, machine):
            yield host, "bad", f"the plugin {path} asks {program}, which is not there", again
            return
    place = next(iter(wanted))
    if stale:
        yield host, "note", f"the plugin in {place.parent} is of another version", again
    elif host.name not in served:
        yield (
            host,
            "note",
            f"the plugin in {place.parent} has no server beside it",
            f"pensieve install {host.name}",
        )
    else:
        yield host, "ok", f"the plugin in {place.parent} takes deleted text out of the prompt", ""


def _hook(host: Host, machine: Machine, project: PurePath | None) -> Iterator[Line]:
    assert host.hook is not None
    place = host.hook(machine, project)
    if not machine.exists(place.path):
        return
    try:
        text = files.read(Path(place.path)).text
        found = extras.hooks_of_ours(editing.NOTATIONS[place.notation].read(text))
    except PensieveError as error:
        yield host, "bad", f"{place.path}: {error.message}", error.hint
        return
    for item in found:
        line = item["hooks"][0]["command"]
        program = _program(line)
        if not _is_there(program, machine):
            again = _again(host, project, "hook")
            yield host, "bad", f"the hook in {place.path} asks {program}, which is not there", again
            return
    if len(found) > 1:
        again = _again(host, project, "hook")
        yield (
            host,
            "note",
            f"{place.path} has {len(found)} hooks of ours; the handoff comes back as often",
            again,
        )
    elif found:
        remark = f" {host.hook_asks}" if host.hook_asks else ""
        yield host, "ok", f"the hook in {place.path} gives the handoff back after a compaction.{remark}", ""


def _program(line: str) -> str:
    try:
        return shlex.split(line)[0]
    except (ValueError, IndexError):
        return line


def _is_there(program: str, machine: Machine) -> bool:
    path = machine.path(program)
    return machine.exists(path) if path.is_absolute() else machine.which(program) is not None


def _without_rule(text: str) -> str:
    return re.sub(r"^const RULE = .*$", "", text, flags=re.MULTILINE)

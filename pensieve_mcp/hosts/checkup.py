"""What is wrong with our entries in the hosts' configurations, in the order people suffer from it.

Reads files and may ask a configured server for its version; changes nothing. `pensieve doctor` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.hosts import editing, files, plugin_checkup
from pensieve_mcp.hosts.catalog import DISTRIBUTION, HOSTS, Host, Place, Scope, launcher_length, served, words
from pensieve_mcp.hosts.extra_checkup import extra_findings
from pensieve_mcp.hosts.machine import Machine
from pensieve_mcp.hosts.starting import Entry, Finding, again, ask_version, starting

LEAST_START_SECONDS = 10
BYTES_PER_TOKEN = 4  # as the hosts count it
SAFE_BYTES = 12_000


def checkup(
    machine: Machine,
    project: Path | None,
    version: str,
    *,
    asked: Callable[[list[str]], str] = ask_version,
) -> list[Finding]:
    """Everything found, over all hosts, in the user's files and the project's. Never raises for what it reads."""
    findings: list[Finding] = []
    entries: list[Entry] = []
    there: list[str] = []
    absent: list[str] = []
    by_plugin = {plugin.host.name for plugin in plugin_checkup.found(machine)}
    for host in HOSTS.values():
        installed = host.found(machine)
        (there if installed else absent).append(host.title)
        found, broken = _entries(host, machine, project)
        findings += broken
        entries += found
        if installed and not found and not broken and host.name not in by_plugin:
            advice = (
                f"pensieve install {host.name} FOLDER"
                if host.own_folder is None
                else f"pensieve install {host.name}"
            )
            findings.append(Finding(host.title, "note", "found, but pensieve is not set up there", advice))
    if there:
        words_there = f"{', '.join(there)}" + (f"; not found: {', '.join(absent)}" if absent else "")
        findings.insert(0, Finding("hosts", "ok", words_there))
    else:
        findings.insert(
            0,
            Finding(
                "hosts",
                "note",
                f"none found of {', '.join(absent)}",
                "Other hosts: give them the command pensieve-mcp FOLDER with its full path.",
            ),
        )
    for entry in entries:
        problems = [
            *starting(entry, machine, version, asked),
            *_folders(entry, machine),
            *_limits(entry, machine),
            *_permissions(entry, machine, project),
        ]
        if not any(problem.state == "bad" for problem in problems):
            shown = ", ".join(served(entry.value)[1]) or "the open project"
            findings.append(
                Finding(entry.host.title, "ok", f"{entry.name} in {entry.place.path}: serves {shown}")
            )
        findings += problems
    extra = extra_findings(machine, project, version, {entry.host.name for entry in entries} | by_plugin)
    findings += [Finding(host.title, state, detail, advice) for host, state, detail, advice in extra]
    return [*findings, *plugin_checkup.checked(machine, version, entries), *_doubled(entries)]


def _entries(host: Host, machine: Machine, project: Path | None) -> tuple[list[Entry], list[Finding]]:
    entries: list[Entry] = []
    broken: list[Finding] = []
    scopes: tuple[Scope, ...] = ("user", "project")
    read: list[PurePath] = []
    for scope in scopes:
        place = host.place(machine, scope, project)
        if place is None or not machine.exists(place.path) or place.path in read:
            continue  # in the home directory the project's file is often the user's
        read.append(place.path)
        try:
            text = files.read(Path(place.path)).text
            whole = editing.NOTATIONS[place.notation].read(text)
        except PensieveError as error:
            broken.append(Finding(host.title, "bad", f"{place.path}: {error.message}", error.hint))
            continue
        section = whole.get(host.section)
        if not isinstance(section, dict):
            continue
        for name, value in section.items():
            if launcher_length(value) is not None:
                entries.append(Entry(host, scope, place, name, value, whole))
            elif name == "pensieve":
                broken.append(_foreign(host, place, name, value, machine))
    return entries, broken


def _foreign(host: Host, place: Place, name: str, value: Any, machine: Machine) -> Finding:
    """An entry of our name that does not start our server: another's, or one whose program is gone."""
    command = words(value)
    program = machine.path(command[0]) if command else None
    if program is not None and program.is_absolute() and not machine.exists(program):
        return Finding(
            host.title,
            "bad",
            f"the entry {name!r} in {place.path} starts {program}, which is not there",
            f"Take that entry out by hand, then pensieve install {host.name}.",
        )
    return Finding(
        host.title,
        "note",
        f"the entry {name!r} in {place.path} starts something else: {' '.join(command)[:120] or str(value)[:120]}",
        f"Ours is {DISTRIBUTION}; install it beside with --name, or remove that entry.",
    )


def _folders(entry: Entry, machine: Machine) -> Iterator[Finding]:
    options, folders = served(entry.value)
    for folder in folders:
        if "${" not in folder and folder.strip() and not machine.exists(machine.path(folder)):
            yield Finding(
                entry.host.title,
                "bad",
                f"the folder {folder} is not there",
                f"Mount its disk, or {again(entry)} OTHER_FOLDER",
            )
        elif "${" not in folder and folder.strip() and not machine.path(folder).is_absolute():
            yield Finding(
                entry.host.title,
                "note",
                f"the folder {folder} is relative to wherever the host starts",
                again(entry),
            )
    named = "--workspace" in options or "PENSIEVE_FOLDERS" in (entry.value.get("env") or {})
    if not folders and not named and entry.host.own_folder is None:
        yield Finding(entry.host.title, "bad", "is told no folder to serve", f"{again(entry)} FOLDER")


def _limits(entry: Entry, machine: Machine) -> Iterator[Finding]:
    title, value = entry.host.title, entry.value
    options = served(value)[0]
    sizes = [int(found[1]) for one in options if (found := re.fullmatch(r"result_bytes=([0-9]{1,9})", one))]
    size = sizes[-1] if sizes else SAFE_BYTES
    start: dict[str, float | None] = {
        "codex": _seconds(value.get("startup_timeout_sec")),
        "opencode": _seconds(value.get("timeout"), 1_000),
        "claude-code": _seconds(machine.environment.get("MCP_TIMEOUT"), 1_000),
    }
    seconds = start.get(entry.host.name)
    if seconds is not None and seconds < LEAST_START_SECONDS:
        yield Finding(
            title,
            "note",
            f"waits only {seconds:g} s for the server to start",
            f"Give it {LEAST_START_SECONDS} s or more: {again(entry)}",
        )
    if entry.host.name == "codex" and value.get("required") is not True:
        yield Finding(
            title, "note", "does not wait for the tools before its first request", f"{again(entry)}"
        )
    allowed: float | None = None
    if entry.host.name == "codex":
        allowed = _seconds(entry.whole.get("tool_output_token_limit"))
    elif entry.host.name == "claude-code":
        allowed = _seconds(machine.environment.get("MAX_MCP_OUTPUT_TOKENS"))
    if allowed is not None and allowed * BYTES_PER_TOKEN < size:
        yield Finding(
            title,
            "note",
            f"shows at most {allowed:,.0f} tokens of a result, but results may have {size:,} bytes",
            f"Add --set result_bytes={int(allowed * BYTES_PER_TOKEN * 0.8)} to the entry's arguments.",
        )
    most = entry.host.result_bytes or SAFE_BYTES
    if size > most:
        yield Finding(
            title,
            "note",
            f"results may have {size:,} bytes; the host cuts above about {most:,}",
            "Lower result_bytes.",
        )


def _seconds(value: Any, divisor: float = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value) / divisor
    except ValueError:
        return None


def _permissions(entry: Entry, machine: Machine, project: Path | None) -> Iterator[Finding]:
    if entry.host.rule is None:
        return
    rules = [entry.host.rule(machine, None, entry.name)]
    if project is not None:
        rules.append(entry.host.rule(machine, project, entry.name))
    for rule in rules:
        place = rule.place
        if not machine.exists(place.path):
            continue
        try:
            text = files.read(Path(place.path)).text
            listed = editing.entry(editing.NOTATIONS[place.notation], text, rule.list_path)
        except PensieveError as error:
            yield Finding(entry.host.title, "bad", f"{place.path}: {error.message}", error.hint)
            return
        if isinstance(listed, list) and any(
            one in (rule.item, f"{rule.item}__*", "mcp__*") for one in listed
        ):
            return
    yield Finding(
        entry.host.title,
        "note",
        "asks before each tool, and refuses them when nobody is there to ask",
        f"{again(entry)} --allow lets ours run unasked.",
    )


def _doubled(entries: list[Entry]) -> Iterator[Finding]:
    """Two servers of ours in one host over the same folders: the model sees every tool twice."""
    seen: dict[tuple[str, frozenset[str]], Entry] = {}
    for entry in entries:
        key = (entry.host.name, frozenset(served(entry.value)[1]))
        first = seen.setdefault(key, entry)
        if first is entry:
            continue
        if first.name == entry.name:
            detail = f"{entry.name} is set up twice, in {first.place.path} and {entry.place.path}"
        else:
            detail = f"{first.name} and {entry.name} serve the same folders: the model sees every tool twice"
        remove = f"pensieve uninstall {entry.host.name}" + (
            " --scope project" if entry.scope == "project" else ""
        )
        if entry.name != "pensieve":
            remove += f" --name {entry.name}"
        yield Finding(entry.host.title, "note", detail, remove)

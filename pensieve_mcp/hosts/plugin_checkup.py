"""Our server where a plugin or an extension brought it instead of `pensieve install`: is it there, and what ails it?

Only reads what the hosts keep of an installed plugin (seen in Claude Code 2.1.332, Codex 0.171.0, Gemini CLI 0.61.0). A
plugin starts the server with a runner and takes folders in its host's own way, so its troubles differ from an entry's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.hosts import editing, files
from pensieve_mcp.hosts.catalog import HOSTS, RUNNERS, Host, launcher_length, program_name, words
from pensieve_mcp.hosts.machine import Machine
from pensieve_mcp.hosts.starting import Entry, Finding, pinned_version

FOLDERS_VARIABLE = "PENSIEVE_FOLDERS"


@dataclass(frozen=True, slots=True)
class _Kept:
    """Where a host keeps plugins: a folder under its own, the manifests in it, and what says that one is on."""

    host: str
    folder: tuple[str, ...]
    manifests: tuple[str, ...]
    switches: tuple[str, ...] = ()
    """Path of the table of plugins in the host's settings; none where what lies there is on."""


_KEPT = (
    _Kept("claude-code", ("plugins", "cache"), ("*/*/*/.mcp.json",), ("enabledPlugins",)),
    _Kept("codex", ("plugins", "cache"), ("*/*/*/mcp.json", "*/*/*/.mcp.json"), ("plugins",)),
    _Kept("gemini", ("extensions",), ("*/gemini-extension.json",)),
)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin of a host that starts our server."""

    host: Host
    manifest: PurePath
    entry: Mapping[str, Any]


def found(machine: Machine) -> list[Plugin]:
    """The plugins that start our server and are switched on, in every host that has plugins. Never raises."""
    plugins: list[Plugin] = []
    for kept in _KEPT:
        host = HOSTS[kept.host]
        home = host.marks(machine)[0]
        on = _switched_on(kept, home)
        newest: dict[PurePath, Plugin] = {}
        for pattern in kept.manifests:
            for manifest in machine.matching(home.joinpath(*kept.folder), pattern):
                name = f"{manifest.parents[1].name}@{manifest.parents[2].name}"
                if on is not None and name not in on:
                    continue
                servers = _read(manifest).get("mcpServers")
                for entry in servers.values() if isinstance(servers, dict) else ():
                    if launcher_length(entry) is not None:
                        # of several versions that lie there, the last one by name stands for all
                        place = manifest.parents[1] if on is not None else manifest.parent
                        newest[place] = Plugin(host, manifest, entry)
        plugins += newest.values()
    return plugins


def _switched_on(kept: _Kept, home: PurePath) -> set[str] | None:
    if not kept.switches:
        return None
    name = "config.toml" if kept.host == "codex" else "settings.json"
    table: Any = _read(home / name)
    for key in kept.switches:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        return set()
    return {
        name
        for name, value in table.items()
        if (value.get("enabled", True) if isinstance(value, dict) else value) is True
    }


def _read(path: PurePath) -> Mapping[str, Any]:
    notation = "toml" if path.suffix == ".toml" else "json"
    try:
        return editing.NOTATIONS[notation].read(files.read(Path(path)).text)
    except PensieveError:  # the checkup of the host's own files tells what is wrong with one
        return {}


def checked(machine: Machine, version: str, entries: list[Entry]) -> Iterator[Finding]:
    """What there is to say of each plugin. `entries` are those of the hosts' configurations."""
    for plugin in found(machine):
        title, command = plugin.host.title, words(plugin.entry)
        program = command[0]
        if program_name(program) in RUNNERS and not _there(machine, program):
            yield Finding(
                title,
                "bad",
                f"its plugin pensieve starts through {program}, which is not installed",
                f"Install uv, or take the plugin out and use pensieve install {plugin.host.name}.",
            )
        else:
            yield Finding(title, "ok", f"pensieve is set up by a plugin ({plugin.manifest})")
        if (pinned := pinned_version(command)) not in ("", version):
            yield Finding(
                title, "note", f"its plugin starts version {pinned}; this is {version}", "Update the plugin."
            )
        yield from _folders(plugin, machine)
        twice = next((entry for entry in entries if entry.host is plugin.host), None)
        if twice is not None:
            yield Finding(
                title,
                "note",
                f"set up twice, by a plugin and in {twice.place.path}: the model sees every tool twice",
                f"pensieve uninstall {plugin.host.name}, or take the plugin out.",
            )


def _there(machine: Machine, program: str) -> bool:
    path = machine.path(program)
    return machine.exists(path) if path.is_absolute() else machine.which(program) is not None


def _folders(plugin: Plugin, machine: Machine) -> Iterator[Finding]:
    if plugin.host.name != "codex":
        return  # the others start a plugin's server in the open project, and have a setting of their own
    named = [one for one in machine.environment.get(FOLDERS_VARIABLE, "").split(os.pathsep) if one.strip()]
    if not named:
        yield Finding(
            plugin.host.title,
            "note",
            f"its plugin serves what the variable {FOLDERS_VARIABLE} names, and it is not set here",
            f"Set it where Codex is started, for example export {FOLDERS_VARIABLE}=/path/to/documents; or use "
            "pensieve install codex FOLDER in place of the plugin.",
        )
    for folder in named:
        if not machine.exists(machine.path(folder)):
            yield Finding(
                plugin.host.title,
                "bad",
                f"{folder}, which {FOLDERS_VARIABLE} names, is not there",
                f"Mount its disk, or change {FOLDERS_VARIABLE}.",
            )

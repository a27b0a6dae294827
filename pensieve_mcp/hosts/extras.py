"""What a host may be given beside the server: a plugin that takes deleted text out of its prompt, a hook that gives the
handoff back after a compaction. Both ask the command `pensieve` of this installation.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from pensieve_mcp.errors import Miscast
from pensieve_mcp.hosts import editing, files, plugins
from pensieve_mcp.hosts.catalog import Host, Launch
from pensieve_mcp.hosts.changes import Change
from pensieve_mcp.hosts.errors import HostError
from pensieve_mcp.hosts.machine import Machine

EVENT = ("hooks", "SessionStart")
HOOK = ("hook", "session-start")
HOOK_SECONDS = 30
AUTHOR = "the pensieve_mcp authors"
_OURS = re.compile(r"pensieve\b.*\bhook session-start\b")


# -- the hook ----------------------------------------------------------------------------------------------------------


def hook_item(start: Launch, options: Sequence[str], *, windows: bool = False) -> dict[str, Any]:
    """The hook as it stands in a list of a host's hooks. `options` name a state folder outside the usual place."""
    words = [*start.with_arguments([*HOOK, *options]).arguments]
    program = start.command.replace("\\", "/") if windows else start.command
    if windows:  # whichever shell runs it: a bare path where it can be one
        line = " ".join(f'"{word}"' if " " in word else word for word in [program, *words])
    else:
        line = shlex.join([program, *words])
    return {"matcher": "compact", "hooks": [{"type": "command", "command": line, "timeout": HOOK_SECONDS}]}


def hooks_of_ours(data: Any) -> list[dict[str, Any]]:
    """The items of ours in a host's hooks, in whichever way they were written."""
    there: Any = data
    for key in EVENT:
        there = there.get(key) if isinstance(there, dict) else None
    found = []
    for item in there if isinstance(there, list) else []:
        inner = item.get("hooks") if isinstance(item, dict) else None
        commands = [one.get("command") for one in inner or [] if isinstance(one, dict)]
        if len(commands) == 1 and isinstance(commands[0], str) and _OURS.search(commands[0]):
            found.append(item)
    return found


def hook_change(
    host: Host, machine: Machine, project: PurePath | None, item: dict[str, Any] | None, before: Change | None
) -> Change:
    """The hooks' file with this item in place of any of ours, or with none. `before` is an earlier change of the same
    file. Raises Miscast for a host without hooks, NotUnderstood or HostError for its file.
    """
    if host.hook is None:
        raise Miscast(f"{host.title} takes no hook of ours.", hint="Leave out --hook.", slug="no_such_extra")
    place = host.hook(machine, project)
    found = before.found if before is not None else files.read(Path(place.path))
    text = before.after if before is not None and before.after is not None else found.text
    notation = editing.NOTATIONS[place.notation]
    if not found.there and item is None:
        return Change(found, text)
    listed = hooks_of_ours(notation.read(text))
    if item is not None and listed == [item]:
        return Change(found, text)
    for old in listed:
        text = editing.without_item(notation, text, EVENT, old)
    if item is not None:
        return Change(found, editing.with_item(notation, text, EVENT, item))
    for path, empty in ((EVENT, []), (EVENT[:1], {})):
        if listed and editing.entry(notation, text, path) == empty:
            text = editing.without_entry(notation, text, path)
    return Change(found, text)


# -- the plugin --------------------------------------------------------------------------------------------------------


def plugin_files(
    host: Host, machine: Machine, project: PurePath | None, start: Launch, version: str
) -> dict[PurePath, str]:
    """The plugin's files and what stands in each. Raises Miscast for a host without one."""
    if host.plugin is None:
        raise Miscast(
            f"{host.title} takes no plugin of ours.", hint="Leave out --plugin.", slug="no_such_extra"
        )
    place = host.plugin(machine, project)
    rule = [start.command, *start.with_arguments(plugins.RULE).arguments]
    if place.suffix:
        return {place: plugins.opencode_plugin(rule)}
    return {place / name: text for name, text in plugins.mod_files(rule, version, AUTHOR).items()}


def plugin_changes(
    host: Host, machine: Machine, project: PurePath | None, start: Launch, version: str, *, add: bool
) -> list[Change]:
    """Put the plugin's files there, or take them away. Raises Miscast, or HostError where somebody else's stand."""
    wanted = plugin_files(host, machine, project, start, version)
    assert host.plugin is not None
    place = host.plugin(machine, project)
    folder = Path(place).parent
    changes = []
    for path, text in wanted.items():
        found = files.read(Path(path))
        if found.there and not _is_ours(path, found.text):
            raise HostError(
                f"{path} is there, but not of ours.",
                hint="Move it away and try again, or leave out --plugin.",
                slug="plugin_taken",
            )
        changes.append(Change(found, text if add else None, is_ours=True, folder=folder))
    return changes


def has_plugin(host: Host, machine: Machine, project: PurePath | None) -> bool:
    """Whether the plugin stands there, in any version. False for a host without one."""
    if host.plugin is None:
        return False
    place = host.plugin(machine, project)
    main = place if place.suffix else place / ".claude-plugin" / "plugin.json"
    if not machine.exists(main):
        return False
    try:
        return _is_ours(main, files.read(Path(main)).text)
    except HostError:
        return False


def _is_ours(path: PurePath, text: str) -> bool:
    if path.name == "plugin.json":
        try:
            return bool(json.loads(text).get("name") == plugins.MOD)
        except (ValueError, AttributeError):
            return False
    return path.name == "hooks.json" or "pensieve's deleteContext" in text[:2_000]


def asked_program(text: str) -> str | None:
    """The program that a plugin of ours asks; None where its text does not say."""
    match = re.search(r"^const RULE = (\[.*\])$", text, re.MULTILINE)
    try:
        words = json.loads(match[1]) if match else []
    except ValueError:
        return None
    return words[0] if words and isinstance(words[0], str) else None

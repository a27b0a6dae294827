"""Planning and doing one installation: what would stand in which file, and then the writing.

A plan is made from files as they are and changes nothing; `apply` writes it. Both can be asked again at any time: what
stands there already is left alone.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pensieve_mcp.errors import Miscast
from pensieve_mcp.hosts import changes, editing, extras, files
from pensieve_mcp.hosts.catalog import (
    COMMAND,
    DISTRIBUTION,
    HOSTS,
    MODULE,
    SERVER,
    Host,
    Launch,
    Place,
    Rule,
    Scope,
    launcher_length,
    served,
    words,
)
from pensieve_mcp.hosts.changes import Change, Written
from pensieve_mcp.hosts.errors import HostError
from pensieve_mcp.hosts.jsonc import Jsonc
from pensieve_mcp.hosts.machine import Machine
from pensieve_mcp.hosts.toml_tables import table_text
from pensieve_mcp.hosts.versions import installed_version
from pensieve_mcp.hosts.yaml_blocks import entry_text

MOST_NAME = 64 - len("mcp__") - len("__restoreContext")
"""The longest name of a server whose tools' names stay under 64 characters in every host."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation does: the changes, in order, and what the person should know."""

    host: Host
    name: str
    changes: tuple[Change, ...]
    entry: dict[str, Any] | None
    remarks: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        return any(change.needed for change in self.changes)


def host(name: str) -> Host:
    """Raises Miscast, with near names, for a host we do not know."""
    key = re.sub(r"[\s_]+", "-", name.strip().lower())
    key = {
        "claude": "claude-code",
        "vs-code": "vscode",
        "code": "vscode",
        "gemini-cli": "gemini",
        "lm-studio": "lmstudio",
    }.get(key, key)
    if key not in HOSTS:
        near = difflib.get_close_matches(key, HOSTS, n=2)
        raise Miscast(
            f"There is no host {name!r}.",
            hint=(f"Did you mean {' or '.join(near)}? " if near else "") + f"Known are {', '.join(HOSTS)}.",
            slug="no_such_host",
        )
    return HOSTS[key]


def launch(
    executable: str, machine: Machine, version: str, *, command: str = COMMAND, module: str = MODULE
) -> Launch:
    """What starts the server of this installation, or another of its commands, with absolute paths.

    `executable` is the running Python. The script beside it is taken, else Python itself. From a runner's cache, which
    may be swept any day, the runner is written instead, with the version pinned. Raises HostError where the runner is
    gone.
    """
    python = machine.path(executable)
    parts = [part.lower() for part in python.parts]
    swept = any(part.startswith(("archive-v", "environments-v")) for part in parts)
    if swept or {".cache", "pipx"} <= set(parts):
        runner = machine.which("uvx")
        if not runner:
            raise HostError(
                f"This is a temporary installation ({executable}), and uvx is not found to start it again.",
                hint=f"Install for good: uv tool install {DISTRIBUTION}, or pip install {DISTRIBUTION}.",
            )
        return Launch(runner, ("--from", f"{DISTRIBUTION}=={version}", command))
    script = python.parent / (f"{command}.exe" if machine.system == "windows" else command)
    if machine.exists(script):
        return Launch(str(script))
    return Launch(str(python), ("-m", module))


def this_launch(machine: Machine) -> Launch:
    """What starts the server of the running installation. Raises HostError."""
    return launch(sys.executable, machine, installed_version())


def this_shell(machine: Machine) -> Launch:
    """What starts the command `pensieve` of the running installation, which hooks and plugins ask. Raises HostError."""
    return launch(sys.executable, machine, installed_version(), command="pensieve", module="pensieve_mcp.cli")


def plan_install(
    host: Host,
    machine: Machine,
    start: Launch,
    folders: Sequence[str],
    *,
    scope: Scope = "user",
    project: PurePath | None = None,
    name: str = SERVER,
    allow: bool = False,
    options: Sequence[str] = (),
    shell: Launch | None = None,
    plugin: bool = False,
    hook: bool = False,
) -> Plan:
    """The plan to add the server, or to bring an entry of ours up to date. `folders` are absolute; `options` go before
    them (`--workspace NAME`, `--set X=Y`).

    Without folders an entry of ours keeps those it has. What else stands in it (timeouts, variables of the person's) is
    kept. With `shell`, the command that they ask, `plugin` and `hook` are put there too, and those that stand there
    already are brought up to date. Raises HostError, Miscast or NotUnderstood; nothing is written.
    """
    _check_name(name)
    place = _place(host, machine, scope, project)
    found = files.read(Path(place.path))
    notation = editing.NOTATIONS[place.notation]
    path = (host.section, name)
    old = editing.entry(notation, found.text, path)
    if old is not None and launcher_length(old) is None:
        raise HostError(
            f"{place.path} has an entry {name!r} that starts something else: {' '.join(words(old))[:160] or old!r}.",
            hint="Remove it, or choose another name for ours: --name pensieve-docs.",
            slug="host_name_taken",
        )
    merged = new_entry(host, start, folders, old, allow=allow, options=options)
    planned = [Change(found, editing.with_entry(notation, found.text, path, merged))]
    remarks = []
    inside = project if scope == "project" else None
    if allow and host.rule is not None:
        planned.append(_rule_change(host.rule(machine, inside, name), add=True))
    elif allow and host.asks:
        remarks.append(host.asks)
    if plugin and name != SERVER:
        raise Miscast(
            f"The plugin knows the server as {SERVER}, not as {name}.",
            hint="Leave out --name, or --plugin.",
            slug="no_such_extra",
        )
    if shell is not None:
        more, words_ = _extras(host, machine, inside, shell, planned, options, plugin=plugin, hook=hook)
        planned, remarks = more, [*remarks, *words_]
    if scope == "project":
        remarks.append("The file holds paths of this machine; think before you share it.")
        if host.shared:
            remarks.append(host.shared)
    if scope == "user" and not host.found(machine):
        remarks.append(f"{host.title} does not seem to be installed here; the entry waits for it.")
    return Plan(host, name, tuple(planned), merged, tuple(remarks))


def _extras(
    host: Host,
    machine: Machine,
    project: PurePath | None,
    shell: Launch,
    planned: list[Change],
    options: Sequence[str],
    *,
    plugin: bool,
    hook: bool,
) -> tuple[list[Change], list[str]]:
    """The changes with those of plugin and hook, and what to say of them."""
    remarks = []
    if hook or _has_hook(host, machine, project):
        planned = _joined(planned, host, machine, project, _hook_item(shell, machine, options))
        remarks += [host.hook_asks] if hook and host.hook_asks else []
    if plugin or extras.has_plugin(host, machine, project):
        planned = [
            *planned,
            *extras.plugin_changes(host, machine, project, shell, installed_version(), add=True),
        ]
    return planned, remarks


def _has_hook(host: Host, machine: Machine, project: PurePath | None) -> bool:
    """Whether a hook of ours stands there. A file that cannot be read is left to whoever asks for the hook."""
    if host.hook is None:
        return False
    place = host.hook(machine, project)
    try:
        found = files.read(Path(place.path))
        return found.there and bool(extras.hooks_of_ours(editing.NOTATIONS[place.notation].read(found.text)))
    except HostError:
        return False


def _joined(
    planned: list[Change], host: Host, machine: Machine, project: PurePath | None, item: dict[str, Any] | None
) -> list[Change]:
    """The changes with the hook's, which may concern a file that is changed already."""
    path = None if host.hook is None else Path(host.hook(machine, project).path).resolve()
    before = next((one for one in planned if one.found.path == path), None)
    change = extras.hook_change(host, machine, project, item, before)
    return [change if one is before else one for one in planned] if before else [*planned, change]


def new_entry(
    host: Host,
    start: Launch,
    folders: Sequence[str],
    old: Any = None,
    *,
    allow: bool = False,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """The entry for these folders, with what is kept of the old one. Raises HostError or Miscast for the folders."""
    given = [*options, *_folders(host, folders, old, options)]
    if host.result_bytes and not any(one.startswith("result_bytes=") for one in [*given, *served(old)[0]]):
        given = ["--set", f"result_bytes={host.result_bytes}", *given]
    kept = _kept_options(old, options)
    entry = host.shape(start.with_arguments([*kept, *given]), allow)
    if not isinstance(old, dict):
        return entry
    merged = {**old, **entry}
    for key in ("envs", "env", "env_keys"):  # the person's own
        if old.get(key):
            merged[key] = old[key]
    return merged


def plan_uninstall(
    host: Host,
    machine: Machine,
    *,
    scope: Scope = "user",
    project: PurePath | None = None,
    name: str = SERVER,
) -> Plan:
    """The plan to take the entry out and the rule that let its tools run; with the last of ours hook and plugin, too.
    A file that we made, in which nothing is left, goes. Raises HostError for an entry that is not ours."""
    place = _place(host, machine, scope, project)
    found = files.read(Path(place.path))
    notation = editing.NOTATIONS[place.notation]
    path = (host.section, name)
    old = editing.entry(notation, found.text, path) if found.there else None
    if old is not None and launcher_length(old) is None:
        raise HostError(
            f"{place.path} has an entry {name!r}, but not one of ours: {' '.join(words(old))[:160] or old!r}.",
            hint="Remove it by hand if you mean it.",
            slug="host_name_taken",
        )
    planned = [
        Change(found, editing.without_entry(notation, found.text, path) if found.there else found.text)
    ]
    inside = project if scope == "project" else None
    if host.rule is not None:
        planned.append(_rule_change(host.rule(machine, inside, name), add=False))
    section = notation.read(found.text).get(host.section) if found.there else None
    others = section if isinstance(section, dict) else {}
    if any(key != name and launcher_length(value) is not None for key, value in others.items()):
        return Plan(host, name, tuple(planned), None)  # hook and plugin serve the one that stays
    if _has_hook(host, machine, inside):
        planned = _joined(planned, host, machine, inside, None)
    gone: list[Change] = []
    if extras.has_plugin(host, machine, inside):
        gone = extras.plugin_changes(host, machine, inside, Launch(COMMAND), "", add=False)
    homes = {Path(machine.home), *([Path(project)] if project is not None else [])}
    return Plan(host, name, (*gone, *(changes.without_rests(one, homes) for one in planned)), None)


def apply(plan: Plan) -> list[Written]:
    """Write what is needed. Raises HostError or Conflict; files written before the one that failed stay written."""
    return changes.apply(plan.changes)


def snippet(host: Host, name: str, entry: dict[str, Any], notation: str) -> str:
    """The entry as it would stand in an empty file, to paste."""
    import json

    if notation == "toml":
        return table_text((host.section, name), entry)
    if notation == "yaml":
        return entry_text(host.section, name, entry)
    return json.dumps({host.section: {name: entry}}, ensure_ascii=False, indent=2) + "\n"


def extra_snippets(
    host: Host,
    machine: Machine,
    project: PurePath | None,
    shell: Launch,
    options: Sequence[str],
    *,
    plugin: bool,
    hook: bool,
) -> list[tuple[PurePath, str]]:
    """Where hook and plugin go, and what stands there, to paste. Raises Miscast for a host without them."""
    import json

    shown: list[tuple[PurePath, str]] = []
    if hook:
        item = _hook_item(shell, machine, options)
        extras.hook_change(host, machine, project, None, None)  # raises for a host without hooks
        assert host.hook is not None
        data = {"hooks": {"SessionStart": [item]}}
        shown.append(
            (host.hook(machine, project).path, json.dumps(data, ensure_ascii=False, indent=2) + "\n")
        )
    if plugin:
        shown += extras.plugin_files(host, machine, project, shell, installed_version()).items()
    return shown


def _hook_item(shell: Launch, machine: Machine, options: Sequence[str]) -> dict[str, Any]:
    """The hook looks into every workspace of the data folder, and into a state folder that was named."""
    state = [
        word for at, word in enumerate(options) if word == "--state" or (at and options[at - 1] == "--state")
    ]
    return extras.hook_item(shell, state, windows=machine.system == "windows")


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or len(name) > MOST_NAME:
        raise Miscast(
            f"{name!r} cannot name a server in every host.",
            hint=f"Use a letter, then letters, digits, - and _; at most {MOST_NAME} characters.",
            slug="bad_server_name",
        )


def _place(host: Host, machine: Machine, scope: Scope, project: PurePath | None) -> Place:
    place = host.place(machine, scope, project)
    if place is None:
        raise Miscast(
            f"{host.title} has no configuration of a project.", hint="Use --scope user.", slug="no_such_scope"
        )
    return place


def _folders(host: Host, folders: Sequence[str], old: Any, options: Sequence[str]) -> list[str]:
    if folders:
        for folder in folders:
            if host.expands and re.search(host.expands, folder):
                raise HostError(
                    f"{host.title} would expand a part of {folder!r} as a variable.",
                    hint="Rename that folder, or give a link to it.",
                )
        return list(folders)
    if "--workspace" in options:
        return []
    if old is not None:
        return served(old)[1]
    if host.own_folder is None:
        raise Miscast(
            f"{host.title} opens no project, so the server must be told which folders to serve.",
            hint=f"Name them: pensieve install {host.name} FOLDER",
            slug="no_folder",
        )
    return [host.own_folder] if host.own_folder else []


def _kept_options(old: Any, options: Sequence[str]) -> list[str]:
    """Options that stand in our old entry and are not given anew."""
    given, kept = set(options), []
    listed = served(old)[0] if old is not None else []
    at = 0
    while at < len(listed):
        pair = listed[at : at + 2] if not listed[at].startswith("--structured") else listed[at : at + 1]
        at += len(pair)
        setting = pair[1].partition("=")[0] if pair[0] == "--set" and len(pair) > 1 else None
        if setting is not None and any(one.startswith(f"{setting}=") for one in given):
            continue
        if setting is None and pair[0] in given:
            continue
        kept += pair
    return kept


def _rule_change(rule: Rule, *, add: bool) -> Change:
    found = files.read(Path(rule.place.path))
    if not found.there and not add:
        return Change(found, found.text)
    notation: Jsonc = editing.NOTATIONS[rule.place.notation]  # type: ignore[assignment]  # rules are kept in JSON only
    change = editing.with_item if add else editing.without_item
    return Change(found, change(notation, found.text, rule.list_path, rule.item))

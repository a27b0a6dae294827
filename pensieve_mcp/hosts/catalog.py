"""The hosts we know: where each keeps its configuration, in which notation, what an entry looks like, what it allows.

Each fact is from the host's documentation, those of Claude Code, Codex, opencode and Gemini CLI also from running
them. The table `HOSTS` is what `pensieve install`, `pensieve doctor` and `tools/make_manifests.py` read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from pensieve_mcp.hosts.machine import Machine

Scope = Literal["user", "project"]
DISTRIBUTION = "pensieve-statelm"
COMMAND = "pensieve-mcp"
MODULE = "pensieve_mcp.server"
SERVER = "pensieve"


@dataclass(frozen=True, slots=True)
class Launch:
    """What starts the server, without what it is to serve: a program and its first arguments."""

    command: str
    arguments: tuple[str, ...] = ()

    def with_arguments(self, more: Sequence[str]) -> Launch:
        return Launch(self.command, (*self.arguments, *more))


@dataclass(frozen=True, slots=True)
class Place:
    """A configuration file and its notation: `json` (comments allowed), `toml` or `yaml`."""

    path: PurePath
    notation: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What lets the tools run unasked, as an item of a list in a file."""

    place: Place
    list_path: tuple[str, ...]
    item: str


@dataclass(frozen=True, slots=True)
class Host:
    """One host. Functions take a Machine and, for the scope project, the project's folder; none touches a file."""

    name: str
    title: str
    section: str
    """The key that holds the servers."""
    user: Callable[[Machine], Place]
    project: Callable[[PurePath, Machine], Place] | None
    shape: Callable[[Launch, bool], dict[str, Any]]
    """The entry for a launch; the switch says whether the tools may run unasked."""
    marks: Callable[[Machine], Sequence[PurePath]]
    """Paths of which one exists where the host is installed or was used."""
    programs: tuple[str, ...] = ()
    result_bytes: int | None = None
    """Most bytes of a result; None leaves the setting's default, which every host takes."""
    own_folder: str | None = None
    """Without folders: an argument that the host expands to the open project; empty where the server finds it."""
    expands: str = ""
    """What the host would expand inside an argument (a regular expression); a path with it cannot be given."""
    rule: Callable[[Machine, PurePath | None, str], Rule] | None = None
    plugin: Callable[[Machine, PurePath | None], PurePath] | None = None
    """Where the plugin that takes deleted text out of the prompt lies, for the user or a project: folder or file."""
    hook: Callable[[Machine, PurePath | None], Place] | None = None
    """The file with the hooks, one of which gives the handoff back after a compaction."""
    hook_asks: str = ""
    """What the person has to do before the hook runs."""
    asks: str = ""
    """How the person lets the tools run unasked, where the configuration cannot say it."""
    again: str = ""
    """What makes the host see the change."""
    prefix: str = ""
    """What the host puts before a tool's name."""
    shared: str = ""
    """What the person should know about a project's file."""

    def found(self, machine: Machine) -> bool:
        """Whether the host is installed here, or was used."""
        return any(machine.exists(mark) for mark in self.marks(machine)) or any(
            machine.which(program) for program in self.programs
        )

    def place(self, machine: Machine, scope: Scope, project: PurePath | None) -> Place | None:
        """The file of this scope; None where the host has none."""
        if scope == "user":
            return self.user(machine)
        return self.project(project, machine) if self.project and project is not None else None


# -- where -------------------------------------------------------------------------------------------------------------


def _claude_home(machine: Machine) -> PurePath:
    return machine.folder("CLAUDE_CONFIG_DIR", ".claude")


def _claude_user(machine: Machine) -> Place:
    named = machine.environment.get("CLAUDE_CONFIG_DIR", "").strip()
    return Place((machine.path(named) if named else machine.home) / ".claude.json", "json")


def _claude_rule(machine: Machine, project: PurePath | None, server: str) -> Rule:
    folder = _claude_home(machine) if project is None else project / ".claude"
    name = "settings.json" if project is None else "settings.local.json"
    return Rule(Place(folder / name, "json"), ("permissions", "allow"), f"mcp__{server}")


def _claude_mod(machine: Machine, project: PurePath | None) -> PurePath:
    # A plugin in this folder is loaded without a marketplace.
    return (_claude_home(machine) if project is None else project / ".claude") / "skills" / "pensieve-mod"


def _claude_hooks(machine: Machine, project: PurePath | None) -> Place:
    return _claude_rule(machine, project, "").place


def _codex_hooks(machine: Machine, project: PurePath | None) -> Place:
    folder = machine.folder("CODEX_HOME", ".codex") if project is None else project / ".codex"
    return Place(folder / "hooks.json", "json")


def _opencode_plugin(machine: Machine, project: PurePath | None) -> PurePath:
    folder = (
        machine.folder("XDG_CONFIG_HOME", ".config") / "opencode"
        if project is None
        else project / ".opencode"
    )
    return folder / "plugin" / "pensieve.js"


def _desktop_user(machine: Machine) -> Place:
    name = "claude_desktop_config.json"
    if machine.system == "windows":
        # The Store's package sees a copy of AppData\Roaming of its own, and only that.
        packages = machine.folder("LOCALAPPDATA", "AppData", "Local") / "Packages"
        for package in machine.matching(packages, "Claude_*"):
            return Place(package / "LocalCache" / "Roaming" / "Claude" / name, "json")
    return Place(machine.application_data() / "Claude" / name, "json")


def _opencode_user(machine: Machine) -> Place:
    named = machine.environment.get("OPENCODE_CONFIG", "").strip()
    if named:
        return Place(machine.path(named), "json")
    return _opencode_in(machine.folder("XDG_CONFIG_HOME", ".config") / "opencode", machine)


def _opencode_in(folder: PurePath, machine: Machine) -> Place:
    names = ("opencode.jsonc", "opencode.json")
    found = [folder / name for name in names if machine.exists(folder / name)]
    return Place(found[0] if found else folder / "opencode.json", "json")


def _goose_user(machine: Machine) -> Place:
    if machine.system == "windows":
        folder = machine.application_data() / "Block" / "goose" / "config"
    else:
        folder = machine.folder("XDG_CONFIG_HOME", ".config") / "goose"
    return Place(folder / "config.yaml", "yaml")


def _lmstudio_user(machine: Machine) -> Place:
    older = machine.home / ".cache" / "lm-studio"
    folder = machine.home / ".lmstudio"
    return Place(
        (older if machine.exists(older) and not machine.exists(folder) else folder) / "mcp.json", "json"
    )


# -- entries -----------------------------------------------------------------------------------------------------------


def _plain(launch: Launch, allowed: bool) -> dict[str, Any]:
    return {"command": launch.command, "args": list(launch.arguments)}


def _typed(launch: Launch, allowed: bool) -> dict[str, Any]:
    return {"type": "stdio", **_plain(launch, allowed)}


def _codex(launch: Launch, allowed: bool) -> dict[str, Any]:
    # Without `required` the first request goes out before the tools are there, and the model does not know of them.
    entry = {**_plain(launch, allowed), "required": True, "startup_timeout_sec": 60, "tool_timeout_sec": 60}
    return {**entry, **({"default_tools_approval_mode": "approve"} if allowed else {})}


def _gemini(launch: Launch, allowed: bool) -> dict[str, Any]:
    return {**_plain(launch, allowed), "timeout": 60_000, **({"trust": True} if allowed else {})}


def _goose(launch: Launch, allowed: bool) -> dict[str, Any]:
    return {
        "name": SERVER,
        "description": "Search, read, note and forget over folders of documents.",
        "type": "stdio",
        "enabled": True,
        "cmd": launch.command,
        "args": list(launch.arguments),
        "envs": {},
        "env_keys": [],
        "timeout": 60,
    }


def _opencode(launch: Launch, allowed: bool) -> dict[str, Any]:
    # Its own limit for the list of tools is 5 s, which a cold disk can overrun.
    command = [launch.command, *launch.arguments]
    return {"type": "local", "command": command, "enabled": True, "timeout": 30_000}


HOSTS: dict[str, Host] = {
    host.name: host
    for host in (
        Host(
            "claude-code",
            "Claude Code",
            "mcpServers",
            user=_claude_user,
            project=lambda project, machine: Place(project / ".mcp.json", "json"),
            shape=_typed,
            marks=lambda machine: (_claude_home(machine), _claude_user(machine).path),
            programs=("claude",),
            result_bytes=40_000,  # 50,000 characters or about 25,000 tokens, whichever comes first
            own_folder="",
            expands=r"\$\{",
            rule=_claude_rule,
            plugin=_claude_mod,
            hook=_claude_hooks,
            shared="Claude Code asks once whether the project's servers may start.",
            again="Start Claude Code anew; /mcp shows the server.",
            prefix="mcp__{server}__",
        ),
        Host(
            "codex",
            "Codex",
            "mcp_servers",
            user=lambda machine: Place(machine.folder("CODEX_HOME", ".codex") / "config.toml", "toml"),
            project=lambda project, machine: Place(project / ".codex" / "config.toml", "toml"),
            shape=_codex,
            marks=lambda machine: (machine.folder("CODEX_HOME", ".codex"),),
            programs=("codex",),
            own_folder="",  # 12,000 bytes with a model outside its catalogue: the default
            shared="Codex reads it in projects that it trusts.",
            hook=_codex_hooks,
            hook_asks="Codex runs a hook after you have trusted it: start codex and look at /hooks.",
            again="Start Codex anew.",
            prefix="mcp__{server}__",
        ),
        Host(
            "claude-desktop",
            "Claude Desktop",
            "mcpServers",
            user=_desktop_user,
            project=None,
            shape=_plain,
            marks=lambda machine: (_desktop_user(machine).path.parent,),
            asks="It asks at the first use of each tool; choose Always allow.",
            again="Quit Claude Desktop and start it again.",
        ),
        Host(
            "vscode",
            "VS Code",
            "servers",
            user=lambda machine: Place(machine.application_data() / "Code" / "User" / "mcp.json", "json"),
            project=lambda project, machine: Place(project / ".vscode" / "mcp.json", "json"),
            shape=_typed,
            marks=lambda machine: (machine.application_data() / "Code",),
            programs=("code",),
            own_folder="${workspaceFolder}",
            expands=r"\$\{",
            asks="It asks at the first use; choose Always Allow for the server.",
            again="Run the command MCP: List Servers and start pensieve.",
            prefix="mcp_{server}_",
        ),
        Host(
            "cursor",
            "Cursor",
            "mcpServers",
            user=lambda machine: Place(machine.home / ".cursor" / "mcp.json", "json"),
            project=lambda project, machine: Place(project / ".cursor" / "mcp.json", "json"),
            shape=_typed,
            marks=lambda machine: (machine.home / ".cursor",),
            programs=("cursor",),
            own_folder="${workspaceFolder}",
            expands=r"\$\{",
            asks="It asks at the first use; add the server to the allow list of auto-run.",
            again="Switch the server on under Settings, Tools and MCP.",
        ),
        Host(
            "gemini",
            "Gemini CLI",
            "mcpServers",
            user=lambda machine: Place(machine.home / ".gemini" / "settings.json", "json"),
            project=lambda project, machine: Place(project / ".gemini" / "settings.json", "json"),
            shape=_gemini,
            marks=lambda machine: (machine.home / ".gemini",),
            programs=("gemini",),
            result_bytes=36_000,  # cut at 40,000 characters
            own_folder="",
            expands=r"\$[A-Za-z_{]",
            again="Start Gemini CLI anew; /mcp shows the server.",
            prefix="mcp_{server}_",
        ),
        Host(
            "goose",
            "Goose",
            "extensions",
            user=_goose_user,
            project=None,
            shape=_goose,
            marks=lambda machine: (_goose_user(machine).path.parent,),
            programs=("goose",),
            asks="In its smart mode it asks for tools that write; goose configure sets the permission of each.",
            again="Start a new session.",
            prefix="{server}__",
        ),
        Host(
            "opencode",
            "opencode",
            "mcp",
            user=_opencode_user,
            project=lambda project, machine: _opencode_in(project, machine),
            shape=_opencode,
            marks=lambda machine: (_opencode_user(machine).path.parent,),
            programs=("opencode",),
            result_bytes=40_000,  # cut at 51,200 bytes
            own_folder="",
            expands=r"\{(env|file):",
            plugin=_opencode_plugin,
            asks='It runs tools unasked unless "permission" says otherwise.',
            again="Start opencode anew.",
            prefix="{server}_",
        ),
        Host(
            "lmstudio",
            "LM Studio",
            "mcpServers",
            user=_lmstudio_user,
            project=None,
            shape=_plain,
            marks=lambda machine: (_lmstudio_user(machine).path.parent,),
            programs=("lms",),
            asks="It asks at each call; choose Always allow in the dialog.",
            again="Switch mcp/pensieve on in the chat's integrations.",
        ),
    )
}


# -- entries of ours ---------------------------------------------------------------------------------------------------


def words(entry: Any) -> list[str]:
    """Program and arguments of an entry, in whatever shape; empty if it starts nothing."""
    if not isinstance(entry, dict):
        return []
    command = entry.get("command", entry.get("cmd"))
    listed = command if isinstance(command, list) else [command]
    arguments = entry.get("args")
    both = [*listed, *(arguments if isinstance(arguments, list) else [])]
    return [one for one in both if isinstance(one, str)]


def program_name(word: str) -> str:
    """What a program's path starts, on any system."""
    return re.split(r"[\\/]", word)[-1].lower().removesuffix(".exe")


RUNNERS = ("uvx", "uv", "pipx")
"""Programs that fetch a distribution and start it."""


def launcher_length(entry: Any) -> int | None:
    """How many of an entry's words start our server; None if it starts another. What follows is what it is to serve.

    The public index holds a package of our command's name that is not ours, so a runner without our distribution
    does not count.
    """
    given = words(entry)
    if not given:
        return None
    if program_name(given[0]) in (COMMAND, DISTRIBUTION):
        return 1
    if "-m" in given[:-1] and given[given.index("-m") + 1] == MODULE:
        return given.index("-m") + 2
    if COMMAND in given[1:]:
        place = given.index(COMMAND, 1)
        if any(re.match(rf"{DISTRIBUTION}\b", one) for one in given[1:place]):
            return place + 1
    if program_name(given[0]) in RUNNERS:
        # as clients of the registry write it: the runner, then the distribution, which has a program of its own name
        rest = enumerate(given[1:], 1)
        place = next((at for at, one in rest if not one.startswith("-") and one not in ("tool", "run")), 0)
        if re.fullmatch(rf"{DISTRIBUTION}(?:(?:==|@)[\w.+!-]+)?", given[place]):
            return place + 1
    return None


VALUED = frozenset({"--workspace", "--state", "--set", "--http", "--token", "--allow-host"})


def served(entry: Any) -> tuple[list[str], list[str]]:
    """(options, folders) that an entry of ours hands the server."""
    length = launcher_length(entry)
    options: list[str] = []
    folders: list[str] = []
    rest = words(entry)[length or 0 :]
    at = 0
    while at < len(rest):
        if rest[at] in VALUED and at + 1 < len(rest):
            options += rest[at : at + 2]
            at += 2
            continue
        (options if rest[at].startswith("--") else folders).append(rest[at])
        at += 1
    return options, folders

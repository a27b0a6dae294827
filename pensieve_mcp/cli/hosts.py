"""install, uninstall: into a host's configuration and out of it; and what `doctor` says of the hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.output import put, put_json, put_table, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.errors import Miscast, NoSuchDocument
from pensieve_mcp.places import is_there, typed

if TYPE_CHECKING:
    from pensieve_mcp.hosts.installing import Plan
    from pensieve_mcp.hosts.machine import Machine
    from pensieve_mcp.hosts.starting import Finding

scope_options = (
    click.option(
        "--scope",
        type=click.Choice(["user", "project"]),
        default="user",
        show_default=True,
        help="For you everywhere, or for one project.",
    ),
    click.option(
        "--project", metavar="DIR", help="The project of --scope project; the current folder otherwise."
    ),
    click.option("--name", default="pensieve", show_default=True, help="What the host calls the server."),
    click.option("--dry-run", is_flag=True, help="Show what would change, change nothing."),
)


def _scoped(function: Any) -> Any:
    for option in reversed(scope_options):
        function = option(function)
    return function


@click.command(short_help="Add the server to a host's configuration.")
@click.argument("host", required=False)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@_scoped
@click.option("--allow", is_flag=True, help="Also let its tools run without asking each time.")
@click.option(
    "--plugin",
    is_flag=True,
    help="Also the plugin that takes deleted text out of the prompt (Claude Code, opencode).",
)
@click.option(
    "--hook",
    is_flag=True,
    help="Also the hook that gives the handoff back after a compaction (Claude Code, Codex).",
)
@click.option("--print", "only_print", is_flag=True, help="Print the entry, to add it by hand.")
@json_option
@command_options
def install(
    shell: Shell,
    host: str | None,
    paths: tuple[str, ...],
    scope: Any,
    project: str | None,
    name: str,
    dry_run: bool,
    allow: bool,
    plugin: bool,
    hook: bool,
    only_print: bool,
    as_json: bool,
) -> None:
    """Add the server to HOST's configuration, serving PATH…; without HOST, list the hosts and where they keep it.

    Everything else in the file stays, comments too; the old file is kept beside it. Without PATH the server serves the
    project that is open in the host, where the host opens one; an entry that stands there keeps its folders.
    """
    from pensieve_mcp.hosts import installing
    from pensieve_mcp.hosts.machine import Machine

    machine = Machine.here(shell.environment)
    if host is None:
        _list(machine, as_json)
        return
    chosen = installing.host(host)
    place = chosen.place(machine, scope, _project(project))
    start, options = installing.this_launch(machine), _options(shell)
    folders = [_absolute(path) for path in paths or shell.folders]
    if only_print and place is not None:
        # Also where the file is one that we refuse to change: then this is the way.
        entry = installing.new_entry(chosen, start, folders, allow=allow, options=options)
        say(f"For {place.path}:")
        put(installing.snippet(chosen, name, entry, place.notation).rstrip("\n"))
        inside = _project(project) if scope == "project" else None
        for path, text in installing.extra_snippets(
            chosen, machine, inside, installing.this_shell(machine), options, plugin=plugin, hook=hook
        ):
            say(f"For {path}:")
            put(text.rstrip("\n"))
        return
    plan = installing.plan_install(
        chosen,
        machine,
        start,
        folders,
        scope=scope,
        project=_project(project),
        name=name,
        allow=allow,
        options=options,
        shell=installing.this_shell(machine),
        plugin=plugin,
        hook=hook,
    )
    _carry_out(plan, dry_run=dry_run, as_json=as_json, done="set up", idle="is set up already")
    if not as_json and (other := _other_version(machine)) is not None:
        say(f"{other.detail}. {other.advice}")


@click.command(short_help="Take the server out of a host's configuration.")
@click.argument("host")
@_scoped
@json_option
@command_options
def uninstall(
    shell: Shell, host: str, scope: Any, project: str | None, name: str, dry_run: bool, as_json: bool
) -> None:
    """Take the server out of HOST's configuration, with the rule that let its tools run, hook and plugin. A file
    that it made goes where nothing else is in it; copies of older files, index and notes stay."""
    from pensieve_mcp.hosts import installing
    from pensieve_mcp.hosts.machine import Machine

    machine = Machine.here(shell.environment)
    plan = installing.plan_uninstall(
        installing.host(host), machine, scope=scope, project=_project(project), name=name
    )
    _carry_out(plan, dry_run=dry_run, as_json=as_json, done="taken out", idle="is not set up there")


def host_findings(shell: Shell) -> list[Finding]:
    """What `doctor` says of the hosts."""
    from pensieve_mcp.hosts.checkup import checkup
    from pensieve_mcp.hosts.machine import Machine
    from pensieve_mcp.hosts.versions import installed_version

    machine = Machine.here(shell.environment)
    other = _other_version(machine)
    return [*([other] if other else []), *checkup(machine, Path.cwd(), installed_version())]


def _other_version(machine: Machine) -> Finding | None:
    from pensieve_mcp.hosts import installing
    from pensieve_mcp.hosts.errors import HostError
    from pensieve_mcp.hosts.starting import other_installation
    from pensieve_mcp.hosts.versions import installed_version

    try:
        start = installing.this_launch(machine)
    except HostError:  # a temporary installation without a runner: `install` says so
        return None
    return other_installation(machine, start, installed_version())


def _carry_out(plan: Plan, *, dry_run: bool, as_json: bool, done: str, idle: str) -> None:
    from pensieve_mcp.hosts import installing

    changed = [change for change in plan.changes if change.needed]
    written = [] if dry_run else installing.apply(plan)
    if as_json:
        put_json(
            {
                "host": plan.host.name,
                "name": plan.name,
                "changed": bool(changed),
                "dry_run": dry_run,
                "files": [str(change.found.path) for change in changed],
                "backups": [str(one.backup) for one in written if one.backup],
                "entry": plan.entry,
                "remarks": list(plan.remarks),
            }
        )
        return
    if dry_run:
        for change in changed:
            put(change.difference().rstrip("\n"))
    if not changed:
        say(f"{plan.host.title}: {plan.name} {idle}; nothing to do.")
    for one in written:
        if one.is_gone:
            say(f"{one.path} (removed)")
        else:
            say(f"{one.path}" + (f" (the old one is {one.backup.name})" if one.backup else " (new)"))
    if written:
        next_step = (
            plan.host.again
            if plan.entry is not None
            else f"{plan.host.title} forgets it when it starts anew."
        )
        say(f"{plan.host.title}: {plan.name} {done}. {next_step}".rstrip())
    for remark in plan.remarks:
        say(remark)


def _list(machine: Machine, as_json: bool) -> None:
    from pensieve_mcp.hosts.catalog import HOSTS

    rows = []
    for host in HOSTS.values():
        found = host.found(machine)
        rows.append((host.name, host.title, "found" if found else "not found", str(host.user(machine).path)))
    if as_json:
        put_json([dict(zip(("host", "title", "state", "file"), row, strict=True)) for row in rows])
        return
    put_table(("host", "name", "here", "configuration"), rows)


def _options(shell: Shell) -> list[str]:
    options: list[str] = []
    if shell.name:
        options += ["--workspace", shell.name]
    if shell.state:
        options += ["--state", os.path.abspath(typed(shell.state))]  # noqa: PTH100  # links stay
    for name, value in shell.settings.items():
        options += ["--set", f"{name}={value}"]
    return options


def _absolute(path: str) -> str:
    """As typed but absolute; links are kept, since the person means what they call it. Raises NoSuchDocument,
    WorkspaceError."""
    full = os.path.abspath(typed(path))  # noqa: PTH100  # resolve() would follow links
    if not is_there(full):
        raise NoSuchDocument(f"{full} is not there.", hint="Name a folder or file that exists.")
    return full


def _project(given: str | None) -> Path:
    folder = typed(given).absolute() if given else Path.cwd()
    if not is_there(folder) or not folder.is_dir():
        raise Miscast(f"{folder} is not a folder.", hint="Name the project's folder.", slug="no_such_project")
    return folder

"""workspace: which sets of folders there are, and what may be thrown away."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import click

from pensieve_mcp.cli.indexing import build, overview, sentence
from pensieve_mcp.cli.output import put, put_json, put_table, say
from pensieve_mcp.cli.shell import NearGroup, Shell, chosen_name, command_options, json_option
from pensieve_mcp.errors import StorageError, WorkspaceError

DERIVED = ("corpus.db", "corpus.db-wal", "corpus.db-shm", "index")
"""What a rebuild may throw away; the rest of a state folder is precious."""


@click.group(cls=NearGroup)
def workspace() -> None:
    """Sets of folders: list, add, remove, rebuild."""


@workspace.command("list")
@json_option
@command_options
def list_(shell: Shell, as_json: bool) -> None:
    """All workspaces, the last used first."""
    from pensieve_mcp.workspace import list_workspaces

    known = list_workspaces(shell.environment)
    if as_json:
        put_json(
            [
                {
                    "name": info.name,
                    "state": str(info.state),
                    "roots": [{"name": root.name, "folder": root.folder} for root in info.roots],
                    "last_used": info.last_used,
                }
                for info in known
            ]
        )
        return
    put_table(
        ("name", "last used", "folders"),
        [(info.name, _when(info.last_used), ", ".join(root.folder for root in info.roots)) for info in known],
    )
    if not known:
        say("No workspaces yet; pensieve index FOLDER makes one.")


@workspace.command(short_help="Make the workspace NAME over these folders.")
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@json_option
@command_options
def add(shell: Shell, name: str, paths: tuple[str, ...], as_json: bool) -> None:
    """Make the workspace NAME over these folders or files, or add them to it. Nothing is indexed yet."""
    from pensieve_mcp.workspace import Workspace, list_workspaces

    known = next((info for info in list_workspaces(shell.environment) if info.name == name), None)
    before = [root.folder for root in known.roots] if known else []
    with Workspace.open(
        [*before, *paths],
        name=name,
        state=shell.state,
        environment=shell.environment,
        arguments=shell.settings,
    ) as opened:
        data = {"name": opened.name, "roots": [{"name": r.name, "folder": r.folder} for r in opened.roots]}
        if as_json:
            put_json(data)
        else:
            put(f"{opened.name}: " + ", ".join(f"{root.name} = {root.folder}" for root in opened.roots))
            say(f"Index it with: pensieve --workspace {opened.name} index")


@workspace.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command_options
def remove(shell: Shell, name: str, yes: bool) -> None:
    """Remove a workspace with its notes, history and index for good. The documents are not touched."""
    from pensieve_mcp.workspace import list_workspaces

    known = {info.name: info for info in list_workspaces(shell.environment)}
    if name not in known:
        raise WorkspaceError(
            f"There is no workspace {name!r}.",
            hint=f"There are: {', '.join(known) or 'none'}.",
            slug="no_such_workspace",
        )
    info = known[name]
    if not yes:
        say(chosen_name(info))
        click.confirm(f"Remove its notes, history and index ({info.state}) for good?", abort=True, err=True)
    try:
        shutil.rmtree(info.state)
    except OSError as error:
        raise WorkspaceError(
            f"{info.state} could not be removed: {error}.", hint="End other pensieve processes and try again."
        ) from error
    put(f"{name} removed")


@workspace.command()
@click.argument("name", required=False)
@json_option
@command_options
def rebuild(shell: Shell, name: str | None, as_json: bool) -> None:
    """Throw away the index and build it anew. Notes, history and chunk ids stay."""
    if name is not None:
        shell.name, shell.folders, shell.state = name, (), None
    with shell.open() as opened:
        state, chosen = opened.state, opened.name
        try:
            told = opened.progress()
        except StorageError as error:
            if error.slug != "storage_corrupt":
                raise
            say(f"{error.message} It is made anew.")
        else:
            if told.state == "building":
                raise WorkspaceError(
                    f"{chosen} is being indexed by {told.owner or 'another process'}.",
                    hint="Wait for it to finish, then rebuild.",
                    slug="busy",
                )
    for part in DERIVED:
        _throw_away(state / part)
    with shell.open() as opened:
        data = overview(opened, build(opened))
        put_json(data) if as_json else put(sentence(data))


def _throw_away(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise WorkspaceError(
            f"{path} could not be removed: {error}.",
            hint="End other pensieve processes and try again.",
            slug="busy",
        ) from error


def _when(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).astimezone().strftime("%Y-%m-%d %H:%M")

"""What all commands share: which workspace is meant, and how a command's line of options becomes it.

The environment is read here and handed down; nothing below the doors looks at it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

import click

from pensieve_mcp.cli.output import say
from pensieve_mcp.errors import NoSuchDocument, WorkspaceError
from pensieve_mcp.places import is_there, typed

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import Root
    from pensieve_mcp.workspace import Workspace, WorkspaceInfo

F = TypeVar("F", bound=Callable[..., Any])
Builder = Literal["process", "inline"]


def workspace_options(*, hidden: bool = True) -> Callable[[F], F]:
    """The four options that say which workspace and settings are meant; every command takes them, too."""
    options = (
        click.option(
            "--workspace", "workspace", metavar="NAME", hidden=hidden, help="The workspace of this name."
        ),
        click.option(
            "--folder",
            "folder",
            metavar="PATH",
            multiple=True,
            hidden=hidden,
            help="The workspace over this folder or file; repeat it for several.",
        ),
        click.option(
            "--state", "state", metavar="DIR", hidden=hidden, help="Keep the workspace's state in DIR."
        ),
        click.option(
            "--set",
            "settings",
            metavar="NAME=VALUE",
            multiple=True,
            hidden=hidden,
            help="A setting for this command; `pensieve doctor` lists them.",
        ),
    )

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class Shell:
    """The command line so far: options given before or after the command's name, the later ones winning."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.name: str | None = None
        self.folders: tuple[str, ...] = ()
        self.state: str | None = None
        self.settings: dict[str, str] = {}
        self.under: tuple[
            str, ...
        ] = ()  # folders that were named and lie inside the workspace that was opened

    def take(self, options: dict[str, Any]) -> None:
        """Take the workspace options out of a command's options."""
        self.name = options.pop("workspace", None) or self.name
        self.folders = tuple(options.pop("folder", ())) or self.folders
        self.state = options.pop("state", None) or self.state
        for text in options.pop("settings", ()):
            name, equals, value = text.partition("=")
            if not equals:
                raise click.UsageError(
                    f"--set {text!r} is not NAME=VALUE, for example --set window_tokens=16000."
                )
            self.settings[name.strip().replace("-", "_")] = value

    def open(self, *paths: str, builder: Builder = "inline", making: bool = False) -> Workspace:
        """Open the workspace that is meant. Says on stderr which one, where that was a guess.

        Only a command that indexes (`making`, or with `paths` of its own) makes one; others open what there is.
        Raises WorkspaceError when none can be meant.
        """
        from pensieve_mcp.workspace import Workspace

        folders: Sequence[str] = paths or self.folders
        name = self.name
        if folders and not paths and not making:
            return self._open_known(folders, builder)
        if not folders and name is None and self.state is None:
            name = self._guess().name
        if folders and name is None and self.state is None:
            self._tell_of_one_around(folders)
        return Workspace.open(
            folders,
            name=name,
            state=self.state,
            environment=self.environment,
            arguments=self.settings,
            builder=builder,
        )

    def _open_known(self, folders: Sequence[str], builder: Builder) -> Workspace:
        """The workspace over these folders, or the one they lie in; never a new one."""
        from pensieve_mcp.workspace import WORKSPACE_FILE, Workspace, known_workspace, workspace_around

        state, name = self.state, self.name
        if name is None and state is None:
            info = known_workspace(folders, self.environment) or workspace_around(folders, self.environment)
            state = str(info.state) if info else None
        elif state is not None and not is_there(typed(state) / WORKSPACE_FILE):
            state = None
        if name is None and state is None:
            named = " ".join(folders)
            option = f"--state {self.state} " if self.state else ""
            raise WorkspaceError(
                f"{named} is not indexed yet.",
                hint=f"Run: pensieve {option}index {named}",
                slug="not_indexed",
            )
        workspace = Workspace.open(
            name=name,
            state=state,
            environment=self.environment,
            arguments=self.settings,
            builder=builder,
        )
        tops = {Path(root.folder).resolve() for root in workspace.roots}
        if {typed(folder).resolve() for folder in folders} != tops:
            say(f"Workspace {workspace.name} ({', '.join(root.folder for root in workspace.roots)}).")
            self.under = tuple(folders)
        return workspace

    def _tell_of_one_around(self, folders: Sequence[str]) -> None:
        """Before a workspace is made inside the folders of another: that this may not be what was meant."""
        from pensieve_mcp.workspace import known_workspace, workspace_around

        if known_workspace(folders, self.environment) is None:
            around = workspace_around(folders, self.environment)
            if around is not None:
                say(
                    f"{', '.join(folders)} lies inside the workspace {around.name}, which may hold it already; this "
                    f"makes another one. To search only there: pensieve --workspace {around.name} search WORDS "
                    f"--under {folders[0]}"
                )

    def _guess(self) -> WorkspaceInfo:
        from pensieve_mcp.workspace import list_workspaces

        known = list_workspaces(self.environment)
        if not known:
            raise WorkspaceError(
                "There is no workspace yet.",
                hint="Name the folder of your documents: pensieve index FOLDER. Or look first: pensieve try",
                slug="no_folder",
            )
        try:
            here = Path.cwd().resolve()
        except FileNotFoundError:  # it was removed; then no folder of ours holds it
            holding = []
        else:
            holding = [info for info in known if any(_holds(root, here) for root in info.roots)]
        chosen = max(holding or known, key=lambda info: info.last_used)
        if len(known) > 1 or not holding:
            say(f"Workspace {chosen.name} ({', '.join(root.folder for root in chosen.roots)}).")
        return chosen


def _holds(root: Root, folder: Path) -> bool:
    return folder.is_relative_to(Path(root.folder).resolve())


def command_options(function: F) -> F:
    """For every command: the workspace options (hidden; `pensieve --help` shows them), and the Shell as first
    argument."""
    import functools

    def wrapped(**options: Any) -> Any:
        ctx = click.get_current_context()
        shell: Shell = ctx.obj if isinstance(ctx.obj, Shell) else Shell(os.environ)
        shell.take(options)
        return function(shell, **options)

    functools.update_wrapper(wrapped, function)
    return cast("F", workspace_options()(wrapped))


def leave(code: int) -> NoReturn:
    """End the command with this exit code."""
    click.get_current_context().exit(code)


def expect_folder(file: Path) -> None:
    """Before a file is written at a place somebody typed. Raises WorkspaceError where no file can be written there."""
    hint = "Make the folder, or name another place."
    if not is_there(file.parent):
        raise WorkspaceError(
            f"There is no folder {file.parent} to write {file.name} into.", hint=hint, slug="not_writable"
        )
    if not file.parent.is_dir():
        raise WorkspaceError(
            f"{file.parent} is a file, so {file.name} cannot be written into it.",
            hint=hint,
            slug="not_writable",
        )
    if not os.access(file if is_there(file) else file.parent, os.W_OK):
        raise WorkspaceError(
            f"{file} may not be written.",
            hint="Give yourself permission, or name another place.",
            slug="not_writable",
        )


class NewFile(click.Path):
    """A file to write, refused before a command begins where it cannot be written: what was asked meanwhile would be
    lost. Folders are not made, since a misspelt one is more likely than a new one."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if not (self.allow_dash and path == "-"):
            expect_folder(Path(os.fsdecode(path)))
        return path


def spare(file: Path, overwrite: bool) -> None:
    """Before a file is written at a place somebody typed. Raises WorkspaceError where one is there already."""
    expect_folder(file)
    if is_there(file) and not overwrite:
        raise WorkspaceError(
            f"{file} is there already.",
            hint="Give another name, or --overwrite to replace it.",
            slug="file_exists",
        )


class NearGroup(click.Group):
    """Commands of which a misspelt one is answered with the near ones, also those whose file is not imported yet."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        import difflib

        near = difflib.get_close_matches(name, self.list_commands(ctx))
        raise click.UsageError(
            f"No such command {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""), ctx
        )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def document_path(workspace: Workspace, text: str) -> str:
    """A document or folder as `root/relative/file`: given so, or as a path of this machine inside a root.

    Raises NoSuchDocument with near names, WorkspaceError where the machine does not let us look.
    """
    given = typed(text)
    if is_there(given):
        real = given.resolve()
        for root in workspace.roots:
            top = Path(root.folder).resolve()
            if real == top:
                return root.name
            if not root.is_file and real.is_relative_to(top):
                return f"{root.name}/{real.relative_to(top).as_posix()}"
    if not (found := workspace.prefix(text)):
        names = ", ".join(root.name for root in workspace.roots)
        raise NoSuchDocument(f"{text!r} names no document.", hint=f"Paths begin with {names}.")
    return found[0]


def chosen_name(info: WorkspaceInfo) -> str:
    return f"{info.name}: {', '.join(root.folder for root in info.roots) or 'no folders'}"

"""What the server was asked to serve: folders, state, settings, transport.

A host's working directory is often `/`, the home folder or a plugin's folder, so it counts only when it looks
like a project. No folder is no reason to die: the server starts, and every call says how to give one. This file
reads the environment for the whole door; opening anything is left to others.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.places import is_there, typed

FOLDERS_VARIABLE = "PENSIEVE_FOLDERS"
TOKEN_VARIABLE = "PENSIEVE_TOKEN"
PROJECT_VARIABLE = "CLAUDE_PROJECT_DIR"  # set by Claude Code for every server it starts
DEFAULT_HOST = "127.0.0.1"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

PROJECT_MARKS = (
    ".git", ".hg", ".svn", ".jj", "pyproject.toml", "setup.py", "requirements.txt", "package.json", "deno.json",
    "Cargo.toml", "go.mod", "pom.xml", "build.gradle", "build.gradle.kts", "CMakeLists.txt", "Makefile", "justfile",
    "Gemfile", "composer.json", "mix.exs", "Package.swift", "mkdocs.yml", ".obsidian", ".vscode", ".idea", ".claude",
    "CLAUDE.md", "AGENTS.md",
)  # fmt: skip


class BadOption(WorkspaceError):
    """An option that cannot be served; the program ends with status 2."""

    slug = "bad_option"


@dataclass(frozen=True, slots=True)
class Options:
    """A parsed command line. `http` is None for stdio. `folders` may be empty when `workspace` names one."""

    folders: tuple[str, ...] = ()
    folders_from: str = ""
    """Where the folders came from, for people: `arguments`, a variable's name or `working directory`; empty for
    none.
    """
    working_directory: str = ""
    workspace: str | None = None
    state: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    http: tuple[str, int] | None = None
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    structured: bool = False

    @property
    def given(self) -> bool:
        """Whether there is anything to open."""
        return bool(self.folders or self.workspace)

    def problems(self) -> list[WorkspaceError]:
        """What will keep every call from being answered, as far as a look at the folders shows."""
        if not self.given and not self.state:
            return [self.no_folder()]
        if all(map(_is_plainly_there, self.folders)):
            return []
        from pensieve_mcp.workspace import existing

        found = []
        for path in self.folders:
            try:
                existing(path)
            except WorkspaceError as error:
                found.append(error)
        return found

    def no_folder(self) -> WorkspaceError:
        """What every call answers while there is no folder."""
        return WorkspaceError(
            f"This server was given no folder, and its working directory, {self.working_directory}, "
            "does not look like a project.",
            hint="Ask the user to name the documents' folder in the server's entry: as an argument after "
            f"pensieve-mcp, or in the variable {FOLDERS_VARIABLE}; then restart the server.",
            slug="no_folder",
        )


def _is_plainly_there(path: str) -> bool:
    """Without words for what is not: those need more imports than a start has time for."""
    try:
        return is_there(typed(path))
    except WorkspaceError:
        return False


def version() -> str:
    """The installed version; `0` where the package runs from a bare folder."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("pensieve-statelm")
    except PackageNotFoundError:
        return "0"


def parser() -> argparse.ArgumentParser:
    """The command line of `pensieve-mcp`."""
    parser = argparse.ArgumentParser(
        prog="pensieve-mcp",
        description="MCP server that searches, reads, notes and forgets over folders of documents.",
        epilog=f"Without PATH: {FOLDERS_VARIABLE} (several, separated by {os.pathsep!r}), then {PROJECT_VARIABLE}, "
        "then the working directory if it is a project.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a folder or file to serve")
    parser.add_argument(
        "--workspace", metavar="NAME", help="name of the workspace; alone it opens an earlier one"
    )
    parser.add_argument("--state", metavar="DIR", help="where index, notes and history are kept")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="a setting, for example window_tokens=100000; may be repeated",
    )
    parser.add_argument(
        "--structured", action="store_true", help="publish output schemas and answer with structured content"
    )
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help=f"serve streamable HTTP at /mcp instead of stdio; HOST is {DEFAULT_HOST} unless given, "
        "port 0 takes a free one",
    )
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help=f"bearer token for --http; better in {TOKEN_VARIABLE}; made up and printed if there is none",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that clients may use for --http; may be repeated",
    )
    parser.add_argument("--version", action="version", version=f"pensieve-mcp {version()}")
    return parser


def read(argv: Sequence[str] | None, environment: Mapping[str, str], working_directory: Path) -> Options:
    """The options of a command line. Raises BadOption; argparse itself ends the program for unknown options."""
    given = parser().parse_args(argv)
    folders, source = _folders(given.paths, environment, working_directory, named=bool(given.workspace))
    http = _address(given.http) if given.http is not None else None
    token = given.token or environment.get(TOKEN_VARIABLE) or None
    if http and not token and http[0] not in LOOPBACK:
        raise BadOption(
            f"--http {given.http} listens beyond this machine, but there is no token.",
            hint=f"Set {TOKEN_VARIABLE} to a long random text, or listen on {DEFAULT_HOST}.",
        )
    return Options(
        folders=folders,
        folders_from=source,
        working_directory=str(working_directory),
        workspace=given.workspace or None,
        state=given.state or None,
        settings=_settings(given.settings),
        http=http,
        token=token,
        allowed_hosts=tuple(given.allow_host),
        structured=given.structured,
    )


def _folders(
    paths: Sequence[str], environment: Mapping[str, str], working_directory: Path, *, named: bool
) -> tuple[tuple[str, ...], str]:
    # Hosts pass optional settings that were left empty as empty arguments.
    if arguments := tuple(path for path in paths if path.strip()):
        return arguments, "arguments"
    if listed := tuple(
        path for path in environment.get(FOLDERS_VARIABLE, "").split(os.pathsep) if path.strip()
    ):
        return listed, FOLDERS_VARIABLE
    if named:
        return (), ""
    if (project := environment.get(PROJECT_VARIABLE, "").strip()) and _narrow(Path(project)):
        return (project,), PROJECT_VARIABLE
    if _narrow(working_directory) and any((working_directory / mark).exists() for mark in PROJECT_MARKS):
        return (str(working_directory),), "working directory"
    return (), ""


def _narrow(folder: Path) -> bool:
    """Whether a folder nobody named may be indexed: not a whole disk and not somebody's whole home."""
    try:
        folder = folder.resolve()
        return folder != Path(folder.anchor) and folder != Path.home().resolve()
    except (OSError, RuntimeError):  # a folder that is gone, a home nobody knows
        return False


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or DEFAULT_HOST
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise BadOption(
            f"--http is {text!r}, but must be PORT or HOST:PORT.", hint="For example: --http 8722."
        )
    return host, int(port)


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadOption(
                f"--set is {pair!r}, but must be NAME=VALUE.", hint="For example: --set window_tokens=100000."
            )
        settings[name.strip()] = value
    return settings

"""The root command and its groups: which commands there are, and which file holds each."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from pensieve_mcp.cli.numbers import plain_numbers
from pensieve_mcp.cli.shell import NearGroup, Shell, workspace_options

COMMANDS: dict[str, tuple[str, str]] = {
    "try": ("trial", "try_it"),
    "ask": ("ask", "ask"),
    "index": ("indexing", "index"),
    "search": ("finding", "search"),
    "read": ("finding", "read"),
    "note": ("noting", "note"),
    "handoff": ("handing", "handoff"),
    "consolidate": ("consolidating", "consolidate"),
    "status": ("indexing", "status"),
    "skipped": ("indexing", "skipped"),
    "explain": ("indexing", "explain"),
    "watch": ("watching", "watch"),
    "cast": ("casting", "cast"),
    "spec": ("casting", "spec"),
    "episodes": ("episodes", "episodes"),
    "forget": ("casting", "forget"),
    "restore": ("casting", "restore"),
    "plot": ("ask", "plot"),
    "purge": ("episodes", "purge"),
    "workspace": ("workspaces", "workspace"),
    "install": ("hosts", "install"),
    "uninstall": ("hosts", "uninstall"),
    "doctor": ("doctor", "doctor"),
    "serve": ("serving", "serve"),
    "gateway": ("gateway", "gateway"),
    "run": ("gateway", "run"),
    "hook": ("hooking", "hook"),
    "model": ("model", "model"),
    "train": ("train", "train"),
    "eval": ("evaluating", "evaluation"),
}
"""Command → (file, function), in the order of `--help`: from the first run to the machine room."""


class LazyGroup(NearGroup):
    """Imports the file of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        file, function = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"pensieve_mcp.cli.{file}"), function)
        return plain_numbers(command)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with: pensieve try. Then: pensieve index FOLDER, pensieve search WORDS.",
)
@click.version_option(package_name="pensieve-statelm", prog_name="pensieve")
@workspace_options(hidden=False)
def app(**options: Any) -> None:
    """Search, read and note over folders of documents, and let a model really delete what it has read.

    Commands work on the workspace named by --workspace, --folder or --state; without these on the one that holds
    the current folder, else on the one used last.
    """
    shell = Shell(environment=os.environ)
    shell.take(options)
    click.get_current_context().obj = shell

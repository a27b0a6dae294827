"""handoff: the record of a conversation for whoever goes on, also for a host's hook after a compaction."""

from __future__ import annotations

import dataclasses

import click

from pensieve_mcp.cli.output import put, put_json
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.errors import Miscast


@click.command(short_help="Goal, findings with sources, open ends and the next step.")
@click.option("--episode", "handle", metavar="E", help="Of this conversation; else of the one used last.")
@click.option("--max-bytes", type=click.IntRange(min=500), default=8_000, show_default=True)
@json_option
@command_options
def handoff(shell: Shell, handle: str | None, max_bytes: int, as_json: bool) -> None:
    """Goal, constraints, findings with sources, what is pending and unknown, and the next step."""
    from pensieve_mcp.spellbook.handoff import as_text, gather

    with shell.open() as workspace:
        if handle is None:
            latest = workspace.ledger.episodes(limit=1)
            if not latest and not workspace.notebook.list(limit=1).lines:
                raise Miscast(
                    "There is no conversation yet, and no note.",
                    hint="It begins with the first call of a tool.",
                    slug="no_episode",
                )
            handle = latest[0].handle if latest else None  # notes alone are handed on in a new one
        record = gather(workspace.episode("cli", handle=handle))
        put_json(dataclasses.asdict(record)) if as_json else put(as_text(record, max_bytes=max_bytes))

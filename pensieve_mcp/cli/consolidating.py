"""consolidate: notes of many conversations made one notebook, by rule."""

from __future__ import annotations

import dataclasses

import click

from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@json_option
@command_options
def consolidate(shell: Shell, dry_run: bool, as_json: bool) -> None:
    """Merge notes that say the same, mark those that contradict better ones, keep what conversations came to."""
    from pensieve_mcp.consolidation import consolidate as run

    with shell.open() as workspace:
        done = run(workspace, dry_run=dry_run)
    if as_json:
        data = dataclasses.asdict(done)
        for one in data["made"]:
            one.pop("evidence")
        put_json(data)
        return
    if done.busy:
        say("Another process is consolidating; nothing was done.")
        return
    for one in done.made:
        told = f" from {', '.join(one.keys)}" if one.keys else f": {one.reason}" if one.reason else ""
        put(f"{one.what}\t{one.key}{told}")
    for problem in done.problems:
        say(problem)
    words = "would be made" if dry_run else "made"
    say(
        f"{len(done.made):,} changes {words}; {done.candidates:,} new results of {done.conversations:,} conversations."
    )

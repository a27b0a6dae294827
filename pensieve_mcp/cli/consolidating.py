"""consolidate: notes of many conversations made one notebook, by rule, and where one is named with a model's words."""

from __future__ import annotations

import dataclasses

import click

from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.spellbook.wording import count


@click.command(short_help="Merge notes that say the same, mark contradictions.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@click.option(
    "--backend",
    type=click.Choice(["openai", "anthropic", "local", "scripted"]),
    help="Let a model word notes about one quote as one; its text is checked. Default: by rule alone.",
)
@click.option("--model", metavar="NAME", default="", help="Model of the endpoint, a GGUF file, or a script.")
@click.option(
    "--url", metavar="URL", default="", help="Address of an OpenAI-compatible endpoint, or of Anthropic's."
)
@json_option
@command_options
def consolidate(
    shell: Shell, dry_run: bool, backend: str | None, model: str, url: str, as_json: bool
) -> None:
    """Merge notes that say the same, mark those that contradict others, keep what conversations came to."""
    from pensieve_mcp.consolidation import consolidate as run

    editor = None
    if backend is not None:
        from pensieve_mcp.settings import data_folder
        from pensieve_mcp.statelm.rewording import rewriter

        editor = rewriter(
            shell.environment, home=data_folder(shell.environment), backend=backend, model=model, url=url
        )
    try:
        with shell.open() as workspace:
            done = run(workspace, dry_run=dry_run, reword=editor)
    finally:
        if editor is not None:
            editor.close()
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
        f"{count(len(done.made), 'change')} {words}; {count(done.candidates, 'new result')} of "
        f"{count(done.conversations, 'conversation')}."
    )
    if done.reworded or done.refused:
        say(f"Of the model's texts, taken: {done.reworded:,}; not saying the same: {done.refused:,}.")

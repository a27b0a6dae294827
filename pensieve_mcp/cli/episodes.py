"""episodes, purge: conversations as the ledger holds them, for people who want to look or to let go."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from pensieve_mcp.cli.output import bold, dim, put, put_json, put_table, say
from pensieve_mcp.cli.shell import NearGroup, NewFile, Shell, command_options, json_option, spare
from pensieve_mcp.spellbook.wording import count, one_line

if TYPE_CHECKING:
    from pensieve_mcp.ledger.store import EpisodeRecord
    from pensieve_mcp.workspace import Workspace

DAY_SECONDS = 86_400


@click.group(cls=NearGroup)
def episodes() -> None:
    """Conversations: list, show, replay, export."""


@episodes.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
@command_options
def list_(shell: Shell, limit: int, as_json: bool) -> None:
    """Conversations, the last used first."""
    with shell.open() as workspace:
        found = [(one, *_standing(workspace, one)) for one in workspace.ledger.episodes(limit=limit)]
        if as_json:
            put_json(
                [dataclasses.asdict(one) | {"title": title, "state": state} for one, title, state in found]
            )
            return
        put_table(
            ("episode", "door", "host", "state", "last used", "title"),
            [(one.handle, one.door, one.host, state, _when(one.last), title) for one, title, state in found],
        )
        if not found:
            say("No episodes yet.")


def _standing(workspace: Workspace, record: EpisodeRecord) -> tuple[str, str]:
    """What a conversation is about, and whether it was answered: from the goal of its plan, its first search or
    its answer."""
    transcript = workspace.ledger.transcript(record.episode_id)
    goal = workspace.notebook.read_plan(scope=str(record.episode_id)).goal
    searched = next(
        (e.message.label for e in transcript.entries if e.message.tool == "searchEngine" and e.message.label),
        "",
    )
    answer = transcript.sealed[0].answer if transcript.sealed else ""
    title = record.title or goal or searched.partition("“")[2].removesuffix("”") or answer
    state = "answered" if transcript.sealed and record.state == "open" else record.state
    return one_line(title, 80), state


@episodes.command()
@click.argument("handle", metavar="EPISODE")
@json_option
@command_options
def show(shell: Shell, handle: str, as_json: bool) -> None:
    """What is in mind in a conversation, and what was forgotten of it."""
    from pensieve_mcp.budget import budget_of
    from pensieve_mcp.ledger.stubs import handle_of, standing_tokens

    with shell.open() as workspace:
        record = workspace.ledger.episode(handle)
        transcript = workspace.ledger.transcript(record.episode_id)
        budget = budget_of(transcript, workspace.settings, sees="tool traffic", physical=False)
        entries = [
            {
                "msg_id": handle_of(entry.message),
                "role": entry.message.role,
                "tool": entry.message.tool,
                "label": entry.message.label,
                "tokens": entry.message.tokens,
                "standing_tokens": standing_tokens(entry),
                "forgotten": entry.forgotten,
                "pinned": entry.pinned,
                "error": entry.message.is_error,
            }
            for entry in transcript.entries
        ]
        if as_json:
            put_json(
                {
                    "episode": dataclasses.asdict(record),
                    "rounds": transcript.rounds,
                    "visible_tokens": transcript.visible_tokens,
                    "peak_tokens": transcript.peak_tokens,
                    "freed_tokens": transcript.freed_tokens,
                    "left_tokens": budget.left,
                    "answers": [sealed.answer for sealed in transcript.sealed],
                    "entries": entries,
                }
            )
            return
        put(
            f"{record.handle}: {count(transcript.rounds, 'round')}, "
            f"{count(transcript.visible_tokens, 'token')} visible, "
            f"peak {transcript.peak_tokens:,}, freed {transcript.freed_tokens:,}."
        )
        put_table(
            ("id", "role", "spell", "what", "tokens", "now"),
            [
                (
                    str(e["msg_id"]),
                    str(e["role"]),
                    str(e["tool"]),
                    str(e["label"]),
                    f"{e['tokens']:,}",
                    "forgotten"
                    if e["forgotten"]
                    else "pinned"
                    if e["pinned"]
                    else "error"
                    if e["error"]
                    else "visible",
                )
                for e in entries
            ],
        )
        for sealed in transcript.sealed:
            put(bold("Answer: ") + sealed.answer)


@episodes.command(short_help="Every message of a conversation in full, in order.")
@click.argument("handle", metavar="EPISODE")
@click.option("--curve/--no-curve", default=True, help="Draw the visible tokens after each step.")
@command_options
def replay(shell: Shell, handle: str, curve: bool) -> None:
    """Every message of a conversation in full, in order, with deletions where they happened."""
    from pensieve_mcp.cli.curve import draw, points_of
    from pensieve_mcp.errors import StorageError
    from pensieve_mcp.ledger.events import IN_MIND, Forgot, Recalled, Said, Sealed
    from pensieve_mcp.ledger.stubs import handle_of
    from pensieve_mcp.ledger.transfer import sizes

    with shell.open() as workspace:
        record = workspace.ledger.episode(handle)
        events = workspace.ledger.events(record.episode_id)
        for event in events:
            if isinstance(event, Said):
                message = event.message
                put(
                    dim(
                        f"── {handle_of(message)} · {message.role} · {message.tool} · {message.tokens:,} tokens"
                    )
                )
                try:
                    put(workspace.ledger.content(message))
                except StorageError as error:
                    put(dim(f"[{error.message}]"))
            elif isinstance(event, Forgot):
                put(
                    dim(f"── forgotten: {', '.join(f'm{n}' for n in event.numbers)}")
                    + (f" · {event.summary}" if event.summary else "")
                )
            elif isinstance(event, Recalled):
                put(dim(f"── restored: {', '.join(f'm{n}' for n in event.numbers)}"))
            elif isinstance(event, Sealed):
                put(bold("── answer: ") + event.answer)
        if curve and events:
            put("")
            counted = sizes(workspace.ledger.extra(record.episode_id).get(IN_MIND))
            for line in draw(points_of(events, counted)):
                put(line)


@episodes.command(short_help="A conversation as JSON lines, to FILE or stdout.")
@click.argument("handle", metavar="EPISODE")
@click.argument("file", required=False, type=NewFile(allow_dash=True))
@click.option("--overwrite", is_flag=True, help="Write over a file that is there.")
@click.option("--exact", is_flag=True, help="Keep what looks like a secret; it is taken out otherwise.")
@command_options
def export(shell: Shell, handle: str, file: str | None, overwrite: bool, exact: bool) -> None:
    """A conversation as JSON lines, to FILE or stdout; `episodes import` reads it."""
    from pensieve_mcp.redaction import redact

    with shell.open() as workspace:
        lines = workspace.ledger.export_episode(
            workspace.ledger.episode(handle).episode_id, redact=None if exact else redact
        )
        if file is None or file == "-":
            for line in lines:
                put(line.rstrip("\n"))
            return
        spare(Path(file), overwrite)
        with Path(file).open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(lines)
        say(f"Written to {file}.")


@episodes.command("import", short_help="A conversation from what episodes export wrote.")
@click.argument("file", type=click.File("r", encoding="utf-8-sig"))
@command_options
def import_(shell: Shell, file: TextIO) -> None:
    """A conversation from a file that `episodes export` wrote, as a new one (- for stdin)."""
    with shell.open() as workspace:
        put(workspace.ledger.import_episode(file).handle)


@click.command()
@click.option("--episode", "handle", metavar="E", help="Purge this conversation.")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=0),
    metavar="DAYS",
    help="Purge those not used for so long.",
)
@click.option("--content-only", is_flag=True, help="Keep the list of what happened, remove the texts.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@command_options
def purge(
    shell: Shell, handle: str | None, days: int | None, content_only: bool, yes: bool, as_json: bool
) -> None:
    """Really remove conversations from this machine. Cannot be undone; notes stay, but for scratch notes of `ask`."""
    from pensieve_mcp.tracing import purge_conversations

    if (handle is None) == (days is None):
        raise click.UsageError("Name one of --episode E and --older-than DAYS.")
    with shell.open() as workspace:
        record = workspace.ledger.episode(handle) if handle else None
        before = None if days is None else time.time() - days * DAY_SECONDS
        old = 1 if before is None else sum(one.last < before for one in workspace.ledger.all_episodes())
        if not old and not as_json:
            put(f"No conversation is unused for {count(days or 0, 'day')}; nothing is removed.")
            return
        if not yes and old:
            what = (
                f"episode {record.handle}"
                if record
                else f"{count(old, 'conversation')} not used for {count(days or 0, 'day')}"
            )
            click.confirm(f"Remove {what} from workspace {workspace.name} for good?", abort=True, err=True)
        gone, messages, freed = purge_conversations(
            workspace,
            before=before,
            episode_id=record.episode_id if record else None,
            content_only=content_only,
        )
        if as_json:
            put_json({"episodes": gone, "messages": messages, "freed_bytes": freed})
            return
        put(f"{count(gone, 'episode')}, {count(messages, 'message')} removed, {count(freed, 'byte')} freed")


def _when(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).astimezone().strftime("%Y-%m-%d %H:%M")

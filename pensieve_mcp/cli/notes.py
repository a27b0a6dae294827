"""Keeping notes true, by shell: check evidence, compare revisions, settle contests, withdraw or purge a source."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, get_args

import click

from pensieve_mcp.cli.output import bold, put, put_json, put_table, say
from pensieve_mcp.cli.shell import Shell, command_options, document_path, json_option, leave
from pensieve_mcp.errors import Miscast, NoSuchDocument, NoSuchNote
from pensieve_mcp.notebook.types import EvidenceState, Status
from pensieve_mcp.spellbook.wording import count

if TYPE_CHECKING:
    from pensieve_mcp.notebook.types import Note, NoteFilter, Revoked
    from pensieve_mcp.tracing import Traced
    from pensieve_mcp.workspace import Workspace

AUTHOR = "cli"
STATES = get_args(EvidenceState)
STATUSES = get_args(Status)


def only(
    workspace: Workspace, states: tuple[str, ...], statuses: tuple[str, ...], under: str | None
) -> NoteFilter:
    """The filter that a list's or search's options mean."""
    from pensieve_mcp.notebook.types import NoteFilter

    return NoteFilter(
        states=tuple(states),  # type: ignore[arg-type]  # click lets only known ones through
        statuses=tuple(statuses),  # type: ignore[arg-type]
        under=source_path(workspace, under) if under else "",
    )


def source_path(workspace: Workspace, text: str) -> str:
    """A document or folder as evidence names it; also one that is not there any more. Raises NoSuchDocument with near
    names for what never was a source."""
    from pensieve_mcp.tracing import known_source

    try:
        path = document_path(workspace, text)
    except NoSuchDocument as unknown:
        if unknown.slug == "outside_roots" or not text.strip("/ "):
            raise
        path = text.strip().rstrip("/").removeprefix("./")
    roots = {root.name for root in workspace.roots}
    if path.partition("/")[0] in roots or len(roots) != 1:
        return known_source(workspace, path)
    return known_source(workspace, path, f"{next(iter(roots))}/{path}")


@click.command(short_help="Look at the evidence of all notes again.")
@click.option("--index/--no-index", "index", default=True, help="Look for changed files first.")
@click.option("--strict", is_flag=True, help="Exit with 1 when evidence changed, is gone or unsupported.")
@json_option
@command_options
def check(shell: Shell, index: bool, strict: bool, as_json: bool) -> None:
    """Look at the evidence of all notes again; unchanged files are not read."""
    from pensieve_mcp.evidence import check_all

    with shell.open() as workspace:
        if index:
            workspace.build_now()
        told = check_all(workspace, author=AUTHOR)
    if as_json:
        put_json(
            dataclasses.asdict(told) | {"expired": [{"key": k, "reason": why} for k, why in told.expired]}
        )
    else:
        put_table(
            ("key", "was", "is", "where", "detail"),
            [
                (c.key, c.before, c.after, f"{c.path} {c.locator}".strip(), c.detail or c.quote)
                for c in told.changes
            ],
        )
        for key, why in told.expired:
            put(f"{key}\tneeds review\t{why}")
        counts = ", ".join(f"{number:,} {state}" for state, number in sorted(told.states.items())) or "none"
        say(f"{count(told.notes, 'note')}; evidence: {counts}. {count(told.read, 'document')} read.")
    bad = sum(told.states.get(state, 0) for state in ("changed", "gone", "unsupported", "revoked"))
    if strict and (bad or told.expired):
        leave(1)


@click.command(short_help="What changed between two revisions.")
@click.argument("key")
@click.argument("old", type=click.IntRange(min=1), required=False)
@click.argument("new", type=click.IntRange(min=1), required=False)
@json_option
@command_options
def diff(shell: Shell, key: str, old: int | None, new: int | None, as_json: bool) -> None:
    """What changed between two revisions; without numbers in the last change."""
    with shell.open() as workspace:
        notebook = workspace.notebook
        current = notebook.current(key)
        if current is None:
            notebook.read(key)  # raises, with near names
            raise NoSuchNote(f"There is no note {key!r}.")
        after = notebook.read(key, new or current.revision)
        before_number = old or after.revision - 1
        if before_number < 1:
            raise Miscast(
                f"{key!r} has one revision only.",
                hint="There is nothing to compare yet.",
                slug="one_revision",
            )
        before = notebook.read(key, before_number)
        lines = list(
            difflib.unified_diff(
                as_lines(before),
                as_lines(after),
                f"{key} revision {before.revision}",
                f"{key} revision {after.revision}",
                lineterm="",
            )
        )
        if as_json:
            put_json({"key": key, "old": before.revision, "new": after.revision, "diff": lines})
            return
        for line in lines:
            put(bold(line) if line.startswith(("---", "+++")) else line)
        if not lines:
            say("They say the same.")


def as_lines(found: Note) -> list[str]:
    """A note as lines to compare: what is said first, then what it rests on."""
    lines = [f"summary: {found.summary}"]
    if found.deleted:
        lines.append("deleted")
    if found.status != "active":
        lines.append(f"status: {found.status}{f' ({found.reason})' if found.reason else ''}")
    for name in ("kind", "applies_to", "valid"):
        if value := getattr(found, name):
            lines.append(f"{name}: {value}")
    if found.links:
        lines.append(f"links: {', '.join(found.links)}")
    lines += ["", *found.content.splitlines(), ""]
    lines += [
        f"evidence: {e.path or (f'm{e.message}' if e.message else '')} “{e.quote}”" for e in found.evidence
    ]
    return lines


@click.command()
@click.argument("key")
@click.argument("revision", type=click.IntRange(min=1))
@click.option("--expect-revision", type=click.IntRange(min=0), help="Refuse if the note has changed since.")
@command_options
def restore(shell: Shell, key: str, revision: int, expect_revision: int | None) -> None:
    """Make an old revision the current one again, as a new revision."""
    with shell.open() as workspace:
        back = workspace.notebook.restore(key, revision, author=AUTHOR, expect_revision=expect_revision)
        put(f"{back.key}, revision {back.revision}, as it was at {revision}")
        for warning in back.warnings:
            say(warning)


@click.command()
@click.argument("key")
@click.argument("new", type=click.Choice(STATUSES))
@click.option("--reason", default="", help="Why; told to every reader.")
@command_options
def status(shell: Shell, key: str, new: Status, reason: str) -> None:
    """Say what a note is good for. `active` also ends a contest in favour of the current revision."""
    with shell.open() as workspace:
        changed = workspace.notebook.set_status(key, new, reason, author=AUTHOR)
        put(f"{changed.key}, revision {changed.revision}: {changed.status}")


@click.command(short_help="End a contest between two claims under one key.")
@click.argument("key")
@click.argument("revision", type=click.IntRange(min=1))
@command_options
def settle(shell: Shell, key: str, revision: int) -> None:
    """End a contest between two claims under one key: this revision is right."""
    with shell.open() as workspace:
        done = workspace.notebook.settle(key, revision, author=AUTHOR)
        put(f"{done.key}, revision {done.revision}: {done.summary}")


@click.command()
@click.option("--source", metavar="PATH", help="A document, or a folder with all below it.")
@click.option("--reason", default="", help="Why; told to every reader.")
@click.option(
    "--undo",
    is_flag=True,
    help="Let the source count again; the notes it marked are checked anew, and set back where that holds.",
)
@json_option
@command_options
def revoke(shell: Shell, source: str | None, reason: str, undo: bool, as_json: bool) -> None:
    """Withdraw a source: what rests on it says so. Without --source, list what was withdrawn."""
    from pensieve_mcp.evidence import check_all
    from pensieve_mcp.tracing import messages_showing

    with shell.open() as workspace:
        notebook = workspace.notebook
        if source is None:
            known = notebook.revoked_sources()
            if as_json:
                put_json([dataclasses.asdict(one) for one in known])
            else:
                put_table(("source", "by", "reason"), [(one.path, one.author, one.reason) for one in known])
            return
        path = source_path(workspace, source)
        if undo:
            if not notebook.allow(path):
                raise Miscast(
                    f"{path} was not revoked.",
                    hint="pensieve note revoke lists what was.",
                    slug="not_revoked",
                )
            check_all(workspace, author=AUTHOR)
            undone = notebook.reinstate(path, author=AUTHOR)
            if as_json:
                put_json(dataclasses.asdict(undone))
                return
            put(f"{path} counts again as a source.")
            for key in undone.back:
                put(f"set back\t{key}")
            for key, why in undone.left:
                put(f"left as it is\t{key}\t{why}")
            if undone.left:
                say(
                    "What was left is yours to judge: pensieve note show KEY, pensieve note status KEY active."
                )
            return
        done = notebook.revoke(path, messages=messages_showing(workspace, path), author=AUTHOR, reason=reason)
        _tell(done, f"{path} is revoked as a source.", as_json)


@click.command(short_help="Really remove a note, or all that came from a source.")
@click.argument("key", required=False)
@click.option("--source", metavar="PATH", help="Every note that rests on this document or folder alone.")
@click.option("--keep-messages", is_flag=True, help="Leave the texts of conversations that show or tell it.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@command_options
def purge(
    shell: Shell,
    key: str | None,
    source: str | None,
    keep_messages: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Really remove a note with all revisions, or all that came from a source, also from conversations."""
    from pensieve_mcp import tracing

    if (key is None) == (source is None):
        raise click.UsageError("Name a note, or a source with --source PATH.")
    with shell.open() as workspace:
        path = source_path(workspace, source) if source is not None else ""
        named = repr(key) if key is not None else path
        found = (
            tracing.trace_note(workspace, key) if key is not None else tracing.trace_source(workspace, path)
        )
        if keep_messages:
            found = dataclasses.replace(found, messages=())
        if dry_run or not (found.notes.purged or found.notes.review or found.messages):
            _tell_traced(
                found,
                f"Of {named} nothing is removed{' yet' if dry_run else ': nothing came from it'}.",
                as_json,
            )
            return
        if not yes:
            others = (
                f", and its quotes from {count(len(found.notes.review), 'other')}"
                if found.notes.review
                else ""
            )
            texts = f", and the texts of {count(len(found.messages), 'message')}" if found.messages else ""
            asked = (
                f"Really remove {count(len(found.notes.purged), 'note')} with all revisions{others}{texts}?"
            )
            click.confirm(asked, abort=True, err=True)
        done = (
            tracing.purge_note(workspace, key, messages=not keep_messages)
            if key is not None
            else tracing.purge_source(workspace, path, messages=not keep_messages, author=AUTHOR)
        )
        _tell_traced(done, f"What came from {named} is removed.", as_json)


def _tell_traced(found: Traced, head: str, as_json: bool) -> None:
    if as_json:
        put_json(
            dataclasses.asdict(found.notes)
            | {"messages": found.messages, "plans": found.plans, "telling": found.telling}
        )
        return
    _tell(found.notes, head, False)
    if found.messages:
        put(f"messages\t{', '.join(f'm{number}' for number in found.messages)}")
    for other in found.telling:
        put(f"tells it, too\t{other}")
    for handle in found.plans:
        say(
            f"The plan of conversation {handle} tells it, too; pensieve purge --episode {handle} removes that."
        )


def _tell(done: Revoked, head: str, as_json: bool) -> None:
    if as_json:
        put_json(dataclasses.asdict(done))
        return
    put(head)
    for words, keys in (
        ("removed", done.purged),
        ("revoked", done.revoked),
        ("needs review", done.review),
        ("links to such", done.linked),
    ):
        for key in keys:
            put(f"{words}\t{key}")


COMMANDS = (check, diff, restore, status, settle, revoke, purge)

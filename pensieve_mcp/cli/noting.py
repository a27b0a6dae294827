"""note: the notebook by shell. Deleting context never touches it; every change keeps the revision before."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pensieve_mcp.cli import notes
from pensieve_mcp.cli.output import bold, dim, put, put_json, put_table, say
from pensieve_mcp.cli.shell import NearGroup, Shell, command_options, json_option, spare
from pensieve_mcp.cli.translating import for_person
from pensieve_mcp.errors import Miscast
from pensieve_mcp.spellbook.wording import count

if TYPE_CHECKING:
    from pensieve_mcp.notebook.types import Evidence, Note, NoteLine
    from pensieve_mcp.workspace import Workspace

AUTHOR = "cli"


@click.group(cls=NearGroup)
def note() -> None:
    """What was learned: list, show, write, check, search, export."""


for command in notes.COMMANDS:
    note.add_command(command)


def filter_options(function: Callable[..., None]) -> Callable[..., None]:
    """--evidence, --status and --under, as a list and a search take them."""
    for option in (
        click.option("--under", metavar="PATH", help="Only notes that apply to, or rest on, this path."),
        click.option(
            "--status",
            "statuses",
            type=click.Choice(notes.STATUSES),
            multiple=True,
            help="Repeat for several.",
        ),
        click.option(
            "--evidence",
            "states",
            type=click.Choice(notes.STATES),
            multiple=True,
            help="With evidence in this state; repeat for several.",
        ),
    ):
        function = option(function)
    return function


@note.command("list")
@click.option("--prefix", default="", help="Only keys that begin so.")
@click.option(
    "--all", "private", is_flag=True, help="Scratch notes of questions asked with pensieve ask, too."
)
@filter_options
@json_option
@command_options
def list_(
    shell: Shell,
    prefix: str,
    private: bool,
    states: tuple[str, ...],
    statuses: tuple[str, ...],
    under: str | None,
    as_json: bool,
) -> None:
    """Keys and summaries of all notes."""
    with shell.open() as workspace:
        chosen = dataclasses.replace(notes.only(workspace, states, statuses, under), private=private)
        lines: list[NoteLine] = []
        cursor: str | None = None
        while True:
            page = workspace.notebook.list(prefix, cursor=cursor, limit=500, only=chosen)
            lines += page.lines
            cursor = page.cursor
            if cursor is None:
                break
        if as_json:
            put_json([dataclasses.asdict(line) | {"doubts": dict(line.doubts)} for line in lines])
            return
        doubted = any(line.doubts for line in lines)
        judged = any(line.status != "active" for line in lines)
        put_table(
            (
                "key",
                "summary",
                "revision",
                *(["status"] if judged else []),
                *(["evidence"] if doubted else []),
            ),
            [
                (
                    line.key,
                    line.summary,
                    str(line.revision),
                    *([line.status] if judged else []),
                    *([line.doubted()] if doubted else []),
                )
                for line in lines
            ],
        )
        if not lines:
            say("No notes yet.")


@note.command()
@click.argument("key")
@click.option("--revision", type=click.IntRange(min=1), help="How it was at this revision.")
@json_option
@command_options
def show(shell: Shell, key: str, revision: int | None, as_json: bool) -> None:
    """One note with its evidence."""
    with shell.open() as workspace:
        from pensieve_mcp.evidence import check_note

        found = check_note(workspace, workspace.notebook.read(key, revision))
        force = workspace.notebook.in_force(found)
        neighbours = workspace.notebook.neighbours(key)
        if as_json:
            near = [{"key": n.line.key, "summary": n.line.summary, "how": n.how} for n in neighbours]
            rival = {"in_force": plain(force)} if force is not found else {}
            put_json(plain(found) | {"neighbours": near} | rival)
            return
        if found.status != "active":
            head = (
                f"Unknown, check: {found.reason}"
                if found.status == "revoked"
                else f"{found.status}: {found.reason}"
            )
            put(bold(head))
        if force is not found:
            put(f"In force is revision {force.revision} by {force.author or 'unknown'}: {force.summary}")
            put(force.content)
            put("")
        put(
            bold(found.key)
            + dim(f"  revision {found.revision}, {_when(found.updated)}, by {found.author or 'unknown'}")
        )
        put(found.summary)
        if found.content.strip() != found.summary.strip():
            put("")
            put(found.content)
        for piece in found.evidence:
            where = " ".join(
                p for p in (f"c{piece.chunk_id}" if piece.chunk_id else "", piece.path, piece.locator) if p
            )
            detail = f" ({piece.detail})" if piece.detail and piece.state not in ("ok", "unchecked") else ""
            put(dim(f"[{piece.state}] {where}") + (f" “{piece.quote}”" if piece.quote else "") + detail)
        for near_one in neighbours:
            put(dim(f"{near_one.how}: {near_one.line}"))


@note.command()
@click.argument("key")
@click.argument("content", required=False)
@click.option(
    "--summary", help="One line that tells what is in it; without it the first line of the content."
)
@click.option(
    "--quote", metavar="QUOTE", multiple=True, help="Words of a document as evidence; looked up. Repeat it."
)
@click.option(
    "--from", "place", metavar="PLACE", help="Where the quotes stand: c48, m12 or a document's path."
)
@click.option("--applies-to", default="workspace", help="workspace, project or a path.")
@click.option(
    "--kind",
    type=click.Choice(("user", "observed", "tool", "guess")),
    help="Who says so; default: user, you do, and with --quote or --from the document.",
)
@click.option("--valid", default="", metavar="UNTIL", help="A date, or a document whose change ends it.")
@click.option("--observed", metavar="WHEN", help="When it was seen, where that is not now: 2026-03-05.")
@click.option("--link", "links", metavar="KEY", multiple=True, help="A related note; repeat it for several.")
@click.option("--append", is_flag=True, help="Add to the note instead of replacing it.")
@click.option("--expect-revision", type=click.IntRange(min=0), help="Refuse if the note has changed since.")
@json_option
@command_options
def write(
    shell: Shell,
    key: str,
    content: str | None,
    summary: str | None,
    quote: tuple[str, ...],
    place: str | None,
    applies_to: str,
    kind: Literal["user", "observed", "tool", "guess"] | None,
    valid: str,
    observed: str | None,
    links: tuple[str, ...],
    append: bool,
    expect_revision: int | None,
    as_json: bool,
) -> None:
    """Write CONTENT (or what comes on stdin) under KEY. An old note of this key becomes a revision.

    A quote that does not stand where --from says is told on stderr; the note is stored all the same, marked
    unsupported, and the exit code is 0. `pensieve note check --strict` ends with 1 as long as there is such a one.
    """
    if content is None or content == "-":
        if sys.stdin.isatty():
            say("Reading the note from here; end with Ctrl-D.")
        content = sys.stdin.read()
    if not content.strip():
        raise click.UsageError("The content is empty.")
    from pensieve_mcp.evidence import validity
    from pensieve_mcp.spellbook.noting import compared, observed_time

    seen = observed_time(observed)
    with shell.open() as workspace:
        evidence = _evidence(workspace, quote, place)
        if append:
            written = workspace.notebook.update(
                key,
                "append",
                content,
                summary,
                expect_revision=expect_revision,
                evidence=evidence,
                author=AUTHOR,
            )
        else:
            until, basis = validity(workspace, valid)
            written = workspace.notebook.write(
                key,
                summary or _first_line(content),
                content,
                evidence=evidence,
                applies_to=applies_to,
                author=AUTHOR,
                expect_revision=expect_revision,
                kind=kind or ("" if evidence else "user"),
                valid=until,
                valid_basis=basis,
                observed=seen,
                links=links,
                weigh=True,
            )
        written = compared(workspace, written)
        put_json(plain(written)) if as_json else put(f"{written.key}, revision {written.revision}")
        for piece in written.evidence:
            if piece.state != "ok":
                say(_warning(piece))
        for warning in written.warnings:
            say(for_person(warning))


def _evidence(workspace: Workspace, quotes: tuple[str, ...], place: str | None) -> tuple[Evidence, ...]:
    from pensieve_mcp.evidence import look_up

    chunk = place if place and place[:1] in "cCmM" and place.isascii() and place[1:].isdecimal() else None
    path = place if place and chunk is None else None
    given = [(chunk, path, quote) for quote in quotes or (("",) if place else ())]
    return look_up(workspace, given) if given else ()


def _warning(piece: Evidence) -> str:
    """What a writer must know of evidence that does not stand as he gave it."""
    where = piece.path or (f"c{piece.chunk_id}" if piece.chunk_id else piece.locator)
    if piece.state == "unsupported" and piece.quote:
        told = f"Warning: the quote was not found{f' in {where}' if where else ''}: “{piece.quote}”."
        return f"{told} {piece.detail + ' ' if piece.detail else ''}The note is stored, its evidence is unsupported."
    told = f"Warning: the evidence {where or piece.quote} is {piece.state}."
    return f"{told} {piece.detail}".strip()


def _first_line(content: str) -> str:
    line = content.strip().splitlines()[0]
    return line if len(line) <= 160 else line[:159] + "…"


@note.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--words", is_flag=True, help="By words alone, not by meaning.")
@filter_options
@json_option
@command_options
def search(
    shell: Shell,
    query: tuple[str, ...],
    limit: int,
    words: bool,
    states: tuple[str, ...],
    statuses: tuple[str, ...],
    under: str | None,
    as_json: bool,
) -> None:
    """Notes with these words, or that mean alike, best first."""
    asked = " ".join(query)
    with shell.open() as workspace:
        chosen = notes.only(workspace, states, statuses, under)
        near = None if words else workspace.recollection.notes.near(asked)
        answer = workspace.notebook.search(asked, limit=limit, only=chosen, near=near)
        if as_json:
            put_json(
                [{"key": h.line.key, "summary": h.line.summary, "snippet": h.snippet} for h in answer.hits]
            )
            return
        put_table(
            ("key", "summary", "snippet"), [(h.line.key, h.line.summary, h.snippet) for h in answer.hits]
        )
        if not answer.hits:
            say("No note has these words, or means alike.")


@note.command()
@click.argument("key")
@json_option
@command_options
def history(shell: Shell, key: str, as_json: bool) -> None:
    """All revisions of a note, the oldest first; of a deleted one, too."""
    with shell.open() as workspace:
        steps = workspace.notebook.history(key)
        if as_json:
            put_json([dataclasses.asdict(step) for step in steps])
            return
        put_table(
            ("revision", "when", "who", "what", "summary"),
            [(str(s.revision), _when(s.at), s.author, s.action, s.summary) for s in steps],
        )


@note.command()
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command_options
def delete(shell: Shell, key: str, yes: bool) -> None:
    """Delete a note; its revisions stay, and `note history` shows them."""
    with shell.open() as workspace:
        found = workspace.notebook.read(key)
        if not yes:
            click.confirm(f"Delete {found.key!r} ({found.summary})?", abort=True, err=True)
        gone = workspace.notebook.update(key, "delete", author=AUTHOR)
        put(f"{gone.key} deleted, revision {gone.revision}")


@note.command(short_help="All notes as one JSON document, or as Markdown files.")
@click.argument("place", required=False, metavar="[FILE | FOLDER/]")
@click.option("--overwrite", is_flag=True, help="Write over a FILE that is there.")
@command_options
def export(shell: Shell, place: str | None, overwrite: bool) -> None:
    """All notes: as one JSON document to FILE or stdout, or as a Markdown file each into FOLDER/."""
    from pensieve_mcp.notebook import exchange

    with shell.open() as workspace:
        if place is None or place == "-":
            put(exchange.export_json(workspace.notebook))
        elif Path(place).is_dir() or place.endswith(("/", os.sep)):
            written = exchange.export_markdown(workspace.notebook, Path(place))
            for problem in written.problems:
                say(problem)
            say(f"{count(len(written.files), 'note')} in {place}")
        else:
            spare(Path(place), overwrite)
            exchange.write_file(Path(place), exchange.export_json(workspace.notebook) + "\n")
            say(f"Notes written to {place}")


@note.command("import", short_help="Notes from what note export wrote.")
@click.argument("place", metavar="FILE | FOLDER", type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--overwrite", is_flag=True, help="Write over notes that differ; without it they are left and told."
)
@json_option
@command_options
def import_(shell: Shell, place: str, overwrite: bool, as_json: bool) -> None:
    """Notes from what `note export` wrote: a JSON file (- for stdin) or a folder of Markdown files."""
    from pensieve_mcp.notebook import exchange

    choice: Literal["report", "overwrite"] = "overwrite" if overwrite else "report"
    with shell.open() as workspace:
        if place != "-" and Path(place).is_dir():
            taken = exchange.import_markdown(workspace.notebook, Path(place), on_conflict=choice)
        else:
            taken = exchange.import_json(workspace.notebook, _text_of(place), on_conflict=choice)
    if not (taken.created or taken.updated or taken.unchanged or taken.conflicts or taken.problems):
        raise Miscast(
            f"There is no note in {place}.",
            hint="Give a file or folder that pensieve note export wrote.",
            slug="nothing_to_import",
        )
    if as_json:
        put_json(dataclasses.asdict(taken))
    else:
        put(
            f"{len(taken.created):,} new, {len(taken.updated):,} changed, {len(taken.unchanged):,} as they were"
        )
    if taken.conflicts:
        say(
            f"Left as they are, since they differ here: {', '.join(taken.conflicts[:20])}. --overwrite takes them."
        )
    for problem in taken.problems:
        say(problem)


def _text_of(place: str) -> str:
    try:
        return sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Miscast(
            f"{place} is not UTF-8.", hint="Give a file that note export wrote.", slug="bad_import"
        ) from error
    except OSError as error:
        raise Miscast(f"{place} cannot be read: {error.strerror or error}.", slug="bad_import") from error


def plain(found: Note) -> dict[str, Any]:
    """A note as plain data; digests in hexadecimal."""
    data = dataclasses.asdict(found)
    for piece in data["evidence"]:
        piece["document_digest"] = piece["document_digest"].hex()
    return data


def _when(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).astimezone().strftime("%Y-%m-%d %H:%M")

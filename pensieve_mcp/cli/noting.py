"""note: the notebook by shell. Deleting context never touches it; every change keeps the revision before."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from pensieve_mcp.cli.output import bold, dim, put, put_json, put_table, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.errors import Conflict, Miscast

if TYPE_CHECKING:
    from pensieve_mcp.notebook.types import Evidence, Note, NoteLine
    from pensieve_mcp.workspace import Workspace

AUTHOR = "cli"
FORMAT, VERSION = "pensieve-notes", 1


@click.group()
def note() -> None:
    """What was learned: list, show, write, search, export."""


@note.command("list")
@click.option("--prefix", default="", help="Only keys that begin so.")
@json_option
@command_options
def list_(shell: Shell, prefix: str, as_json: bool) -> None:
    """Keys and summaries of all notes."""
    with shell.open() as workspace:
        lines: list[NoteLine] = []
        cursor: str | None = None
        while True:
            page = workspace.notebook.list(prefix, cursor=cursor, limit=500)
            lines += page.lines
            cursor = page.cursor
            if cursor is None:
                break
        if as_json:
            put_json([dataclasses.asdict(line) for line in lines])
            return
        put_table(
            ("key", "summary", "revision"), [(line.key, line.summary, str(line.revision)) for line in lines]
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
        found = workspace.notebook.read(key, revision)
        if as_json:
            put_json(plain(found))
            return
        put(
            bold(found.key)
            + dim(f"  revision {found.revision}, {_when(found.updated)}, by {found.author or 'unknown'}")
        )
        put(found.summary)
        put("")
        put(found.content)
        for piece in found.evidence:
            where = " ".join(
                p for p in (f"c{piece.chunk_id}" if piece.chunk_id else "", piece.path, piece.locator) if p
            )
            put(dim(f"[{piece.state}] {where}") + (f" “{piece.quote}”" if piece.quote else ""))
        if found.links:
            put(dim("See also: " + ", ".join(found.links)))


@note.command()
@click.argument("key")
@click.argument("content", required=False)
@click.option(
    "--summary", help="One line that tells what is in it; without it the first line of the content."
)
@click.option(
    "--quote", metavar="QUOTE", multiple=True, help="Words of a document as evidence; looked up. Repeat it."
)
@click.option("--from", "place", metavar="PLACE", help="Where the quotes stand: c48 or a document's path.")
@click.option("--applies-to", default="workspace", help="workspace, project or a path.")
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
    append: bool,
    expect_revision: int | None,
    as_json: bool,
) -> None:
    """Write CONTENT (or what comes on stdin) under KEY. An old note of this key becomes a revision."""
    if content is None or content == "-":
        if sys.stdin.isatty():
            say("Reading the note from here; end with Ctrl-D.")
        content = sys.stdin.read()
    if not content.strip():
        raise click.UsageError("The content is empty.")
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
            written = workspace.notebook.write(
                key,
                summary or _first_line(content),
                content,
                evidence=evidence,
                applies_to=applies_to,
                author=AUTHOR,
                expect_revision=expect_revision,
            )
        put_json(plain(written)) if as_json else put(f"{written.key}, revision {written.revision}")
        for piece in written.evidence:
            if piece.state != "ok":
                say(
                    f"Not found ({piece.state}): “{piece.quote}”. The note is stored; quote exactly to support it."
                )
        for warning in written.warnings:
            say(warning)


def _evidence(workspace: Workspace, quotes: tuple[str, ...], place: str | None) -> tuple[Evidence, ...]:
    chunk = place if place and place[:1] in "cC" and place[1:].isdecimal() else None
    path = place if place and chunk is None else None
    given = [(chunk, path, quote) for quote in quotes or (("",) if place else ())]
    return workspace.check_evidence(given) if given else ()


def _first_line(content: str) -> str:
    line = content.strip().splitlines()[0]
    return line if len(line) <= 160 else line[:159] + "…"


@note.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_option
@command_options
def search(shell: Shell, query: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Notes with these words, best first."""
    with shell.open() as workspace:
        answer = workspace.notebook.search(" ".join(query), limit=limit)
        if as_json:
            put_json(
                [{"key": h.line.key, "summary": h.line.summary, "snippet": h.snippet} for h in answer.hits]
            )
            return
        put_table(
            ("key", "summary", "snippet"), [(h.line.key, h.line.summary, h.snippet) for h in answer.hits]
        )
        if not answer.hits:
            say("No note has these words.")


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


@note.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@command_options
def export(shell: Shell, file: str | None) -> None:
    """All notes as JSON lines, to FILE or stdout."""
    with shell.open() as workspace:
        lines = _exported(workspace)
        if file is None or file == "-":
            for line in lines:
                put(line)
            return
        count = 0
        with Path(file).open("w", encoding="utf-8", newline="\n") as out:
            for line in lines:
                out.write(line + "\n")
                count += 1
        say(f"{count - 1:,} notes in {file}.")


def _exported(workspace: Workspace) -> Iterator[str]:
    yield json.dumps({"format": FORMAT, "version": VERSION})
    for one in workspace.notebook.all_notes():
        yield json.dumps(plain(one), ensure_ascii=False)


@note.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8-sig"))
@click.option(
    "--replace", is_flag=True, help="Write over notes of the same key; without it they are left as they are."
)
@json_option
@command_options
def import_(shell: Shell, file: TextIO, replace: bool, as_json: bool) -> None:
    """Notes from a file that `note export` wrote (- for stdin)."""
    taken, left = 0, []
    with shell.open() as workspace:
        for key, fields in _parsed(file):
            try:
                workspace.notebook.write(
                    key, author="import", expect_revision=None if replace else 0, **fields
                )
                taken += 1
            except Conflict:
                left.append(key)
    if as_json:
        put_json({"imported": taken, "left": left})
        return
    put(f"{taken:,} notes imported")
    if left:
        say(f"Left as they are, since they exist: {', '.join(left[:20])}. --replace writes over them.")


def _parsed(file: TextIO) -> Iterator[tuple[str, dict[str, Any]]]:
    """Keys and fields, read whole before anything is written: a bad line costs the import, not half of it."""
    from pensieve_mcp.notebook.types import Evidence

    found: list[tuple[str, dict[str, Any]]] = []
    number = 0
    try:
        for line in file:
            number += 1
            if not line.strip():
                continue
            data = json.loads(line)
            if "format" in data:
                if data["format"] != FORMAT or int(data["version"]) > VERSION:
                    raise ValueError(f"it is {data['format']!r} version {data.get('version')!r}")
                continue
            evidence = []
            for piece in data.get("evidence", ()):
                piece["document_digest"] = bytes.fromhex(piece.get("document_digest") or "")
                piece["span"] = tuple(piece["span"]) if piece.get("span") else None
                evidence.append(
                    Evidence(**{k: v for k, v in piece.items() if k in Evidence.__dataclass_fields__})
                )
            fields = {
                "summary": str(data["summary"]),
                "content": str(data["content"]),
                "evidence": tuple(evidence),
                "applies_to": str(data.get("applies_to", "")),
                "links": tuple(map(str, data.get("links", ()))),
            }
            found.append((str(data["key"]), fields))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Miscast(
            f"Line {number} of {file.name} is no exported note: {error}.",
            hint="Give a file written by pensieve note export; nothing was imported.",
            slug="bad_import",
        ) from error
    yield from found


def plain(found: Note) -> dict[str, Any]:
    """A note as plain data; digests in hexadecimal."""
    data = dataclasses.asdict(found)
    for piece in data["evidence"]:
        piece["document_digest"] = piece["document_digest"].hex()
    return data


def _when(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).astimezone().strftime("%Y-%m-%d %H:%M")

"""note, updateNote, readNote: what was learned, with its evidence. Deleting context never touches it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pensieve_mcp.errors import Miscast
from pensieve_mcp.spellbook.registry import Args, Handle, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import as_text, bytes_of, count, cut_to_bytes, listing, one_line

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.notebook.types import Note

MAX_EVIDENCE = 50
MAX_LINKS = 50

Text = Annotated[str, BeforeValidator(as_text)]
"""Text; an object, as the published schema has it, is kept as its JSON."""


def _as_evidence(value: Any) -> Any:
    """A bare string is a quote, or a handle; a JSON object may come as text."""
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("{"):
            try:
                return json.loads(stripped)
            except ValueError:
                pass
        if stripped[:1] in "cC" and stripped[1:].isdecimal():
            return {"chunk_id": stripped}
        return {"quote": value}
    return value


class EvidenceItem(BaseModel):
    """Where a fact stands: chunk_id or path, and the words themselves."""

    model_config = ConfigDict(extra="forbid")
    chunk_id: Handle | None = None
    path: str | None = None
    quote: str = ""


class NoteArgs(Args):
    key: str = Field(description="Short name, one line.")
    summary: str = Field(description="One line that tells what is in it.")
    content: Text = Field(description="The facts.")
    evidence: list[Annotated[EvidenceItem, BeforeValidator(_as_evidence)]] | None = Field(
        None, description="chunk_id or path, with an exact quote."
    )
    applies_to: str | None = Field(None, description="workspace, project or a path.")
    links: list[str] | None = Field(None, description="Keys of related notes.")


class EvidenceLine(Result):
    quote: str
    path: str
    locator: str
    chunk_id: int | None
    state: str


class NoteResult(Result):
    status: str
    key: str
    revision: int
    evidence: list[EvidenceLine]


@spell("note", NoteArgs, NoteResult, stage="note", repeatable=True, title="Write a note")
def note(episode: Episode, args: NoteArgs) -> Outcome:
    """Write what matters into the notebook, with quotes as evidence; they are looked up. An old note of
    this key becomes a revision."""
    if args.evidence and len(args.evidence) > MAX_EVIDENCE:
        raise Miscast(
            f"{len(args.evidence)} pieces of evidence; at most {MAX_EVIDENCE}.",
            hint="Split the note.",
            slug="bad_argument",
        )
    evidence = episode.workspace.check_evidence(
        [(e.chunk_id, e.path, e.quote) for e in args.evidence or ()], default_chunks=episode.recent_chunks()
    )
    written = episode.workspace.notebook.write(
        args.key,
        args.summary,
        args.content,
        evidence=evidence,
        applies_to=args.applies_to or "workspace",
        links=tuple(args.links or ()),
        author=episode.author,
    )
    return _written(written, "Noted", new=written.revision == 1)


class UpdateArgs(Args):
    key: str
    mode: Literal["append", "overwrite", "delete", "merge"]
    new_content: Text | None = Field(None, description="For append and overwrite; optional for merge.")
    new_summary: str | None = None
    keys: list[str] | None = Field(None, description="merge: the notes that go into key.")
    expect_revision: int | None = Field(None, description="Refuse if the note has changed since.", ge=0)


@spell("updateNote", UpdateArgs, NoteResult, stage="note", title="Change a note")
def update_note(episode: Episode, args: UpdateArgs) -> Outcome:
    """Append to, overwrite, delete or merge notes. Old revisions stay."""
    if args.mode in ("append", "overwrite") and args.new_content is None:
        raise Miscast(
            f"mode {args.mode} needs new_content.",
            hint="Give the text, or use mode delete.",
            slug="missing_argument",
        )
    if args.mode == "merge" and not args.keys:
        raise Miscast(
            "mode merge needs keys, the notes that go into key.",
            hint='For example keys=["draft", "old"].',
            slug="missing_argument",
        )
    written = episode.workspace.notebook.update(
        args.key,
        args.mode,
        new_content=args.new_content,
        new_summary=args.new_summary,
        keys=tuple(args.keys or ()),
        expect_revision=args.expect_revision,
        author=episode.author,
    )
    words = {
        "append": "Appended to",
        "overwrite": "Overwrote",
        "delete": "Deleted",
        "merge": f"Merged {count(len(args.keys or ()), 'note')} into",
    }[args.mode]
    return _written(written, words, status="deleted" if args.mode == "delete" else "success")


def _written(written: Note, words: str, *, new: bool = False, status: str = "success") -> Outcome:
    states: dict[str, int] = {}
    for item in written.evidence:
        states[item.state] = states.get(item.state, 0) + 1
    line = f"{words} “{written.key}”" + (f", revision {written.revision}" if not new else "") + "."
    lines = [line]
    if status == "deleted":
        lines.append(
            f"Its revisions stay: readNote(key={written.key!r}, revision={max(1, written.revision - 1)})."
        )
    elif written.evidence:
        lines.append("Evidence: " + ", ".join(f"{number} {state}" for state, number in states.items()) + ".")
        for item in written.evidence:
            if item.state != "ok":
                lines.append(
                    f"Not found: “{one_line(item.quote, 100)}”"
                    + (f" in {item.path}" if item.path else "")
                    + ". Quote exactly, or correct the note."
                )
    lines += written.warnings
    return Outcome(
        NoteResult(status=status, key=written.key, revision=written.revision, evidence=_evidence(written)),
        listing(lines),
        facts=(f"note {one_line(written.key, 60)}",),
        label=f"note “{one_line(written.key, 60)}”",
    )


def _evidence(written: Note) -> list[EvidenceLine]:
    return [
        EvidenceLine(quote=e.quote, path=e.path, locator=e.locator, chunk_id=e.chunk_id, state=e.state)
        for e in written.evidence
    ]


class ReadNoteArgs(Args):
    key: str | None = Field(None, description="None: the list of all notes.")
    revision: int | None = Field(None, ge=1)
    cursor: str | None = None


class NoteLineResult(Result):
    key: str
    summary: str


class ReadNoteResult(Result):
    key: str | None
    summary: str | None
    full_content: str | None
    revision: int | None
    evidence: list[EvidenceLine]
    notes: list[NoteLineResult]
    next_cursor: str | None


@spell("readNote", ReadNoteArgs, ReadNoteResult, stage="note", reads_only=True, title="Read notes")
def read_note(episode: Episode, args: ReadNoteArgs) -> Outcome:
    """One note with the state of its evidence; without key all keys and summaries."""
    notebook = episode.workspace.notebook
    room = episode.settings.result_bytes - 1_200
    if args.key is None or not args.key.strip():
        page = notebook.list(cursor=args.cursor, limit=500)
        cursor = page.cursor
        lines: list[str] = []
        shown: list[NoteLineResult] = []
        for line in page.lines:
            text = f"{line.key}: {one_line(line.summary, 200)}" + (
                f" [{line.unsupported} unsupported]" if line.unsupported else ""
            )
            if bytes_of(listing(lines)) + bytes_of(text) > room:
                cursor = shown[-1].key if shown else None
                break
            lines.append(text)
            shown.append(NoteLineResult(key=line.key, summary=line.summary))
        if cursor:
            lines.append(f"More: readNote(cursor={cursor!r}).")
        return Outcome(
            ReadNoteResult(
                key=None,
                summary=None,
                full_content=None,
                revision=None,
                evidence=[],
                notes=shown,
                next_cursor=cursor,
            ),
            listing(lines) or "No notes yet.",
            label="list of notes",
        )
    found = notebook.read(args.key, args.revision)
    start = int(args.cursor) if args.cursor and args.cursor.isdecimal() else 0
    content = found.content[start:]
    taken = cut_to_bytes(content, room)
    next_cursor = str(start + taken) if taken < len(content) else None
    lines = [found.summary] if not start else []
    lines.append(content[:taken])
    if next_cursor:
        lines.append(
            f"[{len(content) - taken:,} more characters: readNote(key={found.key!r}, cursor={next_cursor!r})]"
        )
    for item in found.evidence:
        where = " ".join(
            part for part in (f"c{item.chunk_id}" if item.chunk_id else "", item.path, item.locator) if part
        )
        lines.append(
            f"Evidence {item.state}: {where}" + (f" “{one_line(item.quote, 160)}”" if item.quote else "")
        )
    if found.links:
        lines.append("Links: " + ", ".join(found.links))
    return Outcome(
        ReadNoteResult(
            key=found.key,
            summary=found.summary,
            full_content=content[:taken] if start or next_cursor else found.content,
            revision=found.revision,
            evidence=_evidence(found),
            notes=[],
            next_cursor=next_cursor,
        ),
        listing(lines),
        facts=(f"note {one_line(found.key, 60)}", f"revision {found.revision}"),
        label=f"note “{one_line(found.key, 60)}”",
    )

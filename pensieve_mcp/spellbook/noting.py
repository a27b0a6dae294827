"""note, updateNote, readNote: what was learned, with its evidence. Deleting context never touches it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pensieve_mcp.errors import Miscast, NoSuchDocument
from pensieve_mcp.evidence import check_note, look_up, validity
from pensieve_mcp.handles import parse_cursor
from pensieve_mcp.notebook.standing import in_words
from pensieve_mcp.spellbook.registry import Args, Handle, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import as_text, bytes_of, count, cut_to_bytes, listing, one_line

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.notebook.types import Evidence, Note, NoteLine
    from pensieve_mcp.workspace import Workspace

MAX_EVIDENCE = 50
MAX_LINKS = 50

_HANDLE = re.compile(r"(?:[cm][0-9]{1,15}(?:\.[0-9]{1,6})?|h[0-9a-f]{2,32})\Z", re.IGNORECASE)

Text = Annotated[str, BeforeValidator(as_text)]
"""Text; an object, as the published schema has it, is kept as its JSON."""


def _as_evidence(value: Any) -> Any:
    """A bare string is a quote, or a handle; a JSON object may come as text."""
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("{"):
            try:
                return json.loads(stripped)
            except (ValueError, RecursionError):
                pass
        if _HANDLE.match(stripped):
            return {"chunk_id": stripped}
        return {"quote": value}
    return value


def _spare(schema: dict[str, Any]) -> None:
    """Every word of a schema is paid for in every window: what the host need not know stays here."""
    schema.pop("additionalProperties", None)
    schema.pop("description", None)
    schema["properties"]["quote"].pop("default", None)


class EvidenceItem(BaseModel):
    """Where a fact stands: chunk_id (or the handle of an earlier message) or path, and the words themselves."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_spare)
    chunk_id: Handle | None = None
    path: str | None = None
    quote: str = ""


class NoteArgs(Args):
    key: str
    summary: str = Field(description="One line.")
    content: Text = Field(description="The facts.")
    evidence: list[Annotated[EvidenceItem, BeforeValidator(_as_evidence)]] | None = Field(
        None, description="chunk_id (c48, m12) or path, with an exact quote."
    )
    applies_to: str | None = Field(None, description="workspace, project or a path.")
    links: list[str] | None = Field(None, description="Keys of notes.")
    kind: Literal["user", "observed", "tool", "guess"] | None = None
    valid: str | None = Field(None, description="Until a date, or a path that changes.")
    observed_at: str | None = Field(None, description="ISO date.")


class EvidenceLine(Result):
    quote: str
    path: str
    locator: str
    chunk_id: int | None
    state: str
    detail: str = ""
    kind: str = ""
    msg_id: str | None = None
    verified_at: str | None = None  # when it was last looked up, ISO 8601 in UTC


class NoteResult(Result):
    status: str
    key: str
    revision: int
    evidence: list[EvidenceLine]


@spell("note", NoteArgs, NoteResult, stage="note", repeatable=True, title="Write a note")
def note(episode: Episode, args: NoteArgs) -> Outcome:
    """Write what matters into the notebook, with quotes as evidence; they are looked up. Old notes become
    revisions."""
    workspace = episode.workspace
    valid, basis = validity(workspace, args.valid or "")
    observed = observed_time(args.observed_at)
    evidence = _looked_up(episode, args.evidence)
    written = workspace.notebook.write(
        args.key,
        args.summary,
        args.content,
        evidence=evidence,
        applies_to=_scope(workspace, args.applies_to),
        links=tuple(args.links or ()),
        author=episode.author,
        kind=args.kind or "",
        valid=valid,
        valid_basis=basis,
        observed=observed,
        weigh=True,
    )
    return _written(compared(workspace, written), "Noted", new=written.revision == 1)


def _looked_up(episode: Episode, given: list[EvidenceItem] | None) -> tuple[Evidence, ...]:
    """Raises Miscast for too many."""
    if given and len(given) > MAX_EVIDENCE:
        raise Miscast(
            f"{len(given)} pieces of evidence; at most {MAX_EVIDENCE}.",
            hint="Split the note.",
            slug="bad_argument",
        )
    return look_up(
        episode.workspace,
        [(e.chunk_id, e.path, e.quote) for e in given or ()],
        default_chunks=episode.recent_chunks(),
    )


NEAR_NOTES = 8  # compared with what is written


def compared(workspace: Workspace, written: Note) -> Note:
    """With a word about notes under other keys that seem to say otherwise."""
    from pensieve_mcp.notebook.conflicts import against, subjects

    notebook = workspace.notebook
    keys: dict[str, None] = {}
    for subject in subjects(written):
        # a word that says how much is none of the subject: any of the words may lead to the other note
        found = notebook.search(subject, limit=NEAR_NOTES, strict=False)
        keys.update(dict.fromkeys(hit.line.key for hit in found.hits))
    others = [note for key in keys if (note := notebook.current(key)) is not None]
    told = [
        f"{conflict.other.key!r} says otherwise: “{one_line(conflict.otherwise, 160)}”. Look at both."
        for conflict in against(written, others)
        if conflict.other.status in ("active", "needs review") and not conflict.other.deleted
    ]
    return replace(written, warnings=(*written.warnings, *told))


def _scope(workspace: Workspace, given: str | None) -> str:
    """workspace, project, or a path as evidence names it; what is no path of ours stays as it was written."""
    text = (given or "").strip()
    if text.casefold() in ("", "workspace", "project"):
        return text.casefold() or "workspace"
    try:
        return next(iter(workspace.prefix(text)), "workspace")
    except NoSuchDocument:
        return text


def _bare_items(schema: dict[str, Any]) -> None:
    """`note` tells what an item is; saying it twice costs every window."""
    schema["items"] = {"type": "object"}


class UpdateArgs(Args):
    key: str
    mode: Literal["append", "overwrite", "delete", "merge"]
    new_content: Text | None = None
    new_summary: str | None = None
    keys: list[str] | None = Field(None, description="merge: the notes that go into key.")
    expect_revision: int | None = Field(None, description="Refuse if changed since.", ge=0)
    evidence: list[Annotated[EvidenceItem, BeforeValidator(_as_evidence)]] | None = Field(
        None, description="As in note.", json_schema_extra=_bare_items
    )


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
    asks = episode.settings.note_deletes == "ask"
    approval = episode.approval()
    if args.mode == "delete" and asks and approval is not None and not approval.given:
        raise Miscast(
            f"A person was asked and does not want the note {args.key!r} deleted.",
            hint="It stays as it is. Go on without deleting it.",
            slug="declined",
        )
    if args.mode == "delete" and asks and approval is None:
        asked = episode.workspace.notebook.set_status(
            args.key,
            "needs review",
            f"its deletion was proposed by {episode.author or 'a model'}",
            author=episode.author,
            expect_revision=args.expect_revision,
        )
        return _written(asked, "Asked a person to delete", status="proposed")
    written = episode.workspace.notebook.update(
        args.key,
        args.mode,
        new_content=args.new_content,
        new_summary=args.new_summary,
        keys=tuple(args.keys or ()),
        expect_revision=approval.revision
        if approval is not None and args.expect_revision is None
        else args.expect_revision,
        evidence=_looked_up(episode, args.evidence),
        author=episode.author,
        spare=f"its deletion was proposed by {episode.author or 'a model'}" if asks else "",
    )
    words = {
        "append": "Appended to",
        "overwrite": "Overwrote",
        "delete": "Deleted",
        "merge": f"Merged {count(len(args.keys or ()), 'note')} into",
    }[args.mode]
    if args.mode != "delete":
        written = compared(episode.workspace, written)
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
            if item.state == "unsupported":
                lines.append(
                    f"Not found: “{one_line(item.quote, 100)}”"
                    + (f" in {item.path}" if item.path else "")
                    + f". {item.detail + ' ' if item.detail else ''}Quote exactly, or correct the note."
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
        EvidenceLine(
            quote=e.quote,
            path=e.path,
            locator=e.locator,
            chunk_id=e.chunk_id,
            state=e.state,
            detail=e.detail,
            kind=e.kind,
            msg_id=f"m{e.message}" if e.message is not None else None,
            verified_at=_iso(e.verified),
        )
        for e in written.evidence
    ]


def observed_time(given: str | None) -> float | None:
    """A date or time as a writer gives it, in UTC where it does not say. Raises Miscast."""
    text = (given or "").strip()
    if not text:
        return None
    try:
        told = datetime.fromisoformat(text)
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as wrong:
        raise Miscast(
            f"observed_at is {text[:60]!r}, which is no date.",
            hint="Write 2026-03-05, or 2026-03-05T14:00:00+01:00.",
            slug="bad_argument",
        ) from wrong


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(max(0.0, seconds), UTC).isoformat(timespec="seconds")


class ReadNoteArgs(Args):
    key: str | None = Field(None, description="None: the list of all notes.")
    revision: int | None = Field(None, ge=1)
    cursor: str | None = None


class NoteLineResult(Result):
    key: str
    summary: str
    status: str = "active"


class NeighbourLine(Result):
    key: str
    summary: str
    how: str


class RivalLine(Result):
    """The other claim of a contest: the one in force, while this note contests it."""

    revision: int
    summary: str
    content: str
    author: str
    strength: str
    evidence: list[EvidenceLine]


class ReadNoteResult(Result):
    key: str | None
    summary: str | None
    full_content: str | None
    revision: int | None
    evidence: list[EvidenceLine]
    notes: list[NoteLineResult]
    next_cursor: str | None
    status: str = "active"
    reason: str = ""
    kind: str = ""
    valid: str = ""
    applies_to: str = ""
    strength: str = ""
    author: str = ""
    observed_at: str | None = None
    neighbours: list[NeighbourLine] = Field(default_factory=list)
    in_force: RivalLine | None = None


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
            text = note_line(line)
            if bytes_of(listing(lines)) + bytes_of(text) > room:
                cursor = shown[-1].key if shown else None
                break
            lines.append(text)
            shown.append(NoteLineResult(key=line.key, summary=line.summary, status=line.status))
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
    return _one(episode, args.key, args.revision, args.cursor, room)


def note_line(line: NoteLine) -> str:
    """A note in a list, with what speaks against it."""
    marks: list[str] = [line.status] if line.status != "active" else []
    if line.doubts:
        marks.append(line.doubted())
    return f"{line.key}: {one_line(line.summary, 200)}" + (f" [{', '.join(marks)}]" if marks else "")


def _one(episode: Episode, key: str, revision: int | None, cursor: str | None, room: int) -> Outcome:
    workspace = episode.workspace
    notebook = workspace.notebook
    found = check_note(workspace, notebook.read(key, revision))
    start = parse_cursor(cursor)
    after = [] if start else _around(workspace, found)
    rival = notebook.in_force(found) if found.contests is not None and not start else None
    if rival is not None:
        rival = check_note(workspace, rival)
        after = _rival_lines(found, rival) + after
    head = _standing_lines(found) if not start else []
    neighbours = notebook.neighbours(found.key) if not start else ()
    if neighbours:
        after.append("Near it:")
        after += [f"  {n.how}: {note_line(n.line)}" for n in neighbours]
    content = found.content[start:]
    taken = cut_to_bytes(content, max(room // 2, room - bytes_of(listing([*head, *after]))))
    next_cursor = str(start + taken) if taken < len(content) else None
    lines = [*head, content[:taken]]
    if next_cursor:
        lines.append(
            f"[{len(content) - taken:,} more characters: readNote(key={found.key!r}, cursor={next_cursor!r})]"
        )
    for line in after:
        if bytes_of(listing(lines)) + bytes_of(line) > room:
            lines.append("…")
            break
        lines.append(line)
    return Outcome(
        ReadNoteResult(
            key=found.key,
            summary=found.summary,
            full_content=content[:taken] if start or next_cursor else found.content,
            revision=found.revision,
            evidence=_evidence(found),
            notes=[],
            next_cursor=next_cursor,
            status=found.status,
            reason=found.reason,
            kind=found.kind,
            valid=found.valid,
            applies_to=found.applies_to,
            strength=in_words(found),
            author=found.author,
            observed_at=_iso(found.observed if found.observed is not None else found.updated),
            neighbours=[NeighbourLine(key=n.line.key, summary=n.line.summary, how=n.how) for n in neighbours],
            in_force=None
            if rival is None
            else RivalLine(
                revision=rival.revision,
                summary=rival.summary,
                content=rival.content[:2_000],
                author=rival.author,
                strength=in_words(rival),
                evidence=_evidence(rival),
            ),
        ),
        listing(lines),
        facts=(f"note {one_line(found.key, 60)}", f"revision {found.revision}"),
        label=f"note “{one_line(found.key, 60)}”",
    )


def _standing_lines(found: Note) -> list[str]:
    """Before the content: what a reader must know before he believes it."""
    if found.status == "revoked":
        return [f"Unknown, check: {found.reason}. What was noted:", found.summary]
    if found.status != "active":
        return [f"{found.status.capitalize()}{': ' + found.reason if found.reason else ''}.", found.summary]
    return [found.summary]


def _rival_lines(found: Note, rival: Note) -> list[str]:
    lines = [
        f"In force is revision {rival.revision} by {rival.author or 'unknown'}, which rests on {in_words(rival)}:",
        f"  {one_line(rival.summary, 300)}",
        f"  {one_line(rival.content, 1_000)}",
        *(f"  {line}" for line in _evidence_lines(rival)),
    ]
    return [*lines, f"Revision {found.revision} above, by {found.author or 'unknown'}, contests it."]


def _evidence_lines(found: Note) -> list[str]:
    lines = []
    for item in found.evidence:
        message = f"m{item.message}" if item.message is not None else ""
        where = " ".join(
            part
            for part in (
                f"c{item.chunk_id}" if item.chunk_id else "",
                message if message != item.locator else "",
                item.path,
                item.locator,
            )
            if part
        )
        line = f"Evidence {item.state}: {where}" + (f" “{one_line(item.quote, 160)}”" if item.quote else "")
        if item.state not in ("ok", "unchecked") and item.detail:
            line += f" ({one_line(item.detail, 320)})"
        lines.append(line)
    return lines


def _around(workspace: Workspace, found: Note) -> list[str]:
    """After the content: evidence, until when it holds, what it applies to."""
    lines = _evidence_lines(found)
    facts = [f"kind {found.kind}"] if found.kind else []
    if found.applies_to not in ("", "workspace"):
        facts.append(f"applies to {found.applies_to}")
    if found.observed is not None:
        facts.append(f"observed {_iso(found.observed)}")
    if found.valid:
        facts.append(f"valid until {found.valid}{' changes' if found.valid_basis else ''}")
    if facts:
        lines.append("; ".join(facts).capitalize() + ".")
    if missing := [link for link in found.links if workspace.notebook.current(link) is None]:
        lines.append("Links to notes that do not exist: " + ", ".join(missing))
    return lines

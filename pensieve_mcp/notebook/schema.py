"""The notebook's tables in `pensieve.db`, and how a row becomes a value.

Columns are explained here, where they are declared. Every change is a revision and a row of `note_changes`;
nothing is overwritten. `extra` of a revision holds what STANDING names; `status` and `valid` repeat the current
revision's, to be found by.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pensieve_mcp.fulltext import TOKENIZER, shadow
from pensieve_mcp.notebook.types import GRAVEST, Action, Evidence, Note, NoteLine
from pensieve_mcp.storage import Basin, Migration

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

BASIN = Basin(
    "notebook",
    (
        Migration(
            "notes",
            "What was learned, with its sources, in revisions that stay.",
            f"""
            CREATE TABLE notes (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                key TEXT NOT NULL UNIQUE,
                folded TEXT NOT NULL,             -- key without case, spaces, _ and -: finds twins
                revision INTEGER NOT NULL,        -- the current one
                deleted INTEGER NOT NULL,         -- the current revision is a deletion
                created_at REAL NOT NULL,         -- seconds since 1970
                updated_at REAL NOT NULL,
                status TEXT NOT NULL DEFAULT 'active',
                valid TEXT NOT NULL DEFAULT '',   -- until when, or until what
                extra TEXT NOT NULL DEFAULT '{{}}'  -- JSON
            );
            CREATE INDEX notes_folded ON notes (folded);
            CREATE TABLE note_revisions (
                note_id INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
                revision INTEGER NOT NULL,        -- from 1
                at REAL NOT NULL,
                author TEXT NOT NULL,             -- who wrote: an episode, a person, the merger
                action TEXT NOT NULL,             -- write, append, overwrite, delete, merge, restore, import
                summary TEXT NOT NULL,
                content TEXT NOT NULL,
                applies_to TEXT NOT NULL,
                links TEXT NOT NULL,              -- JSON list of keys
                extra TEXT NOT NULL DEFAULT '{{}}',
                PRIMARY KEY (note_id, revision)
            );
            CREATE TABLE note_evidence (
                note_id INTEGER NOT NULL,
                revision INTEGER NOT NULL,
                position INTEGER NOT NULL,        -- order within the note
                quote TEXT NOT NULL,
                path TEXT NOT NULL,
                locator TEXT NOT NULL,
                chunk_id INTEGER,
                message INTEGER,
                document_digest BLOB NOT NULL,
                span_start INTEGER,               -- code points of the document's text
                span_end INTEGER,
                prefix TEXT NOT NULL,
                suffix TEXT NOT NULL,
                state TEXT NOT NULL,
                detail TEXT NOT NULL,
                kind TEXT NOT NULL,
                verified_at REAL,
                PRIMARY KEY (note_id, revision, position),
                FOREIGN KEY (note_id, revision) REFERENCES note_revisions (note_id, revision)
                    ON DELETE CASCADE
            );
            CREATE INDEX note_evidence_path ON note_evidence (path);
            CREATE INDEX note_evidence_chunk ON note_evidence (chunk_id) WHERE chunk_id IS NOT NULL;
            CREATE TABLE plan_revisions (
                scope TEXT NOT NULL,              -- empty for the workspace, else whose plan it is
                revision INTEGER NOT NULL,
                at REAL NOT NULL,
                author TEXT NOT NULL,
                body TEXT NOT NULL,               -- JSON: goal, constraints, steps, next
                PRIMARY KEY (scope, revision)
            );
            CREATE TABLE note_changes (
                counter INTEGER PRIMARY KEY AUTOINCREMENT,  -- what subscribers compare
                kind TEXT NOT NULL,               -- note, plan
                name TEXT NOT NULL                -- key or scope
            );
            CREATE VIRTUAL TABLE notes_text USING fts5 (
                key, summary, body, parts, tokenize="{TOKENIZER}"
            );
            """,
        ),
        Migration(
            "places of evidence",
            "A quote that moved tells where it was noted; an unchanged file is not read again to know it.",
            """
            ALTER TABLE note_evidence ADD COLUMN noted_path TEXT NOT NULL DEFAULT '';     -- empty: as path
            ALTER TABLE note_evidence ADD COLUMN noted_locator TEXT NOT NULL DEFAULT '';
            ALTER TABLE note_evidence ADD COLUMN basis TEXT NOT NULL DEFAULT '';  -- reader, or index generation
            CREATE INDEX note_evidence_state ON note_evidence (state);
            """,
        ),
        Migration(
            "standing",
            "Evidence decides what a note says, not the last writer; a source can be withdrawn.",
            """
            ALTER TABLE notes ADD COLUMN in_force INTEGER;  -- revision that counts while a weaker one contests it
            CREATE INDEX notes_status ON notes (status) WHERE status <> 'active';
            CREATE TABLE revoked_sources (
                path TEXT PRIMARY KEY,            -- a document, or a folder with all below it
                at REAL NOT NULL,
                author TEXT NOT NULL,
                reason TEXT NOT NULL
            );
            """,
        ),
        Migration(
            "consolidation",
            "One merger at a time, known by a token; what it found per conversation outlives a crash.",
            """
            CREATE TABLE merger_lease (
                one INTEGER PRIMARY KEY CHECK (one = 1),
                token TEXT NOT NULL,
                owner TEXT NOT NULL,              -- host:process
                fence INTEGER NOT NULL,           -- grows with every owner
                beat REAL NOT NULL                -- seconds since 1970; 0 when given back
            );
            CREATE TABLE candidates (
                source TEXT NOT NULL,             -- episode:12
                version TEXT NOT NULL,            -- digest of what it was made from
                body TEXT NOT NULL,               -- JSON
                at REAL NOT NULL,
                published INTEGER NOT NULL DEFAULT 0,  -- fence of the merger that took it in; 0: not yet
                PRIMARY KEY (source, version)
            );
            """,
        ),
        Migration(
            "conflicts",
            "Two notes that seem to disagree are shown to a reader once, not again after he has looked.",
            """
            CREATE TABLE told_conflicts (
                pair TEXT PRIMARY KEY,            -- digest of both notes as they were
                at REAL NOT NULL
            );
            CREATE INDEX note_revisions_linked ON note_revisions (note_id, revision) WHERE links <> '[]';
            """,
        ),
    ),
)

NOTE_COLUMNS = (
    "n.key, r.summary, r.content, r.revision, n.created_at, r.at, r.applies_to, r.links, r.author, "
    "r.action = 'delete', n.id, r.extra"
)
BARE_COLUMNS = NOTE_COLUMNS.replace("r.content", "''")
LINE_COLUMNS = (
    "n.key, f.summary, n.revision, n.updated_at, length(f.content), "
    "(SELECT json_group_array(e.state) FROM note_evidence e WHERE e.note_id = n.id AND e.revision = n.revision "
    "AND e.state NOT IN ('ok', 'moved', 'unchecked')), "
    "n.status, coalesce(json_extract(f.extra, '$.kind'), ''), f.applies_to"
)
CURRENT = "FROM notes n JOIN note_revisions r ON r.note_id = n.id AND r.revision = n.revision"
IN_FORCE = (
    "FROM notes n JOIN note_revisions f ON f.note_id = n.id AND f.revision = coalesce(n.in_force, n.revision)"
)

_EVIDENCE = (
    "quote, path, locator, chunk_id, message, document_digest, span_start, span_end, prefix, suffix, state, "
    "detail, kind, verified_at, noted_path, noted_locator, basis"
)
_PLACES = ", ".join("?" * (3 + len(_EVIDENCE.split(","))))


def line_from(row: Sequence[Any]) -> NoteLine:
    """From LINE_COLUMNS."""
    states = json.loads(row[5])
    doubts = tuple((state, states.count(state)) for state in GRAVEST if state in states)
    key, summary, revision, updated, size, _, status, kind, applies_to = row[:9]
    return NoteLine(key, summary, revision, updated, size, len(states), status, kind, applies_to, doubts)


def note_from(db: Database, row: Sequence[Any]) -> Note:
    """From NOTE_COLUMNS, with the evidence of that revision."""
    return _note(row, evidence_of(db, row[10], row[3]))


def notes_from(db: Database, rows: Sequence[Sequence[Any]]) -> list[Note]:
    """From NOTE_COLUMNS of many notes, their evidence read at once."""
    pieces: dict[tuple[int, int], list[Evidence]] = {}
    wanted = json.dumps([[row[10], row[3]] for row in rows])
    for row in db.conn.execute(
        f"SELECT {_EVIDENCE}, note_id, revision FROM note_evidence WHERE (note_id, revision) IN "
        "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)) "
        "ORDER BY note_id, revision, position",
        (wanted,),
    ):
        pieces.setdefault((row[17], row[18]), []).append(_piece(row))
    return [_note(row, tuple(pieces.get((row[10], row[3]), ()))) for row in rows]


def _note(row: Sequence[Any], evidence: tuple[Evidence, ...]) -> Note:
    return Note(
        key=row[0],
        summary=row[1],
        content=row[2],
        revision=row[3],
        created=row[4],
        updated=row[5],
        evidence=evidence,
        applies_to=row[6],
        links=tuple(json.loads(row[7])),
        author=row[8],
        deleted=bool(row[9]),
        **_standing(json.loads(row[11])),
    )


def _standing(extra: dict[str, Any]) -> dict[str, Any]:
    """Fields of a note that lie in a revision's `extra`; what a newer program put there besides is left alone."""
    told = {name: extra[name] for name in STANDING if name in extra}
    if "merged_from" in told:
        told["merged_from"] = tuple(told["merged_from"])
    return told


STANDING = ("kind", "status", "reason", "valid", "valid_basis", "observed", "contests", "merged_from")


def standing_of(note: Note) -> dict[str, Any]:
    """The fields of STANDING that say something, as they are stored and exported."""
    blank = Note("", "", "", 0, 0.0, 0.0)
    return {name: getattr(note, name) for name in STANDING if getattr(note, name) != getattr(blank, name)}


def evidence_of(db: Database, note_id: int, revision: int) -> tuple[Evidence, ...]:
    rows = db.conn.execute(
        f"SELECT {_EVIDENCE} FROM note_evidence WHERE note_id = ? AND revision = ? ORDER BY position",
        (note_id, revision),
    )
    return tuple(_piece(row) for row in rows)


def _piece(row: Sequence[Any]) -> Evidence:
    return Evidence(
        quote=row[0],
        path=row[1],
        locator=row[2],
        chunk_id=row[3],
        message=row[4],
        document_digest=bytes(row[5]),
        span=None if row[6] is None else (row[6], row[7]),
        prefix=row[8],
        suffix=row[9],
        state=row[10],
        detail=row[11],
        kind=row[12],
        verified=row[13],
        noted_path=row[14],
        noted_locator=row[15],
        basis=row[16],
    )


def put_note(db: Database, note: Note, action: Action) -> None:
    """Make this the current revision: row, evidence, full text, change counter. Inside the caller's
    transaction."""
    from pensieve_mcp.notebook.checks import folded

    deleted = int(note.deleted)
    note_id = db.conn.execute(
        "INSERT INTO notes (key, folded, revision, deleted, created_at, updated_at, status, valid, in_force) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) "
        "DO UPDATE SET revision = excluded.revision, deleted = excluded.deleted, "
        "updated_at = excluded.updated_at, status = excluded.status, valid = excluded.valid, "
        "in_force = excluded.in_force RETURNING id",
        (
            note.key,
            folded(note.key),
            note.revision,
            deleted,
            note.created,
            note.updated,
            note.status,
            note.valid,
            note.contests,
        ),
    ).fetchone()[0]
    db.conn.execute(
        "INSERT INTO note_revisions "
        "(note_id, revision, at, author, action, summary, content, applies_to, links, extra) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            note_id,
            note.revision,
            note.updated,
            note.author,
            action,
            note.summary,
            note.content,
            note.applies_to,
            json.dumps(note.links),
            json.dumps(standing_of(note)),
        ),
    )
    db.conn.executemany(
        f"INSERT INTO note_evidence (note_id, revision, position, {_EVIDENCE}) VALUES ({_PLACES})",
        [
            (
                note_id,
                note.revision,
                position,
                piece.quote,
                piece.path,
                piece.locator,
                piece.chunk_id,
                piece.message,
                piece.document_digest,
                None if piece.span is None else piece.span[0],
                None if piece.span is None else piece.span[1],
                piece.prefix,
                piece.suffix,
                piece.state,
                piece.detail,
                piece.kind,
                piece.verified,
                piece.noted_path,
                piece.noted_locator,
                piece.basis,
            )
            for position, piece in enumerate(note.evidence)
        ],
    )
    db.conn.execute("DELETE FROM notes_text WHERE rowid = ?", (note_id,))
    if not deleted:
        body = shadow(f"{note.content}\n{_in_force_words(db, note_id, note)}")
        # Quotes are found, but a document's words must not lift a note above others: each counts once, as parts do.
        quoted = shadow("\n".join(piece.quote for piece in note.evidence))
        quotes = " ".join(dict.fromkeys(f"{quoted.body} {quoted.parts}".split()))
        db.conn.execute(
            "INSERT INTO notes_text (rowid, key, summary, body, parts) VALUES (?, ?, ?, ?, ?)",
            (
                note_id,
                shadow(note.key).body,
                shadow(note.summary).body,
                body.body,
                f"{shadow(note.key).parts} {shadow(note.summary).parts} {body.parts} {quotes}",
            ),
        )
    changed(db, "note", note.key)


def _in_force_words(db: Database, note_id: int, note: Note) -> str:
    if note.contests is None:
        return ""
    row = db.conn.execute(
        "SELECT summary, content FROM note_revisions WHERE note_id = ? AND revision = ?",
        (note_id, note.contests),
    ).fetchone()
    return f"{row[0]}\n{row[1]}" if row is not None else ""


def changed(db: Database, kind: str, name: str) -> None:
    db.conn.execute("INSERT INTO note_changes (kind, name) VALUES (?, ?)", (kind, name))

"""The notebook's tables in `pensieve.db`, and how a row becomes a value.

Columns are explained here, where they are declared. Every change is a revision and a row of `note_changes`;
nothing is overwritten. `status`, `valid` and `extra` are there for what issue 6 adds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pensieve_mcp.fulltext import TOKENIZER, shadow
from pensieve_mcp.notebook.types import Action, Evidence, Note, NoteLine
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
    ),
)

NOTE_COLUMNS = (
    "n.key, r.summary, r.content, r.revision, n.created_at, r.at, r.applies_to, r.links, r.author, "
    "r.action = 'delete', n.id"
)
LINE_COLUMNS = (
    "n.key, r.summary, n.revision, n.updated_at, length(r.content), (SELECT count(*) FROM note_evidence e "
    "WHERE e.note_id = n.id AND e.revision = n.revision AND e.state NOT IN ('ok', 'unchecked'))"
)
CURRENT = "FROM notes n JOIN note_revisions r ON r.note_id = n.id AND r.revision = n.revision"

_EVIDENCE = (
    "quote, path, locator, chunk_id, message, document_digest, span_start, span_end, prefix, suffix, state, "
    "detail, kind, verified_at"
)


def line_from(row: Sequence[Any]) -> NoteLine:
    """From LINE_COLUMNS."""
    return NoteLine(*row[:6])


def note_from(db: Database, row: Sequence[Any]) -> Note:
    """From NOTE_COLUMNS, with the evidence of that revision."""
    return Note(
        key=row[0],
        summary=row[1],
        content=row[2],
        revision=row[3],
        created=row[4],
        updated=row[5],
        evidence=evidence_of(db, row[10], row[3]),
        applies_to=row[6],
        links=tuple(json.loads(row[7])),
        author=row[8],
        deleted=bool(row[9]),
    )


def evidence_of(db: Database, note_id: int, revision: int) -> tuple[Evidence, ...]:
    rows = db.conn.execute(
        f"SELECT {_EVIDENCE} FROM note_evidence WHERE note_id = ? AND revision = ? ORDER BY position",
        (note_id, revision),
    )
    return tuple(
        Evidence(
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
        )
        for row in rows
    )


def put_note(db: Database, note: Note, action: Action) -> None:
    """Make this the current revision: row, evidence, full text, change counter. Inside the caller's
    transaction."""
    from pensieve_mcp.notebook.checks import folded

    deleted = int(note.deleted)
    note_id = db.conn.execute(
        "INSERT INTO notes (key, folded, revision, deleted, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) "
        "DO UPDATE SET revision = excluded.revision, deleted = excluded.deleted, "
        "updated_at = excluded.updated_at RETURNING id",
        (note.key, folded(note.key), note.revision, deleted, note.created, note.updated),
    ).fetchone()[0]
    db.conn.execute(
        "INSERT INTO note_revisions "
        "(note_id, revision, at, author, action, summary, content, applies_to, links) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
        ),
    )
    db.conn.executemany(
        f"INSERT INTO note_evidence (note_id, revision, position, {_EVIDENCE}) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            )
            for position, piece in enumerate(note.evidence)
        ],
    )
    db.conn.execute("DELETE FROM notes_text WHERE rowid = ?", (note_id,))
    if not deleted:
        body = shadow("\n".join([note.content, *(piece.quote for piece in note.evidence)]))
        db.conn.execute(
            "INSERT INTO notes_text (rowid, key, summary, body, parts) VALUES (?, ?, ?, ?, ?)",
            (
                note_id,
                shadow(note.key).body,
                shadow(note.summary).body,
                body.body,
                f"{shadow(note.key).parts} {shadow(note.summary).parts} {body.parts}",
            ),
        )
    changed(db, "note", note.key)


def changed(db: Database, kind: str, name: str) -> None:
    db.conn.execute("INSERT INTO note_changes (kind, name) VALUES (?, ?)", (kind, name))

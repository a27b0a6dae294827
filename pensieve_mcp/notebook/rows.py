"""One note out of the tables, as it is or was, and the words for one that is not there."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pensieve_mcp.errors import Conflict, NoSuchNote
from pensieve_mcp.notebook import checks
from pensieve_mcp.notebook.schema import CURRENT, NOTE_COLUMNS, note_from
from pensieve_mcp.notebook.types import Note

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

NEAR_NAMES = 3


def current_of(db: Database, key: str) -> Note | None:
    row = db.conn.execute(f"SELECT {NOTE_COLUMNS} {CURRENT} WHERE n.key = ?", (key,)).fetchone()
    return None if row is None else note_from(db, row)


def revision_of(db: Database, key: str, revision: int) -> Note | None:
    if not 0 < revision < 2**63:
        return None
    row = db.conn.execute(
        f"SELECT {NOTE_COLUMNS} FROM notes n JOIN note_revisions r ON r.note_id = n.id "
        "WHERE n.key = ? AND r.revision = ?",
        (key, revision),
    ).fetchone()
    return None if row is None else note_from(db, row)


def told(note: Note) -> str:
    when = datetime.fromtimestamp(max(0.0, note.updated), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    who = f"by {note.author}, " if note.author else ""
    return f"{who}{when}: {'deleted' if note.deleted else repr(note.summary[:120])}"


def twins(db: Database, key: str) -> list[str]:
    rows = db.conn.execute(
        "SELECT key FROM notes WHERE folded = ? AND key <> ? AND deleted = 0 LIMIT 5",
        (checks.folded(key), key),
    ).fetchall()
    return [f"There is also a note {row[0]!r}: merge them if they mean the same." for row in rows]


def no_such(db: Database, key: str, current: Note | None, revision: int | None = None) -> NoSuchNote:
    if revision is not None and current is not None:
        return NoSuchNote(
            f"{key!r} has no readable revision {revision}; it has 1 to {current.revision}.",
            hint="Read it without revision for the current one.",
        )
    if current is not None:
        return NoSuchNote(
            f"{key!r} was deleted at revision {current.revision} ({told(current)}).",
            hint=f"Read revision {current.revision - 1} with readNote, or note it anew under the same key.",
        )
    names = near(db, key)
    return NoSuchNote(
        f"There is no note {key!r}{'' if names else ', and none with a similar key'}.",
        hint=f"Did you mean {' or '.join(map(repr, names))}?" if names else "readNote without key lists all.",
    )


def near(db: Database, key: str) -> list[str]:
    like = checks.folded(key)
    rows = db.conn.execute(
        "SELECT key, folded FROM notes WHERE deleted = 0 ORDER BY updated_at DESC LIMIT 2000"
    )
    keys = {str(row[0]): str(row[1]) for row in rows}
    same = [one for one, short in keys.items() if short == like]
    part = [one for one, short in keys.items() if like and len(like) > 2 and (like in short or short in like)]
    part.sort(key=lambda one: abs(len(keys[one]) - len(like)))
    close = set(difflib.get_close_matches(like, keys.values(), n=NEAR_NAMES, cutoff=0.6))
    similar = [one for one, short in keys.items() if short in close]
    return list(dict.fromkeys([*same, *part, *similar]))[:NEAR_NAMES]


def expect(db: Database, key: str, current: Note | None, expected: int | None) -> None:
    """Raises Conflict with both versions when the current revision is not the expected one; 0 means a new key."""
    have = 0 if current is None else current.revision
    if expected is None or expected == have or (expected == 0 and current is not None and current.deleted):
        return
    if current is None:
        raise Conflict(
            f"{key!r} does not exist, but revision {expected} was expected.",
            hint="Read the list of notes, or write it without expect_revision.",
        )
    mine = revision_of(db, key, expected)
    yours = f"revision {expected} ({told(mine)})" if mine is not None else f"revision {expected} (unknown)"
    raise Conflict(
        f"{key!r} is at revision {have} ({told(current)}), not at the expected {yours}.",
        hint=f"Read it again with readNote, then repeat the change with expect_revision={have}.",
    )

"""Withdrawing a source: what rests on it says so, and nothing older takes its place in silence.

A poisoned document is traced by the evidence of notes: by path, and by the messages that showed it. Notes that link
to a withdrawn one are marked for review, one step far: further on nobody can tell what rests on what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pensieve_mcp.notebook.schema import CURRENT, NOTE_COLUMNS, note_from
from pensieve_mcp.notebook.types import HOLDING, Evidence, Note, Reinstated, Revoked, RevokedSource

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

Put = Callable[[Note, Note], Note]


def sources(db: Database) -> tuple[RevokedSource, ...]:
    rows = db.conn.execute("SELECT path, at, author, reason FROM revoked_sources ORDER BY path")
    return tuple(RevokedSource(*row) for row in rows)


def lies_in(path: str, source: str) -> bool:
    """Whether a document is the source, or lies below it."""
    top = source.rstrip("/")
    return bool(path) and (path == top or path.startswith(f"{top}/"))


def rests(piece: Evidence, source: str, messages: frozenset[int]) -> bool:
    """A message may show several documents; where the quote's own is known, that one counts."""
    if piece.path:
        return lies_in(piece.path, source) or lies_in(piece.noted_path, source)
    return piece.message is not None and piece.message in messages


def under_revocation(db: Database, note: Note) -> tuple[Note, list[str]]:
    """The note with evidence from withdrawn sources marked, and sentences about that."""
    if not note.evidence:
        return note, []
    withdrawn = sources(db)
    marked, told = [], {}
    for piece in note.evidence:
        source = next((one for one in withdrawn if rests(piece, one.path, frozenset())), None)
        if source is None or piece.state == "revoked":
            marked.append(piece)
            continue
        why = f"source revoked{f' by {source.author}' if source.author else ''}"
        marked.append(
            replace(piece, state="revoked", detail=f"{why}: {source.reason}" if source.reason else why)
        )
        told[source.path] = f"{source.path} was revoked as a source: what rests on it needs review."
    if not told:
        return note, []
    return _marked(note, tuple(marked), f"rests on {', '.join(told)}, which was revoked"), list(told.values())


def revoke(
    db: Database,
    source: str,
    messages: frozenset[int],
    *,
    author: str,
    reason: str,
    now: float,
    put: Put,
) -> Revoked:
    """Mark everything that rests on the source, inside the caller's transaction."""
    db.conn.execute(
        "INSERT INTO revoked_sources (path, at, author, reason) VALUES (?, ?, ?, ?) ON CONFLICT (path) "
        "DO UPDATE SET at = excluded.at, author = excluded.author, reason = excluded.reason",
        (source, now, author, reason),
    )
    why = f"{source} was revoked{f' by {author}' if author else ''}{f': {reason}' if reason else ''}"
    revoked: list[str] = []
    review: list[str] = []
    for note in _live(db):
        hit = [rests(piece, source, messages) for piece in note.evidence]
        if not any(hit) and not _force_rests(db, note, source, messages):
            continue
        pieces = tuple(
            replace(piece, state="revoked", detail=why) if touched else piece
            for piece, touched in zip(note.evidence, hit, strict=True)
        )
        marked = _marked(note, pieces, why)
        put(replace(marked, author=author), note)
        (revoked if marked.status == "revoked" else review).append(note.key)
    linked = _mark_linked(db, {*revoked, *review}, why, author, put)
    return Revoked(tuple(revoked), tuple(review), linked)


def _marked(note: Note, pieces: tuple[Evidence, ...], why: str) -> Note:
    """With nothing left that holds it is revoked. A contest ends without a winner: nobody may fall back on the claim
    in force, which may rest on the same source."""
    left = any(piece.state in HOLDING for piece in pieces)
    return replace(
        note, evidence=pieces, status="needs review" if left else "revoked", reason=why, contests=None
    )


def _force_rests(db: Database, note: Note, source: str, messages: frozenset[int]) -> bool:
    if note.contests is None:
        return False
    row = db.conn.execute(
        f"SELECT {NOTE_COLUMNS} FROM notes n JOIN note_revisions r ON r.note_id = n.id "
        "WHERE n.key = ? AND r.revision = ?",
        (note.key, note.contests),
    ).fetchone()
    return row is not None and any(rests(piece, source, messages) for piece in note_from(db, row).evidence)


def _mark_linked(db: Database, keys: set[str], why: str, author: str, put: Put) -> tuple[str, ...]:
    linked = []
    for note in list(_live(db)):
        named = [link for link in note.links if link in keys]
        if not named or note.key in keys or note.status != "active":
            continue
        about = f"it links to {', '.join(map(repr, named))}; {why}"
        put(replace(note, status="needs review", reason=about, author=author), note)
        linked.append(note.key)
    return tuple(linked)


def reinstate(db: Database, source: str, *, author: str, put: Put) -> Reinstated:
    """Set back what a withdrawal of this source marked, inside the caller's transaction: status, reason and contest of
    the revision before. Notes whose evidence does not hold, and those that link to such, stay marked."""
    marked = [note for note in _live(db) if _marked_by(note, source)]
    left: dict[str, str] = {}
    for note in marked:
        bad = next((piece.state for piece in note.evidence if piece.state not in HOLDING), None)
        if bad is not None:
            left[note.key] = f"its evidence is {bad}"
    growing = True
    while growing:  # a link to a note that stays marked keeps its own mark
        found = {
            note.key: f"it links to {named!r}"
            for note in marked
            if note.key not in left and note.reason.startswith("it links to ")
            for named in note.links
            if named in left
        }
        left |= found
        growing = bool(found)
    back = [note for note in marked if note.key not in left]
    for note in back:
        before = _before(db, note, source)
        status, reason, contests = (
            (before.status, before.reason, before.contests) if before else ("active", "", None)
        )
        put(replace(note, status=status, reason=reason, contests=contests, author=author), note)
    return Reinstated(tuple(note.key for note in back), tuple(left.items()))


def _marked_by(note: Note, source: str) -> bool:
    """Whether a withdrawal of the source set the note's status, by the reason that it left."""
    if note.status not in ("revoked", "needs review"):
        return False
    tail = note.reason.partition("; ")[2] if note.reason.startswith("it links to ") else note.reason
    said = f"{source} was revoked"
    if tail == said or tail.startswith((f"{said} by ", f"{said}: ")):
        return True
    names = note.reason.removeprefix("rests on ").removesuffix(", which was revoked")
    return f"rests on {names}, which was revoked" == note.reason and source in names.split(", ")


def _before(db: Database, note: Note, source: str) -> Note | None:
    """The last revision that the withdrawal had not marked; None where it was noted after."""
    rows = db.conn.execute(
        f"SELECT {NOTE_COLUMNS} FROM notes n JOIN note_revisions r ON r.note_id = n.id "
        "WHERE n.key = ? ORDER BY r.revision DESC",
        (note.key,),
    )
    older = (note_from(db, row) for row in rows.fetchall())
    return next((one for one in older if not _marked_by(one, source)), None)


def traced(db: Database, source: str, messages: frozenset[int]) -> Revoked:
    """What a purge of the source removes, cleans and marks, by key."""
    purged: dict[str, None] = {}
    mixed: list[Note] = []
    live = list(_all(db))
    for note in live:
        pieces = note.evidence or ()
        touched = [piece for piece in pieces if rests(piece, source, messages)]
        if touched and len(touched) == len(pieces):
            purged[note.key] = None
        elif touched or _ever_rested(db, note.key, source, messages):
            mixed.append(note)
    for note in mixed:
        if (
            note.evidence
            and set(note.merged_from) & set(purged)
            and not any(
                piece.state in HOLDING and not rests(piece, source, messages) for piece in note.evidence
            )
        ):
            purged[note.key] = None  # made of purged notes, and nothing else holds it
    # What was merged from purged notes without evidence of its own came from them alone.
    for note in live:
        if note.merged_from and set(note.merged_from) <= set(purged) and not note.evidence:
            purged[note.key] = None
    review = tuple(note.key for note in mixed if note.key not in purged)
    linked = tuple(
        note.key
        for note in live
        if not note.deleted
        and note.key not in purged
        and note.key not in review
        and set(note.links) & set(purged)
    )
    return Revoked(review=review, linked=linked, purged=tuple(purged))


def purge(db: Database, source: str, messages: frozenset[int], *, put: Put, author: str) -> Revoked:
    """Clean what stays: quotes of the source go in all revisions. The caller removes what `purged` names."""
    found = traced(db, source, messages)
    why = f"quotes of {source} were purged from it"
    by_key = {note.key: note for note in _all(db)}
    for key in found.review:
        note = by_key[key]
        for piece in _pieces(db, key):
            if rests(piece[1], source, messages):
                db.conn.execute("DELETE FROM note_evidence WHERE rowid = ?", (piece[0],))
        if not note.deleted:
            kept = tuple(piece for piece in note.evidence if not rests(piece, source, messages))
            put(
                replace(note, evidence=kept, status="needs review", reason=why, contests=None, author=author),
                note,
            )
    for key in found.linked:
        note = by_key[key]
        if note.status == "active":
            about = f"it links to a note that was purged with its source {source}"
            put(replace(note, status="needs review", reason=about, author=author), note)
    return found


def paths_of(db: Database) -> tuple[str, ...]:
    """Documents that the evidence of any revision names, by the path then and now."""
    rows = db.conn.execute(
        "SELECT path FROM note_evidence UNION SELECT noted_path FROM note_evidence ORDER BY 1"
    )
    return tuple(row[0] for row in rows if row[0])


def quotes_of(db: Database, source: str) -> tuple[str, ...]:
    """Quotes of a source in all revisions."""
    rows = db.conn.execute("SELECT DISTINCT quote, path, noted_path FROM note_evidence WHERE quote <> ''")
    return tuple(dict.fromkeys(row[0] for row in rows if lies_in(row[1], source) or lies_in(row[2], source)))


def _pieces(db: Database, key: str) -> list[tuple[int, Evidence]]:
    rows = db.conn.execute(
        "SELECT e.rowid, e.quote, e.path, e.noted_path, e.message FROM note_evidence e "
        "JOIN notes n ON n.id = e.note_id WHERE n.key = ?",
        (key,),
    ).fetchall()
    return [(row[0], Evidence(row[1], path=row[2], noted_path=row[3], message=row[4])) for row in rows]


def _ever_rested(db: Database, key: str, source: str, messages: frozenset[int]) -> bool:
    return any(rests(piece, source, messages) for _, piece in _pieces(db, key))


def _live(db: Database) -> Iterator[Note]:
    return (note for note in _all(db) if not note.deleted)


def _all(db: Database) -> Iterator[Note]:
    for row in db.conn.execute(f"SELECT {NOTE_COLUMNS} {CURRENT} ORDER BY n.key").fetchall():
        yield note_from(db, row)

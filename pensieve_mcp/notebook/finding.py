"""Notes found by words and by meaning, and the notes near a note.

BM25 and cosine are blended, then weighed: a note whose evidence holds, or to which others link, comes somewhat earlier;
one that needs review or was revoked later. Quotes are found but weigh little, and are never compared by meaning, so
that no document lifts its own notes. Where vectors come from is nothing to this file: it asks for them through a port.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pensieve_mcp.fulltext import Nearness, Ranked, Searched, rank, snippet
from pensieve_mcp.notebook.filtering import condition_of
from pensieve_mcp.notebook.schema import IN_FORCE, LINE_COLUMNS, line_from
from pensieve_mcp.notebook.types import Neighbour, NoteAnswer, NoteFilter, NoteHit

if TYPE_CHECKING:
    from pensieve_mcp.storage import Connections, Database

NEIGHBOURS = 12  # offered beside a note that is read
RERANKED = 4  # times the hits asked for are weighed by evidence and links
COLUMN_WEIGHTS = (4.0, 2.0, 1.0, 0.3)  # of key, summary, body, parts

_NEAR: dict[Literal["links to", "linked from", "same place"], str] = {
    "links to": "n.key IN (SELECT j.value FROM notes o JOIN note_revisions r ON r.note_id = o.id "
    "AND r.revision = o.revision, json_each(r.links) j WHERE o.key = ?1)",
    "linked from": "n.id IN (SELECT o.id FROM notes o JOIN note_revisions r ON r.note_id = o.id "
    "AND r.revision = o.revision, json_each(r.links) j WHERE j.value = ?1)",
    "same place": "n.id IN (SELECT b.note_id FROM notes o JOIN note_evidence a ON a.note_id = o.id "
    "AND a.revision = o.revision JOIN note_evidence b ON b.path = a.path AND a.path <> '' "
    "JOIN notes p ON p.id = b.note_id AND p.revision = b.revision WHERE o.key = ?1 "
    "AND (a.chunk_id = b.chunk_id OR (a.span_start < b.span_end AND b.span_start < a.span_end)))",
}
_HOLDS = (
    "EXISTS (SELECT 1 FROM note_evidence e WHERE e.note_id = n.id AND e.revision = f.revision "
    "AND e.state IN ('ok', 'moved'))"
)


def search(
    connections: Connections,
    query: str,
    limit: int,
    *,
    only: NoteFilter | None = None,
    near: Nearness | None = None,
    words: bool = True,
    strict: bool = True,
) -> NoteAnswer:
    """Notes whose key, summary, content or quotes match, or that mean alike, best first. Any string is answered."""
    more, values = condition_of(only)
    with connections.reading() as db:
        searched = Searched(
            table="notes_text",
            weights=COLUMN_WEIGHTS,
            source=f"{IN_FORCE} JOIN notes_text ON notes_text.rowid = n.id",
            where=f"n.deleted = 0{more}",
            values=tuple(values),
            bare=f"{IN_FORCE} WHERE n.deleted = 0{more} AND n.id",
        )
        ranked = rank(db, query, searched, limit * RERANKED, near=near, words=words, strict=strict)
        rows = _lines(db, ranked)
        ranked = ranked.looked_twice(near, lambda row: _told(rows.get(row)))
        linked = _linked_to(db, [row[0] for row in rows.values()]) if len(rows) > 1 else {}
    hits = []
    for row_id, score in ranked.scores.items():
        if (row := rows.get(row_id)) is None:
            continue  # deleted meanwhile
        weight = _weight(row[6], bool(row[10]), linked.get(row[0], 0))
        hits.append(NoteHit(line_from(row), score * weight, snippet(row[9] or row[1], query)))
    hits.sort(key=lambda hit: (-hit.score, hit.line.key))
    return NoteAnswer(tuple(hits[:limit]), ranked.total, ranked.found)


def _told(row: Sequence[Any] | None) -> str | None:
    return None if row is None else f"{row[0]} {row[1]}\n{row[9]}"


def _lines(db: Database, ranked: Ranked) -> dict[int, Sequence[Any]]:
    rows = db.conn.execute(
        f"SELECT {LINE_COLUMNS}, f.content, {_HOLDS}, n.id {IN_FORCE} "
        "WHERE n.id IN (SELECT value FROM json_each(?)) AND n.deleted = 0",
        (json.dumps(list(ranked.scores)),),
    )
    return {int(row[11]): row for row in rows}


def neighbours(db: Database, key: str, limit: int) -> tuple[Neighbour, ...]:
    """Notes that a note links to, that link to it, or that rest on the same place."""
    found: dict[str, Neighbour] = {}
    for how, condition in _NEAR.items():
        rows = db.conn.execute(
            f"SELECT {LINE_COLUMNS} {IN_FORCE} WHERE n.deleted = 0 AND n.key <> ?1 AND {condition} "
            "ORDER BY n.updated_at DESC LIMIT ?2",
            (key, limit),
        )
        for row in rows:
            found.setdefault(row[0], Neighbour(line_from(row), how))
    return tuple(found.values())[:limit]


def texts(db: Database, keys: Sequence[str]) -> list[tuple[int, str, str | None]]:
    """(row, key and summary, content) of notes by key, as they are in force; content None for a deleted one."""
    rows = db.conn.execute(
        f"SELECT n.id, n.key || ' ' || f.summary, CASE WHEN n.deleted THEN NULL ELSE f.content END {IN_FORCE} "
        "WHERE n.key IN (SELECT value FROM json_each(?))",
        (json.dumps(list(keys)),),
    )
    return [(int(row[0]), str(row[1]), row[2]) for row in rows]


def _linked_to(db: Database, keys: Sequence[str]) -> dict[str, int]:
    """How many notes link to each of these keys."""
    rows = db.conn.execute(
        "SELECT j.value, count(DISTINCT o.id) FROM note_revisions r "
        "JOIN notes o ON o.id = r.note_id AND o.revision = r.revision AND o.deleted = 0 JOIN json_each(r.links) j "
        "WHERE r.links <> '[]' AND j.value IN (SELECT value FROM json_each(?)) GROUP BY 1",
        (json.dumps(list(keys)),),
    )
    return {str(row[0]): int(row[1]) for row in rows}


def _weight(status: str, holds: bool, linked: int) -> float:
    standing_weight = {"active": 1.0, "needs review": 0.7}.get(status, 0.3)
    # 1.3 makes up for the length that its quotes give a note, and somewhat more
    return standing_weight * (1.3 if holds else 1.0) * (1.0 + 0.05 * min(3, linked))

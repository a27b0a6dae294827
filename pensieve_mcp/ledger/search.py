"""Full text of what was said, written and asked inside `pensieve.db`: said now is found now, forgotten or
not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import StorageError
from pensieve_mcp.fulltext import Found, Nearness, Searched, Shadow, rank, shadow, snippet
from pensieve_mcp.ledger.blobs import Blobs
from pensieve_mcp.ledger.events import Message
from pensieve_mcp.ledger.schema import MESSAGE_COLUMNS, message_from
from pensieve_mcp.storage import Connections

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

MAX_LIMIT = 1_000
COLUMN_WEIGHTS = (1.0, 0.3, 2.0)  # of body, parts, label


@dataclass(frozen=True, slots=True)
class HistoryHit:
    """One message found. `score` is BM25, higher is better, comparable within one answer."""

    message: Message
    episode_id: int
    score: float
    snippet: str


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """Best first. `total` counts all that match; `found` says whether all terms had to be in them."""

    hits: tuple[HistoryHit, ...]
    total: int
    found: Found


def index(db: Database, number: int, body: Shadow, label: str) -> None:
    """Make a message findable. Inside the transaction that writes it."""
    db.conn.execute(
        "INSERT INTO messages_text (rowid, body, parts, label) VALUES (?, ?, ?, ?)",
        (number, body.body, body.parts, shadow(label).body),
    )


def unindex(db: Database, number: int, text: str, label: str) -> None:
    """Take a message out again. A contentless table must be told exactly what it was given."""
    body = shadow(text)
    db.conn.execute(
        "INSERT INTO messages_text (messages_text, rowid, body, parts, label) VALUES ('delete', ?, ?, ?, ?)",
        (number, body.body, body.parts, shadow(label).body),
    )


def search(
    connections: Connections,
    blobs: Blobs,
    query: str,
    *,
    episode_id: int | None,
    role: str | None,
    tool: str | None,
    limit: int,
    near: Nearness | None = None,
    words: bool = True,
) -> HistoryAnswer:
    """All terms first, then any, then beginnings of words; with `near` by meaning as well, without `words` by meaning
    alone. Never raises for what the query says."""
    where = "(? IS NULL OR m.episode_id = ?) AND (? IS NULL OR m.role = ?) AND (? IS NULL OR m.tool = ?)"
    role, tool = _plain(role), _plain(tool)
    with connections.reading() as db:
        searched = Searched(
            table="messages_text",
            weights=COLUMN_WEIGHTS,
            source="FROM messages_text JOIN messages m ON m.number = messages_text.rowid",
            where=where,
            values=(episode_id, episode_id, role, role, tool, tool),
            bare=f"FROM messages m WHERE {where} AND m.shadow > 0 AND m.number",
        )
        ranked = rank(db, query, searched, min(max(0, limit), MAX_LIMIT), near=near, words=words)
        rows = {
            int(row[0]): row
            for row in db.conn.execute(
                f"SELECT {MESSAGE_COLUMNS}, m.episode_id, m.content_state FROM messages m "
                "WHERE m.number IN (SELECT value FROM json_each(?))",
                (json.dumps(list(ranked.scores)),),
            )
        }

    def text(number: int) -> str | None:
        if (row := rows.get(number)) is None:
            return None
        kept = _text(blobs, message_from(row)) if row[14] == "kept" else None
        return kept and f"{row[5]}\n{kept}"

    ranked = ranked.looked_twice(near, text)
    order = sorted(rows.keys() & ranked.scores.keys(), key=lambda number: (-ranked.scores[number], -number))
    hits = tuple(_hit(blobs, rows[number], query, ranked.scores[number]) for number in order)
    return HistoryAnswer(hits, ranked.total, ranked.found)


def _hit(blobs: Blobs, row: Sequence[Any], query: str, score: float) -> HistoryHit:
    message = message_from(row)
    text = _text(blobs, message) if row[14] == "kept" else None
    return HistoryHit(message, row[13], score, snippet(text or message.label, query))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A message in the order in which it was recorded, with its label and text; empty what is not kept."""

    event_id: int
    number: int
    episode_id: int
    tool: str
    text: str


def said_since(connections: Connections, blobs: Blobs, event_id: int, limit: int) -> list[Recorded]:
    """What was said after an event, in any conversation. Looking does not count as use."""
    with connections.reading() as db:
        rows = db.conn.execute(
            "SELECT e.id, m.number, m.episode_id, m.tool, m.label, CASE m.content_state WHEN 'kept' THEN m.digest END "
            "FROM events e JOIN messages m ON m.number = CAST(e.body AS INTEGER) "
            "WHERE e.id > ? AND e.kind = 'said' AND m.shadow > 0 ORDER BY e.id LIMIT ?",
            (event_id, limit),
        ).fetchall()
    found = []
    for row in rows:
        try:
            text = blobs.get(bytes(row[5]), use=False) if row[5] is not None else None
        except StorageError:  # damaged: `content` words it when it is asked for
            text = None
        found.append(Recorded(row[0], row[1], row[2], row[3], f"{row[4]}\n{text or ''}"))
    return found


def _plain(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _text(blobs: Blobs, message: Message) -> str | None:
    """A damaged content costs its snippet, not the whole answer; `content` words it when it is asked for."""
    try:
        return blobs.get(message.digest)
    except StorageError:
        return None

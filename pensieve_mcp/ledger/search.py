"""Full text of what was said, written and asked inside `pensieve.db`: said now is found now, forgotten or
not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import StorageError
from pensieve_mcp.fulltext import Found, Shadow, match_expressions, shadow, snippet
from pensieve_mcp.ledger.blobs import Blobs
from pensieve_mcp.ledger.events import Message
from pensieve_mcp.ledger.schema import MESSAGE_COLUMNS, message_from
from pensieve_mcp.storage import Connections

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

MAX_LIMIT = 1_000


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
) -> HistoryAnswer:
    """All terms first, then any, then beginnings of words. Never raises for what the query says."""
    limit = min(max(0, limit), MAX_LIMIT)
    condition = (
        "messages_text MATCH ?1 AND (?2 IS NULL OR m.episode_id = ?2) AND (?3 IS NULL OR m.role = ?3) "
        "AND (?4 IS NULL OR m.tool = ?4)"
    )
    source = "FROM messages_text JOIN messages m ON m.number = messages_text.rowid"
    for found, expression in match_expressions(query):
        values = (expression, episode_id, _plain(role), _plain(tool))
        with connections.reading() as db:
            total = int(db.conn.execute(f"SELECT count(*) {source} WHERE {condition}", values).fetchone()[0])
            rows = db.conn.execute(
                f"SELECT {MESSAGE_COLUMNS}, m.episode_id, m.content_state, "
                f"bm25(messages_text, 1.0, 0.3, 2.0) {source} WHERE {condition} "
                "ORDER BY 16, m.number DESC LIMIT ?5",
                (*values, limit),
            ).fetchall()
        if total:
            return HistoryAnswer(tuple(_hit(blobs, row, query) for row in rows), total, found)
    return HistoryAnswer((), 0, "all")


def _hit(blobs: Blobs, row: Sequence[Any], query: str) -> HistoryHit:
    message = message_from(row)
    text = _text(blobs, message) if row[14] == "kept" else None
    return HistoryHit(message, row[13], -float(row[15]), snippet(text or message.label, query))


def _plain(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _text(blobs: Blobs, message: Message) -> str | None:
    """A damaged content costs its snippet, not the whole answer; `content` words it when it is asked for."""
    try:
        return blobs.get(message.digest)
    except StorageError:
        return None

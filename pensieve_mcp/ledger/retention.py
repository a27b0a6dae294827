"""Keeping less: contents that expire, and purging that leaves nothing behind.

A content belongs to every message with its digest, so it goes when the last of them lets go. Contents are
deleted while the writer's lock on `pensieve.db` is held: an append in another process comes before, and is
seen, or after, and stores its content again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pensieve_mcp.errors import StorageError
from pensieve_mcp.fulltext import SHADOW_VERSION, shadow
from pensieve_mcp.ledger import search
from pensieve_mcp.ledger.blobs import ORPHAN_SECONDS, Blobs
from pensieve_mcp.storage import Connections, shrink

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

BATCH = 200  # messages a transaction: other writers wait for each


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed. `freed_bytes` counts stored contents, not what the files shrank by."""

    episodes: int
    messages: int
    freed_bytes: int


def purge(
    connections: Connections,
    blobs: Blobs,
    *,
    before: float | None,
    episode_id: int | None,
    content_only: bool,
) -> Purged:
    """See `Ledger.purge`."""
    if before is None and episode_id is None:
        raise ValueError("purge needs `before` or an episode")
    with connections.reading() as db:
        ids = [
            int(row[0])
            for row in db.conn.execute(
                "SELECT id FROM episodes WHERE (?1 IS NULL OR last_at < ?1) AND (?2 IS NULL OR id = ?2)",
                (before, episode_id),
            )
        ]
        query = "SELECT number FROM messages WHERE episode_id = ? ORDER BY number"
        numbers = [int(row[0]) for one in ids for row in db.conn.execute(query, (one,))]
    freed = _let_go(connections, blobs, numbers, "purged")
    with connections.writing() as db:
        _begin_anew(db, numbers)
        for one in ids:
            if content_only:
                db.conn.execute("UPDATE messages SET kept_thought = '' WHERE episode_id = ?", (one,))
            else:
                db.conn.execute(
                    "DELETE FROM host_handles WHERE host_call_id IN "
                    "(SELECT host_call_id FROM messages WHERE episode_id = ?1 EXCEPT "
                    "SELECT host_call_id FROM messages WHERE episode_id <> ?1)",
                    (one,),
                )
                db.conn.execute("DELETE FROM episodes WHERE id = ?", (one,))  # events and messages follow
        # Deleted terms lie in old segments of the full text until those are merged.
        db.conn.execute("INSERT INTO messages_text (messages_text) VALUES ('optimize')")
    blobs.shrink()
    with connections.alone() as db:
        shrink(db)
    return Purged(episodes=0 if content_only else len(ids), messages=len(numbers), freed_bytes=freed)


@dataclass(frozen=True, slots=True)
class Look:
    """A message with its text, for whoever goes through all of them; empty where its content is not kept."""

    number: int
    tool: str
    label: str
    thought: str
    chunk_ids: tuple[int, ...]
    text: str


def looks(connections: Connections, blobs: Blobs) -> Iterator[Look]:
    """All messages of all conversations. Looking does not count as use."""
    after = 0
    while True:
        with connections.reading() as db:
            rows = db.conn.execute(
                "SELECT number, tool, label, kept_thought, chunk_ids, digest, content_state FROM messages "
                "WHERE number > ? ORDER BY number LIMIT ?",
                (after, BATCH),
            ).fetchall()
        for row in rows:
            text = _stored_text(blobs, bytes(row[5])) if row[6] == "kept" else None
            yield Look(row[0], row[1], row[2], row[3], tuple(json.loads(row[4])), text or "")
        if len(rows) < BATCH:
            return
        after = rows[-1][0]


PURGED_WORDS = "[purged]"


def purge_messages(
    connections: Connections, blobs: Blobs, numbers: Sequence[int], hides: Callable[[str], bool]
) -> int:
    """Remove the texts of these messages, what was said with them, and labels, summaries and answers that `hides`
    names, also where a gateway's sighting says them. The messages keep their places. Answers stored bytes set free."""
    freed = _let_go(connections, blobs, numbers, "purged")
    with connections.writing() as db:
        _begin_anew(db, numbers)
        for number in numbers:
            row = db.conn.execute("SELECT label FROM messages WHERE number = ?", (number,)).fetchone()
            if row is None:
                continue
            label = PURGED_WORDS if hides(row[0]) else row[0]
            db.conn.execute(
                "UPDATE messages SET kept_thought = '', label = ? WHERE number = ?", (label, number)
            )
        for event_id, episode_id, body in db.conn.execute(
            "SELECT id, episode_id, body FROM events WHERE kind <> 'said'"
        ).fetchall():
            told = json.loads(body)
            words = {name: value for name, value in told.items() if isinstance(value, str) and hides(value)}
            if words:
                kept = json.dumps(told | dict.fromkeys(words, PURGED_WORDS))
                db.conn.execute("UPDATE events SET body = ? WHERE id = ?", (kept, event_id))
                db.conn.execute("UPDATE episodes SET generation = generation + 1 WHERE id = ?", (episode_id,))
        for episode_id, extra in db.conn.execute("SELECT id, extra FROM episodes").fetchall():
            seen = json.loads(extra)
            if (left := _without(seen, hides)) != seen:
                db.conn.execute("UPDATE episodes SET extra = ? WHERE id = ?", (json.dumps(left), episode_id))
        db.conn.execute("INSERT INTO messages_text (messages_text) VALUES ('optimize')")
    blobs.shrink()
    with connections.alone() as db:
        shrink(db)
    return freed


def _without(value: Any, hides: Callable[[str], bool]) -> Any:
    """A JSON value with what `hides` names replaced, wherever in it that stands."""
    if isinstance(value, dict):
        return {name: _without(one, hides) for name, one in value.items()}
    if isinstance(value, list):
        return [_without(one, hides) for one in value]
    return PURGED_WORDS if isinstance(value, str) and hides(value) else value


def expire(
    connections: Connections,
    blobs: Blobs,
    *,
    unused_since: float | None = None,
    to_bytes: int | None = None,
    sparing: int | None = None,
) -> int:
    """Let the longest unused contents go: those unused since a time, or until at most `to_bytes` are stored.

    Contents of the episode `sparing` stay, and by time those of any episode used since then. Answers stored
    bytes set free.
    """
    excess = None if to_bytes is None else blobs.stored_bytes() - to_bytes
    chosen: list[bytes] = []
    with connections.reading() as db:
        for digest, size, used in blobs.oldest():
            if (excess is not None and excess <= 0) or (unused_since is not None and used >= unused_since):
                break
            spared = db.conn.execute(
                "SELECT 1 FROM messages m JOIN episodes e ON e.id = m.episode_id WHERE m.digest = ?1 AND "
                "m.content_state = 'kept' AND (e.id = ?2 OR (?3 IS NOT NULL AND e.last_at >= ?3)) LIMIT 1",
                (digest, sparing, unused_since),
            ).fetchone()
            if spared is None:
                chosen.append(digest)
                excess = None if excess is None else excess - size
        numbers = [
            int(row[0])
            for digest in chosen
            for row in db.conn.execute(
                "SELECT number FROM messages WHERE digest = ? AND content_state = 'kept'", (digest,)
            )
        ]
    return _let_go(connections, blobs, numbers, "expired")


def _begin_anew(db: Database, numbers: Sequence[int]) -> None:
    """What other processes keep of conversations that hold these messages, forks included, is of no use."""
    db.conn.execute(
        "UPDATE episodes SET generation = generation + 1 WHERE id IN (SELECT episode_id FROM events "
        "WHERE kind = 'said' AND CAST(body AS INTEGER) IN (SELECT value FROM json_each(?)))",
        (json.dumps(list(numbers)),),
    )


def sweep(connections: Connections, blobs: Blobs, *, now: float) -> int:
    """Remove contents that no message names: left by a crash between storing and naming them."""
    old = [digest for digest, _, used in blobs.oldest() if used < now - ORPHAN_SECONDS]
    freed = 0
    for start in range(0, len(old), BATCH):
        with connections.writing() as db:
            unnamed = _unnamed(db, old[start : start + BATCH])
            if unnamed:
                freed += blobs.delete(unnamed, unused_since=now - ORPHAN_SECONDS)
    return freed


def _unnamed(db: Database, digests: Iterable[bytes]) -> list[bytes]:
    query = "SELECT 1 FROM messages WHERE digest = ? AND content_state = 'kept' LIMIT 1"
    return [digest for digest in digests if db.conn.execute(query, (digest,)).fetchone() is None]


def _let_go(
    connections: Connections, blobs: Blobs, numbers: Sequence[int], state: Literal["purged", "expired"]
) -> int:
    """Mark messages, take them out of the full text, then delete contents that nothing names any more."""
    freed = 0
    for start in range(0, len(numbers), BATCH):
        digests: dict[bytes, None] = {}
        with connections.writing() as db:
            rebuild = False
            for number in numbers[start : start + BATCH]:
                row = db.conn.execute(
                    "SELECT digest, label, shadow FROM messages WHERE number = ? AND content_state IN "
                    "('kept', 'expired')",
                    (number,),
                ).fetchone()
                if row is None:
                    continue
                digest = bytes(row[0])
                digests[digest] = None
                if row[2]:
                    text = _stored_text(blobs, digest)
                    if text is None or row[2] != SHADOW_VERSION:
                        rebuild = True
                    else:
                        search.unindex(db, number, text, row[1])
                db.conn.execute(
                    "UPDATE messages SET content_state = ?, shadow = 0 WHERE number = ?", (state, number)
                )
            if rebuild:
                _refill(db, blobs)
        with connections.writing() as db:
            freed += blobs.delete(_unnamed(db, digests))
    return freed


def _stored_text(blobs: Blobs, digest: bytes) -> str | None:
    try:
        return blobs.get(digest, use=False)
    except StorageError:  # damaged: it cannot be taken out by its words any more
        return None


def _refill(db: Database, blobs: Blobs) -> None:
    """Fill the full text anew: where a content is missing, its words cannot be taken out one by one."""
    db.conn.execute("INSERT INTO messages_text (messages_text) VALUES ('delete-all')")
    rows = db.conn.execute("SELECT number, digest, label FROM messages WHERE shadow > 0").fetchall()
    for number, digest, label in rows:
        text = _stored_text(blobs, bytes(digest))
        if text is not None:
            search.index(db, number, shadow(text), label)
        db.conn.execute(
            "UPDATE messages SET shadow = ? WHERE number = ?",
            (0 if text is None else SHADOW_VERSION, number),
        )

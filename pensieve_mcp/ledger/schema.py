"""The ledger's tables in `pensieve.db`, and how a row becomes a value.

Columns are explained here, where they are declared. Full text of messages is a contentless FTS5 table: it can
find a message but not show it, so that `pensieve.db` does not hold what `blobs.db` holds.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pensieve_mcp.fulltext import TOKENIZER
from pensieve_mcp.ledger.events import (
    Compacted,
    Event,
    Forgot,
    Message,
    Pinned,
    Recalled,
    Sealed,
)
from pensieve_mcp.storage import Basin, Migration

ContentState = Literal["kept", "purged", "expired", "unknown"]
"""Where a message's content is: in blobs, removed on purpose, removed by retention, or never given to us."""

BASIN = Basin(
    "ledger",
    (
        Migration(
            "events",
            "What was said, forgotten and recalled, per conversation; numbers are never used again.",
            f"""
            CREATE TABLE episodes (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                handle TEXT NOT NULL UNIQUE,      -- unguessable; whoever has it may resume
                door TEXT NOT NULL,               -- stdio, http, cli, loop, gateway
                host TEXT NOT NULL,               -- claude-code, codex, …; empty when unknown
                thread TEXT,                      -- the host's name of the conversation; may be null
                title TEXT NOT NULL,
                state TEXT NOT NULL,              -- open, closed
                started_at REAL NOT NULL,         -- seconds since 1970
                last_at REAL NOT NULL,
                revision TEXT NOT NULL,           -- repository commit of the folder; may be empty
                generation INTEGER NOT NULL DEFAULT 0,  -- grows when history was purged: caches begin anew
                extra TEXT NOT NULL DEFAULT '{{}}'  -- JSON, for what later versions add
            );
            CREATE UNIQUE INDEX episodes_thread ON episodes (door, host, thread) WHERE thread IS NOT NULL;
            CREATE INDEX episodes_last ON episodes (last_at);
            CREATE TABLE ledger_counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
            INSERT INTO ledger_counters VALUES ('message', 0);  -- the last number given out
            CREATE TABLE events (
                id INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of what happened, in the whole workspace
                episode_id INTEGER NOT NULL REFERENCES episodes (id) ON DELETE CASCADE,
                at REAL NOT NULL,
                kind TEXT NOT NULL,               -- said, forgot, recalled, pinned, compacted, sealed
                body TEXT NOT NULL                -- JSON of the event; of said only the message's number
            );
            CREATE INDEX events_episode ON events (episode_id, id);
            CREATE TABLE messages (
                number INTEGER PRIMARY KEY,       -- m<number>
                said_at REAL NOT NULL,
                episode_id INTEGER NOT NULL REFERENCES episodes (id) ON DELETE CASCADE,
                role TEXT NOT NULL,
                tool TEXT NOT NULL,
                tokens INTEGER NOT NULL,
                digest BLOB NOT NULL,             -- of its content in blobs.db; empty when not given
                label TEXT NOT NULL,
                handle TEXT,                      -- h7f3a for a host's own result
                invoking INTEGER,                 -- number of the call that a result answers
                host_call_id TEXT,
                is_error INTEGER NOT NULL,
                part_of INTEGER,
                chunk_ids TEXT NOT NULL,          -- JSON
                kept_thought TEXT NOT NULL,
                content_state TEXT NOT NULL,      -- kept, purged, expired, unknown
                shadow INTEGER NOT NULL           -- version of its full text; 0 not indexed
            );
            CREATE INDEX messages_episode ON messages (episode_id, number);
            CREATE INDEX messages_host_call ON messages (host_call_id) WHERE host_call_id IS NOT NULL;
            CREATE INDEX messages_handle ON messages (handle) WHERE handle IS NOT NULL;
            CREATE INDEX messages_digest ON messages (digest);
            CREATE TABLE host_handles (
                handle TEXT PRIMARY KEY,          -- h and at least four hex digits
                host_call_id TEXT NOT NULL UNIQUE
            );
            CREATE VIRTUAL TABLE messages_text USING fts5 (
                body, parts, label, content='', tokenize="{TOKENIZER}"
            );
            """,
        ),
    ),
)

MESSAGE_COLUMNS = (
    "m.number, m.role, m.tool, m.tokens, m.digest, m.label, m.handle, m.invoking, m.host_call_id, "
    "m.is_error, m.part_of, m.chunk_ids, m.kept_thought"
)


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One conversation as the ledger knows it. Times in seconds since 1970."""

    episode_id: int
    handle: str
    door: str
    host: str
    thread: str | None
    title: str
    state: Literal["open", "closed"]
    started: float
    last: float
    revision: str = ""  # repository commit of the folder, where there is one


EPISODE_COLUMNS = "id, handle, door, host, thread, title, state, started_at, last_at, revision"


def new_handle() -> str:
    """128 random bits in lower-case letters and digits, so that a model can copy it and nobody guess it."""
    alphabet = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 signs, without l, o, 0, 1
    return "e" + "".join(secrets.choice(alphabet) for _ in range(26))


def episode_from(row: Sequence[Any]) -> EpisodeRecord:
    return EpisodeRecord(*row)


def message_from(row: Sequence[Any]) -> Message:
    """From MESSAGE_COLUMNS."""
    return Message(
        number=row[0],
        role=row[1],
        tool=row[2],
        tokens=row[3],
        digest=bytes(row[4]),
        label=row[5],
        handle=row[6],
        invoking=row[7],
        host_call_id=row[8],
        is_error=bool(row[9]),
        part_of=row[10],
        chunk_ids=tuple(json.loads(row[11])),
        kept_thought=row[12],
    )


KINDS: dict[type[Any], str] = {
    Forgot: "forgot",
    Recalled: "recalled",
    Pinned: "pinned",
    Compacted: "compacted",
    Sealed: "sealed",
}


def event_body(event: Event) -> dict[str, Any]:
    """What is stored of an event other than Said, and exported. `event_from` reads it back."""
    return asdict(event)


def event_from(kind: str, body: dict[str, Any]) -> Event | None:
    """The event, or None for a kind that a newer version wrote: `fold` passes over it as well."""
    if kind == "forgot":
        return Forgot(
            numbers=tuple(body["numbers"]),
            reason=body.get("reason", ""),
            keep_thought=bool(body.get("keep_thought", False)),
            summary=body.get("summary", ""),
            parts=tuple((int(number), int(part)) for number, part in body.get("parts", ())),
            part_tokens=tuple(body.get("part_tokens", ())),
        )
    if kind == "recalled":
        return Recalled(tuple(body["numbers"]))
    if kind == "pinned":
        return Pinned(tuple(body["numbers"]), bool(body.get("pinned", True)))
    if kind == "compacted":
        return Compacted(body.get("detail", ""))
    if kind == "sealed":
        return Sealed(body.get("answer", ""), tuple(body.get("citations", ())))
    return None

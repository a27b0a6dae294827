"""The ledger: what was said in each conversation, what was forgotten of it, and how to bring it back.

Events lie in `pensieve.db`, contents in `blobs.db`. Events are only added; purging and retention are the one
exception, kept in `retention.py`. Which messages a budget or a host makes of it is decided above.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pensieve_mcp.errors import Miscast, NoSuchMessage, StorageError
from pensieve_mcp.fulltext import SHADOW_VERSION, Shadow, shadow
from pensieve_mcp.handles import MessageRef
from pensieve_mcp.ledger import retention, search, transfer
from pensieve_mcp.ledger.blobs import Blobs
from pensieve_mcp.ledger.events import Event, Forgot, Message, Pinned, Said, Transcript
from pensieve_mcp.ledger.folding import Folder
from pensieve_mcp.ledger.hostnames import HOST_HANDLE_DIGITS, MOST_DIGITS, host_handle
from pensieve_mcp.ledger.schema import (
    BASIN,
    EPISODE_COLUMNS,
    KINDS,
    MESSAGE_COLUMNS,
    ContentState,
    EpisodeRecord,
    episode_from,
    event_body,
    event_from,
    message_from,
    new_handle,
)
from pensieve_mcp.storage import Connections

if TYPE_CHECKING:
    from pensieve_mcp.fulltext import Nearness
    from pensieve_mcp.storage import Database

__all__ = ["BASIN", "EpisodeRecord", "Happened", "Ledger", "StoredMessage", "host_handle"]

log = logging.getLogger(__name__)

CACHED_TRANSCRIPTS = 64


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with where and when it was said."""

    message: Message
    episode_id: int
    at: float  # seconds since 1970
    content_state: ContentState


@dataclass(frozen=True, slots=True)
class Happened:
    """An event with its place in the history of the workspace."""

    event_id: int
    at: float
    event: Event


def _storable(text: str) -> str:
    """SQLite's text is UTF-8; a lone surrogate in a label or title becomes U+FFFD. Contents are exact."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Ledger:
    """The ledger of one workspace. Safe to share between threads; other processes may have their own."""

    def __init__(
        self,
        connections: Connections,
        blobs: Blobs,
        *,
        quota_bytes: int = 2 * 2**30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`connections` lead to `pensieve.db` and migrate `BASIN`. `quota_bytes` limits stored contents
        (compressed); above it the longest unused ones of other conversations expire."""
        self._connections = connections
        self._blobs = blobs
        self._clock = clock
        self._quota_bytes = quota_bytes
        self._lock = threading.RLock()  # a lent connection may find that the file was replaced
        self._folders: OrderedDict[int, tuple[int, int, Folder]] = OrderedDict()  # generation, last event
        self._quota_told = False
        connections.when_replaced(self._forget_folders)

    def _forget_folders(self) -> None:
        with self._lock:
            self._folders.clear()

    # --- episodes -------------------------------------------------------------------------------------

    def open_episode(
        self, door: str, host: str = "", thread: str | None = None, *, title: str = "", revision: str = ""
    ) -> EpisodeRecord:
        """The conversation of this thread, resumed if there is one, else begun. Without thread always begun.

        Raises StorageError.
        """
        with self._connections.writing() as db:
            return self._open(db, door, host, thread, title, revision)

    def drop_empty(self, episode_id: int) -> bool:
        """Take back a conversation in which nothing happened; whether it was one. Raises StorageError."""
        with self._connections.writing() as db:
            gone = db.conn.execute(
                "DELETE FROM episodes WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM messages WHERE episode_id = ?1) "
                "AND NOT EXISTS (SELECT 1 FROM events WHERE episode_id = ?1)",
                (episode_id,),
            )
            return gone.rowcount > 0

    def open_episodes(self, door: str, threads: Sequence[tuple[str, str]]) -> list[EpisodeRecord]:
        """Several at once, by host and thread, in one transaction. Raises StorageError."""
        with self._connections.writing() as db:
            return [self._open(db, door, host, thread) for host, thread in threads]

    def _open(
        self, db: Database, door: str, host: str, thread: str | None, title: str = "", revision: str = ""
    ) -> EpisodeRecord:
        door, host, title = _storable(door), _storable(host), _storable(title)
        thread = None if thread is None else _storable(thread)
        now = self._clock()
        if thread is not None:
            row = db.conn.execute(
                "UPDATE episodes SET state = 'open', last_at = ? "
                f"WHERE door = ? AND host = ? AND thread = ? RETURNING {EPISODE_COLUMNS}",
                (now, door, host, thread),
            ).fetchone()
            if row is not None:
                return episode_from(row)
        row = db.conn.execute(
            "INSERT INTO episodes "
            "(handle, door, host, thread, title, state, started_at, last_at, revision) "
            f"VALUES (?, ?, ?, ?, ?, 'open', ?, ?, ?) RETURNING {EPISODE_COLUMNS}",
            (new_handle(), door, host, thread, title, now, now, _storable(revision)),
        ).fetchone()
        return episode_from(row)

    def episode(self, which: int | str, *, can_be_left_out: bool = False) -> EpisodeRecord:
        """By id or handle. Raises Miscast (`no_such_episode`); the hint goes by whether the caller begins one where
        none is named."""
        column = "id" if isinstance(which, int) else "handle"
        value = which if isinstance(which, int) else _storable(which.strip().lower())
        row = None
        if not isinstance(value, int) or abs(value) < 2**63:
            with self._connections.reading() as db:
                row = db.conn.execute(
                    f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE {column} = ?", (value,)
                ).fetchone()
        if row is None:
            raise Miscast(
                f"There is no episode {str(which)[:60]!r} in this workspace.",
                hint="List them with pensieve episodes list"
                + (", or leave the episode out to begin a new one." if can_be_left_out else "."),
                slug="no_such_episode",
            )
        return episode_from(row)

    def episodes(
        self, *, state: Literal["open", "closed"] | None = None, limit: int = 50, before: float | None = None
    ) -> list[EpisodeRecord]:
        """The last used first. `before` goes on where an earlier list ended (its last `last`)."""
        with self._connections.reading() as db:
            rows = db.conn.execute(
                f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE (?1 IS NULL OR state = ?1) "
                "AND (?2 IS NULL OR last_at < ?2) ORDER BY last_at DESC, id DESC LIMIT ?3",
                (state, before, max(0, limit)),
            )
            return [episode_from(row) for row in rows]

    def all_episodes(self) -> Iterator[EpisodeRecord]:
        """Every conversation, the last used first; read in pages."""
        before: float | None = None
        while page := self.episodes(limit=500, before=before):
            yield from page
            before = page[-1].last

    def update_episode(
        self,
        episode_id: int,
        *,
        title: str | None = None,
        state: Literal["open", "closed"] | None = None,
        revision: str | None = None,
    ) -> EpisodeRecord:
        """Change what is not None. Raises Miscast (`no_such_episode`)."""
        with self._connections.writing() as db:
            row = db.conn.execute(
                "UPDATE episodes SET title = coalesce(?, title), state = coalesce(?, state), "
                f"revision = coalesce(?, revision) WHERE id = ? RETURNING {EPISODE_COLUMNS}",
                (
                    None if title is None else _storable(title),
                    state,
                    None if revision is None else _storable(revision),
                    episode_id,
                ),
            ).fetchone()
        return self.episode(episode_id) if row is None else episode_from(row)

    def extra(self, episode_id: int) -> dict[str, object]:
        """What doors keep with a conversation: its chunk set, what the gateway saw. Empty for an unknown one."""
        with self._connections.reading() as db:
            row = db.conn.execute("SELECT extra FROM episodes WHERE id = ?", (episode_id,)).fetchone()
        return dict(json.loads(row[0])) if row is not None else {}

    def has_episode(self, episode_id: int) -> bool:
        """Whether it is there: it may have been purged."""
        with self._connections.reading() as db:
            return (
                db.conn.execute("SELECT 1 FROM episodes WHERE id = ?", (episode_id,)).fetchone() is not None
            )

    def set_extra(self, episode_id: int, **values: object) -> None:
        """Change these entries of `extra`, leaving the rest. Raises Miscast (`no_such_episode`)."""
        with self._connections.writing() as db:
            row = db.conn.execute(
                "UPDATE episodes SET extra = json_patch(extra, ?) WHERE id = ? RETURNING id",
                (json.dumps(values), episode_id),
            ).fetchone()
        if row is None:
            self.episode(episode_id)  # raises, worded

    # --- writing --------------------------------------------------------------------------------------

    def reserve(self, count: int = 1) -> int:
        """The first of `count` message numbers that nobody ever gets again. Durable when it returns."""
        if count < 1:
            raise ValueError(f"cannot reserve {count} numbers")
        with self._connections.writing() as db:
            last = db.conn.execute(
                "UPDATE ledger_counters SET value = value + ? WHERE name = 'message' RETURNING value",
                (count,),
            ).fetchone()[0]
        return int(last) - count + 1

    def append(self, episode_id: int, events: Sequence[Event], contents: Mapping[bytes, str]) -> int:
        """Add events to a conversation, all or none; durable when it returns. Answers the last event's id.

        `contents` holds the texts of the messages said, by `blobs.digest_of`; one that is stored already
        may be left out, and a message with an empty digest has none. Raises Miscast for an unknown episode,
        StorageError, and ValueError for what a caller must not do: a number not reserved or used before, a
        digest without text.
        """
        self._blobs.put(contents)
        said = [event.message for event in events if isinstance(event, Said)]
        named = {message.digest for message in said}
        texts = {digest: text for digest, text in contents.items() if digest in named}
        for message in said:
            if message.digest and message.digest not in texts:
                text = self._blobs.get(message.digest)
                if text is None:
                    raise ValueError(f"m{message.number} names a content that was not given.")
                texts[message.digest] = text
        shadows = {digest: shadow(text) for digest, text in texts.items()}  # before the others have to wait
        now = self._clock()
        last_id = 0
        with self._connections.writing() as db:
            if (
                db.conn.execute(
                    "UPDATE episodes SET last_at = max(last_at, ?) WHERE id = ? RETURNING id",
                    (now, episode_id),
                ).fetchone()
                is None
            ):
                self.episode(episode_id)  # raises, worded
            for event in events:
                if isinstance(event, Said):
                    self._say(db, episode_id, event.message, shadows, now)
                    kind, body = "said", str(event.message.number)
                else:
                    kind, body = KINDS[type(event)], json.dumps(event_body(event))
                last_id = int(
                    db.conn.execute(
                        "INSERT INTO events (episode_id, at, kind, body) VALUES (?, ?, ?, ?) RETURNING id",
                        (episode_id, now, kind, body),
                    ).fetchone()[0]
                )
        # A purge in another process may have taken a content that nothing named yet. It deletes while it
        # holds the writer's lock, so what is there now stays.
        if lost := self._blobs.missing(texts):
            self._blobs.put({digest: texts[digest] for digest in lost})
        if self._blobs.stored_bytes() > self._quota_bytes:
            self._keep_quota(episode_id)
        return last_id

    def inherit(self, episode_id: int, numbers: Sequence[int], then: Sequence[Event] = ()) -> int:
        """A forked conversation began as a copy of another: messages of that one, which it holds, are its own from
        now on as well, in this order, with the events `then` after them. One message may stand in several
        conversations; its row belongs to the first, and goes with it.

        Numbers that nobody knows and those that the conversation has are passed over. Answers how many were taken,
        durable when it returns; without any, `then` is dropped. Raises Miscast for an unknown episode, StorageError,
        and ValueError for a Said among `then`.
        """
        if any(isinstance(event, Said) for event in then):
            raise ValueError("what is inherited was said before")
        now = self._clock()
        with self._connections.writing() as db:
            self.episode(episode_id)
            taken = [
                row[0]
                for row in db.conn.execute(
                    "SELECT m.number FROM json_each(?1) w JOIN messages m ON m.number = w.value WHERE m.number NOT IN "
                    "(SELECT CAST(body AS INTEGER) FROM events WHERE episode_id = ?2 AND kind = 'said') "
                    "ORDER BY w.key",
                    (json.dumps(list(dict.fromkeys(numbers))), episode_id),
                )
            ]
            rows = [("said", str(number)) for number in taken]
            if taken:
                rows += [(KINDS[type(event)], json.dumps(event_body(event))) for event in then]
            db.conn.executemany(
                "INSERT INTO events (episode_id, at, kind, body) VALUES (?, ?, ?, ?)",
                [(episode_id, now, kind, body) for kind, body in rows],
            )
        return len(taken)

    def keep_sightings(
        self,
        results: Sequence[tuple[int, Message]],
        contents: Mapping[bytes, str],
        extras: Mapping[int, Mapping[str, object]],
        away: Collection[tuple[int, str]] = (),
        pinned: Collection[tuple[int, str]] = (),
    ) -> None:
        """What a gateway saw in several conversations, by episode id: results of hosts, whose numbers are given
        here, and entries of `extra`. Of the results those of the calls `away`, by episode id and the host's call id,
        stand forgotten from the beginning, those `pinned` pinned. All or none, in one transaction; durable when it
        returns. An episode that is gone is passed over. Raises StorageError.
        """
        self._blobs.put(contents)
        shadows = {digest: shadow(text) for digest, text in contents.items()}
        now = self._clock()
        with self._connections.writing() as db:
            there = {
                episode_id
                for episode_id in {*extras, *(episode_id for episode_id, _ in results)}
                if db.conn.execute("SELECT 1 FROM episodes WHERE id = ?", (episode_id,)).fetchone()
            }
            kept = [(episode_id, message) for episode_id, message in results if episode_id in there]
            last = db.conn.execute(
                "UPDATE ledger_counters SET value = value + ? WHERE name = 'message' RETURNING value",
                (len(kept),),
            ).fetchone()[0]
            numbered = [
                (episode_id, replace(message, number=number))
                for number, (episode_id, message) in enumerate(kept, int(last) - len(kept) + 1)
            ]
            self._insert(db, numbered, shadows, now)
            db.conn.executemany(
                "INSERT INTO events (episode_id, at, kind, body) VALUES (?, ?, 'said', ?)",
                [(episode_id, now, str(message.number)) for episode_id, message in numbered],
            )
            then: list[tuple[int, Event]] = []
            for episode_id, message in numbered:
                key = (episode_id, message.host_call_id)
                if key in away:
                    then.append((episode_id, Forgot((message.number,), reason="fork")))
                if key in pinned:
                    then.append((episode_id, Pinned((message.number,))))
            db.conn.executemany(
                "INSERT INTO events (episode_id, at, kind, body) VALUES (?, ?, ?, ?)",
                [
                    (episode_id, now, KINDS[type(event)], json.dumps(event_body(event)))
                    for episode_id, event in then
                ],
            )
            for episode_id in there:
                db.conn.execute(
                    "UPDATE episodes SET last_at = max(last_at, ?), extra = json_patch(extra, ?) WHERE id = ?",
                    (now, json.dumps(extras.get(episode_id, {})), episode_id),
                )
        if lost := self._blobs.missing(contents):  # as in `append`
            self._blobs.put({digest: contents[digest] for digest in lost})
        if contents and self._blobs.stored_bytes() > self._quota_bytes:
            self._keep_quota(next(iter(there), 0))

    def _say(
        self, db: Database, episode_id: int, message: Message, shadows: Mapping[bytes, Shadow], at: float
    ) -> None:
        number = message.number
        last = db.conn.execute("SELECT value FROM ledger_counters WHERE name = 'message'").fetchone()[0]
        taken = db.conn.execute("SELECT 1 FROM messages WHERE number = ?", (number,)).fetchone()
        if not 0 < number <= last or taken:
            raise ValueError(f"m{number} was {'used before' if taken else 'not reserved'}.")
        self._insert(db, [(episode_id, message)], shadows, at)

    @staticmethod
    def _insert(
        db: Database, said: Sequence[tuple[int, Message]], shadows: Mapping[bytes, Shadow], at: float
    ) -> None:
        """Messages by episode id, under numbers that are theirs alone."""
        db.conn.executemany(
            "INSERT INTO host_handles VALUES (?, ?) ON CONFLICT DO NOTHING",
            [
                (message.handle, _storable(message.host_call_id))
                for _, message in said
                if message.handle is not None and message.host_call_id is not None
            ],
        )
        db.conn.executemany(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    message.number,
                    at,
                    episode_id,
                    message.role,
                    _storable(message.tool),
                    message.tokens,
                    message.digest,
                    _storable(message.label),
                    message.handle,
                    message.invoking,
                    None if message.host_call_id is None else _storable(message.host_call_id),
                    int(message.is_error),
                    message.part_of,
                    json.dumps(message.chunk_ids),
                    _storable(message.kept_thought),
                    "kept" if message.digest else "unknown",
                    SHADOW_VERSION if message.digest else 0,
                )
                for episode_id, message in said
            ],
        )
        for _, message in said:
            if message.digest:
                search.index(db, message.number, shadows[message.digest], _storable(message.label))

    def _keep_quota(self, episode_id: int) -> None:
        freed = retention.expire(
            self._connections,
            self._blobs,
            to_bytes=self._quota_bytes * 9 // 10,
            sparing=episode_id,
        )
        if not freed and not self._quota_told:
            self._quota_told = True
            log.warning(
                "Contents of this conversation alone take more than the quota of %d bytes; they are kept.",
                self._quota_bytes,
            )

    def handle_for_host_call(self, call_id: str) -> str:
        """The `h…` name of a host's call, registered on first sight and the same ever after.

        Four hex digits of its digest, more where another call has them already.
        """
        call_id = _storable(call_id)
        find = "SELECT handle FROM host_handles WHERE host_call_id = ?"
        with self._connections.reading() as db:
            row = db.conn.execute(find, (call_id,)).fetchone()
        if row is not None:
            return str(row[0])
        with self._connections.writing() as db:
            row = db.conn.execute(find, (call_id,)).fetchone()  # another process may have been faster
            if row is not None:
                return str(row[0])
            for digits in range(HOST_HANDLE_DIGITS, MOST_DIGITS + 1):
                handle = host_handle(call_id, digits)
                if db.conn.execute(
                    "INSERT INTO host_handles VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING handle",
                    (handle, call_id),
                ).fetchone():
                    return handle
        raise StorageError(f"No free handle for the host call {call_id[:60]!r}.", slug="no_free_handle")

    # --- reading --------------------------------------------------------------------------------------

    def happened(self, episode_id: int, after: int = 0) -> list[Happened]:
        """Events of a conversation with ids above `after`, in order. Raises Miscast for an unknown one."""
        with self._connections.reading() as db:
            self.episode(episode_id)
            return list(_happened(db, episode_id, after))

    def events(self, episode_id: int, after: int = 0) -> list[Event]:
        """As `happened`, the events alone."""
        return [one.event for one in self.happened(episode_id, after)]

    def transcript(self, episode_id: int) -> Transcript:
        """What of the conversation is visible now, appends of other processes included.

        Kept and carried on from call to call. Raises Miscast for an unknown episode.
        """
        with self._lock, self._connections.reading() as db:
            row = db.conn.execute("SELECT generation FROM episodes WHERE id = ?", (episode_id,)).fetchone()
            if row is None:
                self._folders.pop(episode_id, None)
                self.episode(episode_id)  # raises, worded
            generation, last, folder = self._folders.get(episode_id, (row[0], 0, None))
            if folder is None or generation != row[0]:
                last, folder = 0, Folder()
            for one in _happened(db, episode_id, last):
                folder.add(one.event)
                last = one.event_id
            self._folders[episode_id] = (row[0], last, folder)
            self._folders.move_to_end(episode_id)
            if len(self._folders) > CACHED_TRANSCRIPTS:
                self._folders.popitem(last=False)
            return folder.transcript()

    def find(self, ref: MessageRef | int | str, *, episode_id: int | None = None) -> StoredMessage:
        """A message by number, `MessageRef` or host handle. Raises NoSuchMessage, which names what exists.

        With `episode_id`, messages of other conversations do not count as found.
        """
        if isinstance(ref, MessageRef):
            ref = ref.host if ref.host is not None else ref.number or 0
        column = "m.number" if isinstance(ref, int) else "m.handle"
        value = ref if isinstance(ref, int) else _storable(ref.strip().lower())
        found = (
            self._where(f"{column} = ?", value) if not isinstance(value, int) or abs(value) < 2**63 else []
        )
        for stored in reversed(found):
            if episode_id is None or stored.episode_id == episode_id:
                return stored
        name = f"m{ref}" if isinstance(ref, int) else str(ref)[:40]
        raise NoSuchMessage(
            f"There is no message {name}{' in this conversation' if episode_id is not None else ''}; "
            f"{self._known(episode_id)}",
            hint="Handles stand at the head of each result.",
        )

    def by_host_call(self, call_id: str, *, role: str | None = None) -> list[StoredMessage]:
        """The call and the result that a host's call id names, in order; empty when we know neither."""
        found = self._where("m.host_call_id = ?", _storable(call_id))
        return [stored for stored in found if role is None or stored.message.role == role]

    def told_of(self, call_ids: Sequence[str]) -> set[tuple[int, str]]:
        """(episode id, host's call id) of the results that we know of these calls."""
        wanted = json.dumps([_storable(call_id) for call_id in call_ids])
        with self._connections.reading() as db:
            return set(
                db.conn.execute(
                    "SELECT episode_id, host_call_id FROM messages WHERE role = 'tool' AND host_call_id IN "
                    "(SELECT value FROM json_each(?))",
                    (wanted,),
                ).fetchall()
            )

    def _where(self, condition: str, value: object) -> list[StoredMessage]:
        with self._connections.reading() as db:
            rows = db.conn.execute(
                f"SELECT {MESSAGE_COLUMNS}, m.episode_id, m.said_at, m.content_state FROM messages m "
                f"WHERE {condition} ORDER BY m.number",
                (value,),
            ).fetchall()
        return [StoredMessage(message_from(row), row[13], row[14], row[15]) for row in rows]

    def _known(self, episode_id: int | None) -> str:
        with self._connections.reading() as db:
            low, high, count = db.conn.execute(
                "SELECT min(number), max(number), count(*) FROM messages WHERE ?1 IS NULL OR episode_id = ?1",
                (episode_id,),
            ).fetchone()
        if not count:
            return "nothing has been said yet."
        return f"it has {count:,} messages, m{low} to m{high}."

    def content(self, message: Message | int) -> str:
        """The exact text of a message. Raises NoSuchMessage, or StorageError whose slug says why it is gone:
        `content_purged`, `content_expired`, `content_unknown`."""
        number = message if isinstance(message, int) else message.number
        stored = self.find(number)
        text = self._blobs.get(stored.message.digest) if stored.content_state == "kept" else None
        if text is not None:
            return text
        handle = stored.message.handle or f"m{number}"
        state = "unknown" if stored.content_state == "kept" else stored.content_state
        why = {
            "purged": "was purged on request and cannot come back",
            "expired": "expired: it was unused for longer than contents are kept",
            "unknown": "is not stored here: it was never given to us, or blobs.db was lost",
        }[state]
        raise StorageError(
            f"The content of {handle} {why}.",
            hint=f"Read the source again{f' ({stored.message.label})' if stored.message.label else ''}; "
            "asking for this message once more gives the same answer.",
            slug=f"content_{state}",
        )

    def history_search(
        self,
        query: str,
        *,
        episode_id: int | None = None,
        role: str | None = None,
        tool: str | None = None,
        limit: int = 20,
        near: Nearness | None = None,
        words: bool = True,
    ) -> search.HistoryAnswer:
        """Messages whose text or label matches, best first, forgotten ones as well; with `near` those that mean alike,
        too, without `words` these alone. Any string is answered."""
        return search.search(
            self._connections,
            self._blobs,
            query,
            episode_id=episode_id,
            role=role,
            tool=tool,
            limit=limit,
            near=near,
            words=words,
        )

    def said_since(self, event_id: int, limit: int) -> list[search.Recorded]:
        """What was said after an event, in the order in which it was recorded: for whoever compares meanings."""
        return search.said_since(self._connections, self._blobs, event_id, limit)

    def last_event(self) -> int:
        """Number of the last event of any conversation; 0 before the first. Cheap."""
        with self._connections.reading() as db:
            return int(db.conn.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])

    def birth(self) -> str:
        """What tells this ledger from another that took its place: the first conversation's handle."""
        with self._connections.reading() as db:
            row = db.conn.execute("SELECT handle FROM episodes ORDER BY id LIMIT 1").fetchone()
        return str(row[0]) if row else ""

    # --- keeping less -----------------------------------------------------------------------------------

    def purge(
        self, *, before: float | None = None, episode_id: int | None = None, content_only: bool = False
    ) -> retention.Purged:
        """Really remove conversations: rows, full text, contents, and their traces in the files.

        `before` (seconds since 1970) means conversations last used earlier, `episode_id` one of them; with
        `content_only` the events stay and say that the content was purged. Message numbers are never given
        out again. Raises ValueError when neither is given, StorageError when other processes keep a file
        busy.
        """
        try:
            return retention.purge(
                self._connections,
                self._blobs,
                before=before,
                episode_id=episode_id,
                content_only=content_only,
            )
        finally:
            with self._lock:
                self._folders.clear()

    def looks(self) -> Iterator[retention.Look]:
        """All messages of all conversations with their texts, in the order of their numbers."""
        return retention.looks(self._connections, self._blobs)

    def purge_messages(self, numbers: Sequence[int], hides: Callable[[str], bool]) -> int:
        """Really remove the texts of these messages, and every label, summary or answer that `hides` names. Answers
        stored bytes set free. Raises StorageError when other processes keep a file busy."""
        try:
            return retention.purge_messages(self._connections, self._blobs, numbers, hides)
        finally:
            with self._lock:
                self._folders.clear()

    def retain(self, *, unused_seconds: float | None = None, quota_bytes: int | None = None) -> int:
        """Let contents expire that were unused for so long, then the longest unused until the quota fits.

        Open conversations used within `unused_seconds` keep theirs. Answers the stored bytes set free.
        """
        now = self._clock()
        freed = 0
        if unused_seconds is not None:
            freed += retention.expire(self._connections, self._blobs, unused_since=now - unused_seconds)
        quota = self._quota_bytes if quota_bytes is None else quota_bytes
        if self._blobs.stored_bytes() > quota:
            freed += retention.expire(self._connections, self._blobs, to_bytes=quota)
        retention.sweep(self._connections, self._blobs, now=now)
        return freed

    # --- in and out -------------------------------------------------------------------------------------

    def export_episode(self, episode_id: int, *, redact: Callable[[str], str] | None = None) -> Iterator[str]:
        """The conversation as JSON lines. See `transfer.export`."""
        return transfer.export(self, episode_id, redact=redact)

    def import_episode(self, lines: Iterable[str]) -> EpisodeRecord:
        """A conversation from `export_episode`, as a new episode with new numbers. See `transfer.take_in`."""
        return transfer.take_in(self, lines)

    def close(self) -> None:
        """Close blobs; `pensieve.db` belongs to who opened it."""
        self._blobs.close()


def _happened(db: Database, episode_id: int, after: int) -> Iterator[Happened]:
    rows = db.conn.execute(
        f"SELECT {MESSAGE_COLUMNS}, e.id, e.at, e.kind, e.body FROM events e "
        "LEFT JOIN messages m ON e.kind = 'said' AND m.number = CAST(e.body AS INTEGER) "
        "WHERE e.episode_id = ? AND e.id > ? ORDER BY e.id",
        (episode_id, after),
    )
    for row in rows:
        event_id, at, kind, body = row[13:]
        if kind == "said":
            if row[0] is not None:
                yield Happened(event_id, at, Said(message_from(row)))
            continue
        event = event_from(kind, json.loads(body))
        if event is not None:
            yield Happened(event_id, at, event)

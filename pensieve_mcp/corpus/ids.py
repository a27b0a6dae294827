"""Which id a document and a chunk has, for ever.

An id is never reused and always means the same text: notes, citations and a model's memory rest on it. So the map
from content to id and its high-water marks lie in `pensieve.db`, which is precious, while everything that has an id
lies in `corpus.db`, which may be deleted. Nothing is ever removed here but by a purge of the whole workspace: a
retired id that comes back with its old text (an edit undone, a file copied back) is taken up again.
Leaves texts and spans to `store.py`, and the order of writing to `building.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.storage import Basin, Connections, Migration

if TYPE_CHECKING:
    from sqlite_utils import Database

MIGRATIONS = (
    Migration(
        "ids",
        "Ids of documents, chunks and passages outlive corpus.db.",
        """
        CREATE TABLE id_marks (
            name TEXT PRIMARY KEY,      -- document, chunk, passage
            last INTEGER NOT NULL       -- highest number ever given out
        ) WITHOUT ROWID;
        CREATE TABLE document_ids (
            document_id INTEGER PRIMARY KEY,
            root TEXT NOT NULL,
            raw BLOB NOT NULL,          -- exact relative path, last known
            path TEXT NOT NULL,         -- the same for people
            digest BLOB NOT NULL,       -- sha256 of the file, last known
            live INTEGER NOT NULL       -- 0 once it was seen to be gone
        );
        CREATE INDEX document_ids_by_path ON document_ids (root, raw);
        CREATE INDEX document_ids_by_digest ON document_ids (digest);
        CREATE TABLE chunk_ids (
            chunk_id INTEGER PRIMARY KEY,
            size_tokens INTEGER NOT NULL,
            overlap_tokens INTEGER NOT NULL,
            digest BLOB NOT NULL,       -- first 16 bytes of the sha256 of its text
            document_id INTEGER NOT NULL,
            place INTEGER NOT NULL,     -- number within the document, last known
            live INTEGER NOT NULL       -- 0 once its document no longer had it
        );
        CREATE INDEX chunk_ids_by_document ON chunk_ids (document_id, size_tokens, overlap_tokens);
        CREATE INDEX chunk_ids_by_digest ON chunk_ids (digest);
        """,
    ),
)
BASIN = Basin("ids", MIGRATIONS, 1)

_BATCH = 500  # parameters of one SELECT: below every SQLite's limit


@dataclass(frozen=True, slots=True)
class Sighting:
    """A file met by a build, with the digest of what is in it now."""

    root: str
    raw: bytes
    path: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """The chunks of one document in one set, in order, by the digest of their text."""

    document_id: int
    chunk_set: ChunkSet
    digests: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Known:
    """What the map remembers of an id, also when it is retired."""

    chunk_id: int
    chunk_set: ChunkSet
    document_id: int
    path: str
    live: bool  # its document is there and has it, as far as the last build saw
    place: int
    digest: bytes


class Ids:
    """The map in `pensieve.db`. Every method is one transaction; several processes may use it at once.

    Raises StorageError as `storage` words it.
    """

    def __init__(self, connections: Connections) -> None:
        """`connections` to pensieve.db with `ids.BASIN` among its basins."""
        self._connections = connections

    def highest(self, name: str = "chunk") -> int:
        """The highest number given out so far: `chunk`, `document` or `passage`."""
        with self._connections.reading() as db:
            return _mark(db, name)

    def reserve(self, name: str, count: int, *, floor: int = 0) -> int:
        """Give out `count` numbers that nobody had and say the first. `floor` is a number known to be in use."""
        with self._connections.writing() as db:
            return _take(db, name, count, floor)

    def documents(
        self,
        sightings: Sequence[Sighting],
        *,
        is_there: Callable[[str, bytes], bool],
        floor: int = 0,
    ) -> list[int]:
        """Ids of documents, in order: by path, else by content whose old path is gone (a rename), else new.

        `is_there(root, raw)` says whether a path is present in the folders now, or may be.
        """
        with self._connections.writing() as db:
            return [self._document(db, sighting, is_there, floor) for sighting in sightings]

    def _document(
        self, db: Database, sighting: Sighting, is_there: Callable[[str, bytes], bool], floor: int
    ) -> int:
        execute = db.conn.execute
        row = execute(
            "SELECT document_id, digest FROM document_ids WHERE root = ? AND raw = ? "
            "ORDER BY live DESC, document_id DESC LIMIT 1",
            (sighting.root, sighting.raw),
        ).fetchone()
        if row is None:
            rows = execute(
                "SELECT document_id, root, raw, live FROM document_ids WHERE digest = ? "
                "ORDER BY live DESC, document_id",
                (sighting.digest,),
            ).fetchall()
            row = next((r for r in rows if not r[3] or not is_there(r[1], r[2])), None)
        if row is None:
            document_id = _take(db, "document", 1, floor)
            execute(
                "INSERT INTO document_ids VALUES (?, ?, ?, ?, ?, 1)",
                (document_id, sighting.root, sighting.raw, sighting.path, sighting.digest),
            )
            return document_id
        document_id = int(row[0])
        execute(
            "UPDATE document_ids SET root = ?, raw = ?, path = ?, digest = ?, live = 1 WHERE document_id = ?",
            (sighting.root, sighting.raw, sighting.path, sighting.digest, document_id),
        )
        return document_id

    def moved(self, moves: Iterable[tuple[int, Sighting]]) -> None:
        """Documents that stand at another path or have other content now."""
        with self._connections.writing() as db:
            db.conn.executemany(
                "UPDATE document_ids SET root = ?, raw = ?, path = ?, digest = ?, live = 1 "
                "WHERE document_id = ?",
                [(s.root, s.raw, s.path, s.digest, document_id) for document_id, s in moves],
            )

    def gone(self, document_ids: Iterable[int]) -> None:
        """These documents are no longer there; their ids wait for their content to come back."""
        with self._connections.writing() as db:
            db.conn.executemany(
                "UPDATE document_ids SET live = 0 WHERE document_id = ?",
                [(number,) for number in document_ids],
            )

    def retire_all_but(self, present: Collection[int]) -> None:
        """After a whole survey without corpus.db: what was not met is gone."""
        with self._connections.writing() as db:
            rows = db.conn.execute("SELECT document_id FROM document_ids WHERE live").fetchall()
            db.conn.executemany(
                "UPDATE document_ids SET live = 0 WHERE document_id = ?",
                [row for row in rows if row[0] not in present],
            )

    def chunks(self, wanted: Sequence[Wanted], *, floor: int = 0) -> list[list[int]]:
        """Ids of chunks, for each document in order.

        A chunk takes the id its document gave to this text before (the same place first), else one that no
        document holds any more, else a new one. Give changed documents before added ones, so that what moved
        from one file to another is free when the other asks.
        """
        with self._connections.writing() as db:
            answer: list[list[int | None]] = []
            missing: list[tuple[int, int]] = []
            updates: list[tuple[int, int, int]] = []
            retired: list[tuple[int]] = []
            taken: set[int] = set()
            for number, want in enumerate(wanted):
                ids = _own(db, want, updates, retired)
                taken.update(i for i in ids if i is not None)
                answer.append(ids)
                missing.extend((number, place) for place, chunk_id in enumerate(ids) if chunk_id is None)
            db.conn.executemany("UPDATE chunk_ids SET live = 0 WHERE chunk_id = ?", retired)
            orphans = _orphans(db, {wanted[number].digests[place] for number, place in missing})
            fresh: list[tuple[int, int]] = []
            for number, place in missing:
                want = wanted[number]
                waiting = orphans.get((want.chunk_set, want.digests[place]), [])
                found = next((chunk_id for chunk_id in waiting if chunk_id not in taken), None)
                if found is None:
                    fresh.append((number, place))
                    continue
                taken.add(found)
                answer[number][place] = found
                updates.append((want.document_id, place, found))
            if fresh:
                first = _take(db, "chunk", len(fresh), floor)
                rows: list[tuple[Any, ...]] = []
                for chunk_id, (number, place) in enumerate(fresh, start=first):
                    want = wanted[number]
                    answer[number][place] = chunk_id
                    rows.append(
                        (
                            chunk_id,
                            want.chunk_set.size_tokens,
                            want.chunk_set.overlap_tokens,
                            want.digests[place],
                            want.document_id,
                            place,
                        )
                    )
                db.conn.executemany("INSERT INTO chunk_ids VALUES (?, ?, ?, ?, ?, ?, 1)", rows)
            db.conn.executemany(
                "UPDATE chunk_ids SET document_id = ?, place = ?, live = 1 WHERE chunk_id = ?", updates
            )
        return [[chunk_id for chunk_id in ids if chunk_id is not None] for ids in answer]

    def ever_held(self, path: str) -> bool:
        """Whether a document had this path as its last one, or lay below it; also one that is no longer there."""
        with self._connections.reading() as db:
            found = db.conn.execute(
                "SELECT 1 FROM document_ids WHERE path = ? OR substr(path, 1, ?) = ? LIMIT 1",
                (path, len(path) + 1, f"{path}/"),
            ).fetchone()
        return found is not None

    def known(self, chunk_id: int) -> Known | None:
        """What is remembered of an id, or None when it was never given out."""
        with self._connections.reading() as db:
            row = db.conn.execute(
                "SELECT c.chunk_id, size_tokens, overlap_tokens, c.document_id, d.path, "
                "c.live * coalesce(d.live, 0), place, c.digest "
                "FROM chunk_ids c LEFT JOIN document_ids d USING (document_id) WHERE chunk_id = ?",
                (chunk_id,),
            ).fetchone()
        if row is None:
            return None
        return Known(row[0], ChunkSet(row[1], row[2]), row[3], row[4] or "", bool(row[5]), row[6], row[7])

    def adopt(
        self,
        documents: Iterable[tuple[int, Sighting]],
        chunks: Iterable[tuple[int, ChunkSet, bytes, int, int]],
        *,
        passages: int,
    ) -> None:
        """Take over what corpus.db has when pensieve.db is younger (lost, or restored from a backup).

        `chunks` are (chunk id, set, digest, document id, place). Ids already known keep their meaning here.
        """
        with self._connections.writing() as db:
            db.conn.executemany(
                "INSERT INTO document_ids VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING",
                [(number, s.root, s.raw, s.path, s.digest) for number, s in documents],
            )
            db.conn.executemany(
                "INSERT INTO chunk_ids VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING",
                [
                    (i, s.size_tokens, s.overlap_tokens, digest, doc, place)
                    for i, s, digest, doc, place in chunks
                ],
            )
            for name, table in (("document", "document_ids"), ("chunk", "chunk_ids")):
                last = db.conn.execute(f"SELECT coalesce(max({name}_id), 0) FROM {table}").fetchone()[0]
                _take(db, name, 0, last)
            _take(db, "passage", 0, passages)


def _mark(db: Database, name: str) -> int:
    row = db.conn.execute("SELECT last FROM id_marks WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _take(db: Database, name: str, count: int, floor: int) -> int:
    last = max(_mark(db, name), floor)
    db.conn.execute(
        "INSERT INTO id_marks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET last = excluded.last",
        (name, last + count),
    )
    return last + 1


def _own(
    db: Database, want: Wanted, updates: list[tuple[int, int, int]], retired: list[tuple[int]]
) -> list[int | None]:
    """Ids this document gave to these texts before.

    Appends (document, place, id) where something moved, and the ids whose text the document no longer has.
    """
    rows = db.conn.execute(
        "SELECT digest, place, chunk_id, live FROM chunk_ids "
        "WHERE document_id = ? AND size_tokens = ? AND overlap_tokens = ? ORDER BY live DESC, place, chunk_id",
        (want.document_id, want.chunk_set.size_tokens, want.chunk_set.overlap_tokens),
    ).fetchall()
    before: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    live: set[int] = set()
    for digest, place, chunk_id, is_live in rows:
        before[digest].append((place, chunk_id))
        if is_live:
            live.add(chunk_id)
    ids: list[int | None] = [None] * len(want.digests)
    repeated: dict[bytes, list[int]] = defaultdict(list)
    for place, digest in enumerate(want.digests):
        if digest in before:
            repeated[digest].append(place)
    for digest, places in repeated.items():
        for place, (old, chunk_id) in _matched(places, before[digest]):
            ids[place] = chunk_id
            if old != place or chunk_id not in live:
                updates.append((want.document_id, place, chunk_id))
            live.discard(chunk_id)
    retired.extend((chunk_id,) for chunk_id in live)
    return ids


def _matched(places: list[int], before: list[tuple[int, int]]) -> Iterable[tuple[int, tuple[int, int]]]:
    """Pairs of new places and old (place, id) of one repeated text: the same place first, then in order."""
    if len(places) == 1 and len(before) == 1:
        return [(places[0], before[0])]
    there: dict[int, tuple[int, int]] = {}
    for entry in before:
        there.setdefault(entry[0], entry)
    pairs = [(place, there[place]) for place in places if place in there]
    used = {entry[1] for _, entry in pairs}
    done = {place for place, _ in pairs}
    pairs.extend(
        zip(
            (place for place in places if place not in done),
            (entry for entry in before if entry[1] not in used),
            strict=False,
        )
    )
    return pairs


def _orphans(db: Database, digests: set[bytes]) -> dict[tuple[ChunkSet, bytes], list[int]]:
    """Ids of these texts that no document holds, lowest first."""
    found: dict[tuple[ChunkSet, bytes], list[int]] = defaultdict(list)
    ordered = sorted(digests)
    for start in range(0, len(ordered), _BATCH):
        some = ordered[start : start + _BATCH]
        rows = db.conn.execute(
            "SELECT size_tokens, overlap_tokens, c.digest, chunk_id "
            "FROM chunk_ids c LEFT JOIN document_ids d USING (document_id) "
            f"WHERE c.digest IN ({','.join('?' * len(some))}) AND c.live * coalesce(d.live, 0) = 0 ORDER BY chunk_id",
            some,
        )
        for size, overlap, digest, chunk_id in rows:
            found[ChunkSet(size, overlap), digest].append(chunk_id)
    return found

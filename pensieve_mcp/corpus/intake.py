"""Writing the corpus: documents come in whole, go out whole, and wait for the index to hear of it.

Used by `building.py` under the build's lease, and by any process for one more chunk set. A document that was written
has `indexed` 0 until the commit of the index that holds it was confirmed; whoever builds next goes on from there.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pensieve_mcp.corpus.chunking import Cut, cut, pack, validated
from pensieve_mcp.corpus.ids import Sighting, Wanted
from pensieve_mcp.corpus.languages import guess_language
from pensieve_mcp.corpus.layout import Layout, pack_borders, text_pages
from pensieve_mcp.corpus.store import CorpusStore, fact
from pensieve_mcp.corpus.types import (
    BuildProgress,
    ChunkSet,
    Extracted,
    FoundFile,
    Passage,
    Skipped,
    Span,
    Stat,
)
from pensieve_mcp.errors import NoSuchDocument
from pensieve_mcp.tokens import count_tokens, tokens_of_units

if TYPE_CHECKING:
    from sqlite_utils import Database

    from pensieve_mcp.corpus.lease import Lease

SET_BATCH_CHARS = 4_000_000  # text cut between two transactions of a new chunk set


@dataclass(frozen=True, slots=True)
class Incoming:
    """A document that was read and is to be stored."""

    document_id: int
    file: FoundFile
    digest: bytes
    extracted: Extracted


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as it went in, with what the index wants to know of it."""

    incoming: Incoming
    passages: tuple[Passage, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class _Piece:
    """One chunk before it has an id."""

    span: Span
    tokens: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class FailedBefore:
    """A file whose reading failed, with the readers it failed with."""

    path: str
    root: str
    raw: bytes
    stat: Stat
    digest: bytes
    skipped: Skipped
    extractors: str


def chunk_pieces(text: str, found: Cut, chunk_set: ChunkSet) -> list[_Piece]:
    pieces = []
    sums = list(accumulate(found.units, initial=0))
    for span in pack(found, chunk_set):
        part = text[span.start : span.end]
        digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest()[:16]
        first, last = bisect_left(found.borders, span.start), bisect_left(found.borders, span.end)
        whole = bisect_right(found.torn, first) == bisect_left(found.torn, last)
        tokens = tokens_of_units(sums[last] - sums[first]) if whole else count_tokens(part)
        pieces.append(_Piece(span, tokens, digest))
    return pieces


class Intake:
    """All writing of one build. Every method is one transaction and raises LeaseLost or StorageError."""

    def __init__(self, store: CorpusStore, lease: Lease) -> None:
        self.store = store
        self.ids = store.ids
        self.lease = lease

    @contextmanager
    def writing(self) -> Iterator[Database]:
        with self.store.connections.writing() as db:
            self.lease.check(db)
            yield db

    # -- documents -------------------------------------------------------------------------------------------

    def put(self, batch: Sequence[Incoming], *, seen_ns: int) -> list[Stored]:
        """Store documents, with chunks for every set there is; a document that was there is replaced."""
        sets = self._sets()
        cuts = [cut(i.extracted.text, i.extracted.units, i.extracted.blocks) for i in batch]
        pieces = [
            [chunk_pieces(one.extracted.text, found, chunk_set) for _, chunk_set in sets]
            for one, found in zip(batch, cuts, strict=True)
        ]
        wanted = [
            Wanted(one.document_id, chunk_set, [piece.digest for piece in of_set])
            for one, of_sets in zip(batch, pieces, strict=True)
            for (_, chunk_set), of_set in zip(sets, of_sets, strict=True)
        ]
        ids = iter(self.ids.chunks(wanted))
        count = sum(len(found.passages) - 1 for found in cuts)
        first_passage = self.ids.reserve("passage", max(count, len(batch)))
        rows = []
        stored = []
        for one, found, of_sets in zip(batch, cuts, pieces, strict=True):
            layout = Layout.of(one.extracted.units, one.extracted.blocks)
            rows.append((one, found, of_sets, [next(ids) for _ in sets], first_passage, _texts(one), layout))
            passages = enumerate(found.passage_spans(), start=first_passage)
            stored.append(
                Stored(one, tuple(Passage(n, one.document_id, span) for n, span in passages), layout)
            )
            first_passage += max(1, len(found.passages) - 1)
        with self.writing() as db:
            for one, found, of_sets, chunk_ids, first, texts, layout in rows:
                # A path has one document. Whoever stood here under another id is gone.
                for (other,) in db.conn.execute(
                    "SELECT document_id FROM documents WHERE root = ? AND raw = ? AND document_id <> ?",
                    (one.file.root, one.file.raw, one.document_id),
                ).fetchall():
                    _drop(db, other)
                db.conn.execute("DELETE FROM documents WHERE document_id = ?", (one.document_id,))
                _insert(db, one, found, layout, first, seen_ns)
                db.conn.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", texts)
                for (set_id, _), of_set, numbers in zip(sets, of_sets, chunk_ids, strict=True):
                    _insert_chunks(db, one.document_id, set_id, of_set, numbers)
                db.conn.execute("DELETE FROM skipped WHERE path = ?", (one.file.path,))
            _changed(db)
        return stored

    def _sets(self) -> list[tuple[int, ChunkSet]]:
        with self.store.connections.reading() as db:
            rows = db.conn.execute(
                "SELECT set_id, size_tokens, overlap_tokens FROM chunk_sets ORDER BY set_id"
            )
            return [(row[0], ChunkSet(row[1], row[2])) for row in rows]

    def add_set(self, chunk_set: ChunkSet) -> None:
        """Name a set, so that documents that come in are cut for it."""
        validated(chunk_set)
        with self.writing() as db:
            _add_set(db, chunk_set)

    def remove(self, document_ids: Iterable[int]) -> None:
        """Documents whose files are gone."""
        gone = list(document_ids)
        self.ids.gone(gone)
        with self.writing() as db:
            for document_id in gone:
                _drop(db, document_id)
            _changed(db)

    def moved(self, moves: Sequence[tuple[int, FoundFile, bytes]], *, seen_ns: int) -> None:
        """Documents with the same text at another path: (document id, file, digest)."""
        self.ids.moved((i, Sighting(file.root, file.raw, file.path, digest)) for i, file, digest in moves)
        with self.writing() as db:
            # Two may have swapped their names: give up all old paths before taking new ones.
            db.conn.executemany(
                "UPDATE documents SET raw = CAST('' AS BLOB), root = 'moving ' || document_id WHERE document_id = ?",
                [(document_id,) for document_id, _, _ in moves],
            )
            for document_id, file, _ in moves:
                for (other,) in db.conn.execute(
                    "SELECT document_id FROM documents WHERE root = ? AND raw = ?", (file.root, file.raw)
                ).fetchall():
                    _drop(db, other)
                db.conn.execute(
                    "UPDATE documents SET root = ?, raw = ?, path = ?, size_bytes = ?, mtime_ns = ?, ctime_ns = ?, "
                    "inode = ?, seen_ns = ?, indexed = 0 WHERE document_id = ?",
                    (file.root, file.raw, file.path, *_stat_row(file.stat), seen_ns, document_id),
                )
                db.conn.execute("DELETE FROM skipped WHERE path = ?", (file.path,))
            _changed(db)

    def touched(self, touches: Sequence[tuple[int, Stat]], *, seen_ns: int) -> None:
        """Files with a new stat and the same content."""
        with self.writing() as db:
            db.conn.executemany(
                "UPDATE documents SET size_bytes = ?, mtime_ns = ?, ctime_ns = ?, inode = ?, seen_ns = ? "
                "WHERE document_id = ?",
                [(*_stat_row(stat), seen_ns, document_id) for document_id, stat in touches],
            )

    # -- what was not read -----------------------------------------------------------------------------------

    def passed_over(self, skipped: Iterable[Skipped], roots: Sequence[str]) -> None:
        """What the walk did not take, replacing what it said of these roots before."""
        with self.writing() as db:
            db.conn.executemany(
                "DELETE FROM skipped WHERE walk = 1 AND root = ?", [(root,) for root in roots]
            )
            db.conn.executemany(
                "INSERT OR REPLACE INTO skipped (path, root, raw, reason, detail, folder, walk, extractors) "
                "VALUES (?, ?, ?, ?, ?, ?, 1, '')",
                [(s.path, s.root, s.raw, s.reason, s.detail, s.folder) for s in skipped],
            )

    def keep_roots(self, roots: Sequence[str]) -> None:
        """Forget what was skipped in roots that are no longer part of the workspace."""
        with self.writing() as db:
            marks = ",".join("?" * len(roots))
            db.conn.execute(f"DELETE FROM skipped WHERE root NOT IN ({marks}) AND root <> ''", list(roots))

    def failed(
        self, file: FoundFile, digest: bytes | None, skipped: Skipped, *, extractors: str, seen_ns: int
    ) -> None:
        """A file that could not be read. Without a digest (it could not even be opened) it is tried again."""
        with self.writing() as db:
            db.conn.execute(
                "INSERT OR REPLACE INTO skipped (path, root, raw, reason, detail, folder, walk, size_bytes, mtime_ns, "
                "ctime_ns, inode, seen_ns, digest, extractors) VALUES (?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?)",
                (
                    file.path,
                    file.root,
                    file.raw,
                    skipped.reason,
                    skipped.detail,
                    *_stat_row(file.stat),
                    seen_ns,
                    digest,
                    extractors,
                ),
            )

    def failures(self) -> dict[tuple[str, bytes], FailedBefore]:
        """Files whose reading failed, by root and raw path."""
        with self.store.connections.reading() as db:
            rows = db.conn.execute(
                "SELECT path, root, raw, size_bytes, mtime_ns, ctime_ns, inode, digest, reason, detail, extractors "
                "FROM skipped WHERE walk = 0 AND digest IS NOT NULL"
            ).fetchall()
        return {
            (row[1], row[2]): FailedBefore(
                row[0],
                row[1],
                row[2],
                Stat(row[3], row[4], row[5], int(row[6])),
                row[7],
                Skipped(row[0], row[8], row[9], row[1], row[2]),
                row[10],
            )
            for row in rows
        }

    def failed_keys(self) -> list[tuple[str, bytes]]:
        """All of them, also those that could not even be opened, by root and raw path."""
        with self.store.connections.reading() as db:
            rows = db.conn.execute("SELECT root, raw FROM skipped WHERE walk = 0 AND raw IS NOT NULL")
            return [(row[0], row[1]) for row in rows.fetchall()]

    def forget_failures(self, keys: Iterable[tuple[str, bytes]]) -> None:
        """Files that failed once and are no longer there."""
        with self.writing() as db:
            db.conn.executemany("DELETE FROM skipped WHERE walk = 0 AND root = ? AND raw = ?", list(keys))

    # -- the index's side ------------------------------------------------------------------------------------

    def pending(self) -> tuple[list[int], list[int]]:
        """(documents the index does not hold yet, documents it has to forget)."""
        with self.store.connections.reading() as db:
            new = db.conn.execute(
                "SELECT document_id FROM documents WHERE indexed = 0 ORDER BY path"
            ).fetchall()
            old = db.conn.execute("SELECT document_id FROM unindexed").fetchall()
        return [row[0] for row in new], [row[0] for row in old]

    def index_was_lost(self) -> None:
        """The index is empty or not ours: every document is to be indexed again."""
        with self.writing() as db:
            db.conn.execute("UPDATE documents SET indexed = 0 WHERE indexed <> 0")
            db.conn.execute("DELETE FROM unindexed")
            _set_fact(db, "generation", 0)
            _set_fact(db, "committing", 0)

    def committing(self, generation: int) -> None:
        """The index is about to commit under this number."""
        with self.writing() as db:
            _set_fact(db, "committing", generation)

    def committed(self, generation: int, documents: Iterable[int], removed: Iterable[int]) -> None:
        """The index has committed these: publish the generation."""
        with self.writing() as db:
            db.conn.executemany(
                "UPDATE documents SET indexed = ? WHERE document_id = ?",
                [(generation, document_id) for document_id in documents],
            )
            db.conn.executemany("DELETE FROM unindexed WHERE document_id = ?", [(i,) for i in removed])
            _set_fact(db, "generation", generation)

    # -- facts and progress ----------------------------------------------------------------------------------

    def fact(self, name: str) -> int:
        with self.store.connections.reading() as db:
            return fact(db, name)

    def text_fact(self, name: str) -> str:
        with self.store.connections.reading() as db:
            row = db.conn.execute("SELECT value FROM corpus_facts WHERE name = ?", (name,)).fetchone()
            return str(row[0]) if row is not None else ""

    def set_facts(self, **facts: int | str) -> None:
        with self.writing() as db:
            for name, value in facts.items():
                _set_fact(db, name, value)

    def tell(self, progress: BuildProgress) -> None:
        """Let every process see where the build stands."""
        with self.writing() as db:
            db.conn.execute(
                "INSERT INTO progress VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET told = excluded.told",
                (json.dumps(asdict(progress)),),
            )

    def adopt_ids(self) -> None:
        """Tell the ids in corpus.db to a pensieve.db that does not know them (lost, or an older copy)."""
        with self.store.connections.reading() as db:
            chunks = db.conn.execute("SELECT coalesce(max(chunk_id), 0) FROM chunks").fetchone()[0]
            documents, passages = db.conn.execute(
                "SELECT coalesce(max(document_id), 0), coalesce(max(first_passage + passages), 1) - 1 FROM documents"
            ).fetchone()
            if (
                chunks <= self.ids.highest("chunk")
                and documents <= self.ids.highest("document")
                and passages <= self.ids.highest("passage")
            ):
                return
            known = [
                (row[0], Sighting(row[1], row[2], row[3], row[4]))
                for row in db.conn.execute("SELECT document_id, root, raw, path, digest FROM documents")
            ]
            rows = [
                (row[0], ChunkSet(row[1], row[2]), row[3], row[4], row[5])
                for row in db.conn.execute(
                    "SELECT chunk_id, size_tokens, overlap_tokens, digest, document_id, place "
                    "FROM chunks JOIN chunk_sets USING (set_id)"
                )
            ]
        self.ids.adopt(known, rows, passages=passages)


def cut_chunk_set(
    store: CorpusStore,
    chunk_set: ChunkSet,
    *,
    cancel: Callable[[], bool],
    progress: Callable[[int, int], None] | None,
) -> bool:
    """See `CorpusStore.ensure_chunk_set`. Needs no lease: a document replaced meanwhile is left to the other side."""
    validated(chunk_set)
    with store.connections.writing() as db:
        set_id = _add_set(db, chunk_set)
    with store.connections.reading() as db:
        missing = db.conn.execute(
            "SELECT document_id, chars FROM documents d WHERE NOT EXISTS (SELECT 1 FROM set_documents s "
            "WHERE s.document_id = d.document_id AND s.set_id = ?) ORDER BY path",
            (set_id,),
        ).fetchall()
    batch: list[tuple[int, int, list[_Piece]]] = []
    chars = 0
    for done, (document_id, size) in enumerate(missing, start=1):
        if cancel():
            _store_set(store, set_id, chunk_set, batch)
            return False
        try:
            with store.connections.reading() as db:
                version = store._version(db, document_id)
                text = store._text(db, document_id, version, Span(0, size))
                layout = store._layout(document_id, db)[1]
        except NoSuchDocument:
            continue
        batch.append(
            (document_id, version, chunk_pieces(text, cut(text, layout.units, layout.blocks()), chunk_set))
        )
        chars += size
        if chars >= SET_BATCH_CHARS or done == len(missing):
            _store_set(store, set_id, chunk_set, batch)
            batch, chars = [], 0
        if progress is not None:
            progress(done, len(missing))
    _store_set(store, set_id, chunk_set, batch)
    return True


def _store_set(
    store: CorpusStore, set_id: int, chunk_set: ChunkSet, batch: Sequence[tuple[int, int, list[_Piece]]]
) -> None:
    if not batch:
        return
    wanted = [Wanted(document_id, chunk_set, [p.digest for p in pieces]) for document_id, _, pieces in batch]
    numbers = store.ids.chunks(wanted)
    with store.connections.writing() as db:
        for (document_id, version, pieces), chunk_ids in zip(batch, numbers, strict=True):
            row = db.conn.execute(
                "SELECT first_passage, EXISTS (SELECT 1 FROM set_documents WHERE document_id = ? AND set_id = ?) "
                "FROM documents WHERE document_id = ?",
                (document_id, set_id, document_id),
            ).fetchone()
            if row is not None and row[0] == version and not row[1]:
                _insert_chunks(db, document_id, set_id, pieces, chunk_ids)
        _changed(db)


def _insert(
    db: Database, one: Incoming, found: Cut, layout: Layout, first_passage: int, seen_ns: int
) -> None:
    read, facts = one.extracted, one.extracted.facts
    warnings = list(facts.warnings)
    if facts.replaced:
        warnings.append(f"{facts.replaced:,} characters could not be decoded")
    db.conn.execute(
        f"INSERT INTO documents VALUES ({','.join('?' * 24)})",
        (
            one.document_id,
            one.file.root,
            one.file.raw,
            one.file.path,
            one.digest,
            *_stat_row(one.file.stat),
            seen_ns,
            facts.media_type,
            facts.title,
            tokens_of_units(sum(found.units)) if read.text else 0,
            len(read.text),
            read.status,
            facts.encoding,
            read.extractor,
            len(read.units),
            json.dumps(warnings, ensure_ascii=False),
            guess_language(read.text),
            facts.verbatim,
            first_passage,
            len(found.passages) - 1,
            0,
        ),
    )
    borders = [found.borders[atom] for atom in found.passages]
    db.conn.execute(
        "INSERT INTO layouts VALUES (?, ?, ?)",
        (one.document_id, pack_borders(borders), layout.pack()),
    )


def _texts(one: Incoming) -> list[tuple[Any, ...]]:
    return [(one.document_id, page, line, data) for page, line, data in text_pages(one.extracted.text)]


def _insert_chunks(
    db: Database, document_id: int, set_id: int, pieces: Sequence[_Piece], chunk_ids: Sequence[int]
) -> None:
    # An id may have moved here from a document that still stands in its old form and is read later in this build.
    db.conn.executemany("DELETE FROM chunks WHERE chunk_id = ?", [(chunk_id,) for chunk_id in chunk_ids])
    db.conn.executemany(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (chunk_id, set_id, document_id, place, p.span.start, p.span.end, p.tokens, p.digest)
            for place, (chunk_id, p) in enumerate(zip(chunk_ids, pieces, strict=True))
        ],
    )
    db.conn.execute(
        "INSERT OR REPLACE INTO set_documents VALUES (?, ?, ?)", (set_id, document_id, len(pieces))
    )


def _add_set(db: Database, chunk_set: ChunkSet) -> int:
    db.conn.execute(
        "INSERT OR IGNORE INTO chunk_sets (size_tokens, overlap_tokens) VALUES (?, ?)",
        (chunk_set.size_tokens, chunk_set.overlap_tokens),
    )
    row = db.conn.execute(
        "SELECT set_id FROM chunk_sets WHERE size_tokens = ? AND overlap_tokens = ?",
        (chunk_set.size_tokens, chunk_set.overlap_tokens),
    ).fetchone()
    return int(row[0])


def _drop(db: Database, document_id: int) -> None:
    db.conn.execute("DELETE FROM documents WHERE document_id = ?", (document_id,))
    db.conn.execute("INSERT OR IGNORE INTO unindexed VALUES (?)", (document_id,))


def _changed(db: Database) -> None:
    _set_fact(db, "revision", fact(db, "revision") + 1)


def _set_fact(db: Database, name: str, value: int | str) -> None:
    db.conn.execute(
        "INSERT INTO corpus_facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, str(value)),
    )


def _stat_row(stat: Stat) -> tuple[int, int, int, str]:
    return stat.size_bytes, stat.mtime_ns, stat.ctime_ns, str(stat.inode)

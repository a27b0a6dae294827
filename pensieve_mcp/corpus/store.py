"""What the folders hold, as it was last read: documents, texts, passages, chunks, and what was skipped.

The reading side of `corpus.db`, for any number of threads and processes; a document is seen only when it is whole.
Writing is `intake.py`'s, done by the one process that holds the build's lease. What ids mean is `ids.py`'s.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

from pensieve_mcp.corpus.ids import Ids
from pensieve_mcp.corpus.layout import PAGE_CHARS, Layout, page_text, unpack_borders
from pensieve_mcp.corpus.locate import locate
from pensieve_mcp.corpus.schema import BASIN, fingerprint, why_stale
from pensieve_mcp.corpus.types import (
    BuildProgress,
    Chunk,
    ChunkSet,
    Document,
    Fresh,
    Passage,
    Root,
    Skipped,
    Span,
    Stat,
    Unit,
    Unreadable,
)
from pensieve_mcp.errors import NoSuchChunk, NoSuchDocument
from pensieve_mcp.storage import Connections
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from sqlite_utils import Database

T = TypeVar("T")
Under = Sequence[str]

CACHED_PAGES = 64  # of 64k characters
CACHED_LAYOUTS = 64
OVERLAPPING = 8  # chunks that may share one character: overlap is half a chunk at most
EXACT_OUTLINE_CHARS = 1_000_000  # above it the tokens of a section are its share of the document's
OUTLINE_ENTRIES = 5_000
NEAR_PATHS = 20_000  # paths looked at for near names

DOCUMENT_COLUMNS: Final = (
    "document_id, path, root, raw, digest, size_bytes, mtime_ns, ctime_ns, inode, media_type, title, tokens, chars, "
    "status, encoding, extractor, units, warnings"
)


_UNREAD: Final = (
    "SELECT path, reason, detail, root, raw, folder FROM skipped UNION ALL "
    "SELECT path, 'partial', warnings, root, raw, 0 FROM documents WHERE status = 'partial'"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a part of the corpus. `skipped` counts files and folders by reason."""

    documents: int
    tokens: int
    chars: int
    bytes: int
    formats: Mapping[str, int]  # documents by media type, most first
    languages: Mapping[str, int]  # documents by guessed language, most first; unknown ones left out
    skipped: Mapping[str, int]
    partial: int = 0  # of the documents, those of which something is missing


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A heading, page, slide, sheet … with the stretch up to the next of its level."""

    heading: str
    level: int  # one-based
    span: Span
    locator: str
    tokens: int


@dataclass(frozen=True, slots=True)
class LiteralPlace:
    """Where a literal was found, and the passage that holds its first character."""

    passage_id: int
    document_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Order:
    """The documents of one chunk set in scanning order, with the count of chunks before each."""

    revision: int
    set_id: int
    documents: array[int]
    before: array[int]  # one entry more than documents
    place_of: dict[int, int] = field(repr=False)

    @property
    def total(self) -> int:
        return self.before[-1]


class CorpusStore:
    """See the module. Safe on threads. Raises StorageError as `storage` words it."""

    def __init__(
        self, connections: Connections, ids: Ids, roots: Sequence[Root] = (), *, follow_links: bool = False
    ) -> None:
        """`connections` to corpus.db with `schema.BASIN`; `roots` and `follow_links` are for `freshness`."""
        self.follow_links = follow_links
        self.connections = connections
        self.ids = ids
        self.roots = {root.name: root for root in roots}
        self._lock = threading.Lock()
        self._pages: OrderedDict[tuple[int, int, int], str] = OrderedDict()
        self._layouts: OrderedDict[tuple[int, int], tuple[array[int], Layout]] = OrderedDict()
        self._orders: dict[ChunkSet, _Order] = {}
        self._hashed: dict[tuple[int, Stat], bytes] = {}
        self._others: tuple[int, bool] | None = None  # revision of the corpus, and the answer then
        connections.when_replaced(self._begin_anew)

    def _begin_anew(self) -> None:
        """Another corpus.db lies there: what was read from the one before is worth nothing."""
        with self._lock:
            for kept in (self._pages, self._layouts, self._orders, self._hashed):
                kept.clear()

    @classmethod
    def open(
        cls,
        path: Path,
        ids: Ids,
        roots: Sequence[Root] = (),
        *,
        read_only: bool = False,
        follow_links: bool = False,
    ) -> CorpusStore:
        """Over the corpus.db at `path`, which is made when it is missing."""
        connections = Connections(path, basins=(BASIN,), read_only=read_only)
        return cls(connections, ids, roots, follow_links=follow_links)

    def close(self) -> None:
        self.connections.close()

    # -- documents -------------------------------------------------------------------------------------------

    def documents(
        self, under: Under = (), *, cursor: str | None = None, limit: int = 100
    ) -> tuple[list[Document], str | None]:
        """Documents by path, and the cursor of the next page. A cursor is the last path that was shown."""
        where, values = self._served(under)
        if cursor:
            where += " AND path > ?"
            values.append(cursor)
        with self.connections.reading() as db:
            rows = db.conn.execute(
                f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE {where} ORDER BY path LIMIT ?",
                [*values, limit + 1],
            ).fetchall()
        found = [document_of(row) for row in rows[:limit]]
        return found, found[-1].path if len(rows) > limit else None

    def _served(self, under: Under = ()) -> tuple[str, list[Any]]:
        """A condition on `root` and `path`: what lies below, in a root that is part of the workspace. A root that was
        dropped is not served, though only the next build removes its documents."""
        where, values = below(under)
        if not self.roots:
            return where, values
        marks = ",".join("?" * len(self.roots))
        return f"root IN ('', {marks}) AND {where}", [*self.roots, *values]

    def holds_others(self) -> bool:
        """Whether there are documents of roots that are no longer part of the workspace."""
        if not self.roots:
            return False
        with self.connections.reading() as db:
            revision = fact(db, "revision")
            if self._others is None or self._others[0] != revision:
                served, values = self._served()
                row = db.conn.execute(
                    f"SELECT 1 FROM documents WHERE NOT ({served}) LIMIT 1", values
                ).fetchone()
                self._others = (revision, row is not None)
            return self._others[1]

    def document(self, path: str) -> Document:
        """The document at `root/relative/file`. Raises NoSuchDocument with near names."""
        wanted = path.strip().rstrip("/") or path
        served, values = self._served()
        with self.connections.reading() as db:
            for candidate in dict.fromkeys((path, wanted)):
                row = db.conn.execute(
                    f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE {served} AND path = ?",
                    (*values, candidate),
                ).fetchone()
                if row is not None:
                    return document_of(row)
            skipped = db.conn.execute(
                "SELECT reason, detail FROM skipped WHERE path = ?", (wanted,)
            ).fetchone()
            near = () if skipped else _near(db, wanted)
        if skipped:
            raise NoSuchDocument(
                f"{wanted} was not indexed: {skipped[0]}" + (f" ({skipped[1]})." if skipped[1] else "."),
                hint="analyzeText lists what can be read.",
                slug="document_skipped",
            )
        raise NoSuchDocument(
            f"There is no document {wanted!r}.",
            hint=f"Did you mean {' or '.join(near)}?" if near else "analyzeText lists the documents.",
        )

    def document_by_id(self, document_id: int) -> Document:
        """Raises NoSuchDocument, also for one that is no longer there."""
        with self.connections.reading() as db:
            row = db.conn.execute(
                f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE document_id = ?", (document_id,)
            ).fetchone()
        if row is None:
            raise NoSuchDocument(
                f"Document {document_id} is no longer there.", hint="analyzeText lists the documents."
            )
        return document_of(row)

    def has_document(self, path: str) -> bool:
        """Whether this very path is a document."""
        with self.connections.reading() as db:
            served, values = self._served()
            return (
                db.conn.execute(
                    f"SELECT 1 FROM documents WHERE {served} AND path = ?", (*values, path)
                ).fetchone()
                is not None
            )

    def has_under(self, prefix: str) -> bool:
        """Whether the path is a document, or a folder with documents or skipped files in it."""
        where, values = self._served((prefix,))
        with self.connections.reading() as db:
            return any(
                db.conn.execute(f"SELECT 1 FROM {table} WHERE {where} LIMIT 1", values).fetchone() is not None
                for table in ("documents", "skipped")
            )

    def skipped(
        self,
        under: Under = (),
        *,
        reason: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> tuple[list[Skipped], str | None]:
        """What was not read and why, by path, and the cursor of the next page. Documents that were read in part are
        among them, with the reason "partial" and their warnings."""
        where, values = self._served(under)
        if reason:
            where += " AND reason = ?"
            values.append(reason)
        if cursor:
            where += " AND path > ?"
            values.append(cursor)
        with self.connections.reading() as db:
            rows = db.conn.execute(
                f"SELECT path, reason, detail, root, raw, folder FROM ({_UNREAD}) "
                f"WHERE {where} GROUP BY path ORDER BY path LIMIT ?",
                [*values, limit + 1],
            ).fetchall()
        found = [
            Skipped(
                path, why, "; ".join(json.loads(detail)) if why == "partial" else detail, root, raw, bool(f)
            )
            for path, why, detail, root, raw, f in rows[:limit]
        ]
        return found, found[-1].path if len(rows) > limit else None

    def totals(self, under: Under = ()) -> Totals:
        """Sums over the documents under these paths."""
        where, values = self._served(under)
        with self.connections.reading() as db:
            count, tokens, chars, size = db.conn.execute(
                "SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(chars), 0), "
                f"coalesce(sum(size_bytes), 0) FROM documents WHERE {where}",
                values,
            ).fetchone()

            def counted(column: str, table: str, more: str = "") -> dict[str, int]:
                rows = db.conn.execute(
                    f"SELECT {column}, count(DISTINCT path) AS n FROM {table} WHERE {where} {more} "
                    f"GROUP BY {column} ORDER BY n DESC, {column}",
                    values,
                )
                return {name: number for name, number in rows}

            return Totals(
                count,
                tokens,
                chars,
                size,
                counted("media_type", "documents"),
                counted("language", "documents", "AND language <> ''"),
                counted("reason", "skipped"),
                partial=self._partial(db, where, values),
            )

    def partial_count(self, under: Under = ()) -> int:
        """How many documents were read in part only."""
        where, values = self._served(under)
        with self.connections.reading() as db:
            return self._partial(db, where, values)

    def _partial(self, db: Database, where: str, values: Sequence[Any]) -> int:
        row = db.conn.execute(
            f"SELECT count(*) FROM documents WHERE status = 'partial' AND {where}", values
        ).fetchone()
        return int(row[0])

    def outline(self, document_id: int) -> list[OutlineEntry]:
        """The document's headings, or its pages, slides, sheets, messages where it has none."""
        document = self.document_by_id(document_id)
        layout = self._layout(document_id)[1]
        places: list[tuple[int, str, int]] = []  # start, heading, level
        last: tuple[str, ...] = ()
        for number in range(len(layout.starts)):
            heading = tuple(layout.headings[layout.heading_of[number]])
            if heading == last:
                continue
            shared = 0
            while shared < min(len(last), len(heading)) and last[shared] == heading[shared]:
                shared += 1
            for level in range(shared, len(heading)):
                places.append((layout.starts[number], heading[level], level + 1))
            last = heading
            if len(places) >= OUTLINE_ENTRIES:
                break
        if not places:
            units = layout.units[:OUTLINE_ENTRIES]
            places = [(unit.start, _unit_name(unit), 1) for unit in units]
            if len(places) == 1 and layout.units[0].kind == "body":
                places = []
        ends = _section_ends([(start, level) for start, _, level in places], document.chars)
        text = (
            self.text(document_id, Span(0, document.chars)) if document.chars <= EXACT_OUTLINE_CHARS else None
        )
        entries = []
        for (start, heading_text, level), end in zip(places, ends, strict=True):
            tokens = (
                count_tokens(text[start:end])
                if text is not None
                else round(document.tokens * (end - start) / max(1, document.chars))
            )
            head = Span(start, min(end, start + 1))
            entries.append(
                OutlineEntry(heading_text, level, Span(start, end), self.locator(document_id, head), tokens)
            )
        return entries

    # -- texts -----------------------------------------------------------------------------------------------

    def text(self, document_id: int, span: Span) -> str:
        """A stretch of a document's text; what lies outside it is left out. Raises NoSuchDocument."""
        with self.connections.reading() as db:
            return self._text(db, document_id, self._version(db, document_id), span)

    def _version(self, db: Database, document_id: int) -> int:
        row = db.conn.execute(
            "SELECT first_passage FROM documents WHERE document_id = ?", (document_id,)
        ).fetchone()
        if row is None:
            raise NoSuchDocument(
                f"Document {document_id} is no longer there.", hint="analyzeText lists the documents."
            )
        return int(row[0])

    def _text(self, db: Database, document_id: int, version: int, span: Span) -> str:
        start, end = max(0, span.start), max(0, span.end)
        if end <= start:
            return ""
        first, last = start // PAGE_CHARS, (end - 1) // PAGE_CHARS
        if first == last:
            return self._page(db, document_id, version, first)[
                start - first * PAGE_CHARS : end - first * PAGE_CHARS
            ]
        joined = "".join(self._page(db, document_id, version, page) for page in range(first, last + 1))
        return joined[start - first * PAGE_CHARS : end - first * PAGE_CHARS]

    def _page(self, db: Database, document_id: int, version: int, page: int) -> str:
        key = (document_id, version, page)

        def read() -> str:
            row = db.conn.execute(
                "SELECT text FROM texts WHERE document_id = ? AND page = ?", (document_id, page)
            ).fetchone()
            return page_text(row[0]) if row is not None else ""

        return self._kept(self._pages, key, CACHED_PAGES, read)

    def _kept(self, cache: OrderedDict[Any, T], key: Any, size: int, read: Callable[[], T]) -> T:
        with self._lock:
            if key in cache:
                cache.move_to_end(key)
                return cache[key]
        value = read()
        with self._lock:
            cache[key] = value
            while len(cache) > size:
                cache.popitem(last=False)
        return value

    def _layout(self, document_id: int, db: Database | None = None) -> tuple[array[int], Layout]:
        if db is None:
            with self.connections.reading() as lent:
                return self._layout(document_id, lent)
        version = self._version(db, document_id)

        def read() -> tuple[array[int], Layout]:
            borders, layout = db.conn.execute(
                "SELECT borders, layout FROM layouts WHERE document_id = ?", (document_id,)
            ).fetchone()
            return unpack_borders(borders), Layout.unpack(layout)

        return self._kept(self._layouts, (document_id, version), CACHED_LAYOUTS, read)

    def locator(self, document_id: int, span: Span) -> str:
        """Where a stretch stands, for people: `p. 12`, `Sheet1!B3:F9`, `§ 2.1 Terms`, `lines 40–58`."""
        with self.connections.reading() as db:
            layout = self._layout(document_id, db)[1]
            verbatim, chars = db.conn.execute(
                "SELECT verbatim, chars FROM documents WHERE document_id = ?", (document_id,)
            ).fetchone()
            lines = self._lines(db, document_id, span) if verbatim else None
        told = locate(span, layout.units_in(span), layout.blocks_in(span), lines=lines)
        # A long text without any structure: how far in it is helps more than nothing.
        return told or (f"{100 * span.start // chars} % in" if span.end - span.start < chars else "")

    def _lines(self, db: Database, document_id: int, span: Span) -> tuple[int, int]:
        version = self._version(db, document_id)
        first = self._line(db, document_id, version, span.start)
        text = self._text(db, document_id, version, span)
        return first, first + text.rstrip("\n").count("\n")

    def _line(self, db: Database, document_id: int, version: int, offset: int) -> int:
        page = offset // PAGE_CHARS
        row = db.conn.execute(
            "SELECT first_line FROM texts WHERE document_id = ? AND page = ?", (document_id, page)
        ).fetchone()
        if row is None:
            return 1
        return int(row[0]) + self._page(db, document_id, version, page).count(
            "\n", 0, offset - page * PAGE_CHARS
        )

    # -- chunks ----------------------------------------------------------------------------------------------

    def chunk(self, chunk_id: int) -> Chunk:
        """Raises NoSuchChunk that says what became of it."""
        with self.connections.reading() as db:
            row = db.conn.execute(
                'SELECT chunk_id, document_id, place, start, "end", tokens, digest, size_tokens, overlap_tokens '
                "FROM chunks JOIN chunk_sets USING (set_id) WHERE chunk_id = ?",
                (chunk_id,),
            ).fetchone()
            if row is not None and self._is_served(db, row[1]):
                return self._chunk(db, row, ChunkSet(row[7], row[8]))
        raise self._no_such_chunk(chunk_id)

    def _is_served(self, db: Database, document_id: int) -> bool:
        row = db.conn.execute("SELECT root FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        return not self.roots or (row is not None and row[0] in self.roots)

    def _no_such_chunk(self, chunk_id: int) -> NoSuchChunk:
        last = self.ids.highest()
        known = self.ids.known(chunk_id) if 0 < chunk_id <= last else None
        if known is None:
            in_use = self._chunks_in_use()
            has = "this workspace has " + ("c1" if last == 1 else f"c1 to c{last}")
            if not in_use:
                has = "no document that is indexed has text" if last else "nothing is indexed yet"
            elif in_use < last:  # ids are never given out again
                has = f"of the ids up to c{last}, {in_use:,} {'is' if in_use == 1 else 'are'} in use"
            return NoSuchChunk(
                f"There is no chunk c{chunk_id}; {has}.", hint="Call searchEngine to find one."
            )
        with self.connections.reading() as db:
            served = self._is_served(db, known.document_id)
        here = self._standing(known.chunk_set, known.document_id, known.place) if served else None
        if here is None:
            return NoSuchChunk(
                f"c{chunk_id} is no longer there: {known.path} was removed.",
                hint="Call searchEngine to find where its text is now, if anywhere.",
                slug="chunk_retired",
            )
        return NoSuchChunk(
            f"c{chunk_id} is no longer there: the text of {known.path} changed.",
            hint=f"c{here.chunk_id} stands in its place now.",
            slug="chunk_retired",
        )

    def _chunks_in_use(self) -> int:
        served, values = self._served()
        with self.connections.reading() as db:
            sql = f"SELECT count(*) FROM chunks JOIN documents USING (document_id) WHERE {served}"
            return int(db.conn.execute(sql, values).fetchone()[0])

    def _standing(self, chunk_set: ChunkSet, document_id: int, place: int) -> Chunk | None:
        with self.connections.reading() as db:
            set_id = _set_id(db, chunk_set)
            row = db.conn.execute(
                'SELECT chunk_id, document_id, place, start, "end", tokens, digest FROM chunks '
                "WHERE document_id = ? AND set_id = ? AND place <= ? ORDER BY place DESC LIMIT 1",
                (document_id, set_id, place),
            ).fetchone()
            return self._chunk(db, row, chunk_set) if row is not None else None

    def _chunk(self, db: Database, row: Sequence[Any], chunk_set: ChunkSet) -> Chunk:
        order = self._order(db, chunk_set)
        at = order.place_of.get(row[1], 0)
        return Chunk(row[0], row[1], order.before[at] + row[2], Span(row[3], row[4]), row[5], row[6])

    def chunk_text(self, chunk: Chunk | int) -> str:
        """The text of a chunk. Raises NoSuchChunk."""
        wanted = self.chunk(chunk) if isinstance(chunk, int) else chunk
        return self.text(wanted.document_id, wanted.span)

    def chunk_count(self, chunk_set: ChunkSet) -> int:
        with self.connections.reading() as db:
            return self._order(db, chunk_set).total

    def chunk_range(self, chunk_set: ChunkSet) -> tuple[int, int | None, int | None]:
        """(count, lowest id, highest id) of a set."""
        with self.connections.reading() as db:
            low, high = db.conn.execute(
                "SELECT min(chunk_id), max(chunk_id) FROM chunks WHERE set_id = ?", (_set_id(db, chunk_set),)
            ).fetchone()
            return self._order(db, chunk_set).total, low, high

    def chunk_at(self, chunk_set: ChunkSet, position: int) -> Chunk | None:
        """The chunk at a zero-based place in document order, or None past the end."""
        with self.connections.reading() as db:
            order = self._order(db, chunk_set)
            if not 0 <= position < order.total:
                return None
            at = bisect_right(order.before, position) - 1
            row = db.conn.execute(
                'SELECT chunk_id, document_id, place, start, "end", tokens, digest FROM chunks '
                "WHERE document_id = ? AND set_id = ? AND place = ?",
                (order.documents[at], order.set_id, position - order.before[at]),
            ).fetchone()
            return self._chunk(db, row, chunk_set) if row is not None else None

    def position_of(self, chunk_id: int, chunk_set: ChunkSet | None = None) -> tuple[int, int]:
        """(zero-based place in document order, chunks in all). Of another set than the chunk's own: the place of
        the chunk there that holds its first character. Raises NoSuchChunk."""
        chunk = self.chunk(chunk_id)
        with self.connections.reading() as db:
            row = db.conn.execute(
                "SELECT size_tokens, overlap_tokens FROM chunks JOIN chunk_sets USING (set_id) WHERE chunk_id = ?",
                (chunk_id,),
            ).fetchone()
            own = ChunkSet(*row) if row is not None else ChunkSet()
            total = self._order(db, chunk_set or own).total
        if chunk_set is None or chunk_set == own:
            return chunk.position, total
        there = self.chunk_containing(chunk_set, chunk.document_id, chunk.span.start)
        return (there.position if there is not None else 0), total

    def chunk_containing(
        self, chunk_set: ChunkSet, document_id: int, offset: int, end: int | None = None
    ) -> Chunk | None:
        """The chunk that holds a character, with `end` the one that holds the whole stretch where one does."""
        with self.connections.reading() as db:
            set_id = _set_id(db, chunk_set)
            rows = db.conn.execute(
                'SELECT chunk_id, document_id, place, start, "end", tokens, digest FROM chunks '
                "WHERE document_id = ? AND set_id = ? AND start <= ? ORDER BY start DESC LIMIT ?",
                (document_id, set_id, offset, OVERLAPPING),
            ).fetchall()[::-1]
            holding = [row for row in rows if row[3] <= offset < row[4]]
            if not holding:
                return None
            whole = [row for row in holding if end is not None and row[4] >= end]
            return self._chunk(db, (whole or holding)[0], chunk_set)

    def neighbours(self, chunk_id: int, count: int) -> list[Chunk]:
        """The chunk with up to `count` before and after it in its document, in order. Raises NoSuchChunk."""
        self.chunk(chunk_id)
        with self.connections.reading() as db:
            rows = db.conn.execute(
                'SELECT c.chunk_id, c.document_id, c.place, c.start, c."end", c.tokens, c.digest, '
                "size_tokens, overlap_tokens FROM chunks o JOIN chunks c "
                "ON c.document_id = o.document_id AND c.set_id = o.set_id "
                "AND c.place BETWEEN o.place - ? AND o.place + ? "
                "JOIN chunk_sets s ON s.set_id = o.set_id WHERE o.chunk_id = ? ORDER BY c.place",
                (count, count, chunk_id),
            ).fetchall()
            return [self._chunk(db, row, ChunkSet(row[7], row[8])) for row in rows]

    def chunk_sets(self) -> list[ChunkSet]:
        with self.connections.reading() as db:
            rows = db.conn.execute("SELECT size_tokens, overlap_tokens FROM chunk_sets ORDER BY set_id")
            return [ChunkSet(*row) for row in rows]

    def has_chunk_set(self, chunk_set: ChunkSet) -> bool:
        """Whether every document is cut into chunks of this set."""
        with self.connections.reading() as db:
            set_id = _set_id(db, chunk_set)
            missing = db.conn.execute(
                "SELECT 1 FROM documents d WHERE NOT EXISTS (SELECT 1 FROM set_documents s "
                "WHERE s.document_id = d.document_id AND s.set_id = ?) LIMIT 1",
                (set_id,),
            ).fetchone()
            return set_id != 0 and missing is None

    def ensure_chunk_set(
        self,
        chunk_set: ChunkSet,
        *,
        cancel: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Cut all documents into chunks of this set, where that is not done yet. False when cancelled.

        Raises Miscast for senseless sizes.
        """
        from pensieve_mcp.corpus.intake import cut_chunk_set

        return cut_chunk_set(self, chunk_set, cancel=cancel, progress=progress)

    def _order(self, db: Database, chunk_set: ChunkSet) -> _Order:
        revision = fact(db, "revision")
        with self._lock:
            kept = self._orders.get(chunk_set)
        if kept is not None and kept.revision == revision:
            return kept
        set_id = _set_id(db, chunk_set)
        documents, before, place_of = array("q"), array("q", [0]), {}
        total = 0
        served, values = self._served()
        rows = db.conn.execute(
            "SELECT document_id, chunks FROM set_documents JOIN documents USING (document_id) "
            f"WHERE set_id = ? AND {served} ORDER BY path, document_id",
            (set_id, *values),
        )
        for document_id, chunks in rows:
            place_of[document_id] = len(documents)
            documents.append(document_id)
            total += chunks
            before.append(total)
        order = _Order(revision, set_id, documents, before, place_of)
        with self._lock:
            self._orders[chunk_set] = order
        return order

    # -- passages --------------------------------------------------------------------------------------------

    def passages(self, passage_ids: Sequence[int]) -> dict[int, Passage]:
        """Passages by id; those that are no longer there are left out."""
        with self.connections.reading() as db:
            return {p.passage_id: p for p, _ in self._passages(db, passage_ids)}

    def passage_texts(self, passage_ids: Sequence[int]) -> dict[int, str]:
        """Texts of passages by id; those that are no longer there are left out."""
        with self.connections.reading() as db:
            return {
                passage.passage_id: self._text(db, passage.document_id, version, passage.span)
                for passage, version in self._passages(db, passage_ids)
            }

    def _passages(self, db: Database, passage_ids: Sequence[int]) -> Iterator[tuple[Passage, int]]:
        first = count = document_id = -1
        borders: array[int] = array("q")
        for passage_id in sorted(set(passage_ids)):
            if not first <= passage_id < first + count:
                row = db.conn.execute(
                    "SELECT first_passage, passages, document_id FROM documents WHERE first_passage <= ? "
                    "ORDER BY first_passage DESC LIMIT 1",
                    (passage_id,),
                ).fetchone()
                if row is None or passage_id >= row[0] + row[1]:
                    continue
                first, count, document_id = row
                borders = self._layout(document_id, db)[0]
            at = passage_id - first
            yield Passage(passage_id, document_id, Span(borders[at], borders[at + 1])), first

    def passages_of(self, document_id: int) -> list[Passage]:
        """All passages of a document, in order. Raises NoSuchDocument."""
        with self.connections.reading() as db:
            first = self._version(db, document_id)
            borders = self._layout(document_id, db)[0]
        return [
            Passage(first + at, document_id, Span(borders[at], borders[at + 1]))
            for at in range(len(borders) - 1)
        ]

    def heading_at(self, document_id: int, offset: int) -> tuple[str, ...]:
        """The heading path a character stands under."""
        return self._layout(document_id)[1].heading_at(offset)

    def scan_literal(
        self,
        literal: str,
        documents: Sequence[int] | None = None,
        late: Callable[[], bool] = lambda: False,
    ) -> Iterator[LiteralPlace]:
        """All places of a literal, folded (NFKC, caseless), in the texts of these documents (None: of all).

        Ends early when `late()`, which it asks for every 64k characters.
        """
        from pensieve_mcp.corpus.quotes import folded_places

        if documents is None:
            with self.connections.reading() as db:
                rows = db.conn.execute("SELECT document_id FROM documents ORDER BY path").fetchall()
            documents = [row[0] for row in rows]
        for document_id in documents:
            if late():
                return
            try:
                with self.connections.reading() as db:
                    version = self._version(db, document_id)
                    borders = self._layout(document_id, db)[0]
                    places = list(folded_places(self._raw_pages(db, document_id), literal, late))
            except NoSuchDocument:
                continue  # replaced or removed meanwhile; the index will say so too
            for offset in places:
                at = min(bisect_right(borders, offset) - 1, len(borders) - 2)
                yield LiteralPlace(version + at, document_id, offset)

    def _raw_pages(self, db: Database, document_id: int) -> Iterator[str]:
        """Page by page past the cache, which a scan would only empty."""
        rows = db.conn.execute("SELECT text FROM texts WHERE document_id = ? ORDER BY page", (document_id,))
        for (data,) in rows:
            yield page_text(data)

    # -- state -----------------------------------------------------------------------------------------------

    def _home(self, root: Root) -> tuple[int, int] | None:
        """(device, inode) of the root's folder when its files were last listed."""
        with self.connections.reading() as db:
            row = db.conn.execute(
                "SELECT value FROM corpus_facts WHERE name = ?", (f"root {root.name}",)
            ).fetchone()
        device, _, inode = str(row[0] if row is not None else "").partition(":")
        return (int(device), int(inode)) if inode else None

    def freshness(self, document_ids: Sequence[int]) -> dict[int, Fresh]:
        """Whether the files are still as they were read. Reads a file only when its stat has changed."""
        from pensieve_mcp.corpus.folders import absence, fresh, open_regular, stat_of

        answer: dict[int, Fresh] = {}
        for document_id in dict.fromkeys(document_ids):
            try:
                document = self.document_by_id(document_id)
                root = self.roots[document.root]
            except (NoSuchDocument, KeyError):
                answer[document_id] = "gone"
                continue
            answer[document_id] = fresh(root, document.raw, document.stat, home=self._home(root))
            if answer[document_id] in ("yes", "unreadable") or (
                answer[document_id] == "gone" and not self.follow_links
            ):
                continue
            try:
                with open_regular(root, document.raw, follow_links=self.follow_links) as file:
                    stat = stat_of(os.fstat(file.fileno()))
                    same = stat == document.stat
                    if not same and stat.size_bytes == document.stat.size_bytes:
                        key = (document_id, stat)
                        if key not in self._hashed:
                            self._hashed[key] = file_digest(file)
                        same = self._hashed[key] == document.digest
            except Unreadable as error:
                answer[document_id] = absence(error)
                continue
            answer[document_id] = "yes" if same else "changed"
        return answer

    def progress(self) -> BuildProgress:
        """Where the build stands, as whoever builds last told it."""
        from pensieve_mcp.corpus.lease import Lease

        progress = self.told()
        if Lease.holder(self.connections) == "build":
            return replace(progress, state="building")  # also before its first word
        if progress.state == "building":
            # Whoever built has died; what it published stays, the next build goes on from there.
            left = max(0, progress.documents_total - progress.documents_done)
            return replace(progress, state="stale", detail=interrupted(left, progress.documents_total))
        return progress

    def told(self) -> BuildProgress:
        """What whoever builds or built told last, and how many documents the published index holds."""
        with self.connections.reading() as db:
            row = db.conn.execute("SELECT told FROM progress").fetchone()
            searchable = db.conn.execute("SELECT count(*) FROM documents WHERE indexed > 0").fetchone()[0]
        if row is None:
            return BuildProgress("empty", searchable=searchable)
        told = {**json.loads(row[0]), "searchable": searchable}
        told["warnings"] = tuple(told.get("warnings", ()))
        return BuildProgress(**{k: v for k, v in told.items() if k in BuildProgress.__dataclass_fields__})

    def why_stale(self, extractors: str) -> str:
        """What differs from the programs that made the corpus, as a sentence; empty when nothing does."""
        with self.connections.reading() as db:
            row = db.conn.execute("SELECT value FROM corpus_facts WHERE name = 'fingerprint'").fetchone()
        return why_stale(row[0], fingerprint(extractors)) if row is not None else ""

    def generation(self) -> int:
        """The generation of the index that was published last."""
        with self.connections.reading() as db:
            return fact(db, "generation")


def interrupted(left: int, total: int) -> str:
    """How a build that did not come to its end is told, as a sentence."""
    if not left:
        return "Indexing was interrupted before its end."
    return f"Indexing was interrupted: {left:,} of {total:,} files are left."


def file_digest(file: BinaryIO) -> bytes:
    """sha256 of a file from its start."""
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.digest()


def fact(db: Database, name: str) -> int:
    row = db.conn.execute("SELECT value FROM corpus_facts WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row is not None else 0


def below(under: Under) -> tuple[str, list[Any]]:
    """A condition on `path`: it is one of these, or lies in one of these folders. True for none."""
    tests: list[str] = []
    values: list[Any] = []
    for prefix in under:
        clean = prefix.rstrip("/")
        tests.append("path = ? OR (path > ? AND path < ?)")
        values += [clean, clean + "/", clean + "0"]  # 0 follows / in ASCII
    return f"({' OR '.join(tests)})" if tests else "1", values


def document_of(row: Sequence[Any]) -> Document:
    """A row of DOCUMENT_COLUMNS."""
    return Document(
        document_id=row[0],
        path=row[1],
        root=row[2],
        raw=row[3],
        digest=row[4],
        stat=Stat(row[5], row[6], row[7], int(row[8])),
        media_type=row[9],
        title=row[10],
        tokens=row[11],
        chars=row[12],
        status=row[13],
        encoding=row[14],
        extractor=row[15],
        units=row[16],
        warnings=tuple(json.loads(row[17])),
    )


def _set_id(db: Database, chunk_set: ChunkSet) -> int:
    row = db.conn.execute(
        "SELECT set_id FROM chunk_sets WHERE size_tokens = ? AND overlap_tokens = ?",
        (chunk_set.size_tokens, chunk_set.overlap_tokens),
    ).fetchone()
    return int(row[0]) if row is not None else 0


def _unit_name(unit: Unit) -> str:
    if unit.kind == "body":
        return unit.label or "text"
    if unit.kind == "page" or not unit.label:
        return f"{unit.kind} {unit.label or unit.ordinal}"
    return unit.label


def _section_ends(places: Sequence[tuple[int, int]], length: int) -> list[int]:
    """For each (start, level): where the next of the same or a higher level begins."""
    ends = [length] * len(places)
    waiting: list[int] = []
    for number, (start, level) in enumerate(places):
        while waiting and places[waiting[-1]][1] >= level:
            ends[waiting.pop()] = start
        waiting.append(number)
    return ends


def _near(db: Database, path: str) -> tuple[str, ...]:
    """Up to three paths that look like this one: the same file name first, then similar spelling."""
    import difflib

    name = path.rsplit("/", 1)[-1].casefold()
    paths = [
        row[0] for row in db.conn.execute("SELECT path FROM documents ORDER BY path LIMIT ?", (NEAR_PATHS,))
    ]
    same = [p for p in paths if p.rsplit("/", 1)[-1].casefold() == name]
    if same:
        return tuple(same[:3])
    names: dict[str, str] = {}
    for candidate in paths:
        names.setdefault(candidate.rsplit("/", 1)[-1].casefold(), candidate)
    close = difflib.get_close_matches(name, list(names)[:5_000], n=3, cutoff=0.7)
    return tuple(names[match] for match in close)

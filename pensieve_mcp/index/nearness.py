"""Notes and earlier messages found by meaning: vectors of the shipped static table, made when somebody searches.

What was written since the last search gets its vectors then, so written a moment ago is found now, and writing a note
never waits for numpy. They lie in a folder that may be deleted at any time: derived, private, and dropped by every
purge. Where much is new at once, the newest is looked at first and a thread goes through the rest; words find it
meanwhile. Several processes may search: one of them writes at a time, the others keep what is new in memory.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pensieve_mcp.errors import IndexMismatch, PensieveError, StorageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pensieve_mcp.index.encoders.static import StaticEncoder
    from pensieve_mcp.index.vectors import VectorStore

log = logging.getLogger(__name__)

PIECE_CHARS = 500  # one vector each: in a longer text a single fact is lost
MOST_PIECES = 12  # of one note or message
SEARCH_SECONDS = 0.4  # a search spends at most so long on what is new
STEP_SECONDS = 0.1  # so long a search may have to wait for the thread
PATIENCE_SECONDS = 0.4  # the model is ready within this on any machine we saw; later it is there
SECOND_SECONDS = 0.3  # looked at before each text, so the most that is overrun is one text
QUESTION_CHARS = 20_000
BATCH = 256
COMMIT_ROWS = 2_000  # pieces kept in memory until they are worth a file


@dataclass(frozen=True, slots=True)
class New:
    """One row that was written; `group` is what a search may be confined to. `text` None: it is gone."""

    row: int
    group: int
    text: str | None


class Source(Protocol):
    """What can be found by meaning."""

    def birth(self) -> str: ...
    def last(self) -> int:
        """The mark of what was written last."""
        ...

    def since(self, mark: int, limit: int) -> tuple[list[New], int]:
        """What was written after a mark, oldest first, at most `limit`, and the mark to go on from: the same when
        there is nothing new."""
        ...


@dataclass
class _Memory:
    """Rows that no file holds yet: their vectors (n, dim), empty for what is gone."""

    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    rows: int = 0

    def put(self, one: New, vectors: NDArray[np.float32]) -> None:
        self.rows += len(vectors) - len(self.vectors.get(one.row, ()))
        self.vectors[one.row] = vectors
        self.groups[one.row] = one.group


class Side:
    """The vectors of one source. Safe on threads; other processes may have their own over the same folder."""

    def __init__(self, folder: Path, source: Source, second: SecondLook | None = None) -> None:
        self.folder = folder
        self._source = source
        self._second = second
        self._lock = threading.RLock()
        self._store: VectorStore | None = None
        self._fingerprint = ""
        self._fresh = _Memory()
        self._seen = 0  # mark up to which files and memory know all
        self._published = 0  # mark of the files when they were looked at last
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def near(self, query: str, group: int | None = None) -> Near | None:
        """How near the question is to what is stored; None where that cannot be told. Never raises."""
        try:
            encoder = _encoder()
            with self._lock:
                store = self._opened(encoder)
                whole = self._catch_up(encoder, store, time.monotonic() + SEARCH_SECONDS)
                newest = _Memory() if whole else self._newest(encoder)
            if not whole:
                self._go_on()
            return Near(encoder, store, (self._fresh, newest), query, group, self._second)
        except (PensieveError, OSError) as error:
            log.warning("nothing is found by meaning: %s", error)
            return None

    def _opened(self, encoder: StaticEncoder) -> VectorStore:
        from pensieve_mcp.index.vectors import VectorStore

        fingerprint = f"{encoder.name} {PIECE_CHARS}/{MOST_PIECES} {self._source.birth()}"
        if self._store is None or fingerprint != self._fingerprint:
            self._drop_memory()
            try:
                self._store = VectorStore.open(self.folder, fingerprint=fingerprint, dim=encoder.dim)
            except (IndexMismatch, StorageError) as stale:
                log.info("made anew: %s", stale)
                self._remove()
                self._store = VectorStore.open(self.folder, fingerprint=fingerprint, dim=encoder.dim)
            self._fingerprint = fingerprint
        else:
            self._store.refresh()
        store = self._store
        if store.generation > self._source.last():  # a backup of the notes was put back
            self._remove()
            self._store = store = VectorStore.open(self.folder, fingerprint=fingerprint, dim=encoder.dim)
        if store.generation < self._published:  # somebody dropped the files
            self._fresh, self._seen = _Memory(), 0
        if store.generation >= self._seen:  # another process knows more
            self._fresh, self._seen = _Memory(), store.generation
        self._published = store.generation
        return store

    def _catch_up(self, encoder: StaticEncoder, store: VectorStore, until: float) -> bool:
        """Vectors for what is new. Answers whether that is all."""
        while True:
            some, mark = self._source.since(self._seen, BATCH)
            if mark == self._seen:
                return True
            self._remember(encoder, some, self._fresh)
            self._seen = mark
            if self._fresh.rows >= COMMIT_ROWS:
                self._commit(store)
            if time.monotonic() >= until or self._ending.is_set():
                return False

    def _newest(self, encoder: StaticEncoder) -> _Memory:
        memory = _Memory()
        some, _ = self._source.since(max(self._seen, self._source.last() - BATCH), BATCH)
        self._remember(encoder, some, memory)
        return memory

    def _remember(self, encoder: StaticEncoder, some: Sequence[New], memory: _Memory) -> None:
        pieces = [pieces_of(one.text) if one.text is not None else [] for one in some]
        vectors = encoder.documents([piece for group in pieces for piece in group])
        at = 0
        for one, group in zip(some, pieces, strict=True):
            memory.put(one, vectors[at : at + len(group)])
            at += len(group)

    def _commit(self, store: VectorStore) -> None:
        """Publish what is in memory. Where another process is at it, or nothing can be written, memory keeps it."""
        import numpy as np

        fresh = self._fresh
        there = [row for row, vectors in fresh.vectors.items() if len(vectors)]
        gone = [fresh.groups[row] for row, vectors in fresh.vectors.items() if not len(vectors)]
        try:
            for folder in (self.folder.parent, self.folder):  # a vector tells something of its text
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if gone:
                store.remove_documents(gone)
            if there:
                counts = [len(fresh.vectors[row]) for row in there]
                store.add(
                    np.repeat(np.asarray(there, np.uint64), counts),
                    np.repeat(np.asarray([fresh.groups[row] for row in there], np.uint32), counts),
                    np.concatenate([fresh.vectors[row] for row in there]),
                )
            if store.generation >= self._seen:  # another process was faster, and may know newer ones
                store.discard()
            else:
                store.commit(self._seen)
        except (StorageError, OSError) as busy:
            log.info("vectors stay in memory: %s", busy)
            store.discard()
            return
        self._fresh, self._published = _Memory(), store.generation

    def _go_on(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._rest, name=f"vectors of {self.folder.name}", daemon=True
                )
                self._thread.start()

    def _rest(self) -> None:
        """What a search had no time for, in steps that let searches in between."""
        while not self._ending.is_set():
            try:
                encoder = _encoder()
                with self._lock:
                    store = self._opened(encoder)
                    if self._catch_up(encoder, store, time.monotonic() + STEP_SECONDS):
                        self._commit(store)
                        return
            except (PensieveError, OSError) as error:
                log.warning("vectors were not made: %s", error)
                return
            time.sleep(0)  # the lock is not fair: let a waiting search have it

    def settled(self, timeout_seconds: float = 60.0) -> None:
        """Wait for the thread that goes through the rest, if there is one."""
        if (thread := self._thread) is not None:
            thread.join(timeout_seconds)

    def drop(self) -> None:
        """Remove all vectors: what was purged must leave nothing behind. They are made again when asked for."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        self._drop_memory()
        if self.folder.is_dir():
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.folder.unlink(missing_ok=True)

    def _drop_memory(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store, self._fresh, self._seen, self._published = None, _Memory(), 0, 0

    def close(self) -> None:
        self._ending.set()
        self.settled()
        with self._lock:
            if self._store is not None and self._fresh.vectors:
                self._commit(self._store)
            self._drop_memory()


class SecondLook:
    """MiniLM over the best few, where it is wanted and installed: in the table's space, and much surer. It comes while
    words and the table answer already; what was encoded once is remembered."""

    def __init__(self) -> None:
        from pensieve_mcp.index.encoders import open_encoder
        from pensieve_mcp.index.loading import Loading, VectorCache

        self._loading = Loading("minilm", open_encoder)
        self._cache = VectorCache()

    def question(self, query: str) -> NDArray[np.float32] | None:
        """Its vector, or None while the model is not there."""
        model = self._loading.get(PATIENCE_SECONDS)
        return None if model is None else model.queries([query])[0]

    def cosines(self, vector: NDArray[np.float32], texts: Mapping[int, str]) -> dict[int, float]:
        """Of these texts, in their order, as many as the time suffices for."""
        model = self._loading.get()
        if model is None:
            return {}
        ends = time.monotonic() + SECOND_SECONDS
        found: dict[int, float] = {}
        longest = 0.0
        for row, text in texts.items():
            known = self._cache.known(text)
            if known is None:
                begun = time.monotonic()
                if begun + longest >= ends:
                    break
                made = model.documents([text])
                self._cache.keep([text], made)
                known = made[0]
                longest = max(longest, time.monotonic() - begun)
            found[row] = float(known @ vector)
        return found


class Near:
    """The port `fulltext.Nearness` for one question."""

    def __init__(
        self,
        encoder: StaticEncoder,
        store: VectorStore,
        fresh: Sequence[_Memory],
        query: str,
        group: int | None,
        second: SecondLook | None,
    ) -> None:
        query = query.encode("utf-8", "replace").decode("utf-8")[:QUESTION_CHARS]
        self.weight = encoder.script_weight(query)
        self._encoder = encoder
        self._store = store
        self._second = second if self.weight == 1.0 else None
        true = None if self._second is None else self._second.question(query)
        self._vector = encoder.queries([query])[0] if true is None else true
        self._group = group
        self._memory: dict[int, float | None] = {}
        for memory in fresh:
            self._memory |= _cosines(memory, self._vector, group)

    def best(self, count: int) -> Mapping[int, float]:
        if not self.weight or not count:
            return {}
        groups = None if self._group is None else [self._group]
        rows, cosines = self._store.search(self._vector, count + len(self._memory), allowed_documents=groups)
        found = {int(row): float(cosine) for row, cosine in zip(rows, cosines, strict=True)}
        return self._with_memory(found, self._memory, count)

    def of(self, rows: Sequence[int]) -> Mapping[int, float]:
        if not rows:
            return {}
        found = dict(zip(rows, map(float, self._store.cosines(self._vector, rows)), strict=True))
        return self._with_memory(
            found, {row: self._memory[row] for row in rows if row in self._memory}, len(rows)
        )

    def closer(self, texts: Mapping[int, str]) -> Mapping[int, float]:
        if self._second is None:
            return {}
        return self._second.cosines(self._vector, {row: self._telling(text) for row, text in texts.items()})

    def _telling(self, text: str) -> str:
        """Of a long text the piece that is nearest."""
        pieces = pieces_of(text)
        if len(pieces) < 2:
            return text[:PIECE_CHARS]
        return pieces[int((self._encoder.documents(pieces) @ self._vector).argmax())]

    @staticmethod
    def _with_memory(
        found: dict[int, float], memory: Mapping[int, float | None], count: int
    ) -> dict[int, float]:
        """What is in memory is newer than what the files say."""
        for row, cosine in memory.items():
            if cosine is None:
                found.pop(row, None)
            else:
                found[row] = cosine
        best = sorted(found, key=lambda row: (-found[row], row))[:count]
        return {row: found[row] for row in best}


def _cosines(memory: _Memory, vector: NDArray[np.float32], group: int | None) -> dict[int, float | None]:
    """Of each row the best cosine; None for what is gone, or not of the group."""
    import numpy as np

    rows = list(memory.vectors.items())
    found: dict[int, float | None] = dict.fromkeys(row for row, _ in rows)
    there = [(row, vectors) for row, vectors in rows if len(vectors) and group in (None, memory.groups[row])]
    if there:
        cosines = np.concatenate([vectors for _, vectors in there]) @ vector
        starts = np.cumsum([0, *(len(vectors) for _, vectors in there[:-1])])
        best = np.maximum.reduceat(cosines, starts)
        found |= {row: float(one) for (row, _), one in zip(there, best, strict=True)}
    return found


def pieces_of(text: str) -> list[str]:
    """The text in pieces of at most PIECE_CHARS that end between words; the first MOST_PIECES of them. Pure."""
    pieces: list[str] = []
    text = text[: PIECE_CHARS * MOST_PIECES]
    at = 0
    while at < len(text):
        end = min(len(text), at + PIECE_CHARS)
        if end < len(text) and (space := text.rfind(" ", at + PIECE_CHARS // 2, end)) > 0:
            end = space
        if piece := text[at:end].strip():
            pieces.append(piece)
        at = end
    return pieces


def _encoder() -> StaticEncoder:
    from pensieve_mcp.index.encoders.static import shared_static_encoder

    return shared_static_encoder()

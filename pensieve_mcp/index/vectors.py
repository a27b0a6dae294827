"""The vectors of all passages on disk: written by one process, searched by any number of others.

Segments are mapped, not loaded; a commit adds a segment, marks dead rows and replaces the manifest in one
step, so readers see whole commits and a killed writer leaves the last one. A passage has one vector of the
static table, later one or several better ones (`kind="upgraded"`, the best counts). Files:
`vector_segments.py`, `vector_files.py`; committing: `vector_commit.py`; searching: `vector_scan.py`. There
are no coarse lists: codes first take 20 ms on a million vectors, so lists would pay from several millions on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pensieve_mcp.errors import IndexMismatch, StorageError
from pensieve_mcp.index.encoders.blas import use_one_thread
from pensieve_mcp.index.vector_commit import publish
from pensieve_mcp.index.vector_files import (
    Manifest,
    WriteLock,
    manifest_stamp,
    read_manifest,
    sweep,
)
from pensieve_mcp.index.vector_scan import score_rows, search_segments
from pensieve_mcp.index.vector_segments import (
    BASE,
    UPGRADED,
    Rows,
    Segment,
    open_segment,
    quantised,
)

Kind = Literal["base", "upgraded"]
KINDS = {"base": BASE, "upgraded": UPGRADED}

OPEN_TRIES = 20  # a reader's manifest may be replaced, and its files swept, while it opens them


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What is published; never changed, only replaced, so that searches on other threads keep theirs."""

    manifest: Manifest
    stamp: tuple[int, ...]
    segments: tuple[Segment, ...]


class VectorStore:
    """Made by `VectorStore.open`. Searching is safe on any thread, also while one thread writes."""

    def __init__(self, folder: Path, snapshot: Snapshot, *, read_only: bool, fingerprint: str) -> None:
        self.folder = folder
        self.read_only = read_only
        self._fingerprint = fingerprint
        self._snapshot = snapshot
        self._changing = threading.RLock()
        self._lock = WriteLock(folder)
        self._pending: list[Rows] = []
        self._pending_ids: set[int] = set()
        self._killed: dict[str, NDArray[np.bool_]] = {}  # segment -> marks, the published ones included
        self._closed = False

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        read_only: bool = False,
        fingerprint: str = "",
        dim: int | None = None,
    ) -> VectorStore:
        """Open, or begin, the store in `folder`; one that does not exist is empty, at generation 0.

        `fingerprint` (the encoder's name) and `dim` are compared with what is stored, when given. Raises
        IndexMismatch with the reason, StorageError for damaged files.
        """
        use_one_thread()
        snapshot = _load(folder)
        _compare(folder, snapshot.manifest, fingerprint, dim)
        return cls(folder, snapshot, read_only=read_only, fingerprint=fingerprint)

    @classmethod
    def unread(cls, folder: Path) -> VectorStore:
        """An empty store, for reading, in place of one that cannot be opened; `refresh` tries again each time."""
        return cls(folder, Snapshot(Manifest(), (-1,), ()), read_only=True, fingerprint="")

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number of the last commit that is seen; 0 before the first."""
        return self._snapshot.manifest.generation

    @property
    def fingerprint(self) -> str:
        return self._snapshot.manifest.fingerprint

    def refresh(self) -> bool:
        """See what others have committed since; True when something changed. Costs one look at a file's
        status when nothing did. Raises IndexMismatch when it was rebuilt with another encoder."""
        if self._closed or manifest_stamp(self.folder) == self._snapshot.stamp:
            return False
        with self._changing:
            if self._lock.held:  # we are the writer; nobody else can have published
                return False
            snapshot = _load(self.folder)
            _compare(self.folder, snapshot.manifest, self._fingerprint, None)
            self._snapshot = snapshot
        return True

    def search(
        self,
        query_vector: NDArray[np.float32],
        k: int,
        *,
        allowed_documents: Iterable[int] | NDArray[Any] | None = None,
        deadline: float | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Passage ids and cosines of the k nearest, best first, each passage once (its best vector counts).

        `deadline` is a `time.monotonic()` value; what was not reached by then is missing. Up to 20,000 rows
        are compared exactly (within int8: 0.005); above, one in a hundred, but 1,000 and five times k at least,
        after a first choice by 1-bit codes (at 100,000 recall@10 .99, @50 .98). Raises IndexMismatch when the
        question has another number of dimensions.
        """
        segments, query = self._segments_for(query_vector)
        allowed = None if allowed_documents is None else _documents(allowed_documents)
        if k < 1 or not segments:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        return search_segments(segments, query, k, allowed, deadline)

    def cosines(self, query_vector: NDArray[np.float32], passage_ids: Sequence[int]) -> NDArray[np.float32]:
        """Cosines of passages found by other means, in the order given; 0 where a passage has no vector."""
        segments, query = self._segments_for(query_vector)
        asked, places = np.unique(np.asarray(passage_ids, np.uint64), return_inverse=True)
        best = np.full(len(asked), -np.inf, np.float32)
        for segment in segments:
            rows, owners = segment.rows_of(asked)
            if len(rows):
                np.maximum.at(best, owners, score_rows(segment, query, rows)[1])
        best[np.isneginf(best)] = 0
        found: NDArray[np.float32] = best[places]
        return found

    def nearest_parts(
        self, query_vector: NDArray[np.float32], passage_ids: Sequence[int]
    ) -> NDArray[np.int64]:
        """Which of a passage's vectors is nearest, counted from 0 in the order `replace` was given them; -1 where
        it has only that of the static table, or none."""
        segments, query = self._segments_for(query_vector)
        asked, places = np.unique(np.asarray(passage_ids, np.uint64), return_inverse=True)
        number = np.full(len(asked), -1, np.int64)
        for segment in segments:
            rows, owners = segment.rows_of(asked)
            better = segment.kinds[rows] == UPGRADED
            rows, owners = rows[better], owners[better]
            if not len(rows):
                continue
            # All vectors of a passage lie side by side in one segment, in the order given.
            scores = score_rows(segment, query, rows)[1]
            first = np.searchsorted(owners, owners, "left")
            order = np.lexsort((rows, -scores, owners))
            heads = order[np.unique(owners[order], return_index=True)[1]]
            number[owners[heads]] = heads - first[heads]
        found: NDArray[np.int64] = number[places]
        return found

    def upgraded(self, passage_ids: Sequence[int]) -> NDArray[np.bool_]:
        """Which of these passages have vectors of the better kind, in the order given."""
        asked, places = np.unique(np.asarray(passage_ids, np.uint64), return_inverse=True)
        have = np.zeros(len(asked), bool)
        for segment in self._snapshot.segments:
            rows, owners = segment.rows_of(asked)
            have[owners[segment.kinds[rows] == UPGRADED]] = True
        found: NDArray[np.bool_] = have[places]
        return found

    def pending(self, kind: Kind = "upgraded") -> list[int]:
        """Passages that have no vector of this kind yet, newest ids first."""
        wanted = KINDS[kind]
        missing = [
            np.unique(segment.passages[segment.live() & (segment.kinds < wanted)])
            for segment in self._snapshot.segments
        ]
        return [int(one) for one in np.sort(np.concatenate(missing))[::-1]] if missing else []

    def stats(self) -> dict[str, Any]:
        """Counts of what is published; costs nothing."""
        snapshot = self._snapshot
        return {
            "generation": snapshot.manifest.generation,
            "sequence": snapshot.manifest.sequence,
            "fingerprint": snapshot.manifest.fingerprint,
            "dim": snapshot.manifest.dim,
            "passages": sum(segment.passage_count for segment in snapshot.segments),
            "upgraded": sum(segment.upgraded_count for segment in snapshot.segments),
            "rows": sum(len(segment) - segment.dead_count for segment in snapshot.segments),
            "dead_rows": sum(segment.dead_count for segment in snapshot.segments),
            "segments": len(snapshot.segments),
            "size_bytes": sum(segment.size_bytes for segment in snapshot.segments),
        }

    def _segments_for(self, vector: NDArray[np.float32]) -> tuple[tuple[Segment, ...], NDArray[np.float32]]:
        snapshot = self._snapshot
        query = np.asarray(vector, np.float32).reshape(-1)
        if snapshot.segments and len(query) != snapshot.manifest.dim:
            raise _other_dimensions(self.folder, snapshot.manifest.dim, len(query))
        length = float(np.linalg.norm(query))
        return snapshot.segments, query / np.float32(length) if length > 0 else query

    # -- writing -------------------------------------------------------------------------------------------

    def add(
        self,
        passage_ids: Sequence[int] | NDArray[Any],
        document_ids: Sequence[int] | NDArray[Any],
        vectors: NDArray[np.float32],
    ) -> None:
        """Vectors (n, dim) of new passages; an id given several times in one call has several vectors. A
        passage that has vectors loses them. Seen after `commit`. Raises IndexMismatch (dimensions),
        StorageError (busy)."""
        self._begin(vectors)
        with self._changing:
            passages = np.asarray(passage_ids, np.uint64)
            self._put(quantised(passages, np.asarray(document_ids, np.uint32), _floats(vectors), BASE))

    def replace(
        self,
        passage_ids: Sequence[int] | NDArray[Any],
        vectors: NDArray[np.float32],
        kind: Kind = "upgraded",
        *,
        weights: Sequence[float] | None = None,
    ) -> int:
        """Other vectors for passages that are there; an id may repeat (parts of a passage). `weights` (0 to 1, 1
        when not given) are what each vector's cosines are multiplied by. Passages removed meanwhile are passed
        over; returns how many were replaced. Raises as `add`."""
        self._begin(vectors)
        with self._changing:
            passages = np.asarray(passage_ids, np.uint64)
            asked = np.unique(passages)
            owners = np.zeros(len(asked), np.uint32)
            known = np.zeros(len(asked), bool)
            for segment in self._with_marks():
                rows, places = segment.rows_of(asked)
                owners[places] = segment.documents[rows]
                known[places] = True
            for part in self._pending:
                places = np.searchsorted(asked, part.passages)
                here = places < len(asked)
                here[here] = asked[places[here]] == part.passages[here]
                owners[places[here]] = part.documents[here]
                known[places[here]] = True
            place = np.searchsorted(asked, passages)
            kept = known[place]
            if kept.any():
                made = quantised(passages[kept], owners[place][kept], _floats(vectors)[kept], KINDS[kind])
                if weights is not None:
                    made = replace(made, scales=made.scales * np.asarray(weights, np.float32)[kept])
                self._put(made)
            return int(known.sum())

    def remove_documents(self, document_ids: Iterable[int]) -> None:
        """All vectors of these documents; unknown ids are passed over. Raises StorageError (busy)."""
        gone = _documents(document_ids)
        if not len(gone):
            return
        self._begin(None)
        with self._changing:
            for segment in self._snapshot.segments:
                self._kill(segment, np.isin(segment.documents, gone))
            self._pending = [part.kept(~np.isin(part.documents, gone)) for part in self._pending]
            self._pending_ids = {int(one) for part in self._pending for one in part.passages}

    def commit(self, generation: int) -> None:
        """Publish all of it under this number, which may be the last one again (upgrades). Merges small and
        half-dead segments. Raises StorageError when the disk fails; then nothing is published, and the
        changes are kept for another try or `discard`."""
        self._begin(None)
        with self._changing:
            try:
                published = publish(
                    self.folder,
                    self._snapshot.manifest,
                    self._snapshot.segments,
                    killed=self._killed,
                    pending=self._pending,
                    generation=generation,
                    fingerprint=self._fingerprint,
                )
                self._snapshot = _load(self.folder)
                sweep(self.folder, published)
            except OSError as error:
                raise StorageError(
                    f"The vectors cannot be written to {self.folder}: {error}.",
                    hint="Free some space on the disk or check its permissions; the last state is unharmed.",
                ) from error
            self._forget()

    def discard(self) -> None:
        """Drop what was not committed, and let others write."""
        with self._changing:
            self._forget()

    def close(self) -> None:
        """Let go of the files, and drop what was not committed. The store is empty afterwards."""
        with self._changing:
            self._forget()
            self._closed = True
            # The mappings end with the last reference, so a search that is on its way is not harmed.
            self._snapshot = Snapshot(Manifest(), (), ())

    def _begin(self, vectors: NDArray[np.float32] | None) -> None:
        with self._changing:
            if self.read_only:
                raise StorageError(
                    f"The vectors in {self.folder} were opened for reading.",
                    hint="Build the index from the process that owns it.",
                    slug="read_only",
                )
            if not self._lock.held:
                self._lock.claim()
                try:
                    snapshot = _load(self.folder)
                    _compare(self.folder, snapshot.manifest, self._fingerprint, None)
                    sweep(self.folder, snapshot.manifest)
                except BaseException:
                    self._lock.release()
                    raise
                self._snapshot = snapshot
            if vectors is None:
                return
            dim = int(np.asarray(vectors).shape[1])
            pending_dim = self._pending[0].vectors.shape[1] if self._pending else dim
            expected = self._snapshot.manifest.dim or pending_dim
            if dim != expected:
                raise _other_dimensions(self.folder, expected, dim)

    def _forget(self) -> None:
        self._pending, self._pending_ids, self._killed = [], set(), {}
        self._lock.release()

    def _put(self, rows: Rows) -> None:
        """Pending rows; older ones of the same passages die."""
        ids = {int(one) for one in rows.passages}
        asked = np.array(sorted(ids), np.uint64)
        if not ids.isdisjoint(self._pending_ids):
            self._pending = [part.kept(~np.isin(part.passages, asked)) for part in self._pending]
        for segment in self._snapshot.segments:
            numbers, _ = segment.rows_of(asked)
            if len(numbers):
                mask = np.zeros(len(segment), bool)
                mask[numbers] = True
                self._kill(segment, mask)
        self._pending.append(rows)
        self._pending_ids |= ids

    def _kill(self, segment: Segment, mask: NDArray[np.bool_]) -> None:
        if mask.any():
            marks = self._killed.get(segment.name)
            self._killed[segment.name] = mask | (~segment.live() if marks is None else marks)

    def _with_marks(self) -> list[Segment]:
        """The published segments, as they will be after the commit."""
        return [
            replace(segment, dead=self._killed[segment.name]) if segment.name in self._killed else segment
            for segment in self._snapshot.segments
        ]


def _load(folder: Path) -> Snapshot:
    for attempt in range(OPEN_TRIES):
        manifest, stamp = read_manifest(folder)
        try:
            segments = tuple(open_segment(folder, about, manifest.dim) for about in manifest.segments)
            return Snapshot(manifest, stamp, segments)
        except (OSError, ValueError, KeyError) as error:
            # Another process may have committed, and swept the old files, since we read the manifest.
            if attempt < OPEN_TRIES - 1 and manifest_stamp(folder) != stamp:
                continue
            raise StorageError(
                f"The vectors in {folder} are damaged: {error}.",
                hint=f"Delete {folder} and build the index again; the documents are untouched.",
                slug="index_damaged",
            ) from error
    raise AssertionError("the last try returns or raises")


def _compare(folder: Path, manifest: Manifest, fingerprint: str, dim: int | None) -> None:
    if fingerprint and manifest.fingerprint and fingerprint != manifest.fingerprint:
        raise IndexMismatch(
            f"The vectors in {folder} were made by {manifest.fingerprint}, not by {fingerprint}.",
            hint="They cannot be compared: choose the encoder they were made with, or build the index again.",
            slug="other_encoder",
        )
    if dim is not None and manifest.dim and dim != manifest.dim:
        raise _other_dimensions(folder, manifest.dim, dim)


def _other_dimensions(folder: Path, stored: int, given: int) -> IndexMismatch:
    return IndexMismatch(
        f"The vectors in {folder} have {stored} dimensions, the encoder's have {given}.",
        hint="Choose the encoder the index was built with, or build it again.",
        slug="other_encoder",
    )


def _floats(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    floats = np.asarray(vectors, np.float32)
    return np.where(np.isfinite(floats), floats, np.float32(0))


def _documents(document_ids: Iterable[int] | NDArray[Any]) -> NDArray[np.uint32]:
    if isinstance(document_ids, np.ndarray):
        return np.unique(document_ids.astype(np.uint32))
    return np.unique(np.fromiter(document_ids, np.uint32))

"""Making the corpus and the index from the folders, and keeping them so: one process at a time, for all to use.

    walk → compare → extract (worker processes) → cut → store → index → publish

The order of writing makes `kill -9` harmless at any point: ids first, then whole documents in corpus.db marked as not
indexed, then the index's commit, then the mark and the generation. Whoever builds next does again what was not
confirmed, which changes nothing where it was done. What is committed can be searched while the rest is still read.
Leaves the lease, the tables and the ids to `corpus/`, words and vectors to `index/`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from pensieve_mcp.corpus.changes import Changes, Key, Known, rescan
from pensieve_mcp.corpus.ids import Sighting
from pensieve_mcp.corpus.intake import FailedBefore, Incoming, Intake, Stored
from pensieve_mcp.corpus.lease import Lease, LeaseLost
from pensieve_mcp.corpus.schema import fingerprint, why_stale
from pensieve_mcp.corpus.store import CorpusStore, file_digest, interrupted
from pensieve_mcp.corpus.types import (
    BuildProgress,
    ChunkSet,
    Extracted,
    FileHint,
    FoundFile,
    Passage,
    Root,
    Skipped,
    Span,
    Stat,
    Unreadable,
)
from pensieve_mcp.corpus.walk import RootState, WalkRules, open_regular, show_path
from pensieve_mcp.errors import IndexMismatch, PensieveError, StorageError
from pensieve_mcp.index.types import PassageRecord, PassageTexts

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)

BATCH_CHARS = 4_000_000  # text between two transactions of corpus.db, about a second of work
BATCH_DOCUMENTS = 256
BATCH_SECONDS = 2.0
FIRST_CHARS, FIRST_DOCUMENTS, FIRST_SECONDS = 200_000, 16, 0.3  # until something can be searched at all
FIRST_COMMIT_SECONDS = 1.0  # of the index, each time twice as long: something to search soon
COMMIT_SECONDS = 10.0  # at last as rarely as a person's patience allows: every commit makes a segment
COMMIT_CHARS = 64_000_000
TELL_SECONDS = 0.5
READ_CHARS = 200_000  # of a stored document at a time
WRITER_TRIES, WRITER_WAIT_SECONDS = 20, 0.5
UPGRADE_SLICE_SECONDS = 5.0
UPGRADE_YIELD_SECONDS = 30.0  # a batch of the model's takes seconds on a slow machine


class IndexWriting(Protocol):
    """What a build needs of the index's writer (`index.writing.IndexWriter`)."""

    @property
    def warnings(self) -> tuple[str, ...]: ...
    def add(self, records: Iterable[PassageRecord]) -> int: ...
    def remove_documents(self, document_ids: Iterable[int]) -> None: ...
    def repath(self, document_id: int, records: Iterable[PassageRecord]) -> None: ...
    def commit(self, generation: int) -> None: ...
    def close(self) -> None: ...


class Indexing(Protocol):
    """What a build needs of the index (`index.index.Index`)."""

    @property
    def generation(self) -> int: ...
    def writer(self) -> IndexWriting: ...
    def upgrade(self, texts: PassageTexts, *, seconds: float, cancel: Callable[[], bool]) -> bool: ...


class Reading(Protocol):
    """What a build needs of the readers (`corpus.extract.pool.ExtractionPool`)."""

    def extract(self, file: BinaryIO, hint: FileHint) -> Extracted: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What to build, and with what. Functions make what is opened, so that nothing is before the lease is ours.

    `open_index(folder)` may raise IndexMismatch or StorageError; `index_folder` is removed when it is damaged, of
    another corpus, or `rebuild`. `extractors` names all versions of the readers, `program` our own: of two versions on
    one workspace the newer one decides what shapes the corpus, else each would read everything again after the other.
    """

    roots: tuple[Root, ...]
    index_folder: Path
    open_index: Callable[[Path], Indexing]
    open_readers: Callable[[], Reading]
    extractors: str
    program: str = ""
    chunk_set: ChunkSet = field(default_factory=ChunkSet)
    rules: WalkRules = field(default_factory=WalkRules)
    workers: int = 2
    fallback_encoding: str | None = None
    under: tuple[
        str, ...
    ] = ()  # take up changes below these paths only, `root/relative`; the rest is for later
    verify: bool = False  # hash every file, whatever its stat says
    retry: bool = False  # read again what failed before
    rebuild: bool = False  # read and index everything again


@dataclass(slots=True)
class _Read:
    """What came of reading one file."""

    file: FoundFile
    known: Known | None
    digest: bytes | None
    extracted: Extracted | None
    skipped: Skipped | None


def build(
    store: CorpusStore,
    plan: Plan,
    *,
    cancel: Callable[[], bool] = lambda: False,
    progress: Callable[[BuildProgress], None] | None = None,
) -> BuildProgress:
    """Bring corpus and index up to date with the folders. Blocks; tells every process how far it is.

    While another process builds, returns its progress at once. Cancelled, it returns with what was done published
    and state "stale". Raises StorageError (disk full, lease lost), IndexMismatch (another encoder), BackendError.
    """
    lease = Lease.take(store.connections) or _after_upgrade(store, cancel)
    if lease is None:
        return store.progress()
    try:
        with _Build(store, plan, lease, cancel, progress) as work:
            return work.run()
    finally:
        with contextlib.suppress(StorageError):
            lease.give_back()


def _after_upgrade(store: CorpusStore, cancel: Callable[[], bool]) -> Lease | None:
    """The lease, once the third tier of another process has let go of it; None while a build has it."""
    ends = time.monotonic() + UPGRADE_YIELD_SECONDS
    while Lease.holder(store.connections) != "build" and time.monotonic() < ends and not cancel():
        Lease.want(store.connections)
        time.sleep(0.05)
        if (lease := Lease.take(store.connections)) is not None:
            return lease
    return None


def upgrade(
    store: CorpusStore,
    plan: Plan,
    *,
    seconds: float = 60.0,
    cancel: Callable[[], bool] = lambda: False,
    progress: Callable[[BuildProgress], None] | None = None,
) -> bool:
    """The third tier: the model's vectors in place of the static table's, in slices, while nothing else is to do.

    True when it is complete. False when cancelled, out of time, or while another process builds.
    Raises BackendError when the model cannot be had.
    """
    lease = Lease.take(store.connections, doing="upgrade")
    if lease is None:
        return False

    def stop() -> bool:
        return cancel() or lease.is_wanted()

    index = None
    try:
        index = plan.open_index(plan.index_folder)
        ends = time.monotonic() + seconds
        while True:
            left = min(UPGRADE_SLICE_SECONDS, ends - time.monotonic())
            if left <= 0 or stop():
                return False
            done = index.upgrade(store.passage_texts, seconds=left, cancel=stop)
            told = _upgraded(store.progress(), index)
            Intake(store, lease).tell(told)
            if progress is not None:
                progress(told)
            if done:
                return True
    finally:
        _close(index)
        with contextlib.suppress(StorageError):
            lease.give_back()


def _upgraded(progress: BuildProgress, index: Indexing) -> BuildProgress:
    stats: dict[str, Any] = getattr(index, "stats", dict)()
    vectors: dict[str, Any] = stats.get("vectors", stats)
    return replace(
        progress,
        passages=int(vectors.get("passages", progress.passages)),
        upgraded_passages=int(vectors.get("upgraded", progress.upgraded_passages)),
    )


class _Build:
    """One run under the lease."""

    def __init__(
        self,
        store: CorpusStore,
        plan: Plan,
        lease: Lease,
        cancel: Callable[[], bool],
        progress: Callable[[BuildProgress], None] | None,
    ) -> None:
        self.store = store
        self.plan = plan
        self.intake = Intake(store, lease)
        self.cancel = cancel
        self.listener = progress
        self.index: Indexing | None = None
        self.writer: IndexWriting | None = None
        self.started_ns = time.time_ns()
        self.generation = 0
        self.batch: list[_Read] = []
        self.batch_chars = 0
        self.batch_began = 0.0
        self.waiting: list[int] = []  # documents in the writer, not committed
        self.leaving: list[int] = []  # documents removed in the writer, not committed
        self.waiting_chars = 0
        self.last_commit = time.monotonic()
        self.commits = 0
        self.last_told = 0.0
        self.warnings: dict[str, None] = {}
        self.known: dict[Key, Known] = {}  # before the build
        self.absent: set[Key] = set()  # of those, the paths that are no longer there
        self.arrived: set[Key] = set()
        self.unlisted: set[str] = set()
        self.before = store.told()
        # Until the folders are compared, what is known to be left is what was left.
        known = {} if plan.rebuild else _counts(self.before)
        self.state = BuildProgress("building", owner=lease.owner, **known)
        # A look that finds nothing new, and is ended with its host, must not unmake what was ready.
        self.still_ready = self.before.state == "ready" and not plan.rebuild
        self.nothing_published = not self.before.searchable
        self.newer = (
            ""  # who made the corpus, where that is newer than this program and shapes it differently
        )

    def __enter__(self) -> _Build:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.writer is not None:
            with contextlib.suppress(PensieveError):
                self.writer.close()
        _close(self.index)
        if isinstance(error, PensieveError) and error.slug == "made_by_newer":
            with contextlib.suppress(StorageError):
                self._stopped()  # for the newer program all is well
        elif isinstance(error, PensieveError) and not isinstance(error, LeaseLost):
            # A full disk may refuse this too; then the stale beat tells that the build ended.
            with contextlib.suppress(StorageError):
                self._tell(state="failed", detail=str(error))
        elif error is not None and not isinstance(error, LeaseLost):
            with contextlib.suppress(StorageError):
                self._stopped()

    # -- the whole -------------------------------------------------------------------------------------------

    def run(self) -> BuildProgress:
        self._tell(detail="looking through the folders")
        self.intake.adopt_ids()
        self.intake.add_set(self.plan.chunk_set)
        stale = self._stale()
        self._open_index()
        if stale or any(self.intake.pending()):
            self.still_ready = False
        if not stale:
            self._index_pending()
        changes = self._compare()
        if self.cancel():
            return self._end(cancelled=True)
        self._settle(changes)
        work, failures = self._work(changes, stale)
        if work or self.waiting or self.leaving:
            self.still_ready = False
        self._read_all(work, failures)
        if self.cancel() and (stale or self._left()):
            return self._end(cancelled=True)
        self._flush()
        if stale:  # now only what could not be read again is left
            self._commit()
            self._index_pending()
        self.store.ensure_chunk_set(self.plan.chunk_set, cancel=self.cancel)
        return self._end(cancelled=False, changes=changes)

    def _stale(self) -> bool:
        """Whether everything is to be read again."""
        ours = fingerprint(self.plan.extractors)
        stored = self.intake.text_fact("fingerprint")
        if not stored:
            self.intake.set_facts(fingerprint=ours, program=self.plan.program)
            return self.plan.rebuild
        told = why_stale(stored, ours)
        if told and not self.plan.rebuild and self._by_newer():
            self.newer = self.intake.text_fact("program")
            self.warnings[
                f"The corpus was made by {self.newer}, which is newer than {self.plan.program} here: what it read "
                "stays as it is. Update this installation; pensieve doctor names what each host starts."
            ] = None
            return False
        # New readers alone: each document knows its reader, and failures know theirs.
        differently = _cut_differently(stored, ours)
        if differently:
            self.warnings[f"{told} All documents are read again."] = None
        elif told:
            log.info(told)  # this build mends it, so there is nothing that anybody must do
        return self.plan.rebuild or differently

    def _by_newer(self) -> bool:
        """Whether a newer program than this one made the corpus."""
        return (
            not self.plan.rebuild
            and _version(self.intake.text_fact("program")) > _version(self.plan.program) > ()
        )

    def _end(self, *, cancelled: bool, changes: Changes | None = None) -> BuildProgress:
        self._flush()
        self._commit()
        if cancelled or changes is None or any(self.intake.pending()):
            return self._stopped()
        complete = all(root.state == "ok" for root in changes.roots)
        if complete and not self.plan.under and not self.intake.fact("looked_at"):
            with self.store.connections.reading() as db:
                rows = db.conn.execute("SELECT document_id FROM documents").fetchall()
            self.store.ids.retire_all_but({row[0] for row in rows})
        keeping = {key[0] for key in changes.kept}
        for root in changes.roots:
            # An empty folder in another's place may be where a disk was mounted: it must not become the known one.
            if root.state == "ok" or (root.state == "empty" and root.root not in keeping):
                self.intake.set_facts(**{f"root {root.root}": f"{root.device}:{root.inode}"})
        self.intake.set_facts(looked_at=self.started_ns)
        if not self._by_newer():
            self.intake.set_facts(fingerprint=fingerprint(self.plan.extractors), program=self.plan.program)
        with self.store.connections.reading() as db:
            count = db.conn.execute("SELECT count(*) FROM documents").fetchone()[0]
        if not count:
            self.warnings["No document was found; pensieve skipped lists what was passed over."] = None
        assert self.index is not None
        self.state = _upgraded(self.state, self.index)
        return self._tell(
            state="ready" if count else "empty", documents_done=count, documents_total=count, detail=""
        )

    def _left(self) -> int:
        """Files that are known to need reading and were not read yet."""
        return max(0, self.state.documents_total - self.state.documents_done)

    def _stopped(self) -> BuildProgress:
        """Say where the build was stopped: ready as before where it had found nothing to do, else what is left."""
        if self.still_ready:
            return self._tell(**_counts(self.before), state="ready", detail="")
        detail = interrupted(self._left(), self.state.documents_total)
        return self._tell(state="stale", detail=detail)

    def _tell(self, **changes: Any) -> BuildProgress:
        with self.store.connections.reading() as db:
            passages, skipped = db.conn.execute(
                "SELECT (SELECT coalesce(sum(passages), 0) FROM documents), (SELECT count(DISTINCT path) FROM skipped)"
            ).fetchone()
        chunks = self.store.chunk_count(self.plan.chunk_set)
        self.state = replace(
            self.state,
            chunks=chunks,
            passages=passages,
            skipped=skipped,
            warnings=tuple(self.warnings),
            **changes,
        )
        stored = self.state
        if self.still_ready and stored.state == "building":
            # the lease says that a build runs; should it be killed, this is what stays
            stored = replace(stored, **_counts(self.before), state="ready", detail="")
        self.intake.tell(stored)
        self.last_told = time.monotonic()
        if self.listener is not None:
            self.listener(self.state)
        return self.state

    # -- the index -------------------------------------------------------------------------------------------

    def _open_index(self) -> None:
        """Open the index, and begin a new one when it is not of this corpus."""
        folder = self.plan.index_folder
        if self.plan.rebuild:
            self._drop_index()
        try:
            index = self.plan.open_index(folder)
        except IndexMismatch as error:
            if error.slug == "other_encoder":
                raise  # another encoder was asked for: that may cost hours, so a person decides
            if error.slug == "other_version" and self._by_newer():
                raise IndexMismatch(
                    f"{error.message} It was made by {self.intake.text_fact('program')}, which is newer.",
                    hint="Update this installation; pensieve doctor names what each host starts.",
                    slug="made_by_newer",
                ) from error
            index = self._new_index(str(error))
        except StorageError as error:
            if error.slug in ("storage_full", "index_busy", "storage_locked"):
                raise
            index = self._new_index(str(error))
        self.index = index
        published, announced = self.intake.fact("generation"), self.intake.fact("committing")
        stats: dict[str, Any] = getattr(index, "stats", dict)()
        if index.generation == published and not stats.get("vectors_in_step", True):
            _close(index)
            self.index = self._new_index("its words and vectors are not of one commit")
        elif index.generation not in (published, announced) or (published and not index.generation):
            if index.generation:
                _close(index)
                self.index = self._new_index("it belongs to another corpus.db")
            else:
                self.intake.index_was_lost()
        self.generation = max(published, announced, self.index.generation, time.time_ns() // 1_000_000)
        self.writer = self._open_writer(self.index)

    def _open_writer(self, index: Indexing) -> IndexWriting:
        """The writer; a builder that was shut out may need a moment to let go of it."""
        for _ in range(WRITER_TRIES):
            try:
                return index.writer()
            except StorageError as error:
                if error.slug != "index_busy" or self.cancel():
                    raise
                time.sleep(WRITER_WAIT_SECONDS)
        return index.writer()

    def _new_index(self, why: str) -> Indexing:
        log.warning("The index is built anew: %s", why)
        self._drop_index()
        return self.plan.open_index(self.plan.index_folder)

    def _drop_index(self) -> None:
        try:
            shutil.rmtree(self.plan.index_folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError(
                f"The old index in {self.plan.index_folder} cannot be removed: {error.strerror or error}.",
                hint="End the other pensieve processes, or delete that folder, and build again.",
            ) from error
        self.intake.index_was_lost()

    def _index_pending(self) -> None:
        """What an earlier build stored, or whose index was lost."""
        assert self.writer is not None
        new, old = self.intake.pending()
        if old:
            self.writer.remove_documents(old)
            self.leaving += old
        for start in range(0, len(new), BATCH_DOCUMENTS):
            if self.cancel():
                break
            some = new[start : start + BATCH_DOCUMENTS]
            # Whether the index had them when the other build died is not known.
            self.writer.remove_documents(some)
            for document_id in some:
                self.writer.add(self._records(document_id))
                self.waiting_chars += self.store.document_by_id(document_id).chars
            self.waiting += some
            self._commit_when_due()

    def _records(self, document_id: int) -> Iterator[PassageRecord]:
        """What the index is told of a stored document, read piece by piece: it may be huge."""
        document = self.store.document_by_id(document_id)
        passages = self.store.passages_of(document_id)
        place = 0
        while place < len(passages):
            start = passages[place].span.start
            last = place + 1
            while last < len(passages) and passages[last].span.end - start < READ_CHARS:
                last += 1
            text = self.store.text(document_id, Span(start, passages[last - 1].span.end))
            for passage in passages[place:last]:
                part = text[passage.span.start - start : passage.span.end - start]
                if not part.isspace():
                    heading = self.store.heading_at(document_id, passage.span.start)
                    yield _record(passage, document.path, document.title, heading, part)
            place = last

    def _commit_when_due(self) -> None:
        waited = time.monotonic() - self.last_commit
        due = min(COMMIT_SECONDS, FIRST_COMMIT_SECONDS * 2**self.commits)
        if self.nothing_published and not self.commits:
            due = 0.0
        if (self.waiting or self.leaving) and (waited >= due or self.waiting_chars >= COMMIT_CHARS):
            self._commit()

    def _commit(self) -> None:
        """Make searchable what was stored, then say so."""
        assert self.writer is not None and self.index is not None
        if not self.waiting and not self.leaving:
            return
        self.generation += 1
        self.intake.committing(self.generation)  # fenced: a build that lost its lease ends here
        self.writer.commit(self.generation)
        self.intake.committed(self.generation, self.waiting, self.leaving)
        self.warnings.update(dict.fromkeys(self.writer.warnings))
        self.waiting, self.leaving, self.waiting_chars = [], [], 0
        self.commits += 1
        self.last_commit = time.monotonic()
        self._tell()

    # -- the folders -----------------------------------------------------------------------------------------

    def _compare(self) -> Changes:
        with self.store.connections.reading() as db:
            rows = db.conn.execute(
                "SELECT root, raw, document_id, size_bytes, mtime_ns, ctime_ns, inode, digest FROM documents"
            ).fetchall()
        self.known = {(r[0], r[1]): Known(r[2], Stat(r[3], r[4], r[5], int(r[6])), r[7]) for r in rows}
        names = {root.name for root in self.plan.roots}
        identities = {}
        for name in names:
            device, _, inode = self.intake.text_fact(f"root {name}").partition(":")
            if inode:
                identities[name] = (int(device), int(inode))
        rules = replace(self.plan.rules, never=(*self.plan.rules.never, str(self.plan.index_folder.parent)))
        changes = rescan(
            self.known,
            self.plan.roots,
            rules,
            scan_started_ns=self.intake.fact("looked_at"),
            hash_file=self._hash,
            verify=self.plan.verify,
            identities=identities,
            cancel=self.cancel,
        )
        # A root that is no longer part of the workspace takes its documents along.
        for key in [key for key in changes.kept if key[0] not in names]:
            changes.removed[key] = changes.kept.pop(key)
        if self.plan.under:
            _keep_below(changes, self.plan.under)
        self.absent = {*changes.removed, *(renamed.old for renamed in changes.renamed)}
        self.arrived = {(a.file.root, a.file.raw) for a in changes.added}
        self.arrived.update((r.file.root, r.file.raw) for r in changes.renamed)
        self.unlisted = {root.root for root in changes.roots if root.state not in ("ok", "empty")}
        for root in changes.roots:
            self._warn_of(root, sum(1 for key in changes.kept if key[0] == root.root))
        return changes

    def _warn_of(self, root: RootState, kept: int) -> None:
        if root.state == "unreachable":
            self.warnings[
                f"{root.root} cannot be reached ({root.detail}); its documents are kept as they were."
            ] = None
        elif root.state == "empty":
            told = f"{root.root} holds no file at all"
            if kept:
                told += f"; what is known of it ({kept:,} files) is kept, in case its disk is not mounted"
            self.warnings[f"{told}."] = None
        elif root.state == "partial" and not self.cancel():
            self.warnings[f"{root.root} was not looked through to its end: {root.detail}."] = None
        elif root.state == "ok" and not root.files:
            self.warnings[f"No file of {root.root} was taken; {root.skipped:,} were passed over."] = None

    def _hash(self, file: FoundFile) -> bytes:
        with self._open(file) as opened:
            return file_digest(opened)

    def _open(self, file: FoundFile) -> BinaryIO:
        root = next(root for root in self.plan.roots if root.name == file.root)
        return open_regular(root, file.raw, expect=file.stat, follow_links=self.plan.rules.follow_links)

    def _settle(self, changes: Changes) -> None:
        """Everything that needs no reading: gone, moved, touched, passed over."""
        assert self.writer is not None
        if changes.removed:
            gone = [known.document_id for known in changes.removed.values()]
            self.intake.remove(gone)
            self.writer.remove_documents(gone)
            self.leaving += gone
        if changes.renamed:
            moves = [(r.known.document_id, r.file, r.known.digest) for r in changes.renamed]
            self.intake.moved(moves, seen_ns=self.started_ns)
            for document_id, _, _ in moves:
                self.writer.repath(document_id, self._records(document_id))
                self.waiting.append(document_id)
        if changes.touched:
            self.intake.touched(
                [(kept.known.document_id, kept.file.stat) for kept in changes.touched],
                seen_ns=self.started_ns,
            )
        roots = [root.root for root in changes.roots if root.state != "partial"]
        self.intake.passed_over((s for s in changes.skipped if s.root in roots), roots)
        self.intake.keep_roots([root.name for root in self.plan.roots])
        if changes.removed or changes.renamed:
            self._commit()  # what is gone should not be found for as long as the rest takes

    def _work(
        self, changes: Changes, stale: bool
    ) -> tuple[list[tuple[FoundFile, Known | None]], dict[tuple[str, bytes], FailedBefore]]:
        """What is to be read, changed documents first; and what need not be tried again."""
        work: list[tuple[FoundFile, Known | None]] = [(kept.file, kept.known) for kept in changes.changed]
        again = self._outdated(stale)
        if again:
            settled = [
                *changes.unchanged,
                *(k.known for k in changes.touched),
                *(r.known for r in changes.renamed),
            ]
            work += [(self._file_of(b.document_id), b) for b in settled if b.document_id in again]
        failures = {} if self.plan.retry or stale else self.intake.failures()
        added = {(a.file.root, a.file.raw) for a in changes.added}
        self.intake.forget_failures(
            key
            for key in self.intake.failed_keys()
            if key not in added
            and key[0] not in self.unlisted
            and _is_below(show_path(*key), self.plan.under)
        )
        skipped_again = 0
        for one in sorted(changes.added, key=lambda a: a.file.path):
            before = failures.get((one.file.root, one.file.raw))
            if before and before.stat == one.file.stat and before.extractors == self.plan.extractors:
                skipped_again += 1
                continue
            work.append((one.file, None))
        quiet = len(changes.unchanged) + len(changes.touched) + len(changes.renamed) + len(changes.kept)
        done = quiet - sum(1 for _, before in work[len(changes.changed) :] if before is not None)
        self._tell(
            documents_done=done,
            documents_total=done + len(work),
            bytes_total=sum(file.stat.size_bytes for file, _ in work),
            detail="",
        )
        return work, failures

    def _file_of(self, document_id: int) -> FoundFile:
        document = self.store.document_by_id(document_id)
        return FoundFile(document.root, document.raw, document.path, document.stat)

    def _outdated(self, stale: bool) -> set[int]:
        """Documents to be read again though their files are the same."""
        if self.newer:
            return set()
        current = {part for part in self.plan.extractors.split(";") if "=" not in part}
        with self.store.connections.reading() as db:
            if stale:
                return {row[0] for row in db.conn.execute("SELECT document_id FROM documents").fetchall()}
            used = [row[0] for row in db.conn.execute("SELECT DISTINCT extractor FROM documents")]
            old = [name for name in used if current and name not in current]
            marks = ",".join("?" * len(old))
            rows = db.conn.execute(f"SELECT document_id FROM documents WHERE extractor IN ({marks})", old)
            return {row[0] for row in rows.fetchall()}

    # -- reading ---------------------------------------------------------------------------------------------

    def _read_all(
        self, work: Sequence[tuple[FoundFile, Known | None]], failures: dict[tuple[str, bytes], FailedBefore]
    ) -> None:
        if not work:
            return
        by_digest = {
            (f.digest, PurePosixPath(f.path).suffix.lower()): f
            for f in failures.values()
            if f.extractors == self.plan.extractors
        }
        readers = self.plan.open_readers()
        try:
            for read in self._in_parallel(work, readers, by_digest):
                self._take(read)
        finally:
            readers.close()

    def _in_parallel(
        self,
        work: Sequence[tuple[FoundFile, Known | None]],
        readers: Reading,
        by_digest: dict[tuple[bytes, str], FailedBefore],
    ) -> Iterator[_Read]:
        """Read on a few threads, each waiting for a worker process. At most two results lie ready per thread, so a
        folder of huge files costs no more memory than a few of them."""
        tasks = iter(work)
        lock = threading.Lock()
        ready: queue.Queue[_Read | BaseException | None] = queue.Queue(maxsize=self.plan.workers)
        stop = threading.Event()

        def hand(item: _Read | BaseException | None) -> bool:
            while not stop.is_set():
                try:
                    ready.put(item, timeout=0.2)
                    return True
                except queue.Full:
                    continue
            return False

        def serve() -> None:
            try:
                while not stop.is_set() and not self.cancel():
                    with lock:
                        task = next(tasks, None)
                    if task is None or not hand(self._read(*task, readers, by_digest)):
                        break
            except BaseException as error:
                hand(error)
            finally:
                hand(None)

        threads = [
            threading.Thread(target=serve, name=f"reading {number}", daemon=True)
            for number in range(max(1, self.plan.workers))
        ]
        for thread in threads:
            thread.start()
        left = len(threads)
        try:
            while left:
                item = ready.get()
                if item is None:
                    left -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _read(
        self,
        file: FoundFile,
        known: Known | None,
        readers: Reading,
        by_digest: dict[tuple[bytes, str], FailedBefore],
    ) -> _Read:
        digest: bytes | None = None
        try:
            with self._open(file) as opened:
                digest = file_digest(opened)
                before = by_digest.get((digest, PurePosixPath(file.path).suffix.lower()))
                if before is not None:
                    raise Unreadable(before.skipped.reason, before.skipped.detail)
                opened.seek(0)
                name = os.fsdecode(file.raw or os.fsencode(file.path)).rsplit("/", 1)[-1]
                hint = FileHint(name, file.stat.size_bytes, self.plan.fallback_encoding)
                extracted = readers.extract(opened, hint)
        except Unreadable as error:
            skipped = Skipped(file.path, error.reason, error.detail, file.root, file.raw)
            return _Read(file, known, digest, None, skipped)
        if not extracted.text.strip():
            skipped = Skipped(file.path, "no_text", "the file holds no text", file.root, file.raw)
            return _Read(file, known, digest, None, skipped)
        return _Read(file, known, digest, extracted, None)

    def _take(self, read: _Read) -> None:
        if read.extracted is None or read.digest is None:
            self._take_failure(read)
        else:
            if not self.batch:
                self.batch_began = time.monotonic()
            self.batch.append(read)
            self.batch_chars += len(read.extracted.text)
        self.state = replace(
            self.state,
            documents_done=self.state.documents_done + 1,
            bytes_done=self.state.bytes_done + read.file.stat.size_bytes,
        )
        if self.nothing_published and not self.commits:
            chars, documents = min(FIRST_CHARS, BATCH_CHARS), min(FIRST_DOCUMENTS, BATCH_DOCUMENTS)
            seconds = min(FIRST_SECONDS, BATCH_SECONDS)
        else:
            chars, documents, seconds = BATCH_CHARS, BATCH_DOCUMENTS, BATCH_SECONDS
        if (
            self.batch_chars >= chars
            or len(self.batch) >= documents
            or (self.batch and time.monotonic() - self.batch_began >= seconds)
        ):
            self._flush()
        if time.monotonic() - self.last_told >= TELL_SECONDS:
            self._tell()

    def _take_failure(self, read: _Read) -> None:
        assert read.skipped is not None
        # The old text of a file that became unreadable must not be served as if it were there.
        if read.known is not None and read.digest is not None and read.digest != read.known.digest:
            assert self.writer is not None
            self.intake.remove([read.known.document_id])
            self.writer.remove_documents([read.known.document_id])
            self.leaving.append(read.known.document_id)
        self.intake.failed(
            read.file, read.digest, read.skipped, extractors=self.plan.extractors, seen_ns=self.started_ns
        )

    def _is_there(self, root: str, raw: bytes) -> bool:
        key = (root, raw)
        return key in self.arrived or (key in self.known and key not in self.absent) or root in self.unlisted

    def _flush(self) -> None:
        """Store the batch, give it to the index's writer, and commit that when it is time."""
        if self.batch:
            replaced = [read.known.document_id for read in self.batch if read.known is not None]
            batch, self.batch, self.batch_chars = self._numbered(self.batch), [], 0
            stored = self.intake.put(batch, seen_ns=self.started_ns)
            assert self.writer is not None
            if replaced:
                self.writer.remove_documents(replaced)
            self.writer.add(record for one in stored for record in _records_of(one))
            self.waiting += [one.document_id for one in batch]
            self.waiting_chars += sum(len(one.extracted.text) for one in batch)
        self._commit_when_due()

    def _numbered(self, reads: Sequence[_Read]) -> list[Incoming]:
        """The batch with its document ids, in two transactions of pensieve.db, which sync to the disk.

        Changed documents first, so that text that left one is free for another; then by path, since two threads
        read and ids in reading order would follow chance.
        """
        reads = sorted(reads, key=lambda read: (read.known is None, read.file.path))
        sightings = [Sighting(r.file.root, r.file.raw, r.file.path, r.digest or b"") for r in reads]
        known = [
            (r.known.document_id, s) for r, s in zip(reads, sightings, strict=True) if r.known is not None
        ]
        new = [s for r, s in zip(reads, sightings, strict=True) if r.known is None]
        if known:
            self.store.ids.moved(known)
        numbers = iter(self.store.ids.documents(new, is_there=self._is_there) if new else ())
        return [
            Incoming(r.known.document_id if r.known else next(numbers), r.file, r.digest or b"", r.extracted)
            for r in reads
            if r.extracted is not None
        ]


def _records_of(stored: Stored) -> Iterator[PassageRecord]:
    """What the index is told of a document that has just been read."""
    read, path = stored.incoming.extracted, stored.incoming.file.path
    for passage in stored.passages:
        part = read.text[passage.span.start : passage.span.end]
        if not part.isspace():
            heading = stored.layout.heading_at(passage.span.start)
            yield _record(passage, path, read.facts.title, heading, part)


def _record(passage: Passage, path: str, title: str, heading: Sequence[str], text: str) -> PassageRecord:
    return PassageRecord(passage.passage_id, passage.document_id, path, title, " › ".join(heading), text)


def _close(index: Indexing | None) -> None:
    """Let go of the index's files, where it has something to let go of."""
    if index is not None and hasattr(index, "close"):
        with contextlib.suppress(PensieveError):
            index.close()


def _keep_below(changes: Changes, under: Sequence[str]) -> None:
    """Drop what lies elsewhere: its state stays as it is known, so that the next whole build finds it again."""

    def wanted(path: str) -> bool:
        return _is_below(path, under)

    changes.touched[:] = [kept for kept in changes.touched if wanted(kept.file.path)]
    changes.changed[:] = [kept for kept in changes.changed if wanted(kept.file.path)]
    changes.added[:] = [added for added in changes.added if wanted(added.file.path)]
    changes.renamed[:] = [renamed for renamed in changes.renamed if wanted(renamed.file.path)]
    for key in [key for key in changes.removed if not wanted(show_path(*key))]:
        changes.kept[key] = changes.removed.pop(key)


def _is_below(path: str, under: Sequence[str]) -> bool:
    return not under or any(path == one or path.startswith(f"{one}/") for one in under)


def _counts(told: BuildProgress) -> dict[str, Any]:
    return {"documents_done": told.documents_done, "documents_total": told.documents_total}


def _version(program: str) -> tuple[int, ...]:
    """The numbers of a release, as in `pensieve-statelm 0.10.2`; none where there is no number."""
    found = re.search(r"[0-9]+(?:\.[0-9]+)*", program)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _cut_differently(stored: str, ours: str) -> bool:
    import json

    before, after = json.loads(stored), json.loads(ours)
    return any(before.get(name) != after.get(name) for name in ("chunker", "counter"))


__all__ = ["Indexing", "Plan", "Reading", "build", "upgrade"]

"""The parent's side of extraction: hands files to workers, kills what hangs, keeps what was read.

Why: a bad file costs one file, never the server, never a hang. A pool of one to three workers is borrowed from by
any number of threads. What a file's failure is called stands in `corpus.types.SkipReason`; the failure is raised as
`Unreadable` and the caller, who knows the path, makes a `Skipped` of it. Nothing is retried on a later call here:
whether to ask again is the caller's to decide, by the file's hash and `registry.extractor_fingerprint()`.
"""

from __future__ import annotations

import mimetypes
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePath
from types import TracebackType
from typing import BinaryIO

from pensieve_mcp.corpus.extract import wire
from pensieve_mcp.corpus.extract.compose import compose
from pensieve_mcp.corpus.extract.lifeline import Gone, Worker
from pensieve_mcp.corpus.types import Extracted, Facts, FileHint, Limits, Piece, SkipReason, Unreadable

WORKER_MEMORY_BYTES = 1_500_000_000  # address space; a 400 MB content stream would take 3.4 GB
RECYCLE_FILES = 500
RECYCLE_GROWTH_BYTES = 300 * 2**20
# What was read before the fault is worth keeping only when the fault says nothing against the whole file.
_KEEPS_PIECES: frozenset[SkipReason] = frozenset(
    {"corrupt", "timeout", "crashed", "out_of_memory", "unreadable"}
)


@dataclass
class _Reading:
    """What has come in of one file, over one or two workers."""

    pieces: list[Piece] = field(default_factory=list)
    facts: Facts | None = None
    began: wire.Began | None = None
    refused: wire.Refused | None = None
    warnings: list[str] = field(default_factory=list)

    def take(self, items: list[wire.Item]) -> wire.Done | None:
        for item in items:
            match item:
                case Piece():
                    self.pieces.append(item)
                case Facts():
                    self.facts = item
                case wire.Began():
                    self.began = item
                case wire.Refused():
                    self.refused = item
                case wire.Done():
                    return item
        return None


class ExtractionPool:
    """Reads files in worker processes.

    Args:
        workers: how many processes at most, 1 to 3; they start when first needed.
        limits: bounds of reading, handed to each worker.
        idle_timeout_seconds: a worker that sends nothing for so long in mid-file is killed.
        base_timeout_seconds, seconds_per_megabyte, most_seconds: what one file may take in all.
        memory_bytes: address space of a worker (Linux); four fifths of it is the bound of resident memory anywhere.
        readers: `module:function` giving more extractors by suffix (`{".xyz": Extractor}`), found on our import path.
        pipes: talk over pipes, as Windows must; elsewhere files then go by their path, which tests use.
    """

    def __init__(
        self,
        workers: int = 1,
        limits: Limits | None = None,
        *,
        idle_timeout_seconds: float = 20.0,
        base_timeout_seconds: float = 60.0,
        seconds_per_megabyte: float = 1.0,
        most_seconds: float = 300.0,
        memory_bytes: int = WORKER_MEMORY_BYTES,
        recycle_files: int = RECYCLE_FILES,
        recycle_growth_bytes: int = RECYCLE_GROWTH_BYTES,
        readers: str | None = None,
        pipes: bool = sys.platform == "win32",
    ) -> None:
        if not 1 <= workers <= 3:
            raise ValueError(f"workers must be 1 to 3, not {workers}")
        self.limits = limits or Limits()
        self._idle_timeout_seconds = idle_timeout_seconds
        self._base_timeout_seconds = base_timeout_seconds
        self._seconds_per_megabyte = seconds_per_megabyte
        self._most_seconds = most_seconds
        self._memory_bytes = memory_bytes
        self._recycle_files = recycle_files
        self._recycle_growth_bytes = recycle_growth_bytes
        self._readers = readers
        self._pipes = pipes
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._seats = threading.Semaphore(workers)
        self._lock = threading.Lock()
        self._closed = False
        # Linux ends a worker with the thread that started it (worker.py): that thread must live as long as we do.
        self._starter = ThreadPoolExecutor(1, "starting workers")

    def __enter__(self) -> ExtractionPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; files still being read fail with `crashed`. Harmless when repeated."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for worker in busy:
            worker.process.kill()  # its borrower notices, and reaps it
        for worker in idle:
            worker.close()
        self._starter.shutdown(wait=False)

    def worker_pids(self) -> list[int]:
        """Process ids of the workers there are, idle ones first."""
        with self._lock:
            return [worker.process.pid for worker in (*self._idle, *self._busy)]

    def extract(self, file: BinaryIO | int, hint: FileHint) -> Extracted:
        """Read one document. `file`: an open binary file or descriptor; its position is moved. Blocks; thread-safe.

        Raises Unreadable with the reason why there is no text. A file read in part comes back as `partial`.
        """
        descriptor = file if isinstance(file, int) else file.fileno()
        name = None if isinstance(file, int) else getattr(file, "name", None)
        path = name if isinstance(name, str) else None
        if hint.size_bytes == 0:
            raise Unreadable("empty", "0 bytes")
        seconds = min(
            self._base_timeout_seconds + self._seconds_per_megabyte * hint.size_bytes / 2**20,
            self._most_seconds,
        )
        deadline = time.monotonic() + seconds
        reading = _Reading()
        with self._seats:
            fault = self._read(descriptor, path, hint, reading, deadline, seconds, first=1)
            if (
                fault is not None
                and reading.began is not None
                and reading.began.resumable
                and not self._closed
            ):
                bad = reading.pieces[-1].ordinal + 1 if reading.pieces else 1
                reading.warnings.append(f"unit {bad} was left out: {fault.reason}, {fault.detail}")
                again = max(deadline, time.monotonic() + self._idle_timeout_seconds)
                second = self._read(descriptor, path, hint, reading, again, seconds, first=bad + 1)
                if second is None and not reading.pieces and reading.refused is None:
                    reading.refused = fault
                fault = second
        return self._finish(reading, fault, PurePath(hint.name).suffix.lower())

    def _finish(self, reading: _Reading, fault: wire.Refused | None, suffix: str) -> Extracted:
        refused = fault or reading.refused
        if refused is not None:
            if refused.reason not in _KEEPS_PIECES or not any(
                not piece.text.isspace() for piece in reading.pieces if piece.text
            ):
                raise Unreadable(refused.reason, refused.detail)
            where = reading.pieces[-1]
            place = (
                f"{where.kind} {where.label or where.ordinal}"
                if where.kind != "body"
                else f"{sum(len(p.text) for p in reading.pieces):,} characters"
            )
            reading.warnings.append(f"reading ended after {place}: {refused.reason}, {refused.detail}")
        extractor = reading.began.extractor if reading.began else "unknown/0"
        # Cut off before it told: something read its text, so it is text of what its name says.
        facts = reading.facts or Facts(mimetypes.guess_type(f"x{suffix}")[0] or "text/plain")
        document = compose(reading.pieces, facts, extractor, self.limits, warnings=tuple(reading.warnings))
        if not document.text or document.text.isspace():
            if facts.partial:
                raise Unreadable("corrupt", "; ".join(facts.warnings)[:500])
            raise Unreadable("no_text", "the file holds no text")
        return document

    def _read(
        self,
        descriptor: int,
        path: str | None,
        hint: FileHint,
        reading: _Reading,
        deadline: float,
        seconds: float,
        first: int,
    ) -> wire.Refused | None:
        """One try. None when the worker lived to the end; else what its death is called."""
        request = {
            "name": hint.name,
            "size": hint.size_bytes,
            "encoding": hint.fallback_encoding,
            "first": first,
            "seconds": seconds + self._idle_timeout_seconds,
        }
        started = time.monotonic()
        while True:
            worker = self._borrow()
            heard = False
            try:
                worker.ask(request, descriptor, path)
                done = None
                while done is None:
                    done = reading.take(worker.frame(self._idle_timeout_seconds, deadline))
                    heard = True
            except Gone:
                worker.ended = True
                fault = self._bury(worker, None)
                if heard or worker.files == 1 or self._closed:
                    return fault
                # It had read other files and said nothing of this one: perhaps it was killed while idle. A worker
                # that knows no other file will tell whether this one is to blame.
                continue
            except TimeoutError:
                spent = time.monotonic() - started
                return self._bury(worker, wire.Refused("timeout", f"no answer; stopped after {spent:.1f} s"))
            except wire.BadFrame as problem:
                return self._bury(worker, wire.Refused("crashed", f"the reader spoke gibberish: {problem}"))
            except BaseException:
                self._bury(worker, None)
                raise
            worker.peak_bytes = done.peak_bytes
            worker.first_peak_bytes = worker.first_peak_bytes or done.peak_bytes
            spoilt = reading.refused is not None and reading.refused.reason == "out_of_memory"
            self._give_back(worker, spoilt=spoilt)
            return None

    def _borrow(self) -> Worker:
        with self._lock:
            if self._closed:
                raise RuntimeError("the extraction pool is closed")
            # An idle worker may have been killed from outside; it is replaced without a word.
            while self._idle:
                worker = self._idle.pop()
                if worker.process.poll() is None:
                    self._busy.add(worker)
                    return worker
                worker.close()
        worker = self._starter.submit(
            Worker, self.limits, self._memory_bytes, self._readers, pipes=self._pipes
        ).result()
        with self._lock:
            self._busy.add(worker)
            closed = self._closed
        if closed:
            worker.process.kill()  # closed while we started it; our caller notices the death
        return worker

    def _give_back(self, worker: Worker, *, spoilt: bool) -> None:
        grown = worker.peak_bytes - worker.first_peak_bytes
        spent = spoilt or worker.files >= self._recycle_files or grown >= self._recycle_growth_bytes
        with self._lock:
            self._busy.discard(worker)
            if not spent and not self._closed:
                self._idle.append(worker)
                return
        worker.close()

    def _bury(self, worker: Worker, known: wire.Refused | None) -> wire.Refused:
        with self._lock:
            self._busy.discard(worker)
        status, words = worker.kill()
        if known is not None:
            return known
        if status == wire.MEMORY_EXIT:
            return wire.Refused(
                "out_of_memory", f"more than {self._memory_bytes * 4 // 5:,} bytes of memory were needed"
            )
        name = f"signal {_signal_name(-status)}" if status < 0 else f"exit status {status}"
        return wire.Refused("crashed", f"the reader died ({name})" + (f": {words}" if words else ""))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

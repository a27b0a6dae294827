"""The vector store's manifest and its write lock: what makes a commit one step.

The manifest names the segments of the published state and is replaced as a whole, so a process killed at any
moment leaves the last published state. Files it does not name are leavings; the next writer sweeps them away.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import IndexMismatch, StorageError

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "write.lock"
REPLACE_TRIES = 50  # Windows refuses to replace a file another process is just reading
REPLACE_WAIT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Manifest:
    """`generation` is the number its writer gave; `sequence` grows with each commit, upgrades included."""

    generation: int = 0
    sequence: int = 0
    dim: int = 0  # 0: nothing stored yet
    fingerprint: str = ""
    next_file: int = 1
    segments: tuple[dict[str, Any], ...] = field(default=())


def read_manifest(folder: Path) -> tuple[Manifest, tuple[int, ...]]:
    """The published state and the file's own state, to see cheaply whether it changed. A store that does not
    exist is empty. Raises IndexMismatch for another format, StorageError for what cannot be read."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            stamp = _stamp(os.fstat(file.fileno()))
            content = json.loads(file.read())
        if content["format"] != FORMAT:
            raise IndexMismatch(
                f"The vectors in {folder} are of format {content['format']}, this program reads {FORMAT}.",
                hint="Build the index again; the documents are untouched.",
                slug="other_version",
            )
        del content["format"]
        return Manifest(**{**content, "segments": tuple(content["segments"])}), stamp
    except FileNotFoundError:
        return Manifest(), ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}.",  # bytes may be in it
            hint=f"Delete {folder} and build the index again; the documents are untouched.",
            slug="index_damaged",
        ) from error


def manifest_stamp(folder: Path) -> tuple[int, ...]:
    try:
        return _stamp(os.stat(f"{folder}{os.sep}{MANIFEST}"))  # noqa: PTH116  (asked at every search)
    except FileNotFoundError:
        return ()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Publish. Everything it names must be synced already. Raises OSError."""
    made = folder / f"{MANIFEST}.new"
    with made.open("w", encoding="utf-8") as out:
        json.dump({"format": FORMAT, **asdict(manifest)}, out)
        out.flush()
        os.fsync(out.fileno())
    for attempt in range(REPLACE_TRIES):
        try:
            made.replace(folder / MANIFEST)
            break
        except PermissionError:
            if sys.platform != "win32" or attempt == REPLACE_TRIES - 1:
                raise
            time.sleep(REPLACE_WAIT_SECONDS)
    if sys.platform != "win32":  # the new name itself must survive a power cut
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep(folder: Path, manifest: Manifest) -> None:
    """Delete what no manifest names. Under the lock only. On Windows a file that a reader has mapped stays
    until a later sweep; elsewhere the reader keeps it through its mapping."""
    named = {about[key] for about in manifest.segments for key in ("name", "dead")}
    for path in folder.iterdir():
        if path.name not in named and path.suffix in (".seg", ".dead", ".new"):
            try:
                path.unlink()
            except PermissionError:
                continue


class WriteLock:
    """One writer at a time, over processes and within one; the system frees it when its process dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        return self._handle is not None

    def acquire(self) -> None:
        """Raises StorageError (slug `index_busy`) at once while somebody else has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise StorageError(
                f"Another process is writing the vectors in {self._path.parent}.",
                hint="Wait until its build is done; searching goes on meanwhile.",
                slug="index_busy",
            ) from error
        self._handle = handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)  # closing frees the lock
            self._handle = None

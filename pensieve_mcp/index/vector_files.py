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
from pensieve_mcp.filelock import FileLock

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


class WriteLock(FileLock):
    """One writer of a folder's vectors at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / LOCK)

    def claim(self) -> None:
        """Raises StorageError (slug `index_busy`) at once while somebody else has it."""
        if not self.acquire():
            raise StorageError(
                f"Another process is writing the vectors in {self.path.parent}.",
                hint="Wait until its build is done; searching goes on meanwhile.",
                slug="index_busy",
            )

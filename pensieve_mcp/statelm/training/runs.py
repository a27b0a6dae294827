"""A stage's folder: what the stage is made with, and one process at a time that writes it.

A stopped run goes on from what lies there. What was made with something else is neither mixed in nor written over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import StorageError
from pensieve_mcp.filelock import FileLock

MADE_WITH = "made-with.json"
LOCK = "run.lock"


@contextmanager
def stage(folder: Path, made_with: Mapping[str, Any]) -> Iterator[None]:
    """Hold `folder` while a stage is made in it with these values, which JSON can hold.

    Raises StorageError: `run_busy` while another process makes it, `other_run` where it was begun with other values,
    `run_unwritable` where nothing can be written.
    """
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock.acquire()
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written: {error.strerror or error}.",
            hint="Name another folder: --out.",
            slug="run_unwritable",
        ) from error
    if not held:
        raise StorageError(
            f"Another process is at work in {folder}.",
            hint="Wait for it, or name another folder: --out.",
            slug="run_busy",
        )
    try:
        _begun(folder / MADE_WITH, json.loads(json.dumps(made_with)))
        yield
    finally:
        lock.release()


def _begun(file: Path, made_with: dict[str, Any]) -> None:
    """Compare with what the stage was begun with, or begin it."""
    if not file.exists():
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps(made_with, indent=1) + "\n", encoding="utf-8")
        beside.replace(file)
        return
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        before = None
    if before != made_with:
        raise other_run(file.parent, before if isinstance(before, dict) else {}, made_with)


def other_run(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> StorageError:
    """The refusal, with what differs."""
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    differing = [f"{name} {_short(before.get(name))}, now {_short(now.get(name))}" for name in names]
    return StorageError(
        f"{folder} holds a run that was begun with something else: {'; '.join(differing)}.",
        hint="Name another folder with --out, or take this one away to begin anew.",
        slug="other_run",
    )


def digest(parts: Iterable[str]) -> str:
    """Of texts, in order."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return made.hexdigest()[:16]


def _short(value: Any) -> str:
    return "nothing" if value is None else str(value)[:40]

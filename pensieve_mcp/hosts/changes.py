"""What an installation changes, file by file: planned as values, shown as a difference, and then written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pensieve_mcp.hosts import files

State = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Change:
    """One file as it is and as it shall be; the same where nothing is to be done. None: it goes.

    `is_ours`: nobody but us writes this file, so that no copy of the old one is kept. `folder`: where an empty folder
    above the file goes with it, up to and including this one.
    """

    found: files.Found
    after: str | None
    is_ours: bool = False
    folder: Path | None = None

    @property
    def needed(self) -> bool:
        return self.found.there if self.after is None else self.after != self.found.text

    def difference(self) -> str:
        """As `diff -u` shows it."""
        name = str(self.found.path)
        lines = difflib.unified_diff(
            self.found.text.splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            name,
            name,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def without_rests(change: Change, keep: Collection[Path]) -> Change:
    """The change, by which the file goes where it would leave nothing but empty sections in it, and its folder where
    that is empty then and none of `keep`. A file that was there before us has a copy beside it, and stays.
    """
    path = change.found.path
    if not change.needed or change.after is None or not _RESTS.fullmatch(change.after):
        return change
    if any(path.parent.glob(f"{path.name}.{files.MARK}-*")):
        return change
    return replace(change, after=None, folder=None if path.parent in keep else path.parent)


_RESTS = re.compile(r"""(?:[{}\[\],\s]|"[^"\n/]*"\s*:|^[\w-]+:)*""", re.MULTILINE)
"""Of JSON and YAML keys with nothing below them, of TOML nothing; no value, and no comment."""


@dataclass(frozen=True, slots=True)
class Written:
    path: Path
    backup: Path | None
    is_gone: bool = False


def apply(changes: Sequence[Change]) -> list[Written]:
    """Write what is needed. Raises HostError or Conflict; files written before the one that failed stay written."""
    written = []
    for change in changes:
        if not change.needed:
            continue
        path = change.found.path
        if change.after is None:
            files.remove(change.found, up_to=change.folder)
            written.append(Written(path, None, is_gone=True))
        else:
            written.append(Written(path, files.write(change.found, change.after, keep=not change.is_ours)))
    return written

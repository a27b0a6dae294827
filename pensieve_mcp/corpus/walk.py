"""What is in the folders: every file the rules let in, and every one they do not, with the reason.

Nothing is passed over in silence: what is not taken is a `Skipped`, a skipped folder one `Skipped` for all it
holds. A root that cannot be listed is told as such and never looks empty, so that an unmounted disk wipes
nothing. How files are opened safely is `folders.py`'s, how patterns match `ignore.py`'s, what has changed
since the last time `changes.py`'s.
"""

from __future__ import annotations

import errno
import operator
import os
import stat as modes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pensieve_mcp.corpus.folders import (
    Folder,
    descend,
    fresh,
    inside,
    is_link,
    keys_of,
    kind_of,
    open_folder,
    open_regular,
    parts_of,
    reason_of,
    stat_of,
)
from pensieve_mcp.corpus.ignore import GITIGNORE, PENSIEVEIGNORE
from pensieve_mcp.corpus.layers import Layer, Layers, WalkRules, judge
from pensieve_mcp.corpus.names import name_roots, read_path, show_name, show_path
from pensieve_mcp.corpus.types import FoundFile, Root, Skipped, SkipReason, Stat

if TYPE_CHECKING:
    from pensieve_mcp.corpus.explaining import Explanation

__all__ = [
    "Familiar", "RootState", "WalkRules", "explain", "fresh", "name_roots", "open_regular", "read_path",
    "show_path", "survey",
]  # fmt: skip

# A file written within this time of the last scan may have been written again in the same tick of the file
# system's clock (2 s on FAT), with the same stat: git calls it racily clean, and so it is hashed.
RACY_NS = 2_000_000_000
# A modification time further ahead was set by hand; the change time guards such a file.
FUTURE_NS = 86_400 * 1_000_000_000
CANCEL_EVERY = 1_024  # entries between two looks at `cancel`


@dataclass(frozen=True, slots=True)
class RootState:
    """How the walk of one root ended; comes after all that was found in it.

    Only after "ok" does an absent file mean a removed one. "empty": it was listed and holds nothing at all, as
    an unmounted disk would. "partial": cancelled, or over the number of files. "unreachable": not listed.
    """

    root: str
    state: Literal["ok", "empty", "partial", "unreachable"]
    detail: str = ""
    device: int = 0
    inode: int = 0
    files: int = 0
    skipped: int = 0


class Remembered(Protocol):
    """What the walk must know of a document to pass its file over."""

    @property
    def stat(self) -> Stat: ...


K = TypeVar("K", bound=Remembered)


@dataclass(slots=True)
class Familiar(Generic[K]):
    """Files read before. `met` collects the values of those found unchanged, in place of FoundFiles.

    `scan_started_ns`: when the scan that made `known` began (wall clock).
    """

    known: Mapping[tuple[str, bytes], K]
    scan_started_ns: int
    met: list[K] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A folder whose subfolders are still to be walked."""

    folder: Folder
    prefix: bytes  # relative path with a trailing slash, or empty for the root
    shown: str
    layers: tuple[Layer, ...]
    waiting: list[str]  # subfolder names, last one first


@dataclass(slots=True)
class _Walk:
    """One root being walked."""

    root: Root
    rules: WalkRules
    layers: Layers
    never: frozenset[tuple[int, int]]
    cancel: Callable[[], bool] | None
    familiar: Familiar[Any] | None
    visited: set[tuple[int, int]] = field(default_factory=set)
    links: list[bytes] = field(default_factory=list)  # looked at when all else was, so that real names win
    seen_files: set[tuple[int, int]] = field(default_factory=set)  # kept only where links are followed
    files: int = 0
    skipped: int = 0
    stopped: str = ""

    def run(self) -> Iterator[FoundFile | Skipped | RootState]:
        root = self.root
        try:
            if root.is_file:
                yield from self._single()
                return
            top = open_folder(root.folder)
        except OSError as error:
            yield from self._unreachable(error)
            return
        device, inode = top.key
        empty = True
        stack: list[_Open] = []
        try:
            try:
                stack.append(_Open(top, b"", root.name, self.layers.top(), []))
                for item in self._list(stack[0], None):
                    empty = False
                    yield item
                empty = empty and not stack[0].waiting and not self.files  # those known are not yielded
            except OSError as error:
                yield from self._unreachable(error)
                return
            yield from self._below(stack)
        finally:
            for frame in stack:
                frame.folder.close()
        if self.rules.follow_links and not self.stopped:
            yield from self._follow()
        if self.stopped:
            yield RootState(root.name, "partial", self.stopped, device, inode, self.files, self.skipped)
        else:
            state: Literal["empty", "ok"] = "empty" if empty else "ok"
            yield RootState(root.name, state, "", device, inode, self.files, self.skipped)

    def _below(self, stack: list[_Open]) -> Iterator[FoundFile | Skipped]:
        """Depth first, in the order of names; files of a folder before its subfolders."""
        while stack and not self.stopped:
            frame = stack[-1]
            if not frame.waiting:
                frame.folder.close()
                stack.pop()
                continue
            name = frame.waiting.pop()
            raw = frame.prefix + os.fsencode(name)
            shown = f"{frame.shown}/{show_name(name)}"
            if len(stack) > self.rules.max_depth:
                yield self._skip(
                    shown, "too_deep", f"more than {self.rules.max_depth} folders deep", raw, True
                )
                continue
            try:
                folder = frame.folder.folder(name)
            except OSError as error:
                yield self._skip(shown, *reason_of(_swapped(error)), raw, True)
                continue
            if folder.key in self.visited or folder.key in self.never:
                mine = folder.key in self.never
                folder.close()
                why = "the folder of our own state" if mine else "already walked under another name"
                yield self._skip(shown, "ignored" if mine else "symlink", why, raw, True)
                continue
            below = _Open(folder, raw + b"/", shown, frame.layers, [])
            stack.append(below)
            try:
                yield from self._list(below, name)
            except OSError as error:
                yield self._skip(shown, *reason_of(error), raw, True)

    def _list(self, here: _Open, name: str | None) -> Iterator[FoundFile | Skipped]:
        """Everything in one folder; its subfolders that are let in go to `here.waiting`. Raises OSError.

        This loop runs once per file of every rescan, hence the plain local names and the early ways out.
        """
        rules, root, folder = self.rules, self.root.name, here.folder
        self.visited.add(folder.key)
        entries = folder.entries(rules.max_files + 1)
        entries.sort(key=_name_of)
        names = [e.name for e in entries if e.name in (GITIGNORE, PENSIEVEIGNORE)]
        own, trouble = self.layers.read(folder, names, here.shown)
        for rule_file, what in trouble:
            raw = here.prefix + os.fsencode(rule_file)
            yield self._skip(f"{here.shown}/{rule_file}", "unreadable", what, raw)
        here.layers = layers = self.layers.inside(here.layers, name, own)
        gate = self.layers.gate(layers)
        exact, starts, ends, is_open = gate.exact, gate.starts, gate.ends, gate.is_open
        prefix, shown_prefix, take_hidden = here.prefix, here.shown + "/", rules.hidden
        follow, largest = rules.follow_links, rules.max_file_bytes
        is_regular = modes.S_ISREG
        familiar = self.familiar
        known_as = familiar.known.get if familiar is not None else _nobody
        met = familiar.met.append if familiar is not None else _nobody
        racy_from = familiar.scan_started_ns - RACY_NS if familiar is not None else 0
        racy_until = racy_from + FUTURE_NS
        left = 0
        for entry in entries:
            if not left:
                left = CANCEL_EVERY
                if self.cancel is not None and self.cancel():
                    self.stopped = "cancelled"
                    return
            left -= 1
            name = entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if name.isascii():
                latin, raw = name, prefix + name.encode()
            else:
                encoded = os.fsencode(name)
                latin, raw = encoded.decode("latin-1"), prefix + encoded
            if (
                is_open
                or name[0] == "."
                or latin in exact
                or latin.startswith(starts)
                or latin.endswith(ends)
            ):
                verdict = judge(layers, take_hidden, latin, is_folder)
                if verdict.reason is not None:
                    shown = shown_prefix + show_name(name)
                    yield self._skip(shown, verdict.reason, verdict.detail, raw, is_folder)
                    continue
            if is_folder:
                here.waiting.append(name)
                continue
            try:
                found = entry.stat(follow_symlinks=False) if _ENTRY_STAT else folder.lstat(name)
            except OSError as error:
                if error.errno != errno.ENOENT:  # else it was removed between listing and looking
                    yield self._skip(shown_prefix + show_name(name), *reason_of(error), raw)
                continue
            mode, size = found.st_mode, found.st_size
            if is_regular(mode) and size <= largest and self.files < rules.max_files and not follow:
                before = known_as((root, raw))
                if before is not None:
                    stat = before.stat
                    if (
                        stat.size_bytes == size
                        and stat.mtime_ns == (mtime := found.st_mtime_ns)
                        and stat.ctime_ns == (ctime := found.st_ctime_ns)
                        and stat.inode == found.st_ino
                        and ctime < racy_from
                        and not racy_from <= mtime < racy_until
                    ):
                        self.files += 1
                        met(before)
                        continue
            yield from self._file(shown_prefix + show_name(name), raw, found)
            if self.stopped:
                return
        here.waiting.reverse()

    def _file(self, shown: str, raw: bytes, found: os.stat_result) -> Iterator[FoundFile | Skipped]:
        """One entry that is no folder and that the rules let in."""
        mode, limit = found.st_mode, self.rules.max_file_bytes
        if is_link(found):
            if self.rules.follow_links:
                self.links.append(raw)
            else:
                yield self._skip(shown, "symlink", "links are not followed", raw)
        elif not modes.S_ISREG(mode):
            yield self._skip(shown, "special", kind_of(mode), raw)
        elif found.st_size > limit:
            yield self._skip(shown, "too_large", f"{found.st_size:,} bytes; the limit is {limit:,}", raw)
        elif self.files >= self.rules.max_files:
            self.stopped = f"more than {self.rules.max_files:,} files; the rest was not looked at"
            yield self._skip(self.root.name, "too_large", self.stopped, b"", True)
        else:
            self.files += 1
            if self.rules.follow_links:
                self.seen_files.add((found.st_dev, found.st_ino))
            yield FoundFile(self.root.name, raw, shown, stat_of(found))

    def _follow(self) -> Iterator[FoundFile | Skipped]:
        """Links whose target lies in the same root and was not met under its own name."""
        while self.links and not self.stopped:
            raw = self.links.pop(0)
            shown = show_path(self.root.name, raw)
            target = inside(self.root, raw)
            if target is None:
                yield self._skip(shown, "symlink", "it leads out of its root or nowhere", raw)
                continue
            if target == b"":
                yield self._skip(shown, "symlink", "it leads to the root itself", raw)
                continue
            *above, last = parts_of(target)
            try:
                place = descend(open_folder(self.root.folder), above)
                try:
                    found = place.lstat(last)
                    folder = place.folder(last) if modes.S_ISDIR(found.st_mode) else None
                finally:
                    place.close()
            except OSError as error:
                yield self._skip(shown, *reason_of(error), raw)
                continue
            if folder is not None:
                if folder.key in self.visited or folder.key in self.never:
                    folder.close()
                    yield self._skip(shown, "symlink", "its target is walked under its own name", raw, True)
                    continue
                stack = [_Open(folder, raw + b"/", shown, self.layers.top(), [])]
                try:
                    yield from self._list(stack[0], None)
                    yield from self._below(stack)
                except OSError as error:
                    yield self._skip(shown, *reason_of(error), raw, True)
                finally:
                    for frame in stack:
                        frame.folder.close()
            elif not modes.S_ISREG(found.st_mode):
                yield self._skip(shown, "special", kind_of(found.st_mode), raw)
            elif (found.st_dev, found.st_ino) in self.seen_files:
                yield self._skip(shown, "symlink", "its target is taken under its own name", raw)
            else:
                self.seen_files.add((found.st_dev, found.st_ino))
                self.files += 1
                yield FoundFile(self.root.name, raw, shown, stat_of(found))

    def _single(self) -> Iterator[FoundFile | Skipped | RootState]:
        """A root that is one file. The person named it, so no rule hides it. Raises OSError."""
        above, name = os.path.split(self.root.folder)
        folder = open_folder(above)
        try:
            found = folder.lstat(name)
        finally:
            folder.close()
        shown, raw = self.root.name, os.fsencode(name)
        if is_link(found):
            yield self._skip(shown, "symlink", "links are not followed", raw)
        elif not modes.S_ISREG(found.st_mode):
            yield self._skip(shown, "special", kind_of(found.st_mode), raw)
        elif found.st_size > self.rules.max_file_bytes:
            limit = self.rules.max_file_bytes
            yield self._skip(shown, "too_large", f"{found.st_size:,} bytes; the limit is {limit:,}", raw)
        else:
            self.files += 1
            yield FoundFile(shown, raw, shown, stat_of(found))
        yield RootState(shown, "ok", "", found.st_dev, found.st_ino, self.files, self.skipped)

    def _unreachable(self, error: OSError) -> Iterator[Skipped | RootState]:
        detail = f"{self.root.folder}: {reason_of(error)[1]}"
        yield self._skip(self.root.name, "unreachable", detail, b"", True)
        yield RootState(self.root.name, "unreachable", detail, skipped=self.skipped)

    def _skip(self, shown: str, reason: SkipReason, detail: str, raw: bytes, folder: bool = False) -> Skipped:
        self.skipped += 1
        return Skipped(shown, reason, detail, self.root.name, raw, folder)


def _nobody(_key: object) -> None:
    return None


# DirEntry.stat gives no inode on Windows; there each file is looked at by name.
_ENTRY_STAT = os.name != "nt"


_name_of = operator.attrgetter("name")


def _swapped(error: OSError) -> OSError:
    """Linux answers "not a directory" for a folder that meanwhile became a link; say what matters."""
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP)) if error.errno == errno.ENOTDIR else error


def survey(
    roots: Sequence[Root],
    rules: WalkRules,
    *,
    cancel: Callable[[], bool] | None = None,
    familiar: Familiar[Any] | None = None,
) -> Iterator[FoundFile | Skipped | RootState]:
    """Walk the roots, in order of names. Each root ends with its RootState; no error of a file or folder is raised.

    `cancel` is asked at least once per folder; when it says yes, the roots not finished are told as "partial".
    With `familiar`, files that it knows and that are unchanged are noted there instead of coming out.
    """
    layers, never = Layers(rules), keys_of(rules.never)
    for root in roots:
        if cancel is not None and cancel():
            yield RootState(root.name, "partial", "cancelled")
            continue
        yield from _Walk(root, rules, layers, never, cancel, familiar).run()


def explain(roots: Sequence[Root], rules: WalkRules, path: str) -> Explanation:
    """See `explaining.explain`, which takes the walk's steps along one path."""
    from pensieve_mcp.corpus.explaining import explain as along

    return along(roots, rules, path)

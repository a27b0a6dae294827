"""What has changed in the folders since last time: a pure comparison of a survey with what was known.

No file is opened here: `hash_file` is handed in, and asked only where stat cannot tell. Ids survive touch and
rename; a root that could not be listed loses nothing. Storing the outcome is left to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pensieve_mcp.corpus.types import FoundFile, Root, Skipped, Stat, Unreadable
from pensieve_mcp.corpus.walk import FUTURE_NS, RACY_NS, Familiar, RootState, WalkRules, survey

Key = tuple[str, bytes]  # (root name, relative path in bytes)


@dataclass(frozen=True, slots=True)
class Known:
    """A document as it was last read: its file's stat and sha256."""

    document_id: int
    stat: Stat
    digest: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """A document that stays itself, with the file it has now. `digest` is what the file holds now."""

    known: Known
    file: FoundFile
    digest: bytes


@dataclass(frozen=True, slots=True)
class Renamed:
    """Same content at a new path while the old path is gone: the document keeps its id and history."""

    known: Known
    old: Key
    file: FoundFile


@dataclass(frozen=True, slots=True)
class Added:
    """A file not known before. `digest` where it was computed anyway, `twin_of` a document of equal content."""

    file: FoundFile
    digest: bytes | None = None
    twin_of: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The outcome; every known document is in exactly one of unchanged, touched, changed, renamed, removed, kept."""

    unchanged: list[Known] = field(default_factory=list)
    touched: list[Kept] = field(default_factory=list)  # new stat, same content: only the stat is to be stored
    changed: list[Kept] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)
    removed: dict[Key, Known] = field(default_factory=dict)
    kept: dict[Key, Known] = field(default_factory=dict)  # not seen, but its folder could not be looked into
    skipped: list[Skipped] = field(default_factory=list)
    roots: list[RootState] = field(default_factory=list)

    @property
    def is_quiet(self) -> bool:
        """Nothing to read and nothing to store."""
        return not (self.touched or self.changed or self.added or self.renamed or self.removed)


def compare(
    known: Mapping[Key, Known],
    found: Iterable[FoundFile | Skipped | RootState],
    *,
    scan_started_ns: int,
    hash_file: Callable[[FoundFile], bytes],
    verify: bool = False,
    unreachable: Collection[str] = (),
    identities: Mapping[str, tuple[int, int]] | None = None,
) -> Changes:
    """Compare a survey with what was known.

    `scan_started_ns`: when the scan that made `known` began (wall clock, ns). `hash_file` gives the sha256 of a
    file and may raise Unreadable, which makes it a Skipped and keeps the document. `verify` hashes every file.
    `unreachable` names more roots whose documents stay. An "empty" root keeps its documents too, unless
    `identities` says that it is still the same (device, inode) as when they were read.
    """
    out = Changes()
    racy_from = scan_started_ns - RACY_NS
    racy_until = racy_from + FUTURE_NS
    stay = out.unchanged.append
    lookup = known.get
    suspects: list[tuple[FoundFile, Known]] = []
    fresh: list[FoundFile] = []
    for item in found:
        if isinstance(item, FoundFile):
            before = lookup((item.root, item.raw))
            if before is None:
                fresh.append(item)
                continue
            now, then = item.stat, before.stat
            if (
                then.size_bytes == now.size_bytes
                and then.mtime_ns == now.mtime_ns
                and then.ctime_ns == now.ctime_ns
                and then.inode == now.inode
                and now.ctime_ns < racy_from
                and not racy_from <= now.mtime_ns < racy_until
                and not verify
            ):
                stay(before)
            else:
                suspects.append((item, before))
        elif isinstance(item, Skipped):
            out.skipped.append(item)
        else:
            out.roots.append(item)
    _settle(known, out, suspects, fresh, hash_file, unreachable, identities or {})
    return out


def rescan(
    known: Mapping[Key, Known],
    roots: Sequence[Root],
    rules: WalkRules,
    *,
    scan_started_ns: int,
    hash_file: Callable[[FoundFile], bytes],
    verify: bool = False,
    identities: Mapping[str, tuple[int, int]] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Changes:
    """`compare(known, survey(roots, rules))` in one pass, which spares unchanged files all but their stat."""
    if verify:
        stream = survey(roots, rules, cancel=cancel)
        return compare(
            known,
            stream,
            scan_started_ns=scan_started_ns,
            hash_file=hash_file,
            verify=True,
            identities=identities,
        )
    familiar = Familiar(known, scan_started_ns)
    out = Changes()
    suspects: list[tuple[FoundFile, Known]] = []
    fresh: list[FoundFile] = []
    for item in survey(roots, rules, cancel=cancel, familiar=familiar):
        if isinstance(item, FoundFile):
            before = known.get((item.root, item.raw))
            if before is None:
                fresh.append(item)
            else:
                suspects.append((item, before))
        elif isinstance(item, Skipped):
            out.skipped.append(item)
        else:
            out.roots.append(item)
    out.unchanged.extend(familiar.met)
    _settle(known, out, suspects, fresh, hash_file, (), identities or {})
    return out


def _settle(
    known: Mapping[Key, Known],
    out: Changes,
    suspects: list[tuple[FoundFile, Known]],
    fresh: list[FoundFile],
    hash_file: Callable[[FoundFile], bytes],
    unreachable: Collection[str],
    identities: Mapping[str, tuple[int, int]],
) -> None:
    """All that stat alone could not decide."""
    for item, before in suspects:
        try:
            digest = hash_file(item)
        except Unreadable as error:
            out.skipped.append(Skipped(item.path, error.reason, error.detail, item.root, item.raw))
            out.kept[item.root, item.raw] = before
            continue
        if digest != before.digest:
            out.changed.append(Kept(before, item, digest))
        elif item.stat == before.stat:
            out.unchanged.append(before)
        else:
            out.touched.append(Kept(before, item, digest))
    if len(out.unchanged) + len(out.touched) + len(out.changed) + len(out.kept) < len(known):
        _missing(known, out, unreachable, identities)
    if fresh:
        _newcomers(known, fresh, out, hash_file)


def _missing(
    known: Mapping[Key, Known],
    out: Changes,
    unreachable: Collection[str],
    identities: Mapping[str, tuple[int, int]],
) -> None:
    """Sort the known documents that were not met into removed and kept."""
    met = {id(before) for before in out.unchanged}
    met.update(id(kept.known) for kept in (*out.touched, *out.changed))
    met.update(map(id, out.kept.values()))
    listed = {s.root for s in out.roots if s.state == "ok"}
    listed |= {
        s.root for s in out.roots if s.state == "empty" and identities.get(s.root) == (s.device, s.inode)
    }
    closed = {(s.root, s.raw) for s in out.skipped if s.raw is not None and s.reason == "unreadable"}
    for key, before in known.items():
        if id(before) in met:
            continue
        root, raw = key
        unseen = root in unreachable or (out.roots and root not in listed)
        if unseen or (closed and _under(root, raw, closed)):
            out.kept[key] = before
        else:
            out.removed[key] = before


def _under(root: str, raw: bytes, closed: Collection[tuple[str, bytes | None]]) -> bool:
    """Whether the path, or a folder above it, could not be looked into."""
    while raw:
        if (root, raw) in closed:
            return True
        raw = raw.rpartition(b"/")[0]
    return False


def _newcomers(
    known: Mapping[Key, Known],
    fresh: list[FoundFile],
    out: Changes,
    hash_file: Callable[[FoundFile], bytes],
) -> None:
    """Tell renamed files from added ones, and twins of what is here.

    A new file is hashed only when a document of its size is known (removed ones first, for renames): reading the
    rest would cost what extracting them costs anyway.
    """
    gone: dict[bytes, list[Key]] = {}
    for key, before in out.removed.items():
        gone.setdefault(before.digest, []).append(key)
    here: dict[bytes, int] = {}
    for key, before in known.items():
        if key not in out.removed:
            here.setdefault(before.digest, before.document_id)
    for kept in out.changed:
        if here.get(kept.known.digest) == kept.known.document_id:
            del here[kept.known.digest]  # its old content is no longer there
    sizes = {known_.stat.size_bytes for known_ in known.values()}
    plain: list[tuple[FoundFile, bytes]] = []
    for item in fresh:
        if item.stat.size_bytes not in sizes:
            out.added.append(Added(item))
            continue
        try:
            digest = hash_file(item)
        except Unreadable as error:
            out.skipped.append(Skipped(item.path, error.reason, error.detail, item.root, item.raw))
            continue
        candidates = gone.get(digest)
        if not candidates:
            plain.append((item, digest))
            continue
        key = _likeliest(candidates, item, out.removed)
        candidates.remove(key)
        out.renamed.append(Renamed(out.removed.pop(key), key, item))
        here.setdefault(digest, out.renamed[-1].known.document_id)
    for item, digest in plain:
        out.added.append(Added(item, digest, here.get(digest)))


def _likeliest(candidates: list[Key], item: FoundFile, removed: Mapping[Key, Known]) -> Key:
    """Which of several vanished twins became this file: same inode, else same name, else same root, else the first."""

    def closeness(key: Key) -> tuple[bool, bool, bool]:
        return (
            removed[key].stat.inode == item.stat.inode,
            os.path.basename(key[1]) == os.path.basename(item.raw),  # noqa: PTH119
            key[0] == item.root,
        )

    return max(candidates, key=closeness)

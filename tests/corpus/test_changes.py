"""What changed since last time, step by step on a real tree; ids survive touch and rename."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pensieve_mcp.corpus.changes import Changes, Known, compare, rescan
from pensieve_mcp.corpus.folders import open_regular
from pensieve_mcp.corpus.types import FoundFile, Root, Stat
from pensieve_mcp.corpus.walk import WalkRules, survey

LATER = 4_000_000_000 * 10**9  # long after any file was written: nothing is racily clean


class Tree:
    """A folder, what is known of it, and which files were hashed since `seen` was last called."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.root = Root("r", str(top))
        self.known: dict[tuple[str, bytes], Known] = {}
        self.hashed: list[bytes] = []
        self.last = 0

    def hash_file(self, item: FoundFile) -> bytes:
        self.hashed.append(item.raw)
        with open_regular(self.root, item.raw, expect=item.stat) as file:
            return hashlib.sha256(file.read()).digest()

    def look(self, scan_started_ns: int = LATER, **options: object) -> Changes:
        """Both ways of comparing, which must agree; then remember what is there now."""
        self.hashed.clear()
        found = list(survey([self.root], WalkRules()))
        plain = compare(
            self.known, found, scan_started_ns=scan_started_ns, hash_file=self.hash_file, **options
        )  # type: ignore[arg-type]
        hashed = list(self.hashed)
        self.hashed.clear()
        fused = rescan(
            self.known,
            [self.root],
            WalkRules(),
            scan_started_ns=scan_started_ns,
            hash_file=self.hash_file,
            **options,  # type: ignore[arg-type]
        )
        assert summary(fused) == summary(plain) and self.hashed == hashed
        return plain

    def remember(self) -> None:
        ids = {digest: k.document_id for k in self.known.values() for digest in [k.digest]}
        self.known = {}
        for item in survey([self.root], WalkRules()):
            if isinstance(item, FoundFile):
                digest = self.hash_file(item)
                self.last += 1
                self.known[item.root, item.raw] = Known(ids.get(digest, self.last), item.stat, digest)


def summary(changes: Changes) -> object:
    return (
        sorted(k.document_id for k in changes.unchanged),
        sorted(x.file.raw for x in changes.touched),
        sorted(x.file.raw for x in changes.changed),
        sorted((x.file.raw, x.twin_of) for x in changes.added),
        sorted((x.old[1], x.file.raw) for x in changes.renamed),
        sorted(changes.removed),
        sorted(changes.kept),
    )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        file = tmp_path / "top" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"this is {name}")
    tree = Tree(tmp_path / "top")
    tree.remember()
    return tree


def test_an_unchanged_tree_is_quiet_and_nothing_is_read(tree: Tree) -> None:
    changes = tree.look()

    assert changes.is_quiet and len(changes.unchanged) == 3 and tree.hashed == []


def test_a_touched_file_keeps_its_content_and_id(tree: Tree) -> None:
    os.utime(tree.top / "a.txt", ns=(1, 10**18))

    (kept,) = tree.look().touched

    assert (
        kept.file.raw == b"a.txt" and kept.digest == kept.known.digest and kept.file.stat != kept.known.stat
    )


def test_same_size_with_the_time_put_back_is_noticed(tree: Tree) -> None:
    """ctime cannot be put back."""
    file = tree.top / "a.txt"
    before = file.stat()
    file.write_text("THIS IS a.txt")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert [x.file.raw for x in tree.look().changed] == [b"a.txt"]


def test_an_atomic_replace_is_a_change_of_the_same_document(tree: Tree) -> None:
    new = tree.top / "new"
    new.write_text("this is another text")
    new.replace(tree.top / "a.txt")

    changes = tree.look()

    assert [x.known.document_id for x in changes.changed] == [tree.known["r", b"a.txt"].document_id]
    assert not changes.added and not changes.removed


def test_a_renamed_file_keeps_its_id(tree: Tree) -> None:
    (tree.top / "b.txt").rename(tree.top / "sub" / "moved.txt")

    changes = tree.look()

    (renamed,) = changes.renamed
    assert renamed.old == ("r", b"b.txt") and renamed.file.raw == b"sub/moved.txt"
    assert renamed.known is tree.known["r", b"b.txt"]
    assert not changes.added and not changes.removed


def test_of_two_vanished_twins_the_one_with_the_same_name_moved(tree: Tree) -> None:
    for name in ("x/one.txt", "x/two.txt"):
        (tree.top / name).parent.mkdir(exist_ok=True)
        (tree.top / name).write_text("twins")
    tree.remember()
    (tree.top / "y").mkdir()
    (tree.top / "y" / "two.txt").write_text("twins")
    for name in ("x/one.txt", "x/two.txt"):
        (tree.top / name).unlink()

    changes = tree.look()

    assert [(x.old[1], x.file.raw) for x in changes.renamed] == [(b"x/two.txt", b"y/two.txt")]
    assert set(changes.removed) == {("r", b"x/one.txt")}


def test_a_copy_is_added_as_a_twin(tree: Tree) -> None:
    (tree.top / "copy.txt").write_bytes((tree.top / "a.txt").read_bytes())

    (added,) = tree.look().added

    assert added.file.raw == b"copy.txt" and added.twin_of == tree.known["r", b"a.txt"].document_id


def test_a_removed_file_is_removed(tree: Tree) -> None:
    (tree.top / "a.txt").unlink()

    assert set(tree.look().removed) == {("r", b"a.txt")}


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_folder_swapped_for_a_link_loses_its_documents_and_shows_nothing_else(tree: Tree) -> None:
    outside = tree.top.parent / "outside"
    (tree.top / "sub").rename(outside)
    (tree.top / "sub").symlink_to(outside)

    changes = tree.look()

    assert set(changes.removed) == {("r", b"sub/c.txt")}
    assert [s.reason for s in changes.skipped] == ["symlink"] and not changes.added


def test_a_file_written_near_the_last_scan_is_hashed(tree: Tree) -> None:
    """Racily clean: it may have been written twice in one tick of the clock."""
    stat = tree.known["r", b"a.txt"].stat

    changes = tree.look(scan_started_ns=stat.mtime_ns + 10**9)

    assert b"a.txt" in tree.hashed and changes.is_quiet and len(changes.unchanged) == 3


def test_verify_hashes_everything_and_finds_what_stat_hides(tree: Tree) -> None:
    key = ("r", b"a.txt")
    tree.known[key] = Known(1, tree.known[key].stat, b"another digest")

    assert tree.look().is_quiet
    changes = tree.look(verify=True)

    assert [x.file.raw for x in changes.changed] == [b"a.txt"] and len(tree.hashed) == 3


def test_a_vanished_root_keeps_its_documents(tree: Tree) -> None:
    tree.top.rename(tree.top.parent / "elsewhere")

    changes = tree.look()

    assert set(changes.kept) == set(tree.known) and not changes.removed
    assert [s.state for s in changes.roots] == ["unreachable"]


def test_an_unmounted_disk_looks_empty_and_keeps_its_documents(tree: Tree) -> None:
    """The mount point is another folder than the one that was read; a folder emptied by hand is the same."""
    now = tree.top.stat()
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (tree.top / name).unlink()
    (tree.top / "sub").rmdir()

    assert set(tree.look().kept) == set(tree.known)
    assert set(tree.look(identities={"r": (now.st_dev, now.st_ino + 1)}).kept) == set(tree.known)
    assert set(tree.look(identities={"r": (now.st_dev, now.st_ino)}).removed) == set(tree.known)


@pytest.mark.skipif(os.name != "posix", reason="replaces a system call by its POSIX signature")
def test_a_folder_that_could_not_be_opened_keeps_its_documents(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: object, *args: object, **kwargs: object) -> int:
        if path == "sub":
            raise PermissionError(13, "Permission denied", "sub")
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    changes = tree.look()

    assert set(changes.kept) == {("r", b"sub/c.txt")} and not changes.removed


def test_every_known_document_has_exactly_one_fate(tree: Tree) -> None:
    (tree.top / "a.txt").unlink()
    (tree.top / "b.txt").write_text("new content")
    (tree.top / "sub" / "c.txt").rename(tree.top / "d.txt")
    (tree.top / "e.txt").write_text("fresh")

    c = tree.look()

    fates = [
        *(k.document_id for k in c.unchanged),
        *(x.known.document_id for x in (*c.touched, *c.changed, *c.renamed)),
    ]
    fates += [k.document_id for k in (*c.removed.values(), *c.kept.values())]
    assert sorted(fates) == sorted(k.document_id for k in tree.known.values())
    assert [x.file.raw for x in c.added] == [b"e.txt"]


def test_comparing_is_pure() -> None:
    stat = Stat(1, 2, 3, 4)
    known = {("r", b"a"): Known(7, stat, b"d")}

    def never(item: FoundFile) -> bytes:
        raise AssertionError(item)

    changes = compare(known, [FoundFile("r", b"a", "r/a", stat)], scan_started_ns=LATER, hash_file=never)

    assert changes.unchanged == [known["r", b"a"]]

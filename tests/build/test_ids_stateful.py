"""An id never changes meaning, whatever happens to files, databases and processes (our decision, design section 3)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.errors import NoSuchChunk

from .conftest import Bench, prose

NAMES = st.sampled_from(["a.txt", "b.txt", "c.txt", "sub/d.txt"])
PARAGRAPHS = [prose(6, salt) + "\n\n" for salt in "pqrstu"]
TEXTS = st.lists(st.sampled_from(PARAGRAPHS), min_size=1, max_size=8).map("".join)
SETS = [ChunkSet(64), ChunkSet(40, 10)]


class IdsNeverChangeMeaning(RuleBasedStateMachine):
    """Two processes are two stores over the same files; they take turns."""

    @initialize()
    def open(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        (self.home / "docs").mkdir()
        (self.home / "state").mkdir()
        self.bench = Bench(self.home / "docs", self.home / "state")
        self.bench.write("keep.txt", "A file that is always there: an empty root would be kept as it was.")
        self.stores = [self.bench.store(), self.bench.store()]
        self.meaning: dict[int, str] = {}
        self.documents: dict[int, str] = {}  # document id → path, of the last build
        self.highest = 0
        self.settled = False

    @rule(name=NAMES, text=TEXTS)
    def write(self, name: str, text: str) -> None:
        self.bench.write(name, text)
        self.settled = False

    @rule(name=NAMES, paragraph=st.sampled_from(PARAGRAPHS), front=st.booleans())
    def edit(self, name: str, paragraph: str, front: bool) -> None:
        path = self.bench.folder / name
        if path.exists():
            text = path.read_text()
            self.bench.write(name, paragraph + text if front else text + paragraph)
            self.settled = False

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        path = self.bench.folder / old
        if path.exists() and old != new:
            target = self.bench.folder / new
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
            self.settled = False

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        (self.bench.folder / name).unlink(missing_ok=True)
        self.settled = False

    @rule(which=st.integers(0, 1))
    def build(self, which: int) -> None:
        self._build(which)

    def _build(self, which: int) -> None:
        self.bench.build(self.stores[which])
        self.settled = True

    @rule(which=st.integers(0, 1), chunk_set=st.sampled_from(SETS))
    def ask_for_a_set(self, which: int, chunk_set: ChunkSet) -> None:
        self.stores[which].ensure_chunk_set(chunk_set)

    @rule(which=st.integers(0, 1))
    def rebuild(self, which: int) -> None:
        self.bench.build(self.stores[which], rebuild=True)
        self.settled = True

    @precondition(lambda self: self.settled)
    @rule()
    def build_again_changes_nothing(self) -> None:
        before = self._ids()
        self._build(1)
        assert self._ids() == before

    @precondition(lambda self: self.settled)
    @rule()
    def rebuilding_keeps_all_ids(self) -> None:
        before = self._ids()
        self.rebuild(0)
        assert self._ids() == before

    @precondition(lambda self: self.settled)
    @rule(also_index=st.booleans())
    def losing_the_corpus_keeps_all_ids(self, also_index: bool) -> None:
        sets = self.stores[0].chunk_sets()
        before = self._ids()
        self.bench.close()
        for path in self.bench.state.glob("corpus.db*"):
            path.unlink()
        if also_index:
            shutil.rmtree(self.bench.state / "index", ignore_errors=True)
        self.stores = [self.bench.store(), self.bench.store()]
        self._build(0)
        for chunk_set in sets:
            self.stores[0].ensure_chunk_set(chunk_set)
        assert self._ids() == before

    def _ids(self) -> dict[str, list[int]]:
        store = self.stores[0]
        found: dict[str, list[int]] = {}
        for chunk_set in store.chunk_sets():
            for position in range(store.chunk_count(chunk_set)):
                chunk = store.chunk_at(chunk_set, position)
                assert chunk is not None
                path = store.document_by_id(chunk.document_id).path
                found.setdefault(f"{path} {chunk_set}", []).append(chunk.chunk_id)
        return found

    @invariant()
    def ids_mean_what_they_meant(self) -> None:
        if not hasattr(self, "stores"):
            return
        seen: set[int] = set()
        for chunk_set in self.stores[1].chunk_sets():
            for position in range(self.stores[1].chunk_count(chunk_set)):
                chunk = self.stores[1].chunk_at(chunk_set, position)
                assert chunk is not None and chunk.position == position
                assert chunk.chunk_id not in seen
                seen.add(chunk.chunk_id)
                text = self.stores[1].chunk_text(chunk)
                assert self.meaning.setdefault(chunk.chunk_id, text) == text
        for chunk_id in self.meaning.keys() - seen:
            try:
                self.stores[0].chunk(chunk_id)
            except NoSuchChunk:
                continue
            raise AssertionError(f"c{chunk_id} is served but not in document order")
        highest = self.stores[0].ids.highest()
        assert highest >= max(self.highest, *self.meaning, 0, 0)
        self.highest = highest

    @precondition(lambda self: self.settled)
    @invariant()
    def the_index_has_what_the_folder_has(self) -> None:
        on_disk = {
            f"docs/{path.relative_to(self.bench.folder).as_posix()}": path.read_text()
            for path in self.bench.folder.rglob("*.txt")
        }
        indexed = self.bench.indexed()
        assert {path: "".join(text.split()) for path, text in indexed.items()} == {
            path: "".join(text.split()) for path, text in on_disk.items()
        }

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            shutil.rmtree(self.home)


IdsNeverChangeMeaning.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestIdsNeverChangeMeaning = IdsNeverChangeMeaning.TestCase

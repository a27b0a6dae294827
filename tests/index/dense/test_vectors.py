"""The vector store against a plain dictionary, and against brute force."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.errors import IndexMismatch, StorageError
from pensieve_mcp.index import vector_commit, vector_scan, vector_segments
from pensieve_mcp.index.vectors import VectorStore

DIM = 32


def unit(rows, dim=DIM, seed=0):
    made = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture
def store(tmp_path):
    return VectorStore.open(tmp_path / "vectors")


def test_what_was_committed_is_found_and_what_was_not_is_not(store):
    rows = unit(20)
    store.add(range(20), [7] * 20, rows)
    assert store.search(rows[3], 5)[0].tolist() == []
    assert store.stats()["passages"] == 0
    store.commit(4)
    ids, cosines = store.search(rows[3], 5)
    assert ids[0] == 3
    assert cosines[0] == pytest.approx(1, abs=0.005)
    assert list(cosines) == sorted(cosines, reverse=True)
    assert store.generation == 4
    assert store.stats() | {"passages": 20, "upgraded": 0, "rows": 20, "segments": 1} == store.stats()


def test_discarded_changes_leave_no_trace(store):
    rows = unit(4)
    store.add([1, 2], [1, 1], rows[:2])
    store.commit(1)
    store.add([3], [2], rows[2:3])
    store.remove_documents([1])
    store.discard()
    store.add([4], [3], rows[3:])
    store.commit(2)
    assert sorted(store.search(rows[0], 10)[0]) == [1, 2, 4]


def test_the_best_window_of_a_passage_counts(store):
    """Implicit needles: one vector of a long passage loses single facts (facts, section 6)."""
    rows = unit(6)
    store.add([1, 2], [1, 1], rows[:2])
    store.commit(1)
    assert store.pending("upgraded") == [2, 1]
    assert store.replace([1, 1, 1], rows[2:5]) == 1
    store.commit(1)
    assert store.pending("upgraded") == [2]
    assert store.upgraded([2, 1, 99, 1]).tolist() == [False, True, False, True]
    ids, cosines = store.search(rows[4], 2)
    assert ids[0] == 1
    assert cosines[0] == pytest.approx(1, abs=0.005)
    assert store.cosines(rows[3], [2, 1, 99])[1:].tolist() == pytest.approx([1, 0], abs=0.005)
    assert store.stats()["upgraded"] == 1
    assert store.cosines(rows[0], [1])[0] == pytest.approx(max(rows[2:5] @ rows[0]), abs=0.01)


def test_the_store_tells_which_part_of_a_passage_was_nearest(store):
    rows = unit(400)
    owners = np.repeat(np.arange(100), 4)
    store.add(range(100), [1] * 100, unit(100, seed=1))
    store.commit(1)
    for first in range(0, 60, 20):  # several segments, some of which are merged
        chosen = (owners >= first) & (owners < first + 20)
        store.replace(owners[chosen], rows[chosen])
        store.commit(1)
    question = unit(1, seed=2)[0]
    asked = [59, 0, 99, 7, 1_000, 7, 33]
    best = [int(np.argmax(rows[owners == one] @ question)) for one in (59, 0, 7, 33)]
    assert store.nearest_parts(question, asked).tolist() == [
        best[0],
        best[1],
        -1,
        best[2],
        -1,
        best[2],
        best[3],
    ]


def test_a_vector_counts_by_its_weight(store):
    rows = unit(3)
    store.add([1, 2], [1, 1], rows[:2])
    store.commit(1)
    store.replace([1, 1, 9], rows, weights=[1.0, 0.8, 1.0])
    store.commit(1)
    assert store.cosines(rows[1], [1])[0] == pytest.approx(0.8, abs=0.005)
    assert store.nearest_parts(rows[1], [1]).tolist() == [1]


def test_replacing_a_passage_that_was_removed_meanwhile_is_passed_over(store):
    rows = unit(3)
    store.add([1, 2], [1, 2], rows[:2])
    store.commit(1)
    store.remove_documents([1])
    assert store.replace([1, 2], rows[:2]) == 1
    store.commit(2)
    assert store.search(rows[0], 5)[0].tolist() == [2]
    store.remove_documents([2])
    store.commit(3)
    assert store.search(rows[0], 5)[0].tolist() == []


def test_a_document_can_go_and_come_back_in_one_commit(store):
    rows = unit(4)
    store.add([1, 2], [5, 5], rows[:2])
    store.commit(1)
    store.remove_documents([5])
    store.add([1], [5], rows[2:3])
    store.commit(2)
    assert store.cosines(rows[2], [1, 2]).tolist() == pytest.approx([1, 0], abs=0.005)
    assert store.stats()["passages"] == 1


def test_filters_act_inside_the_search(store):
    """Our decision: not after the top k."""
    rows = unit(500)
    store.add(range(500), [n % 50 for n in range(500)], rows)
    store.commit(1)
    query = unit(1, seed=9)[0]
    for allowed in ([7], np.array([7]), frozenset([7, 1_000_000]), range(40)):
        ids, cosines = store.search(query, 10, allowed_documents=allowed)
        kept = [n for n in range(500) if n % 50 in set(map(int, allowed))]
        expected = sorted(kept, key=lambda n: -(rows[n] @ query))[:10]
        assert set(map(int, ids)) <= set(kept)
        assert len(ids) == 10
        assert len(set(map(int, ids)) & set(expected)) >= 8
        assert np.allclose(cosines, rows[ids] @ query, atol=0.01)
    assert store.search(query, 10, allowed_documents=[])[0].tolist() == []


def test_zero_vectors_and_strange_numbers_do_no_harm(store):
    rows = unit(3)
    rows[1] = 0
    rows[2] = np.nan
    store.add([1, 2, 3], [1, 1, 1], rows)
    store.commit(1)
    ids, cosines = store.search(rows[0], 5)
    assert ids.tolist() == [1, 2, 3]
    assert cosines[1:].tolist() == [0, 0]
    assert store.search(np.zeros(DIM, np.float32), 5)[1].tolist() == [0, 0, 0]
    assert store.search(rows[0], 0)[0].tolist() == []


def test_a_deadline_that_has_passed_gives_what_there_is(store):
    rows = unit(50)
    store.add(range(50), [1] * 50, rows)
    store.commit(1)
    assert store.search(rows[0], 5, deadline=time.monotonic() - 1)[0].tolist() == []
    assert len(store.search(rows[0], 5, deadline=time.monotonic() + 60)[0]) == 5


def test_other_dimensions_are_a_mismatch_with_the_reason(store, tmp_path):
    store.add([1], [1], unit(1))
    with pytest.raises(IndexMismatch, match="32 dimensions, the encoder's have 16"):
        store.add([2], [1], unit(1, 16))
    store.commit(1)
    for attempt in (
        lambda: store.search(unit(1, 16)[0], 1),
        lambda: store.cosines(unit(1, 16)[0], [1]),
        lambda: store.replace([1], unit(1, 16)),
        lambda: VectorStore.open(tmp_path / "vectors", dim=16),
    ):
        with pytest.raises(IndexMismatch, match="16"):
            attempt()


def test_another_encoder_is_a_mismatch_that_names_both(tmp_path):
    first = VectorStore.open(tmp_path, fingerprint="static@1")
    first.add([1], [1], unit(1))
    first.commit(1)
    with pytest.raises(IndexMismatch, match="made by static@1, not by minilm@2"):
        VectorStore.open(tmp_path, fingerprint="minilm@2")
    assert VectorStore.open(tmp_path, read_only=True).fingerprint == "static@1"


def test_a_reader_cannot_write_and_a_second_writer_is_told_to_wait(tmp_path):
    first, second = VectorStore.open(tmp_path), VectorStore.open(tmp_path)
    with pytest.raises(StorageError, match="opened for reading"):
        VectorStore.open(tmp_path, read_only=True).add([1], [1], unit(1))
    first.add([1], [1], unit(1))
    with pytest.raises(StorageError) as caught:
        second.add([2], [1], unit(1))
    assert caught.value.slug == "index_busy"
    first.commit(1)
    second.add([2], [1], unit(1, seed=2))
    second.commit(2)
    assert first.refresh()
    assert not first.refresh()
    assert sorted(first.search(unit(1)[0], 5)[0]) == [1, 2]


@pytest.mark.parametrize("harm", ["cut", "missing", "manifest", "format"])
def test_damaged_files_are_told_with_the_way_out(tmp_path, harm):
    store = VectorStore.open(tmp_path)
    store.add(range(100), [1] * 100, unit(100))
    store.commit(1)
    segment = next(tmp_path.glob("*.seg"))
    manifest = tmp_path / "manifest.json"
    if harm == "cut":
        segment.write_bytes(segment.read_bytes()[:-70])
    elif harm == "missing":
        segment.unlink()
    elif harm == "manifest":
        manifest.write_text("{")
    else:
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(IndexMismatch if harm == "format" else StorageError) as caught:
        VectorStore.open(tmp_path)
    assert "uild the index again" in caught.value.hint


def test_a_full_disk_publishes_nothing_and_keeps_the_changes(store, monkeypatch):
    rows = unit(2)
    store.add([1], [1], rows[:1])
    store.commit(1)
    store.add([2], [1], rows[1:])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(vector_commit, "write_segment", full)
        with pytest.raises(StorageError, match="No space left"):
            store.commit(2)
    assert store.generation == 1
    assert store.search(rows[1], 5)[0].tolist() == [1]
    store.commit(2)
    assert store.search(rows[1], 5)[0].tolist() == [2, 1]


def test_small_commits_are_merged_and_dead_rows_leave_the_disk(store, tmp_path):
    rows = unit(600)
    for start in range(0, 600, 10):
        store.add(range(start, start + 10), [start // 10] * 10, rows[start : start + 10])
        store.commit(start + 1)
    assert store.stats()["segments"] <= 2 * vector_commit.TIER_FACTOR
    store.remove_documents(range(30))
    store.commit(1_000)
    stats = store.stats()
    assert stats["dead_rows"] <= 0.25 * (stats["rows"] + stats["dead_rows"])
    assert stats["passages"] == 300
    named = {about["name"] for about in store._snapshot.manifest.segments}
    assert {path.name for path in (tmp_path / "vectors").glob("*.seg")} == named
    assert set(map(int, store.search(rows[0], 600)[0])) == set(range(300, 600))


@pytest.mark.parametrize("dim", [32, 96, 384])
def test_codes_first_find_nearly_what_brute_force_finds(tmp_path, monkeypatch, dim):
    monkeypatch.setattr(vector_segments, "CODED_ROWS", 2_000)
    monkeypatch.setattr(vector_scan, "FULL_SCAN_ROWS", 5_000)
    monkeypatch.setattr(vector_scan, "MIN_CANDIDATES", 800)
    rng = np.random.default_rng(1)
    centres = unit(40, dim)
    rows = centres[rng.integers(0, 40, 8_000)] + 0.7 * unit(8_000, dim, 2)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    store = VectorStore.open(tmp_path)
    store.add(range(6_000), [n % 10 for n in range(6_000)], rows[:6_000])
    store.commit(1)
    store.add(range(6_000, 8_000), [n % 10 for n in range(2_000)], rows[6_000:])
    store.commit(2)
    assert len(store._snapshot.segments) == 2
    hits = []
    for query in rows[::400]:
        ids, cosines = store.search(query, 10)
        assert np.allclose(cosines, rows[ids] @ query, atol=0.01)
        hits.append(len(set(map(int, ids)) & set(np.argsort(-(rows @ query))[:10].tolist())) / 10)
    assert np.mean(hits) > 0.9
    store.remove_documents(range(5))
    store.commit(3)
    assert {int(n) % 10 for n in store.search(rows[0], 50)[0]} <= {5, 6, 7, 8, 9}
    allowed = store.search(rows[0], 50, allowed_documents=[6])[0]
    assert {int(n) % 10 for n in allowed} == {6}


commands = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 3)),
    st.tuples(st.just("replace"), st.lists(st.integers(0, 12), min_size=1, max_size=5), st.just(0)),
    st.tuples(st.just("remove"), st.lists(st.integers(0, 3), max_size=2), st.just(0)),
    st.tuples(st.just("commit"), st.just([]), st.just(0)),
    st.tuples(st.just("reopen"), st.just([]), st.just(0)),
    st.tuples(st.just("discard"), st.just([]), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(commands, max_size=25), st.randoms(use_true_random=False))
def test_any_sequence_of_changes_equals_a_dictionary(tmp_path_factory, sequence, random):
    """Passage -> (document, vectors, kind), changed the plain way."""
    folder = tmp_path_factory.mktemp("store")
    store = VectorStore.open(folder)
    published: dict = {}
    current: dict = {}
    for generation, (command, ids, document) in enumerate([*sequence, ("commit", [], 0)]):
        made = unit(max(len(ids), 1), 8, random.randrange(10_000))[: len(ids)]
        if command == "add":
            store.add(ids, [document] * len(ids), made)
            for passage in set(ids):
                rows = [made[i] for i, one in enumerate(ids) if one == passage]
                current[passage] = (document, rows, "base")
        elif command == "replace":
            store.replace(ids, made)
            for passage in set(ids) & set(current):
                rows = [made[i] for i, one in enumerate(ids) if one == passage]
                current[passage] = (current[passage][0], rows, "upgraded")
        elif command == "remove":
            store.remove_documents(ids)
            current = {p: value for p, value in current.items() if value[0] not in ids}
        elif command == "commit":
            store.commit(generation)
            published = dict(current)
        else:
            store.discard()
            current = dict(published)
            if command == "reopen":
                store = VectorStore.open(folder)
        query = unit(1, 8, 77)[0]
        found, cosines = store.search(query, 50)
        expected = {p: max(float(row @ query) for row in rows) for p, (_, rows, _) in published.items()}
        assert dict(zip(map(int, found), map(float, cosines), strict=True)) == pytest.approx(
            expected, abs=0.02
        )
        assert store.cosines(query, list(range(13))).tolist() == pytest.approx(
            [expected.get(p, 0) for p in range(13)], abs=0.02
        )
        assert store.pending() == sorted(
            (p for p, (_, _, kind) in published.items() if kind == "base"), reverse=True
        )
        stats = store.stats()
        assert (stats["passages"], stats["rows"]) == (
            len(published),
            sum(len(rows) for _, rows, _ in published.values()),
        )
        assert stats["upgraded"] == sum(kind == "upgraded" for _, _, kind in published.values())
    store.close()

"""Folders in, corpus and index out: incremental, honest about failures, and the ids stay (design sections 3, 4)."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading

import pytest

from pensieve_mcp.building import build
from pensieve_mcp.corpus.lease import Lease, LeaseLost
from pensieve_mcp.corpus.types import ChunkSet, Root
from pensieve_mcp.errors import IndexMismatch, NoSuchChunk, NoSuchDocument, StorageError

from .conftest import prose

SET = ChunkSet(64)


def texts(store):
    """Chunk texts by id, by reading all in document order."""
    return {
        c.chunk_id: store.chunk_text(c)
        for c in (store.chunk_at(SET, p) for p in range(store.chunk_count(SET)))
    }


def test_a_folder_becomes_documents_chunks_and_passages(bench):
    bench.write("a.txt", prose(30))
    bench.write("sub/b.txt", "Short.")
    store = bench.build()

    documents, cursor = store.documents()
    assert [d.path for d in documents] == ["docs/a.txt", "docs/sub/b.txt"] and cursor is None
    assert "".join(texts(store).values()) == prose(30) + "Short."
    assert bench.indexed() == {"docs/a.txt": prose(30), "docs/sub/b.txt": "Short."}
    assert store.progress().state == "ready" and store.progress().documents_done == 2


def test_a_second_build_reads_nothing(bench):
    path = bench.write("a.txt", prose(10))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    store = bench.build()
    before, generation = texts(store), store.generation()
    bench.readers.read.clear()
    bench.build(store)

    assert bench.readers.read == [] and texts(store) == before and store.generation() == generation


def test_touch_and_rename_keep_all_ids(bench):
    path = bench.write("a.txt", prose(30))
    store = bench.build()
    before, document = texts(store), store.document("docs/a.txt")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    bench.build(store)
    path.rename(bench.folder / "z.txt")
    bench.readers.read.clear()
    bench.build(store)

    assert texts(store) == before and bench.readers.read == []
    assert store.document("docs/z.txt").document_id == document.document_id
    assert bench.indexed() == {"docs/z.txt": prose(30)}


def test_two_files_that_swap_names_keep_their_text(bench):
    one, two = bench.write("1.txt", prose(10, "a")), bench.write("2.txt", prose(10, "b"))
    store = bench.build()
    before = texts(store)
    one.rename(bench.folder / "x")
    two.rename(one)
    (bench.folder / "x").rename(two)
    bench.build(store)

    after = texts(store)
    assert all(after.get(i, text) == text for i, text in before.items())
    assert bench.indexed() == {"docs/1.txt": prose(10, "b"), "docs/2.txt": prose(10, "a")}


def test_an_edit_changes_the_ids_near_it_only(bench):
    bench.write("a.txt", prose(400))
    store = bench.build()
    before = texts(store)
    bench.write("a.txt", prose(400).replace("Sentence 200 ", "Phrase 200 "))
    bench.build(store)
    after = texts(store)

    assert len(before.keys() & after.keys()) >= 0.8 * len(before)
    assert all(before[i] == after[i] for i in before.keys() & after.keys())
    assert max(after) > max(before)


def test_a_retired_id_says_what_stands_there_now(bench):
    bench.write("a.txt", "The old text.")
    bench.write("b.txt", "Another text.")
    store = bench.build()
    old = store.chunk_at(SET, 0).chunk_id
    gone = store.chunk_at(SET, 1).chunk_id
    bench.write("a.txt", "The new text, longer.")
    (bench.folder / "b.txt").unlink()
    bench.build(store)
    new = store.chunk_at(SET, 0).chunk_id

    with pytest.raises(
        NoSuchChunk, match=f"c{old} is no longer there: the text of docs/a.txt changed. c{new} stands"
    ):
        store.chunk(old)
    with pytest.raises(NoSuchChunk, match=r"docs/b.txt was removed"):
        store.chunk(gone)
    with pytest.raises(NoSuchChunk, match=rf"There is no chunk c999; of the ids up to c{new}, 1 is in use"):
        store.chunk(999)


def test_an_undone_edit_brings_the_old_ids_back(bench):
    bench.write("a.txt", prose(20))
    store = bench.build()
    before = texts(store)
    bench.write("a.txt", "Something else.")
    bench.build(store)
    bench.write("a.txt", prose(20))
    bench.build(store)

    assert texts(store) == before


def test_text_that_moves_to_another_file_keeps_its_ids(bench):
    bench.write("a.txt", prose(10))
    store = bench.build()
    before = texts(store)
    bench.write("a.txt", "Now something else.")
    bench.write("b.txt", prose(10))
    bench.build(store)

    after = texts(store)
    assert {i: after.get(i) for i in before} == before


@pytest.mark.parametrize("lost", ["corpus.db", "index", "both"])
def test_derived_state_may_be_deleted(bench, lost):
    bench.write("a.txt", prose(40))
    bench.write("b.txt", prose(40))  # the same text twice
    bench.write("c.txt", "Third.")
    store = bench.build()
    before = texts(store)
    documents = {d.path: d.document_id for d in store.documents()[0]}
    bench.close()
    if lost in ("corpus.db", "both"):
        for path in bench.state.glob("corpus.db*"):
            path.unlink()
        (bench.folder / "c.txt").rename(bench.folder / "d.txt")
        documents["docs/d.txt"] = documents.pop("docs/c.txt")
    if lost in ("index", "both"):
        shutil.rmtree(bench.state / "index")
    store = bench.build()

    assert texts(store) == before
    assert {d.path: d.document_id for d in store.documents()[0]} == documents
    assert bench.indexed().keys() == documents.keys() and bench.indexed()["docs/b.txt"] == prose(40)


def test_a_lost_pensieve_db_takes_the_ids_from_the_corpus(bench):
    bench.write("a.txt", prose(20))
    store = bench.build()
    before = texts(store)
    bench.close()
    for path in bench.state.glob("pensieve.db*"):
        path.unlink()
    bench.write("b.txt", "More.")
    after = texts(bench.build())

    assert {i: after[i] for i in before} == before and len(after) == len(before) + 1


def test_a_file_that_fails_is_a_skipped_row_and_is_not_tried_again(bench):
    bench.write("good.txt", "Fine.")
    bench.write("bad.txt", "boom")
    store = bench.build()
    skipped, _ = store.skipped()
    assert [(s.path, s.reason, s.detail) for s in skipped] == [("docs/bad.txt", "corrupt", "it went boom")]
    with pytest.raises(NoSuchDocument, match="corrupt"):
        store.document("docs/bad.txt")

    bench.readers.read.clear()
    bench.build(store)
    shutil.copy(bench.folder / "bad.txt", bench.folder / "copy.txt")
    bench.build(store)
    assert "bad.txt" not in bench.readers.read and "copy.txt" not in bench.readers.read
    assert {s.path for s in store.skipped()[0]} == {"docs/bad.txt", "docs/copy.txt"}

    bench.extractors = "plain/2"  # new readers may do better
    bench.build(store)
    assert "bad.txt" in bench.readers.read
    bench.write("bad.txt", "mended")
    bench.build(store)
    assert store.document("docs/bad.txt").chars == 6
    (bench.folder / "copy.txt").unlink()
    bench.build(store)
    assert store.skipped()[0] == []


def test_a_document_that_breaks_is_no_longer_served(bench):
    bench.write("a.txt", "It was fine.")
    store = bench.build()
    bench.write("a.txt", "boom")
    bench.build(store)

    assert store.documents()[0] == [] and bench.indexed() == {}
    assert store.progress().state == "empty"


def test_a_root_that_cannot_be_reached_keeps_its_documents(bench):
    bench.write("a.txt", "Kept.")
    store = bench.build()
    bench.folder.rename(bench.folder.with_name("away"))
    bench.build(store)

    assert [d.path for d in store.documents()[0]] == ["docs/a.txt"]
    assert any("cannot be reached" in warning for warning in store.progress().warnings)
    assert store.freshness([store.document("docs/a.txt").document_id]) == {1: "unreadable"}
    bench.folder.with_name("away").rename(bench.folder)
    bench.build(store)
    assert not store.progress().warnings


def test_a_root_taken_out_of_the_workspace_takes_its_documents_along(bench, tmp_path):
    bench.write("a.txt", "Stays.")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("Goes.")
    (other / "c.txt").write_text("boom")
    store = bench.store()
    bench.build(store, roots=(*bench.roots(), Root("other", str(other))))
    assert set(bench.indexed()) == {"docs/a.txt", "other/b.txt"}
    bench.build(store)

    assert set(bench.indexed()) == {"docs/a.txt"}
    assert store.skipped()[0] == []


def test_no_files_is_a_warning(bench):
    store = bench.build()

    assert store.progress().state == "empty"
    assert any("No document was found" in warning for warning in store.progress().warnings)


def test_a_cancelled_build_goes_on_from_where_it_was(bench):
    for number in range(20):
        bench.write(f"{number:02}.txt", prose(5, str(number)))
    stop = []
    bench.readers.before = lambda name: stop.append(name) if name == "10.txt" else None
    store = bench.build(cancel=lambda: bool(stop), workers=1)
    done = {d.path for d in store.documents()[0]}

    assert store.progress().state == "stale" and 0 < len(done) < 20
    assert bench.indexed().keys() == done
    bench.readers.before = lambda name: None
    bench.readers.read.clear()
    bench.build(store)
    assert len(store.documents()[0]) == 20 and len(bench.readers.read) == 20 - len(done)


def test_a_new_chunk_set_reads_no_file_and_leaves_passages_alone(bench):
    bench.write("a.txt", prose(100))
    store = bench.build()
    bench.readers.read.clear()
    passages = store.passages_of(1)
    small = ChunkSet(32, 8)
    told = []
    assert not store.has_chunk_set(small)
    assert store.ensure_chunk_set(small, progress=lambda done, total: told.append((done, total)))

    assert store.has_chunk_set(small) and told == [(1, 1)] and bench.readers.read == []
    assert store.passages_of(1) == passages and store.chunk_count(small) > store.chunk_count(SET)
    first = store.chunk_at(small, 0)
    assert store.position_of(first.chunk_id, SET) == (0, store.chunk_count(SET))
    bench.write("b.txt", prose(50))
    bench.build(store)
    assert store.has_chunk_set(small)


def test_only_one_builds_at_a_time(bench):
    bench.write("a.txt", "One.")
    store = bench.store()
    lease = Lease.take(store.connections)
    assert lease is not None and Lease.take(store.connections) is None
    build(store, bench.plan())
    assert store.documents()[0] == []
    lease.give_back()
    build(store, bench.plan())
    assert len(store.documents()[0]) == 1


def test_a_build_goes_before_another_process_third_tier(bench):
    """Else `pensieve index` would say ready without having looked (found with two runs at once)."""
    bench.write("a.txt", "One.")
    store = bench.store()
    lease = Lease.take(store.connections, doing="upgrade")
    assert lease is not None
    seen = threading.Event()

    def let_go() -> None:
        while not lease.is_wanted():
            seen.wait(0.01)
        lease.give_back()

    upgrading = threading.Thread(target=let_go)
    upgrading.start()
    assert build(store, bench.plan()).state == "ready"
    upgrading.join()
    assert len(store.documents()[0]) == 1


def test_whoever_holds_the_lease_to_build_is_seen_building_before_its_first_word(bench):
    store = bench.store()
    assert store.progress().state == "empty"
    lease = Lease.take(store.connections)
    assert lease is not None
    assert store.progress().state == "building"
    lease.give_back()
    assert store.progress().state == "empty"


def test_a_builder_that_lost_its_lease_publishes_nothing(bench):
    bench.write("a.txt", "One.")
    store = bench.store()

    def robbed(name):
        with store.connections.writing() as db:
            db.conn.execute("UPDATE lease SET token = 'another', fence = fence + 1")

    bench.readers.before = robbed
    with pytest.raises(LeaseLost):
        build(store, bench.plan())
    assert store.documents()[0] == [] and bench.indexed() == {}


def test_a_full_disk_is_told_and_leaves_what_was_published(bench, monkeypatch):
    bench.write("a.txt", prose(50))
    store = bench.build()
    before = texts(store)
    with store.connections.writing() as db:
        pages = db.conn.execute("PRAGMA page_count").fetchone()[0]
    bench.write("b.txt", os.urandom(200_000).hex())
    real = store.connections.writing

    from contextlib import contextmanager

    @contextmanager
    def small_disk():
        with real() as db:
            db.conn.execute(f"PRAGMA max_page_count = {pages + 4}")
            yield db

    monkeypatch.setattr(store.connections, "writing", small_disk)
    with pytest.raises(StorageError, match="full"):
        build(store, bench.plan())
    monkeypatch.undo()
    assert texts(store) == before and store.progress().state == "failed"

    store = bench.store()
    bench.build(store)
    assert len(store.documents()[0]) == 2 and store.progress().state == "ready"


def test_a_rebuild_indexes_what_cannot_be_read_again(bench, tmp_path):
    bench.write("a.txt", "Here.")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("On a disk that is away.")
    roots = (*bench.roots(), Root("other", str(other)))
    store = bench.store()
    bench.build(store, roots=roots)
    other.rename(tmp_path / "away")
    bench.build(store, roots=roots, rebuild=True)

    assert bench.indexed() == {"docs/a.txt": "Here.", "other/b.txt": "On a disk that is away."}


def test_another_chunker_rebuilds_and_says_why(bench, monkeypatch):
    bench.write("a.txt", prose(10))
    store = bench.build()
    bench.readers.read.clear()
    assert store.why_stale(bench.extractors) == ""
    monkeypatch.setattr("pensieve_mcp.corpus.schema.CHUNKER", "atoms-9")
    assert "chunker changed from atoms-1 to atoms-9" in store.why_stale(bench.extractors)
    bench.build(store)

    assert bench.readers.read == ["a.txt"]
    assert bench.indexed() == {"docs/a.txt": prose(10)}
    assert any("chunker changed from" in warning for warning in store.progress().warnings)


OLDER, NEWER = "pensieve-statelm 0.9.1", "pensieve-statelm 0.10.0"


def test_two_versions_on_one_workspace_do_not_read_it_all_again_in_turn(bench, monkeypatch):
    """The newer one decides; the older one serves what is there, takes up changes, and says what is the matter."""
    bench.write("a.txt", prose(10))
    store = bench.build(program=OLDER)
    bench.readers.read.clear()

    with monkeypatch.context() as other:
        other.setattr("pensieve_mcp.corpus.schema.CHUNKER", "atoms-9")
        bench.build(store, program=NEWER)
        assert bench.readers.read == ["a.txt"], "an update is made once"
    bench.readers.read.clear()
    bench.write("b.txt", "A new page.")
    bench.build(store, program=OLDER)
    assert bench.readers.read == ["b.txt"], "only what is new"
    (warning,) = [one for one in store.progress().warnings if "newer" in one]
    assert NEWER in warning and OLDER in warning and "pensieve doctor" in warning
    assert store.progress().state == "ready" and bench.indexed()["docs/b.txt"] == "A new page."

    bench.readers.read.clear()
    with monkeypatch.context() as other:
        other.setattr("pensieve_mcp.corpus.schema.CHUNKER", "atoms-9")
        bench.build(store, program=NEWER)
    assert "a.txt" not in bench.readers.read
    assert not [one for one in store.progress().warnings if "newer" in one]

    bench.readers.read.clear()
    bench.build(store, program=OLDER, rebuild=True)
    assert sorted(bench.readers.read) == ["a.txt", "b.txt"], "who asks for it gets it"


@pytest.mark.parametrize("program", ["", "pensieve-statelm, not installed", OLDER])
def test_an_older_or_unknown_maker_is_no_hindrance(bench, monkeypatch, program):
    bench.write("a.txt", prose(10))
    store = bench.build(program=program)
    bench.readers.read.clear()
    monkeypatch.setattr("pensieve_mcp.corpus.schema.CHUNKER", "atoms-9")
    bench.build(store, program=OLDER)

    assert bench.readers.read == ["a.txt"]


def test_an_index_of_a_newer_format_is_not_thrown_away_by_an_older_program(bench):
    bench.write("a.txt", prose(10))
    store = bench.build(program=NEWER)

    def other_format(folder):
        raise IndexMismatch("The index is of format 9.", hint="Build it again.", slug="other_version")

    with pytest.raises(IndexMismatch, match=f"format 9. It was made by {NEWER}") as refused:
        bench.build(store, program=OLDER, open_index=other_format)
    assert "Update" in refused.value.hint
    assert store.progress().state == "ready", "for the newer program all is well"
    assert bench.indexed() == {"docs/a.txt": prose(10)}


def test_freshness_looks_at_the_content_when_only_the_time_changed(bench):
    path = bench.write("a.txt", "Same.")
    bench.write("b.txt", "Before")
    store = bench.build()
    os.utime(path, (1, 1))
    bench.write("b.txt", "After!")

    assert store.freshness([1, 2, 77]) == {1: "yes", 2: "changed", 77: "gone"}
    path.unlink()
    assert store.freshness([1]) == {1: "gone"}


def test_a_build_below_a_path_leaves_the_rest_for_later(bench):
    bench.write("a/one.txt", "One.")
    bench.write("b/two.txt", "Two.")
    store = bench.store()
    build(store, dataclasses.replace(bench.plan(), under=("docs/a",)))
    assert [document.path for document in store.documents()[0]] == ["docs/a/one.txt"]
    build(store, bench.plan())
    assert len(store.documents()[0]) == 2
    (bench.folder / "b" / "two.txt").unlink()
    bench.write("a/one.txt", "One, changed.")
    build(store, dataclasses.replace(bench.plan(), under=("docs/a",)))
    assert len(store.documents()[0]) == 2
    build(store, bench.plan())
    assert [document.path for document in store.documents()[0]] == ["docs/a/one.txt"]

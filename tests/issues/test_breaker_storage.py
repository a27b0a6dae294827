"""What became of a workspace when its files were moved, deleted, damaged or replaced: nothing is lost without a word."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import Basin, Connections, Migration
from pensieve_mcp.workspace import Workspace

from .conftest import Pensieve

BASIN = Basin("things", (Migration("things", "for this test", "CREATE TABLE things (name TEXT)"),))
SIDES = ("", "-wal", "-shm")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows does not let go of the name of an open file")


def put(connections: Connections, name: str) -> None:
    with connections.writing() as db:
        db.conn.execute("INSERT INTO things VALUES (?)", (name,))


def names(connections: Connections) -> list[str]:
    with connections.reading() as db:
        return [row[0] for row in db.conn.execute("SELECT name FROM things ORDER BY rowid")]


def stored(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    try:
        return [row[0] for row in db.execute("SELECT name FROM things ORDER BY rowid")]
    finally:
        db.close()


def take_away(path: Path) -> None:
    for side in SIDES:
        path.with_name(path.name + side).unlink(missing_ok=True)


def open_workspace(folder: Path, state: Path) -> Workspace:
    return Workspace.open([folder], state=state, environment=os.environ, builder="inline")


def found(workspace: Workspace, words: str) -> list[int]:
    chunk_set = workspace.default_chunk_set
    answer = workspace.search([words], mode="lexical", under=(), passages=5, chunk_set=chunk_set)
    return [hit.document_id for hit in answer.hits]


# -- 1: a note confirmed into a file that was no longer there ------------------------------------------------


def test_writing_to_a_precious_file_that_was_deleted_is_refused_once_and_then_begins_anew(
    tmp_path: Path,
) -> None:
    pool = Connections(tmp_path / "a.db", basins=(BASIN,), precious=True)
    put(pool, "before")
    take_away(tmp_path / "a.db")
    with pytest.raises(StorageError) as told:
        put(pool, "lost?")
    assert told.value.slug == "storage_vanished" and "not stored" in told.value.message
    put(pool, "after")
    assert names(pool) == ["after"]
    pool.close()
    assert stored(tmp_path / "a.db") == ["after"]


def test_what_was_confirmed_goes_with_the_file_that_was_moved_away(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "a.db", basins=(BASIN,), precious=True)
    put(pool, "before")
    (tmp_path / "a.db").rename(tmp_path / "moved.db")
    with pytest.raises(StorageError, match="moved, deleted or replaced"):
        names(pool)
    assert names(pool) == []
    pool.close()
    assert stored(tmp_path / "moved.db") == ["before"]


def test_a_file_that_disappears_inside_a_transaction_confirms_nothing(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "a.db", basins=(BASIN,), precious=True)
    put(pool, "before")
    with pytest.raises(StorageError, match="not stored"), pool.writing() as db:
        db.conn.execute("INSERT INTO things VALUES ('lost')")
        take_away(tmp_path / "a.db")
    pool.close()


def test_another_file_in_its_place_is_the_one_that_is_read_and_written(tmp_path: Path) -> None:
    backup = Connections(tmp_path / "backup.db", basins=(BASIN,), precious=True)
    put(backup, "of the backup")
    backup.close()
    pool = Connections(tmp_path / "a.db", basins=(BASIN,), precious=True)
    dropped: list[bool] = []
    pool.when_replaced(lambda: dropped.append(True))
    put(pool, "before")
    pulse = pool.pulse()
    take_away(tmp_path / "a.db")
    (tmp_path / "backup.db").rename(tmp_path / "a.db")
    assert names(pool) == ["of the backup"] and dropped == [True]
    put(pool, "after")
    assert pulse.moved() and not pulse.moved()
    put(pool, "later")
    assert pulse.moved()
    pulse.close()
    pool.close()
    assert stored(tmp_path / "a.db") == ["of the backup", "after", "later"]


def test_a_whole_state_folder_that_is_gone_is_told_until_it_is_there_again(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    pool = Connections(tmp_path / "state" / "a.db", basins=(BASIN,), precious=True)
    put(pool, "before")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StorageError, match="moved, deleted or replaced"):
        put(pool, "lost?")
    pool.close()


def test_conversations_kept_in_memory_are_those_of_the_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a.md").write_text("alpha", encoding="utf-8")
    with open_workspace(tmp_path / "r", tmp_path / "s") as workspace:
        number = workspace.ledger.open_episode("mcp").episode_id
        workspace.ledger.transcript(number)
        take_away(tmp_path / "s" / "pensieve.db")
        with pytest.raises(StorageError, match="moved, deleted or replaced"):
            workspace.ledger.transcript(number)
        assert workspace.ledger.episodes() == []
        assert workspace.ledger._folders == {}


# -- 4: the corpus and the index deleted under a running server ----------------------------------------------


@pytest.mark.parametrize("parts", [("corpus.db",), ("index",), ("corpus.db", "index")])
def test_what_was_deleted_under_a_reader_is_found_again_once_it_is_built_anew(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    (tmp_path / "r").mkdir()
    for number in range(4):
        (tmp_path / "r" / f"d{number}.md").write_text(f"# doc\nwombat alpha{number}\n", encoding="utf-8")
    with open_workspace(tmp_path / "r", tmp_path / "s") as reader:
        reader.build()
        assert len(found(reader, "alpha3")) == 1
        for part in parts:
            place = tmp_path / "s" / part
            shutil.rmtree(place) if place.is_dir() else take_away(place)
        with open_workspace(tmp_path / "r", tmp_path / "s") as builder:
            builder.build()
        assert len(found(reader, "alpha3")) == 1
        (tmp_path / "r" / "new.md").write_text("newcomer", encoding="utf-8")
        with open_workspace(tmp_path / "r", tmp_path / "s") as builder:
            builder.build()
        assert len(found(reader, "newcomer")) == 1

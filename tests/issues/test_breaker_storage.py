"""A workspace whose files are moved, deleted, damaged or replaced: nothing is lost without a word."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from pensieve_mcp import storage
from pensieve_mcp.errors import StorageError, WorkspaceError
from pensieve_mcp.index.full_disk import telling_full
from pensieve_mcp.index.vector_files import read_manifest
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


# -- 16: a damaged corpus.db -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("index",), ("workspace", "rebuild")])
def test_a_damaged_corpus_is_made_anew_and_chunk_ids_stay(
    pensieve: Pensieve, documents: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    state = tmp_path / "s"
    assert pensieve("--state", state, "index", documents).code == 0
    before = pensieve("--state", state, "search", "--mode", "lexical", "florins").out
    take_away(state / "corpus.db")
    (state / "corpus.db").write_bytes(b"\x93not a database" * 6_000)
    told = pensieve("--state", state, *command)
    assert told.code == 0, told.err
    assert pensieve("--state", state, "search", "--mode", "lexical", "florins").out == before
    if command == ("index",):
        assert (state / "corpus.db.damaged").read_bytes().startswith(b"\x93not")


def test_a_sound_corpus_is_never_set_aside(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "a.db", basins=(BASIN,))
    put(pool, "one")
    assert not storage.set_aside_if_damaged(tmp_path / "a.db")
    assert names(pool) == ["one"]
    pool.close()


# -- 17: a precious file that is begun anew --------------------------------------------------------------------


@pytest.mark.parametrize("empty", [True, False])
def test_a_lost_notebook_is_told_when_others_show_that_it_existed(
    pensieve: Pensieve, documents: Path, tmp_path: Path, empty: bool
) -> None:
    state = tmp_path / "s"
    assert pensieve("--state", state, "index", documents).code == 0
    assert "begun anew" not in pensieve("--state", state, "doctor").out
    take_away(state / "pensieve.db")
    if empty:
        (state / "pensieve.db").touch()
    pensieve("--state", state, "note", "list")
    doctor = pensieve("--state", state, "doctor")
    assert "pensieve.db was missing or empty" in doctor.out and "message numbers begin at m1" in doctor.out
    assert "pensieve.db was missing or empty" in json.dumps(
        pensieve("--state", state, "status", "--json").data["warnings"]
    )


def test_a_new_workspace_has_lost_nothing(pensieve: Pensieve, documents: Path, tmp_path: Path) -> None:
    state = tmp_path / "s"
    pensieve("--state", state, "index", documents)
    pensieve("--state", state, "cast", "searchEngine", "keyword=rent")
    pensieve("--state", state, "note", "write", "k", "v")
    assert not (state / "begun_anew.json").exists()


# -- 18: files of a newer version ------------------------------------------------------------------------------


def made_by_a_newer_program(path: Path) -> None:
    db = sqlite3.connect(path)
    with db:
        for (basin,) in db.execute("SELECT basin FROM _pensieve_basins").fetchall():
            last = db.execute(
                "SELECT max(number) FROM _pensieve_migrations WHERE basin = ?", (basin,)
            ).fetchone()
            db.execute(
                "INSERT INTO _pensieve_migrations VALUES (?, ?, 'future', 'r', 'pensieve 9.9', '')",
                (basin, last[0] + 1),
            )
            db.execute(
                "UPDATE _pensieve_basins SET oldest_writer = ?, program = 'pensieve 9.9' WHERE basin = ?",
                (last[0] + 1, basin),
            )
    db.close()


@pytest.mark.parametrize("name", ["pensieve.db", "corpus.db"])
def test_doctor_does_not_call_a_file_of_a_newer_version_sound(
    pensieve: Pensieve, documents: Path, tmp_path: Path, name: str
) -> None:
    state = tmp_path / "s"
    assert pensieve("--state", state, "index", documents).code == 0
    made_by_a_newer_program(state / name)
    doctor = pensieve("--state", state, "doctor")
    assert f"BAD   {name}: " in doctor.out and "pensieve 9.9" in doctor.out


def test_a_newer_corpus_is_refused_with_the_way_out_and_a_rebuild_is_that_way(
    pensieve: Pensieve, documents: Path, tmp_path: Path
) -> None:
    state = tmp_path / "s"
    assert pensieve("--state", state, "index", documents).code == 0
    made_by_a_newer_program(state / "corpus.db")
    refused = pensieve("--state", state, "index")
    assert refused.code != 0 and "pensieve workspace rebuild" in refused.err
    assert pensieve("--state", state, "workspace", "rebuild").code == 0
    assert pensieve("--state", state, "index").code == 0


# -- 19: a full disk -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("An IO error occurred: 'No space left on device (os error 28)'"),
        StorageError("The word index cannot be used: IoError { … code: 28, kind: StorageFull }"),
    ],
)
def test_a_full_disk_is_never_told_as_damage(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(StorageError) as told, telling_full(tmp_path):
        raise error
    assert told.value.slug == "storage_full" and "Delete" not in told.value.hint
    with pytest.raises(ValueError, match="another"), telling_full(tmp_path):
        raise ValueError("another")


def test_a_build_on_a_full_disk_says_so(
    pensieve: Pensieve, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pensieve_mcp.index import vectors

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(vectors, "publish", full)
    told = pensieve("--state", tmp_path / "s", "index", documents)
    assert told.code != 0 and "disk is full" in told.err and "Delete" not in told.err
    monkeypatch.undo()


# -- 20: garbage in an error text ------------------------------------------------------------------------------


def test_a_garbage_manifest_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"\x80 garbage " * 5_000)
    with pytest.raises(StorageError) as told:
        read_manifest(tmp_path)
    assert len(str(told.value)) < 600 + 2 * len(str(tmp_path))


# -- 22: state folders that are none, or may not be written ------------------------------------------------------


@pytest.mark.parametrize("place", [os.devnull, "file", "file/inside"])
def test_a_state_folder_that_is_a_file_is_told_in_words(documents: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    state = place if place == os.devnull else tmp_path / place
    with pytest.raises(WorkspaceError) as told:
        Workspace.open([documents], state=state, environment=os.environ)
    assert (
        told.value.slug in ("state_not_a_folder", "state_not_writable") and "Errno" not in told.value.message
    )


def test_what_may_not_be_written_to_is_read_and_writing_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Connections(tmp_path / "a.db", basins=(BASIN,), precious=True)
    put(first, "before")
    first.close()
    connect = storage._connect

    def forbidden(path: Path, flags: str, precious: bool) -> storage.Connection:
        if "mode=rw" in flags:  # as SQLite does in a folder without write permission
            raise StorageError(f"{path} cannot be opened.", slug="storage_unopenable")
        return connect(path, flags, precious)

    monkeypatch.setattr(storage, "_connect", forbidden)
    pool = Connections(tmp_path / "a.db", basins=(BASIN,), precious=True)
    assert names(pool) == ["before"] and names(pool) == ["before"]
    with pytest.raises(StorageError, match="cannot be opened"):
        put(pool, "refused")
    assert names(pool) == ["before"]
    monkeypatch.undo()
    put(pool, "mended")
    pool.close()
    assert stored(tmp_path / "a.db") == ["before", "mended"]


def test_an_index_that_may_not_be_written_to_is_not_called_damaged(tmp_path: Path) -> None:
    from pensieve_mcp.index.lexical import worded

    said = 'Failed to acquire Lockfile: IoError(Os { code: 13, kind: PermissionDenied, message: "…" }). None'
    with pytest.raises(StorageError) as told, worded(tmp_path):
        raise ValueError(said)
    assert told.value.slug == "storage_read_only" and "Delete" not in told.value.hint


def test_a_state_folder_without_write_permission_is_searched_or_refused_in_words(
    pensieve: Pensieve, documents: Path, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    state = tmp_path / "s"
    assert pensieve("--state", state, "index", documents).code == 0
    assert pensieve("--state", state, "note", "write", "k", "v").code == 0
    for place in (state, *state.rglob("*")):
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        assert "k" in pensieve("--state", state, "note", "list").out
        refused = pensieve("--state", state, "note", "write", "k", "w")
        assert refused.code != 0 and "cannot be written to" in refused.err
        searched = pensieve("--state", state, "search", "florins")
        assert searched.code == 0 or "may not be written to" in searched.err
    finally:
        for place in (state, *state.rglob("*")):
            place.chmod(0o700 if place.is_dir() else 0o600)

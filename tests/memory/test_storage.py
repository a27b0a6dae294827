"""Storage: two processes, sudden death, full disks, damage, newer versions."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pensieve_mcp import storage
from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import (
    Basin,
    Connections,
    Migration,
    integrity,
    location_warnings,
    migrate,
    open_database,
    reading,
    shrink,
    writing,
)

ITEMS = Migration(
    "items", "Something to write.", "CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"
)
MORE = Migration("more", "A second table.", "CREATE TABLE more (x); CREATE INDEX more_x ON more (x);")
LATER = Migration("later", "Only newer programs know it.", "ALTER TABLE items ADD COLUMN extra TEXT")
ONE = Basin("box", (ITEMS,))

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX modes and signals")

Start = Callable[..., subprocess.Popen[str]]


def count(path: Path, table: str = "items") -> int:
    db = open_database(path, read_only=True)
    try:
        return int(db.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        db.conn.close()


def test_a_new_database_is_durable_private_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "state" / "deep" / "box.db"
    db = open_database(path, precious=True)

    assert db.conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert db.conn.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert db.conn.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    assert db.conn.execute("PRAGMA busy_timeout").fetchone()[0] == 10_000
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        migrate(db, "box", [ITEMS])
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    db.conn.close()


@posix
def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "box.db"
    path.touch(0o644)
    path.chmod(0o644)
    open_database(path).conn.close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_raises_leaves_nothing(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE])
    with pytest.raises(ZeroDivisionError), pool.writing() as db:
        db.conn.execute("INSERT INTO items (text) VALUES ('half')")
        raise ZeroDivisionError
    with pool.reading() as db:
        assert db.conn.execute("SELECT count(*) FROM items").fetchone()[0] == 0
    pool.close()


def test_writing_does_not_nest_and_reading_inside_sees_what_was_written(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE])
    with pool.writing() as db:
        db.conn.execute("INSERT INTO items (text) VALUES ('mine')")
        with pool.reading() as inside:
            assert inside.conn.execute("SELECT text FROM items").fetchone()[0] == "mine"
        with pytest.raises(RuntimeError, match="nest"), pool.writing():
            pass
        with pytest.raises(RuntimeError, match="nest"), writing(db):
            pass
    assert count(pool.path) == 1
    pool.close()


def test_a_reader_sees_one_state_and_cannot_write(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE])
    other = open_database(pool.path)
    with pool.reading() as db:
        before = db.conn.execute("SELECT count(*) FROM items").fetchone()[0]
        with writing(other):
            other.conn.execute("INSERT INTO items (text) VALUES ('new')")
        assert db.conn.execute("SELECT count(*) FROM items").fetchone()[0] == before
        with pytest.raises(StorageError):
            db.conn.execute("INSERT INTO items (text) VALUES ('sly')")
    assert count(pool.path) == 1
    other.conn.close()
    pool.close()


def test_many_threads_share_a_pool(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE])
    errors: list[Exception] = []

    def work(name: int) -> None:
        try:
            for number in range(10):
                with pool.writing() as db:
                    db.conn.execute("INSERT INTO items (text) VALUES (?)", (f"{name}-{number}",))
                with pool.reading() as db:
                    db.conn.execute("SELECT count(*) FROM items").fetchone()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    assert count(pool.path) == 80
    pool.close()
    with pytest.raises(StorageError) as closed, pool.reading():
        pass
    assert closed.value.slug == "storage_closed"


OPEN_AND_WRITE = """
import sys
from pathlib import Path
from pensieve_mcp.storage import Basin, Connections, Migration
items = Migration("items", "why", "CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
pool = Connections(Path(sys.argv[1]), basins=[Basin("box", (items,))], precious=True)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    with pool.writing() as db:
        have = db.conn.execute("SELECT count(*) FROM items").fetchone()[0]
        db.conn.execute("INSERT INTO items (text) VALUES (?)", (f"{sys.argv[2]} {have}",))
    print(number, flush=True)
"""


def test_two_processes_open_for_the_first_time_at_once_and_both_write(tmp_path: Path, child: Start) -> None:
    for attempt in range(3):
        path = tmp_path / f"state{attempt}" / "box.db"
        both = [child(OPEN_AND_WRITE, path, name, 50) for name in "ab"]
        for process in both:
            assert process.stdout is not None and process.stdin is not None
            assert process.stdout.readline() == "ready\n"
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in both:
            _, complaint = process.communicate()
            assert process.returncode == 0, complaint

        assert count(path) == 100
        db = open_database(path)
        numbers = [int(row[0].split()[1]) for row in db.conn.execute("SELECT text FROM items")]
        assert sorted(numbers) == list(range(100)), "each read-then-write saw all that came before"
        assert db.conn.execute("SELECT count(*) FROM _pensieve_migrations").fetchone()[0] == 1
        db.conn.close()


WRITE_UNTIL_KILLED = """
import sys
from pathlib import Path
from pensieve_mcp.storage import open_database, writing
db = open_database(Path(sys.argv[1]), precious=True)
for number in range(10**6):
    with writing(db):
        db.conn.executemany("INSERT INTO items (text) VALUES (?)", [(f"{number}",)] * 20)
        if number == int(sys.argv[2]):
            print("inside", flush=True)
            sys.stdin.readline()
    print(number, flush=True)
"""


@posix
def test_killed_inside_a_write_the_confirmed_ones_are_there_and_no_half(tmp_path: Path, child: Start) -> None:
    path = tmp_path / "box.db"
    db = open_database(path, precious=True)
    migrate(db, "box", [ITEMS])
    process = child(WRITE_UNTIL_KILLED, path, 7)
    assert process.stdout is not None
    confirmed = -1
    for line in process.stdout:
        if line == "inside\n":
            break
        confirmed = int(line)
    process.kill()
    process.wait()

    assert confirmed == 6
    assert db.conn.execute("SELECT count(*) FROM items").fetchone()[0] == 7 * 20
    with writing(db):  # the lock died with its owner
        db.conn.execute("INSERT INTO items (text) VALUES ('after')")
    assert integrity(db) == []
    db.conn.close()


def test_a_lock_that_is_held_too_long_becomes_a_worded_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "BUSY_SECONDS", 0.05)
    holder, waiter = open_database(tmp_path / "box.db"), open_database(tmp_path / "box.db")
    migrate(holder, "box", [ITEMS])
    with writing(holder), pytest.raises(StorageError) as caught, writing(waiter):
        pass
    assert caught.value.slug == "storage_locked"
    assert "box.db" in caught.value.message and caught.value.hint
    holder.conn.close()
    waiter.conn.close()


def test_a_full_database_keeps_what_was_confirmed(tmp_path: Path) -> None:
    """SQLite's own page limit gives the same error as a full disk."""
    db = open_database(tmp_path / "box.db")
    migrate(db, "box", [ITEMS])
    with writing(db):
        db.conn.execute("INSERT INTO items (text) VALUES ('first')")
    pages = db.conn.execute("PRAGMA page_count").fetchone()[0]
    db.conn.execute(f"PRAGMA max_page_count = {pages + 2}")

    with pytest.raises(StorageError) as caught, writing(db):
        for _ in range(100):
            db.conn.execute("INSERT INTO items (text) VALUES (?)", ("x" * 4_000,))
    assert caught.value.slug == "storage_full"
    assert "free" in caught.value.hint.lower()
    assert [row[0] for row in db.conn.execute("SELECT text FROM items")] == ["first"]
    db.conn.execute("PRAGMA max_page_count = 1000000")
    with writing(db):
        db.conn.execute("INSERT INTO items (text) VALUES ('room again')")
    assert count(tmp_path / "box.db") == 2
    db.conn.close()


FILE_SIZE_LIMIT = """
import resource, signal, sys
from pathlib import Path
from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import open_database, writing
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
db = open_database(Path(sys.argv[1]), precious=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for number in range(10_000):
        with writing(db):
            db.conn.execute("INSERT INTO items (text) VALUES (?)", ("x" * 4_000,))
        print(number, flush=True)
except StorageError as error:
    print(error.slug, flush=True)
"""


@posix
def test_a_disk_that_takes_no_more_is_told_and_nothing_confirmed_is_lost(
    tmp_path: Path, child: Start
) -> None:
    db = open_database(tmp_path / "box.db")
    migrate(db, "box", [ITEMS])
    said, complaint = child(FILE_SIZE_LIMIT, tmp_path / "box.db").communicate()
    *numbers, slug = said.split()

    assert slug in ("storage_full", "storage_io"), said + complaint
    assert numbers
    assert db.conn.execute("SELECT count(*) FROM items").fetchone()[0] == len(numbers)
    assert integrity(db) == []
    db.conn.close()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "box.db"
    path.write_text("dear diary, " * 1_000)
    with pytest.raises(StorageError) as caught:
        open_database(path)
    assert caught.value.slug == "storage_corrupt"
    assert path.read_text().startswith("dear diary"), "it is somebody's file"


def test_damage_is_found_and_worded(tmp_path: Path) -> None:
    path = tmp_path / "box.db"
    db = open_database(path)
    migrate(db, "box", [ITEMS])
    with writing(db):
        db.conn.executemany("INSERT INTO items (text) VALUES (?)", [(f"{n} " * 200,) for n in range(300)])
    shrink(db)
    assert integrity(db) == []
    db.conn.close()
    raw = bytearray(path.read_bytes())
    for place in range(4096 * 5, len(raw), 4096):
        raw[place : place + 200] = b"\xff" * 200
    path.write_bytes(raw)

    db = open_database(path)
    assert integrity(db)
    with pytest.raises(StorageError) as caught, reading(db):
        db.conn.execute("SELECT sum(length(text)) FROM items").fetchone()
    assert caught.value.slug == "storage_corrupt"
    assert "backup" in caught.value.hint
    db.conn.close()


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "box.db").mkdir()
    with pytest.raises(StorageError) as caught:
        open_database(tmp_path / "box.db")
    assert caught.value.slug == "storage_unopenable"


def test_a_missing_file_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        open_database(tmp_path / "state" / "box.db", read_only=True)
    assert caught.value.slug == "storage_missing"
    assert list(tmp_path.iterdir()) == []


IN_A_LOCKED_FOLDER = """
import os, sys
from pathlib import Path
from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import open_database, writing
path = Path(sys.argv[1])
if os.getuid() == 0:
    open_database(Path(sys.argv[2])).conn.close()  # loads what it needs while this user may still read it
    os.setuid(65534)
try:
    db = open_database(path)
    with writing(db):
        pass
except StorageError as error:
    print(error.slug)
db = open_database(path, read_only=True)
print(db.conn.execute("SELECT count(*) FROM items").fetchone()[0])
try:
    with writing(db):
        pass
except StorageError as error:
    print(error.slug)
"""


@posix
def test_a_folder_without_write_permission_can_be_read(tmp_path: Path, child: Start) -> None:
    # Not under tmp_path: its parents are closed to the other user that a root test run turns into.
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp())
    try:
        db = open_database(folder / "box.db")
        migrate(db, "box", [ITEMS])
        db.conn.close()
        (folder / "box.db").chmod(0o444)
        folder.chmod(0o555)
        said, complaint = child(IN_A_LOCKED_FOLDER, folder / "box.db", tmp_path / "other.db").communicate()
        assert said.split()[1:] == ["0", "storage_read_only"], said + complaint
        assert said.split()[0] in ("storage_read_only", "storage_unopenable")
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


# --- migrations -------------------------------------------------------------------------------------------


def test_migrations_are_applied_once_in_order_with_their_reasons(tmp_path: Path) -> None:
    db = open_database(tmp_path / "box.db")
    assert migrate(db, "box", [ITEMS])
    assert migrate(db, "box", [ITEMS, MORE])
    assert migrate(db, "box", [ITEMS, MORE])

    rows = db.conn.execute("SELECT number, name, reason FROM _pensieve_migrations ORDER BY number").fetchall()
    assert rows == [(1, "items", "Something to write."), (2, "more", "A second table.")]
    db.conn.close()


def test_a_migration_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    db = open_database(tmp_path / "box.db")
    migrate(db, "box", [ITEMS])
    broken = Migration("broken", "why", "CREATE TABLE fine (x); CREATE TABLE items (x);")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(db, "box", [ITEMS, broken])

    assert db.conn.execute("SELECT name FROM sqlite_master WHERE name = 'fine'").fetchone() is None
    assert migrate(db, "box", [ITEMS, MORE])
    db.conn.close()


@pytest.mark.parametrize(
    "sql", ["DROP TABLE items", "ALTER TABLE items RENAME TO things", "delete  from items"]
)
def test_a_migration_may_only_expand(sql: str) -> None:
    with pytest.raises(ValueError, match="expand"):
        Migration("bad", "why", sql)


def test_basins_migrate_each_on_its_own(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE, Basin("other", (MORE,))])
    with pool.reading() as db:
        assert db.conn.execute("SELECT count(*) FROM items").fetchone()[0] == 0
        assert db.conn.execute("SELECT count(*) FROM more").fetchone()[0] == 0
    pool.close()


def test_an_older_program_may_write_what_a_newer_one_only_expanded(tmp_path: Path) -> None:
    newer = open_database(tmp_path / "box.db")
    migrate(newer, "box", [ITEMS, LATER], oldest_writer=1)
    older = open_database(tmp_path / "box.db")

    assert migrate(older, "box", [ITEMS])
    with writing(older):
        older.conn.execute("INSERT INTO items (text) VALUES ('old hand')")
    assert newer.conn.execute("SELECT text, extra FROM items").fetchall() == [("old hand", None)]
    newer.conn.close()
    older.conn.close()


def test_an_older_program_reads_but_does_not_write_what_needs_a_newer_one(tmp_path: Path) -> None:
    newer = open_database(tmp_path / "box.db")
    migrate(newer, "box", [ITEMS, LATER], oldest_writer=2)
    with writing(newer):
        newer.conn.execute("INSERT INTO items (text) VALUES ('new hand')")
    older = open_database(tmp_path / "box.db")

    assert not migrate(older, "box", [ITEMS])
    assert older.conn.execute("SELECT text FROM items").fetchone()[0] == "new hand"
    with pytest.raises(StorageError) as caught, writing(older):
        pass
    assert caught.value.slug == "storage_newer"
    assert "newer version" in caught.value.message and "Update" in caught.value.hint
    with pytest.raises(StorageError):
        older.conn.execute("INSERT INTO items (text) VALUES ('past the door')")
    newer.conn.close()
    older.conn.close()


def test_a_newer_program_that_comes_while_an_older_one_runs_is_noticed(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE])
    with pool.writing() as db:
        db.conn.execute("INSERT INTO items (text) VALUES ('before')")
    newer = open_database(pool.path)
    migrate(newer, "box", [ITEMS, LATER], oldest_writer=2)

    with pytest.raises(StorageError) as caught, pool.writing() as db:
        db.conn.execute("INSERT INTO items (text) VALUES ('too late')")
    assert caught.value.slug == "storage_newer"
    assert count(pool.path) == 1
    newer.conn.close()
    pool.close()


def test_a_read_only_file_that_lacks_tables_says_so(tmp_path: Path) -> None:
    db = open_database(tmp_path / "box.db")
    migrate(db, "box", [ITEMS])
    db.conn.close()
    pool = Connections(tmp_path / "box.db", basins=[Basin("box", (ITEMS, MORE))], read_only=True)
    with pytest.raises(StorageError) as caught, pool.reading():
        pass
    assert caught.value.slug == "storage_outdated"
    pool.close()


def test_a_file_of_another_line_of_programs_is_refused(tmp_path: Path) -> None:
    db = open_database(tmp_path / "box.db")
    migrate(db, "box", [MORE])
    with pytest.raises(StorageError) as caught:
        migrate(db, "box", [ITEMS])
    assert caught.value.slug == "storage_foreign"
    db.conn.close()


# --- places and looks -------------------------------------------------------------------------------------


def test_shrinking_leaves_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    db = open_database(tmp_path / "box.db", precious=True)
    migrate(db, "box", [ITEMS])
    with writing(db):
        db.conn.executemany("INSERT INTO items (text) VALUES (?)", [("zanzibarquux" * 50,)] * 100)
    with writing(db):
        db.conn.execute("DELETE FROM items")
    shrink(db)

    assert not any(b"zanzibarquux" in file.read_bytes() for file in tmp_path.iterdir())
    db.conn.close()


def test_a_pulse_moves_only_when_somebody_wrote(tmp_path: Path) -> None:
    pool = Connections(tmp_path / "box.db", basins=[ONE])
    with pool.writing():
        pass
    pulse = pool.pulse()
    assert not pulse.moved()
    with pool.writing() as db:
        db.conn.execute("INSERT INTO items (text) VALUES ('x')")
    assert pulse.moved()
    assert not pulse.moved()
    pulse.close()
    pool.close()


def test_synced_and_network_folders_are_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert location_warnings(tmp_path) == []
    assert "OneDrive" in location_warnings(tmp_path / "OneDrive - Company" / "x")[0]
    assert "Dropbox" in location_warnings(tmp_path / "Dropbox")[0]
    monkeypatch.setattr(storage, "_network_kind", lambda folder: "nfs4")
    assert "nfs4" in location_warnings(tmp_path)[0]


def test_opening_a_database_loads_no_numpy(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pensieve_mcp.storage import open_database; "
        "before = 'sqlite_utils' in sys.modules; open_database(Path(sys.argv[1])).conn.close(); "
        "print(before, 'sqlite_utils' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "box.db")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]

"""SQLite as every basin uses it: one way to open, one way to write, one way to grow a schema, worded errors.

Two processes on one workspace are normal, so every read-then-write begins *immediate* (half of the deferred
ones failed in a trial with two writers), and opening is safe when two do it for the first time at once. The
basins own their tables and declare their migrations beside the code that reads them; this file knows none of
them. sqlite-utils is known here only, and imported when a database is opened, not before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pensieve_mcp.errors import StorageError

if TYPE_CHECKING:
    from sqlite_utils import Database as Database

log = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_SECONDS = 10.0  # a writer's longest honest transaction is well below; a hung one should become an error
BEGIN_ATTEMPTS = 5  # SQLite answers some conflicts (recovery, first switch to WAL) at once, past its own wait
JOURNAL_LIMIT_BYTES = 64 * 2**20  # what a -wal file may keep after a checkpoint

Identity = tuple[int, int] | None
"""Device and inode of a file; None where there is none. As long as a connection holds the file open, no other
file can have the same."""

_BASINS = "_pensieve_basins"
_MIGRATIONS = "_pensieve_migrations"
_EXPANDS_ONLY = ("DROP ", "RENAME ", "DELETE FROM", "VACUUM")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a basin's schema, never edited once released. It only adds: tables, columns, indexes.

    `sql` may hold several statements; `apply` runs after them, for what SQL alone cannot do.
    """

    name: str
    reason: str
    sql: str = ""
    apply: Callable[[Database], None] | None = None

    def __post_init__(self) -> None:
        bad = [word.strip() for word in _EXPANDS_ONLY if word in " ".join(self.sql.upper().split())]
        if bad or not self.name or not self.reason:
            raise ValueError(
                f"Migration {self.name!r} must have a reason and only expand ({', '.join(bad)})."
            )


@dataclass(frozen=True, slots=True)
class Basin:
    """A basin's schema as a pool of connections needs it: the arguments of `migrate`."""

    name: str
    migrations: Sequence[Migration]
    oldest_writer: int = 1


class Connection(sqlite3.Connection):
    """A connection that remembers what `writing` must check. Not for direct use."""

    path: Path
    read_only: bool = False
    precious: bool = False
    identity: Identity = None  # of the file it was opened on
    frozen: StorageError | None = None  # why nothing may be written through it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.basins: dict[str, int] = {}

    def execute(self, *args: Any) -> sqlite3.Cursor:
        with translating(self.path):
            return super().execute(*args)


def worded(error: sqlite3.Error, path: Path) -> Exception:
    """The StorageError for what the person at the machine can mend; others as they are (our bugs)."""
    code = getattr(error, "sqlite_errorcode", None)
    text = str(error).lower()
    base = code & 0xFF if isinstance(code, int) else None
    detail = getattr(error, "sqlite_errorname", "") or str(error)
    if base in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(
            f"{path} is locked by another process ({detail}).",
            hint="Wait for the other pensieve process to finish, or end it, then try again.",
            slug="storage_locked",
        )
    if base == sqlite3.SQLITE_FULL or "disk is full" in text:
        return StorageError(
            f"The disk is full; nothing was written to {path}.",
            hint="Free some space on that disk, or move the state with --state DIR, then try again.",
            slug="storage_full",
        )
    if base in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "malformed" in text:
        what = "is not a SQLite database" if base == sqlite3.SQLITE_NOTADB else "is damaged"
        return StorageError(
            f"{path} {what} ({error}).",
            hint="Run pensieve index: it sets the damaged file aside and makes it anew from your documents."
            if path.name == "corpus.db"
            else "Run pensieve doctor. Restore a backup of the file, or move it away to begin empty.",
            slug="storage_corrupt",
        )
    if base in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StorageError(
            f"{path} cannot be written to ({detail}).",
            hint="Give yourself write permission on the file and its folder, or use --state DIR.",
            slug="storage_read_only",
        )
    if base == sqlite3.SQLITE_CANTOPEN:
        return StorageError(
            f"{path} cannot be opened ({detail}).",
            hint="Look whether its folder exists and can be written to, or choose another with --state DIR.",
            slug="storage_unopenable",
        )
    if base == sqlite3.SQLITE_IOERR:
        return StorageError(
            f"Reading or writing {path} failed ({detail}); what was being written is not stored.",
            hint="Check the disk, its free space and quota; "
            "a state folder must not lie on a network or synced drive.",
            slug="storage_io",
        )
    if base == sqlite3.SQLITE_TOOBIG:
        return StorageError(
            f"A value is too big for {path} ({error}).",
            hint="Split it into several smaller ones.",
            slug="storage_too_big",
        )
    return error


@contextlib.contextmanager
def translating(path: Path) -> Iterator[None]:
    """Turn sqlite3's errors inside the block into StorageError, where a person can mend them."""
    try:
        yield
    except sqlite3.Error as error:
        translated = worded(error, path)
        if translated is error:
            raise
        raise translated from error


class _WithoutArrays:
    """sqlite-utils imports numpy and pandas where they are installed, to store their numbers. We store none,
    and listing notes must not wait for them: for the thread that imports sqlite-utils they do not exist."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in ("numpy", "pandas") and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)


def _sqlite_utils() -> ModuleType:
    if "sqlite_utils" not in sys.modules:
        finder = _WithoutArrays()
        sys.meta_path.insert(0, finder)
        try:
            import sqlite_utils
        finally:
            sys.meta_path.remove(finder)
    import sqlite_utils

    return sqlite_utils


def _connection(db: Database) -> Connection:
    conn = db.conn
    if not isinstance(conn, Connection):
        raise TypeError("This database was not opened by storage.open_database.")
    return conn


def identity_of(path: Path) -> Identity:
    """Which file lies at the path now. Opens nothing."""
    try:
        status = os.stat(path)  # noqa: PTH116  (asked before each use of a connection)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            f"{path} cannot be looked at: {error.strerror or error}.",
            hint="Give yourself permission on its folder, or use --state DIR.",
            slug="storage_unopenable",
        ) from error
    return status.st_dev, status.st_ino


def _vanished(path: Path, writing: bool) -> StorageError:
    lost = "; what was being written is not stored" if writing else ""
    return StorageError(
        f"{path} was moved, deleted or replaced while it was in use{lost}.",
        hint="Put the file back if it was not meant. The next call takes whatever lies there then, "
        "and begins an empty one where there is none.",
        slug="storage_vanished",
    )


def database_path(db: Database) -> Path:
    """The file behind a database that `open_database` opened."""
    return _connection(db).path


def _make_private(path: Path) -> None:
    """Create the folder (0700) and the file (0600), or tighten the file (an old folder keeps its mode)."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Never open and close an existing database file here: on POSIX that drops the locks which other
        # connections of this very process hold on it.
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                raise StorageError(
                    f"{path} is not a regular file.",
                    hint="Move it away, or choose another place with --state DIR.",
                    slug="storage_unopenable",
                ) from None
            if os.name == "posix" and mode & 0o077:
                with contextlib.suppress(
                    OSError
                ):  # someone else's file that we may still read, a read-only disk
                    path.chmod(0o600)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be created: {error.strerror or error}.",
            hint="Give yourself write permission on the folder, free some space, "
            "or choose another place with --state DIR.",
            slug="storage_unopenable",
        ) from error


def _retrying(attempt: Callable[[], T]) -> T:
    """Run it until it is not answered with a lock: BEGIN_ATTEMPTS times, or until the waiting was long
    enough."""
    deadline = time.monotonic() + BUSY_SECONDS
    for left in range(BEGIN_ATTEMPTS - 1, -1, -1):
        try:
            return attempt()
        except StorageError as error:
            if error.slug != "storage_locked" or not left or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.01, 0.1))  # out of step with the other process
    raise AssertionError("unreachable")


def _connect(path: Path, flags: str, precious: bool) -> Connection:
    with translating(path):
        conn: Connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{flags}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # autocommit: nothing begins a deferred transaction behind our back
            check_same_thread=False,  # Connections lends one to a single thread at a time
            factory=Connection,
        )
    conn.path = path
    conn.precious = precious
    try:
        conn.execute("PRAGMA foreign_keys = ON")
        if "mode=rw" in flags:  # these look into the file, which a folder without write permission forbids
            conn.execute(f"PRAGMA synchronous = {'FULL' if precious else 'NORMAL'}")
            if precious:
                conn.execute("PRAGMA secure_delete = ON")  # purged text must not stay in free pages
    except BaseException:
        conn.close()
        raise
    return conn


def open_database(path: Path, *, read_only: bool = False, precious: bool = False) -> Database:
    """Open (and create, unless `read_only`) a database in WAL mode with a 10 s busy timeout, in autocommit.

    `precious` databases sync at every commit, so that what was confirmed survives a power cut; derived ones
    only survive a crash of the process unharmed. Use one connection from one thread at a time.
    Raises StorageError when it is missing, locked, damaged, not a database or may not be opened.
    """
    sqlite_utils = _sqlite_utils()
    if read_only and not path.is_file():
        raise StorageError(
            f"{path} does not exist.",
            hint="Open the workspace once with write access, for instance with pensieve index PATH.",
            slug="storage_missing",
        )
    if not read_only:
        _make_private(path)
    conn = _connect(path, "mode=ro" if read_only else "mode=rw", precious)
    conn.read_only = read_only
    try:
        if read_only:
            try:
                conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except StorageError as error:
                # WAL needs a -shm file beside the database; in a folder we may not write to, SQLite can
                # do without only if we promise that nobody else writes. No -wal file: nobody does.
                wal = path.with_name(path.name + "-wal")
                unfinished = wal.exists() and wal.stat().st_size
                if error.slug not in ("storage_unopenable", "storage_read_only") or unfinished:
                    raise
                conn.close()
                conn = _connect(path, "mode=ro&immutable=1", precious)
                conn.read_only = True
                conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            conn.frozen = StorageError(
                f"{path} was opened for reading only.",
                hint="Open the workspace with write access to change it.",
                slug="storage_read_only",
            )
        else:
            journal = _retrying(lambda: conn.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            if journal != "wal":
                log.warning(
                    "%s uses journal mode %s: readers and writers will wait for each other.", path, journal
                )
            conn.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
        conn.identity = identity_of(path)
        # Plugins of sqlite-utils are other people's code: they have no business in a user's notebook.
        db: Database = sqlite_utils.Database(conn, recursive_triggers=False, execute_plugins=False)
        return db
    except BaseException:
        conn.close()
        raise


@contextlib.contextmanager
def writing(db: Database) -> Iterator[Database]:
    """One write transaction: BEGIN IMMEDIATE … COMMIT, or ROLLBACK when the block raises. Not nestable.

    Raises StorageError when the file is locked for too long, full, damaged, read-only, or was written by a
    newer program (`migrate` looks once, this looks again inside the transaction).
    """
    conn = _connection(db)
    if conn.frozen is not None:
        raise conn.frozen
    if conn.in_transaction:
        raise RuntimeError("writing() does not nest: hand the database of the outer block on instead.")
    _retrying(lambda: conn.execute("BEGIN IMMEDIATE"))
    try:
        with translating(conn.path):
            for basin, ours in conn.basins.items():
                _refuse_if_newer(db, basin, ours)
            yield db
            conn.execute("COMMIT")
        # SQLite in WAL mode writes on into a file that has no name any more, and confirms it.
        if identity_of(conn.path) != conn.identity:
            raise _vanished(conn.path, writing=True)
    except BaseException:
        if conn.in_transaction:  # a full disk may have rolled back already
            with contextlib.suppress(sqlite3.Error, StorageError):
                conn.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def reading(db: Database) -> Iterator[Database]:
    """Several reads that see one state of the file. Inside a transaction it joins it."""
    conn = _connection(db)
    if conn.in_transaction:
        with translating(conn.path):
            yield db
        return
    conn.execute("BEGIN")
    try:
        with translating(conn.path):
            yield db
    finally:
        if conn.in_transaction:
            with contextlib.suppress(sqlite3.Error, StorageError):
                conn.execute("COMMIT")


def _refuse_if_newer(db: Database, basin: str, ours: int) -> None:
    row = db.conn.execute(
        f"SELECT oldest_writer, program FROM {_BASINS} WHERE basin = ?", (basin,)
    ).fetchone()
    if row is not None and row[0] > ours:
        raise _newer(_connection(db), basin, row[0], ours, row[1])


def newer(db: Database, basins: Sequence[Basin]) -> StorageError | None:
    """Why this program may read the file, but not write it: a newer version did. None when it may."""
    conn = _connection(db)
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_BASINS,)).fetchone() is None:
        return None
    for basin in basins:
        try:
            _refuse_if_newer(db, basin.name, len(basin.migrations))
        except StorageError as error:
            return error
    return None


def _newer(conn: Connection, basin: str, needed: int, ours: int, program: str) -> StorageError:
    return StorageError(
        f"{conn.path} was written by a newer version ({program}): its {basin} tables may be changed by schema "
        f"{needed} and later, this program has schema {ours}. It can be read, not written.",
        hint="Update pensieve-statelm, or open another state folder with --state DIR."
        if conn.precious
        else "Update pensieve-statelm. Or run pensieve workspace rebuild: it is made anew from your documents; "
        "notes, history and chunk ids stay.",
        slug="storage_newer",
    )


def _applied(db: Database, basin: str) -> list[str]:
    known = db.conn.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_MIGRATIONS,)).fetchone()
    if known is None:
        return []
    rows = db.conn.execute(f"SELECT name FROM {_MIGRATIONS} WHERE basin = ? ORDER BY number", (basin,))
    return [row[0] for row in rows]


def migrate(db: Database, basin: str, migrations: Sequence[Migration], *, oldest_writer: int = 1) -> bool:
    """Bring a basin's tables up to date; True when the file may be written, False when only read.

    The schema number of a program is the count of its migrations. `oldest_writer` is the number of the oldest
    program that may still write what we write; a program below it opens the file read-only, and its writes
    raise the StorageError that says so. A newer file that names us as able to write is left as it is.
    Raises StorageError when a read-only file lacks tables, or its history is not ours.
    """
    conn = _connection(db)
    ours = [migration.name for migration in migrations]
    if len(set(ours)) != len(ours) or not 0 < oldest_writer <= len(ours):
        raise ValueError(
            f"Migrations of {basin} repeat a name, or oldest_writer {oldest_writer} is not among them."
        )
    with translating(conn.path):
        there = _applied(db, basin)
        if len(there) < len(ours):
            if conn.frozen is not None:
                raise StorageError(
                    f"{conn.path} lacks the newest {basin} tables, and is open for reading only.",
                    hint="Open the workspace once with write access, so that it can be brought up to date.",
                    slug="storage_outdated",
                )
            there = _apply(db, basin, migrations, oldest_writer)
        if there[: len(ours)] != ours:
            raise StorageError(
                f"The {basin} tables of {conn.path} were made by another program ({', '.join(there[:5])}).",
                hint="Open another state folder with --state DIR.",
                slug="storage_foreign",
            )
        conn.basins[basin] = len(ours)
        try:
            _refuse_if_newer(db, basin, len(ours))
        except StorageError as error:
            conn.frozen = error
            conn.execute("PRAGMA query_only = ON")
            return False
    return not conn.read_only


def _apply(db: Database, basin: str, migrations: Sequence[Migration], oldest_writer: int) -> list[str]:
    signed = program()
    with writing(db):
        for table, columns in (
            (_BASINS, "basin TEXT PRIMARY KEY, oldest_writer INTEGER NOT NULL, program TEXT NOT NULL"),
            (
                _MIGRATIONS,
                "basin TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, reason TEXT NOT NULL, "
                "program TEXT NOT NULL, applied_at TEXT NOT NULL, PRIMARY KEY (basin, number)",
            ),
        ):
            db.conn.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        there = _applied(db, basin)  # another process may have been faster
        for number, migration in enumerate(migrations, start=1):
            if number <= len(there):
                continue
            if migration.sql:
                db.executescript(migration.sql)  # sqlite-utils keeps it inside our transaction
            if migration.apply is not None:
                migration.apply(db)
            db.conn.execute(
                f"INSERT INTO {_MIGRATIONS} VALUES (?, ?, ?, ?, ?, datetime('now'))",
                (basin, number, migration.name, migration.reason, signed),
            )
            there.append(migration.name)
        db.conn.execute(
            f"INSERT INTO {_BASINS} VALUES (?, ?, ?) ON CONFLICT (basin) DO UPDATE SET "
            "program = excluded.program, oldest_writer = excluded.oldest_writer "
            "WHERE excluded.oldest_writer >= oldest_writer",
            (basin, oldest_writer, signed),
        )
    return there


def program() -> str:
    """Name and version of this program, as it signs what it writes."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"pensieve-statelm {version('pensieve-statelm')}"
    except PackageNotFoundError:  # run from a checkout that nobody installed
        return "pensieve-statelm, not installed"


def integrity(db: Database, *, quick: bool = False) -> list[str]:
    """What is wrong with the file, in SQLite's words; empty when nothing is. Reads all of it. Never raises
    StorageError for damage: damage is the answer."""
    found: list[str] = []
    try:
        rows = db.conn.execute(f"PRAGMA {'quick_check' if quick else 'integrity_check'}(20)").fetchall()
        found += [str(row[0]) for row in rows if row[0] != "ok"]
        rows = db.conn.execute("PRAGMA foreign_key_check").fetchmany(20)
        found += [f"row {row[1]} of {row[0]} points to a missing row of {row[2]}" for row in rows]
    except (sqlite3.DatabaseError, StorageError) as error:
        found.append(str(error))
    return found


def holds_rows(path: Path, table: str) -> bool:
    """Whether the database has a table of this name with a row in it. False for whatever cannot be read."""
    try:
        db = open_database(path, read_only=True)
        try:
            return db.conn.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None
        finally:
            db.conn.close()
    except (sqlite3.Error, StorageError):
        return False


def set_aside_if_damaged(path: Path) -> bool:
    """Rename a database that is damaged to `NAME.damaged`, so that it is made anew; False for a sound one. Reads
    all of it. For derived files only. Raises StorageError when it cannot be renamed."""
    try:
        db = open_database(path, read_only=True)
    except StorageError as error:
        if error.slug != "storage_corrupt":
            return False
    else:
        try:
            if not integrity(db, quick=True):
                return False
        finally:
            db.conn.close()
    try:
        for side in ("-wal", "-shm", ""):
            part = path.with_name(path.name + side)
            if part.exists():
                part.replace(path.with_name(f"{path.name}.damaged{side}"))
    except OSError as error:
        raise StorageError(
            f"{path} is damaged and cannot be renamed: {error.strerror or error}.",
            hint="End the other pensieve processes, delete that file and run pensieve index.",
            slug="storage_corrupt",
        ) from error
    log.warning("%s was damaged: it lies beside as %s.damaged, and is made anew.", path, path.name)
    return True


def shrink(db: Database) -> None:
    """Give freed pages back to the disk and leave nothing of what was deleted in the file or its -wal.

    Needs the database for itself for a moment. Raises StorageError when others keep it busy, or when the disk
    has no room for the copy.
    """
    conn = _connection(db)
    if conn.frozen is not None:
        raise conn.frozen
    with translating(conn.path):
        _retrying(lambda: conn.execute("VACUUM"))
        busy = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        raise StorageError(
            f"{conn.path} is in use, so old pages may still lie in its -wal file.",
            hint="End the other pensieve processes and purge again.",
            slug="storage_locked",
        )


class Pulse:
    """Tells whether anybody else committed to the file since the last look, without reading its tables.

    On a connection of its own, where SQLite's `data_version` can be compared. For one thread at a time.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._db = connections.own()
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._db.conn.execute("PRAGMA data_version").fetchone()[0])

    def moved(self) -> bool:
        """True once for any number of commits in between, also for those of this process, and when another file
        took the place of the one that was looked at. Raises StorageError."""
        conn = _connection(self._db)
        now_there = identity_of(conn.path)
        if now_there is not None and now_there != conn.identity:
            self._db.conn.close()
            self._db = self._connections.own()
            self._seen = self._version()
            return True
        now = self._version()
        moved, self._seen = now != self._seen, now
        return moved

    def close(self) -> None:
        self._db.conn.close()


class Connections:
    """Connections to one database, lent to one thread at a time and kept for the next.

    `reading()` lends one that cannot write, and all its reads see one state of the file; inside `writing()`
    of the same thread it lends the writer's own. Threads may come and go, nothing is bound to them.

    Before each lending it looks whether the file is still the one it opened. Another one in its place is opened;
    where a precious one is gone, one call is refused, so that nothing is lost without a word, and the next
    begins anew. A file or folder that may not be written to is opened for reading.
    """

    def __init__(
        self, path: Path, *, basins: Sequence[Basin] = (), read_only: bool = False, precious: bool = False
    ) -> None:
        """Opens nothing yet. Each connection migrates `basins`. See `open_database` for the rest."""
        self.path = path
        self.read_only = read_only
        self.precious = precious
        self._basins = tuple(basins)
        self._lock = threading.Lock()
        self._idle: dict[bool, list[Database]] = {False: [], True: []}  # by "may write"
        self._here = threading.local()
        self._pid = os.getpid()
        self._closed = False
        self._migrated = False
        self._identity: Identity = None
        self._opened = False  # ever
        self._only_reading: StorageError | None = None  # why, where writing was tried and is not allowed
        self._when_replaced: list[Callable[[], None]] = []

    def when_replaced(self, call: Callable[[], None]) -> None:
        """Call it whenever another file took the place of the one that was open: for whoever keeps in memory
        what lies in it."""
        self._when_replaced.append(call)

    def _look(self, write: bool) -> None:
        """Let go of connections to a file that is no longer the one at the path. Raises StorageError once, when a
        precious file is gone, or its folder."""
        with self._lock:
            before = self._identity
            if before is None or self._pid != os.getpid():
                return
            there = identity_of(self.path)
            if there == before:
                return
            self._identity, self._migrated, self._only_reading = None, False, None
            idle, self._idle = self._idle, {False: [], True: []}
        log.warning("%s was moved, deleted or replaced while it was in use.", self.path)
        for number, db in enumerate((*idle[True], *idle[False])):
            if there is None and not number:
                # What was confirmed may lie in the -wal file alone: it belongs to the file that was moved.
                with contextlib.suppress(sqlite3.Error, StorageError):
                    db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.conn.close()
        for call in self._when_replaced:
            call()
        if there is None and (self.precious or not self.path.parent.is_dir()):
            raise _vanished(self.path, write)

    def _take(self, write: bool) -> Database:
        self._look(write)
        with self._lock:
            if self._closed:
                raise StorageError(
                    f"{self.path} was closed.", hint="Open the workspace again.", slug="storage_closed"
                )
            if self._pid != os.getpid():  # SQLite connections must not cross a fork, not even to be closed
                self._idle, self._pid = {False: [], True: []}, os.getpid()
                self._here = threading.local()
            if self._idle[write]:
                return self._idle[write].pop()
            only_reading = self._only_reading
        if not write and not self.read_only and not self._migrated and only_reading is None:
            try:
                self._give(True, self._open(True))  # brings the tables up to date first
            except StorageError as error:
                if error.slug not in ("storage_read_only", "storage_unopenable") or not self.path.is_file():
                    raise
                with self._lock:
                    self._only_reading = only_reading = error
        return self._open(write, read_only=not write and only_reading is not None)

    def own(self) -> Database:
        """A connection for reading that the caller keeps and closes."""
        return self._take(False)

    def check(self) -> None:
        """Look whether the file is still the one that was opened. Raises StorageError (`storage_vanished`)."""
        self._look(False)

    def _open(self, write: bool, *, read_only: bool = False) -> Database:
        if self._opened and not self.path.parent.is_dir():
            raise _vanished(self.path, write)  # a folder that went away may come back; it is not made anew
        db = open_database(self.path, read_only=self.read_only or read_only, precious=self.precious)
        try:
            for basin in self._basins:
                migrate(db, basin.name, basin.migrations, oldest_writer=basin.oldest_writer)
            with self._lock:
                self._migrated = self._opened = True
                if write:
                    self._only_reading = None  # it may have been mended since
                if self._identity is None:
                    self._identity = _connection(db).identity
            if not write:
                db.conn.execute("PRAGMA query_only = ON")
        except BaseException:
            db.conn.close()
            raise
        return db

    def _give(self, write: bool, db: Database) -> None:
        with self._lock:
            if (
                not self._closed
                and len(self._idle[write]) < 8
                and self._pid == os.getpid()
                and _connection(db).identity == self._identity
            ):
                self._idle[write].append(db)
                return
        db.conn.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Database]:
        """A database to read from. Raises StorageError."""
        current: Database | None = getattr(self._here, "db", None)
        if current is not None:
            with translating(self.path):
                yield current
            return
        db = self._take(False)
        self._here.db = db
        try:
            with reading(db):
                yield db
        finally:
            self._here.db = None
            self._give(False, db)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Database]:
        """A database inside one immediate transaction, as `storage.writing`. Raises StorageError."""
        if getattr(self._here, "db", None) is not None:
            raise RuntimeError("writing() does not nest, and cannot begin inside reading().")
        db = self._take(True)
        self._here.db = db
        try:
            with writing(db):
                yield db
        finally:
            self._here.db = None
            self._give(True, db)

    @contextlib.contextmanager
    def alone(self) -> Iterator[Database]:
        """A writer's connection outside any transaction, for `integrity` and `shrink`."""
        db = self._take(True)
        try:
            yield db
        finally:
            self._give(True, db)

    def pulse(self) -> Pulse:
        """For polling cheaply whether any process wrote. Raises StorageError."""
        return Pulse(self)

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {False: [], True: []}
        if self._pid == os.getpid():
            for db in (*idle[False], *idle[True]):
                db.conn.close()


_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
    "fuse.rclone",
}
_SYNCED = {
    "dropbox": "Dropbox",
    "onedrive": "OneDrive",
    "google drive": "Google Drive",
    "googledrive": "Google Drive",
    "mobile documents": "iCloud Drive",
    "icloud drive": "iCloud Drive",
    "nextcloud": "Nextcloud",
    "owncloud": "ownCloud",
    "synology drive": "Synology Drive",
    "pcloud drive": "pCloud",
}


def location_warnings(folder: Path) -> list[str]:
    """Sentences about a folder that is a poor place for a database: a network drive, a synced folder."""
    warnings = []
    absolute = folder.absolute()
    for part in absolute.parts:
        lowered = part.lower()
        name = next(
            (name for mark, name in _SYNCED.items() if lowered == mark or lowered.startswith(f"{mark} ")),
            None,
        )
        if name is not None:
            warnings.append(
                f"{absolute} lies in a folder that {name} synchronises, which can damage databases: "
                "choose another place with --state DIR."
            )
            break
    if (kind := _network_kind(absolute)) is not None:
        warnings.append(
            f"{absolute} lies on a network drive ({kind}), where SQLite's locks may not hold: "
            "choose a local folder with --state DIR."
        )
    return warnings


def _network_kind(folder: Path) -> str | None:
    if os.name == "nt":
        return "UNC path" if str(folder).startswith("\\\\") else None
    if not sys.platform.startswith("linux"):
        return None
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind if kind in _NETWORK else None

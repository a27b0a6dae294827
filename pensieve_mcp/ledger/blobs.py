"""Contents of messages, by the digest of their text: exact, compressed, stored once.

They lie in `blobs.db` beside `pensieve.db`, so that the small file with what was learned stays quick to
back up. What a digest belongs to, and whether it may go, only the ledger knows.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import Basin, Connections, Migration, shrink

ORPHAN_SECONDS = 3600.0  # a content is stored before the event that names it; a sweep must not come between
TOUCH_SECONDS = 3600.0  # reading keeps a content alive, but need not write each time

BASIN = Basin(
    "blobs",
    (
        Migration(
            "contents",
            "Messages are restored exactly, also when their source is gone.",
            """
            CREATE TABLE contents (
                digest BLOB PRIMARY KEY,   -- sha256 of the text in UTF-8
                codec INTEGER NOT NULL,    -- 0 as it is, 1 zlib
                data BLOB NOT NULL,
                size_bytes INTEGER NOT NULL,  -- before compression
                stored_at REAL NOT NULL,   -- seconds since 1970
                used_at REAL NOT NULL      -- last read or written again: what expiry counts from
            );
            CREATE INDEX contents_used ON contents (used_at);
            CREATE TABLE totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
            INSERT INTO totals VALUES ('stored_bytes', 0);
            CREATE TRIGGER contents_in AFTER INSERT ON contents BEGIN
                UPDATE totals SET value = value + length(new.data) WHERE name = 'stored_bytes';
            END;
            CREATE TRIGGER contents_out AFTER DELETE ON contents BEGIN
                UPDATE totals SET value = value - length(old.data) WHERE name = 'stored_bytes';
            END;
            """,
        ),
    ),
)


def encode(text: str) -> bytes:
    """UTF-8, with lone surrogates kept: what was said is given back as it was."""
    return text.encode("utf-8", "surrogatepass")


def digest_of(text: str) -> bytes:
    """The name of a content: 32 bytes, sha256 of its UTF-8."""
    return hashlib.sha256(encode(text)).digest()


class Blobs:
    """The contents of one workspace. Safe to share between threads and processes."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, read_only: bool = False
    ) -> None:
        self._connections = Connections(path, basins=(BASIN,), precious=True, read_only=read_only)
        self._clock = clock

    @property
    def path(self) -> Path:
        return self._connections.path

    def put(self, contents: Mapping[bytes, str]) -> None:
        """Store texts under their digests, all or none. Raises ValueError when a digest is not its text's,
        StorageError when they cannot be stored."""
        rows = []
        now = self._clock()
        for digest, text in contents.items():
            raw = encode(text)
            if hashlib.sha256(raw).digest() != digest:
                raise ValueError(f"{digest.hex()} is not the digest of its text.")
            packed = zlib.compress(raw, 6)
            codec, data = (1, packed) if len(packed) < len(raw) else (0, raw)
            rows.append((digest, codec, data, len(raw), now, now))
        if not rows:
            return
        with self._connections.writing() as db:
            db.conn.executemany(
                "INSERT INTO contents VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at",
                rows,
            )

    def get(self, digest: bytes, *, use: bool = True) -> str | None:
        """The text, or None when it is not here. Without `use` the look does not keep it alive. Raises StorageError
        when it is damaged."""
        with self._connections.reading() as db:
            row = db.conn.execute(
                "SELECT codec, data, used_at FROM contents WHERE digest = ?", (digest,)
            ).fetchone()
        if row is None:
            return None
        text = self._decode(digest, row[0], row[1])
        if use and not self._connections.read_only and self._clock() - row[2] > TOUCH_SECONDS:
            self.touch([digest])
        return text

    def _decode(self, digest: bytes, codec: int, data: bytes) -> str:
        try:
            raw = zlib.decompress(data) if codec == 1 else data
            if hashlib.sha256(raw).digest() == digest:
                return raw.decode("utf-8", "surrogatepass")
            problem = "its text does not fit its digest"
        except (zlib.error, UnicodeDecodeError) as error:
            problem = str(error)
        raise StorageError(
            f"A content in {self.path} is damaged ({digest.hex()[:12]}: {problem}).",
            hint="Read the source again; pensieve doctor checks the whole file.",
            slug="storage_corrupt",
        )

    def touch(self, digests: Iterable[bytes]) -> None:
        """Count them as used now."""
        now = self._clock()
        with self._connections.writing() as db:
            db.conn.executemany(
                "UPDATE contents SET used_at = ? WHERE digest = ?", [(now, digest) for digest in digests]
            )

    def missing(self, digests: Iterable[bytes]) -> set[bytes]:
        """Those that are not stored."""
        query = "SELECT 1 FROM contents WHERE digest = ?"
        with self._connections.reading() as db:
            return {digest for digest in digests if db.conn.execute(query, (digest,)).fetchone() is None}

    def stored_bytes(self) -> int:
        """Bytes of all contents as stored (compressed)."""
        with self._connections.reading() as db:
            return int(db.conn.execute("SELECT value FROM totals WHERE name = 'stored_bytes'").fetchone()[0])

    def oldest(self) -> list[tuple[bytes, int, float]]:
        """(digest, stored bytes, last used), the longest unused first."""
        with self._connections.reading() as db:
            rows = db.conn.execute(
                "SELECT digest, length(data), used_at FROM contents ORDER BY used_at, digest"
            )
            return [(bytes(row[0]), int(row[1]), float(row[2])) for row in rows]

    def delete(self, digests: Iterable[bytes], *, unused_since: float | None = None) -> int:
        """Remove contents, except those used after `unused_since`. Answers the stored bytes set free."""
        freed = 0
        with self._connections.writing() as db:
            for digest in digests:
                row = db.conn.execute(
                    "DELETE FROM contents WHERE digest = ?1 AND (?2 IS NULL OR used_at <= ?2) "
                    "RETURNING length(data)",
                    (digest, unused_since),
                ).fetchone()
                freed += 0 if row is None else int(row[0])
        return freed

    def shrink(self) -> None:
        """Leave nothing of deleted contents in the file. Raises StorageError while others use it."""
        with self._connections.alone() as db:
            shrink(db)

    def integrity(self) -> list[str]:
        """What is wrong with the file, each content included; empty when nothing is. Reads all of it."""
        from pensieve_mcp.storage import integrity

        with self._connections.alone() as db:
            problems = integrity(db)
            if problems:
                return problems
            for digest, codec, data in db.conn.execute("SELECT digest, codec, data FROM contents"):
                try:
                    self._decode(bytes(digest), codec, data)
                except StorageError as error:
                    problems.append(error.message)
        return problems

    def close(self) -> None:
        self._connections.close()

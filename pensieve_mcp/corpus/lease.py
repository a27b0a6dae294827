"""Who may build: one process at a time, known by a token, told alive by a beat, shut out by a fence.

The lease is a row in `corpus.db`, so that taking it, writing under it and losing it are ordinary transactions. Each
writing transaction of a build looks at the token first; a process that slept through its lease, and was replaced,
can therefore publish nothing any more.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Literal

from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import Connections

if TYPE_CHECKING:
    from sqlite_utils import Database

BEAT_SECONDS = 2.0
Doing = Literal["build", "upgrade"]

STALE_SECONDS = 20.0  # ten beats: a process that missed them all is dead, or its machine slept


class LeaseLost(StorageError):
    """Another process took over the build; nothing more may be written by this one."""

    slug = "lease_lost"


class Lease:
    """The right to build, from `take` to `give_back`. Beats on a thread of its own."""

    def __init__(self, connections: Connections, token: str, owner: str, fence: int) -> None:
        self._connections = connections
        self.token = token
        self.owner = owner
        self.fence = fence
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="build lease", daemon=True)
        self._beating.start()

    @classmethod
    def take(
        cls, connections: Connections, *, owner: str | None = None, doing: Doing = "build"
    ) -> Lease | None:
        """The lease, or None while another living process has it."""
        name = owner or f"{socket.gethostname()}:{os.getpid()}"
        token = secrets.token_hex(16)
        with connections.writing() as db:
            row = db.conn.execute("SELECT owner, fence, beat FROM lease").fetchone()
            if row is not None and _lives(row[0], row[2]):
                return None
            fence = (row[1] if row is not None else 0) + 1
            db.conn.execute(
                "INSERT INTO lease (one, token, owner, fence, beat, doing) VALUES (1, ?, ?, ?, ?, ?) "
                "ON CONFLICT (one) DO UPDATE SET token = excluded.token, owner = excluded.owner, "
                "fence = excluded.fence, beat = excluded.beat, doing = excluded.doing, wanted = 0",
                (token, name, fence, time.time(), doing),
            )
        return cls(connections, token, name, fence)

    @staticmethod
    def holder(connections: Connections) -> Doing | None:
        """What the living owner of the lease is doing, None when it is free."""
        with connections.reading() as db:
            row = db.conn.execute("SELECT owner, beat, doing FROM lease").fetchone()
        return row[2] if row is not None and _lives(row[0], row[1]) else None

    @staticmethod
    def want(connections: Connections) -> None:
        """Ask whoever fills idle time with the third tier to let a build go first."""
        with connections.writing() as db:
            db.conn.execute("UPDATE lease SET wanted = 1 WHERE doing = 'upgrade'")

    def is_wanted(self) -> bool:
        """Whether somebody waits for this lease."""
        with self._connections.reading() as db:
            row = db.conn.execute("SELECT wanted FROM lease WHERE token = ?", (self.token,)).fetchone()
        return row is None or bool(row[0])

    def check(self, db: Database) -> None:
        """To be called first in each writing transaction. Raises LeaseLost."""
        row = db.conn.execute("SELECT token, owner FROM lease").fetchone()
        if row is None or row[0] != self.token:
            raise LeaseLost(
                f"The build was taken over by {row[1] if row else 'another process'}.",
                hint="Nothing is lost; that process goes on with it.",
            )

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                with self._connections.writing() as db:
                    db.conn.execute("UPDATE lease SET beat = ? WHERE token = ?", (time.time(), self.token))
            except StorageError:
                continue  # busy or full: the build itself meets the same trouble and tells it

    def give_back(self) -> None:
        """End beating and let others build at once."""
        self._ended.set()
        self._beating.join()
        with self._connections.writing() as db:
            db.conn.execute("UPDATE lease SET beat = 0 WHERE token = ?", (self.token,))


def _lives(owner: str, beat: float) -> bool:
    return beat > 0 and time.time() - beat < STALE_SECONDS and not _is_dead(owner)


def _is_dead(owner: str) -> bool:
    """Whether the owner was a process of this machine that is no more. When in doubt, no: its beat will tell."""
    host, _, pid = owner.rpartition(":")
    if os.name == "nt" or host != socket.gethostname() or not pid.isdecimal():
        return False  # on Windows os.kill(pid, 0) would end the process
    if int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False

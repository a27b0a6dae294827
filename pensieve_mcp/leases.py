"""One process at a time: a right that is a row, known by a token, told alive by a beat, shut out by a fence.

The row lies in the database that the work is published to, so that taking it, publishing under it and losing it are
ordinary transactions. The transaction that publishes looks at the token first; a process that slept through its lease,
or whose clock jumped, and was replaced can therefore publish nothing any more. Which work it is, and what else its
row holds, say the basins.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import Connections

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database


class RowLease:
    """A right from `take` to `give_back`. Beats on a thread of its own.

    The table has the columns one (always 1), token, owner (`host:process`), fence and beat (seconds since 1970, 0 when
    given back), and what `_take` is given besides.
    """

    TABLE: ClassVar[str]
    WORK: ClassVar[str]  # as a sentence begins: `The build`
    LOST: ClassVar[type[StorageError]]
    BEAT_SECONDS: ClassVar[float]
    STALE_SECONDS: ClassVar[float]
    """Ten beats or more: a process that missed them all is dead, or its machine slept."""

    def __init__(self, connections: Connections, token: str, owner: str, fence: int) -> None:
        self._connections = connections
        self.token = token
        self.owner = owner
        self.fence = fence  # grows with every owner
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name=f"lease of {self.TABLE}", daemon=True)
        self._beating.start()

    @classmethod
    def _take(
        cls,
        connections: Connections,
        owner: str | None,
        more: Mapping[str, object],
        stale_seconds: float | None = None,
    ) -> Self | None:
        """The lease with these values in its other columns, or None while another living process has it."""
        name = owner or f"{socket.gethostname()}:{os.getpid()}"
        row = {
            "one": 1,
            "token": secrets.token_hex(16),
            "owner": name,
            "fence": 1,
            "beat": time.time(),
            **more,
        }
        stale = cls.STALE_SECONDS if stale_seconds is None else stale_seconds
        with connections.writing() as db:
            held = db.conn.execute(f"SELECT owner, fence, beat FROM {cls.TABLE}").fetchone()
            if held is not None and lives(held[0], held[2], stale):
                return None
            row["fence"] = fence = (held[1] if held is not None else 0) + 1
            db.conn.execute(
                f"INSERT OR REPLACE INTO {cls.TABLE} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                tuple(row.values()),
            )
        return cls(connections, str(row["token"]), name, fence)

    def check(self, db: Database) -> None:
        """To be called first in each transaction that publishes. Raises what LOST names."""
        row = db.conn.execute(f"SELECT token, owner FROM {self.TABLE}").fetchone()
        if row is None or row[0] != self.token:
            raise self.LOST(
                f"{self.WORK} was taken over by {row[1] if row else 'another process'}.",
                hint="Nothing is lost; that process goes on with it.",
            )

    def _beat(self) -> None:
        while not self._ended.wait(self.BEAT_SECONDS):
            try:
                with self._connections.writing() as db:
                    db.conn.execute(
                        f"UPDATE {self.TABLE} SET beat = ? WHERE token = ?", (time.time(), self.token)
                    )
            except StorageError:
                continue  # busy or full: the work itself meets the same trouble and tells it

    def give_back(self) -> None:
        """End beating and let others in at once."""
        self._ended.set()
        self._beating.join()
        with self._connections.writing() as db:
            db.conn.execute(f"UPDATE {self.TABLE} SET beat = 0 WHERE token = ?", (self.token,))


def lives(owner: str, beat: float, stale_seconds: float) -> bool:
    """Whether the owner of a lease still works. A beat in the future is one of a clock that was set back since: it
    lives no longer than another."""
    return beat > 0 and abs(time.time() - beat) < stale_seconds and not _is_dead(owner)


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

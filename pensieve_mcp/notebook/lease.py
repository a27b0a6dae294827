"""Who may consolidate: one process at a time, known by a token, told alive by a beat, shut out by a fence.

The lease is a row in `pensieve.db`, and the transaction that publishes looks at the token first. So a merger that
slept through its lease, or whose clock jumped, and was replaced can publish nothing any more.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING

from pensieve_mcp.errors import StorageError
from pensieve_mcp.storage import Connections

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database

BEAT_SECONDS = 5.0


class MergerLeaseLost(StorageError):
    """Another process took over the consolidation; nothing more may be published by this one."""

    slug = "merger_lease_lost"


class MergerLease:
    """The right to consolidate, from `take` to `give_back`. Beats on a thread of its own."""

    def __init__(self, connections: Connections, token: str, owner: str, fence: int) -> None:
        self._connections = connections
        self.token = token
        self.owner = owner
        self.fence = fence
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="merger lease", daemon=True)
        self._beating.start()

    @classmethod
    def take(
        cls, connections: Connections, *, owner: str | None = None, stale_seconds: float
    ) -> MergerLease | None:
        """The lease, or None while another living process has it. `stale_seconds` without a beat is dead."""
        name = owner or f"{socket.gethostname()}:{os.getpid()}"
        token = secrets.token_hex(16)
        with connections.writing() as db:
            row = db.conn.execute("SELECT fence, beat FROM merger_lease").fetchone()
            now = time.time()
            # A beat in the future is one of a clock that was set back since: it lives no longer than another.
            if row is not None and row[1] > 0 and abs(now - row[1]) < stale_seconds:
                return None
            fence = (row[0] if row is not None else 0) + 1
            db.conn.execute(
                "INSERT INTO merger_lease (one, token, owner, fence, beat) VALUES (1, ?, ?, ?, ?) "
                "ON CONFLICT (one) DO UPDATE SET token = excluded.token, owner = excluded.owner, "
                "fence = excluded.fence, beat = excluded.beat",
                (token, name, fence, now),
            )
        return cls(connections, token, name, fence)

    def check(self, db: Database) -> None:
        """To be called first in the transaction that publishes. Raises MergerLeaseLost."""
        row = db.conn.execute("SELECT token, owner FROM merger_lease").fetchone()
        if row is None or row[0] != self.token:
            raise MergerLeaseLost(
                f"The consolidation was taken over by {row[1] if row else 'another process'}.",
                hint="Nothing is lost; that process goes on with it.",
            )

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                with self._connections.writing() as db:
                    db.conn.execute(
                        "UPDATE merger_lease SET beat = ? WHERE token = ?", (time.time(), self.token)
                    )
            except StorageError:
                continue  # busy or full: publishing meets the same trouble and tells it

    def give_back(self) -> None:
        """End beating and let others in at once."""
        self._ended.set()
        self._beating.join()
        with self._connections.writing() as db:
            db.conn.execute("UPDATE merger_lease SET beat = 0 WHERE token = ?", (self.token,))

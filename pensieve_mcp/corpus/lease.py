"""Who may build: one process at a time, by a row in `corpus.db`; who only fills idle time lets a build go first."""

from __future__ import annotations

from typing import Literal, Self

from pensieve_mcp.errors import StorageError
from pensieve_mcp.leases import RowLease, lives
from pensieve_mcp.storage import Connections

Doing = Literal["build", "upgrade"]


class LeaseLost(StorageError):
    """Another process took over the build; nothing more may be written by this one."""

    slug = "lease_lost"


class Lease(RowLease):
    """The right to build, or to better vectors while nobody builds."""

    TABLE = "lease"
    WORK = "The build"
    LOST = LeaseLost
    BEAT_SECONDS = 2.0
    STALE_SECONDS = 20.0

    @classmethod
    def take(
        cls, connections: Connections, *, owner: str | None = None, doing: Doing = "build"
    ) -> Self | None:
        """The lease, or None while another living process has it."""
        return cls._take(connections, owner, {"doing": doing, "wanted": 0})

    @classmethod
    def holder(cls, connections: Connections) -> Doing | None:
        """What the living owner of the lease is doing, None when it is free."""
        with connections.reading() as db:
            row = db.conn.execute("SELECT owner, beat, doing FROM lease").fetchone()
        return row[2] if row is not None and lives(row[0], row[1], cls.STALE_SECONDS) else None

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

"""Who may consolidate: one process at a time, by a row in `pensieve.db`."""

from __future__ import annotations

from typing import Self

from pensieve_mcp.errors import StorageError
from pensieve_mcp.leases import RowLease
from pensieve_mcp.storage import Connections


class MergerLeaseLost(StorageError):
    """Another process took over the consolidation; nothing more may be published by this one."""

    slug = "merger_lease_lost"


class MergerLease(RowLease):
    """The right to consolidate."""

    TABLE = "merger_lease"
    WORK = "The consolidation"
    LOST = MergerLeaseLost
    BEAT_SECONDS = 5.0
    STALE_SECONDS = 60.0

    @classmethod
    def take(
        cls, connections: Connections, *, owner: str | None = None, stale_seconds: float | None = None
    ) -> Self | None:
        """The lease, or None while another living process has it."""
        return cls._take(connections, owner, {}, stale_seconds)

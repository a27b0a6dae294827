"""What changed since somebody last looked, by any process: what subscriptions are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pensieve_mcp.notebook.types import Changes

if TYPE_CHECKING:
    from pensieve_mcp.storage import Connections, Database


def counter(db: Database) -> int:
    """Grows with every change of any process. Cheap."""
    return int(db.conn.execute("SELECT coalesce(max(counter), 0) FROM note_changes").fetchone()[0])


def since(db: Database, before: int, limit: int = -1) -> Changes:
    """What changed after this counter, each name once; of the first `limit` changes."""
    rows = db.conn.execute(
        "SELECT kind, name, max(counter) FROM (SELECT * FROM note_changes WHERE counter > ? ORDER BY counter LIMIT ?) "
        "GROUP BY kind, name ORDER BY 3",
        (before, limit),
    ).fetchall()
    return Changes(
        counter=max([before, *(int(row[2]) for row in rows)]),
        keys=tuple(row[1] for row in rows if row[0] == "note"),
        plans=tuple(row[1] for row in rows if row[0] == "plan"),
    )


class Watch:
    """Tells what changed since it last looked. For one thread; close it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        with connections.reading() as db:
            self._counter = counter(db)
        self._pulse = connections.pulse()

    def poll(self) -> Changes | None:
        """What changed since the last poll, by any process; None when nothing did."""
        if not self._pulse.moved():
            return None
        with self._connections.reading() as db:
            changes = since(db, self._counter)
        if changes.counter == self._counter:
            return None  # something else in pensieve.db was written
        self._counter = changes.counter
        return changes

    def close(self) -> None:
        self._pulse.close()

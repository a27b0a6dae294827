"""How the index stood when somebody last told, read without loading anything.

The instructions go out with the very first answer, for which nothing heavy may be imported; so this reads one
row with the standard library instead of opening the corpus. It is a glance: whatever goes wrong, the answer is
that nothing is known.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from pensieve_mcp.corpus.types import BuildProgress


def glance(state: Path) -> BuildProgress | None:
    """The progress that was told last in this state folder, or None."""
    import sqlite3

    corpus = state / "corpus.db"
    if not corpus.is_file():
        return None
    with contextlib.suppress(sqlite3.Error, ValueError, TypeError, AttributeError):
        connection = sqlite3.connect(f"{corpus.absolute().as_uri()}?mode=ro", uri=True, timeout=0.2)
        with contextlib.closing(connection):
            row = connection.execute("SELECT told FROM progress").fetchone()
        told = json.loads(row[0]) if row else {}
        return BuildProgress(
            state=told["state"] if told.get("state") in _KNOWN else "stale",
            documents_done=int(told.get("documents_done", 0)),
            documents_total=int(told.get("documents_total", 0)),
        )
    return None


_KNOWN = ("building", "ready", "stale", "empty", "failed")

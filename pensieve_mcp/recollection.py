"""Notes and earlier messages by meaning: what each basin offers to be compared, and the folder the vectors lie in.

How vectors are made, kept and asked is `index/nearness.py`'s; what a basin holds, it knows itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pensieve_mcp.index.nearness import New, SecondLook, Side

if TYPE_CHECKING:
    from pensieve_mcp.ledger.store import Ledger
    from pensieve_mcp.notebook.store import Notebook


ASKING = "searchEngine"


class Notes:
    """The notebook as a source; a note's group is itself, so that it can be taken out."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self.birth = notebook.birth
        self.last = notebook.change_counter

    def since(self, mark: int, limit: int) -> tuple[list[New], int]:
        changes = self._notebook.changes_since(mark, limit)
        found = self._notebook.texts(changes.keys)
        return [
            New(row, row, None if content is None else f"{head}\n{content}") for row, head, content in found
        ], changes.counter


class Said:
    """The ledger as a source; a message's group is its conversation."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.birth = ledger.birth
        self.last = ledger.last_event

    def since(self, mark: int, limit: int) -> tuple[list[New], int]:
        found = self._ledger.said_since(mark, limit)
        # What means most like a question is the same question asked before: those are found by words.
        new = [New(one.number, one.episode_id, "" if one.tool == ASKING else one.text) for one in found]
        return new, found[-1].event_id if found else mark


class Recollection:
    """Both sides of a workspace: notes and what was said."""

    def __init__(self, folder: Path, notebook: Notebook, ledger: Ledger, *, second_look: bool) -> None:
        second = SecondLook() if second_look else None
        self.notes = Side(folder / "notes", Notes(notebook), second)
        self.history = Side(folder / "history", Said(ledger), second)

    def drop(self) -> None:
        self.notes.drop()
        self.history.drop()

    def close(self) -> None:
        self.notes.close()
        self.history.close()

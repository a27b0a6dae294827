"""Notes with the state of their evidence as of now: one when it is read, all of them when somebody asks."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pensieve_mcp.errors import StorageError
from pensieve_mcp.evidence.validity import expiry
from pensieve_mcp.evidence.witness import Given, Witness
from pensieve_mcp.notebook.types import Evidence, EvidenceState, Note

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """A piece of evidence that is not as it was at the last look."""

    key: str
    quote: str
    path: str
    locator: str
    before: EvidenceState
    after: EvidenceState
    detail: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at all notes found. `expired` are keys of notes whose time is over, with the reason."""

    notes: int = 0
    pieces: int = 0
    states: dict[str, int] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    expired: tuple[tuple[str, str], ...] = ()
    read: int = 0  # documents whose text was looked at; the others are as they were


def look_up(
    workspace: Workspace, given: Iterable[Given], *, default_chunks: Sequence[int] = ()
) -> tuple[Evidence, ...]:
    """See Witness.look_up."""
    with Witness(workspace) as witness:
        return witness.look_up(given, default_chunks=default_chunks)


def check_note(workspace: Workspace, note: Note, *, store: bool = True) -> Note:
    """The note with the state of its evidence as of now, which is stored with it. An old revision is looked at, too.

    A note whose time is over says `needs review` with the reason; only `check_all` stores that.
    """
    if note.evidence:
        with Witness(workspace) as witness:
            states = witness.again(note.evidence)
        if store and not note.deleted and _is_stale(note.evidence, states):
            try:
                workspace.notebook.check_many([(note.key, note.revision, states)])
            except StorageError as error:  # reading must work where nothing can be written
                log.warning("the state of evidence was not stored: %s", error.message)
        note = replace(note, evidence=states)
    if note.status == "active" and (why := expiry(workspace, note)):
        note = replace(note, status="needs review", reason=why)
    return note


REFRESH_SECONDS = 60.0  # an unchanged state is stored again only when its time is older than this


def _is_stale(before: Sequence[Evidence], after: Sequence[Evidence]) -> bool:
    return any(
        replace(new, verified=None) != replace(old, verified=None)
        or (new.verified or 0.0) - (old.verified or 0.0) > REFRESH_SECONDS
        for old, new in zip(before, after, strict=True)
    )


def check_all(
    workspace: Workspace,
    *,
    author: str = "check",
    progress: Callable[[int], None] | None = None,
    batch: int = 1_000,
) -> Checked:
    """Look at the evidence of all notes again and store what was found. Unchanged files are not read.

    The folders are not indexed first: a caller who wants renamed and new files to count builds before. Notes whose
    time is over become `needs review`, as a revision by `author`.
    """
    notebook = workspace.notebook
    states: Counter[str] = Counter()
    changes: list[Change] = []
    expired: list[tuple[str, str]] = []
    notes = pieces = 0
    with Witness(workspace) as witness:
        waiting: list[tuple[str, int, Sequence[Evidence]]] = []
        unchanged: list[tuple[str, int]] = []
        for note in notebook.evidence_of_all():
            notes += 1
            after = witness.again(note.evidence)
            pieces += len(after)
            states.update(piece.state for piece in after)
            for old, new in zip(note.evidence, after, strict=True):
                if old.state != new.state or (new.state == "moved" and old.path != new.path):
                    changes.append(
                        Change(note.key, new.quote, new.path, new.locator, old.state, new.state, new.detail)
                    )
            if any(
                replace(a, verified=None) != replace(b, verified=None)
                for a, b in zip(note.evidence, after, strict=True)
            ):
                waiting.append((note.key, note.revision, after))
            elif after:
                unchanged.append((note.key, note.revision))
            if note.status == "active" and (why := expiry(workspace, note, witness)):
                expired.append((note.key, why))
            if len(waiting) >= batch:
                notebook.check_many(waiting)
                waiting = []
            if progress is not None and notes % batch == 0:
                progress(notes)
        notebook.check_many(waiting)
        notebook.verified(unchanged, time.time())
        read = len(witness.read)
    for key, why in expired:
        notebook.set_status(key, "needs review", why, author=author)
    return Checked(notes, pieces, dict(states), tuple(changes), tuple(expired), read)

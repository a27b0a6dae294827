"""Errors a reader can act on.

Each has three parts: what happened (with the value in it), a stable slug, and a hint that names the next
step. The class says who can mend it. The reader is often a small model, and the hint decides whether it
recovers, so every door prints `message` and `hint` as they are.
"""

from __future__ import annotations


class PensieveError(Exception):
    """Base of all errors this project raises on purpose."""

    slug = "error"

    def __init__(self, message: str, *, hint: str = "", slug: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if slug is not None:
            self.slug = slug

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class Miscast(PensieveError):
    """The caller can mend it: a wrong id, a missing key, an argument out of range."""

    slug = "miscast"


class NoSuchChunk(Miscast):
    slug = "no_such_chunk"


class NoSuchMessage(Miscast):
    slug = "no_such_message"


class NoSuchNote(Miscast):
    slug = "no_such_note"


class NoSuchDocument(Miscast):
    slug = "no_such_document"


class Conflict(Miscast):
    """Somebody else changed the thing first; both versions are in the message."""

    slug = "conflict"


class NotReady(Miscast):
    """The index is not built yet, or not built for this chunk size."""

    slug = "not_ready"


class OverBudget(Miscast):
    """Reading more would overflow the window; the hint names what to delete."""

    slug = "over_budget"


class WorkspaceError(PensieveError):
    """The person at the machine can mend it: a folder, a permission, a full disk."""

    slug = "workspace"


class StorageError(WorkspaceError):
    """A database cannot be used: locked, corrupt, full disk, written by a newer version."""

    slug = "storage"


class IndexMismatch(WorkspaceError):
    """The index on disk was made by another encoder, chunker or version than asked for."""

    slug = "index_mismatch"


class BackendError(PensieveError):
    """Whoever runs the model or the encoder can mend it."""

    slug = "backend"

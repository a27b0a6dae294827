"""Until when a note holds: a date, or a document whose change ends it."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from pensieve_mcp.errors import Miscast, NoSuchDocument
from pensieve_mcp.evidence.witness import Witness
from pensieve_mcp.notebook.types import Note

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace


def validity(workspace: Workspace, given: str) -> tuple[str, str]:
    """(valid, basis) of a note from what a writer said: a date, a document whose change ends it, or nothing.

    Raises Miscast for what is neither.
    """
    text = given.strip()
    if text.casefold().startswith("until "):
        text = text[6:].strip()
    if text.casefold().endswith(" changes"):
        text = text[:-8].strip()
    if not text or text.casefold() in ("none", "always"):
        return "", ""
    try:
        return date.fromisoformat(text[:10]).isoformat(), ""
    except ValueError:
        pass
    try:
        document = workspace.corpus.document(*workspace.prefix(text))
    except (NoSuchDocument, TypeError) as absent:
        raise Miscast(
            f"valid is {given[:80]!r}, which is neither a date nor a document.",
            hint="Write a date such as 2026-12-31, or the path of the document whose change ends it.",
            slug="bad_argument",
        ) from absent
    return document.path, document.digest.hex()


def expiry(workspace: Workspace, note: Note, witness: Witness | None = None) -> str:
    """Why the time of a note is over; empty while it is not.

    A clock that jumps back does not make an old note valid again: time is at least that of its last revision.
    """
    if not note.valid:
        return ""
    if note.valid_basis:
        with witness or Witness(workspace) as looking:
            document = looking.document(note.valid)
            if document is None or looking.freshness(document.document_id) == "gone":
                return f"it was valid until {note.valid} changes, which is not there any more"
            if (
                document.digest.hex() != note.valid_basis
                or looking.freshness(document.document_id) == "changed"
            ):
                return f"it was valid until {note.valid} changes, which it has"
        return ""
    try:
        last = date.fromisoformat(note.valid)
    except ValueError:
        return ""  # written by another version
    now = datetime.fromtimestamp(max(time.time(), note.updated), UTC).date()
    return f"it was valid until {note.valid}" if now > last else ""

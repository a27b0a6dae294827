"""Which notes are meant, as a condition of SQL over `notes n` joined with its revision in force `f`."""

from __future__ import annotations

from typing import Any

from pensieve_mcp.notebook.types import PRIVATE, NoteFilter

_EVIDENCE = "EXISTS (SELECT 1 FROM note_evidence e WHERE e.note_id = n.id AND e.revision = n.revision AND "


_PRIVATE = f"n.key NOT GLOB '{PRIVATE}[0-9]*/*'"


def condition_of(only: NoteFilter | None) -> tuple[str, list[Any]]:
    """` AND …` with its values; empty when everything is meant."""
    only = only or NoteFilter()
    parts: list[str] = [] if only.private else [_PRIVATE]
    values: list[Any] = []
    if only.states:
        parts.append(f"{_EVIDENCE}e.state IN ({_marks(only.states)}))")
        values += only.states
    if only.statuses:
        parts.append(f"n.status IN ({_marks(only.statuses)})")
        values += only.statuses
    if only.kinds:
        parts.append(
            f"(json_extract(f.extra, '$.kind') IN ({_marks(only.kinds)}) "
            f"OR {_EVIDENCE}e.kind IN ({_marks(only.kinds)})))"
        )
        values += [*only.kinds, *only.kinds]
    if only.under:
        below = only.under.rstrip("/") + "/"
        at = "({0} = ? OR substr({0}, 1, ?) = ?)"
        parts.append(f"({at.format('f.applies_to')} OR {_EVIDENCE}{at.format('e.path')}))")
        values += [only.under.rstrip("/"), len(below), below] * 2
    return "".join(f" AND {part}" for part in parts), values


def _marks(values: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(values))

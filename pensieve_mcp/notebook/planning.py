"""The pinned record of what we are doing, in revisions; one for each scope. It heads every window, so it is short."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pensieve_mcp.errors import Miscast
from pensieve_mcp.notebook.checks import sound
from pensieve_mcp.notebook.schema import changed
from pensieve_mcp.notebook.types import Plan

if TYPE_CHECKING:
    from pensieve_mcp.storage import Database


def read(db: Database, scope: str, revision: int | None = None) -> Plan:
    """The plan now, or at a revision; an empty one with revision 0 when there is none."""
    row = db.conn.execute(
        "SELECT revision, at, author, body FROM plan_revisions WHERE scope = ?1 "
        "AND (?2 IS NULL OR revision = ?2) ORDER BY revision DESC LIMIT 1",
        (scope, revision),
    ).fetchone()
    if row is None:
        return Plan()
    body = json.loads(row[3])
    return Plan(
        goal=body["goal"],
        constraints=tuple(body["constraints"]),
        steps=tuple(body["steps"]),
        next=body["next"],
        revision=row[0],
        updated=row[1],
        author=row[2],
    )


def change(
    db: Database,
    scope: str,
    *,
    goal: str | None,
    constraints: Sequence[str] | None,
    steps: Sequence[str] | None,
    next: str | None,
    author: str,
    now: float,
    most_chars: int,
    clean: Callable[[str], str],
) -> Plan:
    """A new revision with what is not None. Inside the caller's transaction. Raises Miscast when it is too long."""
    old = read(db, scope)
    new = Plan(
        goal=old.goal if goal is None else clean(sound(goal, "goal")),
        constraints=old.constraints
        if constraints is None
        else tuple(clean(sound(one, "constraint")) for one in constraints),
        steps=old.steps if steps is None else tuple(clean(sound(one, "step")) for one in steps),
        next=old.next if next is None else clean(sound(next, "next step")),
        revision=old.revision + 1,
        updated=now,
        author=sound(author, "author"),
    )
    size = len(new.goal) + len(new.next) + sum(map(len, (*new.constraints, *new.steps)))
    if size > most_chars:
        raise Miscast(
            f"The plan has {size:,} characters; at most {most_chars:,} are allowed, since it heads every window.",
            hint="Keep goal, constraints and open steps; move the rest into notes.",
            slug="plan_too_long",
        )
    body = {"goal": new.goal, "constraints": new.constraints, "steps": new.steps, "next": new.next}
    db.conn.execute(
        "INSERT INTO plan_revisions VALUES (?, ?, ?, ?, ?)",
        (scope, new.revision, new.updated, new.author, json.dumps(body)),
    )
    changed(db, "plan", scope)
    return new


def remove(db: Database, scope: str) -> int:
    """Remove a plan with its past. Answers how many revisions there were. Inside the caller's transaction."""
    count = db.conn.execute("DELETE FROM plan_revisions WHERE scope = ?", (scope,)).rowcount
    if count:
        changed(db, "plan", scope)
    return int(count)

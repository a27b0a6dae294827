"""plan and finish: the pinned record of what we are doing, and the answer with checked citations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from pensieve_mcp.episode import Citation
from pensieve_mcp.errors import Miscast
from pensieve_mcp.evidence import check_note, look_up
from pensieve_mcp.ledger.events import Sealed
from pensieve_mcp.notebook.standing import worst
from pensieve_mcp.spellbook.registry import Args, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import listing, one_line

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode

MAX_CITATIONS = 100


class PlanArgs(Args):
    goal: str | None = None
    constraints: list[str] | None = None
    steps: list[str] | None = None
    next: str | None = Field(None, description="What comes next.")


class PlanResult(Result):
    goal: str
    constraints: list[str]
    steps: list[str]
    next: str
    revision: int


@spell("plan", PlanArgs, PlanResult, stage="close", repeatable=True, title="Plan")
def plan(episode: Episode, args: PlanArgs) -> Outcome:
    """Set or, without arguments, show the plan; given fields replace old ones. It is never deleted."""
    notebook = episode.workspace.notebook
    given = {name: getattr(args, name) for name in args.model_fields_set if getattr(args, name) is not None}
    scope = str(episode.episode_id)
    record = (
        notebook.plan(**given, scope=scope, author=episode.author)
        if given
        else notebook.read_plan(scope=scope)
    )
    lines = []
    if record.goal:
        lines.append(f"Goal: {record.goal}")
    lines += [f"Constraint: {c}" for c in record.constraints]
    lines += [f"{place}. {step}" for place, step in enumerate(record.steps, 1)]
    if record.next:
        lines.append(f"Next: {record.next}")
    return Outcome(
        PlanResult(
            goal=record.goal,
            constraints=list(record.constraints),
            steps=list(record.steps),
            next=record.next,
            revision=record.revision,
        ),
        listing(lines) or "No plan yet. Give goal, steps and next.",
        facts=(f"plan revision {record.revision}",) if record.revision else ("plan",),
        label="plan",
    )


def _cited(episode: Episode, citation: str) -> Citation:
    """A citation with its state as of now: notes and messages by their evidence, chunks and paths by their file."""
    text = citation.strip()
    if text[:1] in "mMhH" and _MESSAGE.match(text):
        (piece,) = look_up(episode.workspace, [(text, None, "")])
        known = piece.message is not None
        return Citation(piece.path, piece.locator, piece.chunk_id, piece.state if known else "unknown")
    if not _CHUNK.match(text):
        try:
            note = episode.workspace.notebook.read(text)
        except Miscast:  # no such note, or no key at all: perhaps a path
            return episode.check_citation(text)
        note = check_note(episode.workspace, episode.workspace.notebook.in_force(note))
        first = next(iter(note.evidence), None)
        state: str = "revoked" if note.status == "revoked" else worst(note.evidence)
        if first is None:
            return Citation("", "", None, state)
        return Citation(first.path, first.locator, first.chunk_id, state)
    return episode.check_citation(text)


_MESSAGE = re.compile(r"(?:m[0-9]{1,15}(?:\.[0-9]{1,6})?|h[0-9a-f]{4,32})\Z", re.IGNORECASE)
_CHUNK = re.compile(r"c?[0-9]{1,15}\Z", re.IGNORECASE)


class FinishArgs(Args):
    answer: str = Field(description="The short answer.")
    citations: list[str] | None = Field(None, description="What it rests on: c48, a note's key or a path.")


class CitationLine(Result):
    citation: str
    path: str
    locator: str
    chunk_id: int | None
    state: str


class FinishResult(Result):
    final_answer: str
    citations: list[CitationLine]


@spell("finish", FinishArgs, FinishResult, stage="close", repeatable=True, title="Answer")
def finish(episode: Episode, args: FinishArgs) -> Outcome:
    """Close the question with the answer and what it rests on; citations are checked."""
    if not args.answer.strip():
        raise Miscast(
            "answer is empty.",
            hint="Give the answer, or say that the documents do not hold it.",
            slug="missing_argument",
        )
    given = [c for c in args.citations or () if c.strip()]
    if len(given) > MAX_CITATIONS:
        raise Miscast(
            f"{len(given)} citations; at most {MAX_CITATIONS}.",
            hint="Cite what the answer rests on.",
            slug="bad_argument",
        )
    lines = [args.answer]
    checked: list[CitationLine] = []
    for citation in given:
        line = _cited(episode, citation)
        checked.append(
            CitationLine(
                citation=citation,
                path=line.path,
                locator=line.locator,
                chunk_id=line.chunk_id,
                state=line.state,
            )
        )
        where = " ".join(p for p in (line.path, line.locator) if p)
        lines.append(f"[{one_line(citation, 80)}] {where + ': ' if where else ''}{line.state}")
    if not checked:
        lines.append("Without citations: nothing was checked.")
    episode.append([Sealed(args.answer, tuple(given))])
    return Outcome(FinishResult(final_answer=args.answer, citations=checked), listing(lines), label="answer")

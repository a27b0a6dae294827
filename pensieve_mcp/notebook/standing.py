"""What a note is worth: strength of its evidence, and which of two claims counts. Pure.

A claim is as strong as the best piece it rests on that still holds. What a writer says about himself counts less:
a model's "the user said so" without a message that shows it is a report, and any note may be called observed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pensieve_mcp.notebook.types import GRAVEST, HOLDING, Evidence, EvidenceKind, Note

PERSONS = ("cli",)
"""Authors behind whom a person sits; of models there is only what the evidence shows."""

STRENGTH: dict[EvidenceKind, int] = {"user": 4, "observed": 3, "tool": 2, "guess": 1}
"""What a person said outweighs a document, a document a tool's result, and that a guess."""

WORDS = ("nothing that holds", "a guess", "a report or a tool's result", "a document", "what the user said")


def strength(note: Note) -> int:
    """0 (nothing holds) to 4 (the user said so)."""
    if note.status in ("revoked", "superseded"):
        return 0
    if note.kind == "user" and note.author in PERSONS:
        return STRENGTH["user"]
    holding = [_worth(piece) for piece in note.evidence if piece.state in HOLDING]
    if holding:
        return max(holding)
    if note.evidence and all(piece.state != "unchecked" for piece in note.evidence):
        return 0
    return STRENGTH["tool"] if note.kind == "user" else STRENGTH["guess"]


def _worth(piece: Evidence) -> int:
    """Without a quote a piece tells where a claim comes from, not that it stands there."""
    worth = STRENGTH[piece.kind]
    return worth if piece.quote else min(worth, STRENGTH["tool"])


def in_words(note: Note) -> str:
    return WORDS[strength(note)]


def differs(one: Note, other: Note) -> bool:
    """Whether two notes say different things; white space and case do not count."""
    return _said(one) != _said(other)


def contested(new: Note, old: Note) -> str:
    """Why a new claim under the same key must not simply replace the old one; empty when it may.

    The last writer alone never decides: weaker evidence yields, equal evidence of another author is settled by
    whoever reads both. Two claims without evidence have nothing to weigh.
    """
    if not differs(new, old):
        return ""
    ours, theirs = strength(new), strength(old)
    if ours < theirs:
        return f"it rests on {in_words(new)}, revision {old.revision} on {in_words(old)}"
    if ours == theirs > STRENGTH["guess"] and new.author != old.author:
        return f"revision {old.revision} by {old.author or 'another author'} rests on evidence as good"
    return ""


def worst(evidence: Sequence[Evidence]) -> str:
    """The state that says most about a note: of pieces that do not hold the gravest, else `moved`, else `ok`."""
    states = {piece.state for piece in evidence}
    for state in (*GRAVEST, "unchecked", "moved"):
        if state in states:
            return state
    return "ok" if states else "unsupported"


def _said(note: Note) -> tuple[str, ...]:
    return tuple(f"{note.summary}\n{note.content}".casefold().split())

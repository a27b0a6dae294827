"""Values of the notebook: notes, what they rest on, how they are listed and found.

They know no database. Evidence is what makes a note worth trusting: the exact quote with where it stood, so
that it can be looked up again when its source has moved or changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

EvidenceState = Literal["unchecked", "ok", "unsupported", "moved", "changed", "gone"]
"""`ok`: the quote stands there. `unsupported`: it stood nowhere when noted. The rest is for later looks."""

EvidenceKind = Literal["observed", "user", "tool", "guess"]
"""Observed in a document, said by the user, a tool's result, the model's own guess."""

Action = Literal["write", "append", "overwrite", "delete", "merge", "restore", "import"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing a note rests on. `span` is half-open, in code points of the document's text."""

    quote: str
    path: str = ""  # root/relative/file
    locator: str = ""  # `p. 12`, text a person can use
    chunk_id: int | None = None
    message: int | None = None  # number of an earlier message, where that is the source
    document_digest: bytes = b""  # sha256 of the file when it was looked up
    span: tuple[int, int] | None = None
    prefix: str = ""  # what stood before and after the quote: tells two equal quotes apart
    suffix: str = ""
    state: EvidenceState = "unchecked"
    detail: str = ""  # what stands there now, or where it moved
    kind: EvidenceKind = "observed"
    verified: float | None = None  # when the state was last looked up, seconds since 1970


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it is now, or as it was at a revision. Times in seconds since 1970.

    `warnings` are sentences for the writer (a twin key, something redacted); they are not stored.
    """

    key: str
    summary: str
    content: str
    revision: int
    created: float
    updated: float
    evidence: tuple[Evidence, ...] = ()
    applies_to: str = ""  # workspace, a project, or a path
    links: tuple[str, ...] = ()  # keys of other notes
    author: str = ""
    deleted: bool = False
    warnings: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Revision:
    """One step in a note's history, newest last."""

    key: str
    revision: int
    at: float
    author: str
    action: Action
    summary: str
    size_chars: int


@dataclass(frozen=True, slots=True)
class NoteLine:
    """A note in a list: what stands in front of the model at every turn."""

    key: str
    summary: str
    revision: int
    updated: float
    size_chars: int = 0
    unsupported: int = 0  # pieces of evidence that are not ok (unchecked ones are not counted)

    def __str__(self) -> str:
        return f"{self.key}: {self.summary}"


@dataclass(frozen=True, slots=True)
class NotePage:
    """Lines in the order of their keys. `cursor` goes on where they end, None at the end of all."""

    lines: tuple[NoteLine, ...]
    total: int
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class NoteHit:
    """One note found. `score` is BM25, higher is better, comparable within one answer."""

    line: NoteLine
    score: float
    snippet: str


@dataclass(frozen=True, slots=True)
class NoteAnswer:
    """Best first. `found` says whether all terms had to match (`all`), any, or only their beginnings."""

    hits: tuple[NoteHit, ...]
    total: int
    found: Literal["all", "any", "prefix"] = "all"


@dataclass(frozen=True, slots=True)
class Plan:
    """What we are doing. Pinned: it survives every trim and heads every handoff."""

    goal: str = ""
    constraints: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    next: str = ""
    revision: int = 0  # 0: nothing was planned yet
    updated: float = 0.0
    author: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed after a counter. `keys` in the order of their last change; `plans` are scopes."""

    counter: int
    keys: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteLimits:
    """Bounds of a note. Beyond them a note is refused with the way to split it."""

    key_chars: int = 200
    summary_chars: int = 500
    content_bytes: int = 1_000_000
    evidence: int = 200  # pieces a note
    quote_chars: int = 10_000
    links: int = 200
    plan_chars: int = 20_000  # it is repeated at the head of every window

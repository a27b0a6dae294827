"""Values of the notebook: notes, what they rest on, how they are listed and found.

They know no database. Evidence is what makes a note worth trusting: the exact quote with where it stood, so
that it can be looked up again when its source has moved or changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

EvidenceState = Literal["unchecked", "ok", "unsupported", "moved", "changed", "gone", "revoked"]
"""`ok`: the quote stands where it was noted. `moved`: it stands elsewhere now. `changed`: other words stand in its
place. `gone`: its document is no more. `unsupported`: it never stood anywhere. `revoked`: the source was withdrawn."""

HOLDING: tuple[EvidenceState, ...] = ("ok", "moved")
"""States in which a piece of evidence still carries what rests on it."""

GRAVEST: tuple[EvidenceState, ...] = ("revoked", "gone", "changed", "unsupported")
"""States in which it does not, the one first that says most."""

EvidenceKind = Literal["observed", "user", "tool", "guess"]
"""Observed in a document, said by the user, a tool's result, the model's own guess."""

Status = Literal["active", "superseded", "revoked", "needs review"]
"""What a note is good for: `superseded` by a better one, `revoked` with its source, `needs review` by somebody."""

PRIVATE = "asked-"
"""Keys `asked-<episode>/…` are scratch notes of a question that was handed to a small model or to none: no list shows
them unasked; reading by key, exports and checks know them, and they go with their conversation."""


def scratch(episode_id: int) -> str:
    """What the keys of a conversation's scratch notes begin with."""
    return f"{PRIVATE}{episode_id}/"


Action = Literal["write", "append", "overwrite", "delete", "merge", "restore", "import", "status", "revoke"]


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
    noted_path: str = (
        ""  # where it stood when noted, once it stands elsewhere; `path` and the rest are current
    )
    noted_locator: str = ""
    basis: str = (
        ""  # what the last look rested on beside the file: its reader, or the generation of the index
    )


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
    kind: EvidenceKind | Literal[""] = ""  # what the writer says it is; evidence outweighs it
    status: Status = "active"
    reason: str = ""  # of a status that is not active
    valid: str = ""  # until a date (2026-12-31), until a document changes (its path), or empty: no end
    valid_basis: str = ""  # digest of that document when noted, hexadecimal
    observed: float | None = None  # when the fact was seen, where that was not when it was noted
    contests: int | None = None  # revision that says otherwise on better evidence, and is in force
    merged_from: tuple[str, ...] = ()  # keys that went into it
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
    unsupported: int = 0  # pieces of evidence that do not hold (unchecked ones are not counted)
    status: Status = "active"
    kind: str = ""
    applies_to: str = ""
    doubts: tuple[tuple[EvidenceState, int], ...] = ()  # the same pieces by their state, the gravest first

    def doubted(self) -> str:
        """What speaks against its evidence, in the words of the states: `2 changed, 1 gone`. Empty for nothing."""
        return ", ".join(f"{number} {state}" for state, number in self.doubts)

    def __str__(self) -> str:
        return f"{self.key}: {self.summary}"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A note near another: `links to` it, `linked from` it, or resting on the `same place`."""

    line: NoteLine
    how: Literal["links to", "linked from", "same place"]


@dataclass(frozen=True, slots=True)
class NoteFilter:
    """Which notes a list or search is about; empty fields let all through."""

    states: tuple[EvidenceState, ...] = ()  # at least one piece of evidence is in one of them
    statuses: tuple[Status, ...] = ()
    kinds: tuple[str, ...] = ()
    under: str = ""  # applies to, or rests on, this path or what lies below it
    private: bool = False  # those of questions that were handed to a small model, too


@dataclass(frozen=True, slots=True)
class Revoked:
    """What revoking or purging a source did, by key: all of a note's support gone, part of it, or linked to such."""

    revoked: tuple[str, ...] = ()
    review: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    purged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reinstated:
    """What taking a revocation back did, by key: notes that are what they were again, and (key, why) of the others."""

    back: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RevokedSource:
    """A source that a person withdrew; whatever rests on it says so."""

    path: str
    at: float
    author: str
    reason: str


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
class Proposal:
    """One change that a consolidation would make. `expected` are the revisions it was thought up on (0: no such note):
    when one of them is another by now, the proposal is left out.

    `merge` takes `keys` into `key`, `mark` sets its status, `write` is a note of its own. `pair` names two notes that
    disagree, which is told once.
    """

    what: Literal["merge", "mark", "write"]
    key: str
    expected: tuple[tuple[str, int], ...]
    keys: tuple[str, ...] = ()
    summary: str = ""
    content: str = ""
    evidence: tuple[Evidence, ...] = ()
    links: tuple[str, ...] = ()
    status: Status = "active"
    reason: str = ""
    pair: str = ""


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

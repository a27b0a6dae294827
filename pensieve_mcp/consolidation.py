"""Notes of many conversations made one notebook: doubles merged, contradictions shown, results of conversations kept.

Phase 1 looks at each conversation by itself, in parallel, and keeps what it has to offer, once for each version of it.
Phase 2 is one merger under a lease, and publishes all or nothing. A crash in any place costs only work: candidates
stay, what was not published is thought up again. All by rule; nothing is dropped, since merged notes keep their
revisions.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.evidence import check_all, look_up
from pensieve_mcp.notebook.checks import folded
from pensieve_mcp.notebook.standing import STRENGTH, differs, in_words, strength
from pensieve_mcp.notebook.types import Note, Proposal

if TYPE_CHECKING:
    from pensieve_mcp.ledger.schema import EpisodeRecord
    from pensieve_mcp.workspace import Workspace

AUTHOR = "merger"
WORKERS = 4  # conversations looked at at once: the work is reading SQLite and unpacking
STALE_SECONDS = 60.0  # twelve beats
MERGED_STATUSES = ("active",)
"""Only these are merged: what needs a person's look must not vanish into another note."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a consolidation did. `busy`: another process is at it, nothing was done."""

    busy: bool = False
    conversations: int = 0  # looked at
    candidates: int = 0  # new versions of what they offer
    proposed: int = 0
    made: tuple[Proposal, ...] = ()
    problems: tuple[str, ...] = ()


def consolidate(
    workspace: Workspace,
    *,
    dry_run: bool = False,
    owner: str | None = None,
    before_publishing: Callable[[], None] = lambda: None,
) -> Consolidated:
    """Both phases. `before_publishing` is called between thinking and publishing. Raises MergerLeaseLost, StorageError.

    With `dry_run` `made` is what would be proposed; nothing is written but the states of evidence.
    """
    looked, new, problems = (0, 0, []) if dry_run else gather_candidates(workspace)
    check_all(workspace, author=AUTHOR)
    if dry_run:
        proposals = propose(workspace, workspace.notebook.candidates())
        return Consolidated(proposed=len(proposals), made=tuple(proposals))
    lease = workspace.notebook.take_lease(owner, stale_seconds=STALE_SECONDS)
    if lease is None:
        return Consolidated(busy=True, conversations=looked, candidates=new, problems=tuple(problems))
    try:
        candidates = workspace.notebook.candidates()
        proposals = propose(workspace, candidates)
        before_publishing()
        made = workspace.notebook.publish(
            lease, proposals, taken=[(source, version) for source, version, _ in candidates], author=AUTHOR
        )
    finally:
        lease.give_back()
    return Consolidated(False, looked, new, len(proposals), tuple(made), tuple(problems))


# --- phase 1 ------------------------------------------------------------------------------------------------


def gather_candidates(workspace: Workspace) -> tuple[int, int, list[str]]:
    """(conversations looked at, new candidates, sentences about those that could not be read)."""
    records = list(workspace.ledger.all_episodes())
    problems: list[str] = []
    new = 0

    def offer(record: EpisodeRecord) -> bool | str:
        try:
            body = result_of(workspace, record)
            if body is None:
                return False
            text = json.dumps(body, ensure_ascii=False, sort_keys=True)
            version = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            return workspace.notebook.add_candidate(f"episode:{record.episode_id}", version, text)
        except PensieveError as error:
            return f"Conversation {record.handle} was left out: {error.message}"

    with ThreadPoolExecutor(WORKERS, thread_name_prefix="candidates") as pool:
        for told in pool.map(offer, records):
            if isinstance(told, str):
                problems.append(told)
            else:
                new += told
    return len(records), new, problems


def result_of(workspace: Workspace, record: EpisodeRecord) -> dict[str, object] | None:
    """What a conversation came to: goal, constraints, answers with what they cite. None when it came to no answer."""
    transcript = workspace.ledger.transcript(record.episode_id)
    if not transcript.sealed:
        return None
    plan = workspace.notebook.read_plan(scope=str(record.episode_id))
    return {
        "episode": record.episode_id,
        "goal": plan.goal,
        "constraints": list(plan.constraints),
        "answers": [
            {"answer": sealed.answer, "citations": list(sealed.citations)} for sealed in transcript.sealed
        ],
    }


# --- phase 2 ------------------------------------------------------------------------------------------------


def propose(workspace: Workspace, candidates: Iterable[tuple[str, str, str]] = ()) -> list[Proposal]:
    """What a merger would change now, by rule. Each note is in one proposal at most."""
    notebook = workspace.notebook
    notes = [note for note in notebook.all_notes(private=False) if note.contests is None]
    taken: set[str] = set()
    proposals: list[Proposal] = []
    for group in _groups(notes):
        group = [note for note in group if note.key not in taken]
        doubles = _doubles(group)
        for same in doubles:
            if len(same) > 1:
                proposals.append(_merge(same))
                taken |= {note.key for note in same}
        heads = [same[0] for same in doubles]
        for weaker, why in _contradictions(heads):
            if weaker.key not in taken:
                proposals.append(
                    Proposal(
                        "mark",
                        weaker.key,
                        ((weaker.key, weaker.revision),),
                        status="needs review",
                        reason=why,
                    )
                )
                taken.add(weaker.key)
    for source, _, text in candidates:
        if (proposal := _result(workspace, source, json.loads(text))) is not None:
            proposals.append(proposal)
    return proposals


def _groups(notes: Iterable[Note]) -> list[list[Note]]:
    """Notes that may be about the same thing: keys a person would take for one, or the same quote of the same
    document; strongest first."""
    by: dict[tuple[str, str], list[Note]] = defaultdict(list)
    for note in notes:
        if note.status not in MERGED_STATUSES:
            continue
        by["key", folded(note.key)].append(note)
        for piece in note.evidence:
            if piece.quote and (piece.path or piece.message is not None):
                place = piece.path or f"m{piece.message}"
                by["place", f"{place}\0{_plain(piece.quote)}"].append(note)
    found = []
    for notes_here in by.values():
        distinct = list({note.key: note for note in notes_here}.values())
        if len(distinct) > 1:
            found.append(sorted(distinct, key=lambda note: (-strength(note), note.created, note.key)))
    return found


def _doubles(group: list[Note]) -> list[list[Note]]:
    """The group in bundles that say the same about the same, the strongest of each first."""
    bundles: list[list[Note]] = []
    for note in group:
        for bundle in bundles:
            if _same_said(bundle[0], note) and bundle[0].applies_to == note.applies_to:
                bundle.append(note)
                break
        else:
            bundles.append([note])
    return bundles


def _same_said(one: Note, other: Note) -> bool:
    """Equal contents; the summaries may be worded otherwise."""
    return not differs(one, other) or (
        bool(_plain(one.content)) and _plain(one.content) == _plain(other.content)
    )


def _contradictions(heads: list[Note]) -> list[tuple[Note, str]]:
    """Twin keys that say different things: the weaker gives way, equals are both left to a reader."""
    found = []
    for place, note in enumerate(heads):
        for other in heads[place + 1 :]:
            if folded(note.key) != folded(other.key):
                continue  # two facts may rest on one quote
            if strength(other) < strength(note):
                found.append(
                    (
                        other,
                        f"{note.key!r} says otherwise and rests on {in_words(note)}, this on {in_words(other)}",
                    )
                )
            elif strength(note) > STRENGTH["guess"]:
                found.append((note, f"{other.key!r} says otherwise on evidence as good"))
                found.append((other, f"{note.key!r} says otherwise on evidence as good"))
    return found


def _merge(same: list[Note]) -> Proposal:
    target = same[0]
    lines = dict.fromkeys(line for note in same for line in note.content.splitlines())
    equal = all(_plain(note.content) == _plain(target.content) for note in same)
    return Proposal(
        "merge",
        target.key,
        tuple((note.key, note.revision) for note in same),
        keys=tuple(note.key for note in same[1:]),
        summary=target.summary,
        content=target.content if equal else "\n".join(lines),
    )


def _result(workspace: Workspace, source: str, body: dict[str, object]) -> Proposal | None:
    """A note of what a conversation came to, at a key of its own. It rests on what was cited, as that stands now."""
    answers = body["answers"]
    assert isinstance(answers, list)
    key = f"results/{source.replace(':', '-')}"
    current = workspace.notebook.current(key)
    live = current if current is not None and not current.deleted else None
    citations = list(dict.fromkeys(one for answer in answers for one in answer["citations"]))
    noted = [one for one in citations if _is_note(workspace, one)]
    places = [one for one in citations if one not in noted]
    evidence = look_up(
        workspace,
        [
            (one, None, "") if re.match(r"[cm][0-9]+(\.[0-9]+)?\Z", one, re.IGNORECASE) else (None, one, "")
            for one in places[:50]
        ],
    )
    lines = [f"Goal: {body['goal']}"] if body["goal"] else []
    constraints = body["constraints"]
    assert isinstance(constraints, list)
    lines += [f"Constraint: {one}" for one in constraints]
    lines += [f"Answer: {answer['answer']}" for answer in answers]
    content = "\n".join(lines)
    if live is not None and live.content == content:
        return None
    return Proposal(
        "write",
        key,
        ((key, live.revision if live is not None else 0),),
        summary=" ".join(str(answers[-1]["answer"]).split())[:200],
        content=content,
        evidence=evidence,
        links=tuple(noted),
    )


def _is_note(workspace: Workspace, citation: str) -> bool:
    try:
        found = workspace.notebook.current(citation)
    except PensieveError:
        return False
    return found is not None and not found.deleted


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())

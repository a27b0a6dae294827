"""What came from a source or a note, everywhere we keep text: traced, told, and really removed.

A poisoned document, or a note that should never have been written, lies in more places than the notebook: in results
that showed it, in calls that wrote it, in answers that cite it, in plans. Messages keep their place in the record, so
that a conversation can be read on; their text goes, and so do the results of conversations that a consolidation noted
and that repeat it. What was merged or linked is the notebook's to judge; plans and other notes that tell it are told
to a person, who may let go of them.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pensieve_mcp.errors import NoSuchDocument, NoSuchNote
from pensieve_mcp.notebook.revoking import lies_in
from pensieve_mcp.notebook.types import Revoked
from pensieve_mcp.places import is_there

if TYPE_CHECKING:
    from pensieve_mcp.ledger.retention import Look
    from pensieve_mcp.workspace import Workspace

TELLING_CHARS = 24  # a line as short as that may stand anywhere
RESULTS = "results/"  # below it a consolidation notes what conversations came to
NOTE_TOOLS = ("note", "updateNote", "readNote")


@dataclass(frozen=True, slots=True)
class Traced:
    """What came from it: notes by key, numbers of messages, handles of the conversations whose plan tells it, keys of
    notes that tell it and stay, since somebody wrote them."""

    notes: Revoked
    messages: tuple[int, ...] = ()
    plans: tuple[str, ...] = ()
    telling: tuple[str, ...] = ()


def known_source(workspace: Workspace, *paths: str) -> str:
    """The first of these paths that is a source: in the folders or the index, now or once, named by a note's evidence,
    or withdrawn before. Raises NoSuchDocument with near names."""
    named = workspace.notebook.evidence_paths()
    withdrawn = {one.path for one in workspace.notebook.revoked_sources()}
    for path in paths:
        if (
            path in withdrawn
            or any(lies_in(one, path) for one in named)
            or workspace.corpus.ids.ever_held(path)
            or _lies_there(workspace, path)
        ):
            return path
    near = difflib.get_close_matches(paths[-1], named, n=3, cutoff=0.7)
    raise NoSuchDocument(
        f"No document is called {paths[-1]!r}, and no note's evidence names it.",
        hint=f"Did you mean {' or '.join(near)}?" if near else _near_documents(workspace, paths[-1]),
    )


def _near_documents(workspace: Workspace, path: str) -> str:
    try:
        workspace.corpus.document(path)
    except NoSuchDocument as unknown:
        return unknown.hint
    return ""


def _lies_there(workspace: Workspace, path: str) -> bool:
    """By `root/relative/file` alone: what is typed in another way is the shell's to read."""
    name, _, rest = path.partition("/")
    root = next((root for root in workspace.roots if root.name == name), None)
    if root is None or ".." in rest.split("/"):
        return False
    return workspace.corpus.has_under(path) or is_there(Path(root.folder, rest))


def messages_showing(workspace: Workspace, source: str) -> frozenset[int]:
    """Numbers of all messages, of any conversation, that showed text of a document or of a folder's documents."""
    shows = _shows(workspace, source)
    return frozenset(look.number for look in workspace.ledger.looks() if shows(look))


def trace_source(workspace: Workspace, source: str) -> Traced:
    """Everything that came from a document or folder. Nothing is changed."""
    showing = messages_showing(workspace, source)
    found = workspace.notebook.resting_on(source, showing)
    return _traced(workspace, source, found, showing)


def trace_note(workspace: Workspace, key: str) -> Traced:
    """Everything that tells what a note says, in any revision. Nothing is changed. Raises NoSuchNote."""
    workspace.notebook.history(key)  # raises, with near names
    return _traced(workspace, "", Revoked(purged=(key,)), frozenset())


def purge_source(workspace: Workspace, source: str, *, messages: bool = True, author: str = "") -> Traced:
    """Remove the notes that rest on this alone and those merged from them, its quotes from the others, and, with
    `messages`, the text of every message that shows it or tells those notes. Raises StorageError while other
    processes keep the files busy; doing it again goes on."""
    traced = trace_source(workspace, source)
    hides = _tells(workspace, traced.notes.purged, _quotes(workspace, source))
    done = workspace.notebook.purge_source(
        source, messages=messages_showing(workspace, source), author=author
    )
    done = replace(done, purged=traced.notes.purged)
    return _let_go(workspace, replace(traced, notes=done), hides, messages)


def purge_note(workspace: Workspace, key: str, *, messages: bool = True) -> Traced:
    """Remove a note with all revisions and, with `messages`, the text of every message that tells it. Raises
    NoSuchNote, StorageError while other processes keep the files busy."""
    traced = trace_note(workspace, key)
    hides = _tells(workspace, traced.notes.purged, ())
    workspace.notebook.purge(key)
    return _let_go(workspace, traced, hides, messages)


def purge_conversations(
    workspace: Workspace,
    *,
    before: float | None = None,
    episode_id: int | None = None,
    content_only: bool = False,
) -> tuple[int, int, int]:
    """Remove conversations with their plans and what a consolidation remembers of them: (conversations, messages,
    bytes). See `Ledger.purge`; notes stay."""
    gone = [
        record.episode_id
        for record in workspace.ledger.all_episodes()
        if (before is None or record.last < before)
        and (episode_id is None or record.episode_id == episode_id)
    ]
    done = workspace.ledger.purge(before=before, episode_id=episode_id, content_only=content_only)
    workspace.notebook.forget_conversations(gone, plans=not content_only)
    workspace.recollection.drop()
    return done.episodes, done.messages, done.freed_bytes


def _let_go(workspace: Workspace, traced: Traced, hides: Callable[[str], bool], messages: bool) -> Traced:
    for key in traced.notes.purged:
        if (
            workspace.notebook.current(key) is not None
        ):  # a result: the notebook does not know that it came of it
            workspace.notebook.purge(key)
    if messages:
        workspace.ledger.purge_messages(traced.messages, hides)
        workspace.notebook.forget_candidates(hides)
    workspace.recollection.drop()
    return traced if messages else replace(traced, messages=())


def _traced(workspace: Workspace, source: str, notes: Revoked, showing: frozenset[int]) -> Traced:
    keys = notes.purged
    tells = _tells(workspace, keys, _quotes(workspace, source))
    others = [note for note in workspace.notebook.all_notes() if note.key not in keys]
    repeating = [note for note in others if tells(note.summary) or tells(note.content)]
    results = tuple(note.key for note in repeating if note.key.startswith(RESULTS))
    known = {*keys, *results, *notes.review, *notes.revoked, *notes.linked}
    telling = tuple(note.key for note in repeating if note.key not in known)
    keys = (*keys, *results)
    if results:  # what quotes the result in a conversation goes as well
        tells = _tells(workspace, keys, _quotes(workspace, source))
    messages = set(showing)
    conversations: dict[int, str] = {}
    for look in workspace.ledger.looks():
        about = look.tool in NOTE_TOOLS and any(f'"{_escaped(key)}"' in look.text for key in keys)
        if about or tells(look.text) or tells(look.label) or tells(look.thought):
            messages.add(look.number)
    for record in workspace.ledger.all_episodes():
        plan = workspace.notebook.read_plan(scope=str(record.episode_id))
        if any(tells(part) for part in (plan.goal, plan.next, *plan.constraints, *plan.steps)):
            conversations[record.episode_id] = record.handle
    return Traced(
        replace(notes, purged=keys), tuple(sorted(messages)), tuple(conversations.values()), telling
    )


def _shows(workspace: Workspace, source: str) -> Callable[[Look], bool]:
    top = source.rstrip("/")
    known: dict[int, bool] = {}

    def of_chunk(chunk_id: int) -> bool:
        if chunk_id not in known:
            found = workspace.corpus.ids.known(chunk_id)
            path = found.path if found is not None else ""
            known[chunk_id] = path == top or path.startswith(f"{top}/")
        return known[chunk_id]

    def shows(look: Look) -> bool:
        if any(of_chunk(chunk_id) for chunk_id in look.chunk_ids):
            return True
        return look.tool == "searchEngine" and (f"{top} " in look.text or f"{top}/" in look.text)

    return shows


def _quotes(workspace: Workspace, source: str) -> tuple[str, ...]:
    """What any revision of any note quotes of a source."""
    return workspace.notebook.quotes_of(source) if source else ()


def _tells(workspace: Workspace, keys: tuple[str, ...], quotes: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a text repeats what these notes say or quote, as it is or inside JSON."""
    lines: dict[str, None] = dict.fromkeys(quotes)
    for key in keys:
        lines.update(dict.fromkeys(_lines_of(workspace, key)))
    wanted = [line for line in lines if len(line.strip()) >= TELLING_CHARS // 2]
    forms = tuple(
        dict.fromkeys(form for line in wanted for form in (line, _escaped(line), _escaped(line, True)))
    )
    return lambda text: any(form in text for form in forms)


def _lines_of(workspace: Workspace, key: str) -> Iterator[str]:
    """Summaries and lines of a note's revisions; short lines only where they are all there is."""
    try:
        steps = workspace.notebook.history(key)
    except NoSuchNote:
        return
    for step in steps:
        note = workspace.notebook.read(key, step.revision)
        yield note.summary
        lines = [line.strip() for line in note.content.splitlines() if line.strip()]
        yield from (line for line in lines if len(line) >= TELLING_CHARS or len(lines) == 1)


def _escaped(text: str, ascii_only: bool = False) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]

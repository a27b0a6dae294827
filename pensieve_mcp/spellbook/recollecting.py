"""What searchEngine finds besides documents: notes and earlier messages. Written a moment ago is found now.

In mode exact the query is literal strings parted by commas, compared without case as in documents; hybrid is words and
meaning, lexical words, dense meaning. Deleted
messages are found as well: forgetting takes them out of the window, not out of the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pensieve_mcp.errors import Miscast, NoSuchDocument, StorageError
from pensieve_mcp.spellbook.registry import ORDER, Result

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.ledger.events import Message
    from pensieve_mcp.notebook.types import NoteFilter
    from pensieve_mcp.workspace import Workspace


class OtherHit(Result):
    id: str
    summary: str
    highlights: list[str]


def find_notes(
    workspace: Workspace, queries: list[str], *, mode: str, under: str | None, limit: int
) -> tuple[list[OtherHit], int]:
    """Notes that match, and how many. `under` is a path, or a state such as `changed` or `needs review`."""
    from pensieve_mcp.corpus.quotes import fold

    notebook = workspace.notebook
    only = _note_filter(workspace, under)
    hits: dict[str, OtherHit] = {}
    total = 0
    for query in literals(queries) if mode == "exact" else queries:
        exact = fold(query) if mode == "exact" else ""
        answer = notebook.search(
            f'"{query}"' if exact else query,
            limit=EXACT if exact else limit,
            only=only,
            near=workspace.recollection.notes.near(query) if mode in BY_MEANING else None,
            words=mode != "dense",
        )
        found = 0
        for hit in answer.hits:
            if exact:
                note = notebook.current(hit.line.key)
                if note is None or exact not in fold(f"{note.key}\n{note.summary}\n{note.content}"):
                    continue
            found += 1
            hits.setdefault(
                hit.line.key,
                OtherHit(
                    id=hit.line.key,
                    summary=hit.line.summary
                    + ("" if hit.line.status == "active" else f" [{hit.line.status}]"),
                    highlights=[hit.snippet] if hit.snippet else [],
                ),
            )
        total = max(total, found if exact else answer.total)
    return list(hits.values()), max(total, len(hits))


BY_MEANING = ("hybrid", "dense")
EXACT = 1_000  # candidates that are looked through for a literal
STATES = ("ok", "moved", "changed", "gone", "unsupported", "unchecked", "revoked")
STATUSES = ("active", "superseded", "needs review")


def _note_filter(workspace: Workspace, under: str | None) -> NoteFilter | None:
    from pensieve_mcp.notebook.types import NoteFilter

    if under is None or not under.strip():
        return None
    words = [word.strip().casefold().replace("_", " ") for word in under.split(",") if word.strip()]
    if all(word in (*STATES, *STATUSES) for word in words):
        return NoteFilter(
            states=tuple(word for word in words if word in STATES),  # type: ignore[misc]  # of those just named
            statuses=tuple(word for word in words if word in STATUSES),  # type: ignore[misc]
        )
    try:
        return NoteFilter(under=next(iter(workspace.prefix(under)), ""))
    except NoSuchDocument:
        return NoteFilter(under=under.strip())  # notes outlive the documents they are about


def literals(queries: list[str]) -> list[str]:
    """Mode exact: literal strings, parted by commas."""
    return list(dict.fromkeys(one for query in queries for part in query.split(",") if (one := part.strip())))


@dataclass(frozen=True, slots=True)
class _Which:
    """Which earlier messages are meant."""

    role: str | None = None
    tool: str | None = None
    numbers: frozenset[int] | None = None


def find_history(
    episode: Episode, queries: list[str], *, mode: str, under: str | None, limit: int
) -> tuple[list[OtherHit], int]:
    """Messages of this conversation that match, deleted ones too, and how many."""
    from pensieve_mcp.corpus.quotes import fold

    ledger = episode.workspace.ledger
    hits: dict[str, OtherHit] = {}
    total = 0
    transcript = episode.transcript()
    which = _which(episode, under)
    near = episode.workspace.recollection.history
    sifted = mode == "exact" or which.numbers is not None
    for query in literals(queries) if mode == "exact" else queries:
        exact = fold(query) if mode == "exact" else ""
        answer = ledger.history_search(
            f'"{query}"' if exact else query,
            episode_id=episode.episode_id,
            role=which.role,
            tool=which.tool,
            limit=EXACT if sifted else limit,
            near=near.near(query, episode.episode_id) if mode in BY_MEANING else None,
            words=mode != "dense",
        )
        found = 0
        for hit in answer.hits:
            message = hit.message
            if which.numbers is not None and message.number not in which.numbers:
                continue
            if exact and exact not in fold(text_of(episode.workspace, message)):
                continue
            found += 1
            handle = message.handle or f"m{message.number}"
            place = transcript.by_number.get(message.number)
            forgotten = place is not None and transcript.entries[place].forgotten
            state = "deleted, restoreContext brings it back" if forgotten else "still in mind"
            words = f"{message.tool} {message.label}".strip() + (
                " (call)" if message.role == "assistant" else ""
            )
            highlights = [hit.snippet] if hit.snippet else []
            if which.numbers is not None and len(which.numbers) == 1:
                highlights = detail(handle, text_of(episode.workspace, message), query) or highlights
            hits.setdefault(handle, OtherHit(id=handle, summary=f"{words} · {state}", highlights=highlights))
        total = max(total, found if sifted else answer.total)
    return list(hits.values()), max(total, len(hits))


DETAIL_CHARS = 300  # on either side of a place
DETAILS = 4  # stretches of one message


def detail(handle: str, text: str, query: str) -> list[str]:
    """What stands around the places of a query in one message, each with the part it lies in (`m12.3`), so that the
    part can be deleted or restored by itself. The very words come first, else the places with the rarest of them."""
    from pensieve_mcp.ledger.parts import split_parts

    folded = text.casefold()
    if len(folded) != len(text):
        folded = text.lower() if len(text.lower()) == len(text) else text
    words = list(dict.fromkeys(re.findall(r"\w+", query.casefold())))[:32]
    phrase = r"\W+".join(map(re.escape, words))
    places = [(m.start(), m.end(), 1.0) for m in re.finditer(phrase, folded)] if words else []
    if not places:  # rare words tell a place better than frequent ones
        for word in words:
            spots = [(m.start(), m.end()) for m in re.finditer(re.escape(word), folded)]
            places += [(start, end, 1.0 / len(spots)) for start, end in spots]
    stretches: list[tuple[int, int, float]] = []
    for start, end, weight in sorted(places):
        low, high = max(0, start - DETAIL_CHARS), min(len(text), end + DETAIL_CHARS)
        if stretches and low < stretches[-1][1] and high - stretches[-1][0] <= 3 * DETAIL_CHARS:
            stretches[-1] = (stretches[-1][0], high, stretches[-1][2] + weight)
        else:
            stretches.append((low, high, weight))
    best = sorted(stretches, key=lambda one: (-one[2], one[0]))[:DETAILS]
    ends = [0]
    for part in split_parts(text):
        ends.append(ends[-1] + len(part))
    shown = []
    for low, high, _ in best:
        middle = (low + high) // 2
        number = max(1, sum(1 for end in ends[:-1] if end <= middle))
        shown.append(
            f"{handle}.{number}: {'…' if low else ''}{text[low:high]}{'…' if high < len(text) else ''}"
        )
    return shown


def text_of(workspace: Workspace, message: Message) -> str:
    """A message's text, or its label where the text was purged."""
    try:
        return workspace.ledger.content(message)
    except StorageError:
        return message.label  # its content was purged


def _which(episode: Episode, under: str | None) -> _Which:
    """`readChunk`, `user`, `m10-20`, `window 2`, several parted by commas. Raises Miscast for what is none of them."""
    from pensieve_mcp.handles import parse_message_ids
    from pensieve_mcp.spellbook.pointing import host_names

    which = _Which()
    entries = episode.transcript().entries
    tools = {entry.message.tool for entry in entries if entry.message.tool} | set(ORDER)
    by_name = {tool.casefold(): tool for tool in tools}
    for word in (one.strip() for one in (under or "").split(",")):
        if not word:
            continue
        if word.casefold() in ("user", "assistant", "tool", "system"):
            which = replace(which, role=word.casefold())
        elif word.casefold() in by_name:
            which = replace(which, tool=by_name[word.casefold()])
        elif match := _WINDOW.match(word):
            which = replace(which, numbers=_window(episode, int(match[1])) | (which.numbers or frozenset()))
        else:
            try:
                refs = parse_message_ids(word)
            except Miscast as wrong:
                raise Miscast(
                    f"under is {word[:60]!r}; in history it is a tool, a role, a window or messages.",
                    hint="For example readChunk, user, window 2 or m10-20.",
                    slug="bad_argument",
                ) from wrong
            hosts = host_names(entries)
            numbers = frozenset(
                number
                for ref in refs
                for number in (hosts.find(ref.host) if ref.host is not None else (ref.number,))
                if number is not None
            )
            which = replace(which, numbers=numbers | (which.numbers or frozenset()))
    return which


_WINDOW = re.compile(r"window\s*([0-9]{1,6})\Z", re.IGNORECASE)


def _window(episode: Episode, wanted: int) -> frozenset[int]:
    """Numbers of the messages of a window: the first ends with the host's first compaction."""
    from pensieve_mcp.ledger.events import Compacted, Said

    window = 1
    numbers: set[int] = set()
    for event in episode.workspace.ledger.events(episode.episode_id):
        if isinstance(event, Compacted):
            window += 1
        elif isinstance(event, Said) and window == wanted:
            numbers.add(event.message.number)
    return frozenset(numbers)

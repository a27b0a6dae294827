"""What can be looked at without a tool: notes, chunks, documents, the episode.

For people who attach something to a conversation, and for hosts that list resources beside tools. Looking at a
resource leaves no message in the ledger, so what is read here cannot be deleted by handle; the tools are the
way to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from pensieve_mcp.budget import heaviest
from pensieve_mcp.errors import Miscast, PensieveError
from pensieve_mcp.evidence import check_note
from pensieve_mcp.handles import parse_chunk_id
from pensieve_mcp.server.episodes import Episodes
from pensieve_mcp.server.opening import Opening
from pensieve_mcp.spellbook.handoff import MAX_BYTES, as_text, gather
from pensieve_mcp.spellbook.wording import bytes_of, count, cut_to_bytes, listing, one_line

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import ChunkSet
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.notebook.types import Note
    from pensieve_mcp.workspace import Workspace

SCHEME = "pensieve://"
NOTES = "pensieve://notes"
DOCUMENTS = "pensieve://documents"
EPISODE = "pensieve://episode"
HANDOFF = "pensieve://handoff"
NOTES_PER_PAGE = 100
LINE_BYTES = 90  # what the protocol writes around one line of `resources/list`
MOST_COMPLETIONS = 100  # the protocol's limit


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `resources/list`."""

    uri: str
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Template:
    uri_template: str
    name: str
    description: str


STATIC = (
    Listed(NOTES, "notes", "Keys and summaries of all notes."),
    Listed(DOCUMENTS, "documents", "The documents with their sizes in tokens."),
    Listed(EPISODE, "episode", "This conversation: budget, plan, heaviest messages."),
    Listed(
        HANDOFF, "handoff", "For whoever goes on: goal, findings with sources, pending, unknown, next step."
    ),
)
TEMPLATES = (
    Template("pensieve://notes/{key}", "note", "One note with its evidence; the key is percent-encoded."),
    Template("pensieve://chunks/{id}", "chunk", "The text of one chunk, for example pensieve://chunks/48."),
)
EPISODE_TEMPLATE = Template(
    "pensieve://episode/{episode}",
    "episode by handle",
    "A conversation by the handle that its first result told.",
)
HANDOFF_TEMPLATE = Template(
    "pensieve://handoff/{episode}", "handoff by handle", "The handover of a conversation by its handle."
)


def note_uri(key: str) -> str:
    """The address of a note; any key is one path segment."""
    return f"{NOTES}/{quote(key, safe='')}"


class Resources:
    """Reads resources as text. Blocks on databases: call from a worker thread. Raises PensieveError."""

    def __init__(self, opening: Opening, episodes: Episodes, *, explicit: bool) -> None:
        self._opening = opening
        self._episodes = episodes
        self._explicit = explicit

    def templates(self) -> tuple[Template, ...]:
        return (*TEMPLATES, EPISODE_TEMPLATE, HANDOFF_TEMPLATE) if self._explicit else TEMPLATES

    def listed(self, cursor: str | None) -> tuple[list[Listed], str | None]:
        """One page, not larger than a result may be: the fixed ones first, then a line for each note, and the cursor
        of the next page.
        """
        lines = list(STATIC) if cursor is None else []
        try:
            workspace = self._opening.workspace()
        except PensieveError:
            return lines, None  # no folder: reading or casting tells what is wrong
        page = workspace.notebook.list(cursor=cursor, limit=NOTES_PER_PAGE)
        room = workspace.settings.result_bytes - sum(_size(line) for line in lines)
        last: str | None = None
        for note in page.lines:
            line = Listed(note_uri(note.key), one_line(note.key, 120), one_line(note.summary, 240))
            room -= _size(line)
            if room < 0 and last is not None:
                return lines, last
            lines.append(line)
            last = note.key
        return lines, page.cursor

    def read(self, uri: str, *, session: str = "") -> str:
        """The text behind an address, not larger than a result may be. Raises PensieveError, with slug
        `no_such_resource` for an address that means nothing.
        """
        text, rest = self._read(uri, session)
        return within(text, self._opening.workspace().settings.result_bytes, rest)

    def _read(self, uri: str, session: str) -> tuple[str, str]:
        """The text, and how the rest is had where it must be cut."""
        kind, _, rest = uri.removeprefix(SCHEME).partition("/")
        if uri.startswith(SCHEME):
            if kind == "notes":
                return (self._note(unquote(rest)) if rest else self._notes()), "readNote reads on"
            if kind == "chunks" and rest:
                return self._chunk(unquote(rest)), "readChunk reads on"
            if kind == "documents" and not rest:
                return self._documents(), "analyzeText lists all"
            if kind == "episode":
                return episode_text(self._found(unquote(rest), session)), "plan shows the whole plan"
            if kind == "handoff":
                return self._handoff(self._found(unquote(rest), session)), "plan and readNote show all"
        raise Miscast(
            f"There is no resource {uri[:200]!r}.",
            hint=f"There are {NOTES}, {DOCUMENTS}, {EPISODE}, {HANDOFF}, pensieve://notes/KEY and pensieve://chunks/ID.",
            slug="no_such_resource",
        )

    def complete(self, argument: str, begun: str) -> tuple[list[str], int]:
        """Values for a template's variable that begin so, percent-encoded where the address needs it, and how
        many there are.
        """
        workspace = self._opening.workspace()
        if argument == "key":
            found = [
                key for key in _all_keys(workspace) if key.casefold().startswith(unquote(begun).casefold())
            ]
            return _fitting((quote(key, safe="") for key in found), workspace.settings.result_bytes), len(
                found
            )
        if argument == "id":
            total, first, last = workspace.corpus.chunk_range(self._chunk_set(workspace))
            if not total or first is None or last is None:
                return [], 0
            digits = begun.strip().lstrip("cC")
            if digits and not (digits.isascii() and digits.isdecimal()):
                return [], 0
            return _ids_beginning(digits, first, last)
        return [], 0

    def _chunk_set(self, workspace: Workspace) -> ChunkSet:
        current = self._episodes.current()
        return current.chunk_set if current is not None else workspace.default_chunk_set

    def _handoff(self, episode: Episode) -> str:
        most = min(MAX_BYTES, self._opening.workspace().settings.result_bytes)
        return as_text(gather(episode), max_bytes=most)

    def _notes(self) -> str:
        workspace = self._opening.workspace()
        lines: list[str] = []
        cursor = None
        while True:
            page = workspace.notebook.list(cursor=cursor, limit=500)
            cursor = page.cursor
            for note in page.lines:
                line = f"{note.key}: {one_line(note.summary, 200)}"
                if bytes_of(listing(lines)) + bytes_of(line) > workspace.settings.result_bytes - 200:
                    return listing([*lines, "More: searchEngine with scope notes finds the rest."])
                lines.append(line)
            if cursor is None:
                return listing(lines) or "No notes yet."

    def _note(self, key: str) -> str:
        workspace = self._opening.workspace()
        return note_text(check_note(workspace, workspace.notebook.read(key)))

    def _chunk(self, chunk_id: str) -> str:
        workspace = self._opening.workspace()
        chunk = workspace.corpus.chunk(parse_chunk_id(chunk_id))
        document = workspace.corpus.document_by_id(chunk.document_id)
        head = (
            f"c{chunk.chunk_id} · {document.path} {workspace.corpus.locator(chunk.document_id, chunk.span)}".rstrip()
            + f" · {chunk.tokens:,} tokens"
        )
        text = workspace.corpus.chunk_text(chunk)
        taken = cut_to_bytes(text, workspace.settings.result_bytes - 400)
        lines = [head, text[:taken]]
        if taken < len(text):
            lines.append(
                f"[{len(text) - taken:,} more characters: readChunk(chunk_id={chunk.chunk_id}, offset={taken})]"
            )
        return listing(lines)

    def _documents(self) -> str:
        workspace = self._opening.workspace()
        totals = workspace.corpus.totals(())
        progress = workspace.progress()
        lines = [
            f"{count(totals.documents, 'document')}, {totals.tokens:,} tokens."
            + (
                f" Indexing: {progress.documents_done:,} of {progress.documents_total:,}."
                if progress.state == "building"
                else ""
            )
        ]
        documents, cursor = workspace.corpus.documents((), cursor=None, limit=1_000)
        for document in documents:
            line = f"{document.path} · {document.tokens:,} tokens"
            if bytes_of(listing(lines)) + bytes_of(line) > workspace.settings.result_bytes - 200:
                cursor = cursor or document.path
                break
            lines.append(line)
        if cursor:
            lines.append("More: analyzeText lists all, page by page.")
        return listing(lines)

    def _found(self, handle: str, session: str) -> Episode:
        episode = self._episodes.by_handle(handle) if handle else self._episodes.current(session)
        if episode is None:
            raise Miscast(
                "No call was made in this conversation yet."
                if not self._explicit
                else "Over HTTP an episode is read by its handle.",
                hint="It begins with the first call of a tool."
                if not self._explicit
                else f"Read {EPISODE_TEMPLATE.uri_template} with the handle that the first result told.",
                slug="no_episode",
            )
        return episode


def within(text: str, most: int, rest: str) -> str:
    """The text in at most so many bytes of UTF-8; where something had to go, the last line says how it is had."""
    if bytes_of(text) <= most:
        return text
    tail = "\n[{0:,} more characters: " + rest + "]"
    taken = cut_to_bytes(text, most - bytes_of(tail) - 20)
    return text[:taken].rstrip() + tail.format(len(text) - taken)


def _size(line: Listed) -> int:
    return LINE_BYTES + bytes_of(line.uri) + bytes_of(line.name) + bytes_of(line.description)


def _fitting(values: Iterable[str], most: int) -> list[str]:
    """The first values that one completion may have, by number and by size."""
    kept: list[str] = []
    for value in values:
        most -= bytes_of(value) + 4
        if len(kept) == MOST_COMPLETIONS or most < 0:
            break
        kept.append(value)
    return kept


def note_text(note: Note) -> str:
    """A whole note for a reader: key, summary, content, evidence with its state."""
    lines = [f"{note.key} · revision {note.revision}"]
    if note.status != "active":
        lines.append(f"{note.status.capitalize()}: {note.reason}".rstrip(": "))
    lines += [note.summary, "", note.content]
    for item in note.evidence:
        where = " ".join(
            part for part in (f"c{item.chunk_id}" if item.chunk_id else "", item.path, item.locator) if part
        )
        lines.append(
            f"Evidence {item.state}: {where}"
            + (f" “{one_line(item.quote, 300)}”" if item.quote else "")
            + (f" ({item.detail})" if item.detail and item.state not in ("ok", "unchecked") else "")
        )
    if note.links:
        lines.append("Links: " + ", ".join(note.links))
    return listing(lines)


def plan_lines(episode: Episode) -> list[str]:
    """The plan of an episode, a line each; empty when there is none."""
    record = episode.workspace.notebook.read_plan(scope=str(episode.episode_id))
    lines = [f"Goal: {record.goal}"] if record.goal else []
    lines += [f"Constraint: {constraint}" for constraint in record.constraints]
    lines += [f"{place}. {step}" for place, step in enumerate(record.steps, 1)]
    return [*lines, f"Next: {record.next}"] if record.next else lines


def episode_text(episode: Episode) -> str:
    """Budget, plan and heaviest messages of an episode."""
    budget = episode.budget()
    lines = [
        f"{budget.words}; peak {budget.peak:,}, freed {budget.freed:,}. {count(budget.rounds, 'round')}.",
        *plan_lines(episode),
    ]
    for entry in heaviest(episode.transcript()):
        what = " ".join(part for part in (entry.message.tool, entry.message.label) if part)
        lines.append(f"m{entry.message.number} · {what} · {entry.message.tokens:,} tokens")
    return listing(lines)


def _all_keys(workspace: Workspace) -> Sequence[str]:
    keys: list[str] = []
    cursor = None
    while True:
        page = workspace.notebook.list(cursor=cursor, limit=5_000)
        keys += [note.key for note in page.lines]
        cursor = page.cursor
        if cursor is None:
            return keys


def _ids_beginning(digits: str, first: int, last: int) -> tuple[list[str], int]:
    """Numbers from first to last whose decimal form begins so, smallest first, and their count."""
    if not digits:
        return [
            str(number) for number in range(first, min(last, first + MOST_COMPLETIONS - 1) + 1)
        ], last - first + 1
    if digits.startswith("0"):
        return [], 0
    found: list[str] = []
    total = 0
    low, high = int(digits), int(digits)
    while low <= last:
        begin, end = max(low, first), min(high, last)
        if begin <= end:
            total += end - begin + 1
            found += [
                str(number)
                for number in range(begin, min(end, begin + MOST_COMPLETIONS - len(found) - 1) + 1)
            ]
        low, high = low * 10, high * 10 + 9
    return found, total

"""readChunk: the text of one chunk, its neighbours, or the next one; paged when longer than a result may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import Field

from pensieve_mcp.budget import heaviest
from pensieve_mcp.corpus.types import Span
from pensieve_mcp.errors import Miscast, NoSuchChunk, NotReady, OverBudget
from pensieve_mcp.handles import parse_chunk_id
from pensieve_mcp.spellbook.registry import Args, Handle, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import bytes_of, chunk_ids, cut_to_bytes, listing

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import Chunk
    from pensieve_mcp.episode import Episode

MAX_NEIGHBOURS = 10
MAX_BYTES = 1_000_000
FRAME_BYTES = 180  # ids and counts of the handle line, and the line that says how to go on
LEAST_TEXT_BYTES = 120  # of text in the smallest answer, whatever stands around it


class ReadArgs(Args):
    chunk_id: Handle | None = Field(None, description="48 or c48; none: the next one.")
    enable_scan: bool | None = Field(None, description="Read on in document order.")
    neighbours: int = Field(0, description="Chunks before and after to read too.", ge=0, le=MAX_NEIGHBOURS)
    offset: int = Field(0, description="Character to go on from.", ge=0)
    max_bytes: int | None = Field(
        None, description="Size of this answer; default 12,000.", ge=500, le=MAX_BYTES
    )


class ReadPart(Result):
    chunk_id: int
    content: str
    start_pos: int
    end_pos: int
    path: str
    locator: str
    fresh: str


class ReadResult(Result):
    retrieved_chunk: list[ReadPart]
    chunk_id: int
    reading_progress: str
    next_offset: int | None


@spell("readChunk", ReadArgs, ReadResult, stage="read", title="Read a chunk")
def read_chunk(episode: Episode, args: ReadArgs) -> Outcome:
    """Read one chunk. Note what matters, then delete this result. Without chunk_id: the next chunk in
    document order."""
    workspace = episode.workspace
    corpus = workspace.corpus
    chunk_set = episode.chunk_set
    chunk = _wanted(episode, args)
    chunks = corpus.neighbours(chunk.chunk_id, args.neighbours) if args.neighbours else [chunk]
    document = corpus.document_by_id(chunk.document_id)
    position, total = corpus.position_of(chunk.chunk_id, chunk_set)
    limit = args.max_bytes or episode.settings.result_bytes
    room = limit - 700  # handle line, progress, advice
    if args.max_bytes is not None:
        around = bytes_of(f"{document.path} {corpus.locator(chunk.document_id, chunk.span)}"[:200])
        around += bytes_of(episode.advice(episode.budget().left)) + FRAME_BYTES
        room = max(LEAST_TEXT_BYTES, limit - around)
    fresh = corpus.freshness([document.document_id])[document.document_id]
    pages, next_offset = _shown(episode, chunk, chunks, args.offset, room)
    _refuse_over_budget(episode, sum(page.chunk.tokens for page in pages))
    parts = [
        ReadPart(
            chunk_id=page.chunk.chunk_id,
            content=page.content,
            start_pos=page.chunk.span.start + page.begin,
            end_pos=page.chunk.span.start + page.begin + len(page.content),
            path=document.path,
            locator=page.locator,
            fresh=fresh,
        )
        for page in pages
    ]
    ids = tuple(part.chunk_id for part in parts)
    first, last = (next(n for n, c in enumerate(chunks) if c.chunk_id == ids[end]) for end in (0, -1))
    lines = [_left_out(chunks[:first])] if first else []
    for page in pages:
        lines.append(f"{page.head}\n{page.content}" if len(chunks) > 1 else page.content)
    if next_offset is not None:
        rest = len(corpus.chunk_text(chunk)) - next_offset
        lines.append(
            f"[{rest:,} more characters: readChunk(chunk_id={chunk.chunk_id}, offset={next_offset})]"
        )
    if last + 1 < len(chunks):
        lines.append(_left_out(chunks[last + 1 :]))
    if fresh == "changed":
        lines.append(
            "[The file has changed since it was indexed; this is the text as indexed. buildIndex reads it anew.]"
        )
    elif fresh == "gone":
        lines.append("[The file is gone; this is the text as indexed.]")
    elif fresh == "unreadable":
        lines.append("[The file cannot be read now; this is the text as indexed.]")
    progress = read = f"{position + 1}/{total}"
    locator = corpus.locator(chunk.document_id, chunk.span)
    if len(parts) > 1:
        begin, _ = corpus.position_of(ids[0], chunk_set)
        end, _ = corpus.position_of(ids[-1], chunk_set)
        read = f"{begin + 1}–{end + 1}/{total}"
        locator = corpus.locator(chunk.document_id, Span(parts[0].start_pos, parts[-1].end_pos))
    where = f"{document.path} {locator}".strip()
    named = chunk_ids(ids)
    return Outcome(
        ReadResult(
            retrieved_chunk=parts, chunk_id=chunk.chunk_id, reading_progress=progress, next_offset=next_offset
        ),
        listing(lines),
        facts=(named, where, read),
        label=f"{named} {where}",
        chunk_ids=ids,
        exempt=args.max_bytes is not None,
    )


@dataclass(frozen=True, slots=True)
class _Page:
    """What is shown of one chunk: its text from the character `begin` on."""

    chunk: Chunk
    begin: int
    content: str
    locator: str

    @property
    def head(self) -> str:
        return f"[c{self.chunk.chunk_id} · {self.locator}]"


def _shown(
    episode: Episode, wanted: Chunk, chunks: list[Chunk], offset: int, room: int
) -> tuple[list[_Page], int | None]:
    """The pages that fit in `room` bytes, in document order, and where the wanted chunk goes on if it is cut.

    The chunk that was asked for comes first of all, then its neighbours, whole ones, the nearest first; none stands
    beyond one that is left out. Raises Miscast for an offset beyond its end.
    """
    corpus = episode.workspace.corpus
    text = corpus.chunk_text(wanted)
    if offset and offset >= len(text):
        raise Miscast(
            f"offset is {offset:,}, but c{wanted.chunk_id} has {len(text):,} characters.",
            hint="Leave offset out to read from its start.",
            slug="bad_argument",
        )

    def page(chunk: Chunk) -> _Page:
        begin, content = (offset, text[offset:]) if chunk is here else (0, corpus.chunk_text(chunk))
        return _Page(chunk, begin, content, corpus.locator(chunk.document_id, chunk.span))

    def size(one: _Page) -> int:
        return bytes_of(one.content) + (bytes_of(one.head) + 2 if len(chunks) > 1 else 0)

    place = next(n for n, chunk in enumerate(chunks) if chunk.chunk_id == wanted.chunk_id)
    here = chunks[place]
    every = [page(chunk) for chunk in chunks]
    whole = every[place]
    around = size(replace(whole, content=""))
    if len(every) > 1 and sum(map(size, every)) > room:
        named = sum(bytes_of(_left_out(side)) + 1 for side in (chunks[:place], chunks[place + 1 :]) if side)
        room = max(LEAST_TEXT_BYTES + around, room - named)
    if size(whole) > room:
        taken = max(1, cut_to_bytes(whole.content, room - around))
        return [replace(whole, content=whole.content[:taken])], offset + taken
    pages = [whole]
    room -= size(whole)
    for distance in range(1, len(every)):
        beside = [every[n] for n in (place - distance, place + distance) if 0 <= n < len(every)]
        for one in beside:
            if size(one) <= room:
                room -= size(one)
                pages.append(one)
        if not beside or any(one not in pages for one in beside):
            break
    pages.sort(key=lambda one: one.chunk.position)
    return pages, None


def _left_out(chunks: list[Chunk]) -> str:
    return f"[left out for length: {chunk_ids(chunk.chunk_id for chunk in chunks)}]"


def _wanted(episode: Episode, args: ReadArgs) -> Chunk:
    corpus = episode.workspace.corpus
    chunk_set = episode.chunk_set
    total = corpus.chunk_count(chunk_set)
    if not total:
        raise NotReady("There is nothing to read yet.", hint=episode.workspace.why_empty())
    if args.chunk_id is not None and args.chunk_id.strip():
        chunk = corpus.chunk(parse_chunk_id(args.chunk_id))
        return chunk
    last = episode.last_read()
    if args.offset and last is not None:
        return corpus.chunk(last)
    position = 0 if last is None else episode.position_after(last)
    following = corpus.chunk_at(chunk_set, position)
    if following is None:
        raise NoSuchChunk(
            f"There are no more chunks after c{last}: all {total:,} are read.",
            hint="Note what matters and finish, or name a chunk_id.",
            slug="no_more_chunks",
        )
    return following


def _refuse_over_budget(episode: Episode, tokens: int) -> None:
    """Where the whole conversation is seen, reading past the window is refused; elsewhere a host may have compacted."""
    budget = episode.budget()
    if budget.sees != "conversation" or tokens <= budget.left:
        return
    names = ", ".join(
        f"m{e.message.number} ({e.message.tokens:,})" for e in heaviest(episode.transcript(), 3)
    )
    raise OverBudget(
        f"Reading {tokens:,} tokens does not fit: {budget.left:,} are left.",
        hint=f"Note what matters and delete first; heaviest: {names}." if names else "Delete messages first.",
    )

"""readChunk: the text of one chunk, its neighbours, or the next one; paged when longer than a result may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from pensieve_mcp.budget import heaviest
from pensieve_mcp.errors import Miscast, NoSuchChunk, NotReady, OverBudget
from pensieve_mcp.handles import parse_chunk_id
from pensieve_mcp.spellbook.registry import Args, Handle, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import bytes_of, cut_to_bytes, listing

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
    _refuse_over_budget(episode, sum(c.tokens for c in chunks))
    limit = args.max_bytes or episode.settings.result_bytes
    room = limit - 700  # handle line, progress, advice
    if args.max_bytes is not None:
        around = bytes_of(f"{document.path} {corpus.locator(chunk.document_id, chunk.span)}"[:200])
        around += bytes_of(episode.advice(episode.budget().left)) + FRAME_BYTES
        room = max(LEAST_TEXT_BYTES, limit - around)
    fresh = corpus.freshness([document.document_id])[document.document_id]
    parts: list[ReadPart] = []
    lines: list[str] = []
    next_offset = None
    for place, piece in enumerate(chunks):
        text = corpus.chunk_text(piece)
        begin = args.offset if len(chunks) == 1 else 0
        if begin >= len(text) and begin:
            raise Miscast(
                f"offset is {begin:,}, but c{piece.chunk_id} has {len(text):,} characters.",
                hint="Leave offset out to read from its start.",
                slug="bad_argument",
            )
        head = (
            f"[c{piece.chunk_id} · {corpus.locator(piece.document_id, piece.span)}]"
            if len(chunks) > 1
            else ""
        )
        space = room - bytes_of(listing(lines)) - bytes_of(head)
        taken = cut_to_bytes(text[begin:], space)
        if not taken:
            lines.append(
                f"[left out for length: c{piece.chunk_id}"
                + (f" to c{chunks[-1].chunk_id}" if place < len(chunks) - 1 else "")
                + "]"
            )
            break
        content = text[begin : begin + taken]
        lines.append(f"{head}\n{content}" if head else content)
        span_start = piece.span.start + begin
        parts.append(
            ReadPart(
                chunk_id=piece.chunk_id,
                content=content,
                start_pos=span_start,
                end_pos=span_start + taken,
                path=document.path,
                locator=corpus.locator(piece.document_id, piece.span),
                fresh=fresh,
            )
        )
        if begin + taken < len(text):
            next_offset = begin + taken if len(chunks) == 1 else None
            lines.append(
                f"[{len(text) - begin - taken:,} more characters: "
                f"readChunk(chunk_id={piece.chunk_id}, offset={begin + taken})]"
            )
            if len(chunks) > 1 and place < len(chunks) - 1:
                lines.append(
                    f"[left out for length: c{chunks[place + 1].chunk_id} to c{chunks[-1].chunk_id}]"
                )
            break
    if fresh == "changed":
        lines.append(
            "[The file has changed since it was indexed; this is the text as indexed. buildIndex reads it anew.]"
        )
    elif fresh == "gone":
        lines.append("[The file is gone; this is the text as indexed.]")
    elif fresh == "unreadable":
        lines.append("[The file cannot be read now; this is the text as indexed.]")
    progress = f"{position + 1}/{total}"
    locator = corpus.locator(chunk.document_id, chunk.span)
    where = f"{document.path} {locator}".strip()
    ids = tuple(part.chunk_id for part in parts)
    named = f"c{ids[0]}" if len(ids) == 1 else f"c{ids[0]}–c{ids[-1]}" if ids else f"c{chunk.chunk_id}"
    return Outcome(
        ReadResult(
            retrieved_chunk=parts, chunk_id=chunk.chunk_id, reading_progress=progress, next_offset=next_offset
        ),
        listing(lines),
        facts=(named, where, progress),
        label=f"{named} {where}",
        chunk_ids=ids,
        exempt=args.max_bytes is not None,
    )


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

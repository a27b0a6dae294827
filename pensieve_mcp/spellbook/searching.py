"""searchEngine: where a question points, in documents, notes and history. Never whole texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pensieve_mcp.corpus.types import PASSAGES_PER_HIT
from pensieve_mcp.errors import Miscast
from pensieve_mcp.handles import parse_cursor
from pensieve_mcp.spellbook.recollecting import OtherHit, find_history, find_notes
from pensieve_mcp.spellbook.registry import Args, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import STALE, bytes_of, count, is_first, listing, one_line, read_in_part

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.workspace import Workspace

MAX_QUERIES = 10
MAX_LIMIT = 100


class SearchArgs(Args):
    keyword: str = Field(description='What to look for, as prose; "quoted" for phrases.')
    queries: list[str] | None = Field(None, description="More queries.")
    mode: Literal["hybrid", "lexical", "dense", "exact"] = Field(
        "hybrid", description="exact: literal strings, parted by commas."
    )
    scope: Literal["documents", "notes", "history", "all"] = Field(
        "documents", description="history: earlier messages, deleted ones too."
    )
    under: str | None = Field(
        None, description="Only below this path; notes: a state; history: tool, role, m10-20."
    )
    limit: int = Field(10, ge=1, le=MAX_LIMIT)
    cursor: str | None = Field(None, description="next_cursor of the last answer.")


class RetrievedChunk(Result):
    chunk_id: int
    relevance_score: float
    highlights: list[str]
    path: str
    locator: str
    tokens: int
    fresh: str


class SearchResult(Result):
    retrieved_chunks: list[RetrievedChunk]
    hits: list[OtherHit]
    keywords: list[str]
    total: int
    message: str
    next_cursor: str | None


@spell("searchEngine", SearchArgs, SearchResult, stage="find", reads_only=True, title="Search")
def search_engine(episode: Episode, args: SearchArgs) -> Outcome:
    """Search the documents by words and meaning: chunk ids, places and highlights, best first; read them
    with readChunk."""
    queries = _queries(args)
    start = parse_cursor(args.cursor)
    if args.scope == "notes":
        return _notes(episode, args, queries, start)
    if args.scope == "history":
        return _history(episode, args, queries, start)
    if args.scope == "all":
        return _everything(episode, args, queries)
    return _documents(episode, args, queries, start)


SHARE = 3  # of the hits of documents, as many of notes and of history, when all is searched


def _everything(episode: Episode, args: SearchArgs, queries: list[str]) -> Outcome:
    """The best of each: one page, since three orders have no common one. Each is gone on with by its own scope."""
    part = max(SHARE, args.limit // SHARE)
    found = _documents(episode, args.model_copy(update={"scope": "documents"}), queries, 0)
    documents = found.result
    assert isinstance(documents, SearchResult)
    notes, notes_total = find_notes(episode.workspace, queries, mode=args.mode, under=args.under, limit=part)
    history, history_total = find_history(episode, queries, mode=args.mode, under=None, limit=part)
    lines = [documents.message, *found.body.split("\n")[1:]]
    room = episode.settings.result_bytes - 1_000
    for title, hits, total in (("Notes", notes, notes_total), ("Earlier messages", history, history_total)):
        if not hits:
            continue
        block = listing([f"{title}: {min(part, len(hits))} of {total:,}.", *map(_block, hits[:part])])
        if bytes_of(listing(lines)) + bytes_of(block) <= room:
            lines.append(block)
    return Outcome(
        SearchResult(
            retrieved_chunks=documents.retrieved_chunks,
            hits=[*notes[:part], *history[:part]],
            keywords=queries,
            total=documents.total + notes_total + history_total,
            message=documents.message,
            next_cursor=documents.next_cursor,
        ),
        listing(lines),
        label=f"search everywhere “{one_line(queries[0], 60)}”",
    )


def _queries(args: SearchArgs) -> list[str]:
    queries = list(dict.fromkeys(q for q in [args.keyword, *(args.queries or [])] if q.strip()))
    if not queries:
        raise Miscast(
            "keyword is empty.",
            hint="Say what to look for, for example: termination notice period.",
            slug="empty_query",
        )
    if len(queries) > MAX_QUERIES:
        raise Miscast(
            f"{len(queries)} queries in one call; at most {MAX_QUERIES}.",
            hint="Search twice.",
            slug="too_many_queries",
        )
    return queries


def _documents(episode: Episode, args: SearchArgs, queries: list[str], start: int) -> Outcome:
    workspace = episode.workspace
    under = workspace.prefix(args.under)
    found = workspace.search(
        queries,
        mode=args.mode,
        under=under,
        passages=(start + args.limit) * PASSAGES_PER_HIT,
        chunk_set=episode.chunk_set,
    )
    page = found.hits[start : start + args.limit]
    lines: list[str] = []
    retrieved: list[RetrievedChunk] = []
    room = episode.settings.result_bytes - 1_500
    for hit in page:
        hit = workspace.illuminate(hit, found.terms)
        head = (
            f"c{hit.chunk_id} · {hit.score:.2f} · {hit.path} {hit.locator} · {hit.tokens:,} tokens".replace(
                "  ", " "
            )
        )
        if hit.fresh != "yes":
            head += f" · {STALE[hit.fresh]}"
        block = listing([head, *("  " + text for text in hit.highlights)])
        if lines and bytes_of(listing(lines)) + bytes_of(block) > room:
            break
        lines.append(block)
        retrieved.append(
            RetrievedChunk(
                chunk_id=hit.chunk_id,
                relevance_score=round(hit.score, 3),
                highlights=list(hit.highlights),
                path=hit.path,
                locator=hit.locator,
                tokens=hit.tokens,
                fresh=hit.fresh,
            )
        )
    total = max(found.total, len(found.hits))
    end = start + len(retrieved)
    next_cursor = str(end) if retrieved and end < len(found.hits) else None
    message = _message(workspace, args, retrieved, total, start, found.notes, found.suggestions)
    return Outcome(
        SearchResult(
            retrieved_chunks=retrieved,
            hits=[],
            keywords=queries,
            total=total,
            message=message,
            next_cursor=next_cursor,
        ),
        listing([message, *lines, *([f"More: cursor={next_cursor!r}."] if next_cursor else [])]),
        label=f"search “{one_line(queries[0], 60)}”",
    )


def _message(
    workspace: Workspace,
    args: SearchArgs,
    retrieved: list[RetrievedChunk],
    total: int,
    start: int,
    notes: tuple[str, ...],
    suggestions: tuple[str, ...],
) -> str:
    progress = workspace.progress()
    if not retrieved and not progress.searchable:
        return " ".join([workspace.why_empty(), *notes])
    if retrieved:
        words = [
            f"{start + 1} to {start + len(retrieved)} of {total:,}."
            if start
            else f"{len(retrieved)} of {total:,}."
        ]
    elif start:
        words = ["No more hits."]
    else:
        words = ["Nothing found" + (f" under {args.under}" if args.under else "") + "."]
        if suggestions:
            words.append(f"Near spellings that occur: {', '.join(suggestions)}.")
        else:
            words.append(
                "Try other words, fewer words or several queries."
                + (" Without under there may be more." if args.under else "")
            )
    words = [*filter(is_first, notes), *words, *(note for note in notes if not is_first(note))]
    if not retrieved and (partial := workspace.corpus.partial_count(workspace.prefix(args.under))):
        words.append(f"{read_in_part(partial)}: what is missing of them cannot be found.")
    if not retrieved or progress.state in ("building", "stale", "failed"):
        words.append(workspace.standing())
    return " ".join(word for word in words if word)


def _notes(episode: Episode, args: SearchArgs, queries: list[str], start: int) -> Outcome:
    hits, total = find_notes(
        episode.workspace, queries, mode=args.mode, under=args.under, limit=start + args.limit + 1
    )
    return _other(episode, args, queries, hits, total, start, "note", "readNote reads one.")


def _history(episode: Episode, args: SearchArgs, queries: list[str], start: int) -> Outcome:
    hits, total = find_history(
        episode, queries, mode=args.mode, under=args.under, limit=start + args.limit + 1
    )
    return _other(episode, args, queries, hits, total, start, "message", "restoreContext brings one back.")


def _block(hit: OtherHit) -> str:
    whole = any(
        text.startswith(f"{hit.id}.") for text in hit.highlights
    )  # the detail of one message was asked for
    limit = 1_300 if whole else 240
    return listing(
        [
            f"{hit.id} · {one_line(hit.summary, 200)}",
            *("  " + one_line(text, limit) for text in hit.highlights),
        ]
    )


def _other(
    episode: Episode,
    args: SearchArgs,
    queries: list[str],
    hits: list[OtherHit],
    total: int,
    start: int,
    what: str,
    how: str,
) -> Outcome:
    page = hits[start : start + args.limit]
    lines: list[str] = []
    shown: list[OtherHit] = []
    room = episode.settings.result_bytes - 1_000
    for hit in page:
        block = _block(hit)
        if lines and bytes_of(listing(lines)) + bytes_of(block) > room:
            break
        lines.append(block)
        shown.append(hit)
    end = start + len(shown)
    next_cursor = str(end) if shown and end < len(hits) else None
    total = max(total, len(hits))
    message = (
        f"{len(shown)} of {count(total, what)}. {how}"
        if shown
        else f"No {what} has these words. Try other words."
    )
    return Outcome(
        SearchResult(
            retrieved_chunks=[],
            hits=shown,
            keywords=queries,
            total=total,
            message=message,
            next_cursor=next_cursor,
        ),
        listing([message, *lines, *([f"More: cursor={next_cursor!r}."] if next_cursor else [])]),
        label=f"search in {args.scope} “{one_line(queries[0], 60)}”",
    )

"""search and read, for people: the same index and the same texts a model gets, without an episode."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.indexing import why_nothing
from pensieve_mcp.cli.output import bold, dim, put, put_json, say
from pensieve_mcp.cli.shell import Shell, command_options, document_path, json_option
from pensieve_mcp.cli.translating import for_person
from pensieve_mcp.corpus.types import PASSAGES_PER_HIT
from pensieve_mcp.errors import Miscast, NoSuchChunk, NotReady
from pensieve_mcp.handles import parse_chunk_id
from pensieve_mcp.spellbook.wording import STALE, count, is_first, read_in_part

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import Chunk, Document
    from pensieve_mcp.workspace import Workspace

MAX_NEIGHBOURS = 10
_PLACE = re.compile(r"(?P<path>.+):(?P<line>[0-9]{1,12})\Z", re.S)


@click.command(short_help="Find the chunks that answer a question.")
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--mode",
    type=click.Choice(("hybrid", "lexical", "dense", "exact")),
    default="hybrid",
    help="How to search.",
)
@click.option(
    "--scope",
    type=click.Choice(("documents", "notes", "history", "all")),
    default="documents",
    help="Where to search.",
)
@click.option("--under", metavar="PATH", help="Only below this path.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Hits at most.")
@click.option("--also", metavar="QUERY", multiple=True, help="A further query for the same search.")
@json_option
@command_options
def search(
    shell: Shell,
    query: tuple[str, ...],
    mode: str,
    scope: str,
    under: str | None,
    limit: int,
    also: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the chunks that answer QUERY: words, a question, or a "quoted phrase".

    The number behind each id is its score, 0 to 1: how much of the question's words and meaning is there. Scores of
    two searches say nothing of each other.
    """
    queries = [text for text in (" ".join(query), *also) if text.strip()]
    if not queries:
        raise click.UsageError("The query is empty.")
    with shell.open() as workspace:
        if scope == "documents":
            data = _documents(workspace, queries, mode, (under,) if under else shell.under, limit)
        elif scope == "notes":
            data = _notes(workspace, queries, mode, limit)
        elif scope == "all":
            data = _everything(workspace, queries, mode, (under,) if under else shell.under, limit)
        else:
            data = _history(workspace, queries, mode, limit)
        if as_json:
            hits = [{name: value for name, value in hit.items() if name != "head"} for hit in data["hits"]]
            put_json(data | {"hits": hits})
            return
        for hit in data["hits"]:
            head = " · ".join(str(part) for part in hit["head"] if part)
            put(bold(str(hit["id"])) + " · " + head)
            for text in hit["highlights"]:
                put(dim("  " + " ".join(text.split())))
        say(data["message"])


def _documents(
    workspace: Workspace, queries: list[str], mode: Any, under: tuple[str, ...], limit: int
) -> dict[str, Any]:
    found = workspace.search(
        queries,
        mode=mode,
        under=tuple(document_path(workspace, path) for path in under),
        passages=limit * PASSAGES_PER_HIT,
        chunk_set=workspace.default_chunk_set,
    )
    hits = []
    for one in found.hits[:limit]:
        hit = workspace.illuminate(one, found.terms)
        stale = STALE.get(hit.fresh, "")
        hits.append(
            {
                "id": f"c{hit.chunk_id}",
                "chunk_id": hit.chunk_id,
                "score": round(hit.score, 3),
                "path": hit.path,
                "locator": hit.locator,
                "tokens": hit.tokens,
                "fresh": hit.fresh,
                "highlights": list(hit.highlights),
                "head": [
                    f"{hit.score:.2f}",
                    f"{hit.path} {hit.locator}".strip(),
                    f"{hit.tokens:,} tokens",
                    stale,
                ],
            }
        )
    return _answer(workspace, hits, max(found.total, len(found.hits)), found.notes, found.suggestions)


def _answer(
    workspace: Workspace,
    hits: list[dict[str, Any]],
    total: int,
    notes: tuple[str, ...],
    suggestions: tuple[str, ...],
) -> dict[str, Any]:
    """An empty answer says why it is empty: nothing indexed, still indexing, or near spellings."""
    progress = workspace.progress()
    words = [f"{len(hits):,} of {total:,}." if hits else "Nothing found."]
    if not hits and not progress.searchable and progress.state not in ("ready", "empty"):
        words = []  # there is nothing that could have been found: only that is said
    words = [*filter(is_first, notes), *words, *(for_person(n) for n in notes if not is_first(n))]
    if not hits and suggestions:
        words.append(f"Near spellings that occur: {', '.join(suggestions)}.")
    if not hits and (partial := workspace.corpus.partial_count()):
        words.append(f"{read_in_part(partial)}: what is missing of them cannot be found.")
    if not hits or progress.state in ("building", "stale", "failed"):
        words.append(why_nothing(workspace))
    return {
        "hits": hits,
        "total": total,
        "suggestions": list(suggestions),
        "message": " ".join(w for w in words if w),
    }


def _notes(workspace: Workspace, queries: list[str], mode: str, limit: int) -> dict[str, Any]:
    from pensieve_mcp.spellbook.recollecting import find_notes

    found, total = find_notes(workspace, queries, mode=mode, under=None, limit=limit)
    hits = [hit.model_dump() | {"head": [hit.summary]} for hit in found[:limit]]
    message = f"{count(len(hits), 'note')}." if hits else "No note answers this."
    return {"hits": hits, "total": total, "suggestions": [], "message": message}


def _history(workspace: Workspace, queries: list[str], mode: str, limit: int) -> dict[str, Any]:
    from pensieve_mcp.corpus.quotes import fold
    from pensieve_mcp.spellbook.recollecting import BY_MEANING, EXACT, literals, text_of

    found: dict[int, dict[str, Any]] = {}
    exact = mode == "exact"
    for query in literals(queries) if exact else queries:
        near = workspace.recollection.history.near(query) if mode in BY_MEANING else None
        answer = workspace.ledger.history_search(
            f'"{query}"' if exact else query,
            limit=EXACT if exact else limit,
            near=near,
            words=mode != "dense",
        )
        for hit in answer.hits:
            message = hit.message
            if exact and fold(query) not in fold(text_of(workspace, message)):
                continue
            found.setdefault(
                message.number,
                {
                    "id": message.handle or f"m{message.number}",
                    "tool": message.tool,
                    "label": message.label,
                    "episode_id": hit.episode_id,
                    "highlights": [hit.snippet] if hit.snippet else [],
                    "head": [f"{message.tool} {message.label}".strip(), f"{message.tokens:,} tokens"],
                },
            )
    hits = list(found.values())[:limit]
    message_ = f"{count(len(hits), 'message')}." if hits else "No message answers this."
    return {"hits": hits, "total": len(found), "suggestions": [], "message": message_}


def _everything(
    workspace: Workspace, queries: list[str], mode: str, under: tuple[str, ...], limit: int
) -> dict[str, Any]:
    """The best of documents, notes and earlier messages, one after another."""
    part = max(3, limit // 3)
    documents = _documents(workspace, queries, mode, under, limit)
    others = [_notes(workspace, queries, mode, part), _history(workspace, queries, mode, part)]
    return {
        **documents,
        "hits": [*documents["hits"], *(hit for other in others for hit in other["hits"])],
        "total": documents["total"] + sum(other["total"] for other in others),
        "message": " ".join([documents["message"], *(other["message"] for other in others if other["hits"])]),
    }


def _line_start(workspace: Workspace, document: Document, line: int) -> int | None:
    """Where a one-based line of the file begins in the document's text; None where lines mean nothing or end before."""
    from pensieve_mcp.corpus.types import Span

    if line < 1 or not document.media_type.startswith("text/") or document.media_type == "text/html":
        return None
    text = workspace.corpus.text(document.document_id, Span(0, document.chars))
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if not start:
            return None
    return start if start < len(text) else None


@click.command(short_help="Print the text of a chunk.")
@click.argument("chunk")
@click.option(
    "--neighbours",
    type=click.IntRange(0, MAX_NEIGHBOURS),
    default=0,
    help="Chunks before and after to print too.",
)
@json_option
@command_options
def read(shell: Shell, chunk: str, neighbours: int, as_json: bool) -> None:
    """Print the text of CHUNK: c48, or PATH:LINE for the chunk at that line, or PATH for a document's first."""
    with shell.open() as workspace:
        corpus = workspace.corpus
        wanted = _wanted(workspace, chunk)
        pieces = corpus.neighbours(wanted.chunk_id, neighbours) if neighbours else [wanted]
        document = corpus.document_by_id(wanted.document_id)
        fresh = corpus.freshness([wanted.document_id])[wanted.document_id]
        parts = [
            {
                "chunk_id": piece.chunk_id,
                "path": document.path,
                "locator": corpus.locator(piece.document_id, piece.span),
                "tokens": piece.tokens,
                "start_pos": piece.span.start,
                "end_pos": piece.span.end,
                "content": corpus.chunk_text(piece),
                "fresh": fresh,
            }
            for piece in pieces
        ]
        if as_json:
            put_json(parts)
            return
        for part in parts:
            say(f"c{part['chunk_id']} · {part['path']} {part['locator']} · {part['tokens']:,} tokens")
            put(str(part["content"]))
        if fresh != "yes":
            told = {"changed": "has changed since it was indexed", "unreadable": "cannot be read now"}
            say(f"The file {told.get(fresh, 'is gone')}.")


def _wanted(workspace: Workspace, text: str) -> Chunk:
    corpus = workspace.corpus
    chunk_set = workspace.default_chunk_set
    if not corpus.chunk_count(chunk_set):
        raise NotReady("Nothing is indexed yet.", hint=why_nothing(workspace))
    if re.fullmatch(r"[cC]?[0-9]{1,15}", text.strip()):
        return corpus.chunk(parse_chunk_id(text))
    place = _PLACE.match(text)
    path = document_path(workspace, place["path"] if place else text)
    document = corpus.document(path)
    offset = 0
    if place:
        line = int(place["line"])
        starts = _line_start(workspace, document, line)
        if starts is None:
            raise Miscast(
                f"{document.path} has no line {line:,} (or its text has no lines of its own, as a PDF's).",
                hint="Search for the words instead, or read the document's first chunk by its path alone.",
                slug="no_such_line",
            )
        offset = starts
    found = corpus.chunk_containing(chunk_set, document.document_id, offset)
    if found is None:
        raise NoSuchChunk(
            f"{document.path} has no chunk there.", hint="Run pensieve index; its text may be empty."
        )
    return found

"""analyzeText, checkBudget, buildIndex: what is there, how full the window is, make it searchable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pensieve_mcp.budget import Share, Sighting, heaviest
from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.errors import Miscast, NoSuchDocument
from pensieve_mcp.handles import parse_cursor
from pensieve_mcp.ledger.stubs import handle_of
from pensieve_mcp.spellbook.registry import Args, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import (
    bytes_of,
    count,
    formats_line,
    listing,
    one_line,
    read_in_part,
    shares,
    short_type,
)

if TYPE_CHECKING:
    from pensieve_mcp.corpus.store import CorpusStore
    from pensieve_mcp.episode import Episode

MIN_CHUNK_TOKENS = 50
MAX_CHUNK_TOKENS = 100_000
MOVABLE = re.compile(r"[mh][0-9a-f]+\Z")  # a handle


class AnalyzeArgs(Args):
    path: str | None = Field(None, description="Document or folder, as root/relative/file; none: everything.")
    cursor: str | None = Field(None, description="next_cursor of the last answer.")


class DocumentLine(Result):
    path: str
    tokens: int
    media_type: str
    title: str


class OutlineLine(Result):
    heading: str
    locator: str
    tokens: int
    chunk_id: int | None


class AnalyzeResult(Result):
    total_tokens: int
    total_documents: int
    documents: list[DocumentLine]
    skipped: dict[str, int]
    formats: dict[str, int]
    languages: dict[str, int]
    outline: list[OutlineLine]
    next_cursor: str | None


@spell(
    "analyzeText", AnalyzeArgs, AnalyzeResult, stage="look", reads_only=True, title="Look at the documents"
)
def analyze_text(episode: Episode, args: AnalyzeArgs) -> Outcome:
    """Size of the documents in tokens: how many, formats, languages, what was skipped. With a document's
    path: its outline with chunk ids."""
    workspace = episode.workspace
    under = workspace.prefix(args.path)
    document = workspace.corpus.document(under[0]) if under and workspace.is_document(under[0]) else None
    if document is not None:
        return _outline(episode, document, args.cursor)
    totals = workspace.corpus.totals(under)
    if under and not totals.documents:
        _tell_if_skipped(workspace.corpus, under[0])
    room = episode.settings.result_bytes - 1_200
    documents, cursor = workspace.corpus.documents(under, cursor=args.cursor, limit=200)
    lines: list[str] = []
    shown: list[DocumentLine] = []
    for found in documents:
        line = f"{found.path} · {found.tokens:,} tokens" + (
            f" · {one_line(found.title, 80)}" if found.title else ""
        )
        if found.status == "partial":
            line += " · read in part"
        if bytes_of(listing(lines)) + bytes_of(line) > room:
            cursor = shown[-1].path if shown else None
            break
        lines.append(line)
        shown.append(
            DocumentLine(path=found.path, tokens=found.tokens, media_type=found.media_type, title=found.title)
        )
    progress = workspace.progress()
    head = [
        f"{count(totals.documents, 'document')}, {totals.tokens:,} tokens"
        + (f" ({formats_line(totals.formats)})" if totals.formats else "")
        + "."
    ]
    if totals.languages:
        head.append(f"Languages: {shares(totals.languages)}.")
    if totals.skipped:
        head.append(f"Skipped {sum(totals.skipped.values()):,}: {shares(totals.skipped)}.")
    if totals.partial:
        head.append(f"{read_in_part(totals.partial)}; its path tells what is missing.")
    if progress.state == "building" or not totals.documents:
        head.append(workspace.why_empty())
    if cursor:
        lines.append(f"More: analyzeText(cursor={cursor!r}).")
    return Outcome(
        AnalyzeResult(
            total_tokens=totals.tokens,
            total_documents=totals.documents,
            documents=shown,
            skipped=dict(totals.skipped),
            formats=dict(totals.formats),
            languages=dict(totals.languages),
            outline=[],
            next_cursor=cursor,
        ),
        listing([" ".join(head), *lines]),
        label="list of documents" + (f" under {args.path}" if args.path else ""),
    )


def _tell_if_skipped(corpus: CorpusStore, path: str) -> None:
    """A file that was not indexed is an error that says why; a folder without documents is none."""
    try:
        corpus.document(path)
    except NoSuchDocument as absent:
        if absent.slug == "document_skipped":
            raise


def _outline(episode: Episode, document: Any, cursor: str | None) -> Outcome:
    corpus = episode.workspace.corpus
    chunk_set = episode.chunk_set
    entries = corpus.outline(document.document_id)
    start = parse_cursor(cursor)
    first = corpus.chunk_containing(chunk_set, document.document_id, 0)
    last = corpus.chunk_containing(chunk_set, document.document_id, max(0, document.chars - 1))
    chunks = f", chunks c{first.chunk_id} to c{last.chunk_id} in document order" if first and last else ""
    head = f"{document.path}: {document.tokens:,} tokens, {short_type(document.media_type)}{chunks}."
    if document.title:
        head += f" Title: {one_line(document.title)}."
    if document.warnings:
        head += " " + " ".join(document.warnings)
    lines: list[str] = []
    outline: list[OutlineLine] = []
    next_cursor = None
    room = episode.settings.result_bytes - 1_200
    for place, entry in enumerate(entries[start:], start):
        chunk = corpus.chunk_containing(chunk_set, document.document_id, entry.span.start)
        line = (
            "  " * max(0, entry.level - 1)
            + one_line(entry.heading, 120)
            + f" · {entry.locator} · {entry.tokens:,} tokens"
            + (f" · c{chunk.chunk_id}" if chunk else "")
        )
        if bytes_of(listing(lines)) + bytes_of(line) > room:
            next_cursor = str(place)
            lines.append(f"More: analyzeText(path={document.path!r}, cursor={next_cursor!r}).")
            break
        lines.append(line)
        outline.append(
            OutlineLine(
                heading=entry.heading,
                locator=entry.locator,
                tokens=entry.tokens,
                chunk_id=chunk.chunk_id if chunk else None,
            )
        )
    return Outcome(
        AnalyzeResult(
            total_tokens=document.tokens,
            total_documents=1,
            documents=[
                DocumentLine(
                    path=document.path,
                    tokens=document.tokens,
                    media_type=document.media_type,
                    title=document.title,
                )
            ],
            skipped={},
            formats={document.media_type: 1},
            languages={},
            outline=outline,
            next_cursor=next_cursor,
        ),
        listing([head, *lines]),
        label=f"outline of {document.path}",
    )


class BudgetArgs(Args):
    pass


class HeavyMessage(Result):
    msg_id: str
    tool: str
    label: str
    tokens: int


class BudgetResult(Result):
    conv_rounds: int
    available_tokens: int
    available_rounds: int
    used_tokens: int
    peak_tokens: int
    freed_tokens: int
    still_in_prompt_tokens: int
    sees: str
    heaviest: list[HeavyMessage]
    notes: list[str]


def gateway_line(seen: Sighting) -> str:
    """How real the figures are, and why deletions wait or do not."""
    told = "the provider's count" if seen.is_real else "estimated from its size"
    line = (
        f"The whole conversation is seen by the gateway: its last prompt was {seen.prompt:,} tokens ({told})."
    )
    if seen.askers > 1:
        line += (
            f" {seen.askers} conversations of this session asked at the same moment, and the host does not say which "
            "of them this is: told is the largest."
        )
    if seen.saved:
        line += f" {seen.saved:,} tokens were not sent in {count(seen.requests, 'request')}."
    if seen.waiting:
        line += f" {seen.waiting:,} deleted tokens wait (policy {seen.policy}): {seen.why}."
    return line


def shares_line(shares: Sequence[Share]) -> str:
    """The prompt message by message, as the gateway saw it: the heaviest by name, the small ones in sum."""
    single = [
        " ".join(f"{share.name} {what} {share.tokens:,}".split())
        for share in shares
        if share.name
        for what in ("" if share.name == share.kind else share.label or share.kind,)
    ]
    rest = [f"{share.count} smaller of {share.kind} {share.tokens:,}" for share in shares if not share.name]
    return f"By message: {', '.join(single + rest)}. What has no handle (#5 is the fifth message) stays."


def _heaviest(episode: Episode, shares: Sequence[Share]) -> list[HeavyMessage]:
    """Behind a gateway of all that stands in the prompt, elsewhere of what passed here."""
    if shares:
        return [
            HeavyMessage(
                msg_id=share.name if MOVABLE.match(share.name) else "",
                tool=share.kind,
                label=share.label or share.name,
                tokens=share.tokens,
            )
            for share in shares
            if share.name
        ]
    return [
        HeavyMessage(
            msg_id=handle_of(e.message), tool=e.message.tool, label=e.message.label, tokens=e.message.tokens
        )
        for e in heaviest(episode.transcript())
    ]


@spell("checkBudget", BudgetArgs, BudgetResult, stage="look", reads_only=True, title="Check the budget")
def check_budget(episode: Episode, args: BudgetArgs) -> Outcome:
    """Tokens and rounds used and left, the heaviest messages to delete, and the keys of all notes."""
    budget = episode.budget()
    seen = episode.sighting()
    heavy = _heaviest(episode, seen.shares if seen is not None else ())
    lines = [
        f"{budget.words}; peak {budget.peak:,}, freed {budget.freed:,}. "
        f"{count(budget.rounds, 'round')}, {budget.rounds_left:,} left."
    ]
    if budget.sees == "tool traffic":
        lines.append(
            "Counted is this server's own traffic; the rest of the conversation is not seen from here."
        )
    if seen is not None:
        lines.append(gateway_line(seen))
    if budget.still_in_prompt:
        lines.append(
            f"{budget.still_in_prompt:,} deleted tokens still stand in the host's prompt. {episode.physical_advice()}"
        )
    if seen is not None and seen.shares:
        lines.append(shares_line(seen.shares))
    elif heavy:
        shown = (" ".join(f"{one.msg_id} {one.tool} {one.label} {one.tokens:,}".split()) for one in heavy)
        lines.append(f"Heaviest: {', '.join(shown)}.")
    page = episode.workspace.notebook.list(limit=200)
    notes = page.lines
    if notes:
        lines.append("Notes:")
        room = episode.settings.result_bytes - 1_500
        for place, note in enumerate(notes):
            line = f"{note.key}: {one_line(note.summary, 160)}"
            if bytes_of(listing(lines)) + bytes_of(line) > room:
                lines.append(f"… {page.total - place:,} more; readNote() lists them.")
                break
            lines.append(line)
    return Outcome(
        BudgetResult(
            conv_rounds=budget.rounds,
            available_tokens=budget.left,
            available_rounds=budget.rounds_left,
            used_tokens=budget.used,
            peak_tokens=budget.peak,
            freed_tokens=budget.freed,
            still_in_prompt_tokens=budget.still_in_prompt,
            sees=budget.sees,
            heaviest=heavy,
            notes=[note.key for note in notes],
        ),
        listing(lines),
        label="budget",
    )


def _ids(total: int, first: int | None, last: int | None) -> str:
    """`, c1 to c254`; where ids between are no longer in use, that is said."""
    if first is None or last is None:
        return ""
    gaps = "" if last - first + 1 == total else ", not all in between"
    return f", c{first} to c{last}{gaps}"


class BuildArgs(Args):
    paths: list[str] | None = Field(None, description="Only these folders or files; none: all.")
    chunk_size: int = Field(1_000, description="Tokens per chunk.", ge=MIN_CHUNK_TOKENS, le=MAX_CHUNK_TOKENS)
    overlap: int = Field(0, description="Tokens shared by neighbours.", ge=0)


class BuildResult(Result):
    index_id: str
    state: str
    total_chunks: int
    first_chunk_id: int | None
    last_chunk_id: int | None
    documents_done: int
    documents_total: int


@spell("buildIndex", BuildArgs, BuildResult, stage="look", repeatable=True, title="Index the documents")
def build_index(episode: Episode, args: BuildArgs) -> Outcome:
    """Index the folders, or look for changes, in the background; returns at once with progress. Searching
    works meanwhile. Needed only for another chunk_size or to refresh."""
    if args.overlap >= args.chunk_size:
        raise Miscast(
            f"overlap is {args.overlap}, but must be smaller than chunk_size, {args.chunk_size}.",
            hint="Leave overlap out for none.",
            slug="bad_argument",
        )
    workspace = episode.workspace
    under = workspace.places(*(args.paths or ()))
    chunk_set = (
        ChunkSet(args.chunk_size, args.overlap)
        if {"chunk_size", "overlap"} & args.model_fields_set
        else episode.chunk_set
    )
    progress = workspace.build(chunk_set, under=under, wait_seconds=2.0)
    episode.use_chunk_set(chunk_set)
    total, first, last = workspace.corpus.chunk_range(chunk_set)
    state = (
        "building"
        if progress.state == "building"
        else "ready"
        if progress.state in ("ready", "empty")
        else "stale"
    )
    words = {
        "building": f"Building: {progress.documents_done:,} of {progress.documents_total:,} "
        f"documents so far, {progress.searchable:,} can be searched now; call buildIndex again for progress.",
        "ready": f"Ready: {count(progress.documents_done, 'document')}, {count(total, 'chunk')} of "
        f"about {chunk_set.size_tokens:,} tokens"
        + _ids(total, first, last) + ".",
        "stale": f"Not finished. {progress.detail or 'The last build failed.'} Call buildIndex again to go on.",
    }  # fmt: skip
    lines = [words[state], *progress.warnings]
    if state == "ready" and not total:
        lines.append(workspace.why_empty())
    if progress.skipped:
        lines.append(f"{count(progress.skipped, 'file')} skipped; analyzeText tells why.")
    if partial := workspace.corpus.partial_count():
        lines.append(f"{read_in_part(partial)}; analyzeText marks them.")
    return Outcome(
        BuildResult(
            index_id=f"{workspace.name}:{chunk_set.size_tokens}/{chunk_set.overlap_tokens}",
            state=state,
            total_chunks=total,
            first_chunk_id=first,
            last_chunk_id=last,
            documents_done=progress.documents_done,
            documents_total=progress.documents_total,
        ),
        listing(lines),
        label="index",
    )

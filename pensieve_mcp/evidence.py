"""Whether what a note rests on really stands there: looked up when noted, and again whenever it is read.

A quote is evidence only where it can be found in a document or an earlier message. Looked up again it is `ok`, `moved`
(with the new place), `changed` (with what stands there now), `gone` or `unsupported`. A file that is as it was is not
read again; one that changed since it was indexed is read anew by itself, so that the answer is about the file and not
about the index. A note is never lost over its evidence: what cannot be looked up is a state, not an error.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pensieve_mcp.corpus.types import Document, Fresh, Span
from pensieve_mcp.errors import (
    Miscast,
    NoSuchChunk,
    NoSuchDocument,
    NoSuchMessage,
    PensieveError,
    StorageError,
)
from pensieve_mcp.notebook.types import HOLDING, Evidence, EvidenceKind, EvidenceState, Note
from pensieve_mcp.redaction import Redacted, is_redacted, redact

if TYPE_CHECKING:
    from pensieve_mcp.corpus.extract.pool import ExtractionPool
    from pensieve_mcp.corpus.layout import Layout
    from pensieve_mcp.index.types import Mode
    from pensieve_mcp.ledger.store import StoredMessage
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

QUOTE_DOCUMENTS = 5  # documents in which a quote without a place is looked for
AROUND_CHARS = 32  # of what stands before and after a quote, to tell two equal ones apart
NEAR_CHARS = 4_000  # around the old place, looked at before the whole document
TELLING_CHARS = (
    40  # a quote as long as this is the same one in another document, shorter ones need their surroundings
)
REREAD_BYTES = 32 * 2**20  # larger files wait for the next build
HOPELESS = 20  # quotes of one vanished document that were searched for in vain: the rest is not searched for
SECOND_HAND = ("note", "updateNote", "readNote", "plan", "finish", "checkBudget")
"""Spells whose results repeat what a model wrote: quoting them supports nothing."""

_LISTED = re.compile(r"^c(\d{1,15}) · ", re.MULTILINE)  # a hit in a search's result

Given = tuple[str | None, str | None, str]
"""(`c48`, `m12` or None, path or None, quote) as a caller names evidence."""


class Page(Protocol):
    """A document's text as it stands now."""

    path: str
    digest: bytes
    basis: str  # which reader made the text
    chars: int

    def slice(self, start: int, end: int) -> str: ...
    def locator(self, span: Span) -> str: ...
    def chunk(self, span: Span) -> int | None: ...


class Indexed:
    """As it was indexed, which is as it is."""

    def __init__(self, workspace: Workspace, document: Document) -> None:
        self._workspace = workspace
        self.document = document
        self.path = document.path
        self.digest = document.digest
        self.basis = document.extractor
        self.chars = document.chars

    def slice(self, start: int, end: int) -> str:
        return self._workspace.corpus.text(self.document.document_id, Span(max(0, start), end))

    def locator(self, span: Span) -> str:
        return self._workspace.corpus.locator(self.document.document_id, span)

    def chunk(self, span: Span) -> int | None:
        holder = self._workspace.corpus.chunk_containing(
            self._workspace.default_chunk_set, self.document.document_id, span.start, span.end
        )
        return holder.chunk_id if holder else None


class Reread:
    """A file that changed since it was indexed, read anew. Its chunks do not exist yet."""

    def __init__(
        self, path: str, text: str, digest: bytes, basis: str, layout: Layout, verbatim: bool
    ) -> None:
        self.path = path
        self.digest = digest
        self.basis = basis
        self.chars = len(text)
        self._text = text
        self._layout = layout
        self._verbatim = verbatim

    def slice(self, start: int, end: int) -> str:
        return self._text[max(0, start) : end]

    def locator(self, span: Span) -> str:
        from pensieve_mcp.corpus.locate import locate

        units = [u for u in self._layout.units if u.start < span.end and u.end > span.start]
        lines = None
        if self._verbatim:
            first = 1 + self._text.count("\n", 0, span.start)
            lines = first, first + self._text[span.start : span.end].rstrip("\n").count("\n")
        return locate(span, units, self._layout.blocks_in(span), lines=lines)

    def chunk(self, span: Span) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Change:
    """A piece of evidence that is not as it was at the last look."""

    key: str
    quote: str
    path: str
    locator: str
    before: EvidenceState
    after: EvidenceState
    detail: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at all notes found. `expired` are keys of notes whose time is over, with the reason."""

    notes: int = 0
    pieces: int = 0
    states: dict[str, int] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    expired: tuple[tuple[str, str], ...] = ()
    read: int = 0  # documents whose text was looked at; the others are as they were


class Witness:
    """Looks quotes up. Remembers what it has seen of a document, so make a new one for each look. Close it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.read: set[str] = set()
        self._pages: dict[int, Page | str] = {}
        self._documents: dict[str, Document | None] = {}
        self._fresh: dict[int, Fresh] = {}
        self._heirs: dict[str, int] = {}
        self._in_vain: Counter[str] = Counter()
        self._pool: ExtractionPool | None = None

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    # -- when noted ----------------------------------------------------------------------------------------

    def look_up(self, given: Iterable[Given], *, default_chunks: Sequence[int] = ()) -> tuple[Evidence, ...]:
        """Look up quotes: in the named chunk, message or document, else in the chunks read lately, else everywhere.

        What is found nowhere, or names a place that does not exist, is kept and marked `unsupported`.
        """
        return tuple(self._first(place, path, quote.strip(), default_chunks) for place, path, quote in given)

    def _first(
        self, place: str | None, path: str | None, quote: str, default_chunks: Sequence[int]
    ) -> Evidence:
        corpus = self.workspace.corpus
        place, path = (place or "").strip(), (path or "").strip()
        bare = Evidence(quote=quote, path=path, locator=place, state="unsupported", verified=time.time())
        try:
            if place[:1] in "mMhH" and place:
                return self._message(bare, place)
            if place:
                from pensieve_mcp.handles import parse_chunk_id

                chunk = corpus.chunk(parse_chunk_id(place))
                document = corpus.document_by_id(chunk.document_id)
                bare = replace(bare, chunk_id=chunk.chunk_id, path=document.path, locator="")
                return self._judged(bare, chunk.document_id, within=chunk.span)
            if path:
                document = corpus.document(*self.workspace.prefix(path))
                return self._judged(replace(bare, path=document.path), document.document_id)
            if quote:
                return self._anywhere(bare, default_chunks)
        except (Miscast, TypeError) as wrong:
            log.info("evidence points nowhere: %s", wrong)
            told = wrong.message if isinstance(wrong, Miscast) else f"{path!r} names no document."
            return replace(bare, detail=told)
        except PensieveError as bad:
            log.info("evidence cannot be looked up: %s", bad.message)
            return replace(bare, detail=bad.message)
        return bare

    # -- when read again -------------------------------------------------------------------------------------

    def again(self, evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
        """The same pieces, each with its state as of now."""
        return tuple(self._again(piece) for piece in evidence)

    def _again(self, piece: Evidence) -> Evidence:
        source = next((one for one in self._withdrawn if _lies_in(piece, one)), None)
        if source is not None:
            return (
                piece
                if piece.state == "revoked"
                else replace(piece, state="revoked", detail=f"{source} was revoked")
            )
        try:
            if piece.message is not None and not piece.path:
                return self._message(piece, piece.locator or f"m{piece.message}", again=True)
            if not piece.path:
                return self._nowhere_again(piece)
            return self._document_again(piece)
        except PensieveError as bad:
            log.info("evidence cannot be looked up again: %s", bad.message)
            return replace(piece, detail=bad.message) if piece.state not in HOLDING else piece

    @cached_property
    def _withdrawn(self) -> tuple[str, ...]:
        return tuple(source.path for source in self.workspace.notebook.revoked_sources())

    def _nowhere_again(self, piece: Evidence) -> Evidence:
        if piece.locator:
            return self._first(piece.locator, None, piece.quote, ())  # a chunk or message that did not exist
        if not piece.quote:
            return piece  # a user's word or a guess, without a place: nothing to look up
        basis = f"generation {self.workspace.corpus.generation()}"
        if piece.state == "unsupported" and piece.basis == basis:
            return piece  # the documents are those it was not found in
        found = self._anywhere(piece, ())
        return found if found.state in HOLDING else replace(found, basis=basis, verified=time.time())

    def _document_again(self, piece: Evidence) -> Evidence:
        document = self._document(piece.path)
        if document is not None and self._freshness(document.document_id) == "yes":
            if (
                piece.document_digest == document.digest
                and piece.basis == document.extractor
                and piece.state in (*HOLDING, "changed", "unsupported")
            ):
                return replace(piece, verified=time.time())
            if piece.state in ("unchecked", "unsupported") or piece.quote or self._same(piece, document):
                return self._judged(piece, document.document_id)
            return self._whole_changed(piece, document)
        if document is not None and self._freshness(document.document_id) == "changed":
            self.workspace.look_now()
            return self._judged(piece, document.document_id)
        if document is not None and self._freshness(document.document_id) == "unreadable":
            return piece  # a disk that is not there now says nothing about the words; the old look stands
        return self._vanished(piece, document)

    def _same(self, piece: Evidence, document: Document) -> bool:
        """Whether evidence without a quote still stands: its chunk, or without one the whole file, is as it was."""
        if piece.chunk_id is None:
            return piece.document_digest == document.digest
        try:
            return self.workspace.corpus.chunk(piece.chunk_id).document_id == document.document_id
        except NoSuchChunk:
            return False

    def _whole_changed(self, piece: Evidence, document: Document) -> Evidence:
        detail = f"{document.path} was changed since."
        if piece.chunk_id is not None:
            try:
                self.workspace.corpus.chunk(piece.chunk_id)
            except NoSuchChunk as gone:
                detail = str(gone)
        return replace(piece, state="changed", detail=detail, verified=time.time())

    # -- judging a piece against a text --------------------------------------------------------------------

    def _judged(self, piece: Evidence, document_id: int, *, within: Span | None = None) -> Evidence:
        page = self._page(document_id)
        if isinstance(page, str):
            return replace(piece, state="changed", detail=page, verified=time.time())
        if not piece.quote:
            span = within or Span(0, min(page.chars, 1))
            changed = piece.document_digest not in (b"", page.digest) and isinstance(page, Reread)
            if changed:
                return replace(
                    piece, state="changed", detail=f"{page.path} was changed since.", verified=time.time()
                )
            return self._standing(replace(piece, locator=piece.locator or page.locator(span)), page, span)
        found = self._find(page, piece, within)
        if found is not None:
            return self._standing(piece, page, found)
        if piece.state in ("unsupported", "unchecked"):
            return replace(
                piece,
                path=page.path,
                state="unsupported",
                document_digest=page.digest,
                basis=page.basis,
                verified=time.time(),
            )
        if (heir := self._elsewhere(piece, besides=document_id)) is not None:
            return heir
        return self._changed(piece, page)

    def _standing(self, piece: Evidence, page: Page, span: Span) -> Evidence:
        first = piece.state in ("unsupported", "unchecked")
        locator = page.locator(span) if piece.quote else piece.locator
        noted = (piece.noted_path, piece.noted_locator) if piece.noted_path else (piece.path, piece.locator)
        if first:
            noted = (page.path, locator)
        moved = noted != (page.path, locator)
        before, after = _around(page, span) if piece.quote else ("", "")
        return replace(
            piece,
            path=page.path,
            locator=locator,
            chunk_id=piece.chunk_id
            if piece.chunk_id is not None and not moved
            else page.chunk(span) or piece.chunk_id,
            document_digest=page.digest,
            basis=page.basis,
            span=(span.start, span.end) if piece.quote else None,
            prefix=before,
            suffix=after,
            state="moved" if moved else "ok",
            detail=f"was {' '.join(filter(None, noted))}" if moved else "",
            noted_path=noted[0] if moved else "",
            noted_locator=noted[1] if moved else "",
            kind="observed" if first else piece.kind,
            verified=time.time(),
        )

    def _changed(self, piece: Evidence, page: Page) -> Evidence:
        from pensieve_mcp.corpus.quotes import WINDOW_CHARS, stands_now

        near = piece.span[0] if piece.span is not None else 0
        low = max(0, near - 2 * WINDOW_CHARS)
        now = stands_now(
            redact(page.slice(low, near + len(piece.quote) + 2 * WINDOW_CHARS)),
            piece.quote,
            near=near - low,
            prefix=piece.prefix,
            suffix=piece.suffix,
        )
        return replace(
            piece,
            state="changed",
            detail=f"now: “{now}”" if now else f"{page.path} holds nothing like it any more.",
            document_digest=page.digest,
            basis=page.basis,
            verified=time.time(),
        )

    def _find(self, page: Page, piece: Evidence, within: Span | None) -> Span | None:
        """The place of the quote that is meant, where it stands several times."""
        near = piece.span[0] if piece.span is not None else None
        stretches: list[tuple[int, int]] = []
        if within is not None:
            stretches.append((within.start, within.end))
        elif near is not None:
            stretches.append((max(0, near - NEAR_CHARS), near + len(piece.quote) + NEAR_CHARS))
        stretches.append((0, page.chars))
        for start, end in stretches:
            if (span := _in(page, piece, start, end, near)) is not None:
                return span
        return None

    # -- elsewhere -----------------------------------------------------------------------------------------

    def _vanished(self, piece: Evidence, document: Document | None) -> Evidence:
        """Its document is no longer where it was: renamed, moved, replaced by something else, or removed."""
        if piece.state == "unsupported":
            return piece
        besides = document.document_id if document is not None else None
        if (heir := self._elsewhere(piece, besides=besides)) is not None:
            return heir
        self.workspace.look_now()
        return replace(piece, state="gone", detail=self._what_is_there(piece.path), verified=time.time())

    def _elsewhere(self, piece: Evidence, *, besides: int | None) -> Evidence | None:
        """The piece in another document, where it is surely the same: that document is the old one under another
        name, or the quote is long or stands among the same words."""
        for document_id in self._heirs_of(piece):
            if document_id == besides:
                continue
            page = self._page(document_id)
            if isinstance(page, str):
                continue
            if not piece.quote:
                return (
                    self._standing(piece, page, Span(0, 1)) if page.digest == piece.document_digest else None
                )
            span = self._find(page, piece, None)
            if span is not None and (page.digest == piece.document_digest or _surely(page, piece, span)):
                self._heirs[piece.path] = document_id
                return self._standing(piece, page, span)
        return None

    def _heirs_of(self, piece: Evidence) -> Iterator[int]:
        """Documents that may hold the quote now, likeliest first. Searching costs, so it comes last."""
        corpus = self.workspace.corpus
        seen: set[int] = set()
        if piece.path in self._heirs:
            seen.add(self._heirs[piece.path])
            yield self._heirs[piece.path]
        if piece.chunk_id is not None and (known := corpus.ids.known(piece.chunk_id)) is not None:
            try:
                if (
                    corpus.document_by_id(known.document_id).path != piece.path
                    and known.document_id not in seen
                ):
                    seen.add(known.document_id)
                    yield known.document_id
            except NoSuchDocument:
                pass
        for document_id in self._of_digest(piece.document_digest):
            if document_id not in seen:
                seen.add(document_id)
                yield document_id
        if len(piece.quote) < TELLING_CHARS // 2 or self._in_vain[piece.path] >= HOPELESS:
            return
        self._in_vain[piece.path] += 1
        for document_id in self._searched(piece.quote):
            if document_id not in seen:
                seen.add(document_id)
                yield document_id

    def _of_digest(self, digest: bytes) -> list[int]:
        if not digest:
            return []
        with self.workspace.corpus.connections.reading() as db:
            rows = db.conn.execute(
                "SELECT document_id FROM documents WHERE digest = ? ORDER BY path LIMIT 3", (digest,)
            ).fetchall()
        return [int(row[0]) for row in rows]

    def _anywhere(self, piece: Evidence, default_chunks: Sequence[int]) -> Evidence:
        """The first place of a quote: in the chunks read lately, else in the documents that search brings up."""
        corpus = self.workspace.corpus
        for chunk_id in default_chunks:
            try:
                chunk = corpus.chunk(chunk_id)
            except NoSuchChunk:
                continue  # read before the file changed
            page = self._page(chunk.document_id)
            if isinstance(page, str):
                continue
            span = _in(page, piece, chunk.span.start, chunk.span.end, None)
            if span is not None:
                return self._standing(replace(piece, chunk_id=chunk_id), page, span)
        for document_id in self._searched(piece.quote):
            page = self._page(document_id)
            if not isinstance(page, str) and (span := self._find(page, piece, None)) is not None:
                return self._standing(piece, page, span)
        return replace(piece, state="unsupported")

    def _searched(self, quote: str) -> Iterator[int]:
        words = " ".join(quote.split()).replace('"', " ")
        modes: tuple[tuple[Mode, str], ...] = (("lexical", words[:2_000]), ("exact", f'"{words[:200]}"'))
        for mode, query in modes:
            found = self.workspace.search(
                [query], mode=mode, under=(), passages=40, chunk_set=self.workspace.default_chunk_set
            )
            yield from dict.fromkeys(hit.document_id for hit in found.hits[:QUOTE_DOCUMENTS])

    def _what_is_there(self, path: str) -> str:
        """What stands at the path of a document that is gone, as far as the index knows."""
        corpus = self.workspace.corpus
        if corpus.has_document(path):
            return f"{path} is not there any more, or a folder or link took its place."
        if corpus.has_under(path) and not corpus.has_document(path):
            try:
                corpus.document(path)
            except NoSuchDocument as absent:
                if absent.slug == "document_skipped":
                    return absent.message
            return f"{path} is a folder now."
        return f"{path} is not there any more."

    # -- messages --------------------------------------------------------------------------------------------

    def _message(self, piece: Evidence, name: str, *, again: bool = False) -> Evidence:
        """A quote of an earlier message. What it showed of a document counts as the document's."""
        from pensieve_mcp.handles import parse_message_ids
        from pensieve_mcp.ledger.parts import split_parts

        ledger = self.workspace.ledger
        refs = parse_message_ids(name)
        if len(refs) != 1:
            return replace(piece, detail=f"{name} names {len(refs)} messages; evidence is one.")
        try:
            stored = ledger.find(refs[0])
        except NoSuchMessage as absent:
            return replace(piece, state="gone" if again else "unsupported", detail=absent.message)
        kind = _kind(stored)
        if again and piece.state in HOLDING and stored.content_state == "kept":
            return replace(piece, verified=time.time())  # what was said does not change
        known = replace(piece, message=stored.message.number, locator=name, kind=kind, verified=time.time())
        try:
            content = ledger.content(stored.message)
        except StorageError as purged:
            return replace(known, state="gone" if again else "unsupported", detail=purged.message)
        if refs[0].part is not None:
            parts = split_parts(content)
            if not 1 <= refs[0].part <= len(parts):
                return replace(known, state="unsupported", detail=f"{name}: there are {len(parts)} parts.")
            content = parts[refs[0].part - 1]
        if known.quote:
            from pensieve_mcp.corpus.quotes import find_quote

            said = redact(content) if is_redacted(known.quote) else content
            if not find_quote(said, known.quote):
                return replace(known, state="unsupported", detail=f"{name} does not say so.")
            listed = _LISTED.findall(content) if stored.message.tool == "searchEngine" else ()
            for chunk_id in (*stored.message.chunk_ids, *map(int, listed)):
                try:
                    chunk = self.workspace.corpus.chunk(chunk_id)
                except NoSuchChunk:
                    continue
                page = self._page(chunk.document_id)
                span = (
                    None
                    if isinstance(page, str)
                    else _in(page, known, chunk.span.start, chunk.span.end, None)
                )
                if span is not None and not isinstance(page, str):
                    return self._standing(
                        replace(known, state="unsupported", chunk_id=chunk_id, locator=""), page, span
                    )
        return replace(known, state="ok", detail="")

    # -- documents -------------------------------------------------------------------------------------------

    def _document(self, path: str) -> Document | None:
        if path not in self._documents:
            corpus = self.workspace.corpus
            self._documents[path] = corpus.document(path) if corpus.has_document(path) else None
        return self._documents[path]

    def _freshness(self, document_id: int) -> Fresh:
        if document_id not in self._fresh:
            self._fresh |= self.workspace.corpus.freshness([document_id])
        return self._fresh[document_id]

    def _page(self, document_id: int) -> Page | str:
        """The text as it stands now, or why it cannot be told."""
        if document_id not in self._pages:
            document = self.workspace.corpus.document_by_id(document_id)
            self.read.add(document.path)
            fresh = self._freshness(document_id)
            self._pages[document_id] = (
                Indexed(self.workspace, document) if fresh == "yes" else self._read_anew(document)
            )
            if len(self._pages) > 64:  # texts read anew are whole in memory
                self._pages.pop(next(iter(self._pages)))
        return self._pages[document_id]

    def _read_anew(self, document: Document) -> Page | str:
        from pensieve_mcp.corpus.extract.pool import ExtractionPool
        from pensieve_mcp.corpus.folders import open_regular
        from pensieve_mcp.corpus.layout import Layout
        from pensieve_mcp.corpus.store import file_digest
        from pensieve_mcp.corpus.types import FileHint, Unreadable

        corpus = self.workspace.corpus
        try:
            root = corpus.roots[document.root]
            with open_regular(root, document.raw, follow_links=corpus.follow_links) as file:
                size = os.fstat(file.fileno()).st_size
                if size > REREAD_BYTES:
                    return f"{document.path} was changed, and is read anew with the next build."
                digest = file_digest(file)
                file.seek(0)
                if self._pool is None:
                    self._pool = ExtractionPool(1, self.workspace.limits)
                hint = FileHint(
                    os.fsdecode(document.raw), size, self.workspace.settings.fallback_encoding or None
                )
                read = self._pool.extract(file, hint)
        except (Unreadable, KeyError) as unreadable:
            reason = (
                unreadable.reason if isinstance(unreadable, Unreadable) else "its folder is no longer known"
            )
            return f"{document.path} is not there any more, or cannot be read ({reason})."
        return Reread(
            document.path,
            read.text,
            digest,
            read.extractor,
            Layout.of(read.units, read.blocks),
            read.facts.verbatim,
        )


def look_up(
    workspace: Workspace, given: Iterable[Given], *, default_chunks: Sequence[int] = ()
) -> tuple[Evidence, ...]:
    """See Witness.look_up."""
    with Witness(workspace) as witness:
        return witness.look_up(given, default_chunks=default_chunks)


def check_note(workspace: Workspace, note: Note, *, store: bool = True) -> Note:
    """The note with the state of its evidence as of now, which is stored with it. An old revision is looked at, too.

    A note whose time is over says `needs review` with the reason; only `check_all` stores that.
    """
    if note.evidence:
        with Witness(workspace) as witness:
            states = witness.again(note.evidence)
        if store and not note.deleted and _is_stale(note.evidence, states):
            try:
                workspace.notebook.check_many([(note.key, note.revision, states)])
            except StorageError as error:  # reading must work where nothing can be written
                log.warning("the state of evidence was not stored: %s", error.message)
        note = replace(note, evidence=states)
    if note.status == "active" and (why := expiry(workspace, note)):
        note = replace(note, status="needs review", reason=why)
    return note


REFRESH_SECONDS = 60.0  # an unchanged state is stored again only when its time is older than this


def _is_stale(before: Sequence[Evidence], after: Sequence[Evidence]) -> bool:
    return any(
        replace(new, verified=None) != replace(old, verified=None)
        or (new.verified or 0.0) - (old.verified or 0.0) > REFRESH_SECONDS
        for old, new in zip(before, after, strict=True)
    )


def check_all(
    workspace: Workspace,
    *,
    author: str = "check",
    progress: Callable[[int], None] | None = None,
    batch: int = 1_000,
) -> Checked:
    """Look at the evidence of all notes again and store what was found. Unchanged files are not read.

    The folders are not indexed first: a caller who wants renamed and new files to count builds before. Notes whose
    time is over become `needs review`, as a revision by `author`.
    """
    notebook = workspace.notebook
    states: Counter[str] = Counter()
    changes: list[Change] = []
    expired: list[tuple[str, str]] = []
    notes = pieces = 0
    with Witness(workspace) as witness:
        waiting: list[tuple[str, int, Sequence[Evidence]]] = []
        unchanged: list[tuple[str, int]] = []
        for note in notebook.evidence_of_all():
            notes += 1
            after = witness.again(note.evidence)
            pieces += len(after)
            states.update(piece.state for piece in after)
            for old, new in zip(note.evidence, after, strict=True):
                if old.state != new.state or (new.state == "moved" and old.path != new.path):
                    changes.append(
                        Change(note.key, new.quote, new.path, new.locator, old.state, new.state, new.detail)
                    )
            if any(
                replace(a, verified=None) != replace(b, verified=None)
                for a, b in zip(note.evidence, after, strict=True)
            ):
                waiting.append((note.key, note.revision, after))
            elif after:
                unchanged.append((note.key, note.revision))
            if note.status == "active" and (why := expiry(workspace, note, witness)):
                expired.append((note.key, why))
            if len(waiting) >= batch:
                notebook.check_many(waiting)
                waiting = []
            if progress is not None and notes % batch == 0:
                progress(notes)
        notebook.check_many(waiting)
        notebook.verified(unchanged, time.time())
        read = len(witness.read)
    for key, why in expired:
        notebook.set_status(key, "needs review", why, author=author)
    return Checked(notes, pieces, dict(states), tuple(changes), tuple(expired), read)


def validity(workspace: Workspace, given: str) -> tuple[str, str]:
    """(valid, basis) of a note from what a writer said: a date, a document whose change ends it, or nothing.

    Raises Miscast for what is neither.
    """
    from datetime import date

    text = given.strip()
    if text.casefold().startswith("until "):
        text = text[6:].strip()
    if text.casefold().endswith(" changes"):
        text = text[:-8].strip()
    if not text or text.casefold() in ("none", "always"):
        return "", ""
    try:
        return date.fromisoformat(text[:10]).isoformat(), ""
    except ValueError:
        pass
    try:
        document = workspace.corpus.document(*workspace.prefix(text))
    except (NoSuchDocument, TypeError) as absent:
        raise Miscast(
            f"valid is {given[:80]!r}, which is neither a date nor a document.",
            hint="Write a date such as 2026-12-31, or the path of the document whose change ends it.",
            slug="bad_argument",
        ) from absent
    return document.path, document.digest.hex()


def expiry(workspace: Workspace, note: Note, witness: Witness | None = None) -> str:
    """Why the time of a note is over; empty while it is not.

    A clock that jumps back does not make an old note valid again: time is at least that of its last revision.
    """
    from datetime import UTC, date, datetime

    if not note.valid:
        return ""
    if note.valid_basis:
        with witness or Witness(workspace) as looking:
            document = looking._document(note.valid)
            if document is None or looking._freshness(document.document_id) == "gone":
                return f"it was valid until {note.valid} changes, which is not there any more"
            if (
                document.digest.hex() != note.valid_basis
                or looking._freshness(document.document_id) == "changed"
            ):
                return f"it was valid until {note.valid} changes, which it has"
        return ""
    try:
        last = date.fromisoformat(note.valid)
    except ValueError:
        return ""  # written by another version
    now = datetime.fromtimestamp(max(time.time(), note.updated), UTC).date()
    return f"it was valid until {note.valid}" if now > last else ""


def _in(page: Page, piece: Evidence, start: int, end: int, near: int | None) -> Span | None:
    from pensieve_mcp.corpus.quotes import choose, find_quote

    text = page.slice(start, end)
    cleaned = Redacted(text) if is_redacted(piece.quote) else None  # noted without its secret
    shown = text if cleaned is None else cleaned.text
    found = choose(
        shown,
        find_quote(shown, piece.quote),
        near=near - start if near is not None else None,
        prefix=piece.prefix,
        suffix=piece.suffix,
    )
    if found is None:
        return None
    low, high = found.span.start, found.span.end
    if cleaned is not None:
        low, high = cleaned.original(low, high)
    return Span(start + low, start + high)


def _around(page: Page, span: Span) -> tuple[str, str]:
    """What stands before and after; of a secret only its kind, also where it reaches further than that."""
    low, high = max(0, span.start - NEAR_CHARS), span.end + NEAR_CHARS
    before = redact(page.slice(low, span.start))[-AROUND_CHARS:]
    return before, redact(page.slice(span.end, high))[:AROUND_CHARS]


def _surely(page: Page, piece: Evidence, span: Span) -> bool:
    """Whether a quote in another document is the one that was noted."""
    if len(piece.quote) >= TELLING_CHARS:
        return True
    before = "".join(page.slice(span.start - 2 * AROUND_CHARS, span.start).split())
    after = "".join(page.slice(span.end, span.end + 2 * AROUND_CHARS).split())
    prefix, suffix = "".join(piece.prefix.split())[-12:], "".join(piece.suffix.split())[:12]
    return bool(prefix and before.endswith(prefix)) or bool(suffix and after.startswith(suffix))


def _lies_in(piece: Evidence, source: str) -> bool:
    top = source.rstrip("/")
    return any(path == top or path.startswith(f"{top}/") for path in (piece.path, piece.noted_path) if path)


def _kind(stored: StoredMessage) -> EvidenceKind:
    message = stored.message
    roles: dict[str, EvidenceKind] = {"user": "user", "assistant": "guess", "tool": "tool", "system": "tool"}
    return "guess" if message.tool in SECOND_HAND else roles[message.role]

"""A piece of evidence and its state: where its words stand now, in a document or in an earlier message."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pensieve_mcp.corpus.types import Document, Fresh, Span
from pensieve_mcp.errors import (
    Miscast,
    NoSuchChunk,
    NoSuchDocument,
    NoSuchMessage,
    PensieveError,
    StorageError,
)
from pensieve_mcp.evidence.pages import (
    NEAR_CHARS,
    TELLING_CHARS,
    Page,
    Reread,
    Shelf,
    around,
    find_in,
    surely,
)
from pensieve_mcp.notebook.types import HOLDING, Evidence, EvidenceKind
from pensieve_mcp.redaction import is_redacted, redact

if TYPE_CHECKING:
    from pensieve_mcp.index.types import Mode
    from pensieve_mcp.ledger.store import StoredMessage
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

QUOTE_DOCUMENTS = 5  # documents in which a quote without a place is looked for
HOPELESS = 20  # quotes of one vanished document that were searched for in vain: the rest is not searched for
SECOND_HAND = ("note", "updateNote", "readNote", "plan", "finish", "checkBudget")
"""Spells whose results repeat what a model wrote: quoting them supports nothing."""

_LISTED = re.compile(r"^c(\d{1,15}) · ", re.MULTILINE)  # a hit in a search's result

Given = tuple[str | None, str | None, str]
"""(`c48`, `m12` or None, path or None, quote) as a caller names evidence."""


class Witness:
    """Looks quotes up. Remembers what it has seen of a document, so make a new one for each look. Close it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._shelf = Shelf(workspace)
        self._heirs: dict[str, int] = {}
        self._in_vain: Counter[str] = Counter()

    @property
    def read(self) -> set[str]:
        """Paths of documents whose text was looked at; the others are as they were."""
        return self._shelf.read

    def document(self, path: str) -> Document | None:
        return self._shelf.document(path)

    def freshness(self, document_id: int) -> Fresh:
        return self._shelf.freshness(document_id)

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._shelf.close()

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
        document = self.document(piece.path)
        if document is not None and self.freshness(document.document_id) == "yes":
            if (
                piece.document_digest == document.digest
                and piece.basis == document.extractor
                and piece.state in (*HOLDING, "changed", "unsupported")
            ):
                return replace(piece, verified=time.time())
            if piece.state in ("unchecked", "unsupported") or piece.quote or self._same(piece, document):
                return self._judged(piece, document.document_id)
            return self._whole_changed(piece, document)
        if document is not None and self.freshness(document.document_id) == "changed":
            self.workspace.look_now()
            return self._judged(piece, document.document_id)
        if document is not None and self.freshness(document.document_id) == "unreadable":
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
        page = self._shelf.page(document_id)
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
        before, after = around(page, span) if piece.quote else ("", "")
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
            if (span := find_in(page, piece, start, end, near)) is not None:
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
            page = self._shelf.page(document_id)
            if isinstance(page, str):
                continue
            if not piece.quote:
                return (
                    self._standing(piece, page, Span(0, 1)) if page.digest == piece.document_digest else None
                )
            span = self._find(page, piece, None)
            if span is not None and (page.digest == piece.document_digest or surely(page, piece, span)):
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
            page = self._shelf.page(chunk.document_id)
            if isinstance(page, str):
                continue
            span = find_in(page, piece, chunk.span.start, chunk.span.end, None)
            if span is not None:
                return self._standing(replace(piece, chunk_id=chunk_id), page, span)
        for document_id in self._searched(piece.quote):
            page = self._shelf.page(document_id)
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
                page = self._shelf.page(chunk.document_id)
                span = (
                    None
                    if isinstance(page, str)
                    else find_in(page, known, chunk.span.start, chunk.span.end, None)
                )
                if span is not None and not isinstance(page, str):
                    return self._standing(
                        replace(known, state="unsupported", chunk_id=chunk_id, locator=""), page, span
                    )
        return replace(known, state="ok", detail="")


def _lies_in(piece: Evidence, source: str) -> bool:
    top = source.rstrip("/")
    return any(path == top or path.startswith(f"{top}/") for path in (piece.path, piece.noted_path) if path)


def _kind(stored: StoredMessage) -> EvidenceKind:
    message = stored.message
    roles: dict[str, EvidenceKind] = {"user": "user", "assistant": "guess", "tool": "tool", "system": "tool"}
    return "guess" if message.tool in SECOND_HAND else roles[message.role]

"""Documents as they stand now: out of the index where the file is as it was, else read anew, and where a quote stands
in them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from pensieve_mcp.corpus.types import Document, Fresh, Span
from pensieve_mcp.notebook.types import Evidence
from pensieve_mcp.redaction import Redacted, is_redacted, redact

if TYPE_CHECKING:
    from pensieve_mcp.corpus.extract.pool import ExtractionPool
    from pensieve_mcp.corpus.layout import Layout
    from pensieve_mcp.workspace import Workspace

AROUND_CHARS = 32  # of what stands before and after a quote, to tell two equal ones apart
NEAR_CHARS = 4_000  # around the old place, looked at before the whole document
TELLING_CHARS = (
    40  # a quote as long as this is the same one in another document, shorter ones need their surroundings
)
REREAD_BYTES = 32 * 2**20  # larger files wait for the next build
OPEN_PAGES = 64  # texts read anew are whole in memory


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


class Shelf:
    """Opens pages, and remembers what it has seen: make a new one for each look, and close it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.read: set[str] = set()  # paths of documents whose text was looked at
        self._pages: dict[int, Page | str] = {}
        self._documents: dict[str, Document | None] = {}
        self._fresh: dict[int, Fresh] = {}
        self._pool: ExtractionPool | None = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def document(self, path: str) -> Document | None:
        if path not in self._documents:
            corpus = self._workspace.corpus
            self._documents[path] = corpus.document(path) if corpus.has_document(path) else None
        return self._documents[path]

    def freshness(self, document_id: int) -> Fresh:
        if document_id not in self._fresh:
            self._fresh |= self._workspace.corpus.freshness([document_id])
        return self._fresh[document_id]

    def page(self, document_id: int) -> Page | str:
        """The text as it stands now, or why it cannot be told."""
        if document_id not in self._pages:
            document = self._workspace.corpus.document_by_id(document_id)
            self.read.add(document.path)
            fresh = self.freshness(document_id)
            self._pages[document_id] = (
                Indexed(self._workspace, document) if fresh == "yes" else self._read_anew(document)
            )
            if len(self._pages) > OPEN_PAGES:
                self._pages.pop(next(iter(self._pages)))
        return self._pages[document_id]

    def _read_anew(self, document: Document) -> Page | str:
        from pensieve_mcp.corpus.extract.pool import ExtractionPool
        from pensieve_mcp.corpus.folders import open_regular
        from pensieve_mcp.corpus.layout import Layout
        from pensieve_mcp.corpus.store import file_digest
        from pensieve_mcp.corpus.types import FileHint, Unreadable

        corpus = self._workspace.corpus
        try:
            root = corpus.roots[document.root]
            with open_regular(root, document.raw, follow_links=corpus.follow_links) as file:
                size = os.fstat(file.fileno()).st_size
                if size > REREAD_BYTES:
                    return f"{document.path} was changed, and is read anew with the next build."
                digest = file_digest(file)
                file.seek(0)
                if self._pool is None:
                    self._pool = ExtractionPool(1, self._workspace.limits)
                hint = FileHint(
                    os.fsdecode(document.raw), size, self._workspace.settings.fallback_encoding or None
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


def find_in(page: Page, piece: Evidence, start: int, end: int, near: int | None) -> Span | None:
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


def around(page: Page, span: Span) -> tuple[str, str]:
    """What stands before and after; of a secret only its kind, also where it reaches further than that."""
    low, high = max(0, span.start - NEAR_CHARS), span.end + NEAR_CHARS
    before = redact(page.slice(low, span.start))[-AROUND_CHARS:]
    return before, redact(page.slice(span.end, high))[:AROUND_CHARS]


def surely(page: Page, piece: Evidence, span: Span) -> bool:
    """Whether a quote in another document is the one that was noted."""
    if len(piece.quote) >= TELLING_CHARS:
        return True
    before = "".join(page.slice(span.start - 2 * AROUND_CHARS, span.start).split())
    after = "".join(page.slice(span.end, span.end + 2 * AROUND_CHARS).split())
    prefix, suffix = "".join(piece.prefix.split())[-12:], "".join(piece.suffix.split())[:12]
    return bool(prefix and before.endswith(prefix)) or bool(suffix and after.startswith(suffix))

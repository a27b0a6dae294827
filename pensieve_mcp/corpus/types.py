"""Values of the corpus: what was found, what was read, where it stands.

One canonical text `T` per document: what was extracted, line ends as `\n`, control characters (but tab)
removed, nothing else folded. All spans are half-open offsets in `T` by code point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Protocol

UnitKind = Literal[
    "page", "slide", "sheet", "chapter", "message", "cell", "body", "notes", "footnote", "comment", "header"
]  # fmt: skip
Status = Literal["ok", "partial"]
Fresh = Literal["yes", "changed", "gone", "unreadable"]  # unreadable: it cannot be looked at now

SkipReason = Literal[
    "ignored",          # a rule hides it (detail names file and line)
    "hidden",           # dot file or folder
    "secret",           # looks like a key or password file
    "symlink",          # links are not followed
    "special",          # FIFO, socket, device
    "unreadable",       # permission denied, I/O error
    "too_large",        # over the size limit (detail says both)
    "empty",
    "binary",           # no text in it and no reader for it
    "unsupported",      # a known format that no installed reader covers (detail names the extra)
    "encrypted",
    "no_text",          # scanned pages, pictures only
    "corrupt",
    "bomb",             # unpacks to more than the limits allow
    "timeout",
    "crashed",          # the reader died on it
    "out_of_memory",
    "too_deep",         # folder nesting
    "partial",          # read, but not all of it: a document, with a warning that says what is missing
    "unreachable",      # a root that could not be listed; its documents are kept
]  # fmt: skip

PASSAGES_PER_HIT = 12  # to ask the index for with each chunk wanted: several passages lie in one chunk


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a document's text, in code points; `end` is the first one not in it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """We could not, or should not, read this file. `path` is `root/relative/file`."""

    path: str
    reason: SkipReason
    detail: str = ""
    root: str = ""
    raw: bytes | None = None  # exact relative path where the walk met it; the identity
    folder: bool = False  # a whole folder was passed over: one Skipped stands for all below it


@dataclass(frozen=True, slots=True)
class Stat:
    """What tells an unchanged file: all four equal. Times in nanoseconds."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Root:
    """One folder or single file of a workspace. `name` heads every path and is unique in the workspace."""

    name: str
    folder: str  # absolute path; of the file itself when `is_file`
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file the rules let in. `raw` is the exact relative path in bytes (os.fsencode), the identity."""

    root: str
    raw: bytes
    path: str  # `root/relative/file`, with `/`, undecodable and control characters escaped
    stat: Stat


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, heading, row group or cell range: [start, end) in its text.

    `first_line`/`last_line` are one-based lines of the file (CRLF, CR and LF each end one), given where `T` is
    not the file's own text line by line (HTML, JSON). `cells` is an A1 range such as `B3:F9`.
    """

    start: int
    end: int
    heading: tuple[str, ...] = ()
    first_line: int | None = None
    last_line: int | None = None
    cells: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """A page, slide, sheet, chapter or message: [start, end) in `T`. `ordinal` is one-based within its kind."""

    kind: UnitKind
    ordinal: int
    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What an extractor yields: the text of one unit (or of a stretch of a long one) and its blocks.

    Block offsets are relative to `text`. Pieces with the same (kind, ordinal) that follow each other are one
    unit. `T` is the concatenation of the pieces' texts, so a piece ends with the newline that parts it from the next.
    """

    text: str
    kind: UnitKind = "body"
    ordinal: int = 1
    label: str = ""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What an extractor knows of the whole document; may be yielded at any time, the last one counts."""

    media_type: str
    title: str = ""
    encoding: str | None = None
    replaced: int = 0  # characters that could not be decoded
    verbatim: bool = False  # `T` is the file's own text: line n of `T` is line n of the file
    warnings: tuple[str, ...] = ()
    partial: bool = False  # something was left out that belongs to the text; a warning says what


@dataclass(frozen=True, slots=True)
class Extracted:
    """A document read whole, or as far as it could be (`partial`, with a warning that says where it ended)."""

    text: str
    facts: Facts
    units: tuple[Unit, ...]
    blocks: tuple[Block, ...]  # offsets in `text`, ascending, not overlapping
    extractor: str  # name/version, part of the fingerprint
    status: Status = "ok"


class Unreadable(Exception):
    """Raised by an extractor inside the worker; becomes a `Skipped`."""

    def __init__(self, reason: SkipReason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of reading; facts/extraction section 7. Bytes, characters, counts."""

    text_file_bytes: int = 256 * 2**20
    rich_file_bytes: int = 512 * 2**20
    document_chars: int = 50_000_000
    pages: int = 20_000
    page_chars: int = 2_000_000
    zip_entries: int = 20_000
    zip_entry_bytes: int = 256 * 2**20
    zip_total_bytes: int = 2**30
    zip_ratio: int = 200  # counted once an entry inflates to over 64 MB
    xml_depth: int = 512
    json_depth: int = 256
    table_rows: int = 1_000_000
    row_cells: int = 2_048
    cell_chars: int = 32_767
    mail_depth: int = 20
    mail_parts: int = 1_000


@dataclass(frozen=True, slots=True)
class FileHint:
    """What the reader is told of the file: its name (for the suffix only), size, and the user's fallback encoding."""

    name: str
    size_bytes: int
    fallback_encoding: str | None = None


class Extractor(Protocol):
    """Reads one format. Runs in the worker, gets an open binary file positioned at 0, seekable."""

    name: str
    version: int

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        """Yield pieces in reading order and facts. Raises Unreadable."""
        ...


@dataclass(frozen=True, slots=True)
class Document:
    """A document in the corpus. `document_id` never changes through touch and rename."""

    document_id: int
    path: str
    root: str
    raw: bytes
    digest: bytes  # sha256 of the file
    stat: Stat
    media_type: str
    title: str
    tokens: int
    chars: int
    status: Status
    encoding: str | None
    extractor: str
    units: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkSet:
    """What keys a set of chunks. Sizes in tokens of `tokens.COUNTER`."""

    size_tokens: int = 1_000
    overlap_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is read. `chunk_id` is never reused and always means this text."""

    chunk_id: int
    document_id: int
    position: int  # zero-based place in the document order of its set
    span: Span
    tokens: int
    digest: bytes  # first 16 bytes of the sha256 of its text


@dataclass(frozen=True, slots=True)
class Passage:
    """What is searched: a stretch of at most 1,000 characters. Shared by all chunk sets."""

    passage_id: int
    document_id: int
    span: Span


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Where a build stands, as every process sees it."""

    state: Literal["building", "ready", "stale", "empty", "failed"]
    documents_done: int = 0
    documents_total: int = 0
    chunks: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    skipped: int = 0
    detail: str = ""
    owner: str = ""
    upgraded_passages: int = 0  # third tier: passages that have their MiniLM vector
    passages: int = 0
    warnings: tuple[str, ...] = field(default=())
    searchable: int = 0  # documents that the published index holds

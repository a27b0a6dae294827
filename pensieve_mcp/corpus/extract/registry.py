"""Which reader takes which file: by magic bytes first, by suffix second.

Why: names lie. A `.docx` that is an OLE container is encrypted, a `.txt` that is a picture is binary, a `.xls` that
is an HTML table is HTML. Every format we know and do not read gets a plain statement instead of silence. Readers
are loaded when first needed; this module costs a cold start nothing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import BinaryIO, Protocol

from pensieve_mcp.corpus.extract import magic
from pensieve_mcp.corpus.types import Extractor, Facts, FileHint, Limits, Piece, Unreadable

# Our own readers: key -> (module, class). The class is made once, without arguments.
_READERS: dict[str, tuple[str, str]] = {
    "pdf": ("pdf", "PdfExtractor"),
    "docx": ("wordprocessing", "WordExtractor"),
    "pptx": ("slides", "SlidesExtractor"),
    "xlsx": ("sheets", "SheetsExtractor"),
    "odf": ("opendocument", "OpenDocumentExtractor"),
    "epub": ("epub", "EpubExtractor"),
    "rtf": ("rtf", "RtfExtractor"),
    "doc": ("legacy", "OldWordExtractor"),
    "ppt": ("legacy", "OldSlidesExtractor"),
    "xls": ("legacy", "OldSheetsExtractor"),
    "xlsb": ("legacy", "BinarySheetsExtractor"),
    "msg": ("legacy", "OutlookMessageExtractor"),
}
# Suffixes of formats that have magic bytes; without them the content decides, and is corrupt if it is no text.
RICH_SUFFIXES = magic.OFFICE_SUFFIXES | {
    ".pdf", ".rtf", ".doc", ".dot", ".xls", ".xlt", ".ppt", ".pps", ".msg",
}  # fmt: skip
_HTML = re.compile(
    rb"\s*(?:\xef\xbb\xbf)?\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html[\s>])", re.I | re.S
)
_extra: dict[str, Extractor] = {}


class Resumable(Extractor, Protocol):
    """An extractor that can begin at a later unit: after a crash on page 900 the pool asks for page 901.

    It yields one piece for every unit, an empty one if there is no text, so that the pool knows where it is.
    """

    def extract_from(
        self, file: BinaryIO, hint: FileHint, limits: Limits, first: int
    ) -> Iterator[Piece | Facts]: ...


def choose(file: BinaryIO, hint: FileHint, limits: Limits) -> Extractor:
    """The reader for this file. Raises Unreadable with the format's name when there is none."""
    suffix = PurePath(hint.name).suffix.lower()
    head = magic.head_of(file)
    if not head:
        raise Unreadable("empty", "0 bytes")
    if suffix in _extra:
        return _extra[suffix]
    key = _rich_format(file, head, suffix, limits)
    if key is not None:
        if hint.size_bytes > limits.rich_file_bytes:
            raise Unreadable(
                "too_large", f"{hint.size_bytes:,} bytes; the limit is {limits.rich_file_bytes:,}"
            )
        return reader(key)
    known = magic.recognise(head)
    if known is not None:
        raise Unreadable(*known)
    if magic.looks_binary(head):
        if suffix in RICH_SUFFIXES:
            raise Unreadable("corrupt", f"named {suffix}, but its content is neither that nor text")
        raise Unreadable("binary", "no text in it, and no known format")
    if hint.size_bytes > limits.text_file_bytes:
        raise Unreadable("too_large", f"{hint.size_bytes:,} bytes; the limit is {limits.text_file_bytes:,}")
    readers = text_readers()
    found = readers.get(suffix)
    if found is not None and suffix:
        return found
    return readers.get(".html", readers[""]) if _HTML.match(head) else readers[""]


def _rich_format(file: BinaryIO, head: bytes, suffix: str, limits: Limits) -> str | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n\x00")
    if start.startswith(b"%PDF-") or (suffix == ".pdf" and b"%PDF-" in head[:1024]):
        return "pdf"
    if start.startswith(b"{\\rtf"):
        return "rtf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK00PK\x03\x04", b"PK\x07\x08PK\x03\x04")):
        from pensieve_mcp.corpus.extract.package import format_of

        return format_of(file, suffix, limits)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        from pensieve_mcp.corpus.extract.ole import format_of as ole_format_of

        return ole_format_of(file)
    if suffix == ".pdf" and magic.looks_binary(head):
        raise Unreadable("corrupt", "no PDF header in the first 1,024 bytes")
    return None


@cache
def reader(key: str) -> Extractor:
    """One of our own readers, made once."""
    module, name = _READERS[key]
    made: Extractor = getattr(importlib.import_module(f"pensieve_mcp.corpus.extract.{module}"), name)()
    return made


@cache
def text_readers() -> Mapping[str, Extractor]:
    """Readers of text formats by lower-case suffix; "" takes plain text and code of any other name."""
    from pensieve_mcp.corpus.extract.text_formats import text_extractors

    return text_extractors()


def add_readers_of(place: str) -> None:
    """Add what `module:function` gives, by suffix, before all others. In the worker only."""
    module, _, function = place.partition(":")
    _extra.update(getattr(importlib.import_module(module), function)())


def label(extractor: Extractor) -> str:
    """Name and version as they stand in the corpus: `pdf/3`."""
    return f"{extractor.name}/{extractor.version}"


def extractor_fingerprint() -> str:
    """All that shapes what readers yield: their versions, and the versions of the libraries behind them.

    It changes when an optional package comes or goes, so that what was `unsupported` is tried again.
    """
    from importlib.metadata import PackageNotFoundError, version

    parts = {label(reader(key)) for key in _READERS} | {label(one) for one in text_readers().values()}
    for package in ("pypdfium2", "charset-normalizer", "office-oxide", "python-calamine", "olefile"):
        try:
            parts.add(f"{package}={version(package)}")
        except PackageNotFoundError:
            parts.add(f"{package}=absent")
    return ";".join(sorted(parts))

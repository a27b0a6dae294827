"""PDF by PDFium, page by page.

The only file that knows pypdfium2. PDFium is not thread-safe and may die on a file, so this runs in a worker, alone.
Text comes in content order, which reads columns well; vertical Japanese it gives badly. Filled form fields and notes
on a page are no part of PDFium's text and follow it as blocks of their own. A page without a text layer is told,
not read: there is no OCR here.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Any, BinaryIO

from pensieve_mcp.corpus.extract.writing import Headings
from pensieve_mcp.corpus.types import Block, Facts, FileHint, Limits, Piece, Unreadable

_PASSWORD_ERROR, _SECURITY_ERROR = 4, 5  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY
_BROKEN_WORD = re.compile(
    "\ufffe(?:\r\n|\n|\r)?"
)  # PDFium's sign for the hyphen of a word broken at the line's end
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_MOST_BOOKMARKS = 20_000
_MOST_ANNOTATIONS = 2_000  # on one page
_TEXT_NOTE, _FREE_TEXT, _MARKUP, _WIDGET = (
    1,
    3,
    range(9, 13),
    20,
)  # FPDF_ANNOT_*; markup: highlight to strikeout

Bookmark = tuple[int, str]  # level from 1, title


class PdfExtractor:
    """Yields one piece a page, an empty one for a page without text."""

    name = "pdf"
    version = 1
    native = True

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        return self.extract_from(file, hint, limits, 1)

    def extract_from(
        self, file: BinaryIO, hint: FileHint, limits: Limits, first: int
    ) -> Iterator[Piece | Facts]:
        import pypdfium2

        # Copy-on-write, because ctypes only takes writable memory; nothing is written. The mapping is closed when
        # the last of PDFium's objects that point into it is collected.
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        data = (ctypes.c_ubyte * len(view)).from_buffer(view)
        try:
            document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as problem:
            raise _refusal(problem) from problem
        try:
            yield from _pages(document, limits, first)
        finally:
            document.close()


def _refusal(problem: Any) -> Unreadable:
    if problem.err_code == _PASSWORD_ERROR:
        return Unreadable("encrypted", "the PDF needs a password")
    if problem.err_code == _SECURITY_ERROR:
        return Unreadable("encrypted", "the PDF is protected in a way PDFium does not know")
    return Unreadable("corrupt", str(problem))


def _pages(document: Any, limits: Limits, first: int) -> Iterator[Piece | Facts]:
    import pypdfium2

    count = len(document)
    wanted = min(count, limits.pages)
    title = _said(lambda: document.get_metadata_value("Title")).strip()
    yield Facts("application/pdf", title=title)
    outline = _outline(document)
    headings = Headings()
    for number in range(1, first):
        for level, name in outline.get(number, ()):
            headings.open(level, name)
    cut: list[int] = []
    broken: list[int] = []
    silent = 0
    for number in range(first, wanted + 1):
        label = _said(lambda at=number: document.get_page_label(at - 1)) or str(number)  # type: ignore[misc]
        try:
            page = document.get_page(number - 1)
            try:
                text, whole = _page_text(page, limits.page_chars)
                aside = _annotations(page)
            finally:
                page.close()
        except pypdfium2.PdfiumError:
            broken.append(number)
            yield Piece("", "page", number, label)
            continue
        if not whole:
            cut.append(number)
        if not text.strip() and not aside:
            silent += 1
        yield _piece(text, aside, number, label, outline.get(number, []), headings)
    if first == 1 and broken and len(broken) == wanted:
        raise Unreadable("corrupt", f"none of its {count} pages can be opened")
    if first == 1 and silent + len(broken) == wanted:
        pages = "page" if count == 1 else "pages"
        raise Unreadable("no_text", f"{count} {pages} without a text layer (scanned?)")
    warnings = []
    if count > wanted:
        warnings.append(f"only the first {wanted:,} of {count:,} pages were read")
    if cut:
        warnings.append(f"only the first {limits.page_chars:,} characters were read of page {_listed(cut)}")
    if broken:
        warnings.append(f"damaged and left out: page {_listed(broken)}")
    partial = bool(warnings)
    if silent:
        warnings.append(f"{silent} of {count} pages have no text layer (scanned or blank)")
    yield Facts("application/pdf", title=title, warnings=tuple(warnings), partial=partial)


def _said(ask: Callable[[], str | None]) -> str:
    """A title or label, "" where it cannot be decoded."""
    try:
        return ask() or ""
    except UnicodeDecodeError:
        return ""


def _listed(numbers: list[int]) -> str:
    rest = len(numbers) - 10
    return ", ".join(map(str, numbers[:10])) + (f" and {rest} more" if rest > 0 else "")


def _page_text(page: Any, most_chars: int) -> tuple[str, bool]:
    textpage = page.get_textpage()
    try:
        chars = textpage.count_chars()
        if chars <= 0:
            return "", True
        text: str = textpage.get_text_range(0, min(chars, most_chars))
    finally:
        textpage.close()
    return _BROKEN_WORD.sub("", text).replace("\r\n", "\n").replace("\r", "\n"), chars <= most_chars


def _piece(
    text: str, aside: list[str], number: int, label: str, marks: list[Bookmark], headings: Headings
) -> Piece:
    """One page: blocks end at empty lines and at the titles of the outline that are found on it."""
    path = headings.path
    opened: dict[int, tuple[str, ...]] = {}
    at = 0
    for level, title in marks:
        at = _find_title(text, title, at)
        opened[at] = headings.open(level, title)
    borders = sorted({0, len(text), *opened, *(match.end() for match in _PARAGRAPH.finditer(text))})
    blocks: list[Block] = []
    for start, end in pairwise(borders):
        path = opened.get(start, path)
        inside = text[start:end]
        trimmed = inside.strip()
        if trimmed:
            begin = start + inside.index(trimmed)
            blocks.append(Block(begin, begin + len(trimmed), path))
    if text and not text.endswith("\n"):
        text += "\n"
    for note in aside:
        blocks.append(Block(len(text), len(text) + len(note), headings.path))
        text += note + "\n"
    return Piece(text, "page", number, label, tuple(blocks))


def _find_title(text: str, title: str, start: int) -> int:
    """Where the line that begins with a title begins; `start` if there is none."""
    words = title.split()[:12]
    if not words:
        return start
    match = re.compile(r"^[ \t]*" + r"\s+".join(map(re.escape, words)), re.I | re.M).search(text, start)
    return match.start() if match else start


def _outline(document: Any) -> dict[int, list[Bookmark]]:
    """Bookmarks by page number, in the outline's order. A damaged outline is no reason to lose the text."""
    import pypdfium2

    found: dict[int, list[Bookmark]] = {}
    for mark in islice(document.get_toc(max_depth=9), _MOST_BOOKMARKS):
        try:
            target = mark.get_dest()
            page = None if target is None else target.get_index()
            title = mark.get_title().strip()
        except (pypdfium2.PdfiumError, UnicodeDecodeError):
            continue
        if page is not None and title:
            found.setdefault(page + 1, []).append((mark.level + 1, title))
    return found


def _annotations(page: Any) -> list[str]:
    """Contents of form fields, text boxes and notes, in the page's order, each once."""
    from pypdfium2 import raw

    notes: dict[str, None] = {}
    for index in range(min(raw.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            if kind == _WIDGET:
                name, value = _value(raw, annotation, b"T"), _value(raw, annotation, b"V")
                if value and value != "Off":
                    notes[f"{name}: {value}" if name else value] = None
            elif kind in (_TEXT_NOTE, _FREE_TEXT) or kind in _MARKUP:
                contents = _value(raw, annotation, b"Contents")
                if contents:
                    notes[contents if kind == _FREE_TEXT else f"Note: {contents}"] = None
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
    return list(notes)


def _value(raw: Any, annotation: Any, key: bytes) -> str:
    size = raw.FPDFAnnot_GetStringValue(annotation, key, None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFAnnot_GetStringValue(annotation, key, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    text = buffer.raw[: size - 2].decode("utf-16-le", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()

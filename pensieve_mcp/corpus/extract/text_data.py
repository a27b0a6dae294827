"""Text that programs write: CSV, JSON, JSON lines, notebooks, subtitles, calendars.

What people can read as it stands is kept verbatim. JSON that is not (letters written as `\\u` escapes, everything
on one line) is laid out as an outline of keys and values, with the line of the file in each block. JSON is cut
into tokens rather than parsed, so that depth, size and small faults do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.decode import TextStream, clean
from pensieve_mcp.corpus.extract.text_blocks import (
    BLOCK_CHARS,
    SOFT_CUT_CHARS,
    Flat,
    Pages,
    Wording,
    facts_of,
    open_text,
    verbatim,
    whole_lines,
)
from pensieve_mcp.corpus.types import Block, Facts, FileHint, Limits, Piece

READABLE_LINE_CHARS = 2_000  # longer lines of JSON were not written for people
HEADING_CHARS = 200
PATH_DEPTH = 4  # keys shown above a block; deeper ones say little
INDENT_DEPTH = 12


class Table:
    """CSV and TSV, verbatim; blocks end where a row does, also when a cell holds line ends."""

    name, version = "table", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        stream = open_text(file, hint, limits)
        words = Wording()
        heading: tuple[str, ...] | None = None
        rest = ""
        for text in whole_lines(stream):
            text = rest + text
            if heading is None:
                heading = _header(text)
            blocks: list[Block] = []
            start = 0
            while start < len(text):
                stop = _row_end(text, start)
                if stop == len(text) and text.count('"', start) % 2 and len(text) - start < SOFT_CUT_CHARS:
                    break  # the stretch ends inside a quoted cell: wait for the rest
                blocks.append(Block(start, stop, heading))
                start = stop
            rest = text[start:]
            if blocks:
                yield from words.let(Piece(text[:start], blocks=tuple(blocks)))
        if rest:
            yield from words.let(Piece(rest, blocks=(Block(0, len(rest), heading or ()),)))
        words.check()
        yield facts_of(stream, "text/csv", verbatim=True)


def _row_end(text: str, start: int) -> int:
    """The end of the last whole row that fits into a block; of the first one when none does."""
    if len(text) - start <= BLOCK_CHARS:
        return len(text)
    stop = start + BLOCK_CHARS
    for _ in range(64):
        stop = text.rfind("\n", start, stop)
        if stop < 0:
            break
        if text.count('"', start, stop) % 2 == 0:
            return stop + 1
    at, odd, limit = start, 0, min(len(text), start + SOFT_CUT_CHARS)
    first = 0
    while (end := text.find("\n", at, limit)) >= 0:
        first = first or end + 1
        odd ^= text.count('"', at, end) & 1
        if not odd:
            return end + 1
        at = end + 1
    return first or limit  # a stray quote swallows no more than a line; a row without end is cut


def _header(text: str) -> tuple[str, ...]:
    """The names of the columns as a heading, when the first row looks like names and there is a second."""
    end = _row_end(text, 0) if text[:1] == '"' else text.find("\n")
    row = text[: text.find("\n")] if end < 0 or end > SOFT_CUT_CHARS else text[:end].split("\n", 1)[0]
    if "\n" not in text.rstrip("\n") or not row:
        return ()
    comma = max(",;\t|", key=row.count)
    cells = [c.strip().strip('"').strip() for c in row.split(comma)]
    if len(cells) < 2 or any(not c or c.replace(".", "").replace("-", "").isdigit() for c in cells):
        return ()
    if len(set(cells)) < len(cells) or max(map(len, cells)) > 60:
        return ()
    return (" | ".join(cells)[:HEADING_CHARS],)


_LETTER_ESCAPE = re.compile(r"\\u(?!00[01])[0-9a-fA-F]{4}")


class Json:
    """JSON: verbatim when it can be read as it stands, else laid out."""

    name, version = "json", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        stream = open_text(file, hint, limits)
        if self._is_readable(stream):
            yield from verbatim(stream, "application/json", Flat())
            return
        again = open_text(file, hint, limits)
        yield from laid_out(again, "application/json")

    @staticmethod
    def _is_readable(stream: TextStream) -> bool:
        for text in whole_lines(stream):
            if _LETTER_ESCAPE.search(text):
                return False
            start = 0
            while len(text) - start > READABLE_LINE_CHARS:
                end = text.rfind("\n", start, start + READABLE_LINE_CHARS)
                if end < 0:
                    return False
                start = end + 1
        stream.replaced = 0
        return True


_TOKEN = re.compile(r'"(?:[^"\\]|\\.){0,60000}"?|[{}\[\],:]|[^\s{}\[\],:"]{1,60000}|\s+', re.S)
_ESCAPED = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.S
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\n", "b": "", "f": " ", "/": "/"}


def unescape(text: str) -> str:
    """The inside of a JSON string as it is meant."""

    def back(match: re.Match[str]) -> str:
        high, low, single, letter = match.groups()
        if high is not None:
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
        if single is not None:
            return chr(int(single, 16))
        return _LETTERS.get(letter, letter)

    return clean(_ESCAPED.sub(back, text)).replace("\r", "") if "\\" in text else text


def laid_out(stream: TextStream, media_type: str) -> Iterator[Piece | Facts]:
    """Keys and values line by line, indented by depth; blocks with the keys above and the line in the file."""
    words, pages, writer = Wording(), Pages(), _Layout()
    for text in _between_tokens(stream):
        writer.feed(text, pages)
        if pages.is_full:
            body, blocks = pages.take()
            yield from words.let(Piece(body, blocks=blocks))
    writer.finish(pages)
    body, blocks = pages.take()
    if body:
        yield from words.let(Piece(body, blocks=blocks))
    words.check()
    yield facts_of(stream, media_type)


def _between_tokens(stream: Iterable[str]) -> Iterator[str]:
    """The text in stretches that end between two tokens, as far as 64 KB of looking back can tell."""
    rest = ""
    for text in stream:
        text = rest + text
        cut = max(text.rfind(",\n"), text.rfind("\n"))
        if cut < 0:
            # one long line: leave the last string, which may be unfinished, for the next stretch
            cut = (
                max(text.rfind('",', 0, -1) + 1, text.rfind("},", 0, -1) + 1, text.rfind("],", 0, -1) + 1) - 1
            )
        if cut < 0 and len(text) < 4 * SOFT_CUT_CHARS:
            rest = text
            continue
        yield text[: cut + 1] if cut >= 0 else text
        rest = text[cut + 1 :] if cut >= 0 else ""
    if rest:
        yield rest


class _Layout:
    """The state of laying out one JSON text."""

    def __init__(self) -> None:
        self._line = 1
        self._stack: list[str] = []  # "{" or "[" of all that is open
        self._keys: list[str] = []  # the key each open thing stands under
        self._key = ""
        self._value: list[str] = []
        self._rows: list[str] = []
        self._rows_chars = 0
        self._from = 1
        self._path: tuple[str, ...] = ()

    def feed(self, text: str, pages: Pages) -> None:
        for match in _TOKEN.finditer(text):
            token = match[0]
            first = token[0]
            if first == '"':
                body = token[1:-1] if len(token) > 1 and token[-1] == '"' else token[1:]
                self._value.append(unescape(body))
            elif first == ":":
                self._key = " ".join("".join(self._value).split())
                self._value.clear()
            elif first in "{[":
                self._row(pages, opens=True)
                self._stack.append(first)
                self._keys.append(self._key)
                self._key = ""
            elif first in "}]":
                self._row(pages)
                if self._stack:
                    self._stack.pop()
                    self._keys.pop()
                if len(self._stack) <= 2 and self._rows_chars > BLOCK_CHARS // 4:
                    self._close(pages)
            elif first == ",":
                self._row(pages)
            elif not first.isspace():
                self._value.append(token)
            if "\n" in token:
                self._line += token.count("\n")

    def _row(self, pages: Pages, *, opens: bool = False) -> None:
        value = " ".join(self._value).strip()
        self._value.clear()
        if not self._rows:
            self._from = self._line
            self._path = tuple(k for k in self._keys[:64] if k)[:PATH_DEPTH]
        if value or (self._key and opens):
            pad = "  " * min(len(self._stack), INDENT_DEPTH)
            value = value.replace("\n", "\n" + pad)
            row = f"{pad}{self._key}: {value}".rstrip() if self._key else pad + value
            self._rows.append(row)
            self._rows_chars += len(row)
        if not opens:
            self._key = ""
        if self._rows_chars > BLOCK_CHARS:
            self._close(pages)

    def _close(self, pages: Pages) -> None:
        if self._rows:
            pages.add("\n".join(self._rows), self._path, self._from, self._line)
        self._rows = []
        self._rows_chars = 0

    def finish(self, pages: Pages) -> None:
        self._row(pages)
        self._close(pages)


class JsonLines:
    """One block per record with its line in the file; the record as its keys and values in reading order."""

    name, version = "jsonl", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        stream = open_text(file, hint, limits)
        words, pages, line = Wording(), Pages(), 0
        for text in whole_lines(stream):
            for record in text.split("\n")[: -1 if text.endswith("\n") else None]:
                line += 1
                if record.strip():
                    pages.add(record_text(record, limits.json_depth), (), line)
                if pages.is_full:
                    body, blocks = pages.take()
                    yield from words.let(Piece(body, blocks=blocks))
        body, blocks = pages.take()
        if body:
            yield from words.let(Piece(body, blocks=blocks))
        words.check()
        yield facts_of(stream, "application/x-ndjson")


def record_text(record: str, depth: int = 256) -> str:
    """`key: value` lines of one JSON record; the record itself when it is no JSON or nested too deep."""
    import json

    try:
        value = json.loads(record)
    except (ValueError, RecursionError):
        return record
    rows: list[str] = []
    stack: list[tuple[str, object, int]] = [("", value, 0)]
    while stack:
        key, value, level = stack.pop()
        if level > depth:
            return record
        if isinstance(value, dict):
            stack.extend((f"{key}.{k}" if key else str(k), v, level + 1) for k, v in reversed(value.items()))
        elif isinstance(value, list):
            if value and not any(isinstance(v, dict | list) for v in value):
                rows.append(
                    f"{key}: " + ", ".join(map(_plain, value)) if key else ", ".join(map(_plain, value))
                )
            else:
                stack.extend((key, v, level + 1) for v in reversed(value))
        else:
            rows.append(f"{key}: {_plain(value)}" if key else _plain(value))
    return clean("\n".join(rows)).replace("\r\n", "\n").replace("\r", "\n") or record


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


class Notebook:
    """Jupyter notebooks: each cell a unit, then what it printed; pictures are left out."""

    name, version = "notebook", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        import json

        from pensieve_mcp.corpus.extract.text_blocks import outlined
        from pensieve_mcp.corpus.extract.text_outline import Markdown

        stream = open_text(file, hint, limits)
        try:
            book = json.loads("".join(stream))
            cells = book.get("cells") or [c for sheet in book["worksheets"] for c in sheet["cells"]]
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            yield from Json().extract(file, hint, limits)  # not a notebook after all; read what is there
            return
        words, outline = Wording(), Markdown()
        above: tuple[str, ...] = ()
        for number, cell in enumerate(cells if isinstance(cells, list) else [], 1):
            if not isinstance(cell, dict):
                continue
            kind = str(cell.get("cell_type", "cell"))
            source = _joined(cell.get("source", cell.get("input")))
            parts = [source, *_outputs(cell.get("outputs"))]
            text = "\n".join(p.rstrip("\n") for p in parts if p.strip())
            if not text:
                continue
            text += "\n"
            if kind == "markdown":
                blocks, above = outlined(text, outline, above)
            else:
                blocks, _ = outlined(text, Flat(), above)
            yield from words.let(Piece(text, "cell", number, f"{kind} {number}", blocks))
        words.check()
        yield facts_of(stream, "application/x-ipynb+json", title=outline.title)


def _joined(value: object) -> str:
    text = "".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")


def _outputs(outputs: object) -> Iterator[str]:
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        if isinstance(data, dict):
            for kind in ("text/markdown", "text/plain", "text/latex"):
                if kind in data:
                    yield _joined(data[kind])
                    break
        elif "text" in output:
            yield _joined(output["text"])
        elif "traceback" in output:
            yield _joined(
                "\n".join(map(str, output["traceback"])) if isinstance(output["traceback"], list) else ""
            )


class Cues:
    """Subtitles, verbatim: a block for each cue, with its times."""

    name, version = "subtitles", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        from pensieve_mcp.corpus.extract.text_blocks import fill

        stream = open_text(file, hint, limits)
        words = Wording()
        for text in whole_lines(stream):
            blocks: list[Block] = []
            start = 0
            for match in re.finditer(r"\n\n+", text):
                blocks.extend(fill(text, start, match.end(), ()))
                start = match.end()
            blocks.extend(fill(text, start, len(text), ()))
            yield from words.let(Piece(text, blocks=tuple(blocks)))
        words.check()
        yield facts_of(
            stream, "text/vtt" if hint.name.lower().endswith("vtt") else "application/x-subrip", verbatim=True
        )


class Cards:
    """iCalendar and vCard: folded lines joined, escapes undone, a block for each entry under its summary."""

    name, version = "calendar", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        stream = open_text(file, hint, limits)
        words, pages = Wording(), Pages()
        rows: list[str] = []
        first, title = 1, ""
        for number, row in _unfolded(stream):
            if not rows:
                first = number
            rows.append(row)
            name, _, value = row.partition(": ")
            if name in ("SUMMARY", "FN") and not title:
                title = value[:HEADING_CHARS]
            if name == "END" or len(rows) >= 200:
                pages.add("\n".join(rows), (title,) if title else (), first, number)
                rows, title = [], ""
            if pages.is_full:
                body, blocks = pages.take()
                yield from words.let(Piece(body, blocks=blocks))
        if rows:
            pages.add("\n".join(rows), (title,) if title else (), first)
        body, blocks = pages.take()
        if body:
            yield from words.let(Piece(body, blocks=blocks))
        words.check()
        yield facts_of(stream, "text/calendar")


def _unfolded(stream: TextStream) -> Iterator[tuple[int, str]]:
    held, held_at, number = "", 1, 0
    for text in whole_lines(stream):
        for line in text.split("\n")[: -1 if text.endswith("\n") else None]:
            number += 1
            if line[:1] in (" ", "\t") and len(held) < SOFT_CUT_CHARS:
                held += line[1:]
                continue
            if held:
                yield held_at, _property(held)
            held, held_at = line, number
    if held:
        yield held_at, _property(held)


def _property(line: str) -> str:
    name, colon, value = line.partition(":")
    value = re.sub(r"\\([nN,;\\])", lambda m: "\n" if m[1] in "nN" else m[1], value)
    return f"{name.split(';', 1)[0]}: {value}" if colon else line

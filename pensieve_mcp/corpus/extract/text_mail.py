"""Mail: one message (EML) or many (MBOX): headers first, then the body, then what is attached.

On the `email` package for structure only; headers and bodies are decoded here, since its newer header parser
fails on many real ones. Nesting that overflows its recursion is read by a flat splitter instead.
"""

from __future__ import annotations

import email
import email.errors
import email.header
import email.message
import email.policy
import io
import re
from collections.abc import Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.decode import clean, decode_declared
from pensieve_mcp.corpus.extract.text_blocks import Flat, Wording, outlined, too_large
from pensieve_mcp.corpus.extract.text_html import html_pieces
from pensieve_mcp.corpus.types import Block, Extractor, Facts, FileHint, Limits, Piece, UnitKind, Unreadable

HEADERS = ("Subject", "From", "To", "Cc", "Date")
HEADER_CHARS = 4_000
MESSAGE_BYTES = 128 * 2**20  # a message of a mailbox beyond this is read without structure
LABEL_CHARS = 160

_FROM = re.compile(rb"From \S.{0,200}\d{2}:\d{2}.{0,60}\d{4}|From (?:-|\S+@\S+|MAILER-DAEMON)(?:\s|$)", re.S)


def header(message: email.message.Message, name: str) -> str:
    """A header as people read it, or "". Never raises."""
    try:
        raw = message.get(name)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return ""
    if raw is None:
        return ""
    parts: list[str] = []
    try:
        for text, charset in email.header.decode_header(str(raw)[:HEADER_CHARS]):
            parts.append(text if isinstance(text, str) else decode_declared(text, charset))
    except (ValueError, IndexError, email.errors.HeaderParseError):
        parts = [str(raw)[:HEADER_CHARS]]
    joined = "".join(parts)
    if any("\udc80" <= c <= "\udcff" for c in joined):
        joined = decode_declared(joined.encode("utf-8", "surrogateescape"), None)
    return " ".join(clean(joined).split())


def _payload(part: email.message.Message) -> bytes:
    try:
        data = part.get_payload(decode=True)
    except (ValueError, LookupError, TypeError, AssertionError):
        data = None
    return data if isinstance(data, bytes) else b""


def _text(part: email.message.Message) -> str:
    try:
        charset = part.get_content_charset()
    except (ValueError, LookupError, TypeError, UnicodeError):
        charset = None
    return decode_declared(_payload(part), charset)


def _file_name(part: email.message.Message) -> str:
    try:
        name = part.get_filename() or ""
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    holder = email.message.Message()
    holder["Name"] = name.replace("\r", " ").replace("\n", " ")
    return header(holder, "Name")[:LABEL_CHARS]


class _Message:
    """One message read into pieces of text."""

    def __init__(self, limits: Limits, attachments: bool) -> None:
        self.limits = limits
        self.attachments = attachments
        self.parts = 0
        self.warnings: list[str] = []
        self.out: list[tuple[str, tuple[Block, ...]]] = []
        self.later: list[tuple[str, email.message.Message]] = []

    def read(self, message: email.message.Message, depth: int = 0) -> None:
        lines = [f"{name}: {value}" for name in HEADERS if (value := header(message, name))]
        if lines:
            self._add("\n".join(lines) + "\n\n")
        # (part, depth), innermost alternative chosen; a stack of our own, since nesting is the sender's choice
        stack: list[tuple[email.message.Message, int]] = [(message, depth)]
        while stack:
            part, level = stack.pop()
            self.parts += 1
            if self.parts > self.limits.mail_parts:
                self._warn(f"only the first {self.limits.mail_parts:,} parts were read")
                return
            if level > self.limits.mail_depth:
                self._warn(f"parts nested deeper than {self.limits.mail_depth} were not read")
                continue
            kind = part.get_content_type()
            inner = part.get_payload() if part.is_multipart() else None
            if kind == "message/rfc822" and isinstance(inner, list) and inner:
                nested = inner[0]
                if isinstance(nested, email.message.Message):
                    name = header(nested, "Subject") or _file_name(part)
                    self._add(f"Attached message: {name}\n")
                    lines = [f"{n}: {v}" for n in HEADERS if (v := header(nested, n))]
                    self._add("\n".join(lines) + "\n\n" if lines else "")
                    stack.append((nested, level + 1))
            elif isinstance(inner, list):
                children = [c for c in inner if isinstance(c, email.message.Message)]
                if kind == "multipart/alternative":
                    children = self._alternative(children)
                stack.extend((c, level + 1) for c in reversed(children))
            elif (name := _file_name(part)) or part.get_content_disposition() == "attachment":
                size = len(_payload(part))
                self._add(f"Attachment: {name or 'without a name'} ({kind}, {size:,} bytes)\n")
                self.later.append((name, part))
            elif kind == "text/html":
                self._html(part)
            elif part.get_content_maintype() == "text":
                self._add(_text(part).rstrip() + "\n\n")

    def _alternative(self, children: list[email.message.Message]) -> list[email.message.Message]:
        """The plain text where it says something, else the richest that can be read."""
        for child in children:
            if child.get_content_type() == "text/plain" and _text(child).strip():
                return [child]
        readable = [c for c in children if c.get_content_maintype() in ("text", "multipart", "message")]
        return readable[-1:] or children

    def _html(self, part: email.message.Message) -> None:
        for item in html_pieces(_text(part), lines=False):
            if isinstance(item, Piece):
                self.out.append((item.text, item.blocks))

    def _add(self, text: str) -> None:
        if text.strip():
            blocks, _ = outlined(text, Flat(), ())
            self.out.append((text, blocks))

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _parse(data: bytes) -> email.message.Message | None:
    """The message as a tree, or None when it is nested beyond what the parser can follow."""
    try:
        return email.message_from_bytes(data, policy=email.policy.compat32)
    except (RecursionError, ValueError, IndexError, TypeError, AttributeError, LookupError, AssertionError):
        return None


def _flat(data: bytes) -> str:
    """Headers and lines of a message that has no readable structure, without its base64 and boundaries."""
    text = decode_declared(data, None)
    lines = [
        line
        for line in text.split("\n")
        if not line.startswith("--") and not re.fullmatch(r"[A-Za-z0-9+/=]{60,}", line)
        and not re.match(r"(?i)content-|mime-version:|x-[\w-]+:|received:|dkim-|arc-", line)
    ]  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def message_pieces(
    data: bytes, limits: Limits, *, ordinal: int = 1, first_line: int | None = None, attachments: bool = True
) -> Iterator[Piece | Facts]:
    """One message as a unit "message", its text attachments as units "body"; Facts carry warnings and subject.

    Yields no piece for a message without a word.
    """
    tree = _parse(data)
    reader = _Message(limits, attachments)
    subject = ""
    if tree is not None:
        try:
            subject = header(tree, "Subject")[:LABEL_CHARS]
            reader.read(tree)
        except RecursionError:
            tree = None
    if tree is None:
        reader = _Message(limits, False)
        reader._warn("nested too deep for its structure to be read")
        reader._add(_flat(data))
    for text, blocks in reader.out:
        if first_line is not None:
            blocks = tuple(Block(b.start, b.end, b.heading, first_line, None) for b in blocks)
        yield Piece(text, "message", ordinal, subject, blocks)
    if attachments:
        for number, (name, part) in enumerate(reader.later, 1):
            yield from _attached(name, part, limits, "body", number)
    yield Facts("message/rfc822", subject, None, 0, False, tuple(reader.warnings))


def _attached(
    name: str, part: email.message.Message, limits: Limits, kind: UnitKind, ordinal: int
) -> Iterator[Piece]:
    """The text of an attached file that a text reader can read; others are only named."""
    reader = _reader_for(name, part.get_content_maintype())
    if reader is None:
        return
    data = _payload(part)
    try:
        for item in reader.extract(io.BytesIO(data), FileHint(name, len(data)), limits):
            if isinstance(item, Piece):
                text = item.text if item.text.endswith("\n") else item.text + "\n"
                yield Piece(text, kind, ordinal, name, item.blocks)
    except Unreadable:
        return  # it is named in the message; that it holds no text is no error of the mail


def _reader_for(name: str, maintype: str) -> Extractor | None:
    from pensieve_mcp.corpus.extract.text_formats import text_extractors

    suffix = "." + name.rpartition(".")[2].lower() if "." in name else ""
    readers = text_extractors()
    if suffix in (".eml", ".mbox", ".mbx"):
        return None  # one level only
    if suffix in readers and suffix:
        return readers[suffix]
    return readers[""] if maintype == "text" else None


class Eml:
    name, version = "eml", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        too_large(hint, limits)
        data = file.read()
        if not data.strip():
            raise Unreadable("empty", "no text in it")
        if b"\0" in data[:4096]:
            raise Unreadable("binary", "holds NUL bytes")
        words = Wording()
        facts: Facts | None = None
        for item in message_pieces(data, limits):
            if isinstance(item, Piece):
                yield from words.let(item)
            else:
                facts = item
        words.check()
        if facts is not None:
            yield facts


class Mbox:
    """A mailbox: each message a unit with its subject; blocks carry the line where their message begins."""

    name, version = "mbox", 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        too_large(hint, limits)
        words = Wording()
        warnings: list[str] = []
        count = 0
        for number, line, data in messages_of(file):
            count = number
            for item in message_pieces(data, limits, ordinal=number, first_line=line, attachments=False):
                if isinstance(item, Piece):
                    yield from words.let(item)
                else:
                    warnings.extend(f"message {number}: {w}" for w in item.warnings if len(warnings) < 20)
        words.check()
        yield Facts("application/mbox", f"{count:,} messages", None, 0, False, tuple(warnings))


def messages_of(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """(ordinal, first line, bytes) of each message, read one at a time; `>From ` is unquoted."""
    gathered: list[bytes] = []
    size = number = 0
    start = line_number = 1
    after_blank = True
    while line := file.readline(1 << 20):
        if after_blank and line.startswith(b"From ") and _FROM.match(line):
            if any(x.strip() for x in gathered):
                number += 1
                yield number, start, b"".join(gathered)
            gathered, size, start = [], 0, line_number + 1
            after_blank = False
            line_number += 1
            continue
        after_blank = not line.strip()
        if size < MESSAGE_BYTES:
            gathered.append(line[1:] if line.startswith(b">From ") else line)
            size += len(line)
        line_number += line.endswith(b"\n")
    if any(x.strip() for x in gathered):
        yield number + 1, start, b"".join(gathered)

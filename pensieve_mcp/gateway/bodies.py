"""Compressed bodies: opened to be read and edited, closed again the same way when they were edited.

What cannot be opened here (Brotli, a bomb, damage) is passed on untouched, and said.
"""

from __future__ import annotations

import gzip
import importlib
import sys
import zlib
from typing import Any

MOST_BYTES = 64 * 2**20
"""Above what any provider takes (32 MB); a larger body is passed through without being read."""


class Sealed(Exception):
    """The body cannot be read here; the reason is the message."""


def _zstd() -> Any:
    """The standard library's from Python 3.14 on, before that the same from PyPI."""
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def opened(body: bytes, encoding: str) -> bytes:
    """The body without its compression. Raises Sealed."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding in ("gzip", "x-gzip", "deflate"):
        machine = zlib.decompressobj(47)  # gzip or zlib, by the header
        try:
            plain = machine.decompress(body, MOST_BYTES + 1)
        except zlib.error as error:
            raise Sealed(f"the body is damaged: {error}") from None
        if len(plain) > MOST_BYTES or not machine.eof or machine.unused_data:
            raise Sealed("the compressed body is too large, cut off or in several pieces")
        return plain
    if encoding == "zstd":
        zstd = _zstd()
        try:
            machine_ = zstd.ZstdDecompressor()
            plain = bytes(machine_.decompress(body, MOST_BYTES + 1))
        except zstd.ZstdError as error:
            raise Sealed(f"the body is damaged: {error}") from None
        if len(plain) > MOST_BYTES or not machine_.eof or machine_.unused_data:
            raise Sealed("the compressed body is too large, cut off or in several pieces")
        return plain
    raise Sealed(f"the body is compressed by {encoding[:40]!r}, which is not read here")


def closed(plain: bytes, encoding: str) -> bytes:
    """The edited body, compressed as the one that came."""
    encoding = encoding.strip().lower()
    if encoding in ("gzip", "x-gzip"):
        return gzip.compress(plain, 1, mtime=0)
    if encoding == "deflate":
        return zlib.compress(plain, 1)
    return bytes(_zstd().compress(plain)) if encoding == "zstd" else plain


class Opener:
    """Opens an answer while it passes by, to look at it; None once it cannot."""

    def __init__(self, encoding: str) -> None:
        encoding = encoding.strip().lower()
        self._plain = encoding in ("", "identity")
        self._machine: Any = None
        self._damage: type[Exception] = zlib.error
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._machine = zlib.decompressobj(47)
        elif encoding == "zstd":
            self._machine, self._damage = _zstd().ZstdDecompressor(), _zstd().ZstdError

    def feed(self, data: bytes) -> bytes:
        if self._plain:
            return data
        if self._machine is None:
            return b""
        try:
            return bytes(self._machine.decompress(data, MOST_BYTES))
        except (self._damage, EOFError):  # what follows the end of an answer is none of it
            self._machine = None
            return b""

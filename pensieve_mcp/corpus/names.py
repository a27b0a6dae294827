"""File names as people see them, and root names. The bytes stay the identity; what is shown is escaped.

A name may hold a newline, a right-to-left override or bytes that are no text. Shown as they are, such names
could break a result's lines or look like another file, so they are escaped with backslashes, reversibly.
"""

from __future__ import annotations

import ntpath
import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable
from pathlib import Path

from pensieve_mcp.corpus.types import Root

_JOINERS = frozenset("\u200c\u200d")  # needed by Persian, Indic scripts and emoji; harmless alone
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([nrt\\]))")
_BACK = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def _shown(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is no text
    if char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return char
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def show_name(name: str) -> str:
    """A name (surrogates for undecodable bytes) with control, bidi, tag and undecodable characters escaped."""
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(map(_shown, name))


def show_path(root: str, raw: bytes) -> str:
    """`root/relative/file` for the relative path in bytes; the root alone for an empty one."""
    return f"{root}/{show_name(os.fsdecode(raw))}" if raw else root


def read_path(shown: str) -> bytes:
    """The relative path in bytes behind the part of a shown path that follows its root."""

    def back(match: re.Match[str]) -> str:
        byte, short, long, letter = match.groups()
        if byte is not None:
            return chr(0xDC00 + int(byte, 16))
        if letter is not None:
            return _BACK[letter]
        code = int(short or long, 16)
        return chr(code) if code <= sys.maxunicode else match[0]

    text = _ESCAPE.sub(back, shown)
    # "surrogatepass" keeps what a Windows name may hold; on POSIX os.fsencode restores the bytes.
    return os.fsencode(text) if sys.platform != "win32" else text.encode("utf-8", "surrogatepass")


def _same(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def name_roots(paths: Iterable[str | Path], taken: Collection[str] = ()) -> tuple[Root, ...]:
    """Roots with names unique among themselves and `taken`: the base name, else `name-2`, `name-3` and so on.

    The same folder given twice becomes one root. Case and normal form do not make a name different. Paths are
    made absolute; a root that is itself a link is followed here, once, since the person named it.
    """
    used = {_same(name) for name in taken}
    seen: set[str] = set()
    roots: list[Root] = []
    for path in paths:
        # strict=False: a root on a disk that is not mounted keeps its name and is reported unreachable later
        folder = os.path.realpath(path)
        if folder in seen:
            continue
        seen.add(folder)
        drive = ntpath.splitdrive(folder)[0].strip(":\\/") if sys.platform == "win32" else ""
        base = show_name(Path(folder).name).replace("/", "-") or drive or "root"
        is_file = Path(folder).is_file()
        # a file keeps its suffix last, since readers go by it
        stem, suffix = (Path(base).stem, Path(base).suffix) if is_file else (base, "")
        name, number = base, 1
        while _same(name) in used:
            number += 1
            name = f"{stem}-{number}{suffix}"
        used.add(_same(name))
        roots.append(Root(name, folder, is_file=is_file))
    return tuple(roots)

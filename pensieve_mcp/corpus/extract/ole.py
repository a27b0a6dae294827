"""What an OLE container (.doc, .xls, .ppt, .msg, an encrypted .docx) holds, by the names in its directory.

Why own: an encrypted Office file must be told from an old one without the optional extra installed. Only the names
are read here; the content is left to `legacy`.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from pensieve_mcp.corpus.types import Unreadable

_END = 0xFFFFFFFA  # this and above are no sectors
_MOST_SECTORS = 4_096  # of the directory: at least 16,384 names

# First match wins. Without a reader: the statement.
_STREAMS = (
    ("EncryptedPackage", "encrypted"),
    ("DRMEncryptedDataSpace", "encrypted"),
    ("__properties_version1.0", "msg"),
    ("WordDocument", "doc"),
    ("PowerPoint Document", "ppt"),
    ("PP97_DUALSTORAGE", "ppt"),
    ("Workbook", "xls"),
    ("Book", "xls"),
)


def format_of(file: BinaryIO) -> str:
    """`doc`, `ppt`, `xls` (Office to 2003) or `msg`. Raises Unreadable for all else."""
    names = _names(file)
    for stream, what in _STREAMS:
        if stream in names:
            if what == "encrypted":
                raise Unreadable("encrypted", "an Office file protected by a password")
            return what
    known = {
        "VisioDocument": "Visio",
        "__nameid_version1.0": "Outlook template",
        "Quill": "Publisher",
        "SummaryInformation": "installer",
    }
    for stream, name in known.items():
        if stream in names:
            raise Unreadable(
                "unsupported", f"{name}: there is no reader for it; export it as PDF to index it"
            )
    if not names:
        raise Unreadable("corrupt", "an OLE container whose directory cannot be read")
    raise Unreadable(
        "unsupported", f"an OLE container of an unknown program ({', '.join(sorted(names)[:4])})"
    )


def _names(file: BinaryIO) -> set[str]:
    whole = file.seek(0, 2)
    file.seek(0)
    header = file.read(512)
    if len(header) < 512:
        return set()
    size = 1 << min(struct.unpack_from("<H", header, 30)[0], 16)
    if size < 512:
        return set()
    sector = struct.unpack_from("<I", header, 48)[0]
    fat = struct.unpack_from("<109I", header, 76)
    names: set[str] = set()
    seen: set[int] = set()
    while sector < _END and sector not in seen and len(seen) < _MOST_SECTORS:
        seen.add(sector)
        if (sector + 1) * size >= whole:
            break
        file.seek((sector + 1) * size)
        data = file.read(size)
        for at in range(0, len(data) - 127, 128):
            length = struct.unpack_from("<H", data, at + 64)[0]
            if 2 < length <= 64:
                names.add(data[at : at + length - 2].decode("utf-16-le", "replace").lstrip("\x05\x06\x01"))
        per_sector = size // 4
        if sector // per_sector >= len(fat) or fat[sector // per_sector] >= _END:
            break
        entry = (fat[sector // per_sector] + 1) * size + 4 * (sector % per_sector)
        if entry >= whole:
            break
        file.seek(entry)
        raw = file.read(4)
        if len(raw) < 4:
            break
        sector = struct.unpack("<I", raw)[0]
    return names

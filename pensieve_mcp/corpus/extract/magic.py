"""What a file is by its first bytes, where it is nothing we read.

A table, so that "we could not read this" is a plain statement with the format's name in it. Formats with a reader
are told apart in the registry; text, which has no magic, in the text extractors.
"""

from __future__ import annotations

from typing import BinaryIO

from pensieve_mcp.corpus.types import SkipReason

HEAD_BYTES = 4_096
# Formats that are zip packages with a reader or a name of their own.
OFFICE_SUFFIXES = frozenset((
    ".docx", ".docm", ".dotx", ".dotm", ".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".xlsx", ".xlsm", ".xltx",
    ".xltm", ".xlsb", ".odt", ".ott", ".ods", ".ots", ".odp", ".otp", ".epub",
))  # fmt: skip

PICTURE, SOUND, FILM, PROGRAM, FONT = "picture", "sound", "film", "program", "font"
ARCHIVE, DATABASE, DOCUMENT, DISK = "archive", "database", "document", "disk image"

# (offset, bytes, format, class). Longer and more telling ones first.
_SIGNATURES: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"SQLite format 3\x00", "SQLite", DATABASE),
    (0, b"\x89PNG\r\n\x1a\n", "PNG", PICTURE),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5", DATABASE),
    (0, b"7z\xbc\xaf\x27\x1c", "7z", ARCHIVE),
    (0, b"Rar!\x1a\x07", "RAR", ARCHIVE),
    (0, b"\xfd7zXZ\x00", "xz", ARCHIVE),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard", ARCHIVE),
    (0, b"\x04\x22\x4d\x18", "LZ4", ARCHIVE),
    (0, b"\x1f\x8b", "gzip", ARCHIVE),
    (0, b"\x1f\x9d", "compress", ARCHIVE),
    (0, b"BZh", "bzip2", ARCHIVE),
    (0, b"MSCF\x00\x00\x00\x00", "CAB", ARCHIVE),
    (0, b"!<arch>\n", "ar", ARCHIVE),
    (0, b"\xed\xab\xee\xdb", "RPM", ARCHIVE),
    (257, b"ustar", "tar", ARCHIVE),
    (0, b"\xff\xd8\xff", "JPEG", PICTURE),
    (0, b"GIF87a", "GIF", PICTURE),
    (0, b"GIF89a", "GIF", PICTURE),
    (0, b"II*\x00", "TIFF", PICTURE),
    (0, b"MM\x00*", "TIFF", PICTURE),
    (0, b"II+\x00", "BigTIFF", PICTURE),
    (0, b"\x00\x00\x01\x00", "icon", PICTURE),
    (0, b"\x00\x00\x00\x0cjP  \r\n", "JPEG 2000", PICTURE),
    (0, b"\xff\x0a", "JPEG XL", PICTURE),
    (0, b"8BPS\x00", "Photoshop", PICTURE),
    (0, b"BM", "BMP", PICTURE),
    (0, b"\xd7\xcd\xc6\x9a", "WMF", PICTURE),
    (40, b" EMF", "EMF", PICTURE),
    (0, b"AT&TFORM", "DjVu", DOCUMENT),
    (0, b"ITSF\x03\x00", "compiled HTML help (.chm)", DOCUMENT),
    (0, b"\xffWPC", "WordPerfect", DOCUMENT),
    (0, b"!BDN", "Outlook folder (.pst)", DOCUMENT),
    (0, b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d", "OneNote", DOCUMENT),
    (60, b"BOOKMOBI", "Mobipocket book", DOCUMENT),
    (60, b"TEXtREAd", "PalmDOC book", DOCUMENT),
    (0, b"PAR1", "Parquet", DATABASE),
    (0, b"ARROW1", "Arrow", DATABASE),
    (0, b"ORC", "ORC", DATABASE),
    (0, b"Obj\x01", "Avro", DATABASE),
    (4, b"Standard Jet DB", "Access", DATABASE),
    (4, b"Standard ACE DB", "Access", DATABASE),
    (0, b"\x93NUMPY", "NumPy array", DATABASE),
    (0, b"ID3", "MP3", SOUND),
    (0, b"fLaC", "FLAC", SOUND),
    (0, b"OggS", "Ogg", SOUND),
    (0, b"MThd", "MIDI", SOUND),
    (0, b"FORM", "AIFF", SOUND),
    (0, b"#!AMR", "AMR", SOUND),
    (0, b"\xff\xfb", "MP3", SOUND),
    (0, b"\xff\xf3", "MP3", SOUND),
    (0, b"\xff\xf1", "AAC", SOUND),
    (4, b"ftypM4A", "M4A", SOUND),
    (4, b"ftypheic", "HEIC", PICTURE),
    (4, b"ftypmif1", "HEIF", PICTURE),
    (4, b"ftypavif", "AVIF", PICTURE),
    (4, b"ftyp", "MP4", FILM),
    (4, b"moov", "QuickTime", FILM),
    (0, b"\x1aE\xdf\xa3", "Matroska or WebM", FILM),
    (0, b"\x00\x00\x01\xba", "MPEG", FILM),
    (0, b"\x00\x00\x01\xb3", "MPEG", FILM),
    (0, b"FLV\x01", "Flash video", FILM),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media", FILM),
    (0, b"\x7fELF", "ELF program", PROGRAM),
    (0, b"MZ", "Windows program", PROGRAM),
    (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O program", PROGRAM),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O program", PROGRAM),
    (0, b"\xce\xfa\xed\xfe", "Mach-O program", PROGRAM),
    (0, b"\xfe\xed\xfa", "Mach-O program", PROGRAM),
    (0, b"\x00asm", "WebAssembly", PROGRAM),
    (0, b"dex\n", "Android program", PROGRAM),
    (0, b"BC\xc0\xde", "LLVM bitcode", PROGRAM),
    (0, b"OTTO", "OpenType", FONT),
    (0, b"wOFF", "WOFF", FONT),
    (0, b"wOF2", "WOFF2", FONT),
    (0, b"ttcf", "TrueType collection", FONT),
    (0, b"\x00\x01\x00\x00\x00", "TrueType", FONT),
    (0, b"QFI\xfb", "QCOW", DISK),
    (0, b"KDMV", "VMDK", DISK),
)
_RIFF = {b"WEBP": ("WebP", PICTURE), b"WAVE": ("WAV", SOUND), b"AVI ": ("AVI", FILM)}

_REASONS: dict[str, SkipReason] = {ARCHIVE: "unsupported", DATABASE: "unsupported", DOCUMENT: "unsupported"}
_SAYINGS = {
    PICTURE: "pictures are not read",
    SOUND: "sound is not read",
    FILM: "films are not read",
    PROGRAM: "programs are not read",
    FONT: "fonts are not read",
    ARCHIVE: "archives are not read; unpack it to index what is inside",
    DATABASE: "there is no reader for it; export it as CSV or JSON to index it",
    DOCUMENT: "there is no reader for it; export it as PDF, HTML or text to index it",
    DISK: "disk images are not read",
}


# No text has these: C0 without tab, line ends, form feed and escape.
_CONTROLS = bytes((*range(9), *range(14, 27), *range(28, 32), 127))


def _controls(data: bytes) -> int:
    return len(data) - len(data.translate(None, _CONTROLS))


def _could_be_text(data: bytes) -> bool:
    return _controls(data) == 0


def _telling(magic: bytes) -> bool:
    """Whether a magic needs no second witness: long enough, and nothing a text in any encoding would begin with."""
    return len(magic) > 2 and (not _could_be_text(magic) or magic[0] >= 0x80)


_TABLE = tuple((*row, _telling(row[1])) for row in _SIGNATURES)


def recognise(head: bytes) -> tuple[SkipReason, str] | None:
    """Why a file with this beginning is not read, or None when no known magic fits.

    Magics made of letters alone may begin a text too; they count only where the head holds a NUL or other control.
    """
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _statement(*_RIFF[head[8:12]])
    texty = _could_be_text(head[:512])
    for offset, magic, name, sort, telling in _TABLE:
        if (telling or not texty) and head.startswith(magic, offset):
            return _statement(name, sort)
    return None


def _statement(name: str, sort: str) -> tuple[SkipReason, str]:
    article = "" if name.endswith((sort, ")")) else f" {sort}"
    return _REASONS.get(sort, "binary"), f"{name}{article}: {_SAYINGS[sort]}"


def looks_binary(head: bytes) -> bool:
    """Controls that no text has, outside the NUL pattern of UTF-16 and UTF-32."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return False
    if b"\x00" in head:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        half = max(len(head) // 2, 1)
        wide = max(even, odd) > 0.3 * half and min(even, odd) < 0.2 * half
        wider = 0.6 * len(head) < even + odd < 0.8 * len(head)
        return not (wide or wider)
    return _controls(head) > len(head) // 10


def head_of(file: BinaryIO, size: int = HEAD_BYTES) -> bytes:
    file.seek(0)
    return file.read(size)

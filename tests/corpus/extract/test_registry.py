"""Names lie: the bytes decide who reads a file, and what is not read is said plainly."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import get_args

import pytest

from pensieve_mcp.corpus.extract import magic, registry
from pensieve_mcp.corpus.types import FileHint, Limits, SkipReason, Unreadable

from . import hostile


def chosen(name: str, content: bytes, size: int | None = None) -> str:
    """The extractor's name, or `reason: detail`."""
    hint = FileHint(name, len(content) if size is None else size)
    try:
        return registry.choose(io.BytesIO(content), hint, Limits()).name
    except Unreadable as problem:
        assert problem.reason in get_args(SkipReason)
        return f"{problem.reason}: {problem.detail}"


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.pdf", b"%PDF-1.4\n", "pdf"),
        ("a.pdf", b"junk before\n%PDF-1.4\n", "pdf"),
        ("a", b"\xef\xbb\xbf%PDF-1.4\n", "pdf"),
        ("a.txt", b"{\\rtf1 x}", "rtf"),
        ("a.docx", hostile.docx(""), "docx"),
        ("a.docx", hostile.docx("", main="word/document2.xml"), "docx"),
        ("a.docx", hostile.xlsx(""), "xlsx"),
        ("a.zip", hostile.odf("text", ""), "odf"),
        ("a.epub", hostile.epub(["a"], {"a": ""}), "epub"),
        ("a.doc", hostile.ole("WordDocument"), "doc"),
        ("a.doc", hostile.ole("PowerPoint Document"), "ppt"),
        ("a", hostile.ole("Workbook"), "xls"),
        ("a", hostile.ole("__properties_version1.0"), "msg"),
    ],
)
def test_the_bytes_decide_who_reads(name: str, content: bytes, wanted: str) -> None:
    assert chosen(name, content) == wanted


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(20), "binary: PNG picture: pictures are not read"),
        ("a.txt", b"\xff\xd8\xff\xe0" + bytes(20), "binary: JPEG picture"),
        ("a.bmp", b"BM\x00\x10\x00\x00" + bytes(20), "binary: BMP picture"),
        ("a.webp", b"RIFF\x00\x10\x00\x00WEBPVP8 ", "binary: WebP picture"),
        ("a.wav", b"RIFF\x00\x10\x00\x00WAVEfmt ", "binary: WAV sound"),
        ("a.mp3", b"ID3\x03\x00\x00\x00" + bytes(20), "binary: MP3 sound"),
        ("a.mp4", b"\x00\x00\x00\x18ftypmp42" + bytes(20), "binary: MP4 film"),
        ("a.exe", b"MZ\x90\x00\x03" + bytes(60), "binary: Windows program"),
        ("a", b"\x7fELF\x02\x01\x01" + bytes(20), "binary: ELF program"),
        ("a.ttf", b"\x00\x01\x00\x00\x00\x10" + bytes(20), "binary: TrueType font"),
        ("a.db", b"SQLite format 3\x00" + bytes(20), "unsupported: SQLite database"),
        ("a.parquet", b"PAR1\x15\x00" + bytes(20), "unsupported: Parquet database"),
        ("a.tar.gz", b"\x1f\x8b\x08\x00" + bytes(20), "unsupported: gzip archive: archives are not read"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c" + bytes(20), "unsupported: 7z archive"),
        ("a.tar", bytes(257) + b"ustar\x0000" + bytes(20), "unsupported: tar archive"),
        ("a.zip", hostile.zipped({"a.txt": "x"}), "unsupported: zip archive"),
        ("a.pages", hostile.zipped({"Index/Document.iwa": "x"}), "unsupported: Apple Pages"),
        ("a.djvu", b"AT&TFORM\x00\x00\x01\x00DJVM", "unsupported: DjVu document"),
        ("a.vsd", hostile.ole("VisioDocument"), "unsupported: Visio"),
        ("a.docx", hostile.ole("EncryptedPackage"), "encrypted: an Office file"),
        ("a.docx", hostile.zipped({"a.txt": "x"}), "corrupt: a zip named .docx"),
        ("a.docx", b"PK\x03\x04" + bytes(50), "corrupt: a zip without its directory"),
        ("a.docx", bytes(range(1, 32)) * 20, "corrupt: named .docx"),
        ("a.dat", bytes(range(1, 32)) * 20, "binary: no text in it"),
        ("a.txt", b"", "empty: "),
    ],
)
def test_what_is_not_read_is_said_plainly(name: str, content: bytes, wanted: str) -> None:
    assert chosen(name, content).startswith(wanted)


@pytest.mark.parametrize(
    "text", ["BM is a prefix", "MZ was here", "ID3 tags, explained", "OTTO", "FORM follows", "PAR1 ends"]
)
def test_a_text_that_begins_like_a_magic_is_a_text(text: str) -> None:
    assert magic.recognise(text.encode()) is None
    assert not magic.looks_binary(text.encode())


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_wide_encodings_are_no_binaries(encoding: str) -> None:
    head = "The bees came back with the first willow.\n".encode(encoding)
    assert magic.recognise(head) is None
    assert not magic.looks_binary(head)


def test_files_over_the_limit_are_told_both_sizes() -> None:
    assert (
        chosen("a.pdf", b"%PDF-1.4\n", size=600 * 2**20)
        == "too_large: 629,145,600 bytes; the limit is 536,870,912"
    )
    assert (
        chosen("a.txt", b"text", size=300 * 2**20) == "too_large: 314,572,800 bytes; the limit is 268,435,456"
    )


def test_the_fingerprint_names_readers_and_libraries() -> None:
    fingerprint = registry.extractor_fingerprint()
    assert "pdf/1" in fingerprint
    assert "pypdfium2=" in fingerprint
    assert "office-oxide=" in fingerprint
    assert fingerprint == registry.extractor_fingerprint()


def test_no_engine_is_loaded_before_a_file_asks_for_it() -> None:
    script = (
        "import sys; from pensieve_mcp.corpus.extract import pool, registry, worker; "
        "print([m for m in ('pypdfium2', 'office_oxide', 'python_calamine', 'olefile', 'numpy', 'email') "
        "if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )

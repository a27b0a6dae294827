"""Every hostile file ends soon, within memory, with a listed reason or what could be read; and the pool reads on."""

from __future__ import annotations

import os
import random
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import get_args

import pytest

from pensieve_mcp.corpus.extract import sheets
from pensieve_mcp.corpus.extract.pool import ExtractionPool
from pensieve_mcp.corpus.types import Extracted, FileHint, Limits, SkipReason, Unreadable

from . import hostile
from .conftest import Reader

LIBRARY = Path(__file__).parents[2] / "library" / "files"
MEMORY_BYTES = 900_000_000  # so that a bomb is seen sooner than with the 1.5 GB of production

SPACES = b" " * 2**20


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with ExtractionPool(idle_timeout_seconds=15, base_timeout_seconds=25, memory_bytes=MEMORY_BYTES) as pool:
        yield Reader(pool, tmp_path_factory.mktemp("hostile"))


def told(outcome: Extracted | Unreadable) -> str:
    """The reason, or `ok`/`partial`; a reason that is not listed fails, a crash of the whole test would too."""
    if isinstance(outcome, Extracted):
        return outcome.status
    assert outcome.reason in get_args(SkipReason)
    assert outcome.detail
    return outcome.reason


def big_docx(megabytes: int, *, level: int = 6) -> bytes:
    """A document.xml of that many megabytes of spaces between two words, written without holding it."""
    out = BytesIO(hostile.docx(hostile.paragraph("x")))
    parts = {}
    with zipfile.ZipFile(out) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name != "word/document.xml"}
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        with archive.open("word/document.xml", "w") as stream:
            stream.write(b"<document><body><p><r><t>honey</t></r></p>")
            for _ in range(megabytes):
                stream.write(SPACES)
            stream.write(b"</body></document>")
    return out.getvalue()


def deep(levels: int) -> str:
    return hostile.paragraph("above") + "<w:x>" * levels + hostile.paragraph("below") + "</w:x>" * levels


CELLS = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
SPACED = '<office:text><text:p>first<text:s text:c="2000000000"/>last</text:p></office:text>'
REPEATED = (
    '<office:spreadsheet><table:table table:name="S"><table:table-row table:number-rows-repeated="1000000000">'
    '<table:table-cell table:number-columns-repeated="2000000000"><text:p>honey</text:p>'
    "</table:table-cell></table:table-row>"
    "<table:table-row><table:table-cell><text:p>last</text:p></table:table-cell></table:table-row></table:table></office:spreadsheet>"
)
NESTED_ARRAYS = b"[" * 20_000 + b"]" * 20_000
LYING = hostile.docx(hostile.paragraph("honey " * 1000))

FILES: dict[str, tuple[str, Callable[[], bytes], set[str]]] = {
    "a zip bomb told by its directory": ("a.docx", lambda: big_docx(300, level=1), {"bomb"}),
    "a zip bomb seen by its ratio": ("a.docx", lambda: big_docx(70), {"bomb"}),
    "too many entries": ("a.docx", lambda: hostile.zipped({f"p{n}": b"" for n in range(20_001)}), {"bomb"}),
    "a size that lies low": (
        "a.docx",
        lambda: hostile.with_lying_sizes(LYING, "word/document.xml", 100),
        {"corrupt", "partial"},
    ),
    "a size that lies high": (
        "a.docx",
        lambda: hostile.with_lying_sizes(LYING, "word/document.xml", 10**7),
        {"corrupt", "partial", "ok"},
    ),
    "a size that lies beyond all": (
        "a.docx",
        lambda: hostile.with_lying_sizes(LYING, "word/document.xml", 2**31),
        {"bomb"},
    ),
    "200,000 levels of XML": ("a.docx", lambda: hostile.docx(deep(200_000)), {"ok"}),
    "200,000 nested tables": (
        "a.docx",
        lambda: hostile.docx("<w:tbl><w:tr><w:tc>" * 200_000),
        {"corrupt", "no_text"},
    ),
    "200,000 nested paragraphs": (
        "a.docx",
        lambda: hostile.docx("<w:p>" * 200_000 + "</w:p>" * 200_000),
        {"no_text"},
    ),
    "a billion laughs": (
        "a.docx",
        lambda: hostile.docx(hostile.paragraph("&j;"), prolog=hostile.LAUGHS),
        {"bomb"},
    ),
    "two cells far apart": ("a.xlsx", lambda: hostile.xlsx(CELLS), {"ok"}),
    "a shared string used 100,000 times": (
        "a.xlsx",
        lambda: hostile.xlsx(
            "".join(f'<row r="{n}"><c t="s"><v>0</v></c></row>' for n in range(1, 100_001)),
            strings=f"<si><t>{'honey ' * 5_000}</t></si>",
        ),
        {"partial"},
    ),
    "two thousand million spaces": ("a.odt", lambda: hostile.odf("text", SPACED), {"ok"}),
    "repeated cells and rows": ("a.ods", lambda: hostile.odf("spreadsheet", REPEATED), {"ok"}),
    "20,000 nested arrays": (
        "a.pdf",
        lambda: hostile.pdf_with(b"", page=b"/Foo " + NESTED_ARRAYS),
        {"no_text", "corrupt", "crashed"},
    ),
    "nested arrays for a content stream": (
        "a.pdf",
        lambda: hostile.pdf_with(NESTED_ARRAYS),
        {"no_text", "corrupt", "crashed"},
    ),
    "a page tree that is its own child": (
        "a.pdf",
        lambda: hostile.pdf(
            b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 9999 >>"
        ),
        {"no_text", "corrupt", "crashed"},
    ),
    "a content stream of 300 MB": (
        "a.pdf",
        lambda: hostile.pdf_bomb(300),
        {"out_of_memory", "crashed", "timeout"},
    ),
    "a PDF header and noise": (
        "a.pdf",
        lambda: b"%PDF-1.7\n" + random.Random(1).randbytes(50_000),
        {"corrupt"},
    ),
    "noise named PDF": ("a.pdf", lambda: random.Random(2).randbytes(50_000), {"corrupt"}),
    "encrypted Office": ("a.docx", lambda: hostile.ole("EncryptionInfo", "EncryptedPackage"), {"encrypted"}),
    "an OLE header and noise": (
        "a.doc",
        lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + random.Random(3).randbytes(9_000),
        {"corrupt"},
    ),
    "an OLE container that is no document": (
        "a.doc",
        lambda: hostile.ole("WordDocument"),
        {"corrupt", "unsupported"},
    ),
    "a zip that is no document": ("a.docx", lambda: hostile.zipped({"hello.txt": b"hi"}), {"corrupt"}),
    "a document whose main part is missing": (
        "a.docx",
        lambda: hostile.zipped(
            {"_rels/.rels": hostile.relationships(("officeDocument", "word/nothing.xml"))}
        ),
        {"corrupt"},
    ),
    "a million open groups": ("a.rtf", lambda: b"{\\rtf1 honey " + b"{" * 1_000_000, {"corrupt"}),
    "binary data without an end": ("a.rtf", lambda: b"{\\rtf1 honey {\\pict\\bin2000000000 x}}", {"ok"}),
    "an endless backslash": ("a.rtf", lambda: b"{\\rtf1 honey \\", {"ok"}),
    "an empty file": ("a.docx", lambda: b"", {"empty"}),
    "a picture named as a document": ("a.docx", lambda: b"\x89PNG\r\n\x1a\n" + bytes(100), {"binary"}),
}


@pytest.mark.parametrize("case", FILES)
def test_a_hostile_file_costs_one_file(read: Reader, case: str) -> None:
    name, make, wanted = FILES[case]
    outcome = read(name, make())
    assert told(outcome) in wanted, outcome
    read.works()


def test_the_far_apart_cells_are_both_there(read: Reader) -> None:
    document = read("a.xlsx", hostile.xlsx(CELLS))
    assert isinstance(document, Extracted)
    assert [(document.text[b.start : b.end], b.cells) for b in document.blocks] == [
        ("1", "A1"),
        ("2", "XFD1048576"),
    ]


def test_counted_spaces_are_clamped(read: Reader) -> None:
    document = read("a.odt", hostile.odf("text", SPACED))
    assert isinstance(document, Extracted)
    assert len(document.text) < 200
    assert document.text.split() == ["first", "last"]


def test_repeats_stand_once_and_what_follows_keeps_its_row(read: Reader) -> None:
    document = read("a.ods", hostile.odf("spreadsheet", REPEATED))
    assert isinstance(document, Extracted)
    assert document.text == "honey\nlast\n"
    assert [block.cells for block in document.blocks] == ["A1", "A1000000001"]


def test_deep_text_is_read_where_it_stands(read: Reader) -> None:
    document = read("a.docx", hostile.docx(deep(200_000)))
    assert isinstance(document, Extracted)
    assert document.text == "above\nbelow\n"


@pytest.mark.parametrize("entity", ["&secret;", "%secret;"])
def test_an_external_entity_is_never_fetched(read: Reader, tmp_path: Path, entity: str) -> None:
    (tmp_path / "secret.txt").write_text(hostile.CANARY)
    prolog = hostile.stealing(str(tmp_path / "secret.txt"))
    outcome = read("a.docx", hostile.docx(hostile.paragraph(entity), prolog=prolog))
    assert isinstance(outcome, Unreadable)
    assert outcome.reason == "bomb"
    assert hostile.CANARY not in str(outcome)
    outside = hostile.docx(
        hostile.paragraph("honey"),
        extra={
            "word/_rels/document.xml.rels": hostile.relationships(
                ("footnotes", str(tmp_path / "secret.txt")), ("header", "../../../../etc/passwd")
            )
        },
    )
    document = read("b.docx", outside)
    assert isinstance(document, Extracted)
    assert document.text == "honey\n"


def test_shared_strings_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "_STRINGS_BYTES", 1_000_000)
    content = hostile.xlsx("", strings="".join(f"<si><t>{n}</t></si>" for n in range(50_000)))
    with pytest.raises(Unreadable) as caught:
        list(sheets.SheetsExtractor().extract(BytesIO(content), FileHint("a.xlsx", len(content)), Limits()))
    assert caught.value.reason == "bomb"


def test_a_spine_that_repeats_a_chapter_reads_it_once(read: Reader) -> None:
    document = read(
        "a.epub",
        hostile.epub(["one"] * 20_000 + ["two"], {"one": "<h1>One</h1><p>honey</p>", "two": "<p>wax</p>"}),
    )
    assert isinstance(document, Extracted), document
    assert document.text.count("honey") == 1
    assert [(unit.kind, unit.ordinal) for unit in document.units] == [("chapter", 1), ("chapter", 2)]


def test_a_book_under_drm_is_encrypted_and_one_with_obfuscated_fonts_is_not(read: Reader) -> None:
    def encryption(algorithm: str, part: str) -> dict[str, str]:
        return {
            "META-INF/encryption.xml": f'<encryption><EncryptedData><EncryptionMethod Algorithm="{algorithm}"/>'
            f'<CipherData><CipherReference URI="{part}"/></CipherData></EncryptedData></encryption>'
        }

    drm = hostile.epub(
        ["one"],
        {"one": "<p>x</p>"},
        extra=encryption("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "OPS/one.xhtml"),
    )
    assert told(read("a.epub", drm)) == "encrypted"
    font = hostile.epub(
        ["one"], {"one": "<p>x</p>"}, extra=encryption("http://www.idpf.org/2008/embedding", "OPS/font.otf")
    )
    assert told(read("a.epub", font)) == "ok"


RICH = sorted(
    path
    for path in LIBRARY.rglob("*.*")
    if path.parent.name
    in ("pdf", "docx", "pptx", "xlsx", "odt", "ods", "odp", "epub", "rtf", "doc", "xls", "ppt", "msg", "xlsb")
)


@pytest.mark.parametrize("sort", sorted({path.parent.name for path in RICH}))
def test_truncated_and_damaged_samples_end_with_a_reason_or_some_text(read: Reader, sort: str) -> None:
    dice = random.Random(sort)
    for path in [path for path in RICH if path.parent.name == sort][:4]:
        whole = path.read_bytes()
        for share in (0.1, 0.5, 0.9, 0.99):
            told(read(path.name, whole[: int(len(whole) * share)]))
        for _ in range(6):
            damaged = bytearray(whole)
            for _ in range(dice.randrange(1, 40)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            told(read(path.name, bytes(damaged)))
    read.works()


def test_a_wrong_suffix_does_not_hide_what_a_file_is(read: Reader) -> None:
    word = (LIBRARY / "docx" / "testWORD.docx").read_bytes()
    paper = (LIBRARY / "pdf" / "dmca.pdf").read_bytes()
    for name in ("a.pdf", "a.txt", "a.xlsx", "a", "a.zip"):
        outcome = read(name, word)
        assert isinstance(outcome, Extracted)
        assert outcome.extractor.startswith("docx/")
    for name in ("a.docx", "a.txt", "a"):
        outcome = read(name, paper)
        assert isinstance(outcome, Extracted)
        assert outcome.extractor.startswith("pdf/")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
def test_no_hostile_file_left_a_worker_behind(read: Reader) -> None:
    read.works()
    assert len(read.pool.worker_pids()) == 1

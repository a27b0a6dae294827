"""Hostile files, made by code: each a small thing that asks for much."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

CANARY = "canary-outside-the-document"

_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def zipped(parts: Mapping[str, bytes | str], *, level: int = 6) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def relationships(*relations: tuple[str, str]) -> str:
    rows = "".join(
        f'<Relationship Id="r{n}" Type="{_REL}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(relations, 1)
    )
    return f'<Relationships xmlns="{_RELS}">{rows}</Relationships>'


def content_types(part: str, kind: str) -> str:
    return (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Override PartName="/{part}" '
        f'ContentType="application/vnd.openxmlformats-officedocument.{kind}.main+xml"/></Types>'
    )


def docx(
    body: str | bytes,
    *,
    main: str = "word/document.xml",
    prolog: str = "",
    extra: Mapping[str, bytes | str] | None = None,
) -> bytes:
    document = (
        body
        if isinstance(body, bytes)
        else f'{prolog}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    )
    return zipped(
        {
            "[Content_Types].xml": content_types(main, "wordprocessingml.document"),
            "_rels/.rels": relationships(("officeDocument", main)),
            main: document,
            **(extra or {}),
        }
    )


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(
    rows: str, *, strings: str | None = None, styles: str | None = None, date1904: bool = False
) -> bytes:
    parts: dict[str, bytes | str] = {
        "[Content_Types].xml": content_types("xl/workbook.xml", "spreadsheetml.sheet"),
        "_rels/.rels": relationships(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook xmlns="{_SHEET}" xmlns:r="{_REL}"><workbookPr date1904="{int(date1904)}"/>'
        '<sheets><sheet name="Bees" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relationships(
            ("worksheet", "worksheets/sheet1.xml"),
            ("sharedStrings", "sharedStrings.xml"),
            ("styles", "styles.xml"),
        ),
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEET}"><sheetData>{rows}</sheetData></worksheet>',
        "xl/styles.xml": styles or f'<styleSheet xmlns="{_SHEET}"/>',
    }
    if strings is not None:
        parts["xl/sharedStrings.xml"] = f'<sst xmlns="{_SHEET}">{strings}</sst>'
    return zipped(parts)


def odf(kind: str, body: str) -> bytes:
    names = ("office", "text", "table", "draw", "presentation")
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in names)
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {spaces}><office:body>{body}"
            "</office:body></office:document-content>",
        }
    )


def epub(spine: list[str], chapters: Mapping[str, str], *, extra: Mapping[str, str] | None = None) -> bytes:
    items = "".join(
        f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>' for name in chapters
    )
    refs = "".join(f'<itemref idref="{name}"/>' for name in spine)
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": "<container><rootfiles>"
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
            "OPS/book.opf": "<package><metadata><title>The Book of Bees</title></metadata>"
            f"<manifest>{items}</manifest><spine>{refs}</spine></package>",
            **{
                f"OPS/{name}.xhtml": f"<html><body>{content}</body></html>"
                for name, content in chapters.items()
            },
            **(extra or {}),
        }
    )


def pdf(*objects: bytes) -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


def pdf_with(
    stream: bytes, *, page: bytes = b"", packed: bool = True, extra: tuple[bytes, ...] = ()
) -> bytes:
    """One page with this content stream. `page` is added to the page's dictionary."""
    data = zlib.compress(stream, 9) if packed else stream
    filters = b"/Filter /FlateDecode " if packed else b""
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> "
        + page
        + b" >>",
        b"<< %s/Length %d >>\nstream\n%s\nendstream" % (filters, len(data), data),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *extra,
    )


def pdf_bomb(megabytes: int) -> bytes:
    """A content stream that inflates to so much, compressed in pieces."""
    packer = zlib.compressobj(9)
    block = b"BT /F 9 Tf (honey) Tj ET\n" * 40_000
    data = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(data), data),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )


def ole(*streams: str) -> bytes:
    """An OLE container whose directory holds these (empty) streams."""
    end, free = 0xFFFFFFFE, 0xFFFFFFFF
    header = bytearray(512)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<HHHHH", header, 24, 0x3E, 3, 0xFFFE, 9, 6)
    struct.pack_into("<IIIIIIII", header, 44, 1, 1, 0, 4096, end, 0, end, 0)
    struct.pack_into("<109I", header, 76, 0, *[free] * 108)
    table = struct.pack("<128I", 0xFFFFFFFD, end, *[free] * 126)
    directory = bytearray()
    for kind, name in ((5, "Root Entry"), *((2, name) for name in streams)):
        entry = bytearray(128)
        raw = name.encode("utf-16-le") + b"\x00\x00"
        entry[: len(raw)] = raw
        struct.pack_into("<HBB", entry, 64, len(raw), kind, 1)
        struct.pack_into("<III", entry, 68, free, free, free)
        directory += entry
    return bytes(header + table + directory.ljust(512, b"\x00"))


def with_lying_sizes(archive: bytes, name: str, size: int) -> bytes:
    """The archive with another inflated size told for one part, in both of its headers."""
    out = bytearray(archive)
    for signature, sizes, names in ((b"PK\x03\x04", 22, 30), (b"PK\x01\x02", 24, 46)):
        at = out.find(signature)
        while at >= 0:
            if out[at + names : at + names + len(name)] == name.encode():
                struct.pack_into("<I", out, at + sizes, size)
            at = out.find(signature, at + 4)
    return bytes(out)


LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + "]>"
)


def stealing(path: str) -> str:
    return f'<!DOCTYPE d [<!ENTITY secret SYSTEM "file://{path}">]>'

# ruff: noqa: E501  # tables of invented entries read better on one line each
"""Writes the files of the sample library that are not written by hand: log, accounts, PDF and DOCX.

The same bytes come out on every machine: random choices have a fixed seed, archives a fixed date. Run it after a change
of the texts in `tools/sample_texts/` and commit what it writes. The other files of the library are written by hand.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
import random
import re
import textwrap
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parent / "pensieve_mcp" / "sample" / "library"
TEXTS = HERE / "sample_texts"
YEAR = 1911

EVENTS = {
    (1, 16): "Miss Vasko, the engineer, landed at slack water with two chests of instruments.",
    (1, 22): "Gale. The lantern moved so that the tea did. Miss Vasko delighted.",
    (1, 25): "The assistant beat on a rail for the engineer, south and north, while she sat in the boat and listened.",
    (1, 28): "Miss Vasko left with the bread boat. Glass tell-tale set over the crack, to be read on the first of each month.",
    (3, 1): "Tell-tale whole.",
    (4, 1): "Tell-tale whole.",
    (4, 19): "Marsh the smith put an iron hoop on the bell. It now has two notes.",
    (5, 1): "Tell-tale whole.",
    (5, 3): "Wrote to the Board about the bell, as mildly as I could.",
    (6, 1): "Tell-tale broken across. Set another.",
    (7, 6): "Josefa counted seven young eiders under the ladder, and let nobody use it.",
    (8, 3): "Heard from the bread boat that Marsh's first pour failed yesterday, the mould being damp. No one hurt.",
    (8, 30): "A great smoke over Brack Harbour all yesterday. Marsh has poured again, and this one is whole.",
    (9, 21): "Two riggers landed to lay the plate on the north gallery. They argue.",
    (9, 25): "The old bell taken down from the south gallery at noon. It went quietly.",
    (9, 27): "The new bell came over in the Constance with eight men and was hung on the north gallery before dark.",
    (10, 3): "Fog from nine in the evening. Rang the new bell for seven hours, until four. The ferry answered from the lane.",
    (10, 4): "All slept. The assistant says that he will never hear the old one again, and is glad.",
    (10, 17): "A fall of small birds on every ledge. Josefa has them in her sleeves.",
    (11, 2): "Sixty-five years since the Patience. Rang eleven strokes at noon.",
    (11, 20): "Pilot boat of the ferry company overturned in the channel at dusk; all four taken out by our boat.",
    (12, 24): "Landed: a goose, a cake, and a letter from the chairman. The goose was from Mrs. Carrick.",
    (12, 31): "The year ends with the glass rising. Oil in store for fifty-one nights.",
}  # fmt: skip

WINDS = ("N", "NE", "E", "SE", "S", "SW", "SW", "W", "W", "NW")
FORCES = ("calm", "light", "light", "fresh", "fresh", "strong", "gale")
SIGHT = ("clear", "clear", "clear", "hazy", "rain", "thick at times")
SMALL = (
    "Wicks trimmed at midnight.", "Cleaned the lantern panes, salt on the weather side.", "Bread landed.",
    "No landing.", "Wound the clock.", "Three smacks through the channel on the ebb.", "Painted the rail.",
    "A steamer far out, bound west.", "The assistant unwell, stood both watches.", "Water butt full.",
    "Mended the davit.", "Ferry passed on time.", "Ferry late by an hour.", "Pump leathers renewed.",
    "Herring in the channel, many gannets.", "Nothing to note.", "Mail landed with the bread.",
)  # fmt: skip


def dark_hours(day: int) -> float:
    declination = -23.44 * math.cos(math.radians(360 / 365 * (day + 10)))
    return (
        24
        - 2
        * math.degrees(math.acos(-math.tan(math.radians(57.2)) * math.tan(math.radians(declination))))
        / 15
    )


def keepers_log() -> str:
    """One line a day; the head of the page is line 0, so that line n is day n."""
    chance = random.Random(1911)
    lines = ["LOG OF THE LIGHT ON HALLAN ROCK FOR THE YEAR 1911, kept by Eskil Lind, head keeper"]
    day = datetime.date(YEAR, 1, 1)
    while day.year == YEAR:
        number = day.timetuple().tm_yday
        pints = dark_hours(number) * 1.35 * chance.uniform(0.94, 1.06)
        event = EVENTS.get((day.month, day.day))
        words = [event] if event else chance.sample(SMALL, k=chance.choice((1, 1, 2)))
        wind = chance.choice(WINDS)
        force = "gale" if (day.month, day.day) == (1, 22) else chance.choice(FORCES)
        lines.append(
            f"{day.day} {day:%B}. Wind {wind}, {force}; {chance.choice(SIGHT)}. "
            f"Oil {pints:.1f} pints. {' '.join(words)}"
        )
        day += datetime.timedelta(days=1)
    return "\n".join(lines) + "\n"


def harbour_accounts() -> str:
    """Money of the harbour office; amounts in crowns."""
    chance = random.Random(1912)
    fixed = [
        ((1, 1), "Ferry company", "dues, first quarter", 35.0, 0.0),
        ((2, 15), "I. Vasko", "survey of the rock, by order of the Light Board", 0.0, 35.0),
        ((4, 1), "Ferry company", "dues, second quarter", 35.0, 0.0),
        ((4, 20), "L. Marsh", "iron hoop for the fog bell", 0.0, 8.5),
        ((6, 19), "House of Carrick", "deposit paid out in coin, to the lady herself, who would not say for what", 0.0, 150.0),
        ((7, 1), "Ferry company", "dues, third quarter", 35.0, 0.0),
        ((10, 1), "Ferry company", "dues, fourth quarter", 35.0, 0.0),
        ((12, 20), "Messrs. Dahl", "lamp oil, fourth quarter", 0.0, 62.0),
    ]  # fmt: skip
    usual = (
        ("Smack Two Sisters", "berth", 0.8, 0), ("Smack Ida", "berth", 0.8, 0), ("Salt merchants", "quay money on salt", 4.2, 0),
        ("Brig Advance", "harbour dues", 2.5, 0), ("P. Ask", "watchman's wages", 0, 3.2), ("Chandler", "rope and tar", 0, 1.7),
        ("Quay wall", "stone and day labour", 0, 6.4), ("Post office", "mail carried", 5.0, 0), ("Fish market", "stall money", 1.6, 0),
        ("Schooner Elbe", "harbour dues", 3.1, 0), ("Widow Harl", "rent of the net loft", 1.1, 0), ("Lamp on the quay", "oil", 0, 0.6),
    )  # fmt: skip
    rows = [(datetime.date(YEAR, *date), *rest) for date, *rest in fixed]
    for _ in range(150):
        day = datetime.date(YEAR, 1, 1) + datetime.timedelta(days=chance.randrange(365))
        who, what, received, paid = chance.choice(usual)
        factor = chance.uniform(0.8, 1.4)
        rows.append((day, who, what, round(received * factor, 2), round(paid * factor, 2)))
    rows.sort(key=lambda row: (row[0], row[1], row[2]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["date", "name", "for what", "received (crowns)", "paid (crowns)"])
    for day, who, what, received, paid in rows:
        writer.writerow(
            [day.isoformat(), who, what, f"{received:.2f}" if received else "", f"{paid:.2f}" if paid else ""]
        )
    return out.getvalue()


def survey_pdf(text: str) -> bytes:
    """A plain PDF 1.4: one font, one content stream a page, no compression, so that anybody can read it in an editor."""
    objects: list[bytes] = []

    def add(body: bytes) -> int:
        objects.append(body)
        return len(objects)

    catalog, pages = add(b""), add(b"")
    font = add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    kids = []
    for page in text.split("---PAGE---"):
        lines: list[str] = []
        for paragraph in page.strip().split("\n\n"):
            lines += [*textwrap.wrap(paragraph, 88), ""]
        shown = []
        for line in lines:
            safe = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
            shown.append(f"({safe}) Tj T*")
        stream = ("BT /F1 11 Tf 15 TL 60 780 Td\n" + "\n".join(shown) + "\nET").encode("cp1252")
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(
            add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
                b"/Resources << /Font << /F1 %d 0 R >> >> >>" % (pages, content, font)
            )
        )
    objects[catalog - 1] = b"<< /Type /Catalog /Pages %d 0 R >>" % pages
    objects[pages - 1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (
        len(kids),
        b" ".join(b"%d 0 R" % k for k in kids),
    )
    info = add(b"<< /Title (Report on the foundations of the light on Hallan Rock) >>")
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1, catalog, info, table,
    )  # fmt: skip
    return bytes(out)


def agreement_docx(text: str) -> bytes:
    """The least that word processors open: headings by style, paragraphs, nothing else."""
    paragraphs = []
    for block in text.strip().split("\n\n"):
        match = re.match(r"(#+) ", block)
        style = f'<w:pPr><w:pStyle w:val="Heading{len(match[1])}"/></w:pPr>' if match else ""
        words = escape(block[match.end() :] if match else block)
        paragraphs.append(f'<w:p>{style}<w:r><w:t xml:space="preserve">{words}</w:t></w:r></w:p>')
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/>'
        f'<Override PartName="/word/styles.xml" ContentType="{kind}.styles+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/styles" Target="styles.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{"".join(paragraphs)}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{word}">'
        + "".join(
            f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/>'
            f'<w:pPr><w:outlineLvl w:val="{n - 1}"/></w:pPr><w:rPr><w:b/></w:rPr></w:style>'
            for n in (1, 2)
        )
        + "</w:styles>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:  # stored: the same bytes with every zlib
        for name, body in parts.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            archive.writestr(entry, head + body)
    return out.getvalue()


def sample_files() -> dict[str, bytes]:
    """What this script writes, by name in the library."""
    return {
        "keepers-log-1911.txt": keepers_log().encode(),
        "harbour-accounts-1911.csv": harbour_accounts().encode(),
        "survey-of-the-rock.pdf": survey_pdf((TEXTS / "survey.txt").read_text(encoding="utf-8")),
        "ferry-agreement.docx": agreement_docx((TEXTS / "agreement.txt").read_text(encoding="utf-8")),
    }


def main() -> None:
    for name, content in sample_files().items():
        (LIBRARY / name).write_bytes(content)


if __name__ == "__main__":
    main()

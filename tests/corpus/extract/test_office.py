"""What Office files hide: text boxes, notes, dates, names with the wrong slash. Our decision 0002."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.corpus.extract import registry, sheets, tables
from pensieve_mcp.corpus.extract.compose import compose
from pensieve_mcp.corpus.types import Extracted, Facts, FileHint, Limits, Piece

from . import hostile


def extracted(name: str, content: bytes, limits: Limits | None = None) -> Extracted:
    """Read in this process, which these well-made files allow."""
    limits = limits or Limits()
    file, hint = io.BytesIO(content), FileHint(name, len(content))
    extractor = registry.choose(file, hint, limits)
    file.seek(0)
    items = list(extractor.extract(file, hint, limits))
    facts = [item for item in items if isinstance(item, Facts)][-1]
    return compose(
        [item for item in items if isinstance(item, Piece)], facts, registry.label(extractor), limits
    )


def blocks(document: Extracted) -> list[tuple[str, str | None]]:
    return [(document.text[b.start : b.end], b.cells) for b in document.blocks]


def test_a_text_box_its_fallback_and_moved_text_are_read_once() -> None:
    body = (
        "<w:p><w:r><w:t>before </w:t></w:r><w:r><mc:AlternateContent xmlns:mc='m'><mc:Choice>"
        f"<w:txbxContent>{hostile.paragraph('in the box')}</w:txbxContent></mc:Choice>"
        f"<mc:Fallback><w:txbxContent>{hostile.paragraph('in the box')}</w:txbxContent></mc:Fallback>"
        "</mc:AlternateContent></w:r><w:r><w:t>after</w:t></w:r></w:p>"
        "<w:moveFrom><w:p><w:r><w:t>moved</w:t></w:r></w:p></w:moveFrom>"
        "<w:moveTo><w:p><w:r><w:t>moved</w:t></w:r></w:p></w:moveTo>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"
    )
    assert extracted("a.docx", hostile.docx(body)).text == "in the box\nbefore after\nmoved\nnew\n"


def test_notes_comments_and_headers_are_units_of_their_own() -> None:
    relations = hostile.relationships(
        ("footnotes", "footnotes.xml"),
        ("comments", "comments.xml"),
        ("header", "header1.xml"),
        ("header", "header2.xml"),
    )
    document = extracted(
        "a.docx",
        hostile.docx(
            hostile.paragraph("body"),
            extra={
                "word/_rels/document.xml.rels": relations,
                "word/footnotes.xml": "<w:footnotes xmlns:w='w'><w:footnote>"
                f"{hostile.paragraph('a note')}</w:footnote></w:footnotes>",
                "word/comments.xml": "<w:comments xmlns:w='w'><w:comment w:author='Ada'>"
                f"{hostile.paragraph('why?')}</w:comment></w:comments>",
                "word/header1.xml": f"<w:hdr xmlns:w='w'>{hostile.paragraph('same')}</w:hdr>",
                "word/header2.xml": f"<w:hdr xmlns:w='w'>{hostile.paragraph('same')}</w:hdr>",
            },
        ),
    )
    said = [(unit.kind, unit.label, document.text[unit.start : unit.end]) for unit in document.units]
    assert said == [
        ("body", "", "body\n"),
        ("header", "header", "same\n"),
        ("footnote", "footnotes", "a note\n"),
        ("comment", "comments", "Ada: why?\n"),
    ]


def test_part_names_are_found_whatever_their_case_and_slash() -> None:
    content = hostile.zipped(
        {
            "_rels\\.rels": hostile.relationships(("officeDocument", "Word\\Document2.xml")),
            "[content_types].xml": hostile.content_types("word/document2.xml", "wordprocessingml.document"),
            "WORD\\document2.XML": f"<w:document xmlns:w='w'>{hostile.paragraph('honey')}</w:document>",
        }
    )
    assert extracted("a.docx", content).text == "honey\n"


def test_headings_follow_styles_in_any_language_and_their_ancestors() -> None:
    styles = (
        "<w:styles xmlns:w='w'>"
        "<w:style w:type='paragraph' w:styleId='berschrift1'><w:name w:val='heading 1'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='mine'><w:name w:val='Mine'/><w:basedOn w:val='berschrift1'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='lvl'><w:name w:val='x'/>"
        "<w:pPr><w:outlineLvl w:val='1'/></w:pPr></w:style>"
        "</w:styles>"
    )

    def styled(style: str, text: str) -> str:
        return f"<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"

    body = (
        styled("berschrift1", "One")
        + hostile.paragraph("a")
        + styled("lvl", "Two")
        + hostile.paragraph("b")
        + styled("mine", "Three")
    )
    document = extracted(
        "a.docx",
        hostile.docx(
            body,
            extra={
                "word/styles.xml": styles,
                "word/_rels/document.xml.rels": hostile.relationships(("styles", "styles.xml")),
            },
        ),
    )
    assert [b.heading for b in document.blocks] == [
        ("One",),
        ("One",),
        ("One", "Two"),
        ("One", "Two"),
        ("Three",),
    ]


def test_table_rows_are_lines_and_layout_tables_paragraphs() -> None:
    def table(*cells: str) -> str:
        return "<w:tbl><w:tr>" + "".join(f"<w:tc>{cell}</w:tc>" for cell in cells) + "</w:tr></w:tbl>"

    nested = table(hostile.paragraph("inner a"), hostile.paragraph("inner b"))
    document = extracted(
        "a.docx",
        hostile.docx(
            table(hostile.paragraph("a"), hostile.paragraph("b") + hostile.paragraph("c"), nested)
            + table(hostile.paragraph("long " * 400), hostile.paragraph("short"))
        ),
    )
    assert document.text == f"a\tb c\tinner a inner b\n{'long ' * 400}\nshort\n"


DATES = (
    '<styleSheet><numFmts><numFmt numFmtId="164" formatCode="dd/mm/yyyy"/>'
    '<numFmt numFmtId="165" formatCode="0.0&quot;d&quot;"/>'
    '</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/>'
    '<xf numFmtId="46"/></cellXfs></styleSheet>'
)


@pytest.mark.parametrize(
    ("style", "value", "wanted"),
    [
        (0, "44197", "44197"),
        (1, "44197", "2021-01-01"),
        (2, "44197.5", "2021-01-01 12:00:00"),
        (3, "44197", "44197"),
        (2, "0.25", "06:00:00"),
        (1, "1", "1900-01-01"),
        (1, "61", "1900-03-01"),
        (1, "-5", "-5"),
        (1, "99999999", "99999999"),
        (0, "0.30000000000000004", "0.3"),
        (0, "1E-3", "0.001"),
        (0, "12345678901234567890", "1.23456789012346e+19"),
    ],
)
def test_numbers_are_dates_only_by_their_format(style: int, value: str, wanted: str) -> None:
    row = f'<row r="1"><c r="A1" s="{style}"><v>{value}</v></c></row>'
    assert extracted("a.xlsx", hostile.xlsx(row, styles=DATES)).text == f"{wanted}\n"


def test_the_1904_system_counts_from_1904() -> None:
    row = '<row r="1"><c r="A1" s="1"><v>42735</v></c></row>'
    assert extracted("a.xlsx", hostile.xlsx(row, styles=DATES, date1904=True)).text == "2021-01-01\n"


@given(st.dates(datetime.date(1900, 3, 1), datetime.date(9999, 12, 31)))
def test_every_date_of_excel_comes_back(day: datetime.date) -> None:
    serial = (day - datetime.date(1899, 12, 30)).days
    writer = tables.SheetWriter(1, "S", Limits())
    rows = sheets._Rows([], {"1"}, datetime.datetime(1899, 12, 30), writer)
    rows.start("row", {"r": "1"})
    rows.start("c", {"r": "A1", "s": "1"})
    rows.start("v", {})
    rows.data(str(serial))
    for name in ("v", "c", "row"):
        rows.end(name)
    (piece,) = writer.rest()
    assert piece.text == f"{day.isoformat()}\n"


@pytest.mark.parametrize(
    ("code", "is_date"),
    [
        ("General", False),
        ("0.00", False),
        ("yyyy-mm-dd", True),
        ("[h]:mm", True),
        ('0 "days"', False),
        ("[Red]0", False),
        ("\\d0", False),
    ],
)
def test_number_formats_that_show_dates_are_known(code: str, is_date: bool) -> None:
    assert sheets.is_date_format(code) == is_date


def test_cells_of_every_type_are_read() -> None:
    row = (
        '<row r="3"><c r="B3" t="s"><v>0</v></c><c r="C3" t="inlineStr"><is><t>inline</t></is></c>'
        '<c r="D3" t="b"><v>1</v></c>'
        '<c r="E3" t="e"><v>#DIV/0!</v></c><c r="F3" t="str"><f>A1&amp;"x"</f><v>formula</v></c>'
        '<c r="G3" t="s"><v>9</v></c><c r="H3"/></row>'
    )
    strings = "<si><r><t>sha</t></r><r><t>red</t></r><rPh><t>reading</t></rPh></si>"
    document = extracted("a.xlsx", hostile.xlsx(row, strings=strings))
    assert blocks(document) == [("shared\tinline\tTRUE\t#DIV/0!\tformula", "B3:F3")]
    assert document.units[0].label == "Bees"


@given(
    st.lists(
        st.tuples(
            st.integers(1, 60),
            st.lists(st.tuples(st.integers(1, 80), st.text("ab 蜂", min_size=1, max_size=300)), max_size=4),
        )
    )
)
def test_ranges_hold_their_cells_and_rise(rows: Sequence[tuple[int, Sequence[tuple[int, str]]]]) -> None:
    writer = tables.SheetWriter(1, "S", Limits())
    ascending = {
        number: sorted(dict(cells).items()) for number, cells in sorted(rows, key=lambda row: row[0])
    }
    for number, cells in ascending.items():
        writer.row(number, cells)
    document = compose(list(writer.rest()), Facts("x"), "x/1", Limits())
    wanted = ["\t".join(text.strip() for _, text in cells if text.strip()) for cells in ascending.values()]
    assert document.text.splitlines() == [line for line in wanted if line]
    assert all(b.cells and len(document.text[b.start : b.end]) <= 1_500 for b in document.blocks)
    numbers = [int("".join(c for c in (b.cells or "").split(":")[0] if c.isdigit())) for b in document.blocks]
    assert numbers == sorted(set(numbers))


@given(st.integers(1, 16_384))
def test_column_letters_and_numbers_are_inverse(number: int) -> None:
    assert tables.column_number(tables.column_letters(number) + "7") == number


def test_limits_of_rows_and_cells_are_told() -> None:
    rows = "".join(f'<row r="{n}"><c><v>{n}</v></c><c><v>2</v></c><c><v>3</v></c></row>' for n in range(1, 9))
    document = extracted("a.xlsx", hostile.xlsx(rows), Limits(table_rows=5, row_cells=2))
    assert document.text == "1\t2\n2\t2\n3\t2\n4\t2\n5\t2\n"
    assert document.facts.warnings == (
        "Bees: only the first 5 rows were read",
        "Bees: only the first 2 cells of a row were read",
    )


def test_footnotes_and_comments_of_opendocument_stand_apart() -> None:
    body = (
        "<office:text><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        "<text:h text:outline-level='2'>Wax</text:h><text:p>one<text:note text:note-class='footnote'>"
        "<text:note-citation>1</text:note-citation>"
        "<text:note-body><text:p>a note</text:p></text:note-body></text:note> two"
        "<office:annotation><text:p>why?</text:p></office:annotation>"
        "<text:tab/>three</text:p></office:text>"
    )
    document = extracted("a.odt", hostile.odf("text", body))
    assert document.text == "Wax\none two\tthree\na note\nwhy?\n"
    assert [unit.kind for unit in document.units] == ["body", "footnote", "comment"]
    assert document.blocks[1].heading == ("Wax",)


def test_an_encrypted_opendocument_file_is_told() -> None:
    from pensieve_mcp.corpus.types import Unreadable

    content = hostile.zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": b"\x00noise",
            "META-INF/manifest.xml": "<manifest><file-entry><encryption-data/></file-entry></manifest>",
        }
    )
    with pytest.raises(Unreadable) as caught:
        extracted("a.odt", content)
    assert caught.value.reason == "encrypted"


def test_what_stands_before_the_damage_is_kept() -> None:
    body = "".join(hostile.paragraph(f"paragraph {n}") for n in range(50))
    cut = f"<w:document xmlns:w='w'><w:body>{body}<w:p><w:r></w:oops>".encode()
    document = extracted("a.docx", hostile.docx(cut))
    assert document.text.splitlines() == [f"paragraph {n}" for n in range(50)]
    assert document.status == "partial"
    assert "could not be read to the end" in document.facts.warnings[0]
    rows = '<row r="1"><c><v>1</v></c></row><row r="2"><c><v>2</v></c></row></oops>'
    assert extracted("a.xlsx", hostile.xlsx(rows)).text == "1\n2\n"
    sheet = "<office:spreadsheet><table:table><table:table-row><table:table-cell><text:p>1</text:p></table:table-cell>"
    broken = extracted("a.ods", hostile.odf("spreadsheet", sheet + "</table:table-row></oops>"))
    assert (broken.text, broken.status) == ("1\n", "partial")


def test_damaged_styles_cost_the_dates_and_are_told() -> None:
    content = hostile.xlsx(
        '<row r="1"><c s="1"><v>44197</v></c></row>', styles="<styleSheet><oops></styleSheet>"
    )
    document = extracted("a.xlsx", content)
    assert (document.text, document.status) == ("44197\n", "partial")
    assert document.facts.warnings[0].startswith("number formats could not be read to the end")

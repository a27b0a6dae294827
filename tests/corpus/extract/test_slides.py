"""Slides in the order of the show, with what hangs on them."""

from __future__ import annotations

from .hostile import content_types, relationships, zipped
from .test_office import extracted

_SPACES = "xmlns:p='p' xmlns:a='a' xmlns:r='r'"


def shape(text: str, placeholder: str = "") -> str:
    kind = f"<p:nvPr><p:ph type='{placeholder}'/></p:nvPr>" if placeholder else ""
    return f"<p:sp>{kind}<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"


def slide(*shapes: str) -> str:
    return f"<p:sld {_SPACES}>{''.join(shapes)}</p:sld>"


def show(order: list[int], parts: dict[str, str]) -> bytes:
    """A show whose relation rN is slideN.xml."""
    ids = "".join(f"<p:sldId id='{256 + n}' r:id='r{n}'/>" for n in order)
    return zipped(
        {
            "[Content_Types].xml": content_types("ppt/presentation.xml", "presentationml.presentation"),
            "_rels/.rels": relationships(("officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": f"<p:presentation {_SPACES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": relationships(
                *[("slide", f"slides/slide{n}.xml") for n in range(1, 5)]
            ),
            **parts,
        }
    )


def test_slides_stand_in_the_order_of_the_show() -> None:
    parts = {f"ppt/slides/slide{n}.xml": slide(shape(f"text {n}")) for n in (1, 2, 3)}
    document = extracted("a.pptx", show([3, 1, 2], parts))
    assert document.text == "text 3\ntext 1\ntext 2\n"
    assert [unit.ordinal for unit in document.units] == [1, 2, 3]


def test_a_missing_slide_is_told_and_keeps_its_number() -> None:
    parts = {f"ppt/slides/slide{n}.xml": slide(shape(f"text {n}")) for n in (1, 3)}
    document = extracted("a.pptx", show([1, 2, 3], parts))
    assert [unit.ordinal for unit in document.units] == [1, 3]
    assert document.status == "partial"
    assert document.facts.warnings == ("slide 2 is missing from the file",)


def test_the_title_heads_its_slide_and_slide_numbers_are_no_text() -> None:
    number = "<p:sp><p:nvPr><p:ph type='sldNum'/></p:nvPr><p:txBody>"
    number += "<a:p><a:fld type='slidenum'><a:t>7</a:t></a:fld></a:p></p:txBody></p:sp>"
    page = slide(shape("body"), shape("Wax", "title"), number)
    document = extracted("a.pptx", show([1], {"ppt/slides/slide1.xml": page}))
    assert document.text == "body\nWax\n"
    assert document.units[0].label == "Wax"
    assert {block.heading for block in document.blocks} == {("Wax",)}


def test_notes_comments_diagrams_and_charts_belong_to_their_slide() -> None:
    relations = relationships(
        ("notesSlide", "../notesSlides/n.xml"),
        ("comments", "../comments/c.xml"),
        ("diagramData", "../diagrams/d.xml"),
        ("chart", "../charts/h.xml"),
    )
    document = extracted(
        "a.pptx",
        show(
            [1],
            {
                "ppt/slides/slide1.xml": slide(shape("body")),
                "ppt/slides/_rels/slide1.xml.rels": relations,
                "ppt/notesSlides/n.xml": slide(shape("say this")),
                "ppt/comments/c.xml": "<p:cmLst xmlns:p='p'><p:cm><p:text>really?</p:text></p:cm></p:cmLst>",
                "ppt/diagrams/d.xml": "<dgm:d xmlns:dgm='d' xmlns:a='a'><a:t>box one</a:t><a:t>box two</a:t></dgm:d>",
                "ppt/charts/h.xml": "<c:c xmlns:c='c' xmlns:a='a'><a:t>Swarms</a:t><c:v>12</c:v></c:c>",
            },
        ),
    )
    said = [(unit.kind, unit.ordinal, document.text[unit.start : unit.end]) for unit in document.units]
    assert said == [
        ("slide", 1, "body\nbox one box two\nSwarms 12\n"),
        ("notes", 1, "say this\n"),
        ("comment", 1, "really?\n"),
    ]


def test_a_damaged_slide_costs_what_follows_on_it() -> None:
    broken = slide(shape("before"), "<p:sp><oops></p:sp>")
    parts = {"ppt/slides/slide1.xml": broken, "ppt/slides/slide2.xml": slide(shape("next"))}
    document = extracted("a.pptx", show([1, 2], parts))
    assert document.text == "before\nnext\n"
    assert document.status == "partial"
    assert "slide 1 could not be read to the end" in document.facts.warnings[0]


def test_a_table_on_a_slide_is_rows() -> None:
    cell = "<a:tc><a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody></a:tc>"
    table = f"<a:tbl><a:tr>{cell.format('a')}{cell.format('b')}</a:tr><a:tr>{cell.format('c')}</a:tr></a:tbl>"
    document = extracted("a.pptx", show([1], {"ppt/slides/slide1.xml": slide(table)}))
    assert document.text == "a\tb\nc\n"

"""What the sample documents must yield by tests/library/expected.json: phrases, pages, cells, or the reason why not."""

from __future__ import annotations

import importlib.util
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.corpus.extract import registry
from pensieve_mcp.corpus.types import Extracted, FileHint, Limits, Unreadable

from .conftest import Reader

LIBRARY = Path(__file__).parents[2] / "library"
EXPECTED: dict[str, dict[str, Any]] = json.loads((LIBRARY / "expected.json").read_text(encoding="utf-8"))[
    "files"
]
OURS = {
    name: wanted
    for name, wanted in EXPECTED.items()
    if Path(name).suffix in registry.RICH_SUFFIXES or wanted.get("expect") == "skip"
}
LEGACY_PACKAGES = ("office_oxide", "python_calamine", "olefile")
REASONS = {"no text": "no_text", "scanned": "no_text"}


def folded(text: str) -> str:
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text)).casefold()


def open_library(read: Reader, name: str) -> Extracted | Unreadable:
    if EXPECTED[name].get("legacy") and not all(
        importlib.util.find_spec(package) for package in LEGACY_PACKAGES
    ):
        pytest.skip(f"{name} needs the extra `legacy`")
    return read(Path(name).name, LIBRARY / "files" / name)


@pytest.mark.parametrize("name", OURS)
def test_a_sample_yields_what_it_must(read: Reader, name: str) -> None:
    wanted = OURS[name]
    document = open_library(read, name)
    if wanted.get("expect") == "skip":
        assert isinstance(document, Unreadable)
        assert document.reason in {REASONS.get(reason, reason) for reason in wanted["reasons"]}
        assert document.detail
        return
    assert isinstance(document, Extracted), document
    assert document.status == "ok"
    whole = folded(document.text)
    for phrase in wanted["phrases"]:
        assert folded(phrase) in whole
    for phrase, number in wanted.get("pages", {}).items():
        there = [
            unit.ordinal
            for unit in document.units
            if folded(phrase) in folded(document.text[unit.start : unit.end])
        ]
        assert number in there, (phrase, there)
    for phrase, cell in wanted.get("cells", {}).items():
        found = [block.cells for block in document.blocks if phrase in document.text[block.start : block.end]]
        assert any(cells is not None and cells.split(":")[0] == cell for cells in found), found


@pytest.mark.parametrize("name", [name for name, wanted in OURS.items() if wanted.get("expect") != "skip"])
def test_units_tile_the_text_and_blocks_ascend(read: Reader, name: str) -> None:
    document = open_library(read, name)
    assert isinstance(document, Extracted)
    at = 0
    for unit in document.units:
        assert (unit.start, unit.end > unit.start) == (at, True)
        at = unit.end
    assert at == len(document.text)
    at = 0
    for block in document.blocks:
        assert at <= block.start < block.end <= len(document.text)
        assert "\n" not in (document.text[block.start], document.text[block.end - 1])
        at = block.end
    covered = sum(block.end - block.start for block in document.blocks)
    assert covered >= len(document.text.split()) > 0
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", document.text)


def section_of(document: Extracted, phrase: str) -> tuple[str, ...]:
    return next(
        block.heading for block in document.blocks if phrase in document.text[block.start : block.end]
    )


def test_headings_of_a_word_file_make_a_path(read: Reader) -> None:
    document = open_library(read, "docx/testWORD.docx")
    assert isinstance(document, Extracted)
    assert section_of(document, "This is a sample Microsoft Word") == (
        "Heading Level 1",
        "Heading Level 2",
        "Heading Level 3",
    )
    assert document.facts.title == "Sample Word Document"
    assert [(unit.kind, unit.label) for unit in document.units] == [
        ("body", ""),
        ("header", "header"),
        ("header", "footer"),
    ]


def test_the_outline_of_a_pdf_gives_headings_within_a_page(read: Reader) -> None:
    document = open_library(read, "pdf/bookmark_sample.pdf")
    assert isinstance(document, Extracted)
    paths = {block.heading for block in document.blocks}
    assert ("PART II - OBLIGATIONS", "3. Payment Terms", "3.1 Payment Schedule") in paths


def test_deleted_text_of_tracked_changes_is_not_read(read: Reader) -> None:
    document = open_library(read, "docx/delins.docx")
    assert isinstance(document, Extracted)
    assert "pendant worn" not in document.text
    assert "DragonLance" not in document.text


def test_notes_of_a_slide_are_a_unit_with_its_number(read: Reader) -> None:
    for name in ("pptx/powerpoint_sample.pptx", "odp/odf_presentation_01.odp"):
        document = open_library(read, name)
        assert isinstance(document, Extracted)
        notes = [unit for unit in document.units if unit.kind == "notes"]
        assert [unit.ordinal for unit in notes] == [2, 3]
        assert notes[0].label == "notes of slide 2"
        assert [unit.label for unit in document.units if unit.kind == "slide"][:2] == [
            "Test Table Slide",
            "Second slide title",
        ]


def test_cells_are_cited_by_range_and_sheet(read: Reader) -> None:
    document = open_library(read, "xlsx/stanley-cups.xlsx")
    assert isinstance(document, Extracted)
    assert [(unit.label, unit.ordinal) for unit in document.units] == [
        ("Stanley Cups", 1),
        ("Stanley Cups Since 67", 2),
    ]
    assert [block.cells for block in document.blocks] == ["A1:C5", "A1:C5"]
    old = open_library(read, "ods/odf_table_with_title_01.ods")
    assert isinstance(old, Extracted)
    assert [block.cells for block in old.blocks] == ["B2", "B4:C10"]


def test_chapters_of_a_book_bear_their_names(read: Reader) -> None:
    document = open_library(read, "epub/test.epub")
    assert isinstance(document, Extracted)
    assert all(unit.kind == "chapter" for unit in document.units)
    assert any("Chapter 1" in unit.label for unit in document.units)
    assert document.facts.title


def test_without_the_extra_an_old_file_is_told_how_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for package in LEGACY_PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    for name in (
        "doc/testWORD.doc",
        "ppt/testPPT.ppt",
        "xls/testEXCEL.xls",
        "xlsb/date.xlsb",
        "msg/fake-email-attachment.msg",
    ):
        path = LIBRARY / "files" / name
        with path.open("rb") as file:
            hint = FileHint(path.name, path.stat().st_size)
            extractor = registry.choose(file, hint, Limits())
            file.seek(0)
            with pytest.raises(Unreadable) as caught:
                list(extractor.extract(file, hint, Limits()))
        assert caught.value.reason == "unsupported"
        assert 'pip install "pensieve-statelm[legacy]"' in caught.value.detail

"""Readers that can begin at a later unit give from there on what they give of the whole: what a crash is resumed by."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from pensieve_mcp.corpus.extract import registry
from pensieve_mcp.corpus.types import Extractor, Facts, FileHint, Limits, Piece

from . import hostile

LIBRARY = Path(__file__).parents[2] / "library" / "files"
SAMPLES = [
    "pdf/dmca.pdf",
    "pdf/bookmark_sample.pdf",
    "pptx/powerpoint_sample.pptx",
    "xlsx/any_sheets.xlsx",
    "epub/test.epub",
]


def pieces(ask: Callable[[Extractor], list[Piece | Facts]], content: bytes, name: str) -> list[Piece]:
    extractor = registry.choose(io.BytesIO(content), FileHint(name, len(content)), Limits())
    return [item for item in ask(extractor) if isinstance(item, Piece)]


@pytest.mark.parametrize("name", SAMPLES)
def test_from_a_later_unit_on_the_rest_is_the_same(name: str) -> None:
    path = LIBRARY / name
    content = path.read_bytes()
    hint = FileHint(path.name, len(content))

    def from_unit(first: int) -> list[Piece]:
        with path.open("rb") as file:
            return pieces(lambda e: list(e.extract_from(file, hint, Limits(), first)), content, path.name)  # type: ignore[attr-defined]

    whole = from_unit(1)
    assert {piece.ordinal for piece in whole} >= {1, 2}
    for first in (2, 3):
        assert from_unit(first) == [piece for piece in whole if piece.ordinal >= first]


def test_every_unit_says_where_we_are_even_without_text() -> None:
    book = hostile.epub(["a", "b", "c"], {"a": "<p>one</p>", "b": "", "c": "<p>three</p>"})
    found = pieces(
        lambda e: list(e.extract(io.BytesIO(book), FileHint("a.epub", len(book)), Limits())), book, "a.epub"
    )
    assert [(piece.ordinal, piece.text.strip()) for piece in found] == [(1, "one"), (2, ""), (3, "three")]

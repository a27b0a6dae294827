"""What the full text of notes and history is given: the same for the same words, whatever stands around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.fulltext import shadow

WORDS = st.text(alphabet="abAB_01é½ﬁ…“”İ\u0301\u0327\ud800中文仮かな한국ไทยकि्Привет", max_size=12)
BETWEEN = st.text(alphabet=" \n\t.,;:!?'\"()[]{}<>/\\-+*=&%$#@|~`^\x00\x7f", min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("text", "body", "parts"),
    [
        ("The keeper's log: 12 barrels.", "the keeper s log 12 barrels", ""),
        ("readChunk(chunk_id) HTTPServer2", "readchunk chunk_id httpserver2", "read chunk id http server"),
        ("Café ﬁne ½ “naïve”", "cafe fine 1 2 naive", ""),
        ("灯台の記録 log", "灯台 台の の記 記録 log", "灯 台 の 記 録"),
        ("中", "中", "中"),
        ("हिन्दी में", "हिन्दी में", ""),
        ("a中b", "a 中 b", "中"),
        ("__ _ ___", "", ""),
        ("x" * 80, "x" * 64, ""),
        ("", "", ""),
    ],
)
def test_words_are_given_as_they_are_looked_for(text: str, body: str, parts: str) -> None:
    """Another answer for the same text would need a new SHADOW_VERSION: a table is told exactly what it was given."""
    found = shadow(text)

    assert (found.body, found.parts) == (body, parts)


@given(st.lists(st.tuples(WORDS, BETWEEN), max_size=8))
def test_a_text_is_what_its_words_are_one_by_one(pieces: list[tuple[str, str]]) -> None:
    """No letter reaches across a blank or a mark, however often a word comes."""
    text = "".join(word + between for word, between in [*pieces, *pieces])
    alone = [shadow(word) for word, _ in pieces]

    assert shadow(text).body == " ".join(filter(None, [one.body for one in [*alone, *alone]]))
    assert shadow(text).parts == " ".join(
        dict.fromkeys(part for one in alone for part in one.parts.split(" ") if part)
    )

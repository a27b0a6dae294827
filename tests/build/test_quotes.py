"""Quotes are found as people and programs copy them, and nothing else is taken for them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.corpus.quotes import find_in_chunk, find_in_corpus, find_in_document, find_quote
from pensieve_mcp.corpus.types import ChunkSet, Span

from .conftest import prose


@pytest.mark.parametrize(
    ("text", "quote", "how"),
    [
        ("He said yes today.", "said yes", "exact"),
        ("He  said\n yes today.", "said yes", "folded"),
        ("The agree-\nment holds.", "agreement holds", "folded"),
        ("The agreement holds.", "agree-\nment holds", "folded"),
        ("The agree\u00adment holds.", "agreement", "folded"),
        ("The oﬃce is ﬁne.", "office is fine", "folded"),
        ("The office is fine.", "oﬃce is ﬁne", "folded"),
        ("It’s “fine” – really…", 'It\'s "fine" - really...', "folded"),
        ("Cafe\u0301 du Nord", "Café du Nord", "folded"),
        ("ＡＢＣ １２３", "ABC 123", "folded"),
        ("THE TREATY was signed", "the treaty was", "caseless"),
        ("word by wo\u200brd", "by word", "folded"),
    ],
)
def test_a_quote_is_found_in_spite_of_typography(text, quote, how):
    (match,) = find_quote(text, quote)

    assert match.how == how
    assert text[match.span.start : match.span.end].strip()


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("The treaty was signed.", "The treaty was not signed."),
        ("The treaty was signed.", "treatywas"),
        ("Anything", ""),
        ("Anything", "   "),
        ("Anything", "…"),
    ],
)
def test_another_text_is_not_the_quote(text, quote):
    assert find_quote(text, quote) == []


def test_all_places_are_told_in_the_strictest_way_that_finds_any():
    assert [m.span for m in find_quote("a fox, a fox, A FOX", "a fox")] == [Span(0, 5), Span(7, 12)]
    assert len(find_quote("the " * 500, "the")) == 50


@given(st.text(alphabet="ab fi\n-’ﬁ.", min_size=1, max_size=60), st.data())
@settings(deadline=None)
def test_any_stretch_of_a_text_is_found_in_it(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    quote = text[start:end]
    if quote.strip():
        assert any(m.span.start <= start + quote.index(quote.strip()) for m in find_quote(text, quote))


def test_a_long_quote_is_found_over_several_pieces():
    text = prose(60).replace("owner. ", "owner.\n")
    (match,) = find_quote("Before. " + text, prose(60))

    assert match.span == Span(8, 8 + len(text))


def test_quotes_are_looked_for_in_a_chunk_a_document_or_everywhere(bench):
    bench.write("a.txt", prose(40))
    bench.write("sub/b.txt", "Sentence 7 tells of\nitem 947 and its owner.")
    store = bench.build()
    chunk_set = ChunkSet(64)
    quote = "Sentence 7 tells of item 947"

    places, whole = find_in_corpus(store, quote, chunk_set=chunk_set)
    assert whole and [(p.path, p.how) for p in places] == [
        ("docs/a.txt", "exact"),
        ("docs/sub/b.txt", "folded"),
    ]
    assert find_in_corpus(store, quote, under=["docs/sub"])[0][0].document_id == places[1].document_id
    (inside,) = find_in_chunk(store, places[0].chunk_id, quote)
    assert inside.span == places[0].span and inside.chunk_id == places[0].chunk_id
    assert find_in_document(store, 2, "no such words") == []
    assert find_in_corpus(store, quote, late=lambda: True) == ([], False)

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.index.highlight import LONGEST, find, highlights, lead, shown

TEXT = (
    "Before joining the firm, Tobias Renk spent six winters at the Neumayer base among the penguins. "
    "Nobody knew. The contract of 1998 names Lisbon as the place of payment, and the parties agreed to it. "
    "Later, penguins were seen in the harbour of Cape Town by Tobias himself."
)


def words(text, terms):
    return [text[one.start : one.end] for one in find(text, terms)]


def test_the_sentence_with_the_words_is_shown():
    [shown] = highlights(TEXT, ["lisbon", "contract"])
    assert "The contract of 1998 names Lisbon" in shown.text
    assert [shown.text[start - shown.start : end - shown.start] for start, end in shown.met] == [
        "contract",
        "Lisbon",
    ]


def test_highlights_stand_in_reading_order_and_hold_different_words():
    found = highlights(TEXT, ["penguin", "lisbon", "harbour"])
    assert [one.start for one in found] == sorted(one.start for one in found)
    assert len(found) == 2 or len(found) == 3
    assert any("Lisbon" in one.text for one in found) and any("harbour" in one.text for one in found)


@pytest.mark.parametrize(
    ("text", "terms", "met"),
    [
        ("He tasted it and was happy", ["tast", "happi"], ["tasted", "happy"]),
        ("École d’été à Paris", ["ecol", "ete"], ["École", "été"]),
        ("e\u0301cole", ["ecol"], ["e\u0301cole"]),
        ("学校の図書館", ["図書", "書館"], ["図書", "書館"]),
        ("written in C++ and a=b", ["c++", "a=b"], ["C++", "a=b"]),
        ("ＡＢＣ company", ["abc"], ["ＡＢＣ"]),
        ("the cat catalogue", ["cat"], ["cat"]),
    ],
)
def test_words_are_met_in_any_form(text, terms, met):
    assert words(text, terms) == met


def test_a_hit_by_meaning_shows_its_lead():
    [shown] = lead("Ch. 3\n\n" + TEXT)
    assert "Tobias Renk" in shown.text
    assert highlights(TEXT, ["zebra"]) == lead(TEXT)


def test_a_long_line_without_sentence_ends_is_cut_around_the_word():
    text = "lorem " * 100 + "needle " + "ipsum " * 60
    [shown] = highlights(text, ["needle"])
    assert "needle" in shown.text and len(shown.text) <= LONGEST


@given(st.text(max_size=1_000), st.lists(st.text(min_size=1, max_size=6), max_size=5))
def test_highlights_are_true_disjoint_short_pieces_of_any_text(text, terms):
    found = highlights(text, terms)
    assert len(found) <= 3
    for one in found:
        assert text[one.start : one.end] == one.text and 0 < len(one.text) <= LONGEST
        assert all(one.start <= start < end <= one.end for start, end in one.met)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))


def test_a_passage_found_by_meaning_shows_the_stretch_that_was_nearest():
    text = (
        "The wolves came down to the village twice that January, and eleven ewes were lost. "
        "Predators are common there, and people speak of little else in the long evenings. "
        "The bridge at Korvald was closed to lorries after inspectors found rust in its bolts."
    )
    (one,) = shown(text, ["predator"], 1)
    assert one.text.startswith("The wolves") and one.text.endswith("lost.") and not one.met
    (two,) = shown(text, ["predator"], 2)
    assert [text[start:end] for start, end in two.met] == ["Predators"]
    first, *others = shown(text, ["bridg", "lorri", "ewe"], 2)
    assert first.text.startswith("Predators") and [one.text[:10] for one in others] == [
        "The bridge",
        "The wolves",
    ]
    assert shown(text, ["predator"]) == highlights(text, ["predator"])
    assert shown(text, ["predator"], 99) == highlights(text, ["predator"])  # the vectors are of another cut

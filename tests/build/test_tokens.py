"""The token estimate: its figures are a contract, since chunk borders and budgets rest on them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pensieve_mcp.tokens import (
    COUNTER,
    UNITS_PER_TOKEN,
    count_spans,
    count_tokens,
    count_units,
    measure_spans,
)

SAMPLES = {
    "prose": "The treaty was signed on 3 October 1990, after long talks between the four powers.",
    "code": "def fold(events: Iterable[Event]) -> Transcript:\n    return reduce(step, events, Transcript())\n",
    "json": '{"id": 17, "name": "user_17", "active": true, "score": 84.44}',
    "german": "Die Donaudampfschifffahrtsgesellschaft hat ihre Fahrpläne für das kommende Jahr veröffentlicht.",
    "russian": "Договор был подписан после долгих переговоров.",
    "chinese": "条约是在四国之间经过长时间的谈判之后签署的。",
    "japanese": "長い交渉の末、条約が調印されました。",
    "arabic": "تم توقيع المعاهدة بعد مفاوضات طويلة.",
    "hindi": "लंबी बातचीत के बाद संधि पर हस्ताक्षर किए गए।",
    "special": "<|endoftext|> is plain text here",
    "emoji": "🎉🎉 done",
    "one": ".",
    "empty": "",
}


def test_the_counter_counts_as_it_did():
    """A change here means another COUNTER name, since stored chunk borders would no longer be ours."""
    assert snapshot("script-2") == COUNTER
    assert {name: count_tokens(text) for name, text in SAMPLES.items()} == snapshot(
        {
            "prose": 20,
            "code": 25,
            "json": 25,
            "german": 22,
            "russian": 13,
            "chinese": 17,
            "japanese": 13,
            "arabic": 12,
            "hindi": 19,
            "special": 8,
            "emoji": 5,
            "one": 1,
            "empty": 0,
        }
    )


@given(st.text())
def test_only_the_empty_text_costs_nothing(text):
    assert (count_tokens(text) == 0) == (text == "")


@given(st.text(alphabet=st.characters(codec="utf-8")), st.lists(st.integers(0, 50)))
def test_spans_cost_what_their_texts_cost(text, cuts):
    borders = sorted({0, len(text), *(min(at, len(text)) for at in cuts)})
    texts = [text[start:end] for start, end in pairwise(borders)]

    assert count_spans(text, borders) == [count_units(part) for part in texts]


def test_lines_add_up_exactly():
    lines = ["The first line.\n", "  an indented one, 42\n", "третья строка\n"]

    assert sum(map(count_units, lines)) == count_units("".join(lines))
    assert count_units("".join(lines)) > 10 * UNITS_PER_TOKEN


@given(
    st.text(alphabet=st.sampled_from("aB1 .\n\t_-éжあ漢ก\u00a0😀")),
    st.lists(st.integers(0, 50), max_size=6),
    st.integers(0, 7),
    st.integers(0, 7),
)
def test_parts_cost_what_the_whole_costs_where_no_border_cuts_a_run(text, cuts, one, other):
    """A chunk's tokens are the sum of its atoms' only where that is what its text costs."""
    borders = sorted({0, len(text), *(min(at, len(text)) for at in cuts)})
    first, last = sorted((one % len(borders), other % len(borders)))
    units, torn = measure_spans(text, borders)

    if not any(first < place < last for place in torn):
        assert sum(units[first:last]) == count_units(text[borders[first] : borders[last]])

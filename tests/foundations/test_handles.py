"""The one grammar of handles (design section 6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.errors import Miscast
from pensieve_mcp.handles import MessageRef, parse_chunk_id, parse_cursor, parse_message_ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m12", ["m12"]),
        ("12", ["m12"]),
        (12, ["m12"]),
        ("h7f3a", ["h7f3a"]),
        ("H7F3A", ["h7f3a"]),
        ("m12.2", ["m12.2"]),
        ("m3, m7", ["m3", "m7"]),
        ("[3, 7]", ["m3", "m7"]),
        ("3-5,12", ["m3", "m4", "m5", "m12"]),
        ("m3 - m5", ["m3", "m4", "m5"]),
        ("m3–m5", ["m3", "m4", "m5"]),
        ("9-7", ["m7", "m8", "m9"]),
        ("m3, m3", ["m3"]),
    ],
)
def test_the_grammar_reads_what_models_write(text: str | int, expected: list[str]) -> None:
    assert [str(ref) for ref in parse_message_ids(text)] == expected


def test_numbers_of_a_range_are_marked_so_that_absent_ones_can_be_passed_over() -> None:
    assert parse_message_ids("3-4") == [MessageRef(3, from_range=True), MessageRef(4, from_range=True)]


@pytest.mark.parametrize(
    "text", ["", "  ", "x9", "m", "-", "1-999999999", True, "m1;rm", "m12.", "c48", "m١٢", "１２"]
)
def test_what_is_no_handle_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(Miscast) as refused:
        parse_message_ids(text)
    assert refused.value.slug == "bad_handle"
    assert "m12" in refused.value.hint


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        refs = parse_message_ids(text)
    except Miscast as refused:
        assert refused.hint
    else:
        assert refs


@pytest.mark.parametrize(("value", "number"), [("c48", 48), ("48", 48), (48, 48), (" C48 ", 48)])
def test_chunk_ids_are_read_with_and_without_their_letter(value: str | int, number: int) -> None:
    assert parse_chunk_id(value) == number


@pytest.mark.parametrize("value", ["m4", "", "c", "4.5", "-1", "c٤٨", False])
def test_what_is_no_chunk_id_is_refused(value: str) -> None:
    with pytest.raises(Miscast):
        parse_chunk_id(value)


def test_a_cursor_is_a_position_that_an_answer_gave() -> None:
    assert (parse_cursor(None), parse_cursor(""), parse_cursor("120")) == (0, 0, 120)
    for wrong in ("-1", "a", "١٢", "²", "1" * 5_000, "1.0"):
        with pytest.raises(Miscast, match="no answer gave"):
            parse_cursor(wrong)

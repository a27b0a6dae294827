"""try: a real run through cast, over the library that ships, and the curve it draws."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.cli.curve import MAX_COLUMNS, Point, draw, points_of, svg
from pensieve_mcp.cli.trial import QUESTIONS, best_quote
from pensieve_mcp.ledger.events import Forgot, Message, Recalled, Said

from .conftest import Pensieve


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    from .conftest import command

    place = tmp_path_factory.mktemp("trial")
    said = command(place, "try", "--json", "--svg", place / "curve.svg", check=True)
    assert not (place / "home").exists(), "nothing is left behind"
    return {**said.data, "svg": (place / "curve.svg").read_text(encoding="utf-8")}


def test_the_window_never_overflows_though_more_was_said(summary: dict[str, int]) -> None:
    """The point of the whole thing: more is read than fits, and it fits all the time."""
    assert summary["library_tokens"] > 2 * summary["window_tokens"]
    assert summary["said_tokens"] > summary["window_tokens"]
    assert summary["peak_tokens"] <= summary["window_tokens"]
    assert summary["freed_tokens"] > 0


def test_the_curve_is_that_of_the_ledger(summary: dict[str, list[list[object]]]) -> None:
    curve = summary["curve"]
    visible = [point[0] for point in curve]

    assert max(visible) == summary["peak_tokens"]
    drops = [n for n, point in enumerate(curve) if n and point[0] < curve[n - 1][0]]  # type: ignore[operator]
    assert drops, "deletions are drops"
    assert all(curve[n][2] == "forgot" for n in drops), "and nothing else is"


def test_every_question_is_answered_with_checked_citations(
    summary: dict[str, list[dict[str, object]]],
) -> None:
    answers = summary["answers"]

    assert [answer["question"] for answer in answers] == list(QUESTIONS)
    for answer in answers:
        assert answer["citations"]
        assert all(c["state"] == "ok" for c in answer["citations"])  # type: ignore[attr-defined]


def test_the_answers_hold_the_facts(summary: dict[str, list[dict[str, str]]]) -> None:
    """Words that stand in the documents and not in the questions: the host found the right places."""
    payer, side, night, redwings = (answer["answer"] for answer in summary["answers"])

    assert "Wenna Carrick" in payer
    assert "crack" in side
    assert "3 October 1911" in night
    assert "61, 48 and 70" in redwings


def test_the_picture_is_well_formed_and_has_no_machine_in_it(summary: dict[str, str]) -> None:
    root = ElementTree.fromstring(summary["svg"])

    assert root.tag.endswith("svg")
    assert "prefers-color-scheme:dark" in summary["svg"]
    assert "/tmp" not in summary["svg"]


def test_it_runs_on_a_folder_of_ones_own(pensieve: Pensieve, documents: Path, home: Path) -> None:
    said = pensieve("try", documents, "-q", "How long is the notice period of the lease?")

    assert said.code == 0, said.err
    assert "six months" in said.out
    assert "visible tokens" in said.out
    assert "█" in said.out
    assert "deleteContext" in said.out
    assert not home.exists(), "no workspace is left behind"


def test_a_folder_without_a_question_is_wrong_usage(pensieve: Pensieve, documents: Path) -> None:
    assert pensieve("try", documents).code == 2


def test_the_run_with_the_rarest_words_of_the_question_is_quoted_exactly() -> None:
    text = "The bell is old. The bell is\nheavy and the rope is new.\n\nNobody knows who paid\nthe founder of the bell."

    assert best_quote("Who paid for the bell?", text)[0] == "Nobody knows who paid\nthe founder of the bell."
    assert best_quote("Which giraffe?", text) == ("", 0.0)


def test_a_quote_with_one_word_of_the_question_is_better_than_none_and_a_sentence_better_than_a_heading() -> (
    None
):
    text = "LEASE AGREEMENT\n\nThe lease shall continue until 31 December 2031, unless terminated earlier."

    quote, lone = best_quote("When does the lease end?", text)

    assert quote == "The lease shall continue until 31 December 2031, unless terminated earlier."
    assert lone < best_quote("When is the lease terminated?", text)[1]


@given(st.text(alphabet="ab .!?\n“A", max_size=200), st.text(alphabet="ab ?A", max_size=30))
def test_a_quote_always_stands_in_the_text(text: str, question: str) -> None:
    quote, score = best_quote(question, text)

    assert quote in text
    assert bool(quote) == (score > 0)


def message(number: int, tokens: int) -> Message:
    return Message(number=number, role="tool", tool="readChunk", tokens=tokens, digest=b"")


def test_a_recall_lifts_the_curve_to_where_it_was() -> None:
    points = points_of([Said(message(1, 500)), Said(message(2, 300)), Forgot((1,)), Recalled((1,))])

    assert [p.visible for p in points][:2] == [500, 800]
    assert points[2].visible < 500
    assert points[3].visible == 800
    assert [p.undeleted for p in points] == [500, 800, 800, 800]


@given(
    st.lists(
        st.builds(
            Point,
            visible=st.integers(0, 10**6),
            undeleted=st.integers(0, 10**7),
            kind=st.sampled_from(["said", "forgot", "recalled", "other"]),
        ),
        max_size=300,
    ),
    st.integers(-5, 300),
    st.none() | st.integers(1, 10**6),
)
def test_any_curve_fits_its_columns(points: list[Point], columns: int, window: int | None) -> None:
    lines = draw(points, window=window, columns=columns)

    assert bool(lines) == bool(points)
    assert all(len(line) <= max(MAX_COLUMNS, 90) for line in lines)
    if points:
        ElementTree.fromstring(svg(points, window=window, title="<&>", source='"'))


@pytest.mark.parametrize(("tokens", "left"), [(9_000, "0"), (1_345_030, "-18"), (123_456_789, "-34")])
def test_long_numbers_have_room_left_of_the_picture(tokens: int, left: str) -> None:
    assert f'viewBox="{left} 0 ' in svg([Point(tokens, tokens, "read", "")])

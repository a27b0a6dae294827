"""Notes that disagree under different keys are shown with both sources, and nothing is overwritten (item 3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.consolidation import consolidate
from pensieve_mcp.notebook.conflicts import against, conflicts, read
from pensieve_mcp.notebook.faithful import keeps
from pensieve_mcp.notebook.types import Evidence, Note

from .conftest import RENT, Desk

HERE = Path(__file__).parent
PAIRS = json.loads((HERE / "conflicts.json").read_text(encoding="utf-8"))["pairs"]
APART = json.loads((HERE / "paraphrases.json").read_text(encoding="utf-8"))["notes"]
AT_LEASE = {"path": "docs/lease.md", "quote": RENT}
LATE = {"path": "docs/lease.md", "quote": "Late rent bears interest"}


def note(key: str, says: str, **more: object) -> Note:
    return Note(key, says, "", 1, 0.0, 0.0, **more)  # type: ignore[arg-type]


def seen(pair: dict[str, str]) -> bool:
    return bool(list(conflicts([note("a", pair["one"]), note("z", pair["other"])])))


def test_conflicts_are_found_and_false_alarms_are_rare_on_the_labelled_set() -> None:
    """At its first trial the rule found 22 of 24 and raised 1 alarm in 32 pairs that do not disagree."""
    found = [seen(pair) for pair in PAIRS if pair["conflict"]]
    alarms = [pair for pair in PAIRS if not pair["conflict"] and seen(pair)]

    assert sum(found) / len(found) >= 0.85
    assert len(alarms) <= 1, alarms


def test_notes_about_many_things_raise_no_alarm() -> None:
    assert not list(conflicts([note(one["key"], one["says"]) for one in APART]))
    results = [
        note(f"results/{number}", f"Entry {number} of the day: all went well.") for number in range(40)
    ]
    assert not list(conflicts(results)), "counters are not facts"
    counted = [note(f"sacks/{number}", f"The miller counted {number} sacks in all.") for number in range(5)]
    assert not list(conflicts(counted)), "nor is a series"


def test_what_ties_two_notes_makes_few_words_enough() -> None:
    one, other = "Built in 1889", "Built in 1891"
    three = "It was built by Hart in 1889", "It was built by Hart in 1891"

    assert not list(conflicts([note("a", one), note("b", other)]))
    assert list(conflicts([note("mill/built", three[0]), note("mill/year", three[1])]))
    piece = Evidence("q", path="docs/mill.md")
    assert list(conflicts([note("a", three[0], evidence=(piece,)), note("b", three[1], evidence=(piece,))]))
    assert list(conflicts([note("a", three[0], links=("b",)), note("b", three[1])]))


def test_places_of_their_own_do_not_disagree() -> None:
    says = "The server listens on port 8080", "The server listens on port 9090"

    assert not list(
        conflicts([note("a", says[0], applies_to="docs/one"), note("b", says[1], applies_to="docs/two")])
    )
    assert list(conflicts([note("a", says[0], applies_to="docs/one"), note("b", says[1])]))


def test_both_are_marked_with_the_other_and_its_source(desk: Desk) -> None:
    desk.note("lease/rent", "", AT_LEASE, summary="The rent is forty-two florins a quarter")
    desk.note("costs", "", LATE, summary="The rent is fifty florins a quarter")
    consolidate(desk.workspace)

    for key, other, says in (("lease/rent", "costs", "fifty"), ("costs", "lease/rent", "forty-two")):
        read_ = desk.read(key)
        assert read_["status"] == "needs review"
        assert f"'{other}' says otherwise" in read_["reason"] and says in read_["reason"]
        assert "docs/lease.md" in read_["reason"]
    assert "fifty" in desk.stored("costs").summary, "nothing is overwritten"


def test_the_weaker_gives_way(desk: Desk) -> None:
    desk.note("lease/rent", "", AT_LEASE, summary="The rent is forty-two florins a quarter")
    desk.note("heard", "", summary="The rent is fifty florins a quarter")
    consolidate(desk.workspace)

    assert desk.read("lease/rent")["status"] == "active"
    assert desk.read("heard")["status"] == "needs review"


def test_a_reader_who_has_looked_is_not_told_again(desk: Desk) -> None:
    desk.note("lease/rent", "", AT_LEASE, summary="The rent is forty-two florins a quarter")
    desk.note("costs", "", LATE, summary="The rent is fifty florins a quarter")
    consolidate(desk.workspace)
    for key in ("lease/rent", "costs"):
        desk.workspace.notebook.set_status(key, "active", author="cli")
    assert consolidate(desk.workspace).made == ()
    desk.cast(
        "updateNote",
        key="costs",
        mode="overwrite",
        new_content="",
        new_summary="The rent is sixty florins a quarter",
    )
    assert {proposal.key for proposal in consolidate(desk.workspace).made} == {"lease/rent", "costs"}


def test_a_writer_is_told_at_once(desk: Desk) -> None:
    desk.note("lease/rent", "", AT_LEASE, summary="The rent is forty-two florins a quarter")
    told = desk.cast("note", key="costs", summary="The rent is fifty florins a quarter", content="")

    assert "'lease/rent' says otherwise" in told.text
    assert desk.stored("lease/rent").status == desk.stored("costs").status == "active", (
        "it is a word, not a verdict"
    )
    assert (
        "otherwise" not in desk.cast("note", key="bees", summary="One hive died in winter", content="").text
    )


@given(st.lists(st.text(max_size=80), max_size=6))
def test_any_text_is_taken(texts: list[str]) -> None:
    notes = [note(f"k{place}", text) for place, text in enumerate(texts)]
    for conflict in conflicts(notes):
        assert conflict.one.key != conflict.other.key
    assert against(note("k", texts[0] if texts else ""), notes) is not None
    for text in texts:
        assert read(text) == read(text)
        assert not keeps(text, "")


# --- another wording ----------------------------------------------------------------------------------------

OLD = (
    "The rent is forty-two florins a quarter, paid on the bridge in coin.\n"
    "Rent is paid on the bridge each quarter; Agnes Holm collects it and does not take notes of debt."
)
GOOD = (
    "The rent of forty-two florins a quarter is paid in coin on the bridge; Agnes Holm collects it, and does not take "
    "notes of debt."
)


@pytest.mark.parametrize(
    ("new", "fine"),
    [
        (GOOD, True),
        (GOOD.replace("forty-two", "42"), True),
        (GOOD.replace("forty-two", "forty"), False),
        (GOOD.replace("forty-two florins a quarter", "florins"), False),
        (GOOD.replace(" not", ""), False),
        (GOOD.replace("Agnes Holm", "the owner"), False),
        (GOOD.replace("coin", "coin to Mallory"), False),
        (GOOD + " It rises by 3 florins a year.", False),
        ("The rent is paid.", False),
        ("", False),
        ("I cannot help with that.", False),
        (GOOD + " " + "Furthermore one should consider many other aspects of rent in general. " * 3, False),
    ],
)
def test_another_wording_must_keep_numbers_names_and_denials(new: str, fine: bool) -> None:
    assert keeps(OLD, new) is fine

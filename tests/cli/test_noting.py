"""note by shell: writing, showing, finding, history, export and import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Pensieve


@pytest.fixture
def notes(pensieve: Pensieve, documents: Path) -> Pensieve:
    """An opened workspace, not indexed."""
    assert pensieve("workspace", "add", "mill", documents).code == 0
    return pensieve


def test_a_note_is_listed_shown_and_found(notes: Pensieve) -> None:
    notes("note", "write", "notice", "Six months, in writing.", "--summary", "Notice period")

    assert notes("note", "list").out == "notice\tNotice period\t1\n"
    assert "Six months" in notes("note", "show", "notice").out
    assert notes("note", "search", "months", "--json").data[0]["key"] == "notice"
    assert notes("search", "--scope", "notes", "months", "--json").data["hits"][0]["id"] == "notice"


def test_a_note_comes_from_stdin(notes: Pensieve) -> None:
    notes("note", "write", "long", stdin="First line.\nSecond line.\n")

    shown = notes("note", "show", "long", "--json").data
    assert shown["summary"] == "First line."
    assert shown["content"] == "First line.\nSecond line.\n"


def test_an_empty_note_is_wrong_usage(notes: Pensieve) -> None:
    assert notes("note", "write", "nothing", stdin="").code == 2


def test_a_quote_is_looked_up(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    said = pensieve(
        "note", "write", "notice", "Six months.",
        "--from", "documents/lease.md", "--quote", "notice in writing of six months",
        "--quote", "seven years", "--json",
    )  # fmt: skip

    states = [piece["state"] for piece in said.data["evidence"]]
    assert states == ["ok", "unsupported"]
    assert said.data["evidence"][0]["path"] == "documents/lease.md"
    assert "seven years" in said.err, "a note is stored, and what is not supported is said"


def test_a_quote_that_is_not_there_is_a_warning_and_the_note_is_stored(
    pensieve: Pensieve, documents: Path
) -> None:
    pensieve("index", documents)
    said = pensieve("note", "write", "term", "x", "--from", "documents/lease.md", "--quote", "seven years")

    assert said.code == 0 and said.out == "term, revision 1\n"
    assert "Warning: the quote was not found in documents/lease.md: “seven years”." in said.err
    assert "its evidence is unsupported" in said.err
    assert pensieve("note", "list").out == "term\tx\t1\t1 unsupported\n"
    assert "[1 unsupported]" in pensieve("cast", "readNote").out
    assert pensieve("note", "check", "--strict").code == 1


def test_a_note_of_one_line_is_shown_once(notes: Pensieve) -> None:
    notes("note", "write", "rent", "Forty florins.")

    assert notes("note", "show", "rent").out.count("Forty florins.") == 1


def test_every_change_is_a_revision(notes: Pensieve) -> None:
    notes("note", "write", "rent", "Forty.")
    notes("note", "write", "rent", "Forty-two.")
    notes("note", "write", "rent", "A quarter.", "--append")

    steps = notes("note", "history", "rent", "--json").data
    assert [(step["revision"], step["action"]) for step in steps] == [
        (1, "write"),
        (2, "write"),
        (3, "append"),
    ]
    assert notes("note", "show", "rent", "--revision", "1", "--json").data["content"] == "Forty."


def test_a_write_over_somebody_elses_change_is_refused(notes: Pensieve) -> None:
    notes("note", "write", "rent", "Forty.")
    notes("note", "write", "rent", "Forty-two.")

    said = notes("note", "write", "rent", "Thirty.", "--expect-revision", "1")

    assert said.code == 1
    assert "Forty-two" in said.err or "revision" in said.err
    assert notes("note", "show", "rent", "--json").data["content"] == "Forty-two."


def test_deleting_asks_and_keeps_the_revisions(notes: Pensieve) -> None:
    notes("note", "write", "rent", "Forty.")

    assert notes("note", "delete", "rent", stdin="n\n").code != 0
    assert notes("note", "delete", "rent", "--yes").code == 0
    assert notes("note", "list").out == ""
    assert len(notes("note", "history", "rent", "--json").data) == 2


@pytest.mark.parametrize("place", ["notes.json", "folder/"])
def test_export_and_import_are_a_round_trip(
    notes: Pensieve, documents: Path, tmp_path: Path, place: str
) -> None:
    notes("note", "write", "rent", "Forty.\n\nWith *marks* and 雪.", "--summary", "Rent")
    notes("note", "write", "key with / and ü", "Odd.")
    target = f"{tmp_path}/{place}"
    assert notes("note", "export", target).code == 0

    notes("workspace", "add", "other", documents / "lease.md")
    taken = notes("--workspace", "other", "note", "import", target, "--json").data

    assert sorted(taken["created"]) == ["key with / and ü", "rent"]
    for key in taken["created"]:
        here = notes("--workspace", "other", "note", "show", key, "--json").data
        there = notes("--workspace", "mill", "note", "show", key, "--json").data
        assert (here["content"], here["summary"]) == (there["content"], there["summary"])
    again = notes("--workspace", "other", "note", "import", target, "--json").data
    assert sorted(again["unchanged"]) == ["key with / and ü", "rent"]


def test_a_broken_import_is_worded_and_changes_nothing(notes: Pensieve, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    for text in (
        "",
        "{",
        "[]",
        json.dumps({"notes": "x"}),
        json.dumps({"format": "pensieve-notes/99", "notes": []}),
    ):
        bad.write_text(text, encoding="utf-8")
        said = notes("note", "import", bad)
        assert said.code == 1, text
        assert "Traceback" not in said.err
    assert notes("note", "list").out == ""
    assert notes("note", "import", tmp_path / "absent.json").code == 2


def test_a_key_that_cannot_be_is_refused(notes: Pensieve) -> None:
    for key in ("", "two\nlines", "k" * 5_000):
        said = notes("note", "write", "--", key, "text")
        assert said.code == 1, repr(key)
        assert "Traceback" not in said.err


def test_a_file_name_with_an_unprintable_character_does_not_end_the_shell(notes: Pensieve) -> None:
    notes("note", "write", "lone", "A lone half: \udc80.")

    assert notes("note", "list").code == 0


def test_notes_are_handed_on_though_no_conversation_was_held(notes: Pensieve) -> None:
    none = notes("handoff")
    assert none.code == 1 and "no note" in none.err
    notes("note", "write", "notice", "Six months, in writing.", "--summary", "Notice period")

    assert "Notice period" in notes("handoff").out
    assert notes("handoff", "--json").data["notes"] == 1
    assert len(notes("episodes", "list", "--json").data) == 1, "one conversation for both"

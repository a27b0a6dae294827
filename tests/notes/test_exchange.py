"""Notes out and in again with all that issue 6 added: kinds, states, contests, half-written and newer files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pensieve_mcp.errors import Miscast
from pensieve_mcp.notebook.exchange import (
    export_json,
    export_markdown,
    from_markdown,
    import_json,
    import_markdown,
    to_markdown,
)
from pensieve_mcp.notebook.store import Notebook
from pensieve_mcp.notebook.types import Note
from pensieve_mcp.storage import Connections

from .conftest import LEASE, RENT, Desk

AT_LEASE = {"path": "docs/lease.md", "quote": RENT}


def filled(desk: Desk) -> Notebook:
    """Every kind of note: observed, user, moved evidence, contested, revoked, merged, valid until."""
    desk.note("rent", "42", AT_LEASE)
    desk.other("second").note("rent", "90, I think")
    desk.note("user", "c", kind="user", valid="2999-01-01", applies_to="docs/lease.md", links=["rent"])
    desk.note("until", "c", valid="docs/diary.txt")
    said = desk.say("user", "by Friday")
    desk.note("deadline", "c", {"chunk_id": said, "quote": "by Friday"})
    desk.note("poison", "c", {"path": "docs/diary.txt", "quote": "counted 7 sacks"})
    desk.workspace.notebook.revoke("docs/diary.txt", author="me", reason="wrong")
    desk.note("a", "alpha")
    desk.note("b", "beta")
    desk.workspace.notebook.update("ab", "merge", keys=["a", "b"])
    desk.write("lease.md", "\n\n" + LEASE)
    desk.build()
    desk.read("rent")
    return desk.workspace.notebook


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Notebook]:
    from pensieve_mcp.notebook.schema import BASIN

    connections = Connections(tmp_path / "other" / "pensieve.db", basins=(BASIN,), precious=True)
    yield Notebook(connections)
    connections.close()


def told(note: Note) -> Note:
    """What travels: all but the numbers of another notebook's history."""
    evidence = tuple(replace(piece, basis="") for piece in note.evidence)
    return replace(note, revision=0, created=0.0, updated=0.0, contests=None, warnings=(), evidence=evidence)


@pytest.mark.parametrize("way", ["markdown", "json"])
def test_everything_comes_back_as_it_was(desk: Desk, other: Notebook, tmp_path: Path, way: str) -> None:
    notebook = filled(desk)
    if way == "markdown":
        written = export_markdown(notebook, tmp_path / "out")
        assert not written.problems
        taken = import_markdown(other, tmp_path / "out")
    else:
        taken = import_json(other, export_json(notebook))
    assert not taken.problems and len(taken.created) == len(list(notebook.all_notes()))

    assert [told(n) for n in other.all_notes()] == [told(n) for n in notebook.all_notes()]
    here, there = notebook.read("rent"), other.read("rent")
    assert here.contests is not None and there.contests is not None
    assert other.in_force(there).content == "42" and other.in_force(there).evidence[0].path == "docs/lease.md"
    assert told(other.in_force(there)) == told(notebook.in_force(here))
    again = import_json(other, export_json(notebook))
    assert len(again.unchanged) == len(taken.created), "a second time nothing changes"


def test_evidence_that_was_taken_in_is_looked_up_here(desk: Desk) -> None:
    """A file may say what it likes about its evidence; reading the note tells what is so."""
    desk.note("rent", "42", AT_LEASE)
    forged = to_markdown(desk.stored("rent")).replace("forty-two", "ninety").replace('"rent"', '"forged"')
    notebook = desk.workspace.notebook
    note = from_markdown(forged)
    assert note.evidence[0].state == "ok", "it claims so"
    folder = desk.folder.parent / "in"
    folder.mkdir()
    (folder / "forged.md").write_text(forged, encoding="utf-8")
    import_markdown(notebook, folder)

    assert desk.piece("forged")["state"] in ("changed", "unsupported"), "though the file is as it claims"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("status: sometimes", "status"),
        ("kind: prophecy", "kind"),
        ("contests: soon", "contests"),
        ("merged_from: x", "merged_from"),
        ('in_force: {"key": 5}', "in force"),
        ('in_force: "x"', "in force"),
        ("format: pensieve-note/99", "Update"),
    ],
)
def test_a_wrong_or_newer_field_costs_that_file_with_a_reason(desk: Desk, line: str, words: str) -> None:
    text = f"---\nkey: k\nsummary: s\n{line}\n---\n\nc"
    with pytest.raises(Miscast) as caught:
        from_markdown(text)
    assert words in str(caught.value)


def test_a_half_written_export_is_told_and_the_rest_is_taken_in(
    desk: Desk, other: Notebook, tmp_path: Path
) -> None:
    notebook = filled(desk)
    export_markdown(notebook, tmp_path / "out")
    victim = tmp_path / "out" / "deadline.md"
    whole = victim.read_text(encoding="utf-8")
    for size in range(0, whole.index("\n---", 4), 37):
        victim.write_text(whole[:size], encoding="utf-8")
        with pytest.raises(Miscast):
            from_markdown(victim.read_text(encoding="utf-8"), victim.name)
    taken = import_markdown(other, tmp_path / "out")

    assert len(taken.problems) == 1 and "deadline.md" in taken.problems[0]
    assert "rent" in taken.created and "deadline" not in taken.created

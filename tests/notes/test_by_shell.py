"""note check, diff, restore, status, settle, revoke, purge: keeping notes true by shell (issue 6, items 1 to 4, 8)."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.cli import run

from .conftest import LEASE, RENT


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Pensieve = Callable[..., Said]


@pytest.fixture
def pensieve(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Pensieve:
    for name in [name for name in os.environ if name.startswith("PENSIEVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PENSIEVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: str = "") -> Said:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = run(["--folder", str(folder), *arguments])
        return Said(code, *capsys.readouterr())

    assert call("index", str(folder)).code == 0
    return call


def test_check_tells_what_changed_and_lists_can_ask_for_it(pensieve: Pensieve, folder: Path) -> None:
    pensieve("note", "write", "rent", "42", "--from", "docs/lease.md", "--quote", RENT)
    pensieve("note", "write", "other", "x")
    assert pensieve("note", "check", "--strict").code == 0
    (folder / "lease.md").write_text(LEASE.replace("forty-two", "fifty"), encoding="utf-8")
    told = pensieve("note", "check", "--json").data

    assert told["states"] == {"changed": 1} and told["notes"] == 2
    assert told["changes"][0]["key"] == "rent" and "fifty" in told["changes"][0]["detail"]
    assert pensieve("note", "check", "--strict").code == 1
    assert pensieve("note", "list", "--evidence", "changed").out.startswith("rent\t42\t1")
    assert pensieve("note", "list", "--evidence", "ok").out == ""
    assert [
        one["key"] for one in pensieve("note", "search", "42", "--evidence", "changed", "--json").data
    ] == ["rent"]
    assert "fifty" in pensieve("note", "show", "rent").out


def test_a_note_whose_document_changed_is_no_longer_valid(pensieve: Pensieve, folder: Path) -> None:
    pensieve("note", "write", "a", "x", "--valid", "docs/lease.md")
    pensieve("note", "write", "b", "x", "--valid", "2020-01-01")
    assert pensieve("note", "write", "c", "x", "--valid", "sometime").code != 0
    (folder / "lease.md").write_text(LEASE + "more", encoding="utf-8")
    told = pensieve("note", "check", "--json").data

    assert [one["key"] for one in told["expired"]] == ["a", "b"]
    assert pensieve("note", "list", "--status", "needs review").out.count("\n") == 2


def test_a_writer_at_the_shell_is_told_of_notes_that_say_otherwise(pensieve: Pensieve) -> None:
    pensieve("note", "write", "mill/rent", "The rent of the mill is fifty florins a quarter.")
    told = pensieve("note", "write", "rent", "The rent of the mill is forty florins a quarter.")

    assert told.code == 0 and "'mill/rent' says otherwise" in told.err and "fifty florins" in told.err
    more = pensieve("note", "write", "rent", "It is due at quarter day.", "--append")
    assert "'mill/rent' says otherwise" in more.err
    assert "otherwise" not in pensieve("note", "write", "ford", "The ford of the mill is deep.").err


def test_revisions_are_compared_and_restored(pensieve: Pensieve) -> None:
    pensieve("note", "write", "rent", "Forty.\nA quarter.")
    assert pensieve("note", "diff", "rent").code != 0, "there is nothing to compare yet"
    pensieve("note", "write", "rent", "Forty-two.\nA quarter.")
    shown = pensieve("note", "diff", "rent").out

    assert "-Forty.\n" in shown and "+Forty-two.\n" in shown and "A quarter." in shown
    assert pensieve("note", "diff", "rent", "1", "2", "--json").data["new"] == 2
    assert pensieve("note", "restore", "rent", "1", "--expect-revision", "1").code != 0, (
        "somebody wrote meanwhile"
    )
    assert pensieve("note", "restore", "rent", "1").code == 0
    assert pensieve("note", "show", "rent", "--json").data["content"] == "Forty.\nA quarter."


def test_a_contest_is_settled_by_a_person(pensieve: Pensieve) -> None:
    pensieve("note", "write", "rent", "42", "--from", "docs/lease.md", "--quote", RENT)
    said = pensieve("note", "write", "rent", "90, I think", "--kind", "guess")
    assert "stays in force" in said.err
    assert "In force is revision 1" in pensieve("note", "show", "rent").out
    assert pensieve("note", "settle", "rent", "1").code == 0
    shown = pensieve("note", "show", "rent", "--json").data

    assert (shown["content"], shown["status"]) == ("42", "active")


def test_a_source_is_revoked_and_allowed_again(pensieve: Pensieve) -> None:
    pensieve("note", "write", "rent", "42", "--from", "docs/lease.md", "--quote", RENT)
    done = pensieve("note", "revoke", "--source", "docs/lease.md", "--reason", "forged", "--json").data
    assert done["revoked"] == ["rent"]
    assert "Unknown, check" in pensieve("note", "show", "rent").out
    assert pensieve("note", "revoke").out.startswith("docs/lease.md\tcli\tforged")
    assert pensieve("note", "revoke", "--source", "docs/lease.md", "--undo").code == 0

    assert pensieve("note", "list", "--evidence", "ok").out == "rent\t42\t3\n", (
        "set back without another word"
    )
    assert pensieve("note", "show", "rent", "--json").data["status"] == "active"
    assert pensieve("note", "revoke", "--source", "docs/lease.md", "--undo").code != 0


def test_taking_a_revocation_back_leaves_what_does_not_hold(pensieve: Pensieve, folder: Path) -> None:
    (folder / "side.txt").write_text("The mill has two stones.\n", encoding="utf-8")
    pensieve("index", str(folder))
    pensieve("note", "write", "rent", "42", "--from", "docs/lease.md", "--quote", RENT)
    pensieve(
        "note", "write", "stones", "two", "--from", "docs/side.txt", "--quote", "The mill has two stones"
    )
    pensieve("note", "write", "of-rent", "see", "--link", "rent")
    pensieve("note", "write", "of-stones", "see", "--link", "stones")
    pensieve("note", "write", "doubted", "d", "--from", "docs/lease.md", "--quote", RENT)
    pensieve("note", "status", "doubted", "needs review", "--reason", "mine")
    pensieve("note", "revoke", "--source", "docs", "--reason", "forged; all of it")
    (folder / "side.txt").write_text("The mill has three wheels.\n", encoding="utf-8")
    pensieve("index", str(folder))
    told = pensieve("note", "revoke", "--source", "docs", "--undo", "--json").data

    assert told["back"] == ["doubted", "of-rent", "rent"]
    assert dict(told["left"]) == {"stones": "its evidence is changed", "of-stones": "it links to 'stones'"}
    shown = pensieve("note", "show", "doubted", "--json").data
    assert (shown["status"], shown["reason"]) == ("needs review", "mine"), "as it was before"
    listed = {line["key"]: line for line in pensieve("note", "list", "--json").data}
    assert listed["stones"]["doubts"] == {"changed": 1} and listed["rent"]["status"] == "active"
    assert "stones\ttwo\t2\trevoked\t1 changed\n" in pensieve("note", "list", "--evidence", "changed").out


def test_a_note_without_evidence_is_what_its_writer_said(pensieve: Pensieve) -> None:
    pensieve("note", "write", "colour", "The door shall be green.")
    pensieve("note", "write", "rent", "42", "--from", "docs/lease.md", "--quote", RENT)
    pensieve("note", "write", "hunch", "It may rain.", "--kind", "guess")
    pensieve("cast", "checkBudget")
    told = pensieve("handoff").out.split("Not confirmed:")

    assert "colour: The door shall be green. [what the user said]" in told[0] and "rent: 42" in told[0]
    assert "hunch" in told[1] and "colour" not in told[1]


def test_a_source_is_purged_after_a_look(pensieve: Pensieve, folder: Path) -> None:
    pensieve("note", "write", "rent", "42", "--from", "docs/lease.md", "--quote", RENT)
    pensieve("note", "write", "other", "x")
    (folder / "lease.md").unlink()
    pensieve("index", str(folder))
    looked = pensieve("note", "purge", "--source", "docs/lease.md", "--dry-run", "--json").data
    assert looked["purged"] == ["rent"] and pensieve("note", "list").out.count("\n") == 2
    assert pensieve("note", "purge", "--source", "docs/lease.md", "--yes").code == 0

    assert pensieve("note", "list").out == "other\tx\t1\n"
    assert pensieve("note", "history", "rent").code != 0
    assert pensieve("note", "purge").code == 2, "what is to go must be named"

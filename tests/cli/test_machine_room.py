"""workspace, episodes, purge, doctor, help, and how the shell ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pensieve_mcp.cli.app import COMMANDS, app

from .conftest import Pensieve, command


def paths_of(group: click.Group, context: click.Context) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        child = group.get_command(context, name)
        assert child is not None
        found.append((name,))
        if isinstance(child, click.Group):
            found += [(name, *rest) for rest in paths_of(child, context)]
    return found


@pytest.mark.parametrize("path", paths_of(app, click.Context(app)), ids=" ".join)
def test_every_command_answers_help(pensieve: Pensieve, path: tuple[str, ...]) -> None:
    if path == ("serve",):
        return  # hands its arguments to pensieve-mcp, which ends the process on --help; tested below
    said = pensieve(*path, "--help")

    assert said.code == 0
    assert said.out.startswith(f"Usage: pensieve {' '.join(path)}")
    assert len(said.out.strip().splitlines()) >= 5, "a help page says what the command does"


def test_the_root_help_lists_every_command(pensieve: Pensieve) -> None:
    out = pensieve("--help").out

    hidden = {"hook"}  # for hosts, which call it by themselves
    assert {name for name in COMMANDS if f"  {name} " not in out} == hidden


def test_serve_is_the_server(tmp_path: Path) -> None:
    said = command(tmp_path, "serve", "--help")

    assert said.code == 0
    assert "pensieve-mcp" in said.out


def test_workspaces_are_added_listed_rebuilt_and_removed(pensieve: Pensieve, documents: Path) -> None:
    assert pensieve("workspace", "add", "mill", documents / "lease.md").code == 0
    added = pensieve("workspace", "add", "mill", documents / "herons.txt", "--json").data
    assert [root["name"] for root in added["roots"]] == ["lease.md", "herons.txt"]

    pensieve("--workspace", "mill", "index")
    pensieve("--workspace", "mill", "note", "write", "kept", "Through a rebuild.")
    before = pensieve("--workspace", "mill", "search", "notice", "--json").data["hits"][0]["id"]

    rebuilt = pensieve("workspace", "rebuild", "mill", "--json")
    assert rebuilt.data["documents"] == 2, rebuilt.err
    assert pensieve("--workspace", "mill", "search", "notice", "--json").data["hits"][0]["id"] == before
    assert pensieve("--workspace", "mill", "note", "show", "kept").code == 0

    assert [one["name"] for one in pensieve("workspace", "list", "--json").data] == ["mill"]
    assert pensieve("workspace", "remove", "mill", stdin="n\n").code != 0
    state = Path(pensieve("workspace", "list", "--json").data[0]["state"])
    assert pensieve("workspace", "remove", "mill", "--yes").code == 0
    assert not state.exists()
    assert (documents / "lease.md").exists()


def test_a_workspace_that_is_not_there_is_named(pensieve: Pensieve, documents: Path) -> None:
    pensieve("workspace", "add", "mill", documents)

    for arguments in (
        ("--workspace", "mil", "status"),
        ("workspace", "remove", "mil", "--yes"),
        ("workspace", "rebuild", "mil"),
    ):
        said = pensieve(*arguments)
        assert said.code == 1
        assert "mill" in said.err, "the ones there are"


def test_episodes_are_listed_replayed_exported_and_taken_in(
    pensieve: Pensieve, documents: Path, tmp_path: Path
) -> None:
    pensieve("index", documents)
    handle = pensieve("cast", "readChunk", "--json").data["episode"]
    pensieve("forget", "m2", "--episode", handle)

    assert handle in pensieve("episodes", "list").out
    replay = pensieve("episodes", "replay", handle).out
    assert "forgotten: m2" in replay
    assert "visible tokens" in replay
    assert pensieve("episodes", "export", handle, tmp_path / "e.jsonl").code == 0
    taken = pensieve("episodes", "import", tmp_path / "e.jsonl").out.strip()
    assert taken.startswith("e")
    assert taken != handle
    one, other = (pensieve("episodes", "show", which, "--json").data for which in (handle, taken))
    assert one["visible_tokens"] == other["visible_tokens"]
    assert pensieve("episodes", "show", "enobody").code == 1


def test_purging_asks_first_and_is_for_good(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    handle = pensieve("cast", "readChunk", "--json").data["episode"]
    pensieve("note", "write", "kept", "Notes stay.")

    assert pensieve("purge").code == 2
    assert pensieve("purge", "--episode", handle, stdin="n\n").code != 0
    assert pensieve("episodes", "show", handle).code == 0
    assert pensieve("purge", "--episode", handle, "--yes", "--json").data["episodes"] == 1
    assert pensieve("episodes", "show", handle).code == 1
    assert pensieve("note", "show", "kept").code == 0


def test_doctor_shows_settings_with_their_source(
    pensieve: Pensieve, documents: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pensieve("index", documents)
    (home / "settings.toml").write_text("window_tokens = 9000\n", encoding="utf-8")
    monkeypatch.setenv("PENSIEVE_ROUNDS", "7")

    said = pensieve("doctor", "--json", "--set", "chunk_tokens=500")

    settings = {one["name"]: one for one in said.data["settings"]}
    assert said.code == 0, [check for check in said.data["checks"] if check["state"] == "bad"]
    assert (settings["window_tokens"]["value"], settings["window_tokens"]["source"]) == (
        9000,
        str(home / "settings.toml"),
    )
    assert (settings["rounds"]["value"], settings["rounds"]["source"]) == (7, "PENSIEVE_ROUNDS")
    assert (settings["chunk_tokens"]["value"], settings["chunk_tokens"]["source"]) == (500, "argument")
    assert settings["result_bytes"]["source"] == "default"
    names = {check["name"] for check in said.data["checks"]}
    assert {"python", "sqlite", "disk", "pensieve.db", "corpus.db", "index", "encoder"} <= names


def test_doctor_finds_a_damaged_database_and_says_what_to_do(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    state = Path(pensieve("status", "--json").data["state_folder"])
    (state / "corpus.db").write_bytes(b"this is no database at all" * 200)
    for rest in ("corpus.db-wal", "corpus.db-shm"):
        (state / rest).unlink(missing_ok=True)

    said = pensieve("doctor", "--json")

    assert said.code == 1
    bad = [check for check in said.data["checks"] if check["state"] == "bad"]
    assert any(check["name"] == "corpus.db" for check in bad)
    assert all(check["advice"] for check in bad)


def test_doctor_reports_a_root_that_is_gone(pensieve: Pensieve, documents: Path) -> None:
    pensieve("workspace", "add", "mill", documents)
    documents.rename(documents.with_name("moved"))

    said = pensieve("--workspace", "mill", "doctor", "--json")

    assert said.code == 1
    assert any(
        check["name"] == "folder documents" and check["state"] == "bad" for check in said.data["checks"]
    )


def test_doctor_on_a_fresh_machine_is_content(pensieve: Pensieve) -> None:
    said = pensieve("doctor")

    assert said.code == 0
    assert "pensieve try" in said.out


def test_an_unforeseen_error_is_one_line_and_a_traceback_on_request(
    pensieve: Pensieve, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pensieve_mcp.workspace

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the roof\nfell in")

    monkeypatch.setattr(pensieve_mcp.workspace.Workspace, "open", fail)

    said = pensieve("index", documents)
    assert said.code == 1
    assert "RuntimeError: the roof fell in" in said.err
    assert "Traceback" not in said.err

    monkeypatch.setenv("PENSIEVE_DEBUG", "1")
    with pytest.raises(RuntimeError):
        pensieve("index", documents)


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe looks otherwise on Windows")
def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """`pensieve spec --json | head -c 1` must not print a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pensieve_mcp.cli", "spec", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PENSIEVE_HOME": str(tmp_path)},
    )
    assert process.stdout and process.stderr
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()

    assert process.wait(timeout=60) == 0
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_no_line_of_a_help_is_cut_off() -> None:
    def cut(command: click.Command, path: str) -> list[str]:
        if not isinstance(command, click.Group):
            return []
        context = click.Context(command, info_name=path)
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}
        room = 78 - 6 - max(len(name) for name in below)  # of a terminal of 80 columns, as click reckons
        short = [
            f"{path} {name}"
            for name, one in below.items()
            if one and one.get_short_help_str(room)[-3:] == "..."
        ]
        return short + [line for name, one in below.items() if one for line in cut(one, f"{path} {name}")]

    assert cut(app, "pensieve") == []


def test_purging_old_conversations_says_how_many_before_it_asks(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    pensieve("cast", "checkBudget")
    none = pensieve("purge", "--older-than", "30")
    assert (none.code, none.out) == (0, "No conversation is unused for 30 days; nothing is removed.\n")
    asked = pensieve("purge", "--older-than", "0", stdin="n\n")

    assert asked.code == 1 and "Remove 1 conversation not used for 0 days" in asked.err


def test_a_file_that_is_not_there_is_neither_in_nor_out(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    for name in ("documents/none.txt", str(documents / "none.txt"), "none.txt"):
        said = pensieve("explain", name)
        assert (said.code, said.out) == (1, "") and f"{name} is not there." in said.err
    assert pensieve("explain", documents / "lease.md").code == 0
    assert "none of the roots" in pensieve("explain", __file__).out


def test_the_sentence_model_reads_now_when_told_to_and_where_it_stands_is_said(
    pensieve: Pensieve, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "lease.md").write_text("The mill at Ashford is let to the brothers Teller.\n", encoding="utf-8")
    first = pensieve("index", folder)
    assert "has read 0 of 1 passage" in first.err and "`pensieve index --meaning` does it now" in first.err
    assert "`pensieve index --meaning`" in pensieve("status").out
    told = pensieve("index", folder, "--meaning")
    assert (told.code, told.err) == (0, "")
    assert "the sentence model has read every passage" in pensieve("status").out
    assert "Search by meaning" not in pensieve("index", folder).err
    off = pensieve("index", folder, "--set", "upgrade=false")
    assert "Search by meaning" not in off.err

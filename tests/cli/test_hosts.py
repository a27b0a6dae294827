"""install and uninstall at the shell, in a home of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Pensieve


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without hosts; no variable of the person at the machine moves a configuration."""
    folder = tmp_path / "somebody"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    for name in (
        "APPDATA",
        "LOCALAPPDATA",
        "XDG_CONFIG_HOME",
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "OPENCODE_CONFIG",
    ):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_one_command_adds_the_server_and_one_takes_it_out(
    pensieve: Pensieve, at_home: Path, documents: Path
) -> None:
    place = at_home / ".codex" / "config.toml"
    place.parent.mkdir()
    place.write_text('model = "x" # mine\n')
    done = pensieve("install", "codex", documents)

    assert done.code == 0 and done.out == "" and "set up. Start Codex anew." in done.err
    assert "# mine" in place.read_text() and str(documents) in place.read_text()
    assert (backup := list(place.parent.glob("*backup*"))) and backup[0].read_text() == 'model = "x" # mine\n'
    assert "nothing to do" in pensieve("install", "codex", documents).err
    assert "nothing to do" in pensieve("install", "codex").err, "without a path the folders stay"

    gone = pensieve("uninstall", "codex")
    assert gone.code == 0 and "taken out" in gone.err
    assert place.read_text() == 'model = "x" # mine\n'
    assert "not set up there; nothing to do" in pensieve("uninstall", "codex").err


def test_a_dry_run_shows_the_change_and_makes_none(
    pensieve: Pensieve, at_home: Path, documents: Path
) -> None:
    shown = pensieve("install", "cursor", documents, "--dry-run")

    assert shown.code == 0 and '+    "pensieve": {' in shown.out and str(documents) in shown.out
    assert not list(at_home.rglob("*"))


def test_the_printed_entry_is_the_one_that_would_be_written(
    pensieve: Pensieve, at_home: Path, documents: Path
) -> None:
    printed = pensieve("install", "lmstudio", documents, "--print")
    assert printed.code == 0 and "mcp.json" in printed.err and not list(at_home.rglob("*"))
    pensieve("install", "lmstudio", documents)

    assert json.loads((at_home / ".lmstudio" / "mcp.json").read_text()) == json.loads(printed.out)


def test_settings_and_workspace_go_into_the_entry(pensieve: Pensieve, at_home: Path) -> None:
    given = ("--workspace", "papers", "--set", "window_tokens=9000", "install", "claude-desktop", "--json")
    done = pensieve(*given)

    assert done.code == 0, done.err
    words = done.data["entry"]["args"]
    assert words[-4:] == ["--workspace", "papers", "--set", "window_tokens=9000"]
    assert done.data["changed"] is True and len(done.data["files"]) == 1


def test_permission_is_given_only_when_asked(pensieve: Pensieve, at_home: Path, documents: Path) -> None:
    pensieve("install", "claude-code", documents)
    assert not (at_home / ".claude" / "settings.json").exists()
    done = pensieve("install", "claude-code", documents, "--allow")

    assert done.code == 0
    rules = json.loads((at_home / ".claude" / "settings.json").read_text())
    assert rules == {"permissions": {"allow": ["mcp__pensieve"]}}
    assert "mcp__pensieve" not in pensieve("uninstall", "claude-code").out
    assert not (at_home / ".claude" / "settings.json").exists(), "it was ours, and nothing else is in it"


def test_a_project_gets_a_file_of_its_own(
    pensieve: Pensieve, at_home: Path, documents: Path, tmp_path: Path
) -> None:
    project = tmp_path / "a project"
    project.mkdir()
    done = pensieve("install", "vscode", "--scope", "project", "--project", project)

    assert done.code == 0 and "paths of this machine" in done.err
    entry = json.loads((project / ".vscode" / "mcp.json").read_text())["servers"]["pensieve"]
    assert entry["args"][-1] == "${workspaceFolder}" and Path(entry["command"]).is_absolute()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("install", "cursr"), "Did you mean cursor"),
        (("install", "goose"), "pensieve install goose FOLDER"),
        (("install", "codex", "nowhere"), "is not there"),
        (("install", "goose", ".", "--scope", "project"), "--scope user"),
        (("install", "codex", "--name", "a b"), "cannot name a server"),
        (("uninstall", "nobody"), "Known are"),
        (("install", "codex", "--scope", "project", "--project", "nowhere"), "is not a folder"),
    ],
)
def test_a_wrong_word_is_told_with_the_next_step(
    words: tuple[str, ...], told: str, pensieve: Pensieve, at_home: Path
) -> None:
    done = pensieve(*words)

    assert done.code == 1 and told in done.err
    assert not list(at_home.rglob("*"))


def test_a_broken_file_is_refused_and_kept(pensieve: Pensieve, at_home: Path, documents: Path) -> None:
    place = at_home / ".gemini" / "settings.json"
    place.parent.mkdir()
    place.write_text("{ not json")
    done = pensieve("install", "gemini", documents)

    assert done.code == 1 and "Line 1 is not JSON" in done.err and "--print" in done.err
    assert place.read_text() == "{ not json" and list(place.parent.iterdir()) == [place]
    assert str(documents) in pensieve("install", "gemini", documents, "--print").out


def test_without_a_host_the_hosts_are_listed(pensieve: Pensieve, at_home: Path) -> None:
    (at_home / ".cursor").mkdir()
    lines = dict(line.split("\t")[0:3:2] for line in pensieve("install").out.splitlines())

    assert len(lines) == 9 and lines["cursor"] == "found" and lines["codex"] == "not found"
    assert {one["host"] for one in pensieve("install", "--json").data} == set(lines)


def test_the_doctor_looks_at_the_hosts(pensieve: Pensieve, at_home: Path, documents: Path) -> None:
    pensieve("install", "cursor", documents)
    for file in documents.iterdir():
        file.unlink()
    documents.rmdir()
    told = pensieve("doctor", "--json").data["checks"]
    mine = [one for one in told if one["name"] == "Cursor"]

    assert any(one["state"] == "bad" and "is not there" in one["detail"] for one in mine), told


def test_plugin_and_hook_are_shown_put_and_taken_away(
    pensieve: Pensieve, at_home: Path, documents: Path
) -> None:
    """--print for whoever pastes, --dry-run for whoever looks; then both, and nothing of them afterwards."""
    asked = ("install", "claude-code", documents, "--plugin", "--hook")
    printed = pensieve(*asked, "--print")
    assert "session.compact" in printed.out and '"SessionStart"' in printed.out
    assert "register.js:" in printed.err and "settings.json:" in printed.err
    shown = pensieve(*asked, "--dry-run")
    assert "+export const register" in shown.out and "hook session-start" in shown.out
    assert not list(at_home.rglob("*"))

    done = pensieve(*asked, "--json")
    assert done.code == 0 and sum("pensieve-mod" in one for one in json.loads(done.out)["files"]) == 3
    assert "nothing to do" in pensieve(*asked).err
    codex = pensieve("install", "codex", documents, "--hook")
    assert "after you have trusted it" in codex.err
    gone = pensieve("uninstall", "claude-code")
    assert "register.js (removed)" in gone.err
    assert not (at_home / ".claude" / "skills" / "pensieve-mod").exists()
    refused = pensieve("install", "cursor", documents, "--plugin")
    assert refused.code == 1 and "Cursor takes no plugin" in refused.err

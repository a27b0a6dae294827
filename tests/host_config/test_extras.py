"""Plugin and hook are put beside the server, brought up to date, looked at by doctor, and taken away again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.errors import Conflict, Miscast
from pensieve_mcp.hosts import extras, files, installing
from pensieve_mcp.hosts.catalog import HOSTS, Launch
from pensieve_mcp.hosts.checkup import Finding, checkup
from pensieve_mcp.hosts.errors import HostError, NotUnderstood
from pensieve_mcp.hosts.machine import Machine
from pensieve_mcp.hosts.versions import installed_version

PLUGGED = sorted(name for name, host in HOSTS.items() if host.plugin)
HOOKED = sorted(name for name, host in HOSTS.items() if host.hook)
ODD = "/opt/Größe 100% \"a\" 'b' $x/bin/pensieve"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    return Machine("linux", home, {}, which=lambda name: None)


@pytest.fixture
def shell(tmp_path: Path) -> Launch:
    """The command that plugins and hooks ask, at a place that is hard to quote."""
    place = tmp_path / "Größe 100% 'b' $x" / "pensieve"
    place.parent.mkdir()
    place.write_text("")
    return Launch(str(place))


def planned(host: str, machine: Machine, shell: Launch, **more: Any) -> installing.Plan:
    return installing.plan_install(
        HOSTS[host], machine, Launch(shell.command + "-mcp"), ["/data"], shell=shell, **more
    )


def put(host: str, machine: Machine, shell: Launch, **more: Any) -> list[Path]:
    return [one.path for one in installing.apply(planned(host, machine, shell, **more))]


def everything(machine: Machine) -> dict[str, str]:
    return {str(path): path.read_text() for path in Path(machine.home).rglob("*") if path.is_file()}


def findings(machine: Machine, project: Path | None = None) -> list[Finding]:
    return checkup(machine, project, installed_version(), asked=lambda command: installed_version())


def test_the_hosts_that_take_them() -> None:
    assert PLUGGED == ["claude-code", "opencode"] and HOOKED == ["claude-code", "codex"]


@pytest.mark.parametrize("name", sorted({*PLUGGED, *HOOKED}))
def test_they_are_put_once_and_taken_away_whole(name: str, machine: Machine, shell: Launch) -> None:
    both = {"plugin": name in PLUGGED, "hook": name in HOOKED}
    written = put(name, machine, shell, allow=True, **both)

    assert len(written) == len(set(written)), "no file is written twice"
    assert not planned(name, machine, shell, allow=True, **both).needed
    assert not planned(name, machine, shell).needed, "what was put stays where it is not named"
    installing.apply(installing.plan_uninstall(HOSTS[name], machine))
    left = {name: text for name, text in everything(machine).items() if "pensieve-backup" not in name}
    assert all("pensieve" not in text and "SessionStart" not in text for text in left.values()), left
    assert not installing.plan_uninstall(HOSTS[name], machine).needed


@pytest.mark.parametrize("name", PLUGGED)
def test_a_plugin_is_brought_up_to_date_without_copies(name: str, machine: Machine, shell: Launch) -> None:
    scripts = [path for path in put(name, machine, shell, plugin=True) if path.suffix == ".js"]
    scripts[0].write_text(scripts[0].read_text() + "// an older version\n")
    assert any("another version" in one.detail for one in findings(machine))

    assert put(name, machine, shell) == scripts
    assert "older" not in scripts[0].read_text() and not list(scripts[0].parent.glob("*backup*"))
    assert extras.asked_program(scripts[0].read_text()) == shell.command


@pytest.mark.parametrize("name", PLUGGED)
def test_somebody_elses_plugin_of_that_name_is_left_alone(name: str, machine: Machine, shell: Launch) -> None:
    host = HOSTS[name]
    assert host.plugin is not None
    place = Path(host.plugin(machine, None))
    foreign = place if place.suffix else place / ".claude-plugin" / "plugin.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"name": "mine"}')

    with pytest.raises(HostError, match="not of ours"):
        put(name, machine, shell, plugin=True)
    put(name, machine, shell)
    installing.apply(installing.plan_uninstall(host, machine))
    assert foreign.read_text() == '{"name": "mine"}'


def test_what_else_lies_in_the_plugins_folder_stays(machine: Machine, shell: Launch) -> None:
    put("claude-code", machine, shell, plugin=True)
    folder = Path(machine.home) / ".claude" / "skills" / "pensieve-mod"
    (folder / "hooks" / "mine.txt").write_text("mine")
    installing.apply(installing.plan_uninstall(HOSTS["claude-code"], machine))

    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["mine.txt"]
    (folder / "hooks" / "mine.txt").unlink()


@pytest.mark.parametrize("name", HOOKED)
def test_other_hooks_and_comments_stay(name: str, machine: Machine, shell: Launch) -> None:
    host = HOSTS[name]
    assert host.hook is not None
    place = Path(host.hook(machine, None).path)
    place.parent.mkdir(parents=True)
    mine = (
        '{\n  // mine\n  "hooks": {\n    "SessionStart": [\n'
        '      {"hooks": [{"type": "command", "command": "greet"}]}\n    ],\n    "Stop": []\n  }\n}\n'
    )
    place.write_text(mine)
    put(name, machine, shell, hook=True)
    text = place.read_text()
    assert "// mine" in text and "greet" in text and "session-start" in text
    assert [path for path in place.parent.glob("*backup*") if path.read_text() == mine]

    moved = Launch("/elsewhere/pensieve")
    put(name, machine, moved)
    assert len(extras.hooks_of_ours(json.loads(place.read_text().replace("// mine", "")))) == 1
    assert "/elsewhere/pensieve hook session-start" in place.read_text()
    installing.apply(installing.plan_uninstall(host, machine))
    assert place.read_text() == mine


def test_a_hook_and_a_rule_in_one_file_are_one_change(machine: Machine, shell: Launch) -> None:
    plan = planned("claude-code", machine, shell, allow=True, hook=True)
    settings = [change for change in plan.changes if change.found.path.name == "settings.json"]

    assert len(settings) == 1
    data = json.loads(settings[0].after or "")
    assert data["permissions"]["allow"] == ["mcp__pensieve"] and extras.hooks_of_ours(data)


def test_the_hooks_line_is_quoted_for_the_shell_that_runs_it() -> None:
    import shlex

    line = extras.hook_item(Launch(ODD), ["--state", "/a b"])["hooks"][0]["command"]
    assert shlex.split(line) == [ODD, "hook", "session-start", "--state", "/a b"]
    start = Launch(r"C:\Users\Ada Lovelace\pensieve.exe")
    line = extras.hook_item(start, (), windows=True)["hooks"][0]["command"]
    assert line == '"C:/Users/Ada Lovelace/pensieve.exe" hook session-start'


def test_a_state_folder_of_ones_own_is_named_to_the_hook(machine: Machine, shell: Launch) -> None:
    options = ["--workspace", "w", "--state", "/my state", "--set", "rounds=9"]
    plan = planned("codex", machine, shell, hook=True, options=options)
    line = json.loads(plan.changes[-1].after or "")["hooks"]["SessionStart"][0]["hooks"][0]["command"]

    assert line.endswith("hook session-start --state '/my state'")


def test_a_host_that_takes_none_says_so(machine: Machine, shell: Launch) -> None:
    with pytest.raises(Miscast, match="Cursor takes no plugin"):
        put("cursor", machine, shell, plugin=True)
    with pytest.raises(Miscast, match="opencode takes no hook"):
        put("opencode", machine, shell, hook=True)
    assert not everything(machine)


def test_hook_and_plugin_go_with_the_last_server(machine: Machine, shell: Launch) -> None:
    put("claude-code", machine, shell, plugin=True, hook=True)
    put("claude-code", machine, shell, name="pensieve-docs")
    installing.apply(installing.plan_uninstall(HOSTS["claude-code"], machine, name="pensieve-docs"))
    assert extras.has_plugin(HOSTS["claude-code"], machine, None)
    assert "session-start" in (Path(machine.home) / ".claude" / "settings.json").read_text()

    with pytest.raises(Miscast, match="knows the server as pensieve"):
        put("claude-code", machine, shell, name="pensieve-docs", plugin=True)


def test_a_file_that_cannot_be_read_stops_only_who_asks_for_the_hook(machine: Machine, shell: Launch) -> None:
    place = Path(machine.home) / ".codex" / "hooks.json"
    place.parent.mkdir()
    place.write_text("{broken")

    put("codex", machine, shell)
    with pytest.raises(NotUnderstood):
        put("codex", machine, shell, hook=True)
    installing.apply(installing.plan_uninstall(HOSTS["codex"], machine))
    assert place.read_text() == "{broken"
    assert any(one.state == "bad" and "hooks.json" in one.detail for one in findings(machine))


@pytest.mark.parametrize("name", sorted({*PLUGGED, *HOOKED}))
def test_a_project_has_its_own(name: str, machine: Machine, shell: Launch, tmp_path: Path) -> None:
    project = tmp_path / "my project"
    project.mkdir()
    both = {"plugin": name in PLUGGED, "hook": name in HOOKED}
    written = put(name, machine, shell, scope="project", project=project, **both)

    assert all(path.is_relative_to(project.resolve()) for path in written)
    assert not everything(machine)
    told = [
        one.detail for one in findings(machine, project) if str(project) in one.detail and one.state == "ok"
    ]
    assert len(told) == sum(both.values())


def test_doctor_says_what_is_well_and_what_is_gone(machine: Machine, shell: Launch) -> None:
    for name in ("claude-code", "codex", "opencode"):
        put(name, machine, shell, plugin=name in PLUGGED, hook=name in HOOKED)
    Path(shell.command + "-mcp").write_text("")
    told = [one.detail for one in findings(machine) if one.state == "ok"]
    assert sum("takes deleted text out of the prompt" in one for one in told) == 2
    assert sum("gives the handoff back" in one for one in told) == 2

    Path(shell.command).unlink()
    bad = [one for one in findings(machine) if one.state == "bad"]
    assert sorted(one.advice for one in bad if "which is not there" in one.detail) == [
        "pensieve install claude-code --hook",
        "pensieve install claude-code --plugin",
        "pensieve install codex --hook",
        "pensieve install opencode --plugin",
    ]


def test_a_plugin_without_a_server_is_said(machine: Machine, shell: Launch) -> None:
    put("opencode", machine, shell, plugin=True)
    (Path(machine.home) / ".config" / "opencode" / "opencode.json").unlink()
    assert any("has no server beside it" in one.detail for one in findings(machine))


def test_a_file_changed_meanwhile_is_not_removed(machine: Machine, shell: Launch) -> None:
    (place,) = [path for path in put("opencode", machine, shell, plugin=True) if path.suffix == ".js"]
    found = files.read(place)
    place.write_text("somebody else's")

    with pytest.raises(Conflict):
        files.remove(found)
    assert place.read_text() == "somebody else's"

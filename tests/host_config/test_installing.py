"""Installing into a home of the test's own, and the places on systems that are not this one."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from pensieve_mcp.errors import Conflict, Miscast, PensieveError
from pensieve_mcp.hosts import files, installing
from pensieve_mcp.hosts.catalog import HOSTS, Launch, launcher_length, served
from pensieve_mcp.hosts.errors import HostError, NotUnderstood
from pensieve_mcp.hosts.machine import Machine
from pensieve_mcp.spellbook.registry import spellbook

START = Launch("/opt/pensieve/bin/pensieve-mcp")
ODD = "/data/Größe 100% \"a\" 'b' 灯台"
NAMES = sorted(HOSTS)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    return Machine("linux", home, {}, which=lambda name: None)


def added(host: str, machine: Machine, /, *folders: str, **more: Any) -> installing.Plan:
    return installing.plan_install(HOSTS[host], machine, START, folders or (ODD,), **more)


def on(system: Any, *there: str, **environment: str) -> Machine:
    """A machine of paper, on which only these paths exist."""
    kind: type[PurePath] = PureWindowsPath if system == "windows" else PurePosixPath
    home = {"windows": "C:/Users/ada", "macos": "/Users/ada", "linux": "/home/ada"}[system]
    paths = {kind(path) for path in there}
    return Machine(
        system,
        kind(home),
        environment,
        exists=lambda path: path in paths,
        matching=lambda folder, pattern: sorted(
            path for path in paths if path.parent == folder and path.match(pattern)
        ),
        which=lambda name: None,
    )


# -- places --------------------------------------------------------------------------------------------------

PLACES = {
    ("claude-code", "linux"): "/home/ada/.claude.json",
    ("claude-code", "windows"): "C:/Users/ada/.claude.json",
    ("codex", "macos"): "/Users/ada/.codex/config.toml",
    ("codex", "windows"): "C:/Users/ada/.codex/config.toml",
    ("claude-desktop", "macos"): "/Users/ada/Library/Application Support/Claude/claude_desktop_config.json",
    ("claude-desktop", "windows"): "C:/Users/ada/AppData/Roaming/Claude/claude_desktop_config.json",
    ("claude-desktop", "linux"): "/home/ada/.config/Claude/claude_desktop_config.json",
    ("vscode", "linux"): "/home/ada/.config/Code/User/mcp.json",
    ("vscode", "macos"): "/Users/ada/Library/Application Support/Code/User/mcp.json",
    ("vscode", "windows"): "C:/Users/ada/AppData/Roaming/Code/User/mcp.json",
    ("cursor", "windows"): "C:/Users/ada/.cursor/mcp.json",
    ("gemini", "macos"): "/Users/ada/.gemini/settings.json",
    ("goose", "linux"): "/home/ada/.config/goose/config.yaml",
    ("goose", "macos"): "/Users/ada/.config/goose/config.yaml",
    ("goose", "windows"): "C:/Users/ada/AppData/Roaming/Block/goose/config/config.yaml",
    ("opencode", "linux"): "/home/ada/.config/opencode/opencode.json",
    ("opencode", "windows"): "C:/Users/ada/.config/opencode/opencode.json",
    ("lmstudio", "windows"): "C:/Users/ada/.lmstudio/mcp.json",
    ("lmstudio", "macos"): "/Users/ada/.lmstudio/mcp.json",
}


@pytest.mark.parametrize(("host", "system"), PLACES, ids=lambda one: one)
def test_the_configuration_is_where_the_host_keeps_it(host: str, system: str) -> None:
    assert HOSTS[host].user(on(system)).path.as_posix() == PLACES[host, system]


def test_the_stores_claude_desktop_on_windows_keeps_it_in_its_package() -> None:
    package = "C:/Users/ada/AppData/Local/Packages/Claude_pzs8sxrjxfjjc"
    place = HOSTS["claude-desktop"].user(on("windows", package)).path

    assert place.as_posix() == f"{package}/LocalCache/Roaming/Claude/claude_desktop_config.json"


def test_variables_move_the_configuration() -> None:
    assert HOSTS["codex"].user(on("linux", CODEX_HOME="/c")).path == PurePosixPath("/c/config.toml")
    assert HOSTS["claude-code"].user(on("linux", CLAUDE_CONFIG_DIR="/c")).path == PurePosixPath(
        "/c/.claude.json"
    )
    assert HOSTS["opencode"].user(on("linux", OPENCODE_CONFIG="/c/o.json")).path == PurePosixPath("/c/o.json")
    moved = HOSTS["claude-desktop"].user(on("windows", APPDATA="D:/Roaming")).path
    assert moved == PureWindowsPath("D:/Roaming/Claude/claude_desktop_config.json")
    assert (
        HOSTS["goose"]
        .user(on("linux", XDG_CONFIG_HOME="relative"))
        .path.as_posix()
        .startswith("/home/ada/.config/")
    )


def test_an_opencode_file_with_comments_is_preferred() -> None:
    there = "/home/ada/.config/opencode/opencode.jsonc"

    assert HOSTS["opencode"].user(on("linux", there)).path.as_posix() == there


# -- what starts the server ----------------------------------------------------------------------------------


def test_the_script_beside_python_is_taken() -> None:
    machine = on("windows", "C:/v/Scripts/pensieve-mcp.exe")
    start = installing.launch("C:\\v\\Scripts\\python.exe", machine, "1.0")

    assert start == Launch("C:\\v\\Scripts\\pensieve-mcp.exe")


def test_without_a_script_python_itself_is_taken() -> None:
    start = installing.launch("/v w/bin/python", on("linux"), "1.0")

    assert start == Launch("/v w/bin/python", ("-m", "pensieve_mcp.server"))
    assert launcher_length({"command": start.command, "args": [*start.arguments, "/x"]}) == 3


def test_a_runners_cache_is_not_written_down() -> None:
    """It may be swept any day; the runner is written with the version pinned."""
    swept = "/home/ada/.cache/uv/archive-v0/3xK/bin/python"
    start = installing.launch(swept, replace(on("linux"), which=lambda name: f"/usr/bin/{name}"), "1.0")

    assert start == Launch("/usr/bin/uvx", ("--from", "pensieve-statelm==1.0", "pensieve-mcp"))
    with pytest.raises(HostError, match="temporary"):
        installing.launch(swept, on("linux"), "1.0")


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"command": "/a/pensieve-mcp", "args": ["/x"]}, 1), ({"command": "C:\\a\\Pensieve-MCP.exe"}, 1),
        ({"cmd": "pensieve-mcp", "args": []}, 1), ({"command": ["/a/python", "-m", "pensieve_mcp.server", "/x"]}, 3),
        ({"command": "uvx", "args": ["--from", "pensieve-statelm==0.1.0", "pensieve-mcp", "/x"]}, 4),
        ({"command": "uvx", "args": ["pensieve-statelm==0.1.0", "/x"]}, 2),
        ({"command": "C:\\u\\uvx.exe", "args": ["-q", "pensieve-statelm@0.1.0", "/x"]}, 3),
        ({"command": "pipx", "args": ["run", "pensieve-statelm", "/x"]}, 3),
        ({"command": "uvx", "args": ["other", "pensieve-statelm"]}, None),
        ({"command": "uvx", "args": ["pensieve-statelm-evil==0.1.0"]}, None),
        ({"command": "uvx", "args": ["pensieve-mcp"]}, None), ({"command": "npx", "args": ["pensieve"]}, None),
        ({"url": "http://x"}, None), ({}, None), ("text", None),
        ({"command": 5, "args": "x"}, None), ({"command": "-m"}, None),
    ],
)  # fmt: skip
def test_only_what_starts_our_server_is_ours(entry: Any, ours: int | None) -> None:
    """`uvx pensieve-mcp` would start a package of somebody else."""
    assert launcher_length(entry) == ours


def test_options_and_folders_of_an_entry_are_told_apart() -> None:
    entry = {
        "command": "pensieve-mcp",
        "args": ["--set", "a=1", "/x y", "--structured", "--workspace", "w", "/z"],
    }

    assert served(entry) == (["--set", "a=1", "--structured", "--workspace", "w"], ["/x y", "/z"])


# -- installing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_install_is_idempotent_and_uninstall_takes_it_all_back(name: str, machine: Machine) -> None:
    host = HOSTS[name]
    written = installing.apply(added(name, machine, allow=True))

    assert written and all(one.backup is None for one in written)
    text = written[0].path.read_text(encoding="utf-8")
    assert "/opt/pensieve/bin/pensieve-mcp" in text and "灯台" in text
    plan = added(name, machine, allow=True)
    assert not plan.needed and plan.entry is not None
    assert ODD in served(plan.entry)[1]
    if host.result_bytes:
        assert f"result_bytes={host.result_bytes}" in served(plan.entry)[0]
    assert not added(name, machine).needed, "permission once given is not taken by a repetition"

    gone = installing.apply(installing.plan_uninstall(host, machine))
    assert [one.path for one in gone] == [one.path for one in written] and all(one.is_gone for one in gone)
    assert not [path for path in Path(machine.home).rglob("*") if path.is_file()], "nothing is left of it"
    assert not installing.plan_uninstall(host, machine).needed


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_there_before_us_stays_though_nothing_is_in_it(name: str, machine: Machine) -> None:
    """Empty as it was, or with a remark of the person's; and what holds anything else stays in any case."""
    place = HOSTS[name].user(machine)
    path = Path(place.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remark = {"json": "// mine\n{}\n", "toml": "# mine\n", "yaml": "# mine\n"}[place.notation]
    for before, keeps_copy in (({"json": "{}\n"}.get(place.notation, ""), True), (remark, False)):
        path.write_text(before, encoding="utf-8")
        installing.apply(added(name, machine))
        copies = list(path.parent.glob(f"{path.name}.pensieve-backup-*"))
        assert len(copies) == 1
        if not keeps_copy:  # the person has thrown it away
            copies[0].unlink()
        installing.apply(installing.plan_uninstall(HOSTS[name], machine))
        assert path.exists() and "pensieve" not in path.read_text(encoding="utf-8")
        for copy in path.parent.glob(f"{path.name}.pensieve-backup-*"):
            copy.unlink()


@pytest.mark.parametrize("name", NAMES)
def test_uninstall_without_install_does_nothing(name: str, machine: Machine) -> None:
    plan = installing.plan_uninstall(HOSTS[name], machine)

    assert not plan.needed and not installing.apply(plan)
    assert not list(Path(machine.home).rglob("*"))


@pytest.mark.parametrize("name", [name for name in NAMES if HOSTS[name].project])
def test_a_project_has_a_file_of_its_own(name: str, machine: Machine, tmp_path: Path) -> None:
    project = tmp_path / "my project"
    project.mkdir()
    written = installing.apply(added(name, machine, scope="project", project=project, allow=True))

    assert all(one.path.is_relative_to(project.resolve()) for one in written)
    assert not list(Path(machine.home).rglob("*"))


@pytest.mark.parametrize("name", [name for name in NAMES if not HOSTS[name].project])
def test_a_host_without_project_files_says_so(name: str, machine: Machine) -> None:
    with pytest.raises(Miscast, match="no configuration of a project"):
        added(name, machine, scope="project", project=Path(machine.home))


@pytest.mark.parametrize("name", NAMES)
def test_without_folders_the_open_project_is_served_or_folders_are_asked_for(
    name: str, machine: Machine
) -> None:
    host = HOSTS[name]
    if host.own_folder is None:
        with pytest.raises(Miscast) as asked:
            installing.plan_install(host, machine, START, ())
        assert asked.value.slug == "no_folder" and f"pensieve install {name}" in asked.value.hint
    else:
        plan = installing.plan_install(host, machine, START, ())
        assert served(plan.entry)[1] == ([host.own_folder] if host.own_folder else [])


def test_a_new_version_keeps_folders_and_what_the_person_added(machine: Machine) -> None:
    written = installing.apply(added("claude-code", machine))
    data = json.loads(written[0].path.read_text(encoding="utf-8"))
    mine = data["mcpServers"]["pensieve"]
    mine["env"] = {"PENSIEVE_HOME": "/elsewhere"}
    mine["timeout"] = 99
    mine["args"] += ["--set", "window_tokens=9000"]
    written[0].path.write_text(json.dumps(data), encoding="utf-8")

    plan = installing.plan_install(HOSTS["claude-code"], machine, Launch("/new/pensieve-mcp"), ())
    assert plan.entry is not None and plan.entry["command"] == "/new/pensieve-mcp"
    assert plan.entry["env"] == {"PENSIEVE_HOME": "/elsewhere"} and plan.entry["timeout"] == 99
    options, folders = served(plan.entry)
    assert folders == [ODD] and options.count("window_tokens=9000") == 1
    assert sum(one.startswith("result_bytes=") for one in options) == 1


def test_an_entry_of_somebody_else_is_left_alone(machine: Machine) -> None:
    place = Path(HOSTS["cursor"].user(machine).path)
    place.parent.mkdir(parents=True)
    text = '{"mcpServers": {"pensieve": {"command": "uvx", "args": ["pensieve-mcp"]}}}'
    place.write_text(text)
    for plan in (
        lambda: added("cursor", machine),
        lambda: installing.plan_uninstall(HOSTS["cursor"], machine),
    ):
        with pytest.raises(HostError) as refused:
            plan()
        assert refused.value.slug == "host_name_taken"
    installing.apply(added("cursor", machine, name="pensieve-docs"))

    assert set(json.loads(place.read_text())["mcpServers"]) == {"pensieve", "pensieve-docs"}


@pytest.mark.parametrize("name", ["", "a b", "x" * 60, "ä", "a.b", "../x", "1a"])
def test_a_name_that_some_host_refuses_is_refused(name: str, machine: Machine) -> None:
    with pytest.raises(Miscast):
        added("codex", machine, name=name)


def test_tool_names_stay_under_64_characters_with_every_prefix() -> None:
    longest = max(len(name) for name in spellbook())
    server = "x" * installing.MOST_NAME
    for host in HOSTS.values():
        assert len(host.prefix.format(server=server)) + longest <= 64, host.name
    assert len("mcp__plugin_pensieve_pensieve__") + longest <= 64, "as a plugin of Claude Code"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("claude-code", "/a/${HOME}"),
        ("vscode", "/a/${x}"),
        ("gemini", "/a/$money"),
        ("opencode", "/a/{env:X}"),
    ],
)
def test_a_path_that_the_host_would_expand_is_refused(name: str, folder: str, machine: Machine) -> None:
    with pytest.raises(HostError, match="expand"):
        added(name, machine, folder)


def test_a_workspace_can_be_named_instead_of_folders(machine: Machine) -> None:
    plan = installing.plan_install(HOSTS["goose"], machine, START, (), options=("--workspace", "papers"))

    assert served(plan.entry) == (["--workspace", "papers"], [])


def test_a_codex_entry_is_required_and_patient(machine: Machine) -> None:
    (one,) = installing.apply(added("codex", machine, allow=True))
    entry = tomllib.loads(one.path.read_text(encoding="utf-8"))["mcp_servers"]["pensieve"]

    assert entry["required"] is True and entry["startup_timeout_sec"] >= 30
    assert entry["default_tools_approval_mode"] == "approve"


def test_near_names_of_hosts() -> None:
    assert installing.host("Claude Code").name == "claude-code"
    assert installing.host("vs code").name == "vscode"
    with pytest.raises(Miscast, match="no host 'cursr'") as wrong:
        installing.host("cursr")
    assert "cursor" in wrong.value.hint


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_entry_can_be_pasted(name: str, machine: Machine) -> None:
    host = HOSTS[name]
    plan = added(name, machine)
    place = host.user(machine)
    assert plan.entry is not None
    shown = installing.snippet(host, plan.name, plan.entry, place.notation)
    Path(place.path).parent.mkdir(parents=True, exist_ok=True)
    Path(place.path).write_text(shown, encoding="utf-8")

    assert not added(name, machine).needed


# -- files ---------------------------------------------------------------------------------------------------


def settings(machine: Machine, data: bytes) -> Path:
    place = Path(HOSTS["gemini"].user(machine).path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


def test_the_old_file_is_kept_beside(machine: Machine) -> None:
    place = settings(machine, b'{"theme": "x"}')
    place.chmod(0o640)
    (one,) = installing.apply(added("gemini", machine))

    assert one.backup is not None and one.backup.read_bytes() == b'{"theme": "x"}'
    assert one.backup.parent == place.parent
    if sys.platform != "win32":
        assert place.stat().st_mode & 0o777 == 0o640
    (two,) = installing.apply(installing.plan_uninstall(HOSTS["gemini"], machine))
    assert two.backup is not None and two.backup != one.backup


def test_a_byte_order_mark_stays(machine: Machine) -> None:
    place = settings(machine, b"\xef\xbb\xbf{}\r\n")
    installing.apply(added("gemini", machine))

    raw = place.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf{") and raw.count(b"\n") == raw.count(b"\r\n")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\xff\xfe{\x00}\x00", HostError),
        (b'{"a": "\xe9"}', HostError),
        (b"<html>", NotUnderstood),
        (b"\0\0\0", NotUnderstood),
    ],
)
def test_a_foreign_file_is_refused_and_stays_as_it_is(
    data: bytes, error: type[PensieveError], machine: Machine
) -> None:
    place = settings(machine, data)
    with pytest.raises(error) as refused:
        added("gemini", machine)

    assert refused.value.hint
    assert place.read_bytes() == data and list(place.parent.iterdir()) == [place]


def test_a_huge_file_is_refused_unread(machine: Machine) -> None:
    place = settings(machine, b"")
    with place.open("r+b") as file:
        file.truncate(files.MOST_BYTES + 1)
    with pytest.raises(HostError, match="MB"):
        added("gemini", machine)


def test_a_read_only_file_is_left_alone(machine: Machine) -> None:
    place = settings(machine, b"{}")
    place.chmod(0o444)
    with pytest.raises(HostError, match="read-only") as refused:
        installing.apply(added("gemini", machine))

    assert place.read_bytes() == b"{}" and "--print" in refused.value.hint
    place.chmod(0o644)


def test_a_folder_in_the_files_place_is_refused(machine: Machine) -> None:
    Path(HOSTS["gemini"].user(machine).path).mkdir(parents=True)
    with pytest.raises(HostError, match="not a file"):
        added("gemini", machine)


links = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege on Windows")


@links
def test_a_link_stays_a_link(machine: Machine, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "gemini.json"
    real.parent.mkdir()
    real.write_text("{}")
    place = settings(machine, b"")
    place.unlink()
    place.symlink_to(real)
    installing.apply(added("gemini", machine))

    assert place.is_symlink() and "pensieve" in real.read_text()


@links
@pytest.mark.parametrize("target", ["nowhere.json", "settings.json"])
def test_a_link_to_nowhere_or_to_itself_is_refused(target: str, machine: Machine) -> None:
    place = settings(machine, b"")
    place.unlink()
    place.symlink_to(target)
    with pytest.raises(HostError):
        added("gemini", machine)


def test_what_changed_meanwhile_is_not_overwritten(machine: Machine) -> None:
    place = settings(machine, b"{}")
    plan = added("gemini", machine)
    place.write_text('{"new": 1}')
    with pytest.raises(Conflict):
        installing.apply(plan)

    assert place.read_text() == '{"new": 1}'
    assert not list(place.parent.glob("*.tmp"))


def test_a_file_that_appeared_meanwhile_is_not_overwritten(machine: Machine) -> None:
    plan = added("gemini", machine)
    place = settings(machine, b'{"new": 1}')
    with pytest.raises(Conflict):
        installing.apply(plan)

    assert place.read_text() == '{"new": 1}'


def test_a_full_disk_costs_an_error_and_no_file(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    place = settings(machine, b'{"theme": "x"}')
    plan = added("gemini", machine)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match="No space left"):
        installing.apply(plan)

    assert place.read_bytes() == b'{"theme": "x"}'


def test_a_name_that_is_no_unicode_is_refused(machine: Machine) -> None:
    with pytest.raises(HostError, match="UTF-8"):
        installing.apply(added("gemini", machine, "/data/\udce9"))

    assert not Path(HOSTS["gemini"].user(machine).path).exists()


def test_many_servers_and_settings_stay(machine: Machine) -> None:
    others = {f"server{n}": {"command": "x", "args": [str(n)]} for n in range(300)}
    place = settings(machine, json.dumps({"mcpServers": others, "history": ["x" * 1000] * 500}).encode())
    installing.apply(added("gemini", machine))

    data = json.loads(place.read_text(encoding="utf-8"))
    assert data["mcpServers"].pop("pensieve") and data["mcpServers"] == others


def test_no_function_of_the_catalog_touches_the_disk() -> None:
    """Paths of paper work everywhere, so nothing may resolve or open them."""
    for host in HOSTS.values():
        for system in ("linux", "macos", "windows"):
            machine = on(system)
            assert host.user(machine).path.is_absolute()
            assert host.marks(machine)
            project: Callable[..., Any] | None = host.project
            if project:
                assert project(machine.home / "p", machine).path.is_relative_to(machine.home / "p")

"""What `pensieve doctor` says of the hosts: each trouble is made, and has to be named with a next step."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.hosts import installing
from pensieve_mcp.hosts.catalog import HOSTS, Launch
from pensieve_mcp.hosts.checkup import checkup
from pensieve_mcp.hosts.machine import Machine
from pensieve_mcp.hosts.starting import Finding, ask_version, other_installation

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


class Bench:
    """A home with a server's script in it, and whatever the test puts there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.script = folder / "pensieve-mcp"
        self.script.write_text("")
        self.documents = folder / "documents"
        self.documents.mkdir()
        self.environment: dict[str, str] = {}
        self.answer: Callable[[list[str]], str] = lambda command: "1.0"
        self.found: dict[str, str] = {}

    @property
    def machine(self) -> Machine:
        return Machine("linux", self.home, self.environment, which=self.found.get)

    def install(self, host: str, *folders: str, **more: Any) -> Path:
        plan = installing.plan_install(
            HOSTS[host], self.machine, Launch(str(self.script)), folders or (str(self.documents),), **more
        )
        return installing.apply(plan)[0].path

    def change(self, path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    def findings(self, project: Path | None = None) -> list[Finding]:
        return checkup(self.machine, project, "1.0", asked=self.answer)

    def told(self, words: str, state: str = "", project: Path | None = None) -> Finding:
        findings = self.findings(project)
        found = [one for one in findings if words in one.detail and state in ("", one.state)]
        assert found, "\n".join(f"{one.state} {one.host}: {one.detail}" for one in findings)
        return found[0]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_no_host_is_said(bench: Bench) -> None:
    only = bench.findings()

    assert len(only) == 1 and only[0].state == "note" and "Claude Desktop" in only[0].detail


def test_a_host_without_us_gets_the_command(bench: Bench) -> None:
    (bench.home / ".codex").mkdir()
    bench.found["goose"] = "/usr/bin/goose"

    assert bench.told("found, but pensieve is not set up").advice == "pensieve install codex"
    goose = [one for one in bench.findings() if one.host == "Goose"]
    assert goose[0].advice == "pensieve install goose FOLDER"


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_sound_entry_has_nothing_bad(name: str, bench: Bench) -> None:
    bench.install(name, allow=True)
    mine = [one for one in bench.findings() if one.host == HOSTS[name].title]

    assert [one.state for one in mine] == ["ok"], mine


def test_a_program_that_is_gone(bench: Bench) -> None:
    bench.install("gemini")
    bench.script.unlink()

    assert bench.told("which is not there", "bad").advice == "pensieve install gemini"


def test_a_bare_name_not_on_the_path(bench: Bench) -> None:
    path = bench.install("lmstudio")
    bench.change(path, lambda data: data["mcpServers"]["pensieve"].update(command="pensieve-mcp"))

    assert bench.told("not on the path", "bad")
    bench.found["pensieve-mcp"] = str(bench.script)
    assert bench.told("bare name", "note")


def test_another_version_or_python(bench: Bench) -> None:
    bench.install("cursor")
    bench.answer = lambda command: "0.9"
    assert "this is 1.0" in bench.told("starts version 0.9", "note").detail

    bench.answer = lambda command: ""
    assert "pip install pensieve-statelm" in bench.told("lacks the package", "bad").advice


@pytest.mark.parametrize("error", [OSError(8, "Exec format error"), subprocess.TimeoutExpired("x", 20)])
def test_a_program_that_does_not_run(error: Exception, bench: Bench) -> None:
    def fail(command: list[str]) -> str:
        raise error

    bench.install("cursor")
    bench.answer = fail

    assert bench.told(str(bench.script), "bad").advice


def test_a_runner_that_downloads(bench: Bench) -> None:
    path = bench.install("cursor")
    runner = bench.script.with_name("uvx")
    runner.write_text("")
    words = ["--from", "pensieve-statelm==1.0", "pensieve-mcp", str(bench.documents)]
    bench.change(path, lambda data: data["mcpServers"]["pensieve"].update(command=str(runner), args=words))

    assert "uv tool install" in bench.told("downloads at the first start", "note").advice


@pytest.mark.parametrize("there", [True, False], ids=["by name", "by path"])
def test_a_runner_that_is_missing(bench: Bench, there: bool) -> None:
    """Complaint: `spawn uvx ENOENT`. What helps without uv is this installation."""
    path = bench.install("cursor")
    runner = "uvx" if there else str(bench.script.with_name("uvx"))
    words = ["--from", "pensieve-statelm==1.0", "pensieve-mcp", str(bench.documents)]
    bench.change(path, lambda data: data["mcpServers"]["pensieve"].update(command=runner, args=words))

    finding = bench.told("starts through", "bad")
    assert "uvx, which is not" in finding.detail
    assert "pensieve install cursor starts this installation" in finding.advice and "uv" in finding.advice


@pytest.mark.parametrize(
    "words", [["--from", "pensieve-statelm==0.9", "pensieve-mcp"], ["pensieve-statelm@0.9"]]
)
def test_a_runner_that_is_told_another_version(bench: Bench, words: list[str]) -> None:
    path = bench.install("cursor")
    runner = bench.script.with_name("uvx")
    runner.write_text("")
    args = [*words, str(bench.documents)]
    bench.change(path, lambda data: data["mcpServers"]["pensieve"].update(command=str(runner), args=args))

    assert bench.told("starts version 0.9; this is 1.0", "note").advice == "pensieve install cursor"


def test_two_versions_side_by_side(bench: Bench) -> None:
    """Another one on the path than the one that `install` writes: told with both places."""
    ours = Launch(str(bench.script))
    assert other_installation(bench.machine, ours, "1.0", asked=bench.answer) is None, "none on the path"
    bench.found["pensieve-mcp"] = str(bench.script)
    assert other_installation(bench.machine, ours, "1.0", asked=bench.answer) is None, "ours on the path"
    bench.found["pensieve-mcp"] = "/elsewhere/pensieve-mcp"
    assert other_installation(bench.machine, ours, "1.0", asked=bench.answer) is None, "the same version"

    for answer, told in (("0.9", "version 0.9"), ("", "does not tell")):
        bench.answer = lambda command, answer=answer: answer  # type: ignore[misc]
        finding = other_installation(bench.machine, ours, "1.0", asked=bench.answer)
        assert finding is not None and finding.state == "note"
        assert told in finding.detail and "/elsewhere/pensieve-mcp" in finding.detail
        assert str(bench.script) in finding.detail and "uninstall" in finding.advice


def test_a_folder_that_is_gone(bench: Bench) -> None:
    bench.install("goose")
    bench.documents.rmdir()

    assert "documents is not there" in bench.told("is not there", "bad").detail


def test_a_desktop_host_without_folders(bench: Bench) -> None:
    path = bench.install("claude-desktop")
    bench.change(path, lambda data: data["mcpServers"]["pensieve"].update(args=[]))

    assert bench.told("no folder to serve", "bad").advice == "pensieve install claude-desktop FOLDER"


def test_permissions_that_are_missing(bench: Bench) -> None:
    bench.install("claude-code")

    assert bench.told("asks before each tool", "note").advice.startswith(
        "pensieve install claude-code --allow"
    )
    bench.install("claude-code", str(bench.home), allow=True)
    assert not [one for one in bench.findings() if "asks before" in one.detail]


def test_limits_that_are_too_tight(bench: Bench) -> None:
    path = bench.install("codex")
    text = (
        path.read_text()
        .replace("startup_timeout_sec = 60", "startup_timeout_sec = 2")
        .replace("required = true\n", "")
    )
    path.write_text("tool_output_token_limit = 1000\n" + text)
    assert bench.told("waits only 2 s", "note")
    assert bench.told("does not wait for the tools", "note")
    assert "result_bytes=3200" in bench.told("at most 1,000 tokens", "note").advice

    bench.install("claude-code", allow=True)
    bench.environment |= {"MCP_TIMEOUT": "5000", "MAX_MCP_OUTPUT_TOKENS": "2000"}
    assert bench.told("waits only 5 s", "note")
    assert bench.told("at most 2,000 tokens", "note")


def test_results_larger_than_the_host_shows(bench: Bench) -> None:
    path = bench.install("lmstudio")
    bench.change(
        path, lambda data: data["mcpServers"]["pensieve"]["args"].extend(["--set", "result_bytes=90000"])
    )

    assert bench.told("the host cuts above", "note")


def test_a_broken_file_is_named_with_its_line(bench: Bench) -> None:
    path = bench.install("cursor")
    path.write_text('{\n  "mcpServers": {,}\n}')

    assert "Line 2" in bench.told("is not JSON", "bad").detail


def test_an_entry_of_somebody_else(bench: Bench) -> None:
    path = bench.install("cursor")
    bench.change(
        path, lambda data: data["mcpServers"].update(pensieve={"command": "uvx", "args": ["pensieve-mcp"]})
    )

    assert "pensieve-statelm" in bench.told("starts something else", "note").advice


def test_an_entry_whose_program_is_gone_is_told_as_gone_whatever_it_was(bench: Bench, tmp_path: Path) -> None:
    path = bench.install("codex")
    gone = tmp_path / "gone" / "pensieve-renamed"
    path.write_text(f"[mcp_servers.pensieve]\ncommand = '{gone}'\n", encoding="utf-8")

    assert "is not there" in bench.told(str(gone), "bad").detail


@pytest.mark.parametrize("name", ["codex", "cursor", "gemini"])
def test_at_home_the_users_file_is_not_the_projects_as_well(bench: Bench, name: str) -> None:
    path = bench.install(name)
    home = path.parent.parent

    findings = [one for one in bench.findings(home) if one.host not in ("hosts", "uv")]

    assert not [one for one in findings if "twice" in one.detail]
    assert len(findings) == len(set(findings))


def test_two_servers_over_the_same_folders(bench: Bench, tmp_path: Path) -> None:
    bench.install("cursor")
    bench.install("cursor", name="docs")
    assert bench.told("every tool twice", "note").advice == "pensieve uninstall cursor --name docs"

    project = tmp_path / "project"
    project.mkdir()
    bench.install("gemini")
    bench.install("gemini", scope="project", project=project)
    assert bench.told("set up twice", "note", project).advice == "pensieve uninstall gemini --scope project"


def test_a_switched_off_entry(bench: Bench) -> None:
    path = bench.install("opencode")
    bench.change(path, lambda data: data["mcp"]["pensieve"].update(enabled=False))

    assert bench.told("switched off", "note")


PLUGINS = {
    "Claude Code": (
        "claude-code/plugin/.mcp.json",
        ".claude/plugins/cache/pensieve-statelm/pensieve/0.1.0/.mcp.json",
    ),
    "Codex": ("codex/plugin/.mcp.json", ".codex/plugins/cache/pensieve-statelm/pensieve/0.1.0/.mcp.json"),
    "Gemini CLI": ("gemini/gemini-extension.json", ".gemini/extensions/pensieve/gemini-extension.json"),
}
"""Host → the manifest, and where the host keeps it once installed (seen after installing it in the real host)."""
MANIFESTS = ROOT / "manifests"
with_plugin = pytest.mark.parametrize("title", sorted(PLUGINS))


def install_plugin(bench: Bench, title: str) -> None:
    source, kept = PLUGINS[title]
    place = bench.home / kept
    place.parent.mkdir(parents=True)
    place.write_text((MANIFESTS / source).read_text().replace(f"=={VERSION}", "==1.0"))
    (bench.home / ".claude").mkdir(exist_ok=True)
    (bench.home / ".claude" / "settings.json").write_text(
        '{"enabledPlugins": {"pensieve@pensieve-statelm": true}}'
    )
    (bench.home / ".codex").mkdir(exist_ok=True)
    (bench.home / ".codex" / "config.toml").write_text(
        '[plugins."pensieve@pensieve-statelm"]\nenabled = true\n'
    )


@with_plugin
def test_a_plugin_is_as_good_as_an_entry(bench: Bench, title: str) -> None:
    install_plugin(bench, title)
    bench.found["uvx"] = "/usr/bin/uvx"
    bench.environment["PENSIEVE_FOLDERS"] = str(bench.documents)
    mine = [one for one in bench.findings() if one.host == title]

    assert [one.state for one in mine] == ["ok"] and "by a plugin" in mine[0].detail, mine


@with_plugin
def test_a_plugin_without_its_runner(bench: Bench, title: str) -> None:
    install_plugin(bench, title)

    finding = bench.told("its plugin pensieve starts through uvx, which is not installed", "bad")
    assert finding.host == title and "Install uv" in finding.advice


@with_plugin
def test_a_plugin_of_another_version_and_an_entry_beside_it(bench: Bench, title: str) -> None:
    install_plugin(bench, title)
    place = bench.home / PLUGINS[title][1]
    place.write_text(place.read_text().replace("==1.0", "==0.7"))
    name = next(host.name for host in HOSTS.values() if host.title == title)
    bench.install(name, allow=True)

    assert bench.told("its plugin starts version 0.7; this is 1.0", "note").host == title
    twice = bench.told("set up twice, by a plugin and in", "note")
    assert twice.advice.startswith(f"pensieve uninstall {name}")


def test_folders_of_codexs_plugin_come_from_a_variable(bench: Bench) -> None:
    install_plugin(bench, "Codex")
    bench.found["uvx"] = "/usr/bin/uvx"
    unset = bench.told("PENSIEVE_FOLDERS names, and it is not set here", "note")
    assert "export PENSIEVE_FOLDERS=" in unset.advice and "pensieve install codex FOLDER" in unset.advice

    bench.environment["PENSIEVE_FOLDERS"] = str(bench.home / "gone")
    assert bench.told("gone, which PENSIEVE_FOLDERS names, is not there", "bad")


def test_a_plugin_that_is_off_or_somebody_elses_is_none(bench: Bench) -> None:
    install_plugin(bench, "Codex")
    (bench.home / ".codex" / "config.toml").write_text(
        '[plugins."pensieve@pensieve-statelm"]\nenabled = false\n'
    )
    other = bench.home / ".gemini/extensions/other/gemini-extension.json"
    other.parent.mkdir(parents=True)
    other.write_text('{"mcpServers": {"pensieve": {"command": "uvx", "args": ["pensieve-mcp"]}}}')
    broken = bench.home / ".gemini/extensions/broken/gemini-extension.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")

    assert not [one for one in bench.findings() if "plugin" in one.detail]


def test_our_own_server_tells_its_version() -> None:
    import sys

    from pensieve_mcp.server.options import version

    assert ask_version([sys.executable, "-m", "pensieve_mcp.server"]) == version()
    assert ask_version([sys.executable, "-c", "raise SystemExit(1)"]) == ""

"""The plugins of `manifests/` in real hosts: installed offline, they start the server and bring the skill.

`uvx` is played by a script, since what it would fetch is this very package.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host_runs import binary, run

pytestmark = [
    pytest.mark.host,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform == "win32", reason="the runner is played by a shell script"),
]

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
SEARCH: list[list[dict[str, Any]]] = [
    [{"tool": "searchEngine", "args": {"keyword": "barrels of oil"}}],
    [{"text": "DONE"}],
]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`uvx --from pensieve-statelm==VERSION pensieve-mcp ARGUMENT…` starts the server of this tree."""
    script = tmp_path / "bin" / "uvx"
    script.parent.mkdir()
    paths = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).is_dir())
    script.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --from ] && [ "$3" = pensieve-mcp ] || exit 9\n'
        "shift 3\n"
        f"PYTHONPATH='{paths}' exec '{sys.executable}' -m pensieve_mcp.server \"$@\"\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")


def needs(host: str) -> Any:
    return pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed")


def project(work: Path) -> None:
    (work / "pyproject.toml").write_text("[project]\n")
    (work / "oil.md").write_text("# Oil\n\nThe keeper used 412 barrels of oil.\n")


def call(host: str, environment: dict[str, str], *words: str) -> None:
    done = subprocess.run(
        [str(binary(host)), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def found(host: str, prepare: Any) -> str:
    """What the model saw of the plugin; the search over the open project has found the sentence."""
    ran = run(host, [], SEARCH, {}, prepare=prepare)
    assert (ran.returncode, ran.done) == (0, True), ran.output[-3_000:]
    assert "412 barrels" in ran.results()[0]["text"], ran.results()
    assert all(len(name.replace("/", "__")) <= 64 for name in ran.tools() if "pensieve" in name)
    return json.dumps([request["body"] for request in ran.requests], ensure_ascii=False)


@needs("claude")
@pytest.mark.parametrize(
    "marketplace", [MANIFESTS / "claude-code", MANIFESTS.parent], ids=["its folder", "the clone"]
)
def test_the_plugin_of_claude_code_from_its_marketplace(runner: None, marketplace: Path) -> None:
    """Server, skill and subagent; without the setting *Documents* it serves the open project."""

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        project(work)
        call("claude", environment, "plugin", "marketplace", "add", str(marketplace))
        call("claude", environment, "plugin", "install", "pensieve@pensieve-statelm")
        return ["--allowedTools", "mcp__plugin_pensieve_pensieve"]

    seen = found("claude", prepare)
    assert "pensieve:pensieve" in seen and "pensieve:reader" in seen
    assert re.search(r"mcp__plugin_pensieve_pensieve__searchEngine", seen)


@needs("codex")
def test_the_plugin_of_codex_from_its_marketplace(
    runner: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex starts it in the plugin's folder with hardly any environment; the variable is let through."""

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        project(work)
        call("codex", environment, "plugin", "marketplace", "add", str(MANIFESTS / "codex"))
        call("codex", environment, "plugin", "add", "pensieve@pensieve-statelm")
        environment["PENSIEVE_FOLDERS"] = str(work)
        return []

    assert "pensieve:pensieve" in found("codex", prepare), "the skill is named"


@needs("gemini")
@pytest.mark.parametrize("folders", ["the open project", "the setting"])
def test_the_extension_of_gemini_cli(runner: None, folders: str) -> None:
    """As `manifests/README.md` has a script install it: on a terminal Gemini CLI asks whether the folder is to be
    trusted, whether to go on, and for the documents, and without one it waits for these answers for ever.
    """

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        assert environment["GEMINI_CLI_TRUST_WORKSPACE"] == "true"
        words = ["extensions", "install", "--consent", "--skip-settings", str(MANIFESTS / "gemini")]
        call("gemini", environment, *words)
        if folders == "the open project":
            project(work)
        else:
            documents = home / "my documents"
            documents.mkdir()
            project(documents)
            installed = home / ".gemini" / "extensions" / "pensieve"
            (installed / ".env").write_text(f'PENSIEVE_FOLDERS="{documents}"\n')
        return []

    assert "Work in even rounds" in found("gemini", prepare), "GEMINI.md is read"


@needs("codex")
def test_the_configuration_for_codex_has_only_keys_that_codex_knows(runner: None) -> None:
    """`--strict-config` refuses any other; the entry works as it is, but for the folder."""

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        project(work)
        config = home / ".codex" / "config.toml"
        entry = (MANIFESTS / "codex" / "config.toml").read_text().replace("/path/to/documents", str(work))
        config.write_text(config.read_text() + entry)
        return ["--strict-config"]

    found("codex", prepare)


@needs("claude")
def test_the_projects_entry_for_claude_code(runner: None) -> None:
    """`.mcp.json` in the project, without a folder: the open project is served."""

    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        project(work)
        entry = MANIFESTS / "claude-code" / ".mcp.json"
        return ["--mcp-config", str(entry), "--strict-mcp-config", "--allowedTools", "mcp__pensieve"]

    found("claude", prepare)


@needs("opencode")
def test_the_entry_for_opencode(runner: None) -> None:
    def prepare(home: Path, work: Path, environment: dict[str, str]) -> list[str]:
        project(work)
        config = json.loads((work / "opencode.json").read_text())
        config |= json.loads((MANIFESTS / "opencode" / "opencode.json").read_text())
        (work / "opencode.json").write_text(json.dumps(config))
        return []

    found("opencode", prepare)

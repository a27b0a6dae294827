"""The manifests agree with the package, with each other and with what their hosts require."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.hosts.catalog import HOSTS, launcher_length, served, words
from pensieve_mcp.server.prompts import CARDS
from pensieve_mcp.spellbook.registry import spellbook

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
PINNED = f"pensieve-statelm=={VERSION}"

pytestmark = pytest.mark.skipif(not MANIFESTS.is_dir(), reason="manifests/ is not part of this distribution")


def texts() -> list[Path]:
    kinds = {".json", ".toml", ".yaml", ".md"}
    return [path for path in sorted(MANIFESTS.rglob("*")) if path.suffix in kinds and path.is_file()]


def data(name: str) -> Any:
    text = (MANIFESTS / name).read_text(encoding="utf-8")
    return tomllib.loads(text) if name.endswith(".toml") else json.loads(text)


def servers() -> list[tuple[str, dict[str, Any]]]:
    """Every entry in every manifest that starts a server."""
    found = [(name, data(name)["mcpServers"]["pensieve"]) for name in (
        "claude-code/.mcp.json", "claude-code/plugin/.mcp.json", "codex/plugin/.mcp.json", "agent-plugin/mcp.json",
        "claude-desktop/claude_desktop_config.json", "cursor/mcp.json", "gemini/gemini-extension.json",
        "lmstudio/mcp.json",
    )]  # fmt: skip
    found.append(("vscode/mcp.json", data("vscode/mcp.json")["servers"]["pensieve"]))
    found.append(("opencode/opencode.json", data("opencode/opencode.json")["mcp"]["pensieve"]))
    found.append(("codex/config.toml", data("codex/config.toml")["mcp_servers"]["pensieve"]))
    return found


def test_they_are_as_the_tool_writes_them() -> None:
    made = subprocess.run(
        [sys.executable, "tools/make_manifests.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(("name", "entry"), servers(), ids=lambda one: one if isinstance(one, str) else "")
def test_every_launcher_pins_the_version(name: str, entry: dict[str, Any]) -> None:
    given = words(entry)

    assert launcher_length(entry) == 4, "the runner, the distribution, the command"
    assert given[:4] == ["uvx", "--from", PINNED, "pensieve-mcp"]


def test_no_text_starts_the_package_of_somebody_else() -> None:
    """`uvx pensieve-mcp` is another project on the public index."""
    repository = [ROOT / "README.md", ROOT / "SKILL.md", *(ROOT / "docs").glob("**/*.md"), *texts()]
    for path in repository:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"uvx[\"', \[]+pensieve-mcp", text), path
        assert not re.search(r"pip install[^\n]*\bpensieve-mcp\b", text), path
        for version in re.findall(r"pensieve-statelm==([\w.]+)", text):
            assert version == VERSION, path


def test_the_yaml_entry_is_yaml_and_the_same() -> None:
    yaml = pytest.importorskip("yaml")
    entry = yaml.safe_load((MANIFESTS / "goose" / "config.yaml").read_text(encoding="utf-8"))["extensions"][
        "pensieve"
    ]

    assert words(entry)[:4] == ["uvx", "--from", PINNED, "pensieve-mcp"] and entry["type"] == "stdio"


def test_every_host_has_a_manifest() -> None:
    for name in HOSTS:
        assert (MANIFESTS / name).is_dir(), name
    table = (MANIFESTS / "README.md").read_text(encoding="utf-8")
    for folder in sorted(
        path.name for path in MANIFESTS.iterdir() if path.is_dir() and not path.name.startswith(".")
    ):
        assert f"`{folder}/`" in table, f"manifests/README.md does not tell what {folder}/ is"


def test_the_skill_is_one_text() -> None:
    skill = (ROOT / "SKILL.md").read_bytes()
    copies = sorted(MANIFESTS.rglob("SKILL.md"))

    assert len(copies) >= 3
    for copy in copies:
        assert copy.read_bytes() == skill, copy
        assert copy.parent.name == "pensieve", "a skill lies in a folder of its name"


def frontmatter(path: Path) -> dict[str, str]:
    head = re.match(r"---\n(.*?)\n---\n", path.read_text(encoding="utf-8"), re.S)
    assert head, path
    return dict(line.split(": ", 1) for line in head[1].splitlines() if ": " in line)


def test_the_skill_keeps_the_limits_of_the_format() -> None:
    """Agent Skills: name up to 64, description up to 1,024 characters, body under 500 lines and 5,000 tokens."""
    from pensieve_mcp.tokens import count_tokens

    path = ROOT / "SKILL.md"
    head = frontmatter(path)
    text = path.read_text(encoding="utf-8")

    assert head["name"] == "pensieve" and len(head["description"]) <= 1_024
    assert "Use" in head["description"], "it says when"
    assert len(text.splitlines()) < 500 and count_tokens(text) < 5_000


def test_tools_and_prompts_are_those_of_the_code() -> None:
    listed = data("claude-desktop/manifest.json")["tools"]

    assert [(one["name"], one["description"]) for one in listed] == [
        (spell.name, spell.description) for spell in spellbook().values()
    ]
    assert CARDS, "prompts_generated says that there are some"


def test_every_tool_named_in_a_text_exists() -> None:
    known = set(spellbook(asking=True))
    for path in [ROOT / "SKILL.md", *MANIFESTS.rglob("*.md")]:
        for word in re.findall(r"`([a-z]+[A-Z]\w+)`", path.read_text(encoding="utf-8")):
            assert word in known, f"{path.relative_to(ROOT)} names {word}"


def test_the_registry_takes_the_entry() -> None:
    """Registry: 100 characters of description, a README that names the server, one package that is ours."""
    server = data("registry/server.json")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(server["description"]) <= 100
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert f"mcp-name: {server['name']}" in readme
    (package,) = server["packages"]
    assert package["identifier"] == PROJECT["name"] and package["version"] == VERSION
    assert package["runtimeHint"] == "uvx" and "runtimeArguments" not in package
    assert PROJECT["scripts"][package["identifier"]] == PROJECT["scripts"]["pensieve-mcp"], (
        "clients start the program that is named like the distribution"
    )


def test_who_publishes_is_told_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set `REPOSITORY` in the tool, and every name and address follows; until then no text has a placeholder."""
    tool = runpy.run_path(str(ROOT / "tools" / "make_manifests.py"))
    made = tool["files"]
    monkeypatch.setitem(made.__globals__, "REPOSITORY", "somebody/somewhere")
    files = {name: text for name, text in made().items() if isinstance(text, str)}
    name = "io.github.somebody/pensieve"

    assert json.loads(files["manifests/registry/server.json"])["name"] == name
    assert f"<!-- mcp-name: {name} -->" in files["README.md"]
    address = "https://github.com/somebody/somewhere"
    named = [path for path, text in files.items() if address in text]
    assert {path.split("/")[1] for path in named} >= {
        "claude-code", "codex", "agent-plugin", "claude-desktop", "registry",
    }  # fmt: skip
    for path in [ROOT / "README.md", ROOT / "SKILL.md", *(ROOT / "docs").glob("**/*.md"), *texts()]:
        assert not re.search(r"OWNER/REPO|OWNER/NAME|YOUR[-_]NAME", path.read_text(encoding="utf-8")), path


def test_the_bundle_starts_what_it_names() -> None:
    bundle = data("claude-desktop/manifest.json")
    folder = MANIFESTS / "claude-desktop"
    needs = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert bundle["server"]["type"] == "uv" and (folder / bundle["server"]["entry_point"]).is_file()
    assert needs["dependencies"] == [PINNED] and needs["requires-python"] == PROJECT["requires-python"]
    assert bundle["user_config"]["folders"]["type"] == "directory"
    assert bundle["server"]["mcp_config"]["args"][-1] == "${user_config.folders}"


def test_plugin_names_are_short_enough_for_every_host() -> None:
    longest = max(len(name) for name in spellbook())
    for path in MANIFESTS.rglob("plugin.json"):
        name = json.loads(path.read_text(encoding="utf-8"))["name"]
        assert len(f"mcp__plugin_{name}_pensieve__") + longest <= 64


def test_only_servers_that_open_a_project_go_without_folders() -> None:
    for name, entry in servers():
        host = next((host for key, host in HOSTS.items() if name.startswith(key)), None)
        if host is not None and host.own_folder is None:
            assert served(entry)[1], f"{name} would serve nothing"


def test_the_marketplaces_point_at_plugins() -> None:
    for market in (
        ROOT / ".claude-plugin" / "marketplace.json",
        MANIFESTS / "claude-code/.claude-plugin/marketplace.json",
    ):
        listed = json.loads(market.read_text(encoding="utf-8"))["plugins"]
        assert listed
        for plugin in listed:
            folder = market.parents[1] / plugin["source"]
            manifest = json.loads((folder / ".claude-plugin" / "plugin.json").read_text(encoding="utf-8"))
            assert manifest["name"] == plugin["name"]
    codex = data("codex/.agents/plugins/marketplace.json")["plugins"][0]
    assert (MANIFESTS / "codex" / codex["source"]["path"] / ".codex-plugin" / "plugin.json").is_file()

"""Writes `manifests/`: what the hosts' plugin formats, registries and configuration files want to know about us.

Version, texts and licence come from pyproject.toml, the skill from SKILL.md, the short guidance from the server's
instructions, tools from the spellbook, entries from the host catalog. `--check` compares and says what is behind. Every
line that starts the server pins the version, since a runner would otherwise take any; and it names the distribution,
since the command's name belongs to somebody else on the public index.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import tomllib
import zlib
from pathlib import Path
from typing import Any

from pensieve_mcp.hosts import extras, plugins
from pensieve_mcp.hosts.catalog import COMMAND, DISTRIBUTION, HOSTS, SERVER, Launch
from pensieve_mcp.hosts.toml_tables import table_text
from pensieve_mcp.hosts.yaml_blocks import entry_text
from pensieve_mcp.server.instructions import METHOD
from pensieve_mcp.spellbook.registry import spellbook

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION: str = PROJECT["version"]
TITLE = "Pensieve"
SENTENCE = "Search, read, note and really delete over document folders larger than the context window."
"""At most 100 characters, as the registry wants it."""
AUTHOR = {"name": extras.AUTHOR}
REPOSITORY = ""
"""`owner/name` of the public repository, once there is one: the only place to change when publishing. The registry's
name, here and in README.md, and the addresses in the manifests follow from it.
"""
FOLDERS_TEXT = "Folders or files with the documents to search."
PLACEHOLDER = "/path/to/documents"
RUNNER = Launch("uvx", ("--from", f"{DISTRIBUTION}=={VERSION}", COMMAND))
SHELL = Launch("uvx", ("--from", f"{DISTRIBUTION}=={VERSION}", "pensieve"))
VARIABLE = "PENSIEVE_FOLDERS"


def registry_name() -> str:
    """The registry gives a name to whoever owns the account in it; until there is one, the distribution stands in."""
    return f"io.github.{REPOSITORY.partition('/')[0] or DISTRIBUTION}/{SERVER}"


def home() -> dict[str, str]:
    """Where the project lives, for the formats that want to know it."""
    return {"repository": f"https://github.com/{REPOSITORY}"} if REPOSITORY else {}


def readme() -> str:
    """README.md with the line by which the registry knows the package."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"<!-- mcp-name: \S+ -->", f"<!-- mcp-name: {registry_name()} -->", text, count=1)


def skill() -> str:
    return (ROOT / "SKILL.md").read_text(encoding="utf-8")


def licence() -> str:
    return (ROOT / "LICENSE").read_text(encoding="utf-8")


def as_json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def entry(host: str, *arguments: str) -> dict[str, Any]:
    """What `pensieve install` writes, with the runner in place of an absolute path."""
    chosen = HOSTS[host]
    size = ("--set", f"result_bytes={chosen.result_bytes}") if chosen.result_bytes else ()
    return chosen.shape(RUNNER.with_arguments([*size, *arguments]), False)


def about(**more: Any) -> dict[str, Any]:
    return {
        "name": SERVER,
        "version": VERSION,
        "description": SENTENCE,
        "author": AUTHOR,
        "license": PROJECT["license"],
        "keywords": PROJECT["keywords"],
        **home(),
        **more,
    }


# -- Claude Code -----------------------------------------------------------------------------------------------


def claude_plugin() -> dict[str, Any]:
    return about(
        displayName=TITLE,
        userConfig={
            "folders": {
                "type": "string",
                "title": "Documents",
                "description": f"{FOLDERS_TEXT} Several: separated as in PATH. Empty: the open project.",
                "default": "",
            }
        },
    )


def claude_plugin_servers() -> dict[str, Any]:
    server = entry("claude-code")
    server["env"] = {VARIABLE: "${user_config.folders}"}
    return {"mcpServers": {SERVER: server}}


def hooks() -> dict[str, Any]:
    return {
        "description": "After a compaction the conversation's handoff comes back: goal, constraints, plan, findings.",
        "hooks": {extras.EVENT[-1]: [extras.hook_item(SHELL, ())]},
    }


def marketplace(*listed: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "name": DISTRIBUTION,
        "owner": AUTHOR,
        "description": f"{TITLE}: {SENTENCE}",
        "plugins": [
            {"name": name, "source": source, "description": text, "version": VERSION}
            for name, source, text in listed
        ],
    }


# -- Codex, Agent Plugins ----------------------------------------------------------------------------------------


def codex_config() -> str:
    launch = entry("codex", PLACEHOLDER)
    return (
        "# For ~/.codex/config.toml. `required` makes Codex wait for the tools before its first request. They run\n"
        "# unasked, since their annotations say that they destroy nothing; to be asked, set\n"
        '# default_tools_approval_mode = "prompt".\n'
        + table_text(("mcp_servers", SERVER), {**launch, "default_tools_approval_mode": "auto"})
    )


def codex_plugin() -> dict[str, Any]:
    return about(
        skills="./skills/",
        mcpServers="./.mcp.json",
        interface={
            "displayName": TITLE,
            "shortDescription": SENTENCE,
            "composerIcon": "./icon.png",
            "logo": "./icon.png",
        },
    )


def codex_servers() -> dict[str, Any]:
    # A plugin's server starts in the plugin's folder with hardly any environment, so the variable is let through.
    server = {"command": RUNNER.command, "args": list(RUNNER.arguments), "env_vars": [VARIABLE]}
    return {"mcpServers": {SERVER: server}}


def codex_marketplace() -> dict[str, Any]:
    one = {
        "name": SERVER,
        "source": {"source": "local", "path": "./plugin"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
        "category": "Productivity",
    }
    return {"name": DISTRIBUTION, "plugins": [one]}


AGENT_PLUGINS = "https://agent-plugins.org/schemas/1.0.0"


def agent_plugin() -> dict[str, Any]:
    return {"$schema": f"{AGENT_PLUGINS}/plugin.schema.json", **about()}


def agent_plugin_servers() -> dict[str, Any]:
    server = {"type": "stdio", "command": RUNNER.command, "args": list(RUNNER.arguments)}
    return {"$schema": f"{AGENT_PLUGINS}/mcp.schema.json", "mcpServers": {SERVER: server}}


# -- Claude Desktop ------------------------------------------------------------------------------------------------


def bundle() -> dict[str, Any]:
    return {
        "manifest_version": "0.4",
        **about(**({"repository": {"type": "git", "url": home()["repository"]}} if REPOSITORY else {})),
        "display_name": TITLE,
        "long_description": PROJECT["description"],
        "icon": "icon.png",
        "server": {
            "type": "uv",
            "entry_point": "src/server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "src/server.py", "${user_config.folders}"],
                "env": {},
            },
        },
        "tools": [{"name": spell.name, "description": spell.description} for spell in spellbook().values()],
        "tools_generated": True,  # askStateLM, where a backend is configured
        "prompts_generated": True,
        "compatibility": {
            "platforms": ["darwin", "win32", "linux"],
            "runtimes": {"python": PROJECT["requires-python"]},
        },
        "user_config": {
            "folders": {
                "type": "directory",
                "title": "Folders",
                "description": FOLDERS_TEXT,
                "multiple": True,
                "required": True,
                "default": ["${DOCUMENTS}"],
            }
        },
    }


BUNDLE_PYPROJECT = f"""[project]
name = "pensieve-bundle"
version = "{VERSION}"
description = "Starts {DISTRIBUTION} in Claude Desktop."
requires-python = "{PROJECT["requires-python"]}"
dependencies = ["{DISTRIBUTION}=={VERSION}"]
"""
BUNDLE_SERVER = '''"""Starts the server; Claude Desktop has uv install it."""

import sys

from pensieve_mcp.server import main

sys.exit(main())
'''


def icon(size: int = 512) -> bytes:
    """The sawtooth as a PNG: the window fills, and empties, and fills."""
    paper, ink, line = (250, 248, 243), (38, 70, 83), (231, 111, 81)
    margin, teeth = size // 6, 3
    inner = size - 2 * margin
    rows = []
    for y in range(size):
        row = bytearray(b"\0")
        for x in range(size):
            colour = paper
            if margin <= x < size - margin and margin <= y < size - margin:
                phase = (x - margin) * teeth % inner / inner
                height = margin + inner * (0.9 - 0.7 * phase)
                if y > height:
                    colour = ink
                if abs(y - height) < size / 64:
                    colour = line
            row += bytes(colour)
        rows.append(bytes(row))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


# -- other hosts -----------------------------------------------------------------------------------------------------


def gemini_extension() -> dict[str, Any]:
    server = entry("gemini")
    return {
        "name": SERVER,
        "version": VERSION,
        "description": SENTENCE,
        "mcpServers": {SERVER: server},
        "contextFileName": "GEMINI.md",
        "settings": [
            {
                "name": "Documents",
                "description": f"{FOLDERS_TEXT} Several: separated as in PATH.",
                "envVar": VARIABLE,
            }
        ],
    }


def gemini_context() -> str:
    head = (
        f"# Project context: {TITLE}\n\nThe tools of the MCP server {SERVER} search the user's documents.\n"
    )
    return f"{head}{METHOD}\n"


def registry() -> dict[str, Any]:
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": registry_name(),
        "title": TITLE,
        "description": SENTENCE,
        "version": VERSION,
        **({"repository": {"url": home()["repository"], "source": "github"}} if REPOSITORY else {}),
        "packages": [
            {
                "registryType": "pypi",
                "identifier": DISTRIBUTION,
                "version": VERSION,
                # A client puts the identifier behind the runtime's arguments, so there can be none that name a program:
                # the distribution has one of its own name.
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {
                        "type": "positional",
                        "valueHint": "folder",
                        "description": FOLDERS_TEXT,
                        "format": "filepath",
                        "isRequired": True,
                        "isRepeated": True,
                    }
                ],
                "environmentVariables": [
                    {
                        "name": "PENSIEVE_HOME",
                        "description": "Where index, notes and history are kept; the user's data folder otherwise.",
                        "format": "filepath",
                    }
                ],
            }
        ],
    }


def files() -> dict[str, str | bytes]:
    """Every file of `manifests/` that is made here, and the marketplace at the top of the repository."""
    mod = "manifests/claude-code-mod"
    rule = [SHELL.command, *SHELL.with_arguments(plugins.RULE).arguments]
    return {
        "README.md": readme(),
        f"{mod}/.claude-plugin/icon.png": icon(),
        **{f"{mod}/{name}": text for name, text in plugins.mod_files(rule, VERSION, extras.AUTHOR).items()},
        "manifests/opencode/pensieve.js": plugins.opencode_plugin(rule),
        "manifests/claude-code/plugin/hooks/hooks.json": as_json(hooks()),
        "manifests/codex/hooks.json": as_json({"hooks": hooks()["hooks"]}),
        ".claude-plugin/marketplace.json": as_json(
            marketplace(
                (SERVER, "./manifests/claude-code/plugin", SENTENCE),
                (plugins.MOD, f"./{mod}", plugins.MOD_TEXT),
            )
        ),
        "manifests/claude-code/.mcp.json": as_json({"mcpServers": {SERVER: entry("claude-code")}}),
        "manifests/claude-code/.claude-plugin/marketplace.json": as_json(
            marketplace((SERVER, "./plugin", SENTENCE))
        ),
        "manifests/claude-code/plugin/.claude-plugin/plugin.json": as_json(claude_plugin()),
        "manifests/claude-code/plugin/.mcp.json": as_json(claude_plugin_servers()),
        f"manifests/claude-code/plugin/skills/{SERVER}/SKILL.md": skill(),
        "manifests/claude-code/plugin/LICENSE": licence(),
        "manifests/claude-code/plugin/icon.png": icon(),
        "manifests/codex/config.toml": codex_config(),
        "manifests/codex/.agents/plugins/marketplace.json": as_json(codex_marketplace()),
        "manifests/codex/plugin/.codex-plugin/plugin.json": as_json(codex_plugin()),
        "manifests/codex/plugin/icon.png": icon(),
        "manifests/codex/plugin/.mcp.json": as_json(codex_servers()),
        f"manifests/codex/plugin/skills/{SERVER}/SKILL.md": skill(),
        "manifests/agent-plugin/plugin.json": as_json(agent_plugin()),
        "manifests/agent-plugin/mcp.json": as_json(agent_plugin_servers()),
        f"manifests/agent-plugin/skills/{SERVER}/SKILL.md": skill(),
        "manifests/claude-desktop/manifest.json": as_json(bundle()),
        "manifests/claude-desktop/pyproject.toml": BUNDLE_PYPROJECT,
        "manifests/claude-desktop/src/server.py": BUNDLE_SERVER,
        "manifests/claude-desktop/icon.png": icon(),
        "manifests/claude-desktop/.mcpbignore": "claude_desktop_config.json\n",
        "manifests/claude-desktop/claude_desktop_config.json": as_json(
            {"mcpServers": {SERVER: entry("claude-desktop", PLACEHOLDER)}}
        ),
        "manifests/vscode/mcp.json": as_json({"servers": {SERVER: entry("vscode", "${workspaceFolder}")}}),
        "manifests/cursor/mcp.json": as_json({"mcpServers": {SERVER: entry("cursor", "${workspaceFolder}")}}),
        "manifests/gemini/gemini-extension.json": as_json(gemini_extension()),
        "manifests/gemini/GEMINI.md": gemini_context(),
        "manifests/goose/config.yaml": entry_text("extensions", SERVER, entry("goose", PLACEHOLDER)),
        "manifests/opencode/opencode.json": as_json(
            {"$schema": "https://opencode.ai/config.json", "mcp": {SERVER: entry("opencode")}}
        ),
        "manifests/lmstudio/mcp.json": as_json({"mcpServers": {SERVER: entry("lmstudio", PLACEHOLDER)}}),
        "manifests/registry/server.json": as_json(registry()),
    }


def main() -> int:
    check = "--check" in sys.argv[1:]
    behind = []
    for name, content in files().items():
        data = content.encode() if isinstance(content, str) else content
        path = ROOT / name
        if path.is_file() and path.read_bytes() == data:
            continue
        behind.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    if check and behind:
        print(
            f"Behind their sources: {', '.join(behind)}. Run: python tools/make_manifests.py", file=sys.stderr
        )
        return 1
    print("Current." if check else f"Wrote {', '.join(behind) or 'nothing, all is current'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

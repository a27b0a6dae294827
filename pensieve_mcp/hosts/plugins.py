"""The plugins for hosts that let one change messages, as files: for `pensieve install` and for `manifests/`.

Each is thin: it maps the host's messages to calls with their results, asks `pensieve hook forgotten`, and puts the
answer in. What differs from machine to machine is the command that it asks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

MOD = "pensieve-mod"
"""Name of the plugin for Claude Code; apart from the plugin `pensieve`, since it uses an interface that may change."""

MOD_TEXT = "Takes what was deleted with pensieve's deleteContext out of the conversation, at each compaction."
OPENCODE_FILE = "pensieve.js"
_PLACEHOLDER = 'const RULE = ["pensieve", "hook", "forgotten"]'
RULE = ("hook", "forgotten")
"""What follows the command `pensieve`."""


def mod_files(rule: Sequence[str], version: str, author: str) -> dict[str, str]:
    """The plugin of Claude Code: path below its folder → text. `rule` is the command that it asks."""
    about = {
        "name": MOD,
        "version": version,
        "displayName": "Pensieve mod",
        "description": MOD_TEXT,
        "author": {"name": author},
        "license": "MIT",
    }
    return {
        ".claude-plugin/plugin.json": json.dumps(about, indent=2) + "\n",
        "hooks/hooks.json": json.dumps({"modules": ["./register.js"]}) + "\n",
        "hooks/register.js": _script("claude_code.js", rule),
    }


def opencode_plugin(rule: Sequence[str]) -> str:
    """The plugin of opencode, in one file, since it loads every file in its folder as one."""
    return _script("opencode.js", rule)


def _script(name: str, rule: Sequence[str]) -> str:
    text = (files("pensieve_mcp.hosts") / "scripts" / name).read_text(encoding="utf-8")
    before, found, after = text.partition(_PLACEHOLDER)
    assert found, name
    return f"{before}const RULE = {json.dumps(list(rule), ensure_ascii=False)}{after}"

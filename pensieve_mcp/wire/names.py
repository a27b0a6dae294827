"""Whose tool a name means: hosts put the MCP server's name before it, each in its own way.

Claude Code `mcp__SERVER__tool`, from a plugin `mcp__plugin_PLUGIN_SERVER__tool`; Codex the namespace
`mcp__SERVER` beside `tool`; opencode `SERVER_tool`; Gemini CLI `mcp_SERVER_tool` (tested against the hosts).
"""

from __future__ import annotations

import re
from collections.abc import Collection


def own_tool(name: str, namespace: str, servers: Collection[str], tools: Collection[str]) -> str | None:
    """The bare name of one of `tools` if the call went to one of `servers`, else None.

    A bare name without any server does not count, since another server may have a tool of that name.
    """
    if namespace:
        return name if name in tools and _is_server(namespace.removeprefix("mcp__"), servers) else None
    head, tail, bare = name.rpartition("_")
    if not tail or bare not in tools:
        return None
    if head.startswith("mcp__"):
        return bare if head.endswith("_") and _is_server(head[5:-1], servers) else None
    return bare if head.removeprefix("mcp_") in servers else None


def _is_server(named: str, servers: Collection[str]) -> bool:
    if named in servers:
        return True
    return any(
        re.fullmatch(rf"plugin_[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*_{re.escape(s)}", named) for s in servers
    )

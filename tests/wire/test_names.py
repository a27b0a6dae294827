"""Our tools are known under every host's naming, and nobody else's are."""

from __future__ import annotations

import pytest

from pensieve_mcp.wire.names import own_tool

TOOLS = frozenset({"deleteContext", "readChunk"})
SERVERS = frozenset({"pensieve", "my_docs"})


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("mcp__pensieve__deleteContext", ""),
        ("mcp__plugin_pensieve_pensieve__deleteContext", ""),
        ("mcp__plugin_my-plugin_my_docs__deleteContext", ""),
        ("mcp__my_docs__deleteContext", ""),
        ("pensieve_deleteContext", ""),
        ("my_docs_deleteContext", ""),
        ("mcp_pensieve_deleteContext", ""),
        ("deleteContext", "mcp__pensieve"),
        ("deleteContext", "mcp__plugin_pensieve_pensieve"),
    ],
)
def test_our_tool_is_known(name: str, namespace: str) -> None:
    assert own_tool(name, namespace, SERVERS, TOOLS) == "deleteContext"


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("deleteContext", ""),
        ("mcp__other__deleteContext", ""),
        ("mcp__xpensieve__deleteContext", ""),
        ("other_deleteContext", ""),
        ("mcp__pensieve__dropTable", ""),
        ("deleteContext", "mcp__other"),
        ("mcp__pensieve__deleteContext", "mcp__other"),
        ("mcp__other_pensieve__deleteContext", ""),
        ("_deleteContext", ""),
        ("", ""),
    ],
)
def test_others_are_not_ours(name: str, namespace: str) -> None:
    assert own_tool(name, namespace, SERVERS, TOOLS) is None

"""The door for hosts: an MCP server over stdio or streamable HTTP.

Starting is cheap on purpose: nothing but the protocol library and the spellbook is loaded until a first call,
since hosts drop a server that is slow to answer. What a spell does is not known here; see `spellbook/`.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `pensieve-mcp`. Returns the exit status: 0 after an ordinary end, 2 for options that cannot be
    served.
    """
    from pensieve_mcp.server.running import run

    return run(argv)

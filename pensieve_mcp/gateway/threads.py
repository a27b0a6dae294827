"""How hosts name their conversations to the model's API, and whether the server knows them by the same name."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation as the host names it; empty where it does not."""

    host: str = ""  # as the server calls it: claude-code, codex
    name: str = ""
    is_shared: bool = False  # the server knows the conversation by the same name
    is_lasting: bool = (
        False  # the same name still when it is resumed, and another for a fork and each sub-agent
    )
    parent: str = ""  # of a sub-agent that the server cannot tell from who began it


_SESSION = re.compile(r"[A-Za-z0-9_.:-]{1,200}\Z")


def thread_of(headers: dict[bytes, bytes], session: str) -> Thread:
    """The conversation's name, from the headers that hosts send (recorded): Claude Code and Codex name it as
    they name it to the MCP server; opencode names it to the API only. `session` is what the body says.
    """

    def value(name: bytes) -> str:
        text = headers.get(name, b"").decode("latin-1").strip()
        return text if _SESSION.match(text) else ""

    if name := value(b"x-claude-code-session-id"):
        return Thread("claude-code", name, is_shared=True)
    agent = headers.get(b"user-agent", b"").lower()
    if name := value(b"thread-id"):
        return Thread("codex", name, is_shared=True, is_lasting=True)
    if agent.startswith(b"claude-cli") and _SESSION.match(session):
        return Thread("claude-code", session, is_shared=True)
    if name := value(b"x-session-id"):
        return Thread("opencode" if b"opencode" in agent else "", name, parent=value(b"x-parent-session-id"))
    return Thread("", session if _SESSION.match(session) else "")

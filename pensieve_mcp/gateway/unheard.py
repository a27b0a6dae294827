"""What a person is told when a host ended without a request to its model: what was probably missing, and what to do.

The host itself says most of it, above; this names the next step. It is asked for its version only then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pensieve_mcp.gateway.hosts import said_by

TESTED = {"claude": "2.1.332", "codex": "0.171.0", "opencode": "1.18.33"}
"""The versions that `pensieve run` was tried with."""
PACKAGES = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex", "opencode": "opencode-ai"}
LOGIN = {
    "claude": "start claude once by itself and type /login, or set ANTHROPIC_API_KEY",
    "codex": "run: codex login, or set OPENAI_API_KEY",
    "opencode": "run: opencode auth login, or set ANTHROPIC_API_KEY or OPENAI_API_KEY",
}
VERSION_SECONDS = 20.0
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\b")
_ONLY_LOOKS = frozenset({"--version", "-v", "-V", "--help", "-h", "help"})


def how_to_get(host: str) -> str:
    """The hint where the program is not there."""
    return f"Install it (npm install -g {PACKAGES[host]}), or name its program with --program PATH."


def next_steps(
    host: str, program: str, arguments: tuple[str, ...], code: int, environment: Mapping[str, str]
) -> Iterator[str]:
    """Sentences for whoever started the host; `code` is its exit code, 128 and more where a signal ended it."""
    if _ONLY_LOOKS & set(arguments):
        return
    if code == 0:
        yield (
            f"If {host} did talk to a model, it does not go by the address that it is given here: see its provider "
            "settings, or name the API with --upstream."
        )
        return
    if code > 128:
        return  # somebody ended it
    yield f"{host} ended with {code} before it asked its model anything. Not logged in? Then {LOGIN[host]}."
    found = version_of(program, environment)
    if found is None:
        yield f"{program} does not tell its version; is it {host}?"
    elif _parts(found) < _parts(TESTED[host]):
        yield (
            f"This is {host} {found}, older than the one that this was tried with ({TESTED[host]}): "
            f"npm install -g {PACKAGES[host]} brings the newest."
        )


def version_of(program: str, environment: Mapping[str, str]) -> str | None:
    """What `--version` says, None where it says none."""
    said = said_by(program, "--version", environment=environment, seconds=VERSION_SECONDS)
    found = _VERSION.search(said[0]) if said is not None else None
    return found[0] if found else None


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))

"""What we say to a model, said to a person: our errors and warnings name spells, a shell has commands.

The words stay where the error is raised; this is the one place that knows which command does what a spell does.
"""

from __future__ import annotations

import re

COMMANDS = {
    "analyzeText": "pensieve cast analyzeText",
    "checkBudget": "pensieve cast checkBudget",
    "buildIndex": "pensieve index",
    "searchEngine": "pensieve search",
    "readChunk": "pensieve read",
    "updateNote": "pensieve note write",
    "readNote": "pensieve note show",
    "deleteContext": "pensieve forget",
    "restoreContext": "pensieve restore",
}
"""Spell → command. Names that are plain words (note, plan, finish) may stand in any sentence, and stay."""

PHRASES = (
    (r"analyzeText tells (what was skipped|why)", r"pensieve skipped tells \1"),
    (r"readNote without key", "pensieve note list"),
    (r"readNote\(\)", "pensieve note list"),
    (r"\bexpect_revision=(\d+)", r"--expect-revision \1"),
    (r"\bmode overwrite and expect_revision\b", "and --expect-revision"),
    (r"\bmode=exact\b", "--mode exact"),
)
_NAMED = re.compile(r"\b(?:([Cc]all) )?(" + "|".join(COMMANDS) + r")\b(?:\([^()]*\))?")


def for_person(text: str) -> str:
    """The same sentence with commands in place of spells."""
    for pattern, words in PHRASES:
        text = re.sub(pattern, words, text)

    def named(match: re.Match[str]) -> str:
        call = {"Call": "Run ", "call": "run "}.get(match[1] or "", "")
        return call + COMMANDS[match[2]]

    return _NAMED.sub(named, text)

"""Whether another wording says what was said: the check that a model's text must pass before it stands in a note.

Every number, date, name and denial of the old text must be in the new one, nothing of the kind may be added, and the
words must be mostly the same. What is doubtful fails: then the text made by rule stands. Pure; no model judges a model.
"""

from __future__ import annotations

import re

from pensieve_mcp.notebook.conflicts import read

NEW_WORDS = 0.25  # share of the new text's words that the old one need not have: joining words, other forms
KEPT_WORDS = 0.7  # share of the old text's words that must be in the new one
LONGER = 1.1

_NAME = re.compile(
    r"[\w.+-]+@[\w.-]+|https?://\S+|\b\w*[A-Z]\w*[A-Z\d_]\w*\b|\b\w+(?:[_/.:]\w+)+\b|(?<![.!?\n]\s)(?<!^)\b[A-Z]\w+"
)
_QUOTED = re.compile(r"[\"“”«»`]([^\"“”«»`]{1,200})[\"“”«»`]")


def keeps(old: str, new: str) -> bool:
    """Whether `new` may stand for `old`."""
    text = new.strip()
    if not text or len(text) > LONGER * max(len(old), 80):
        return False
    before, after = read(old), read(text)
    if set(before.values) != set(after.values):
        return False
    if bool(before.denials) != bool(after.denials) or after.denials > before.denials:
        return False
    if not before.words or not after.words:
        return False
    if len(after.words - before.words) > NEW_WORDS * len(after.words):
        return False
    if len(before.words & after.words) < KEPT_WORDS * len(before.words):
        return False
    return _holds(text, _names(old)) and _holds(old, _names(text))


def _names(text: str) -> set[str]:
    return {match[0].strip(".,;:") for match in _NAME.finditer(text)} | {
        match[1] for match in _QUOTED.finditer(text)
    }


def _holds(text: str, names: set[str]) -> bool:
    """Each name, in any case: a name may begin a sentence now."""
    folded = text.casefold()
    return all(name.casefold() in folded for name in names)

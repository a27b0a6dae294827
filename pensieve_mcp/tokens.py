"""How many tokens a text costs: one counter for chunks, budget and schemas.

A server that sits in front of any model cannot carry every tokenizer, so this is an estimate by script
(our decision, `docs/decisions/`): it never loads a model, runs in one pass and treats special-token strings
as plain text.
"""

from __future__ import annotations

import re

COUNTER = "script-1"
"""Name of the counting rule. It is part of the corpus fingerprint: another rule means other chunk borders."""

# One match is a run of one kind. Letters first, since prose is mostly letters.
_RUNS = re.compile(
    r"([A-Za-z]+)|( +)|(\n\s*)|([0-9]+)"
    r"|([\u00c0-\u024f\u0370-\u058f\u0590-\u074f\u0900-\u0dff\u10a0-\u10ff]+)"
    r"|([\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff]+)"
    r"|(.)",
    re.DOTALL,
)


def count_tokens(text: str) -> int:
    """Estimated tokens of a text; zero only for the empty text."""
    total = 0.0
    for match in _RUNS.finditer(text):
        kind = match.lastindex
        size = match.end() - match.start()
        if kind == 1:
            total += 1 if size <= 7 else 1 + (size - 7) / 5
        elif kind == 2:
            if size > 1:
                total += 1
        elif kind == 3:
            total += 1
        elif kind == 4:
            total += size / 2
        elif kind == 5:
            total += max(1.0, size / 2.5)
        elif kind == 6:
            total += size * 0.8
        else:
            total += 0.8 if match[0].isascii() else 1.5
    return max(1, round(total)) if text else 0

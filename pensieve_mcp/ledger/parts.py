"""Parts of a long message, `m12.2`: runs of whole lines of about a thousand characters.

The cut depends on the content alone, so that a part means the same text in every process and after a restart.
"""

from __future__ import annotations

from collections.abc import Collection

from pensieve_mcp.ledger.events import Entry, Event, Forgot, Recalled
from pensieve_mcp.tokens import count_tokens

PART_CHARS = 1_000
"""About 250 tokens: what one decides about at a time, yet few enough parts to name."""


def split_parts(content: str) -> list[str]:
    """The parts of a message; they join to exactly the content. An empty message has one empty part."""
    parts: list[str] = []
    start = size = 0
    lines = content.splitlines(keepends=True)
    place = 0
    for line in lines:
        if size and size + len(line) > PART_CHARS:
            parts.append(content[start:place])
            start, size = place, 0
        size += len(line)
        place += len(line)
    parts.append(content[start:])
    return parts


def part_count(content: str) -> int:
    return len(split_parts(content))


def part_tokens(content: str, part: int) -> int:
    """Tokens of one part, one-based. Raises IndexError for a part that is not there."""
    return count_tokens(split_parts(content)[part - 1])


def recalled_parts(entry: Entry, parts: Collection[int], content: str) -> list[Event]:
    """What brings these parts (one-based) of a message back and leaves its others forgotten as they are.

    Nothing for parts that stand there. Of a pinned message all comes back, since nothing of it can be forgotten.
    """
    texts = split_parts(content)
    gone = set(range(1, len(texts) + 1)) if entry.forgotten else set(entry.forgotten_parts)
    if not gone & set(parts):
        return []
    number = entry.message.number
    events: list[Event] = [Recalled((number,))]
    if rest := sorted(part for part in gone - set(parts) if part <= len(texts)):
        tokens = tuple(count_tokens(texts[part - 1]) for part in rest)
        events.append(
            Forgot(
                (), reason="restoreContext", parts=tuple((number, part) for part in rest), part_tokens=tokens
            )
        )
    return events

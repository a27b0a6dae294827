"""Parts of a long message, `m12.2`: runs of whole lines of about a thousand characters.

The cut depends on the content alone, so that a part means the same text in every process and after a restart.
"""

from __future__ import annotations

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

"""What a prompt is made of, message by message: sizes from the request that went on, in the provider's own count.

The provider tells one number for the whole prompt. It is shared out by the bytes that each message took, so the parts
add up to it; a language that takes more tokens for its bytes is told a little too small.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pensieve_mcp.budget import Share
from pensieve_mcp.gateway.rewrite import Report

MOST_SHARES = 16  # the heaviest; the others are told in sum


def shares_of(report: Report, prompt_tokens: int) -> tuple[Share, ...]:
    """The heaviest messages, then what is left of each kind in sum. Empty for a request that was not read."""
    sizes = list(_sizes(report))
    total = sum(size for *_, size in sizes)
    if not total:
        return ()
    sizes.sort(key=lambda one: -one[3])
    shares = [
        Share(name, kind, label, 1, round(size * prompt_tokens / total))
        for name, kind, label, size in sizes[:MOST_SHARES]
    ]
    rest: dict[str, list[int]] = {}
    for _, kind, _, size in sizes[MOST_SHARES:]:
        rest.setdefault(kind, []).append(size)
    shares += [
        Share("", kind, "", len(small), round(sum(small) * prompt_tokens / total))
        for kind, small in sorted(rest.items(), key=lambda one: -sum(one[1]))
    ]
    return tuple(share for share in shares if share.tokens)


def _sizes(report: Report) -> Iterator[tuple[str, str, str, int]]:
    """(name, kind, label, bytes). What has a handle goes by it, other words by their message's place, from one."""
    conversation = report.conversation
    if conversation is None:
        return
    for part in ("system", "tools"):
        if size := conversation.parts.get(part, 0):
            yield part, part, "", size
    named = {(one.call_id, one.role == "tool"): one for one in report.messages}
    grown = _growth(report)
    borders = (
        [(0, 0), *conversation.borders] if conversation.borders else [(0, 0), (0, len(conversation.items))]
    )
    for place, ((_, first), (_, end)) in enumerate(pairwise(borders), 1):
        others: dict[str, int] = {}
        for number in range(first, end):
            item = conversation.items[number]
            size = item.span[1] - item.span[0] + grown.get(number, 0)
            known = named.get((item.call_id, item.kind == "result")) if item.call_id else None
            if known is not None:
                words = " ".join(word for word in (known.tool, known.label) if word)
                yield known.handle, "result" if known.role == "tool" else "call", words, size
            else:
                kind = item.kind if item.kind in ("call", "result", "thinking") else item.role or "other"
                others[kind] = others.get(kind, 0) + size
        for kind, size in others.items():
            yield f"#{place}", kind, "", size


def _growth(report: Report) -> dict[int, int]:
    """By how many bytes the edits changed each item."""
    assert report.conversation is not None
    items, grown, number = report.conversation.items, dict[int, int](), 0
    for edit in sorted(report.edits, key=lambda one: one.start):
        while number < len(items) - 1 and items[number].span[1] <= edit.start:
            number += 1
        grown[number] = grown.get(number, 0) + len(edit.new) - (edit.end - edit.start)
    return grown

"""A conversation that began as a copy of another: what it holds of that one becomes its own in the ledger.

Codex names forks and forked sub-agents as conversations of their own, to the API and to the server. The request shows
what they hold, since hosts send all of it; so nothing is taken over that is not in it. What is deleted is read off the
request in any case: this is for the server, which refuses messages of other conversations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pensieve_mcp.errors import NoSuchMessage
from pensieve_mcp.gateway.rewrite import Report
from pensieve_mcp.ledger.events import Event, Forgot, Pinned
from pensieve_mcp.ledger.parts import split_parts
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from pensieve_mcp.gateway.editing import Standing
    from pensieve_mcp.ledger.store import Ledger, StoredMessage


def told_before(ledger: Ledger, one: Standing) -> StoredMessage | None:
    """The ledger's message, where this is a result of ours word for word: numbers alone might be those of another
    workspace.
    """
    if one.role != "tool" or not one.digest:
        return None
    try:
        stored = ledger.find(int(one.handle[1:]))
    except NoSuchMessage:
        return None
    same = stored.message.digest == one.digest and stored.message.host_call_id in (None, one.call_id)
    return stored if same else None


def inherit(ledger: Ledger, episode_id: int, report: Report) -> int:
    """Give the conversation the messages of others that its request holds, deleted ones as deleted, pinned ones as
    pinned. Answers how many. Raises StorageError.
    """
    held: list[int] = []
    parts: list[tuple[int, int]] = []
    tokens: list[int] = []
    pinned: list[int] = []
    for one in report.messages:
        stored = told_before(ledger, one)
        if stored is not None and stored.episode_id != episode_id:
            number, invoking = stored.message.number, stored.message.invoking
            held += [number] if invoking is None else [invoking, number]
            pinned += [number] if one.pinned else []
            if one.forgotten_parts and one.state == "in part":
                texts = _parts_of(ledger, stored)
                parts += [(number, part) for part in one.forgotten_parts]
                tokens += [count_tokens("".join(texts[part - 1 : part])) for part in one.forgotten_parts]
    if not held:
        return 0
    away = {
        int(one.handle[1:])
        for one in report.messages
        if one.state in ("forgotten", "waiting") and one.handle[0] == "m"
    }
    forgotten = tuple(number for number in held if number in away)
    then: list[Event] = []
    if forgotten or parts:
        then.append(Forgot(forgotten, reason="fork", parts=tuple(parts), part_tokens=tuple(tokens)))
    if pinned:
        then.append(Pinned(tuple(pinned)))
    return ledger.inherit(episode_id, held, then)


def _parts_of(ledger: Ledger, stored: StoredMessage) -> list[str]:
    """None where the words are kept no more: what was freed of it is not counted then."""
    if stored.content_state != "kept":
        return []
    return split_parts(ledger.content(stored.message))

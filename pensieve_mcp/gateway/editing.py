"""The edits that a message's state asks for: stubs, forgotten parts, handle lines, each in its place in the body.

Edits replace raw spans; what surrounds them passes byte for byte. What was worked out for an item that stands as it
stood is taken from its memo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pensieve_mcp.gateway.reading import Known, part_borders
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN
from pensieve_mcp.ledger.events import Entry
from pensieve_mcp.ledger.stubs import part_stub, stub, stub_tokens
from pensieve_mcp.tokens import count_tokens
from pensieve_mcp.wire.conversation import Conversation, Item
from pensieve_mcp.wire.spans import Edit, decoded, encoded, members, places_in_string

ARGUMENT = "pensieve"  # the one argument that a forgotten call keeps
NO_ARGUMENTS = (b"{}", b'"{}"', b'""', b"null")


@dataclass(frozen=True, slots=True)
class Standing:
    """A message with a handle as it stands in the request that goes on."""

    handle: str
    call_id: str
    role: str
    tool: str
    label: str
    tokens: int
    state: str  # whole, forgotten, waiting (forgotten, not yet applied), in part, gone (a stub when it came)
    digest: bytes = b""  # of a result of ours as we said it; empty where a host changed it
    forgotten_parts: tuple[int, ...] = ()  # of one that stands
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """One message's edits, the estimated tokens they save, and how it stands after them."""

    edits: tuple[Edit, ...]
    saved: int
    standing: Standing


def done_to(conversation: Conversation, known: Known, entry: Entry, *, applied: bool) -> Done:
    """What this message's state asks for. `applied`: its deletion is in force now."""
    made = known.item.memo.get("done")
    if made is not None and made[0] is entry and made[1] is applied and made[2] is known:
        return made[3]  # type: ignore[no-any-return]
    edits: list[Edit] = []
    saved, state = 0, "whole"
    if known.is_stub:
        state = "gone"
    elif entry.forgotten and applied:
        saved, state = _stub(conversation, edits, known.item, entry), "forgotten"
    else:
        if entry.forgotten:
            state = "waiting"
        elif entry.forgotten_parts:
            freed = _stub_parts(conversation, edits, known, entry)
            saved, state = freed or 0, "whole" if freed is None else "in part"
        if not known.is_ours and known.item.kind == "result":
            _line(conversation, edits, known)
    message = known.message
    standing = Standing(
        handle=message.handle or f"m{message.number}",
        call_id=message.host_call_id or "",
        role=message.role,
        tool=message.tool,
        label=message.label,
        tokens=message.tokens,
        state=state,
        digest=known.digest,
        forgotten_parts=entry.forgotten_parts,
        pinned=entry.pinned,
    )
    done = Done(tuple(edits), saved, standing)
    known.item.memo["done"] = (entry, applied, known, done)
    return done


def _stub(conversation: Conversation, edits: list[Edit], item: Item, entry: Entry) -> int:
    """Put the stub in its place; answers the estimated tokens saved."""
    if item.body is None:
        return 0
    words = stub(replace(entry, forgotten_parts=(), part_tokens=0))
    if item.kind == "call":
        _stub_arguments(conversation, edits, item, words)
    elif not item.blocks:
        edits.append(Edit(*item.body, encoded(words)))
    else:
        _stub_blocks(conversation, edits, item, words)
    return max(0, (item.body[1] - item.body[0]) // BYTES_PER_TOKEN - stub_tokens(words))


def _stub_arguments(conversation: Conversation, edits: list[Edit], item: Item, words: str) -> None:
    assert item.body is not None
    if conversation.bytes_of(item.body) in NO_ARGUMENTS:
        return  # nothing that a stub could stand for
    if item.is_free:
        new = encoded(words)
    else:
        # The argument's name says whose words these are: no brackets.
        told = words.removeprefix("[pensieve: ").removesuffix("]")
        fields = b"{" + encoded(ARGUMENT) + b": " + encoded(told) + b"}"
        new = encoded(fields.decode("ascii")) if item.in_string else fields
    edits.append(Edit(*item.body, new))


def _stub_blocks(conversation: Conversation, edits: list[Edit], item: Item, words: str) -> None:
    """Of a list of blocks the first text keeps its place with the stub; the others go, less a caching mark."""
    assert item.body is not None
    raw = conversation.raw
    keep = next(
        (block for block in item.blocks if any(block[0] < text[0] < block[1] for text in item.texts)), None
    )
    marked = [block for block in item.blocks if block != keep and b'"cache_control"' in raw[slice(*block)]]
    if keep is None or marked:
        # Nothing to keep, or a caching mark on a block that goes: the whole list is written anew, with the mark.
        edits.append(Edit(*item.body, _list_with(conversation, words, marked)))
        return
    text = next(text for text in item.texts if keep[0] < text[0] < keep[1])
    edits.append(Edit(*text, encoded(words)))
    if keep[0] > item.body[0] + 1 and item.blocks[0] != keep:
        edits.append(Edit(item.blocks[0][0], keep[0], b""))
    if item.blocks[-1] != keep:
        edits.append(Edit(keep[1], item.blocks[-1][1], b""))


def _list_with(conversation: Conversation, words: str, marked: list[tuple[int, int]]) -> bytes:
    kind = b"input_text" if conversation.dialect == "responses" else b"text"
    mark = b""
    if marked:
        start, end = marked[-1]
        block = conversation.raw[start:end]
        found, _ = members(block.decode("latin-1"), 0)
        if (span := found.get("cache_control")) is not None:
            mark = b', "cache_control": ' + block[slice(*span)]
    return b'[{"type": "' + kind + b'", "text": ' + encoded(words) + mark + b"}]"


def _stub_parts(conversation: Conversation, edits: list[Edit], known: Known, entry: Entry) -> int | None:
    """Parts of a long result; their borders are those of the text as we said it, after a host's own words.

    Answers the estimated tokens saved, or None where nothing could be taken out.
    """
    for span in known.item.texts:
        raw = conversation.bytes_of(span)
        text = str(decoded(raw, span[0]))
        start = _head_in(text, known)
        if start is None:
            continue
        if any(part_stub(known.message, part) in text for part in entry.forgotten_parts):
            return None  # another gateway was here
        borders = part_borders(text[start:])
        wanted = [part for part in entry.forgotten_parts if 1 <= part < len(borders)]
        ends = [start + border for part in wanted for border in (borders[part - 1], borders[part])]
        places = places_in_string(raw, ends)
        saved = 0
        for part, first, last in zip(wanted, places[::2], places[1::2], strict=True):
            words = part_stub(known.message, part) + "\n"
            # A quoted string without its quotes is what stands inside one.
            edits.append(Edit(span[0] + first, span[0] + last, encoded(words)[1:-1]))
            saved += max(0, (last - first) // BYTES_PER_TOKEN - count_tokens(words))
        return saved
    return None


def _head_in(text: str, known: Known) -> int | None:
    if not known.is_ours:
        return 0 if len(known.item.texts) == 1 else None
    begin = f"m{known.message.number} · "
    if text.startswith(begin):
        return 0
    at = text.find("\n" + begin)
    return at + 1 if 0 <= at <= 120 and text.startswith(("Wall time: ", "Output:")) else None


def _line(conversation: Conversation, edits: list[Edit], known: Known) -> None:
    """Write the handle line before a host's result's first text, unless it stands there."""
    item = known.item
    inside = encoded(known.line)[1:-1]
    if item.texts:
        start = item.texts[0][0] + 1
        if not conversation.raw.startswith(inside, start):
            edits.append(Edit(start, start, inside))
    elif item.blocks and conversation.dialect == "anthropic":
        start = item.blocks[0][0]
        edits.append(Edit(start, start, b'{"type": "text", "text": "' + inside + b'"}, '))

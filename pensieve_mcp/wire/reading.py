"""Reading the top of a request, and only what is new in it.

A host sends the whole conversation with every request. What stands at its beginning byte for byte as in the
request before has been read already: its items are taken over, with their places. This saves nine tenths of the
work and changes no answer, which a property test holds it to.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from pensieve_mcp.wire.conversation import Conversation, Dialect, Item, Reader
from pensieve_mcp.wire.spans import Span, blank, decoded, skip, walk_elements, walk_members

MOST_EARLIER = 96  # conversations at once; each keeps its last body
MOST_BYTES = 32 * 2**20  # of memory that they take all together; the last one is kept whatever its size
ITEM_BYTES = 1_700  # what an item takes with all that is remembered of it (measured: 1,600)
PROBE_BYTES = 256  # enough to tell most conversations apart


class TopReader:
    """What the dialects share. `list_key` is where the conversation stands; `_element` reads one of its elements."""

    list_key = "messages"
    text_of_string = True  # a list that is a string is one message of the user

    def __init__(self, raw: bytes, earlier: Conversation | None = None) -> None:
        self.raw = raw
        self.text = raw.decode("latin-1")
        self.items: list[Item] = []
        self.top: dict[str, Span] = {}
        self.borders: list[tuple[int, int]] = []
        self._earlier = earlier

    def walk(self) -> None:
        walk_members(self.text, blank(self.text, 0), self._top)

    def _top(self, key: str, start: int) -> int:
        if key == self.list_key:
            self.items.clear()
            self.borders.clear()
            end = self._list(start)
        elif (known := self._known_value(key, start)) is not None:
            end = known
        else:
            end = skip(self.text, start)
        self.top[key] = (start, end)
        return end

    def _known_value(self, key: str, start: int) -> int | None:
        """The end of an object or list that stands here as it stood in the earlier request: such a value ends
        where it ends, whatever follows."""
        span = None if self._earlier is None else self._earlier.top.get(key)
        if self._earlier is None or span is None or span[1] - span[0] < 256 or self.text[start] not in "{[":
            return None
        return (
            start + span[1] - span[0] if self.raw.startswith(self._earlier.raw[slice(*span)], start) else None
        )

    def _list(self, start: int) -> int:
        if self.text[start : start + 1] != "[" and self.text_of_string:
            end = skip(self.text, start)
            self.items.append(Item("text", "user", (start, end)))
            return end
        after = self._take_over(start)
        return walk_elements(self.text, start, self._bordered, after=after)

    def _take_over(self, start: int) -> int | None:
        """Items of the earlier request up to the last border before which nothing differs; answers that border."""
        earlier = self._earlier
        if earlier is None or earlier.top.get(self.list_key, (-1, 0))[0] != start:
            return None
        low = common_elements(self.raw, earlier, start)
        if not low:
            return None
        self.borders = list(earlier.borders[:low])
        end, count = self.borders[-1]
        self.items = list(earlier.items[:count])
        return end

    def _bordered(self, start: int) -> int:
        end = self._element(start)
        self.borders.append((end, len(self.items)))
        return end

    def _element(self, start: int) -> int:
        raise NotImplementedError

    def value(self, key: str) -> object:
        span = self.top.get(key)
        return None if span is None else decoded(self.raw[span[0] : span[1]], span[0])

    def string(self, key: str) -> str:
        return string_at(self.raw, self.top.get(key))

    def is_true(self, key: str) -> bool:
        return self.text[slice(*self.top.get(key, (0, 0)))] == "true"

    def sizes(self, names: dict[str, str]) -> dict[str, int]:
        return {names[key]: b - a for key, (a, b) in self.top.items() if key in names}


def string_at(raw: bytes, span: Span | None) -> str:
    """The string that stands there, or nothing for any other value."""
    if span is None or raw[span[0] : span[0] + 1] != b'"':
        return ""
    inside = raw[span[0] + 1 : span[1] - 1]
    if b"\\" not in inside and inside.isascii():
        return inside.decode("ascii")
    return str(decoded(raw[span[0] : span[1]], span[0]))


class Earlier:
    """The last requests of some conversations, so that a later one is read from where it differs. Safe to share."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Conversation] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, raw: bytes, dialect: Dialect, reader: Reader) -> Conversation:
        """Read a request with the help of the one that begins like it, and keep it for the next. Raises Unreadable."""
        with self._lock:
            candidates = [(key, kept) for key, kept in self._kept.items() if kept.dialect == dialect]
        best: tuple[int, bytes, Conversation] | None = None
        for key, kept in reversed(candidates):
            common = common_elements(raw, kept) if _may_be_alike(raw, kept) else 0
            if common and (best is None or common > best[0]):
                best = (common, key, kept)
                if common >= len(kept.borders) - 3:
                    break
        conversation = reader(raw, best[2] if best else None)
        with self._lock:
            if best is not None and best[0] >= len(best[2].borders) - 3:
                self._kept.pop(best[1], None)  # the same conversation, gone on
            if conversation.borders:
                self._kept[raw[:64] + str(id(conversation)).encode()] = conversation
            size = sum(map(_size, self._kept.values()))
            while len(self._kept) > 1 and (len(self._kept) > MOST_EARLIER or size > MOST_BYTES):
                size -= _size(self._kept.popitem(last=False)[1])
        return conversation


def _size(kept: Conversation) -> int:
    return len(kept.raw) + ITEM_BYTES * len(kept.items)


def _may_be_alike(raw: bytes, kept: Conversation) -> bool:
    """A small look, before a long system prompt is compared."""
    end = kept.borders[0][0]
    probe = slice(max(0, end - PROBE_BYTES), end)
    return raw[probe] == kept.raw[probe]


def common_elements(raw: bytes, kept: Conversation, start: int = 0) -> int:
    """How many elements both begin with, byte for byte from `start`. Two conversations mostly differ early, so the
    look goes on in growing steps.
    """
    borders = kept.borders

    def same(low: int, high: int) -> bool:
        begin = borders[low - 1][0] if low else start
        return raw.startswith(kept.raw[begin : borders[high - 1][0]], begin)

    low, step = 0, 1
    while low + step <= len(borders) and same(low, low + step):
        low += step
        step *= 2
    while step > 1:
        step //= 2
        if low + step <= len(borders) and same(low, low + step):
            low += step
    return low

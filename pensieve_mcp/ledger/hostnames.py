"""Names of a host's own results: `h7f3a`, from the host's id of the call, the same in every process and every turn.

Four digits are short to write, and now and then two calls share them. Then the later one gets more within its
conversation. Two conversations of one episode (sub-agents, forks) cannot know of each other. So a name is taken to
mean every result whose digest begins with it; where that is more than one, a longer name tells them apart.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

HOST_HANDLE_DIGITS = 4  # 65,536 names
MOST_DIGITS = 32


@lru_cache(maxsize=4_096)
def _digest(call_id: str) -> str:
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def host_handle(call_id: str, digits: int = HOST_HANDLE_DIGITS) -> str:
    """`h` and the first hex digits of the call id's sha256."""
    return "h" + _digest(call_id)[:digits]


class HostNames:
    """The calls named so far in one conversation, or in one episode. Not for several threads."""

    def __init__(self) -> None:
        self._alike: dict[str, tuple[tuple[str, int], ...]] = {}  # by the shortest name

    def copy(self) -> HostNames:
        other = HostNames()
        other._alike = dict(self._alike)
        return other

    def name(self, call_id: str, number: int) -> str | None:
        """The shortest name that means no earlier call; None for one that was named before. `number` is what its
        message is known by.
        """
        key = host_handle(call_id)
        alike = self._alike.get(key, ())
        if any(other == call_id for other, _ in alike):
            return None
        self._alike[key] = (*alike, (call_id, number))
        for digits in range(HOST_HANDLE_DIGITS, MOST_DIGITS):
            handle = host_handle(call_id, digits)
            if all(host_handle(other, digits) != handle for other, _ in alike):
                return handle
        return host_handle(call_id, MOST_DIGITS)

    def find(self, handle: str) -> list[int]:
        """Numbers of those that this name may mean."""
        return [number for _, number in self._meant(handle)]

    def longer(self, handle: str) -> dict[int, str]:
        """For each that this name may mean a name of its own, by number."""
        meant = self._meant(handle)
        own: dict[int, str] = {}
        for call_id, number in meant:
            digits = len(handle) - 1
            while digits < MOST_DIGITS and any(
                host_handle(other, digits) == host_handle(call_id, digits)
                for other, _ in meant
                if other != call_id
            ):
                digits += 1
            own[number] = host_handle(call_id, digits)
        return own

    def _meant(self, handle: str) -> list[tuple[str, int]]:
        digits = len(handle) - 1
        return [
            one
            for one in self._alike.get(handle[: HOST_HANDLE_DIGITS + 1], ())
            if host_handle(one[0], digits) == handle
        ]

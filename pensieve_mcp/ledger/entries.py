"""Entries of a transcript that is made anew at every turn: a new one shares all but the changed blocks with the one
before, so a turn of a long conversation costs no more than one of a short one. Knows nothing of what an entry is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar, overload

T = TypeVar("T")

BLOCK = 256


class Entries(Sequence[T]):
    """Never changes once made; equal to any sequence of the same values."""

    __slots__ = ("_blocks", "_length")

    def __init__(self, blocks: tuple[tuple[T, ...], ...] = ()) -> None:
        """All blocks but the last have `BLOCK` values, the last at least one."""
        self._blocks = blocks
        self._length = (len(blocks) - 1) * BLOCK + len(blocks[-1]) if blocks else 0

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...
    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(self._length)))
        if place < 0:
            place += self._length
        if not 0 <= place < self._length:
            raise IndexError(place)
        return self._blocks[place // BLOCK][place % BLOCK]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    def __reversed__(self) -> Iterator[T]:
        return chain.from_iterable(map(reversed, reversed(self._blocks)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entries):
            return self._blocks == other._blocks
        return isinstance(other, tuple | list) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Growing(Generic[T]):
    """`values` as they stand now, changed by `append` and `put` alone. `entries()` costs what changed since the last
    call, and a pointer a block."""

    def __init__(self, values: Iterable[T] = ()) -> None:
        self.values: list[T] = list(values)
        self._blocks: list[tuple[T, ...]] = []
        self._changed: set[int] = set(range(-(-len(self.values) // BLOCK)))

    def append(self, value: T) -> None:
        self._changed.add(len(self.values) // BLOCK)
        self.values.append(value)

    def put(self, place: int, value: T) -> None:
        """Another value at a place that is there."""
        self._changed.add(place // BLOCK)
        self.values[place] = value

    def entries(self) -> Entries[T]:
        for number in sorted(self._changed):
            self._blocks[number : number + 1] = [tuple(self.values[number * BLOCK : (number + 1) * BLOCK])]
        self._changed.clear()
        return Entries(tuple(self._blocks))


class Places(Mapping[int, int]):
    """Number → place for the first so many of a table that only grows and is shared with who fills it."""

    __slots__ = ("_length", "_table")

    def __init__(self, table: dict[int, int], length: int) -> None:
        self._table = table
        self._length = length

    def __getitem__(self, number: int) -> int:
        place = self._table[number]
        if place >= self._length:
            raise KeyError(number)
        return place

    def __iter__(self) -> Iterator[int]:
        # a copy, since another thread may add to it
        return (number for number, place in self._table.copy().items() if place < self._length)

    def __len__(self) -> int:
        return self._length

"""Checks the oil figures of the keeper's log of 1911 against the length of the night.

The log gives the oil burned each night in pints. A lamp with four wicks burns about so much an hour; if a figure is far
from hours of darkness times that rate, either the copyist or the keeper made a slip.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LATITUDE_DEGREES = 57.2  # Hallan Rock, from the survey
PINTS_PER_HOUR = 1.35  # four wicks at the usual height, after Eskil Lind's own note of 1908
TOLERANCE = 0.25  # a quarter: wicks are turned by hand


@dataclass(frozen=True)
class Night:
    """One entry of the log: day of the year, and the pints that were burned."""

    day: int
    pints: float


def hours_of_darkness(day: int, latitude: float = LATITUDE_DEGREES) -> float:
    """Hours between sunset and sunrise, from the declination of the sun; good to some minutes."""
    declination = -23.44 * math.cos(math.radians(360 / 365 * (day + 10)))
    product = -math.tan(math.radians(latitude)) * math.tan(math.radians(declination))
    if product >= 1:
        return 24.0
    if product <= -1:
        return 0.0
    return 24 - 2 * math.degrees(math.acos(product)) / 15


def expected_pints(day: int) -> float:
    return hours_of_darkness(day) * PINTS_PER_HOUR


def read_log(path: Path) -> Iterator[Night]:
    """The nights of a log file, in order; entries without a figure are passed over."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=0):
        if match := re.search(r"Oil (\d+(?:\.\d)?) pints", line):
            yield Night(day=number, pints=float(match[1]))


def doubtful(nights: Iterator[Night]) -> list[Night]:
    """Nights whose figure is off by more than the tolerance."""
    return [n for n in nights if abs(n.pints - expected_pints(n.day)) > TOLERANCE * expected_pints(n.day)]


if __name__ == "__main__":
    for night in doubtful(read_log(Path("keepers-log-1911.txt"))):
        print(f"day {night.day}: {night.pints} pints, expected about {expected_pints(night.day):.1f}")

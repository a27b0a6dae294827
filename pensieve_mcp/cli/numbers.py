"""Numbers as people type them in every program: digits 0 to 9, a sign, a point.

Python's own `int` and `float` also read the digits of other scripts, underscores, infinities and what is no number at
all (`nan`), none of which anybody means at a command line. Which option takes a number is the commands' to say.
"""

from __future__ import annotations

import re
from typing import Any

import click
from click.types import FloatParamType, IntParamType

_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?\s*\Z")


class _Plain(click.ParamType[Any]):
    """Looks at the text before the number's own type does."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not _NUMBER.match(value):
            self.fail(f"{value!r} is not a number in the digits 0 to 9.", param, ctx)
        return super().convert(value, param, ctx)


class _Whole(_Plain, IntParamType):
    pass


class _WholeRange(_Plain, click.IntRange):
    pass


class _Real(_Plain, FloatParamType):
    pass


class _RealRange(_Plain, click.FloatRange):
    pass


def plain_numbers(command: click.Command) -> click.Command:
    """The command, whose options and arguments, and those of its own commands, take plain numbers only."""
    for param in command.params:
        param.type = _plain(param.type)
    for inner in getattr(command, "commands", {}).values():
        plain_numbers(inner)
    return command


def _plain(kind: Any) -> Any:
    if isinstance(kind, _Plain):
        return kind
    if isinstance(kind, click.IntRange | click.FloatRange):
        made = _WholeRange if isinstance(kind, click.IntRange) else _RealRange
        return made(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)  # type: ignore[arg-type]
    if isinstance(kind, IntParamType):
        return _Whole()
    return _Real() if isinstance(kind, FloatParamType) else kind

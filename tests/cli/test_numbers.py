"""A number is what every program takes for one: digits of other scripts, underscores and infinities are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest

from pensieve_mcp.cli import USAGE, run
from pensieve_mcp.cli.app import COMMANDS, app

ODD = ["١٢", "１２", "1_2", "nan", "inf", "0x12", "²", "1e999", ""]


def numbers() -> Iterator[Any]:
    """Every option and argument of every command that takes a number."""

    def below(name: str, command: click.Command) -> Iterator[Any]:
        for param in command.params:
            if isinstance(param.type, click.types._NumberParamTypeBase):
                yield pytest.param(command, param, id=f"{name} {param.name}")
        for inner, one in getattr(command, "commands", {}).items():
            yield from below(f"{name} {inner}", one)

    context = click.Context(app)
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        yield from below(name, command)


@pytest.mark.parametrize(("command", "param"), list(numbers()))
def test_only_plain_digits_are_a_number(command: click.Command, param: click.Parameter) -> None:
    context = click.Context(command)
    for odd in ODD:
        with pytest.raises(click.BadParameter):
            param.type.convert(odd, param, context)
    least = getattr(param.type, "min", None) or 1
    assert param.type.convert(f" {least}", param, context) == least


def test_the_refusal_names_the_option_and_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "oil", "--limit", "١٢"]) == USAGE
    told = capsys.readouterr().err

    assert "--limit" in told and "١٢" in told and "0 to 9" in told

"""A workspace over a small library, and loops over it with a scripted model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.statelm.backends.http import Poster
from pensieve_mcp.statelm.backends.scripted import Line, Scripted
from pensieve_mcp.statelm.dialects import dialect
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.turns import Asked, Call
from pensieve_mcp.workspace import Workspace

GUIDE = """# Bees of the Arvale Museum

The Arvale Museum was founded by Ada Quill. It opened its doors in 1871.

Ada Quill was born in Pelham. She worked as a botanist before she came to the valley.

Honey bees live in colonies. Feed the colony with sugar syrup before the first frost of the year.
"""

SECRET = "The hidden word of the seventh hive is xylograph."


@pytest.fixture(autouse=True)
def no_poster_stays_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test left open is closed after it: no thread of one test runs on in the next."""
    opened: list[Poster] = []
    begin = Poster.__init__

    def begun(poster: Poster, *arguments: Any, **named: Any) -> None:
        begin(poster, *arguments, **named)
        opened.append(poster)

    monkeypatch.setattr(Poster, "__init__", begun)
    yield
    for poster in opened:
        poster.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A guide, a diary of many chunks, and one sentence that occurs once."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "guide.md").write_text(GUIDE, encoding="utf-8")
    days = [
        f"Day {day}. We walked {day + 7} kilometres by the river and saw {day * 3} herons near mill number {day}."
        for day in range(1, 161)
    ]
    days[80] += " " + SECRET
    (docs / "diary.txt").write_text("\n\n".join(days), encoding="utf-8")
    return docs


Open = Callable[..., Workspace]


@pytest.fixture
def open_workspace(folder: Path, tmp_path: Path) -> Iterator[Open]:
    """`open_workspace(**settings)`, indexed; closed after the test."""
    opened: list[Workspace] = []

    def make(**arguments: Any) -> Workspace:
        workspace = Workspace.open(
            [folder],
            state=tmp_path / f"state-{len(opened)}",
            environment={"PENSIEVE_HOME": str(tmp_path / "home")},
            arguments={"second_stage": False, "chunk_tokens": 200, **arguments},
            builder="inline",
        )
        workspace.build_now()
        opened.append(workspace)
        return workspace

    yield make
    for workspace in opened:
        workspace.close()


@pytest.fixture
def workspace(open_workspace: Open) -> Workspace:
    return open_workspace()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Run:
    """A finished loop with what its model was sent."""

    def __init__(self, loop: Loop, backend: Scripted, asked: Asked) -> None:
        self.loop, self.backend, self.asked = loop, backend, asked

    @property
    def sent(self) -> list[str]:
        return [one.decode("utf-8") for one in self.backend.received]


Play = Callable[..., Run]


@pytest.fixture
def play(workspace: Workspace) -> Play:
    """`play(lines, dialect=…)`: a scripted model against the loop."""

    def run(
        *lines: Line, name: str = "ours", search: bool = True, over: Workspace | None = None, **more: Any
    ) -> Run:
        question = more.pop("question", "Who founded the Arvale Museum?")
        loop = Loop.over(
            over or workspace, question, more.pop("speaker", None) or dialect(name, search=search), **more
        )
        backend = Scripted(lines)
        return Run(loop, backend, loop.run(backend))

    return run


def call(name: str, **arguments: Any) -> Call:
    return Call(name, arguments)

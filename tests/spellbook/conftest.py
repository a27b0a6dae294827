"""A whole workspace over a temporary folder: one fixture, no environment, no home folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.episode import Episode
from pensieve_mcp.spellbook.casting import CastResult, cast
from pensieve_mcp.workspace import Workspace

GUIDE = """# Bees

Honey bees live in colonies.

## Swarms

Last year nine swarms caught in May were strong. Look for queen cells every week.

## Winter

Feed the colony with sugar syrup before the first frost. The cluster needs fourteen kilograms of stores.
"""

Cast = Callable[..., CastResult]
Open = Callable[..., Workspace]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Documents: a guide with headings, a long diary of many chunks, Chinese text, and a binary file."""
    docs = tmp_path / "docs"
    (docs / "notes").mkdir(parents=True)
    (docs / "guide.md").write_text(GUIDE, encoding="utf-8")
    days = [
        f"Day {day}. We walked {day + 7} kilometres by the river and saw {day * 3} herons near mill number {day}."
        for day in range(1, 401)
    ]
    (docs / "notes" / "diary.txt").write_text("\n\n".join(days), encoding="utf-8")
    (docs / "蜂蜜.txt").write_text("蜂群采蜜归来。今年的蜂蜜产量是三百公斤。", encoding="utf-8")
    (docs / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)))
    return docs


@pytest.fixture
def workspace(folder: Path, tmp_path: Path) -> Iterator[Workspace]:
    with _open(folder, tmp_path / "state") as opened:
        opened.build_now()
        yield opened


@pytest.fixture
def open_workspace() -> Open:
    """`open_workspace(folder, state, **settings)`, for tests that close and open again."""
    return _open


def _open(folder: Path, state: Path, **arguments: Any) -> Workspace:
    return Workspace.open(
        [folder],
        state=state,
        environment={"PENSIEVE_HOME": str(state.parent / "home")},
        arguments={"second_stage": False, **arguments},
        builder="inline",
    )


@pytest.fixture
def episode(workspace: Workspace) -> Episode:
    return workspace.episode("test")


@pytest.fixture
def spell(episode: Episode) -> Cast:
    """`spell("note", key=…)` casts in one episode and fails the test on an unforeseen error."""

    def run(name: str, **arguments: Any) -> CastResult:
        result = cast(episode, name, arguments)
        assert result.slug != "internal", result.text
        return result

    return run

"""An HTTP server consolidates while nobody asks, one process at a time, and a crash costs nothing (issue 6, item 7)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from pensieve_mcp.consolidation import consolidate
from pensieve_mcp.server.idling import Idling
from pensieve_mcp.workspace import Workspace

from .conftest import RENT, Desk

AT_LEASE = {"path": "docs/lease.md", "quote": RENT}


class Opened:
    """What an `Opening` is to it."""

    def __init__(self, workspace: Workspace | None) -> None:
        self.workspace = workspace

    def peek(self) -> Workspace | None:
        return self.workspace


def idling(workspace: Workspace, **more: Any) -> Idling:
    return Idling(Opened(workspace), {}, **more)  # type: ignore[arg-type]  # all that is used of it


def doubles(desk: Desk, count: int = 1) -> None:
    for number in range(count):
        desk.note(f"fact-{number}", f"same words {number}", AT_LEASE)
        desk.note(f"Fact_{number}", f"same words {number}")


def keys(desk: Desk) -> list[str]:
    return [line.key for line in desk.workspace.notebook.list().lines]


def test_a_quiet_server_consolidates_and_then_leaves_it_alone(desk: Desk) -> None:
    doubles(desk)
    idle = idling(desk.workspace)

    assert idle.step(desk.workspace) and keys(desk) == ["fact-0"]
    assert not idle.step(desk.workspace), "nothing is new"
    doubles(desk)
    desk.note("FACT 0", "same words 0")
    assert idle.step(desk.workspace)


def test_it_begins_by_itself_after_the_quiet_time(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(consolidate_idle_seconds=1)
    desk.build()
    doubles(desk)
    idle = idling(desk.workspace)
    idle._last_call -= 1.0

    async def until_done() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(idle.run)
            while len(keys(desk)) > 1:  # the test's own time limit ends it
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()

    anyio.run(until_done)
    assert keys(desk) == ["fact-0"]


@pytest.mark.parametrize("how", ["off", "busy", "called just now"])
def test_it_does_not_begin(open_desk: Callable[..., Desk], how: str) -> None:
    desk = open_desk(consolidate_idle_seconds=0 if how == "off" else 1)
    busy = how == "busy"
    idle = idling(desk.workspace, busy=lambda: busy)
    if how != "called just now":
        idle._last_call -= 100.0
    looked: list[float] = []
    quiet_for = idle.quiet_for

    def watch(seconds: float) -> bool:
        looked.append(seconds)
        assert not quiet_for(seconds)
        return False

    idle.quiet_for = watch  # type: ignore[method-assign]

    async def a_while() -> None:
        with anyio.move_on_after(0.6):
            await idle.run()

    anyio.run(a_while)
    assert bool(looked) is (how != "off")


def test_a_call_that_comes_in_ends_it_and_the_next_quiet_time_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pensieve_mcp.consolidation as consolidation

    doubles(desk)
    idle = idling(desk.workspace)
    real = consolidation.propose

    def called_meanwhile(*arguments: Any) -> Any:
        idle.called()
        return real(*arguments)

    monkeypatch.setattr(consolidation, "propose", called_meanwhile)
    assert not idle.step(desk.workspace) and len(keys(desk)) == 2
    monkeypatch.undo()
    assert idle.step(desk.workspace) and len(keys(desk)) == 1


def test_two_servers_at_once_do_it_once(desk: Desk, open_desk: Callable[..., Desk]) -> None:
    doubles(desk, 6)
    desks = [desk, open_desk()]
    barrier = threading.Barrier(2)
    steps = [idling(one.workspace) for one in desks]

    def run(place: int) -> None:
        barrier.wait()
        steps[place].step(desks[place].workspace)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while any(step.step(one.workspace) for step, one in zip(steps, desks, strict=True)):
        pass

    assert sorted(keys(desk)) == [f"fact-{number}" for number in range(6)]
    assert all(len(desk.stored(key).merged_from) == 1 for key in keys(desk))
    revisions = {key: len(desk.workspace.notebook.history(key)) for key in keys(desk)}
    assert set(revisions.values()) == {2}, "merged once each"


CRASH = """
import os, sys
import pensieve_mcp.consolidation as consolidation
from pensieve_mcp.notebook.store import Notebook
from pensieve_mcp.workspace import Workspace

where = sys.argv[2]
workspace = Workspace.open(state=sys.argv[1], environment={}, arguments={"second_stage": False}, builder="inline")
die = lambda *a, **k: os._exit(9)
if where == "gathering":
    real, seen = Notebook.add_candidate, []
    def second(self, *a):
        seen.append(a)
        return die() if len(seen) == 2 else real(self, *a)
    Notebook.add_candidate = second
elif where == "checking":
    consolidation.check_all = die
elif where == "thinking":
    consolidation.propose = die
elif where == "publishing":
    real, seen = Notebook._make, []
    def second(self, *a):
        seen.append(a)
        return die() if len(seen) == 2 else real(self, *a)
    Notebook._make = second
consolidation.consolidate(workspace, before_publishing=die if where == "before publishing" else lambda: None)
"""


@pytest.mark.parametrize("where", ["gathering", "checking", "thinking", "before publishing", "publishing"])
def test_a_process_that_is_killed_anywhere_costs_nothing(desk: Desk, where: str) -> None:
    """The next one goes on at once: the lease of a process that is no more is free."""
    doubles(desk, 3)
    for name in ("second", "third"):
        desk.other(name).cast("finish", answer=f"answer of {name}")
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(desk.workspace.state), where],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert died.returncode == 9, died.stderr
    assert len([key for key in keys(desk) if not key.startswith("results/")]) == 6, "nothing half done"
    done = consolidate(desk.workspace)
    assert not done.busy and len(done.made) == 5
    assert sorted(keys(desk))[:3] == ["fact-0", "fact-1", "fact-2"] and len(keys(desk)) == 5


def test_a_model_is_asked_by_a_process_of_its_own(
    open_desk: Callable[..., Desk], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = "The rent is forty-two florins a quarter, paid in coin on the bridge."
    script = tmp_path / "script.txt"
    script.write_text(f"rent; payment. {said}\n", encoding="utf-8")
    desk = open_desk(consolidate_backend="scripted", consolidate_model=str(script))
    desk.build()
    desk.note(
        "rent", "The rent is forty-two florins a quarter, and it is paid in coin.", AT_LEASE, summary="rent"
    )
    desk.note(
        "payment",
        "Forty-two florins a quarter is the rent; it is paid on the bridge in coin.",
        AT_LEASE,
        summary="payment",
    )
    assert idling(desk.workspace).step(desk.workspace), caplog.text
    (key,) = keys(desk)
    assert desk.stored(key).content.endswith(said)


def test_where_the_model_cannot_be_had_the_rules_do_it(
    open_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    desk = open_desk(consolidate_backend="scripted", consolidate_model=str(tmp_path / "none.txt"))
    desk.build()
    doubles(desk)
    assert idling(desk.workspace).step(desk.workspace)
    assert keys(desk) == ["fact-0"]

"""A scripted teacher: it knows where the answer stands, and says for any state what should be done in it.

It plays tasks by casting the real spells on a real index. What it cannot find by searching is rejected (outcome), and
so is a trajectory with an error (process): only what could be imitated is kept. Now and then it reads another hit
than it should, so that the way back is learned, too; such a move itself is not. The same judgement labels the states
that a model of ours got into by itself.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pensieve_mcp.statelm.dialects.compact import WINDOW_TOKENS, Compact, state_text
from pensieve_mcp.statelm.dialects.moves import NOT_FOUND, Moves
from pensieve_mcp.statelm.dialects.view import View
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.sentences import sentences
from pensieve_mcp.statelm.training.evaluate import prepare
from pensieve_mcp.statelm.training.samples import Sample, Step, cut
from pensieve_mcp.statelm.training.tasks import Task, draw
from pensieve_mcp.statelm.turns import Reply

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

NOISE = 0.1  # of the choices are made wrongly on purpose
MAX_TURNS = 60
MAX_SCAN_TURNS = 400
BUDGET_WINDOW = 540  # with 200 kept free: one text, and little beside it


class Rejected(Exception):
    """This task does not become a trajectory; the reason in one word: missed, error, lost, long."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    task: Task
    steps: tuple[Step, ...]
    answer: str


def dialect_of(task: Task) -> Compact:
    """The dialect that a kind of task is played in."""
    window = BUDGET_WINDOW if task.kind == "budget" else WINDOW_TOKENS
    return Compact(search=task.kind != "scan", window_tokens=window)


def right_move(task: Task, view: View, moves: Moves, chunk: Callable[[int], str]) -> str:
    """The line that should be written in this state. `chunk` answers a chunk's text. Raises Rejected (`missed`)
    where nothing leads on."""
    if moves.forced:
        return moves.forced
    noted = set(view.notes)
    hop = next((h for h in task.hops if not h.golds or not set(map(_flat, h.golds)) <= noted), None)
    wanted = {_flat(gold) for gold in hop.golds} - noted if hop is not None else set()
    if view.text is not None:
        return next((f"note {n}" for n, one in enumerate(view.notable, 1) if one in wanted), "drop")
    if view.in_sight:
        for number, hit in enumerate(view.hits, 1):
            if number in moves.read and wanted & set(sentences(chunk(hit.chunk_id))):
                return f"read {number}"
        return "drop"
    if hop is None:
        return f"finish {_answer(task, view)}"
    if moves.read_on:
        return "read"
    tried = len(view.vain)
    if view.searches and hop is task.hops[0] and not view.notes:
        queries = hop.queries[1:]  # the first was the question's own words
        tried -= 1
    else:
        queries = hop.queries if hop is not task.hops[0] else hop.queries[1:]
    if moves.search and (not moves.finish or hop.golds or not tried) and tried < len(queries):
        return f"search {queries[max(0, tried)]}"
    if hop.golds or not moves.finish:
        raise Rejected("missed")
    return f"finish {NOT_FOUND}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _answer(task: Task, view: View) -> str:
    notes = " ".join(view.notes)
    shown = [notes[(at := notes.lower().index(gold.lower())) : at + len(gold)] for gold in task.gold]
    return ", ".join(sorted(shown, key=notes.index))


class Teacher:
    """Plays one task in the compact dialect."""

    def __init__(
        self, workspace: Workspace, task: Task, dice: random.Random, *, noise: float = NOISE
    ) -> None:
        self.task = task
        self.dice = dice
        self.noise = noise
        self.dialect = dialect_of(task)
        under = workspace.prefix(task.under) if task.under else ()
        self.loop = Loop.over(workspace, task.question, self.dialect, model="teacher", under=under)
        self.steps: list[Step] = []

    def play(self) -> Trajectory:
        """Raises Rejected."""
        corpus = self.loop.conversation.workspace.corpus
        for _ in range(MAX_SCAN_TURNS if self.task.kind == "scan" else MAX_TURNS):
            prompt = self.loop.prompt()
            view, moves = self.dialect.look(self.loop.conversation, self.loop.offer())
            line = right_move(self.task, view, moves, corpus.chunk_text)
            if not prompt.forced and (other := self._slip(moves, line)):
                line = other
            elif not prompt.forced:
                self.steps.append(Step(state_text(view), line))
            self.loop.take(Reply(line))
            last = self.loop.conversation.last_result()
            if last is None or last.message.is_error:
                raise Rejected("error")
            if self.loop.answer is not None:
                return self._judged()
        raise Rejected("long")

    def _judged(self) -> Trajectory:
        answer = str(self.loop.answer)
        if (answer == NOT_FOUND) != (self.task.gold == (NOT_FOUND,)):
            raise Rejected("missed")
        return Trajectory(self.task, tuple(self.steps), answer)

    def _slip(self, moves: Moves, right: str) -> str:
        """Another move than the right one, or none. Notes stay true, and what is searched is not lost."""
        if self.dice.random() >= self.noise:
            return ""
        others = [f"read {n}" for n in moves.read if f"read {n}" != right]
        return self.dice.choice(others) if others else ""


def play_all(
    workspace: Workspace, tasks: Sequence[Task], seed: int
) -> tuple[list[Trajectory], dict[str, int]]:
    """Trajectories, and how many tasks were rejected for which reason."""
    kept: list[Trajectory] = []
    rejected: dict[str, int] = {}
    for number, task in enumerate(tasks):
        try:
            kept.append(Teacher(workspace, task, random.Random(f"{seed}/{number}")).play())
        except Rejected as reason:
            name = f"{task.kind}: {reason}"
            rejected[name] = rejected.get(name, 0) + 1
    return kept, rejected


def play_library(
    count: int, seed: int, text: list[str], paragraphs: int, dense: bool = False
) -> tuple[list[Sample], int, dict[str, int]]:
    """One set of documents with its tasks, made, played and thrown away: (samples, tasks kept, reasons)."""
    tasks = draw(count, seed)
    with tempfile.TemporaryDirectory(prefix="pensieve-train-", ignore_cleanup_errors=True) as place:
        workspace, placed = prepare(tasks, Path(place), seed, paragraphs=paragraphs, text=text, dense=dense)
        with workspace:
            played, refused = play_all(workspace, placed, seed)
    return [sample for one in played for sample in cut(one.task.kind, one.steps)], len(played), refused

"""A scripted teacher: it knows where the answer stands, and casts the real spells on a real index to get there.

What it cannot find by searching is rejected (outcome), and so is a trajectory with an error, a repeat or a read
that was neither used nor deleted (process): only what could be imitated is kept.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pensieve_mcp.statelm.dialects.compact import Compact, written
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.sentences import sentences
from pensieve_mcp.statelm.training.samples import Step
from pensieve_mcp.statelm.training.tasks import NOT_FOUND, Hop, Task
from pensieve_mcp.statelm.turns import Call

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

WRONG_FIRST_SHARE = 0.5  # of the times when the best hit is not the wanted one, it is read, seen and deleted


class Rejected(Exception):
    """This task does not become a trajectory; the reason in one word: missed, error, lost."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    task: Task
    steps: tuple[Step, ...]
    answer: str


class Teacher:
    """Plays one task in the compact dialect."""

    def __init__(
        self, workspace: Workspace, task: Task, dice: random.Random, *, scan_limit: int = 60
    ) -> None:
        self.task = task
        self.dice = dice
        self.dialect = Compact(search=task.kind != "scan")
        under = workspace.prefix(task.under) if task.under else ()
        self.loop = Loop.over(workspace, task.question, self.dialect, model="teacher", under=under)
        self.steps: list[Step] = []
        self.scan_limit = scan_limit

    def play(self) -> Trajectory:
        """Raises Rejected."""
        if self.task.kind == "scan":
            self._scan(self.task.hops[0])
        else:
            for place, hop in enumerate(self.task.hops):
                self._look_up(hop, place)
        if not self.task.hops[-1].golds:
            answer = NOT_FOUND
        elif len(self.task.gold) > 1:
            noted = " ".join(note.content for note in self.loop.conversation.notes())
            answer = ", ".join(sorted(self.task.gold, key=noted.index))
        else:
            answer = self.task.gold[0]
        self._do("finish", answer=answer)
        return Trajectory(self.task, tuple(self.steps), answer)

    # -- steps ---------------------------------------------------------------------------------------------

    def _do(self, name: str, **arguments: object) -> int:
        """One call; answers its result's id. Raises Rejected where it fails: nobody should learn that."""
        call = Call(name, arguments)
        self.steps.append(Step(self.dialect.state_text(self.loop.conversation), written(call)))
        result = self.loop.act(call)
        if result is None or result.is_error:
            raise Rejected("error")
        return sum(e.message.role == "tool" for e in self.loop.conversation.spoken())

    def _last_text(self) -> str:
        last = self.loop.conversation.last_result()
        assert last is not None
        return self.loop.conversation.text_of(last)

    def _look_up(self, hop: Hop, place: int) -> None:
        wanted = {" ".join(gold.split()) for gold in hop.golds}
        noted = 0
        for attempt, query in enumerate(hop.queries):
            search = self._do("searchEngine", query=query)
            hits = self.dialect.hits_in(self._last_text())
            if not wanted:
                self._do("deleteContext", ids=[search])
                continue
            holders = [hit for hit in hits if wanted & set(self._sentences_of(hit))]
            if not holders:
                if attempt + 1 == len(hop.queries):
                    raise Rejected("missed")
                self._do("deleteContext", ids=[search])
                continue
            order = [hit for hit in hits if hit in holders]
            if hits[0] not in holders and self.dice.random() < WRONG_FIRST_SHARE:
                wrong = self._do("readChunk", id=hits[0])
                self._do("deleteContext", ids=[wrong])
            for number, hit in enumerate(order):
                read = self._do("readChunk", id=hit)
                here = [s for s in sentences(self._last_text()) if s in wanted]
                if not here:
                    raise Rejected("lost")
                for sentence in here:
                    noted += 1
                    self._do("note", key=hop.key if noted == 1 else f"{hop.key} {noted}", text=sentence)
                    wanted.discard(sentence)
                self._do("deleteContext", ids=[read] if number + 1 < len(order) else [search, read])
            if not wanted:
                return
        if wanted:
            raise Rejected("missed")

    def _scan(self, hop: Hop) -> None:
        wanted = " ".join(hop.golds[0].split())
        for _ in range(self.scan_limit):
            read = self._do("readChunk")
            if wanted in sentences(self._last_text()):
                self._do("note", key=hop.key, text=wanted)
                self._do("deleteContext", ids=[read])
                return
            self._do("deleteContext", ids=[read])
        raise Rejected("missed")

    def _sentences_of(self, chunk_id: int) -> list[str]:
        return sentences(self.loop.conversation.workspace.corpus.chunk_text(chunk_id))


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

"""The model's own play: what it saw, what it did, what the teacher would have done there, and how it ended.

Self-training and policy gradients both learn from these. The model is any backend that speaks the compact dialect.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pensieve_mcp.statelm.backends import Backend
from pensieve_mcp.statelm.dialects.compact import Compact
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.template import START
from pensieve_mcp.statelm.training.evaluate import prepare, score
from pensieve_mcp.statelm.training.samples import Step
from pensieve_mcp.statelm.training.tasks import Task, draw
from pensieve_mcp.statelm.training.teacher import Rejected, dialect_of, right_move
from pensieve_mcp.statelm.turns import Prompt, Reply

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

MAX_ROUNDS = 60
RIGHT, WRONG, UNFINISHED = 1.0, -0.5, -1.0  # the paper's rewards


@dataclass(frozen=True, slots=True)
class Choice:
    """One turn that the model was asked: what it wrote, and what the teacher would have (empty where the teacher does
    not know, either)."""

    step: Step
    right: str


@dataclass(frozen=True, slots=True)
class Rollout:
    task: Task
    choices: tuple[Choice, ...]
    answer: str
    reward: float
    errors: int


class Recorder:
    """A backend that writes down what another one is asked and answers."""

    def __init__(self, inner: Backend, task: Task, loop: Loop, dialect: Compact) -> None:
        self.inner, self.task, self.loop, self.dialect = inner, task, loop, dialect
        self.model = inner.model
        self.choices: list[Choice] = []

    def reply(self, prompt: Prompt) -> Reply:
        conversation = self.loop.conversation
        view, moves = self.dialect.look(conversation, self.loop.offer())
        try:
            right = right_move(self.task, view, moves, conversation.workspace.corpus.chunk_text)
        except Rejected:
            right = ""
        reply = self.inner.reply(prompt)
        state = prompt.text.removesuffix(f"{START}assistant\n")
        self.choices.append(Choice(Step(state, reply.text.strip()), right))
        return reply

    def close(self) -> None:
        self.inner.close()


def rollout(workspace: Workspace, task: Task, backend: Backend) -> Rollout:
    """One question by the model. Raises StorageError."""
    dialect = dialect_of(task)
    under = workspace.prefix(task.under) if task.under else ()
    loop = Loop.over(workspace, task.question, dialect, model="self", under=under)
    loop.hard_stop_rounds = max(MAX_ROUNDS, loop.conversation.rounds or 0)
    recorder = Recorder(backend, task, loop, dialect)
    asked = loop.run(recorder)
    if asked.ended not in ("finished", "not_found"):
        reward = UNFINISHED
    else:
        reward = RIGHT if score(asked.answer, task.gold)[1] else WRONG
    return Rollout(task, tuple(recorder.choices), asked.answer, reward, asked.metrics.errors)


def libraries(
    count: int, seed: int, text: Sequence[str], *, a_library: int, paragraphs: int,
    mix: dict[str, float] | None = None, skip: Callable[[int], bool] = lambda part: False,
) -> Iterator[tuple[int, Workspace, list[Task]]]:  # fmt: skip
    """Sets of documents with their tasks, one after another: (number, workspace, tasks). Parts that `skip` says are
    done already are not made. A workspace is closed when the next one is asked for."""
    for part, first in enumerate(range(0, count, a_library)):
        if skip(part):
            continue
        own = seed * 1_000_000 + first
        tasks = draw(min(a_library, count - first), own, mix=mix)
        with tempfile.TemporaryDirectory(prefix="pensieve-train-", ignore_cleanup_errors=True) as place:
            workspace, placed = prepare(tasks, Path(place), own, paragraphs=paragraphs, text=text)
            with workspace:
                yield part, workspace, placed

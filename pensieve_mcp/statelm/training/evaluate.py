"""The suite that decides: held-out text, entities and phrasings, questions of every kind, answers compared by string.

Per kind with n and a 95 % interval (Wilson), since the mean over kinds hides what a small model cannot do.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.ledger.events import refuses
from pensieve_mcp.statelm.backends import Backend
from pensieve_mcp.statelm.dialects import Dialect
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.sentences import normal
from pensieve_mcp.statelm.training.tasks import NOT_FOUND, Task, make, text_of_python, write_documents
from pensieve_mcp.statelm.training.worlds import dice
from pensieve_mcp.statelm.turns import Asked
from pensieve_mcp.workspace import Workspace

KINDS = ("single", "held", "hop", "list", "chat", "latest", "none", "module")
SLACK_WORDS = 4  # words an exact answer may have beyond the wanted ones


@dataclass(slots=True)
class Tally:
    """Counts of one kind."""

    n: int = 0
    exact: int = 0
    contains: int = 0
    finished: int = 0
    grounded: int = 0
    refused: int = 0
    turns: int = 0
    errors: int = 0
    peak_tokens: int = 0
    peak_prompt_tokens: int = 0
    cpu_seconds: float = 0.0

    def add(self, task: Task, asked: Asked) -> None:
        contains, exact = score(asked.answer, task.gold)
        self.n += 1
        self.exact += exact
        self.contains += contains
        self.finished += asked.ended in ("finished", "not_found")
        self.grounded += asked.grounded
        self.refused += asked.ended == "not_found"
        self.turns += asked.metrics.rounds
        self.errors += asked.metrics.errors
        self.peak_tokens = max(self.peak_tokens, asked.metrics.peak_tokens)
        self.peak_prompt_tokens = max(self.peak_prompt_tokens, asked.metrics.peak_prompt_tokens)
        self.cpu_seconds += asked.metrics.cpu_seconds


@dataclass(slots=True)
class Report:
    """Tallies by kind, and what they were made with."""

    corpus_tokens: int
    kinds: dict[str, Tally] = field(default_factory=dict)
    wall_seconds: float = 0.0

    @property
    def all(self) -> Tally:
        total = Tally()
        for tally in self.kinds.values():
            for name, value in asdict(tally).items():
                old = getattr(total, name)
                setattr(total, name, max(old, value) if name.startswith("peak") else old + value)
        return total

    def macro_exact(self) -> float:
        """Mean over kinds: what a checkpoint is chosen by."""
        return sum(t.exact / max(1, t.n) for t in self.kinds.values()) / max(1, len(self.kinds))

    def lines(self) -> list[str]:
        """The table, one line a kind."""
        rows = [
            f"{'kind':<11}{'n':>4}  {'exact':>6}  {'95 %':<13}{'contains':>8}{'grounded':>9}{'refused':>8}{'turns':>6}"
        ]
        for name, tally in [*self.kinds.items(), ("all", self.all)]:
            low, high = interval(tally.exact, tally.n)
            n = max(1, tally.n)
            rows.append(
                f"{name:<11}{tally.n:>4}  {tally.exact / n:>6.2f}  {low:.2f} to {high:.2f} {tally.contains / n:>8.2f}"
                f"{tally.grounded / n:>9.2f}{tally.refused / n:>8.2f}{tally.turns / n:>6.1f}"
            )
        total = self.all
        rows.append(
            f"{self.corpus_tokens:,} tokens; finished {total.finished / max(1, total.n):.2f}, valid actions "
            f"{1 - total.errors / max(1, total.turns):.3f}, peak {total.peak_tokens:,} tokens (prompt "
            f"{total.peak_prompt_tokens:,}), {total.cpu_seconds / max(1, total.n):.1f} CPU-s a question, "
            f"{self.wall_seconds:.0f} s in all, mean over kinds {self.macro_exact():.3f}"
        )
        return rows

    def data(self) -> dict[str, Any]:
        return {
            "corpus_tokens": self.corpus_tokens,
            "macro_exact": round(self.macro_exact(), 4),
            "wall_seconds": round(self.wall_seconds, 1),
            "kinds": {name: asdict(tally) for name, tally in self.kinds.items()},
        }


def score(answer: str, gold: Sequence[str]) -> tuple[bool, bool]:
    """(holds all wanted, and hardly more). Of "not found" every way of saying it."""
    if tuple(gold) == (NOT_FOUND,):
        right = refuses(answer)
        return right, right
    if refuses(answer):
        return False, False
    said = f" {normal(answer)} "
    holds = all(f" {normal(one)} " in said for one in gold)
    return holds, holds and len(said.split()) <= sum(len(normal(one).split()) for one in gold) + SLACK_WORDS


def interval(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    if not n:
        return 0.0, 1.0
    share = hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def suite(per_kind: int, seed: int, kinds: Sequence[str] = KINDS, split: str = "test") -> list[Task]:
    """Questions of the evaluation split (or, to choose among checkpoints, of training's), the kinds mixed."""
    tasks = []
    for kind in kinds:
        generator = dice(f"{seed}/{kind}", split)
        tasks += [make(kind, generator, split) for _ in range(per_kind)]
    random.Random(seed).shuffle(tasks)
    return tasks


def prepare(
    tasks: Sequence[Task],
    folder: Path,
    seed: int,
    *,
    paragraphs: int,
    split: str = "test",
    text: Sequence[str] = (),
    dense: bool = False,
) -> tuple[Workspace, list[Task]]:
    """Documents with the answers, indexed. The workspace is the caller's to close."""
    placed = write_documents(
        tasks, folder / "docs", text or text_of_python(split), seed, paragraphs=paragraphs, dense=dense
    )
    workspace = Workspace.open(
        [folder / "docs"],
        state=folder / "state",
        environment={"PENSIEVE_HOME": str(folder / "home")},
        arguments={"second_stage": False, "encoder": "static", "upgrade": False},
        builder="inline",
    )
    workspace.build_now()
    return workspace, placed


def evaluate(
    workspace: Workspace,
    tasks: Sequence[Task],
    answer: Callable[[Loop], Asked],
    dialect: Callable[[Task], Dialect],
    *,
    told: Callable[[Task, Asked], None] = lambda task, asked: None,
    max_turns: int = 40,
    seconds: float = math.inf,
) -> Report:
    """Every question once. `answer` runs a loop to its end; `seconds` stops early with what there is."""
    began = time.monotonic()
    report = Report(workspace.corpus.totals(()).tokens)
    for task in tasks:
        if time.monotonic() - began > seconds:
            break
        under = workspace.prefix(task.under) if task.under else ()
        loop = Loop.over(workspace, task.question, dialect(task), model="evaluated", under=under)
        loop.hard_stop_rounds = max_turns
        asked = answer(loop)
        report.kinds.setdefault(task.kind, Tally()).add(task, asked)
        told(task, asked)
    report.kinds = {kind: report.kinds[kind] for kind in sorted(report.kinds)}
    report.wall_seconds = time.monotonic() - began
    return report


def by_model(backend: Backend) -> Callable[[Loop], Asked]:
    return lambda loop: loop.run(backend)

"""The teacher's samples for a whole run, set of documents by set of documents, each written when it is done: a stopped
run goes on, several processes share the work, and the same seed gives the same samples in the same order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from pensieve_mcp.statelm.training.runs import digest, stage
from pensieve_mcp.statelm.training.samples import Sample, balanced, load, save
from pensieve_mcp.statelm.training.teacher import play_library

TASKS_A_LIBRARY = 100  # questions that share one set of documents


@dataclass(slots=True)
class Made:
    """Samples, the tasks they come from, and how many tasks were rejected for which reason."""

    samples: list[Sample]
    tasks: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


def teach(
    folder: Path, count: int, seed: int, text: list[str], *, paragraphs: int, workers: int = 1,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> Made:  # fmt: skip
    """Play `count` tasks; parts that an earlier, stopped call wrote into `folder` are taken as they are. Raises
    StorageError as `runs.stage` does."""
    with stage(folder, {"seed": seed, "paragraphs": paragraphs, "text": digest(text)}):
        return _taught(folder, count, seed, text, paragraphs, workers, told)


def _taught(
    folder: Path, count: int, seed: int, text: list[str], paragraphs: int, workers: int,
    told: Callable[[int, int], None],
) -> Made:  # fmt: skip
    jobs = [
        (folder / f"part-{first:06d}.jsonl", min(TASKS_A_LIBRARY, count - first), seed * 1_000_000 + first,
         text, paragraphs)
        for first in range(0, count, TASKS_A_LIBRARY)
    ]  # fmt: skip
    missing = [job for job in jobs if not _is_there(job[0], job[1])]
    done = len(jobs) - len(missing)
    if workers > 1 and len(missing) > 1:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for number, _ in enumerate(pool.map(write_part, *zip(*missing, strict=True)), done + 1):
                told(number, len(jobs))
    else:
        for number, job in enumerate(missing, done + 1):
            write_part(*job)
            told(number, len(jobs))
    made = Made([])
    for file, *_ in jobs:
        made.samples += load(file)
        counts = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        made.tasks += counts["tasks"]
        for name, number in counts["rejected"].items():
            made.rejected[name] = made.rejected.get(name, 0) + number
    made.samples = balanced(made.samples, seed)
    return made


def _is_there(file: Path, count: int) -> bool:
    """Whether this part was written with so many tasks: the last one of a smaller run has fewer."""
    if not file.exists():
        return False
    return bool(json.loads(file.with_suffix(".json").read_text("utf-8")).get("asked", count) == count)


def teach_small(libraries: int, seed: int, text: list[str]) -> list[Sample]:
    """Samples of few tasks each in documents of a page: there a search finds one or two chunks, not five."""
    dice = random.Random(seed)
    made: list[Sample] = []
    for number in range(libraries):
        samples, _, _ = play_library(
            dice.randint(1, 4), seed * 1_000_000 + number, text, dice.choice((0, 0, 4)), dense=True
        )
        made += samples
    return balanced(made, seed)


def write_part(file: Path, count: int, seed: int, text: list[str], paragraphs: int) -> None:
    """One set of documents, played and written; the samples last, so that a file that is there is whole."""
    samples, kept, rejected = play_library(count, seed, text, paragraphs)
    counts = {"asked": count, "tasks": kept, "rejected": rejected}
    file.with_suffix(".json").write_text(json.dumps(counts), encoding="utf-8")
    beside = file.with_suffix(".part")
    save(samples, beside)
    beside.replace(file)

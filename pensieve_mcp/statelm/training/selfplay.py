"""Self-training: samples from the model's own play.

From what ended well and without an error its own choices (rejection by outcome and by process: a choice that the
teacher would not have made is dropped); from all of it the states in which it chose otherwise than the teacher, with
the teacher's choice (DAgger). Written part by part, so that a stopped run goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pensieve_mcp.statelm.backends import Backend
from pensieve_mcp.statelm.training.rollouts import RIGHT, Rollout, libraries, rollout
from pensieve_mcp.statelm.training.runs import digest, stage
from pensieve_mcp.statelm.training.samples import Sample, Step, cut, load, save

REFUSALS = 0.35  # of the teacher's samples of the second stage
LAST_MIX = {
    "single": 0.15, "hop": 0.13, "list": 0.10, "chat": 0.10, "latest": 0.13, "none": 0.14, "misleading": 0.02,
    "rephrased": 0.01, "module": 0.04, "chain": 0.15, "log": 0.03,
}  # fmt: skip
"""Of the samples of the third stage: what was learned, in balance again."""
READING_MIX = {
    "scan": 0.30, "budget": 0.08, "single": 0.10, "hop": 0.10, "list": 0.08, "chat": 0.07, "latest": 0.08,
    "none": 0.08, "module": 0.02, "chain": 0.07, "log": 0.02,
}  # fmt: skip
"""Of the last: whoever learned to let hits go lets go what is read in order, too."""
OWN_SHARE = 0.34  # of the choices that were right anyway are kept: it knows them
TASKS_A_LIBRARY = 30
MIX = {
    "single": 0.10, "hop": 0.18, "list": 0.11, "chat": 0.05, "latest": 0.07, "none": 0.28, "misleading": 0.05,
    "module": 0.03, "chain": 0.10, "log": 0.03,
}  # fmt: skip
"""More of what a trained model still does wrong: giving up, going on."""


def samples_of(played: Rollout, dice: random.Random) -> list[Sample]:
    """What is learned from one rollout. States keep their order, so that neighbours share a sample."""
    kept: list[Step] = []
    for choice in played.choices:
        if not choice.right:
            continue
        agrees = choice.step.action == choice.right
        if not agrees:
            kept.append(Step(choice.step.state, choice.right))
        elif played.reward == RIGHT and not played.errors and dice.random() < OWN_SHARE:
            kept.append(choice.step)
    return cut(f"self {played.task.kind}", kept)


def play(
    backend: Backend, out: Path, *, tasks: int, seed: int, text: Sequence[str], paragraphs: int,
    a_library: int = TASKS_A_LIBRARY, player: str = "",
    told: Callable[[int, float, int], None] = lambda part, share, made: None,
) -> list[Sample]:  # fmt: skip
    """Play tasks and answer all samples, those of an earlier, stopped run included. `player` tells one model from
    another, `told` hears the number of each part, the share of right answers in it and how many samples it made. Raises
    StorageError as `runs.stage` does."""
    with stage(out, {"seed": seed, "paragraphs": paragraphs, "text": digest(text), "player": player}):
        return _played(backend, out, tasks, seed, text, paragraphs, a_library, told)


def _played(
    backend: Backend, out: Path, tasks: int, seed: int, text: Sequence[str], paragraphs: int, a_library: int,
    told: Callable[[int, float, int], None],
) -> list[Sample]:  # fmt: skip
    def file(part: int) -> Path:
        """Of fewer tasks than the others it has another name: a larger run plays more of them."""
        of = min(a_library, tasks - part * a_library)
        return out / (f"part-{part:04d}.jsonl" if of == a_library else f"part-{part:04d}-of-{of}.jsonl")

    for part, workspace, placed in libraries(
        tasks,
        seed,
        text,
        a_library=a_library,
        paragraphs=paragraphs,
        mix=MIX,
        skip=lambda part: file(part).exists(),
    ):
        dice = random.Random(f"{seed}/{part}")
        played = [rollout(workspace, task, backend) for task in placed]
        made = [sample for one in played for sample in samples_of(one, dice)]
        beside = file(part).with_suffix(".part")
        save(made, beside)
        beside.replace(file(part))
        told(part, sum(one.reward == RIGHT for one in played) / len(played), len(made))
    return [sample for part in range(-(-tasks // a_library)) for sample in load(file(part))]


def mixed(
    own: Sequence[Sample], teachers: Sequence[Sample], seed: int, *, share: float = 0.5
) -> list[Sample]:
    """Samples of one's own play among the teacher's: `share` of the whole are one's own, in an order by seed."""
    dice = random.Random(seed)
    others = list(teachers)
    dice.shuffle(others)
    whole = [*own, *others[: round(len(own) * (1 - share) / share)]]
    dice.shuffle(whole)
    return whole


def with_refusals(teachers: Sequence[Sample], count: int, seed: int) -> list[Sample]:
    """About `count` of the teacher's samples, a good third of them from questions about what is not there: a model that
    learned to follow ways reads too much into what it finds."""
    none = [one for one in teachers if one.kind == "none"]
    others = [one for one in teachers if one.kind != "none"]
    mine = random.Random(seed).sample(none, min(len(none), round(count * REFUSALS)))
    return mixed(mine, others, seed, share=REFUSALS)


def drawn(
    teachers: Sequence[Sample], count: int, seed: int, shares: Mapping[str, float] = LAST_MIX
) -> list[Sample]:
    """About `count` of the teacher's samples, so many of each kind; fewer where there are not as many."""
    dice = random.Random(seed)
    found: list[Sample] = []
    for kind, share in shares.items():
        known = [one for one in teachers if one.kind == kind]
        found += dice.sample(known, min(len(known), round(count * share)))
    dice.shuffle(found)
    return found

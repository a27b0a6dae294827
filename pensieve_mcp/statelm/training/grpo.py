# mypy: disable-error-code="import-not-found, no-any-return, unused-ignore"
"""Policy gradients on the model's own play (GRPO, as in the paper: k snapshots a trajectory, rewards +1, -0.5 and -1,
the group's mean as baseline, no penalty for leaving the reference).

Each iteration plays every question of its draw `group` times with the adapter as it is, and takes one step: what did
better than its group becomes likelier. What is sampled is bound by the grammar, what is learned is the probability
without it. The state is written after each iteration, so that a stopped run goes on with the same questions.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from pensieve_mcp.statelm.backends import Backend
from pensieve_mcp.statelm.bundled import sha256_of
from pensieve_mcp.statelm.gguf import Gguf, merge
from pensieve_mcp.statelm.template import END, START
from pensieve_mcp.statelm.training.devices import device_of
from pensieve_mcp.statelm.training.network import Network
from pensieve_mcp.statelm.training.rollouts import RIGHT, UNFINISHED, Rollout, libraries, rollout
from pensieve_mcp.statelm.training.runs import digest, stage
from pensieve_mcp.statelm.training.samples import Encoded
from pensieve_mcp.statelm.training.sft import LOG_FILE, resumed, saved
from pensieve_mcp.statelm.training.tokens import Tokenizer

POLICY_FILE = "policy.gguf"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a run is made with. Temperature is the sampler's."""

    seed: int = 7
    rank: int = 16
    alpha: float = 32.0
    first_layer: int = 10
    iterations: int = 20
    questions: int = 16
    group: int = 8
    snapshots: int = 2
    learning_rate: float = 2e-5
    temperature: float = 1.0
    paragraphs: int = 400
    batch: int = 8
    threads: int = 1

    def fixed(self) -> dict[str, object]:
        """What a run that goes on must have been begun with."""
        return {k: v for k, v in asdict(self).items() if k not in ("iterations", "threads")}


def advantages(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean of its group."""
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def lessons(
    group: Sequence[Rollout], snapshots: int, dice: random.Random, tokens: Callable[[str], list[int]]
) -> list[Encoded]:
    """Snapshots of one question's rollouts; a token's weight is its rollout's advantage over the action's length.
    Nothing where all did alike."""
    made: list[Encoded] = []
    for one, advantage in zip(group, advantages([r.reward for r in group]), strict=True):
        if not advantage or not one.choices:
            continue
        for choice in dice.sample(one.choices, min(snapshots, len(one.choices))):
            before = tokens(f"{choice.step.state}{START}assistant\n")
            action = tokens(choice.step.action + END)
            weights = (*(0.0 for _ in before), *(advantage / len(action) for _ in action))
            made.append(Encoded((*before, *action), weights))
    return made


def train(
    base: Path, adapter: Path, out: Path, recipe: Recipe, text: Sequence[str],
    policy: Callable[[Path, float, int], Backend],
    *, device: str = "cpu", progress: Callable[[dict[str, float]], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:  # fmt: skip
    """Go on from `adapter` in folder `out`. `policy(file, temperature, seed)` opens the merged model, `device` is as
    for `device_of`. Answers the last adapter. Raises BackendError, StorageError."""
    where = device_of(device)
    made_with = {
        **recipe.fixed(), "text": digest(text), "base": sha256_of(base)[:16], "adapter": sha256_of(adapter)[:16],
    }  # fmt: skip
    with stage(out, made_with):
        return _trained(base, adapter, out, recipe, text, policy, where, progress, stop)


def _trained(
    base: Path, adapter: Path, out: Path, recipe: Recipe, text: Sequence[str],
    policy: Callable[[Path, float, int], Backend], where: torch.device,
    progress: Callable[[dict[str, float]], None], stop: Callable[[], bool],
) -> Path:  # fmt: skip
    torch.set_num_threads(recipe.threads)
    source = Gguf.open(base)
    tokenizer = Tokenizer(source)
    network = Network(source, rank=recipe.rank, alpha=recipe.alpha, first=recipe.first_layer, device=where)
    network.load_adapter(adapter)
    parameters = network.trained()
    optimiser = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.0, betas=(0.9, 0.98))
    begun = resumed(out, network, optimiser, recipe.fixed())
    last = out / "adapter.gguf"
    network.save_adapter(last)
    with (out / LOG_FILE).open("a", encoding="utf-8") as log:
        for iteration in range(begun, recipe.iterations):
            clock, began = time.process_time(), time.monotonic()
            merge(base, out / POLICY_FILE, last)
            backend = policy(out / POLICY_FILE, recipe.temperature, recipe.seed * 1_000 + iteration)
            groups = _play(backend, recipe, iteration, text)
            backend.close()
            dice = random.Random(f"{recipe.seed}/{iteration}")
            learned = [e for group in groups for e in lessons(group, recipe.snapshots, dice, tokenizer)]
            for start in range(0, len(learned), recipe.batch):
                loss, _ = network.loss(learned[start : start + recipe.batch])
                (loss / len(learned)).backward()
            if learned:
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            rewards = [one.reward for group in groups for one in group]
            line = {
                "iteration": iteration + 1,
                "reward": round(sum(rewards) / len(rewards), 4),
                "right": round(sum(r == RIGHT for r in rewards) / len(rewards), 4),
                "unfinished": round(sum(r == UNFINISHED for r in rewards) / len(rewards), 4),
                "snapshots": len(learned),
                "cpu_seconds": round(time.process_time() - clock, 1),
                "seconds": round(time.monotonic() - began, 1),
            }
            log.write(json.dumps(line) + "\n")
            log.flush()
            network.save_adapter(last)
            saved(out, iteration + 1, network, optimiser, recipe.fixed())
            progress(line)
            if stop():
                break
    (out / POLICY_FILE).unlink(missing_ok=True)
    return last


def _play(backend: Backend, recipe: Recipe, iteration: int, text: Sequence[str]) -> list[list[Rollout]]:
    """Every question of this iteration, `group` times."""
    for _, workspace, placed in libraries(
        recipe.questions,
        recipe.seed * 1_000 + iteration,
        text,
        a_library=recipe.questions,
        paragraphs=recipe.paragraphs,
    ):
        return [[rollout(workspace, task, backend) for _ in range(recipe.group)] for task in placed]
    return []

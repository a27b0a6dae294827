# mypy: disable-error-code="import-not-found, no-any-return, unused-ignore"
"""Supervised training: the adapter on samples, resumable, the same order and numbers by seed.

Checkpoints are written with their step, so that episodes, not the loss, choose among them. Only this file and
`network.py` need torch (extra `[train]`).
"""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from pensieve_mcp.errors import StorageError
from pensieve_mcp.statelm.bundled import sha256_of
from pensieve_mcp.statelm.gguf import Gguf
from pensieve_mcp.statelm.training.devices import device_of
from pensieve_mcp.statelm.training.network import Network
from pensieve_mcp.statelm.training.runs import digest, other_run, stage
from pensieve_mcp.statelm.training.samples import Encoded, Sample, encoded
from pensieve_mcp.statelm.training.tokens import Tokenizer

STATE_FILE = "training.pt"
LOG_FILE = "log.jsonl"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a run is made with; it stands in the log and the model card."""

    seed: int = 7
    rank: int = 16
    alpha: float = 32.0
    first_layer: int = 10
    batch: int = 8
    learning_rate: float = 1e-3
    warm_up_steps: int = 30
    steps: int = 1_600
    max_tokens: int = 500
    checkpoint_steps: int = 200
    threads: int = 1

    def fixed(self) -> dict[str, object]:
        """What a run that goes on must have been begun with."""
        return {k: v for k, v in asdict(self).items() if k not in ("checkpoint_steps", "threads")}


def order(samples: Sequence[Encoded], recipe: Recipe) -> list[list[Encoded]]:
    """Batches of like length in an order drawn by seed, as many as there are steps."""
    dice = random.Random(recipe.seed)
    batches: list[list[Encoded]] = []
    while len(batches) < recipe.steps:
        shuffled = list(samples)
        dice.shuffle(shuffled)
        span = 8 * recipe.batch
        for start in range(0, len(shuffled), span):
            bucket = sorted(shuffled[start : start + span], key=lambda one: len(one.tokens))
            cut = [bucket[place : place + recipe.batch] for place in range(0, len(bucket), recipe.batch)]
            dice.shuffle(cut)
            batches += cut
    return batches[: recipe.steps]


def rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then linear decay to a twentieth. `step` from 0."""
    left = 1 - step / max(1, recipe.steps)
    return recipe.learning_rate * min(1.0, (step + 1) / recipe.warm_up_steps) * max(0.05, left)


def train(
    base: Path,
    samples: Sequence[Sample],
    out: Path,
    recipe: Recipe,
    *,
    start_from: Path | None = None,
    until: int | None = None,
    device: str = "cpu",
    progress: Callable[[dict[str, float]], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:
    """Train in folder `out`, going on where an earlier run of the same kind stopped. Answers the last adapter.

    `start_from` is an adapter to begin with. `until` is a step to end at before the rate has fallen. `stop` is
    asked after each step; a checkpoint is written then. `device` as for `device_of`: a run may go on on another one.
    Raises BackendError where it is not there, or a file is no model, and StorageError as `runs.stage` does, or
    (`run_damaged`) where the state cannot be read.
    """
    where = device_of(device)
    made_with = {
        **recipe.fixed(),
        "samples": digest(piece for one in samples for piece, _ in one.pieces),
        "base": sha256_of(base)[:16],
        "start_from": sha256_of(start_from)[:16] if start_from is not None else None,
    }
    with stage(out, made_with):
        return _trained(base, samples, out, recipe, start_from, until, where, progress, stop)


def _trained(
    base: Path,
    samples: Sequence[Sample],
    out: Path,
    recipe: Recipe,
    start_from: Path | None,
    until: int | None,
    where: torch.device,
    progress: Callable[[dict[str, float]], None],
    stop: Callable[[], bool],
) -> Path:
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    source = Gguf.open(base)
    tokenizer = Tokenizer(source)
    made = [encoded(sample, tokenizer) for sample in samples]
    usable = [one for one in made if len(one.tokens) <= recipe.max_tokens and any(one.weights)]
    if not usable:
        raise StorageError(
            f"None of {len(samples):,} samples can be learned from: one must hold an action and fit into "
            f"{recipe.max_tokens} tokens.",
            hint="pensieve train data writes such samples.",
            slug="no_samples",
        )
    network = Network(source, rank=recipe.rank, alpha=recipe.alpha, first=recipe.first_layer, device=where)
    if start_from is not None:
        network.load_adapter(start_from)
    parameters = network.trained()
    optimiser = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.0, betas=(0.9, 0.98))
    begun = resumed(out, network, optimiser, recipe.fixed())
    clock, began, tokens = time.process_time(), time.monotonic(), 0
    batches = order(usable, recipe)
    last = out / "adapter.gguf"
    end = min(until or recipe.steps, recipe.steps)
    with (out / LOG_FILE).open("a", encoding="utf-8") as log:
        for step in range(begun, end):
            for group in optimiser.param_groups:
                group["lr"] = rate(step, recipe)
            total, weight = network.loss(batches[step])
            (total / weight).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            tokens += sum(len(one.tokens) for one in batches[step])
            line = {
                "step": step + 1,
                "loss": round(total.item() / weight, 4),
                "tokens": tokens,
                "cpu_seconds": round(time.process_time() - clock, 1),
                "seconds": round(time.monotonic() - began, 1),
                "rate": rate(step, recipe),
            }
            log.write(json.dumps(line) + "\n")
            log.flush()
            progress(line)
            ends = step + 1 == end or stop()
            if ends or (step + 1) % recipe.checkpoint_steps == 0:
                network.save_adapter(out / f"adapter-{step + 1:05d}.gguf")
                network.save_adapter(last)
                saved(out, step + 1, network, optimiser, recipe.fixed())
            if ends:
                break
    return last


def saved(
    out: Path, step: int, network: Network, optimiser: torch.optim.Optimizer, recipe: dict[str, object]
) -> None:
    """Write the state of a run."""
    beside = out / (STATE_FILE + ".part")
    matrices = [p.detach().cpu() for p in network.trained()]
    torch.save(
        {"step": step, "recipe": recipe, "matrices": matrices, "optimiser": optimiser.state_dict()}, beside
    )
    beside.replace(out / STATE_FILE)


def resumed(out: Path, network: Network, optimiser: torch.optim.Optimizer, recipe: dict[str, object]) -> int:
    """The step to go on from; what the log says of later ones is taken out. Raises StorageError (`other_run`) for the
    state of another recipe, (`run_damaged`) for one that cannot be read.
    """
    file = out / STATE_FILE
    if not file.exists():
        _shorten(out / LOG_FILE, 0)
        return 0
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        before = {name: value for name, value in state["recipe"].items() if name in recipe}
        if before != recipe:
            raise other_run(out, before, recipe)
        with torch.no_grad():
            for parameter, matrix in zip(network.trained(), state["matrices"], strict=True):
                parameter.copy_(matrix)
        optimiser.load_state_dict(state["optimiser"])
        step = int(state["step"])
    except (
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        raise StorageError(
            f"{file} cannot be read: {str(error).strip().partition(chr(10))[0] or type(error).__name__}.",
            hint="Take it away to begin this stage anew; the adapters beside it stay until they are written again.",
            slug="run_damaged",
        ) from error
    _shorten(out / LOG_FILE, step)
    return step


def _shorten(log: Path, steps: int) -> None:
    """Keep the first lines, one a step: a process that was killed wrote more of them than checkpoints."""
    lines = log.read_bytes().splitlines(keepends=True)[:steps] if log.exists() else []
    if log.exists():
        log.write_bytes(b"".join(lines))

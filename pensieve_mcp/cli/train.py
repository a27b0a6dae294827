"""train: how the bundled model's adapter is made."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pensieve_mcp.cli.learning import (
    DEVICE,
    LIBRARY_PARAGRAPHS,
    RATE,
    SEED,
    base_of,
    full,
    grpo,
    heeding_interrupts,
    needing_torch,
    selfplay,
    text_of,
    time_of,
)
from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import NearGroup, Shell, command_options, json_option

if TYPE_CHECKING:
    from pensieve_mcp.statelm.training.evaluate import Report
    from pensieve_mcp.statelm.training.tasks import Task
    from pensieve_mcp.statelm.turns import Asked


@click.group(cls=NearGroup, short_help="Make the adapter of the bundled model, step by step.")
def train() -> None:
    """Make the adapter of the bundled model: data, sft, selfplay, grpo, eval, export; full is all that made ours."""


for command in (selfplay, grpo, full):
    train.add_command(command)


@train.command(short_help="Play tasks with the scripted teacher, cut into samples.")
@click.option("--tasks", "count", type=click.IntRange(1), default=4_400, show_default=True)
@click.option("--seed", type=SEED, default=7, show_default=True)
@click.option(
    "--text",
    "text_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Text to hide facts in; default: Python's own documentation.",
)
@click.option("--paragraphs", type=click.IntRange(1), default=LIBRARY_PARAGRAPHS, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("samples.jsonl"), show_default=True
)
@command_options
def data(
    shell: Shell, count: int, seed: int, text_folder: Path | None, paragraphs: int, workers: int, out: Path
) -> None:
    """Play tasks with the scripted teacher on real indexes and cut them into samples. The same seed, the same file.

    A stopped run goes on from the parts it wrote.
    """
    from pensieve_mcp.statelm.training import pipeline, samples

    parts = out.with_name(out.name + ".parts")
    made = pipeline.teach(
        parts,
        count,
        seed,
        text_of(text_folder, "train"),
        paragraphs=paragraphs,
        workers=workers,
        told=lambda done, total: say(f"{done} of {total} sets of documents"),
    )
    samples.save(made.samples, out)
    put(
        f"{len(made.samples):,} samples of {made.tasks:,} tasks in {out}; rejected: {made.rejected or 'none'}."
    )


@train.command(short_help="Train the adapter on samples.")
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
@click.option("--steps", type=click.IntRange(1), default=1_600, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True)
@click.option("--rate", type=RATE, default=1e-3, show_default=True)
@click.option("--rank", type=click.IntRange(1, 1_024), default=16, show_default=True)
@click.option("--first-layer", type=click.IntRange(0), default=10, show_default=True)
@click.option("--checkpoint", type=click.IntRange(1), default=200, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seed", type=SEED, default=7, show_default=True)
@DEVICE
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
    device: str,
) -> None:
    """Train the adapter on samples; run again to go on where it stopped. Needs the extra [train]."""
    from pensieve_mcp.statelm.training import samples

    training = needing_torch("sft")
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
            say(f"step {line['step']:.0f}: loss {line['loss']:.4f}, {time_of(line)}")

    with heeding_interrupts() as stop:
        last = training.train(
            base_of(shell, base),
            list(samples.load(file)),
            out,
            recipe,
            start_from=start_from,
            device=device,
            progress=progress,
            stop=stop,
        )
    put(f"{last}")


@train.command(name="eval", short_help="Ask held-out questions and print the table.")
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
@click.option("--seed", type=SEED, default=31, show_default=True)
@click.option("--text", "text_folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
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
    show: bool,
    as_json: bool,
) -> None:
    """Ask held-out questions of every kind and print the table, with n and 95 % intervals."""
    from pensieve_mcp.statelm import extractive
    from pensieve_mcp.statelm.backends import Choice, open_backend
    from pensieve_mcp.statelm.dialects.ours import Ours
    from pensieve_mcp.statelm.training import evaluate as measuring
    from pensieve_mcp.statelm.training.teacher import dialect_of

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
            text=text_of(text_folder, "test"),
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
                    dialect_of,
                    told=told,
                )
                backend.close()
    if as_json:
        put_json(report.data())
    else:
        for line in report.lines():
            put(line)


@train.command(short_help="Merge an adapter into the base as one Q8_0 file.")
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

    merge(base_of(shell, base), out, adapter)
    put(f"{out}: {out.stat().st_size / 2**20:,.0f} MB, sha256 {sha256_of(out)}")
    if card is not None:
        put_json(json.loads(card.read_text(encoding="utf-8")))

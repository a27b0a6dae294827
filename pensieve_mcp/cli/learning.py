"""train selfplay, grpo, full: learning from the model's own play, and the run that made the shipped adapter."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.model import home_of
from pensieve_mcp.cli.output import put, say
from pensieve_mcp.cli.shell import Shell, command_options
from pensieve_mcp.errors import BackendError, WorkspaceError
from pensieve_mcp.spellbook.wording import count

if TYPE_CHECKING:
    from pensieve_mcp.statelm.backends import Backend

LIBRARY_PARAGRAPHS = 1_200
SELF_SEED, SELF_TEMPERATURE, SELF_RATE = 11, 0.7, 4e-4
SELF_SHARE = 0.25  # of the samples of the second stage are of the model's own play
SMALL_LIBRARIES, SMALL_SEED = 40, 12
LAST_SEED, LAST_RATE = 13, 5e-4  # of the stage in which all kinds are in balance
READING_SEED, READING_RATE = 14, 2e-4  # of the one with more that is read in order
RATE = click.FloatRange(min=0, min_open=True)
SEED = click.IntRange(0, 2**31 - 1)
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
TEXT = click.option(
    "--text",
    "text_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Text to hide facts in; default: Python's own documentation.",
)
BASE = click.option("--base", type=EXISTING, help="GGUF of the base; default: the installed one.")
DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="What torch computes on: cpu, cuda, cuda:1, mps; auto is cuda where there is one, else cpu.",
)


def text_of(folder: Path | None, split: str) -> list[str]:
    """Sentences to hide facts in. Raises WorkspaceError where there are too few."""
    from pensieve_mcp.statelm.training.tasks import text_of_folder, text_of_python

    found = text_of_folder(folder, split) if folder is not None else text_of_python(split)
    if len(found) < 50:
        raise WorkspaceError(f"{folder} holds only {len(found)} sentences.", hint="Name more plain text.")
    return found


def base_of(shell: Shell, given: Path | None) -> Path:
    """The base model's file. Raises BackendError where there is none."""
    from pensieve_mcp.statelm import bundled

    found = given or bundled.status(home_of(shell)).base
    if found is None:
        raise BackendError(
            "The base model is not here.", hint="pensieve model install, or --base FILE.gguf.", slug="no_base"
        )
    return found


@contextmanager
def heeding_interrupts() -> Iterator[Callable[[], bool]]:
    """Whether to stop: the first Ctrl-C ends after the step that runs, so that it is saved, and is passed on then."""
    pressed: list[int] = []

    def heard(number: int, _: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        say("Stopping after this step; once more stops at once.")

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def time_of(line: Mapping[str, float]) -> str:
    """What a line of a run's log says of its cost."""
    return f"{line['seconds']:.0f} s, {line['cpu_seconds']:.0f} of them CPU"


def needing_torch(name: str) -> Any:
    """A module of the training room that imports torch. Raises BackendError."""
    import importlib

    try:
        return importlib.import_module(f"pensieve_mcp.statelm.training.{name}")
    except ImportError as error:
        raise BackendError(
            f"Training needs torch ({error}).",
            hint="Install the extra: pip install 'pensieve-statelm[train]'.",
            slug="no_torch",
        ) from error


def opened(file: Path, temperature: float, seed: int) -> Backend:
    """A merged model in this process that samples by seed."""
    from pensieve_mcp.statelm.backends import Choice, open_backend

    options = {"seed": str(seed)}
    return open_backend(Choice("local", str(file), temperature=temperature, options=options))


def player_of(model: Path, temperature: float) -> str:
    """What tells one player from another."""
    from pensieve_mcp.statelm.bundled import sha256_of

    return f"{sha256_of(model)[:16]} at {temperature:g}"


@click.command(short_help="Samples from the model's own play.")
@click.option("--model", "model_file", type=EXISTING, required=True, help="The merged GGUF that plays.")
@click.option("--tasks", type=click.IntRange(1), default=300, show_default=True)
@click.option("--seed", type=SEED, default=11, show_default=True)
@click.option("--temperature", type=click.FloatRange(min=0), default=0.7, show_default=True)
@click.option("--mix", type=EXISTING, help="Samples of the teacher to mix in, half and half.")
@click.option("--paragraphs", type=click.IntRange(1), default=LIBRARY_PARAGRAPHS, show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("self.jsonl"), show_default=True
)
@TEXT
@command_options
def selfplay(
    shell: Shell, model_file: Path, tasks: int, seed: int, temperature: float, mix: Path | None, paragraphs: int,
    out: Path, text_folder: Path | None,
) -> None:  # fmt: skip
    """Samples from the model's own play on training tasks; `train sft --start-from` learns from them.

    What ended well teaches itself; where it chose otherwise than the teacher would have, the teacher's choice is
    learned. A stopped run goes on from the parts it wrote.
    """
    from pensieve_mcp.statelm.training import samples
    from pensieve_mcp.statelm.training import selfplay as playing

    backend = opened(model_file, temperature, seed)
    own = playing.play(
        backend,
        out.with_name(out.name + ".parts"),
        tasks=tasks,
        seed=seed,
        text=text_of(text_folder, "train"),
        paragraphs=paragraphs,
        player=player_of(model_file, temperature),
        told=lambda part, share, made: say(f"part {part}: {share:.2f} right, {count(made, 'sample')}"),
    )
    backend.close()
    whole = playing.mixed(own, list(samples.load(mix)), seed) if mix is not None else own
    samples.save(whole, out)
    put(f"{count(len(own), 'sample')} of its own play, {len(whole) - len(own):,} of the teacher in {out}")


@click.command(short_help="Policy gradients on the model's own play.")
@click.option("--adapter", type=EXISTING, required=True, help="The adapter to begin with.")
@click.option("--iterations", type=click.IntRange(1), default=20, show_default=True)
@click.option("--questions", type=click.IntRange(1), default=16, show_default=True, help="An iteration.")
@click.option("--group", type=click.IntRange(2), default=8, show_default=True, help="Rollouts a question.")
@click.option(
    "--snapshots", type=click.IntRange(1), default=2, show_default=True, help="Learned of each rollout."
)
@click.option("--rate", type=RATE, default=2e-5, show_default=True)
@click.option("--temperature", type=click.FloatRange(min=0), default=1.0, show_default=True)
@click.option("--rank", type=click.IntRange(1, 1_024), default=16, show_default=True)
@click.option("--first-layer", type=click.IntRange(0), default=10, show_default=True)
@click.option("--paragraphs", type=click.IntRange(1), default=400, show_default=True)
@click.option("--seed", type=SEED, default=7, show_default=True)
@click.option("--out", type=FOLDER, default=Path("grpo"), show_default=True)
@BASE
@TEXT
@DEVICE
@command_options
def grpo(
    shell: Shell, adapter: Path, iterations: int, questions: int, group: int, snapshots: int, rate: float,
    temperature: float, rank: int, first_layer: int, paragraphs: int, seed: int, out: Path, base: Path | None,
    text_folder: Path | None, device: str,
) -> None:  # fmt: skip
    """Policy gradients on the model's own play; run again to go on where it stopped. Needs [train] and [local]."""
    learning = needing_torch("grpo")
    recipe = learning.Recipe(
        seed=seed,
        rank=rank,
        alpha=2.0 * rank,
        first_layer=first_layer,
        iterations=iterations,
        questions=questions,
        group=group,
        snapshots=snapshots,
        learning_rate=rate,
        temperature=temperature,
        paragraphs=paragraphs,
    )

    def progress(line: dict[str, float]) -> None:
        say(
            f"iteration {line['iteration']:.0f}: reward {line['reward']:.3f}, right {line['right']:.2f}, "
            f"{line['snapshots']:.0f} snapshots, {time_of(line)}"
        )

    last = learning.train(
        base_of(shell, base),
        adapter,
        out,
        recipe,
        text_of(text_folder, "train"),
        opened,
        device=device,
        progress=progress,
    )
    put(f"{last}")


@click.command(short_help="All that made the shipped adapter.")
@click.option("--tasks", type=click.IntRange(1), default=4_400, show_default=True)
@click.option(
    "--steps", type=click.IntRange(1), default=1_500, show_default=True, help="Over which the rate falls."
)
@click.option(
    "--until", type=click.IntRange(1), default=1_200, show_default=True, help="Step of them to stop at."
)
@click.option(
    "--self-tasks", type=click.IntRange(0), default=200, show_default=True, help="Played by the model itself."
)
@click.option(
    "--last-steps",
    type=click.IntRange(0),
    default=400,
    show_default=True,
    help="Of a third stage with all kinds in balance, own play among them.",
)
@click.option(
    "--reading-steps",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    help="Of a last, short stage with more that is read in order, without search.",
)
@click.option("--start-from", type=EXISTING, help="An adapter to begin with instead of none.")
@click.option("--rate", type=RATE, default=1e-3, show_default=True, help="Highest, of the first stage.")
@click.option("--checkpoint", type=click.IntRange(1), default=100, show_default=True, help="Steps between.")
@click.option("--seed", type=SEED, default=7, show_default=True)
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that make data."
)
@click.option("--out", type=FOLDER, default=Path("run"), show_default=True)
@BASE
@TEXT
@DEVICE
@command_options
def full(
    shell: Shell, tasks: int, steps: int, until: int, self_tasks: int, last_steps: int, reading_steps: int,
    start_from: Path | None, rate: float, checkpoint: int, seed: int, workers: int, out: Path, base: Path | None,
    text_folder: Path | None, device: str,
) -> None:  # fmt: skip
    """All that made the shipped adapter, from data to the merged file. Run again to go on where it stopped.

    The model card has the line that made ours. `train eval --model OUT/merged.gguf` measures it. Needs [train] and
    [local].
    """
    from pensieve_mcp.statelm.gguf import merge
    from pensieve_mcp.statelm.training import pipeline, samples
    from pensieve_mcp.statelm.training import selfplay as playing

    learning = needing_torch("sft")
    where = str(needing_torch("devices").device_of(device))  # before the data: they take minutes
    source, text = base_of(shell, base), text_of(text_folder, "train")
    made = pipeline.teach(
        out / "data",
        tasks,
        seed,
        text,
        paragraphs=LIBRARY_PARAGRAPHS,
        workers=workers,
        told=lambda done, total: say(f"{done} of {total} sets of documents"),
    )
    small = pipeline.teach_small(SMALL_LIBRARIES, SMALL_SEED, text)
    taught = [*made.samples, *small]
    samples.save(taught, out / "samples.jsonl")
    say(
        f"{count(len(made.samples), 'sample')} of {count(made.tasks, 'task')}, {len(small):,} of short texts; "
        f"rejected: {made.rejected or 'none'}"
    )

    def progress(line: dict[str, float]) -> None:
        if line["step"] % 10 == 0:
            say(f"step {line['step']:.0f}: loss {line['loss']:.4f}, {time_of(line)}")

    recipe = learning.Recipe(seed=seed, steps=steps, learning_rate=rate, checkpoint_steps=checkpoint)

    def trained(on: list[samples.Sample], stage: str, recipe: Any, start: Path | None, **more: Any) -> Path:
        with heeding_interrupts() as stop:
            return Path(
                learning.train(
                    source,
                    on,
                    out / stage,
                    recipe,
                    start_from=start,
                    device=where,
                    progress=progress,
                    stop=stop,
                    **more,
                )
            )

    last = trained(taught, "first", recipe, start_from, until=until)
    own: list[samples.Sample] = []
    if self_tasks:
        merge(source, out / "player.gguf", last)
        backend = opened(out / "player.gguf", SELF_TEMPERATURE, SELF_SEED)
        own = playing.play(
            backend,
            out / "self",
            tasks=self_tasks,
            seed=SELF_SEED,
            text=text,
            paragraphs=LIBRARY_PARAGRAPHS,
            player=player_of(out / "player.gguf", SELF_TEMPERATURE),
            told=lambda part, share, made: say(f"part {part}: {share:.2f} right, {count(made, 'sample')}"),
        )
        backend.close()
        others = playing.with_refusals(taught, round(len(own) * (1 - SELF_SHARE) / SELF_SHARE), SELF_SEED)
        whole = playing.mixed(own, others, SELF_SEED, share=SELF_SHARE)
        again = learning.Recipe(
            seed=SELF_SEED,
            steps=max(1, len(whole) // recipe.batch),
            learning_rate=SELF_RATE,
            warm_up_steps=5,
        )
        last = trained(whole, "second", again, last)
    if last_steps:
        again = learning.Recipe(seed=LAST_SEED, steps=last_steps, learning_rate=LAST_RATE, warm_up_steps=5)
        whole = [*own, *playing.drawn(taught, max(0, last_steps * again.batch - len(own)), LAST_SEED)]
        last = trained(whole, "third", again, last)
    if reading_steps:
        again = learning.Recipe(
            seed=READING_SEED, steps=reading_steps, learning_rate=READING_RATE, warm_up_steps=5
        )
        whole = playing.drawn(taught, reading_steps * again.batch, READING_SEED, playing.READING_MIX)
        last = trained(whole, "fourth", again, last)
    merge(source, out / "merged.gguf", last)
    put(f"{out / 'merged.gguf'}")

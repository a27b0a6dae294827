"""What lies in a training run's folder: a stopped run goes on, and nothing else is mixed in or written over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.errors import BackendError, StorageError
from pensieve_mcp.statelm.training import pipeline
from pensieve_mcp.statelm.training.runs import LOCK, MADE_WITH, stage
from pensieve_mcp.statelm.training.samples import Sample, load, save
from pensieve_mcp.statelm.training.tasks import text_of_folder, text_of_python

sys.path.insert(0, str(Path(__file__).parent))
import tiny

SAMPLES = [
    Sample("k", ((f"q{n} the ", False), (f"finish {n % 3}<|im_end|>\n", True)), "finish") for n in range(12)
]


@pytest.fixture
def sft() -> Any:
    pytest.importorskip("torch", reason="the extra [train] is not installed")
    from pensieve_mcp.statelm.training import sft

    return sft


@pytest.fixture
def recipe(sft: Any) -> Any:
    return sft.Recipe(steps=6, rank=4, alpha=8.0, first_layer=1, batch=3, checkpoint_steps=2)


def refused(slug: str) -> Any:
    return pytest.raises(StorageError, check=lambda error: error.slug == slug)


def test_data_of_another_seed_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    """Fault: parts were known by their number alone, so that another seed gave the old samples."""
    text = text_of_python("train")
    made = pipeline.teach(tmp_path / "parts", 3, 7, text, paragraphs=20)
    with refused("other_run"):
        pipeline.teach(tmp_path / "parts", 3, 8, text, paragraphs=20)
    with refused("other_run"):
        pipeline.teach(tmp_path / "parts", 3, 7, text[:-1], paragraphs=20)

    assert pipeline.teach(tmp_path / "parts", 3, 7, text, paragraphs=20).samples == made.samples
    assert pipeline.teach(tmp_path / "others", 3, 8, text, paragraphs=20).samples != made.samples
    more = pipeline.teach(
        tmp_path / "parts", 5, 7, text, paragraphs=20
    )  # goes on; its last part was a smaller one
    assert more.samples == pipeline.teach(tmp_path / "more", 5, 7, text, paragraphs=20).samples
    assert more.tasks + sum(more.rejected.values()) == 5


def test_a_run_of_another_kind_is_refused_and_left_as_it_is(sft: Any, recipe: Any, tmp_path: Path) -> None:
    """Fault: it began anew over the adapters that lay there, and said nothing."""
    base, out = tiny.base(tmp_path / "base.gguf"), tmp_path / "run"
    adapter = sft.train(base, SAMPLES, out, recipe).read_bytes()
    for other in (replace(recipe, steps=8), replace(recipe, seed=8), replace(recipe, rank=2)):
        with refused("other_run") as told:
            sft.train(base, SAMPLES, out, other)
        assert ", now " in str(told.value) and "--out" in told.value.hint
    with refused("other_run"):
        sft.train(base, SAMPLES[1:], out, recipe)
    with refused("other_run"):
        sft.train(tiny.base(tmp_path / "other.gguf", seed=2), SAMPLES, out, recipe)
    with refused("other_run"):
        sft.train(base, SAMPLES, out, recipe, start_from=out / "adapter.gguf")

    assert (out / "adapter.gguf").read_bytes() == adapter
    alike = replace(recipe, checkpoint_steps=5)  # nothing of what comes out hangs on it
    assert sft.train(base, SAMPLES, out, alike).read_bytes() == adapter


def test_a_run_from_before_is_known_by_its_state(sft: Any, recipe: Any, tmp_path: Path) -> None:
    base, out = tiny.base(tmp_path / "base.gguf"), tmp_path / "run"
    adapter = sft.train(base, SAMPLES, out, recipe).read_bytes()
    (out / MADE_WITH).unlink()
    with refused("other_run"):
        sft.train(base, SAMPLES, out, replace(recipe, steps=8))
    (out / MADE_WITH).unlink()

    assert sft.train(base, SAMPLES, out, recipe).read_bytes() == adapter


@pytest.mark.parametrize("left", [b"", b"PK\x03\x04 cut short", None])
def test_a_state_that_cannot_be_read_is_said(
    sft: Any, recipe: Any, tmp_path: Path, left: bytes | None
) -> None:
    base, out = tiny.base(tmp_path / "base.gguf"), tmp_path / "run"
    sft.train(base, SAMPLES, out, recipe, until=2)
    state = out / sft.STATE_FILE
    state.write_bytes(state.read_bytes()[:-200] if left is None else left)

    with refused("run_damaged") as told:
        sft.train(base, SAMPLES, out, recipe)
    assert str(state) in str(told.value)
    state.unlink()
    sft.train(base, SAMPLES, out, recipe)
    assert len((out / sft.LOG_FILE).read_text("utf-8").splitlines()) == 6


def test_a_killed_runs_log_says_each_step_once(sft: Any, recipe: Any, tmp_path: Path) -> None:
    """It wrote on after its last checkpoint, the last line only in part."""
    base, out = tiny.base(tmp_path / "base.gguf"), tmp_path / "run"
    sft.train(base, SAMPLES, out, recipe, until=2)
    with (out / sft.LOG_FILE).open("a", encoding="utf-8") as log:
        log.write('{"step": 3, "loss": 9.0}\n{"step": 4, "lo')
    sft.train(base, SAMPLES, out, recipe)

    lines = [json.loads(line) for line in (out / sft.LOG_FILE).read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6] and lines[2]["loss"] != 9.0


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_saves_the_step_that_was_made(sft: Any, tmp_path: Path) -> None:
    """Fault: it said that what was finished is kept, and all steps since the last checkpoint were lost."""
    base, file, out = tiny.base(tmp_path / "base.gguf"), tmp_path / "s.jsonl", tmp_path / "run"
    save(SAMPLES, file)
    command = [sys.executable, "-m", "pensieve_mcp.cli", "train", "sft", "--samples", str(file), "--base", str(base),
               "--out", str(out), "--steps", "100000", "--checkpoint", "90000", "--rank", "4", "--first-layer", "1",
               "--device", "cpu"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8",
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # fmt: skip
    assert process.stderr is not None
    with process, ended(process):
        assert process.stderr.readline().startswith("step 10:")
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 130 and "Stopping after this step" in said

    steps = len((out / sft.LOG_FILE).read_text("utf-8").splitlines())
    assert (out / f"adapter-{steps:05d}.gguf").exists() and (out / "adapter.gguf").exists()
    assert sft.torch.load(out / sft.STATE_FILE, weights_only=True)["step"] == steps


def test_an_adapter_of_another_shape_is_no_beginning(sft: Any, recipe: Any, tmp_path: Path) -> None:
    """Fault: one of rank 1 was spread over eight, and one of more layers lost some, without a word."""
    base = tiny.base(tmp_path / "base.gguf")
    others = {"rank": 1, "first_layer": 0, "alpha": 4.0}
    for name, value in others.items():
        other = replace(recipe, **{name: value})
        low = sft.train(base, SAMPLES, tmp_path / f"low-{name}", other, until=1)
        with pytest.raises(BackendError, check=lambda error: error.slug == "other_adapter"):
            sft.train(base, SAMPLES, tmp_path / f"run-{name}", recipe, start_from=low)


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '"text"', '{"kind": "k", "last": "drop"}', '{"kind": "k", "last": "drop", "pieces": [[1, true]]}',
     '{"kind": "k", "last": "drop", "pieces": 7}', "\x93\xff"],
)  # fmt: skip
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "s.jsonl"
    save(SAMPLES[:2], file)
    with file.open("ab") as more:
        more.write(line.encode("latin-1") + b"\n")
    with refused("bad_samples") as told:
        list(load(file))
    assert f"Line 3 of {file}" in str(told.value)


def test_where_nothing_can_be_learned_from_it_is_said(sft: Any, recipe: Any, tmp_path: Path) -> None:
    base = tiny.base(tmp_path / "base.gguf")
    unlearnable = [
        [],
        [Sample("k", (("only read", False),), "drop")],
        [Sample("k", (("x" * 900, True),), "drop")],
    ]
    for number, samples in enumerate(unlearnable):
        with refused("no_samples"):
            sft.train(base, samples, tmp_path / f"run-{number}", recipe)


def test_text_of_one_file_and_of_an_empty_one_is_split(tmp_path: Path) -> None:
    """Faults: the only file was held out in silence, and an empty one was a crash."""
    words = "The keeper of the lighthouse wrote down what the weather was like on day"
    sentences = [f"{words} {'abcdefghij'[n % 10] * (1 + n // 10)}." for n in range(900)]
    (tmp_path / "a.md").write_text("", encoding="utf-8")
    (tmp_path / "b.md").write_text(" ".join(sentences), encoding="utf-8")
    train, test = text_of_folder(tmp_path, "train"), text_of_folder(tmp_path, "test")

    assert len(train) > 500 and len(test) > 100 and not set(train) & set(test)


def test_two_processes_do_not_write_one_stage(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from pensieve_mcp.statelm.training.runs import stage
with stage(Path({str(tmp_path / "run")!r}), {{"seed": 7}}):
    print("held", flush=True)
    sys.stdin.read()
"""
    other = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None and other.stdout is not None
    with other, ended(other):
        assert other.stdout.readline() == b"held\n"
        with refused("run_busy"), stage(tmp_path / "run", {"seed": 7}):
            pass
    with stage(tmp_path / "run", {"seed": 7}):
        assert (tmp_path / "run" / LOCK).exists()


class ended:
    """Its process is killed at the end, which frees what it held."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.process.kill()


def test_a_folder_that_cannot_be_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with refused("run_unwritable"), stage(tmp_path / "file", {}):
        pass

"""`pensieve train full`, as the model card says it, in small: a model of random weights through every stage."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from pensieve_mcp.cli import run
from pensieve_mcp.statelm.gguf import Gguf

sys.path.insert(0, str(Path(__file__).parent))
import tiny

STAGES = ("first", "second", "third", "fourth")
SMALL = ("--tasks", "12", "--steps", "4", "--until", "3", "--self-tasks", "2", "--last-steps", "2",
         "--reading-steps", "1", "--device", "cpu")  # fmt: skip


def test_one_command_makes_a_model_and_once_more_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="the extra [train] is not installed")
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    from pensieve_mcp.cli import learning

    monkeypatch.setenv("PENSIEVE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(learning, "LIBRARY_PARAGRAPHS", 60)
    monkeypatch.setattr(learning, "SMALL_LIBRARIES", 3)
    base, out = tiny.base(tmp_path / "base.gguf"), tmp_path / "run"

    def full() -> tuple[bytes, dict[str, list[float]]]:
        assert run(["train", "full", "--base", str(base), "--out", str(out), *SMALL]) == 0
        assert capsys.readouterr().out.strip() == str(out / "merged.gguf")
        logs = {stage: (out / stage / "log.jsonl").read_text("utf-8").splitlines() for stage in STAGES}
        return (out / "merged.gguf").read_bytes(), {
            stage: [json.loads(line)["loss"] for line in log] for stage, log in logs.items()
        }

    merged, losses = full()
    again, losses_again = full()

    assert [len(losses[stage]) for stage in ("first", "third", "fourth")] == [3, 2, 1]
    assert losses["second"], "what it played itself was learned from"
    assert (again, losses_again) == (merged, losses), "no stage was made twice"
    assert merged != base.read_bytes()
    for before, after in itertools.pairwise(STAGES):
        one, two = (Gguf.open(out / stage / "adapter.gguf") for stage in (before, after))
        assert any(abs(one.floats(t) - two.floats(two.by_name(t.name))).max() > 0 for t in one.tensors)

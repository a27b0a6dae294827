"""The model's own play: what is recorded, what self-training and policy gradients learn from it, and that both go on
where they were stopped."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny

from pensieve_mcp.statelm.gguf import Gguf
from pensieve_mcp.statelm.training import pipeline, selfplay
from pensieve_mcp.statelm.training.evaluate import prepare
from pensieve_mcp.statelm.training.rollouts import RIGHT, UNFINISHED, WRONG, Choice, Rollout, rollout
from pensieve_mcp.statelm.training.samples import Sample, Step, load
from pensieve_mcp.statelm.training.tasks import Task, make, text_of_python
from pensieve_mcp.statelm.training.worlds import dice
from pensieve_mcp.statelm.turns import Prompt, Reply
from pensieve_mcp.workspace import Workspace

SEED = 3


class Guesser:
    """A model without weights: the first of what it is offered, the last word of a note; now and then it lets go."""

    model = "guesser"

    def __init__(self, seed: int = 1, *, careless: float = 0.15) -> None:
        self.dice = random.Random(seed)
        self.careless = careless
        self.asked = 0

    def reply(self, prompt: Prompt) -> Reply:
        self.asked += 1
        root = prompt.grammar.split("\n", 1)[0]
        if '"drop"' in root and self.dice.random() < self.careless:
            return Reply("drop")
        for verb in ("note", "read"):
            if f'"{verb} " (' in root:
                return Reply(f"{verb} 1")
        if '"finish "' in root:
            note = re.findall(r"^Note: (.*?)(?:<|$)", prompt.text, re.M)[-1]
            return Reply("finish " + note.rstrip(".").split()[-1])
        return Reply("search " + re.findall(r"[A-Z]\w+", prompt.text)[-1])

    def close(self) -> None: ...


class Silent(Guesser):
    def reply(self, prompt: Prompt) -> Reply:
        return Reply("")


@pytest.fixture(scope="module")
def text() -> list[str]:
    return text_of_python("train")


@pytest.fixture(scope="module")
def library(tmp_path_factory, text) -> Iterator[tuple[Workspace, list[Task]]]:
    thrown = dice(SEED, "train")
    tasks = [make(kind, thrown, "train") for kind in (*["single"] * 7, "hop", "list", "none", "chat")]
    workspace, placed = prepare(tasks, tmp_path_factory.mktemp("self"), SEED, paragraphs=60, text=text)
    yield workspace, placed
    workspace.close()


@pytest.fixture(scope="module")
def played(library) -> list[Rollout]:
    workspace, tasks = library
    return [rollout(workspace, task, Guesser(n)) for task in tasks for n in range(4)]


def test_a_rollout_holds_every_turn_the_model_was_asked_and_what_was_right_there(library) -> None:
    workspace, tasks = library
    model = Guesser()
    one = rollout(workspace, tasks[0], model)

    assert len(one.choices) == model.asked > 2
    for choice in one.choices:
        assert choice.step.state.startswith("<|im_start|>user\nQuestion: " + tasks[0].question)
        assert choice.step.state.endswith("<|im_end|>\n")
        assert re.match(r"(read|note|search|finish|drop)\b", choice.right)


def test_rewards_are_the_papers(library, played: list[Rollout]) -> None:
    workspace, tasks = library

    assert {one.reward for one in played} == {RIGHT, WRONG}
    assert rollout(workspace, tasks[0], Silent()).reward == UNFINISHED
    for one in played:
        if one.reward == RIGHT:
            assert all(gold.lower() in one.answer.lower() for gold in one.task.gold)


def test_only_what_the_teacher_would_have_done_is_learned(played: list[Rollout]) -> None:
    for one in played:
        right = {(c.step.state, c.right + "<|im_end|>\n") for c in one.choices}
        for sample in selfplay.samples_of(one, random.Random(1)):
            text = ""
            for piece, learned in sample.pieces:
                if learned:
                    assert (text.removesuffix("<|im_start|>assistant\n"), piece) in right
                text += piece


def test_of_what_went_wrong_only_the_corrections_are_learned() -> None:
    steps = [Choice(Step(f"s{n}", "drop"), "drop" if n else "read 1") for n in range(3)]
    task = Task("single", "q", ("a",), (), ())
    wrong = Rollout(task, tuple(steps), "x", WRONG, 0)

    learned = [
        t for s in selfplay.samples_of(wrong, random.Random(1)) for t, is_learned in s.pieces if is_learned
    ]
    assert learned == ["read 1<|im_end|>\n"]
    right = selfplay.samples_of(replace(wrong, reward=RIGHT), random.Random(1))
    assert len(right) >= len(learned)
    assert len(selfplay.samples_of(replace(wrong, reward=RIGHT, errors=1), random.Random(1))) == 1


def test_a_stopped_self_play_goes_on_from_its_parts(tmp_path: Path, text: list[str]) -> None:
    told: list[int] = []

    def play(folder: str, model: Guesser, tasks: int) -> list[Sample]:
        return selfplay.play(
            model, tmp_path / folder, tasks=tasks, seed=SEED, text=text, paragraphs=40, a_library=3,
            told=lambda part, share, made: told.append(part),
        )  # fmt: skip

    whole = play("whole", Guesser(careless=0), 6)
    play("parts", Guesser(careless=0), 3)
    told.clear()
    resumed = play("parts", Guesser(careless=0), 6)

    assert told == [1] and resumed == whole and whole
    again = Guesser()
    assert play("parts", again, 6) == whole and again.asked == 0
    told.clear()
    assert len(play("parts", Guesser(careless=0), 5)) < len(whole) and told == [1], "of fewer tasks"
    assert play("parts", again, 6) == whole


def test_own_and_the_teachers_samples_are_mixed_by_seed() -> None:
    own = [Sample("own", ((f"{n}", True),), "drop") for n in range(4)]
    teachers = [Sample("teacher", ((f"{n}", True),), "drop") for n in range(40)]
    whole = selfplay.mixed(own, teachers, 1)

    assert whole == selfplay.mixed(own, teachers, 1) != selfplay.mixed(own, teachers, 2)
    assert sorted(s.kind for s in whole) == ["own"] * 4 + ["teacher"] * 4


def test_a_second_stage_has_a_third_of_what_is_not_there() -> None:
    taught = [
        Sample(kind, ((f"{kind} {n}", True),), "drop") for n in range(200) for kind in ("none", "hop", "list")
    ]
    chosen = selfplay.with_refusals(taught, 120, 13)

    assert len(chosen) == 120 and len(set(chosen)) == 120
    assert sum(one.kind == "none" for one in chosen) == 42
    assert chosen == selfplay.with_refusals(taught, 120, 13) != selfplay.with_refusals(taught, 120, 14)


def test_the_teachers_samples_are_the_same_after_a_stop_and_with_more_workers(
    tmp_path: Path, text: list[str], monkeypatch
) -> None:
    monkeypatch.setattr(pipeline, "TASKS_A_LIBRARY", 4)
    whole = pipeline.teach(tmp_path / "a", 8, SEED, text, paragraphs=40)
    pipeline.teach(tmp_path / "b", 4, SEED, text, paragraphs=40)
    resumed = pipeline.teach(tmp_path / "b", 8, SEED, text, paragraphs=40, workers=2)

    assert resumed == whole and whole.samples
    assert whole.tasks + sum(whole.rejected.values()) == 8
    assert len(list(load(tmp_path / "a" / "part-000004.jsonl"))) > 3


def test_short_texts_are_taught_too_where_a_search_finds_one_or_two_chunks(text: list[str]) -> None:
    made = pipeline.teach_small(4, SEED, text)

    assert made == pipeline.teach_small(4, SEED, text)
    found = [
        re.findall(r" [=~](\d)$", one.pieces[0][0], re.M) for one in made if "Found for" in one.pieces[0][0]
    ]
    assert any(0 < len(numbers) <= 2 for numbers in found)


# -- policy gradients --------------------------------------------------------------------------------------


def test_a_group_is_its_own_baseline_and_alike_ones_teach_nothing() -> None:
    pytest.importorskip("torch", reason="the extra [train] is not installed")
    from pensieve_mcp.statelm.training.grpo import advantages, lessons

    task = Task("single", "q", ("a",), (), ())
    choices = tuple(Choice(Step(f"state {n} ", "drop"), "") for n in range(5))

    def one(reward: float) -> Rollout:
        return Rollout(task, choices, "x", reward, 0)

    assert sum(advantages([1.0, -0.5, -1.0])) == pytest.approx(0)
    bytes_of = lambda text: list(text.encode())  # noqa: E731
    assert lessons([one(RIGHT), one(RIGHT)], 2, random.Random(1), bytes_of) == []
    made = lessons([one(RIGHT), one(WRONG)], 2, random.Random(1), bytes_of)
    assert len(made) == 4
    assert [round(sum(e.weights), 6) for e in made] == [0.75, 0.75, -0.75, -0.75]
    for e in made:
        assert len(e.tokens) == len(e.weights) and e.weights[0] == 0.0 and e.weights[-1] != 0.0


def test_policy_gradients_run_and_go_on_where_they_stopped(tmp_path: Path, text: list[str]) -> None:
    pytest.importorskip("torch", reason="the extra [train] is not installed")
    from pensieve_mcp.statelm.training import grpo
    from pensieve_mcp.statelm.training.network import Network

    base = tiny.base(tmp_path / "base.gguf")
    recipe = grpo.Recipe(rank=4, alpha=8.0, first_layer=1, iterations=2, questions=4, group=4, paragraphs=30,
                         learning_rate=0.01)  # fmt: skip
    first = tmp_path / "first.gguf"
    Network(Gguf.open(base), rank=4, alpha=8.0, first=1).save_adapter(first)
    lines: list[dict[str, float]] = []

    def policy(file: Path, temperature: float, seed: int) -> Guesser:
        assert file.exists() and temperature == 1.0
        return Guesser(seed, careless=0.4)

    whole = grpo.train(base, first, tmp_path / "whole", recipe, text, policy, progress=lines.append)
    grpo.train(base, first, tmp_path / "parts", recipe, text, policy, stop=lambda: True)
    resumed = grpo.train(base, first, tmp_path / "parts", recipe, text, policy)

    assert [line["iteration"] for line in lines] == [1, 2]
    assert sum(line["snapshots"] for line in lines) > 0
    one, two, begun = Gguf.open(whole), Gguf.open(resumed), Gguf.open(first)
    for tensor in one.tensors:
        assert abs(one.floats(tensor) - two.floats(two.by_name(tensor.name))).max() < 1e-3
    assert any(abs(one.floats(t) - begun.floats(begun.by_name(t.name))).max() > 1e-4 for t in one.tensors)
    assert not (tmp_path / "whole" / grpo.POLICY_FILE).exists()


def test_a_last_stage_has_all_kinds_in_balance_and_takes_what_there_is() -> None:
    taught = [
        Sample(kind, ((f"{kind} {n}", True),), "drop")
        for kind, count in (("none", 100), ("single", 100), ("chat", 3))
        for n in range(count)
    ]
    chosen = selfplay.drawn(taught, 100, 13, {"none": 0.2, "single": 0.4, "chat": 0.4})

    kinds = [one.kind for one in chosen]
    assert [kinds.count(kind) for kind in ("none", "single", "chat")] == [20, 40, 3]
    assert len(set(chosen)) == 63 and kinds != sorted(kinds, key=("none", "single", "chat").index)
    assert chosen == selfplay.drawn(taught, 100, 13, {"none": 0.2, "single": 0.4, "chat": 0.4})
    assert all(abs(sum(mix.values()) - 1) < 1e-9 for mix in (selfplay.LAST_MIX, selfplay.READING_MIX))

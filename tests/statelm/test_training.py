"""A tiny run of every stage of the training pipeline: tasks, teacher, samples, sft, export, evaluation."""

from __future__ import annotations

import json
import random
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm import extractive
from pensieve_mcp.statelm.dialects.ours import Ours
from pensieve_mcp.statelm.sentences import asks_latest, stems
from pensieve_mcp.statelm.training.chains import KEPT_WAY, chain, log
from pensieve_mcp.statelm.training.evaluate import KINDS, evaluate, interval, prepare, score, suite
from pensieve_mcp.statelm.training.phrasings import MORE, OWN, more, questions, statements
from pensieve_mcp.statelm.training.relations import HABITS, LISTS, RELATIONS, hops
from pensieve_mcp.statelm.training.samples import Sample, balanced, cut, encoded, load, save
from pensieve_mcp.statelm.training.tasks import KINDS as ALL_KINDS
from pensieve_mcp.statelm.training.tasks import (
    Task,
    draw,
    make,
    text_of_folder,
    text_of_python,
    write_documents,
)
from pensieve_mcp.statelm.training.teacher import BUDGET_WINDOW, Rejected, Teacher, Trajectory, play_all
from pensieve_mcp.statelm.training.worlds import dice
from pensieve_mcp.workspace import Workspace

SEED = 5


@pytest.fixture(scope="module")
def text() -> list[str]:
    return text_of_python("train")


@pytest.fixture(scope="module")
def library(tmp_path_factory, text) -> tuple[Workspace, list[Task]]:
    """Three tasks of every kind in one set of documents, indexed."""
    thrown = dice(SEED, "train")
    tasks = [make(kind, thrown, "train") for kind in ALL_KINDS for _ in range(3)]
    workspace, placed = prepare(
        tasks, tmp_path_factory.mktemp("library"), SEED, paragraphs=80, split="train", text=text
    )
    yield workspace, placed
    workspace.close()


@pytest.fixture(scope="module")
def trajectories(library) -> list[Trajectory]:
    workspace, tasks = library
    played = [task for task in tasks if task.kind != "scan"]
    kept, _ = play_all(workspace, played, SEED)
    return kept


# -- tasks -------------------------------------------------------------------------------------------------


def test_the_same_seed_writes_the_same_tasks_and_documents(tmp_path: Path, text: list[str]) -> None:
    def written(place: str) -> dict[str, str]:
        folder = tmp_path / place
        write_documents(draw(15, 3), folder, text, 3, paragraphs=40)
        return {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in folder.rglob("*.txt")}

    assert draw(15, 3) == draw(15, 3) and draw(15, 3) != draw(15, 4)
    assert written("one") == written("two")


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_wanted_answer_stands_in_its_facts_and_in_the_documents(
    kind: str, tmp_path: Path, text: list[str]
) -> None:
    thrown = dice(SEED, "test")
    tasks = [make(kind, thrown, "test") for _ in range(5)]
    placed = write_documents(tasks, tmp_path, text, SEED)
    everything = " ".join(" ".join(p.read_text("utf-8").split()) for p in sorted(tmp_path.rglob("*.txt")))

    for task in placed:
        golds = [gold for hop in task.hops for gold in hop.golds]
        assert set(golds) <= set(task.facts)
        assert all(gold in everything for gold in golds)
        assert kind != "none" or task.gold == ("not found",)
        if task.gold == ("not found",):
            assert kind in ("none", "chain") and not task.hops[-1].golds
        else:
            told = " ".join(golds).lower()
            assert all(wanted.lower() in told for wanted in task.gold)


def test_evaluation_has_relations_phrasings_names_hops_and_text_of_its_own() -> None:
    asked = " ".join(task.question for task in draw(600, SEED))
    told = " ".join(fact for task in draw(600, SEED) for fact in task.facts)

    def parts(template: str) -> list[str]:
        return [part for part in template.replace("{v}", "{s}").split("{s}") if len(part.split()) > 2]

    for relation in (*RELATIONS, *LISTS, *HABITS):
        held = relation.asked if relation.held_out else relation.asked[-1:]
        trained = {
            p
            for other in (*RELATIONS, *LISTS, *HABITS)
            if not other.held_out
            for t in other.asked[:-1]
            for p in parts(t)
        }
        assert not [
            p for template in held for p in parts(template) if p in asked and not any(p in t for t in trained)
        ]
    assert {r.name for r in RELATIONS if r.held_out} and len([r for r in RELATIONS if not r.held_out]) > 50
    assert not {(a.name, b.name) for a, b in hops("train")} & {(a.name, b.name) for a, b in hops("test")}
    tested = [make("single", dice(n, "test"), "test") for n in range(60)]
    assert not [t.gold[0] for t in tested if len(t.gold[0]) > 6 and t.gold[0].istitle() and t.gold[0] in told]
    train, test = set(text_of_python("train")), set(text_of_python("test"))
    assert len(train) > 1_000 and len(test) > 200 and not train & test


def test_further_phrasings_are_trainings_alone_and_are_not_the_held_out_ones_in_other_order() -> None:
    def said(template: str) -> frozenset[str]:
        return frozenset(stems(template.replace("{s}", "").replace("{v}", "")))

    for one in (*RELATIONS, *HABITS):
        told, asked = more(one)
        assert bool(told) is not one.held_out
        assert not set(told) & set(statements(one, "test")) and not set(asked) & set(questions(one, "test"))
        assert statements(one, "test") == (one.told if one.held_out else one.told[-1:])
        if told:
            assert said(one.asked[-1]) not in {said(t) for t in asked}
            assert said(one.told[-1]) not in {said(t) for t in told}
    assert not OWN & {one.name for one in (*RELATIONS, *LISTS, *HABITS)}
    tested = [make(kind, dice(n, "test"), "test") for kind in KINDS for n in range(40)]
    everything = " ".join(fact for task in tested for fact in (*task.facts, task.question))
    new = [
        part
        for told, _ in MORE.values()
        for t in told
        for part in re.split(r"\{[sv]\}", t)
        if len(part.split()) > 4
    ]
    assert len(new) > 20 and not [part for part in new if part in everything]


def test_chains_lead_forwards_and_backwards_and_never_the_way_that_is_kept() -> None:
    ways = [chain(dice(n, "train")) for n in range(1_500)]
    kept = {(one.name, two.name) for one, two in hops("test")}

    assert {len(way.legs) for way in ways} == {2, 3, 4}
    for way in ways:
        steps = [(leg.relation.name, leg.backwards) for leg in way.legs]
        assert all(one.to == two.at for one, two in pairwise(way.legs))
        assert way.legs[0].at in way.question
        assert not any(leg.to in way.question for leg in way.legs)
        assert KEPT_WAY not in {tuple(steps[at : at + 3]) for at in range(len(steps))}
        assert not {(one, two) for (one, a), (two, b) in pairwise(steps) if not a and not b} & kept
    assert sum(leg.backwards for way in ways for leg in way.legs) > 1_000


def test_of_a_log_the_last_line_of_the_key_counts() -> None:
    for n in range(200):
        made = log(dice(n, "train"))
        mine = [line for line in made.lines if made.key in line]

        assert len(mine) > 1 and made.last == mine[-1] and made.value in made.last
        assert asks_latest(made.question) and made.key in made.question
        assert "gauge" not in made.question


def test_text_may_come_from_a_folder_split_by_file(tmp_path: Path) -> None:
    for number in range(10):
        words = f"The file of number {'abcdefghij'[number] * 3} holds a sentence long enough to be used here."
        (tmp_path / f"{number}.txt").write_text(words, encoding="utf-8")

    train, test = text_of_folder(tmp_path, "train"), text_of_folder(tmp_path, "test")
    assert len(train) == 8 and len(test) == 2 and not set(train) & set(test)


# -- teacher -----------------------------------------------------------------------------------------------


def test_the_teacher_answers_what_it_finds_and_makes_no_error(trajectories: list[Trajectory]) -> None:
    assert len(trajectories) >= 10
    assert {t.task.kind for t in trajectories} >= {"single", "list", "none"}
    for one in trajectories:
        assert score(one.answer, one.task.gold)[1]
        searches = [step.action for step in one.steps if step.action.startswith("search")]
        assert len(set(searches)) == len(searches)
        if one.task.kind != "none":
            assert one.steps[-1].action.startswith("finish")


def test_the_teacher_answers_with_nothing_but_notes_in_mind(trajectories: list[Trajectory]) -> None:
    for one in trajectories:
        if one.task.kind != "none":
            assert one.steps[-1].state.count("<|im_start|>") == 1
            assert not re.search(r" [=~]\d", one.steps[-1].state)


def test_every_action_of_the_teacher_could_have_been_sampled(library) -> None:
    """The grammar that binds the model must not forbid what it is taught, and the states are those it is shown."""
    from test_compact import Grammar

    workspace, tasks = library
    checked = 0
    for number, task in enumerate(tasks):
        teacher = Teacher(workspace, task, random.Random(number))
        take = teacher.loop.take
        steps = 0

        def looking(reply, offered=None, teacher=teacher, take=take):  # type: ignore[no-untyped-def]
            nonlocal checked, steps
            prompt = teacher.loop.prompt()
            assert Grammar(prompt.grammar).accepts(reply.text), (reply.text, prompt.text)
            written, steps = len(teacher.steps) > steps, len(teacher.steps)
            if written:  # a slip and a forced move are in no sample
                assert teacher.steps[-1].action == reply.text
                assert prompt.text == teacher.steps[-1].state + "<|im_start|>assistant\n"
            checked += 1
            take(reply, offered)

        teacher.loop.take = looking
        try:
            teacher.play()
        except Rejected:
            continue
    assert checked > 60


def test_every_kind_of_task_is_played_to_its_end(library) -> None:
    workspace, tasks = library
    kept, rejected = play_all(workspace, tasks, SEED)

    assert {t.task.kind for t in kept} == set(ALL_KINDS), rejected


def test_a_task_under_pressure_fills_its_window_and_one_without_search_reads_in_order(library) -> None:
    workspace, tasks = library
    fullest = 0
    for task in (t for t in tasks if t.kind == "budget"):
        pressed = Teacher(workspace, task, random.Random(1), noise=0)
        pressed.play()
        assert pressed.loop.conversation.settings.window_tokens == BUDGET_WINDOW
        fullest = max(fullest, *pressed.loop.visible)
    window = pressed.loop.conversation.settings
    # the text they stand in, hence how full it gets, is that of this Python's own library
    assert fullest > 0.6 * (window.window_tokens - window.reserve_tokens)

    for task in (t for t in tasks if t.kind == "scan"):
        scanned = Teacher(workspace, task, random.Random(1), noise=0)
        scanned.play()
        metrics = scanned.loop.metrics()
        assert metrics.searches == 0 and metrics.reads >= 1 and metrics.deletions >= metrics.reads - 1


def test_now_and_then_the_teacher_reads_in_vain_and_learns_the_way_back_alone(library) -> None:
    workspace, tasks = library
    slips = 0
    for number, task in enumerate(tasks):
        teacher = Teacher(workspace, task, random.Random(number), noise=1.0)
        try:
            played = teacher.play()
        except Rejected:
            continue
        reads = sum(step.action.startswith("read ") for step in played.steps)
        slips += teacher.loop.metrics().reads - reads
    assert slips > 3


def test_what_a_search_does_not_find_is_rejected(library) -> None:
    workspace, tasks = library
    task = next(t for t in tasks if t.kind == "single")
    from dataclasses import replace

    lost = replace(task, hops=(replace(task.hops[0], golds=("This sentence stands nowhere.",)),))
    with pytest.raises(Rejected, match="missed"):
        Teacher(workspace, lost, random.Random(1)).play()


# -- samples -----------------------------------------------------------------------------------------------


def test_samples_cover_every_action_once_and_read_like_the_states(trajectories: list[Trajectory]) -> None:
    for one in trajectories:
        samples = cut(one.task.kind, one.steps)
        learned = [text for sample in samples for text, is_learned in sample.pieces if is_learned]
        assert len(samples) <= len(one.steps)
        assert learned == [step.action + "<|im_end|>\n" for step in one.steps]
        for sample in samples:
            whole = "".join(text for text, _ in sample.pieces)
            assert any(whole.startswith(step.state) for step in one.steps)


def test_balancing_thins_deletions_alone_and_by_seed(trajectories: list[Trajectory]) -> None:
    samples = [s for one in trajectories for s in cut(one.task.kind, one.steps)]
    kept = balanced(samples, 1)

    assert kept == balanced(samples, 1) and len(kept) < len(samples)
    assert all(s.last == "drop" for s in samples if s not in kept)


def test_samples_are_saved_and_loaded(trajectories: list[Trajectory], tmp_path: Path) -> None:
    samples = [s for one in trajectories[:3] for s in cut(one.task.kind, one.steps)]
    save(samples, tmp_path / "s.jsonl")

    assert list(load(tmp_path / "s.jsonl")) == samples


def test_the_loss_lies_on_choices_and_most_on_verb_and_number() -> None:
    sample = Sample("k", (("state ", False), ("read 2<|im_end|>\n", True)), "read")
    made = encoded(sample, lambda text: [ord(c) for c in text])

    assert made.weights[:6] == (0.0,) * 6 and made.weights[6:12] == (2.0,) * 6
    assert set(made.weights[12:]) == {1.0} and len(made.tokens) == len(made.weights)


# -- training ----------------------------------------------------------------------------------------------


def test_a_run_is_resumed_and_comes_out_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra [train] is not installed")
    from dataclasses import replace

    from pensieve_mcp.statelm.gguf import Gguf
    from pensieve_mcp.statelm.training import sft

    base = tiny.base(tmp_path / "base.gguf")
    samples = [
        Sample("k", ((f"q{n} the ", False), (f"finish {n % 3}<|im_end|>\n", True)), "finish")
        for n in range(12)
    ]
    recipe = sft.Recipe(
        steps=12,
        rank=4,
        alpha=8.0,
        first_layer=1,
        batch=3,
        learning_rate=0.02,
        warm_up_steps=8,
        checkpoint_steps=5,
    )
    lines: list[dict[str, float]] = []

    whole = sft.train(base, samples, tmp_path / "whole", recipe, progress=lines.append)
    stops = iter([False] * 6 + [True] * 100)
    sft.train(base, samples, tmp_path / "parts", recipe, stop=lambda: next(stops))
    resumed = sft.train(base, samples, tmp_path / "parts", recipe)

    early = sft.train(base, samples, tmp_path / "early", recipe, until=5)
    assert sft.train(base, samples, tmp_path / "early", recipe, until=5) == early
    assert (tmp_path / "early" / "adapter-00005.gguf").read_bytes() == early.read_bytes()
    assert len((tmp_path / "early" / sft.LOG_FILE).read_text("utf-8").splitlines()) == 5
    assert lines[-1]["loss"] < lines[0]["loss"] - 1
    one, two = Gguf.open(whole), Gguf.open(resumed)
    assert len(one.tensors) == 2 * 7
    for tensor in one.tensors:
        assert abs(one.floats(tensor) - two.floats(two.by_name(tensor.name))).max() < 1e-3
    assert sorted(p.name for p in (tmp_path / "whole").glob("adapter-*")) == [
        "adapter-00005.gguf", "adapter-00010.gguf", "adapter-00012.gguf",
    ]  # fmt: skip
    assert sft.order([], replace(recipe, steps=0)) == []


def test_the_network_computes_what_the_merged_file_computes(tmp_path: Path) -> None:
    """Base plus adapter in torch gives the losses of base and adapter merged: nothing is permuted on the way."""
    torch = pytest.importorskip("torch", reason="the extra [train] is not installed")
    from pensieve_mcp.statelm.gguf import Gguf, merge
    from pensieve_mcp.statelm.training.network import Network
    from pensieve_mcp.statelm.training.samples import Encoded

    base = tiny.base(tmp_path / "base.gguf")
    network = Network(Gguf.open(base), rank=4, alpha=8.0, first=0, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.trained():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    network.save_adapter(tmp_path / "adapter.gguf")
    merge(base, tmp_path / "merged.gguf", tmp_path / "adapter.gguf")
    merged = Network(Gguf.open(tmp_path / "merged.gguf"), rank=4, alpha=8.0, first=0, dtype=torch.float32)
    batch = [Encoded(tuple(range(10, 30)), (0.0,) * 5 + (1.0,) * 15), Encoded((7, 8, 9), (0.0, 1.0, 1.0))]

    difference = network.loss(batch)[0].detach() - merged.loss(batch)[0].detach()
    assert abs(float(difference)) < 0.3  # eight bits
    assert network.loss(batch)[1] == 17.0


def test_all_that_a_step_touches_lies_on_the_networks_device(tmp_path: Path) -> None:
    """Tensors without numbers refuse to meet one of another device, as real ones do; so this needs no card."""
    torch = pytest.importorskip("torch", reason="the extra [train] is not installed")
    from torch._subclasses.fake_tensor import FakeTensorMode

    from pensieve_mcp.statelm.gguf import Gguf
    from pensieve_mcp.statelm.training.network import Network, packed
    from pensieve_mcp.statelm.training.samples import Encoded

    card = torch.device("meta")  # as foreign as any card, and there on every machine
    base = Gguf.open(tiny.base(tmp_path / "base.gguf"))
    batch = packed([Encoded(tuple(range(10, 30)), (0.0,) * 5 + (1.0,) * 15), Encoded((7, 8), (0.0, 1.0))])
    before = Network(base, rank=4, alpha=8.0, first=1)
    steps = torch.optim.AdamW(before.trained())
    before.weighted(batch).backward()
    steps.step()
    with FakeTensorMode(allow_non_fake_inputs=True):
        network = Network(base, rank=4, alpha=8.0, first=1, device=card)
        optimiser = torch.optim.AdamW(network.trained())
        optimiser.load_state_dict(steps.state_dict())
        loss = network.weighted(batch)
        loss.backward()
        with pytest.raises(RuntimeError, match="device"):
            torch.nn.functional.linear(torch.ones(1, tiny.WIDTH), network.embedding)

    assert loss.device == card and len(network.trained()) == 2 * 7
    assert {p.device for p in network.trained()} == {p.grad.device for p in network.trained()} == {card}
    assert optimiser.state[network.trained()[0]]["exp_avg"].device == card


def test_a_run_goes_on_on_another_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra [train] is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no graphics card here")
    from pensieve_mcp.statelm.training import sft

    base = tiny.base(tmp_path / "base.gguf")
    samples = [
        Sample("k", ((f"q{n} the ", False), (f"finish {n % 3}<|im_end|>\n", True)), "finish")
        for n in range(12)
    ]
    recipe = sft.Recipe(steps=12, rank=4, alpha=8.0, first_layer=1, batch=3, warm_up_steps=8)
    lines: dict[str, list[dict[str, float]]] = {"cpu": [], "cuda": [], "both": []}
    for device in ("cpu", "cuda"):
        sft.train(base, samples, tmp_path / device, recipe, device=device, progress=lines[device].append)
    for device, until in (("cuda", 4), ("cpu", 8), ("cuda", 12)):
        sft.train(
            base,
            samples,
            tmp_path / "both",
            recipe,
            device=device,
            until=until,
            progress=lines["both"].append,
        )

    losses = {name: [line["loss"] for line in told] for name, told in lines.items()}
    assert len(losses["both"]) == 12
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=0.02)
    assert losses["both"] == pytest.approx(losses["cpu"], rel=0.02)


def test_a_device_is_named_as_torch_does_and_a_missing_one_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="the extra [train] is not installed")
    from pensieve_mcp.statelm.training.devices import device_of

    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("cuda:77", "mps:77", "graphics", "meta", ""):
        with pytest.raises(BackendError, match="cannot compute") as refused:
            device_of(name)
        assert refused.value.slug == "no_device" and "--device cpu" in refused.value.hint


# -- evaluation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "gold", "contains", "exact"),
    [
        ("Ada Quill", ("Ada Quill",), True, True),
        ("The museum was founded by Ada Quill in a very cold winter.", ("Ada Quill",), True, False),
        ("Pelham, Arvale", ("Arvale", "Pelham"), True, True),
        ("Pelham", ("Arvale", "Pelham"), False, False),
        ("not found", ("Ada Quill",), False, False),
        ("The documents do not say.", ("not found",), True, True),
        ("Ada", ("not found",), False, False),
        ("", ("Ada",), False, False),
    ],
)
def test_answers_are_scored_by_string(
    answer: str, gold: tuple[str, ...], contains: bool, exact: bool
) -> None:
    assert score(answer, gold) == (contains, exact)


def test_intervals_are_wilsons() -> None:
    low, high = interval(14, 35)

    assert (round(low, 2), round(high, 2)) == (0.26, 0.56)
    assert interval(0, 0) == (0.0, 1.0)
    assert interval(20, 20)[1] <= 1.0


def test_a_small_suite_runs_and_its_table_names_every_kind(tmp_path: Path) -> None:
    workspace, tasks = prepare(suite(1, SEED), tmp_path, SEED, paragraphs=60)
    with workspace:
        report = evaluate(workspace, tasks, extractive.answer, lambda task: Ours())

    assert sorted(report.kinds) == sorted(KINDS)
    assert report.all.n == len(KINDS) and report.all.finished == len(KINDS)
    assert report.kinds["none"].n == 1
    assert json.loads(json.dumps(report.data()))["kinds"]["single"]["n"] == 1
    assert all(kind in "\n".join(report.lines()) for kind in KINDS)

"""eval: beds made by seed, answers scored and kept line by line, workflows beside the loop, a report of it all."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pensieve_mcp.errors import BackendError, Miscast, WorkspaceError
from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.scripted import Scripted
from pensieve_mcp.statelm.evaluation import paper, report, running, texts, workflows
from pensieve_mcp.statelm.evaluation.running import Plan
from pensieve_mcp.statelm.evaluation.suites import SUITES
from pensieve_mcp.statelm.turns import Call, Prompt, Reply
from pensieve_mcp.tokens import count_tokens

TEXT = tuple(
    f"The clerk wrote line {n} about mills, rivers and the price of rye in year {n}." for n in range(2_000)
)


def answering(question_to_answer: dict[str, str]) -> Any:
    """A model that reads every prompt and says what a test wants; tools, where there are some, end at once."""

    class Model:
        model = "stand-in"

        def __init__(self) -> None:
            self.prompts: list[str] = []

        def reply(self, prompt: Prompt) -> Reply:
            text = "\n".join(str(m.get("content")) for m in prompt.messages)
            self.prompts.append(text)
            said = next((a for q, a in question_to_answer.items() if q in text), "not found")
            return Reply("", (Call("finish", {"answer": said}),)) if prompt.tools else Reply(said)

        def close(self) -> None:
            """Nothing is open."""

    return Model()


# -- beds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES)
def test_the_same_seed_makes_the_same_bed_and_every_answer_stands_in_it(suite: str) -> None:
    length = 8 if suite == "interference" else 3_000
    one, two = (SUITES[suite].make(length, 7, 5, TEXT) for _ in range(2))
    other = SUITES[suite].make(length, 7, 6, TEXT)

    assert running.digest_of(one) == running.digest_of(two) != running.digest_of(other)
    assert [item.number for item in one.items] == list(range(7))
    whole = "\n".join(one.files.values())
    for item in one.items:
        if item.kind != "none":
            assert all(gold in whole for gold in item.gold), item
        assert not item.under or item.under in one.files


def test_a_needle_stands_at_its_depth_and_once() -> None:
    bed = SUITES["needle"].make(5_000, 5, 1, TEXT)
    text = bed.files["text.txt"]

    assert [item.position for item in bed.items] == [0.0, 0.25, 0.5, 0.75, 1.0]
    for item in bed.items:
        assert text.count(item.gold[0]) == 1
        assert abs(text.index(item.gold[0]) / len(text) - item.position) < 0.03
    assert 4_700 < count_tokens(text) < 5_400


def test_only_the_last_of_many_updates_counts() -> None:
    bed = SUITES["interference"].make(16, 5, 1, ())
    lines = bed.files["log.txt"].split("\n\n")

    assert len(lines) == 16 * 20
    for item in bed.items:
        key = item.question.removesuffix("?").rsplit(" ", 1)[1]
        own = [line for line in lines if f"at {key} now" in line]
        assert len(own) == 16 and own[-1].rstrip().endswith(f"{item.gold[0]}.")


def test_the_deep_suite_is_answered_by_three_documents_one_after_another() -> None:
    bed = SUITES["deep"].make(4_000, 4, 1, TEXT)

    for item in bed.items:
        river = item.question.removesuffix("?").rsplit(" ", 1)[1]
        lies = [p for p, text in bed.files.items() if f"lies on the River {river}." in text]
        founded = [p for p, text in bed.files.items() if f"The {item.gold[0]} was founded by" in text]
        assert len(lies) == len(founded) == 1 and lies != founded


def test_the_haystack_is_of_python_itself_and_none_twice() -> None:
    source = texts.paragraphs_of_python()
    made = texts.haystack(source, 20_000, random.Random(1))

    assert len(set(made)) == len(made) and made != list(source[: len(made)])
    assert 20_000 <= sum(count_tokens(one) + 1 for one in made) < 21_000


def test_too_little_text_is_told() -> None:
    with pytest.raises(WorkspaceError, match=r"tokens; 900,000 are wanted"):
        SUITES["needle"].make(900_000, 1, 1, TEXT)


# -- running -----------------------------------------------------------------------------------------------


def run(plan: Plan, out: Path, model: Any = None, **more: Any) -> list[dict[str, Any]]:
    settings = {"encoder": "hashing:64"}
    import dataclasses

    return running.run(
        dataclasses.replace(plan, arguments=settings), Choice("extractive" if model is None else "scripted"), out,
        home=out / "home", text=TEXT, model=None if model is None else (lambda: model), **more,
    )  # fmt: skip


def answers(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(running.answers(records))


def test_the_floor_finds_needles_and_says_what_it_cost(tmp_path: Path) -> None:
    records = run(Plan(("needle",), (3_000,), 4, 1), tmp_path)

    found = answers(records)
    assert [one["contains"] for one in found] == [True] * 4 and all(one["grounded"] for one in found)
    assert all(one["policy"] == "extractive" and one["searches"] == 1 for one in found)
    assert all(0 < one["peak_tokens"] < 4_000 and one["rounds"] for one in found)
    (bed,) = [one for one in records if one["kind"] == "bed"]
    assert 2_900 < bed["tokens"] < 3_500
    assert not (tmp_path / "beds" / f"needle-3000-{bed['bed']}").exists(), "beds are large and are not kept"


def test_the_floor_reads_in_order_where_there_is_no_search(tmp_path: Path) -> None:
    found = answers(run(Plan(("needle",), (6_000,), 2, 1, search=False), tmp_path))

    assert [one["contains"] for one in found] == [True] * 2
    assert all(one["searches"] == 0 and one["reads"] >= 6 for one in found)


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    plan = Plan(("needle",), (3_000,), 4, 1)
    asked = iter(range(100))
    run(plan, tmp_path, cancelled=lambda: next(asked) > 12)
    file = tmp_path / running.RECORDS
    before = [line for line in file.read_text("utf-8").splitlines() if '"answer"' in line]
    file.write_text(file.read_text("utf-8") + '{"kind": "answer", "suite": "nee', encoding="utf-8")

    records = answers(run(plan, tmp_path))
    after = file.read_text("utf-8").splitlines()
    again = run(plan, tmp_path)

    assert 0 < len(before) < 4
    assert [one["item"] for one in records] == [0, 1, 2, 3]
    assert [line for line in after if line in before] == before, "what was answered is not asked again"
    assert len(answers(again)) == 4


def test_an_answer_with_odd_line_ends_is_a_record_like_any_other(tmp_path: Path) -> None:
    """U+2028, U+0085 and their like stand in real documents, and JSON leaves them as they are."""
    records = running.Records(tmp_path / running.RECORDS)
    records.add({"kind": "answer", "answer": "the left\u2028and\u0085the right\x0cbank"})

    assert running.load(tmp_path / running.RECORDS) == records.all


def test_other_systems_and_lengths_go_into_the_same_file(tmp_path: Path) -> None:
    model = answering({})
    run(Plan(("needle",), (2_000,), 2, 1), tmp_path)
    records = run(Plan(("needle",), (2_000,), 2, 1, systems=("direct", "question")), tmp_path, model)

    assert {report.who(one) for one in answers(records)} == {
        "no model, loop", "stand-in, direct", "stand-in, question",
    }  # fmt: skip
    page = report.markdown(records)
    assert "| stand-in, direct | 0.00 (0.00 to 0.66, n = 2) |" in page


def test_notes_of_one_question_do_not_help_the_next(tmp_path: Path) -> None:
    seen: list[str] = []

    class Noting:
        model = "noting"

        def reply(self, prompt: Prompt) -> Reply:
            first = str(prompt.messages[1]["content"])
            if any(m.get("tool_calls") for m in prompt.messages):
                return Reply("", (Call("finish", {"answer": "x"}),))
            seen.append(first)
            return Reply("", (Call("note", {"key": "secret", "summary": "told before", "content": "x"}),))

        def close(self) -> None:
            """Nothing is open."""

    run(Plan(("needle",), (2_000,), 3, 1), tmp_path, Noting())

    assert len(seen) == 3 and not any("told before" in one for one in seen)


def test_what_a_server_does_wrong_is_a_wrong_answer_with_its_reason(tmp_path: Path) -> None:
    plan = Plan(("needle",), (2_000,), 2, 1, systems=("loop", "memagent"))
    found = answers(run(plan, tmp_path, Scripted([])))

    assert {one["ended"] for one in found} == {"backend"} and not any(one["contains"] for one in found)
    assert all("no more lines" in one["detail"] for one in found)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(("hay",)), "There is no 'hay' to evaluate."),
        (Plan(("needle",), systems=("loop", "rag")), "There is no 'rag' to evaluate."),
    ],
)
def test_what_is_no_suite_or_system_is_told(tmp_path: Path, plan: Plan, words: str) -> None:
    with pytest.raises(Miscast, match=words):
        run(plan, tmp_path)


def test_workflows_need_a_model(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="Without a model"):
        run(Plan(("needle",), (2_000,), systems=("direct",)), tmp_path)


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / running.RECORDS).write_text('{"a": 1}\n', encoding="utf-8")

    with pytest.raises(Miscast, match="no records of pensieve eval"):
        run(Plan(("needle",), (2_000,), 1, 1), tmp_path)
    assert (tmp_path / running.RECORDS).read_text("utf-8") == '{"a": 1}\n'


def test_numbers_count_with_or_without_commas() -> None:
    assert running.plain_numbers("It is 4,821,907, or 1,2.") == "It is 4821907, or 1,2."


# -- workflows ---------------------------------------------------------------------------------------------

PARAGRAPHS = [f"Paragraph {n} tells of mill number {n} on the river." for n in range(400)]


def speaker(model: Any, window: int = 1_000) -> workflows.Speaker:
    return workflows.Speaker(model, window)


def test_direct_shows_the_beginning_as_far_as_it_fits() -> None:
    model = answering({"Paragraph 3 ": "3"})
    outcome = workflows.direct(speaker(model), "Which mill?", PARAGRAPHS)

    (prompt,) = model.prompts
    assert "Paragraph 0 " in prompt and "Paragraph 399 " not in prompt and prompt.endswith(workflows.ANSWER)
    assert outcome.cut and outcome.calls == 1 and outcome.peak_tokens <= 1_000 and outcome.answer == "3"


def test_the_question_alone_shows_no_text() -> None:
    model = answering({})
    outcome = workflows.question_alone(speaker(model), "Which mill?", PARAGRAPHS)

    assert "Paragraph" not in model.prompts[0] and not outcome.cut


def test_memagent_sees_every_section_once_and_carries_one_memory() -> None:
    class Counting:
        model = "m"

        def __init__(self) -> None:
            self.prompts: list[str] = []

        def reply(self, prompt: Prompt) -> Reply:
            self.prompts.append(str(prompt.messages[0]["content"]))
            return Reply(f"memory {len(self.prompts)}")

        def close(self) -> None:
            """Nothing is open."""

    model = Counting()
    outcome = workflows.memagent(speaker(model), "Which mill?", PARAGRAPHS)

    *steps, last = model.prompts
    for n in range(400):
        assert sum(f"Paragraph {n} tells" in step for step in steps) == 1
    assert workflows.NO_MEMORY in steps[0]
    assert all(f"memory {place}" in step for place, step in enumerate(steps[1:], 1))
    assert f"memory {len(steps)}" in last and "Paragraph" not in last
    assert outcome.calls == len(model.prompts) and outcome.peak_tokens <= 1_000 and not outcome.cut


def test_readagent_makes_a_gist_of_each_page_and_looks_pages_up_again() -> None:
    class Gists:
        model = "m"

        def __init__(self) -> None:
            self.prompts: list[str] = []

        def reply(self, prompt: Prompt) -> Reply:
            text = str(prompt.messages[0]["content"])
            self.prompts.append(text)
            if "gist, keep" in text:
                return Reply(f"gist of {text.count('Paragraph')} paragraphs")
            return Reply("[1, 99, 0]") if "Which pages" in text else Reply("mill 7")

        def close(self) -> None:
            """Nothing is open."""

    model = Gists()
    outcome = workflows.readagent(speaker(model, 2_000), "Which mill?", PARAGRAPHS)

    pages = [p for p in model.prompts if "gist, keep" in p]
    assert sum(p.count("Paragraph") for p in pages) == 400 and outcome.calls == len(pages) + 2
    assert f"<Page {len(pages) - 1}> gist of" in model.prompts[-2]
    last = model.prompts[-1]
    assert "<Page 1> Paragraph" in last and "<Page 0> Paragraph 0 tells" in last and "<Page 99>" not in last
    assert outcome.answer == "mill 7" and outcome.peak_tokens <= 2_000


def test_an_overlong_paragraph_is_parted_and_nothing_is_lost() -> None:
    parts = workflows.sections(["a b c " * 2_000, "end"], 300)

    assert "".join(parts).replace("\n\n", "") == "a b c " * 2_000 + "end"
    assert all(count_tokens(part) <= 310 for part in parts)


# -- report ------------------------------------------------------------------------------------------------


def test_the_report_tells_scores_by_length_position_and_kind_beside_the_paper(tmp_path: Path) -> None:
    run(Plan(("needle", "qa"), (2_000, 4_000), 5, 1), tmp_path)
    records = run(Plan(("interference",), (4,), 2, 1), tmp_path)
    page = report.markdown(records)

    assert "| no model, loop | 1.00 (0.57 to 1.00, n = 5) | 1.00 (0.57 to 1.00, n = 5) |" in page
    assert "| by position of the evidence | first fifth |" in page and "| by kind | held | hop |" in page
    assert "StateLM-14B | 100 | 100 | 99.44" in page and "∞Bench" in page
    assert "peak in mind, tokens" in page and "| no model, loop | 4 updates |" in page
    picture = report.svg(records, "needle")
    assert picture.startswith("<svg") and picture.count("<circle") == 2 and " of 5<" not in picture
    alone = report.svg(records, "interference")
    assert "<polyline" not in alone and "</text>" in alone and re.search(r">\d of 2</text>", alone), (
        "no lone dot"
    )
    (first, *_) = report.summary(records)
    assert (first["suite"], first["length"], first["n"], first["contains"]) == ("needle", 2_000, 5, 5)


def test_the_papers_tables_are_whole() -> None:
    assert all(len(row) == len(paper.NEEDLE_LENGTHS) for row in paper.NEEDLE.values())
    assert all(len(row) == len(paper.MAIN_SETS) for row in paper.MAIN.values())
    assert set(paper.BESIDE) <= set(SUITES) and all(
        set(n) <= set(paper.MAIN_SETS) for n in paper.BESIDE.values()
    )


def test_a_report_of_nothing_says_so() -> None:
    assert "No records yet." in report.markdown([])


def test_from_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pensieve_mcp.cli import run as pensieve

    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("\n\n".join(TEXT), encoding="utf-8")
    monkeypatch.setenv("PENSIEVE_HOME", str(tmp_path / "home"))
    out = tmp_path / "out"
    words = ("eval", "run", "needle", "--lengths", "2k", "--n", "2", "--text", str(source), "--out", str(out))
    assert pensieve((*words, "--backend", "extractive", "--json")) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)[0]["contains"] == 2 and "needle 2,048 loop 2/2: right" in told.err
    assert (out / "report.md").exists() and (out / "needle.svg").exists()
    assert pensieve(("eval", "report", str(out))) == 0
    assert "## needle" in capsys.readouterr().out
    for bad in (("--lengths", "2x"), ("--lengths", "0")):
        assert pensieve(("eval", "run", "needle", *bad)) == 2
    assert pensieve(("eval", "run", "needle", "interference", "--lengths", "32k")) == 2
    assert "updates" in capsys.readouterr().err

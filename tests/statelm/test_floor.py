"""The policy without a model: a sentence of the documents with its place, or an honest refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pensieve_mcp.ledger.events import refuses
from pensieve_mcp.statelm import extractive
from pensieve_mcp.statelm.asking import ask, asker, choice_from, settled
from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.scripted import Scripted
from pensieve_mcp.statelm.capitals import alike
from pensieve_mcp.statelm.dialects.ours import Ours
from pensieve_mcp.statelm.evidence import holds
from pensieve_mcp.statelm.extractive import best_sentence
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.turns import Call
from pensieve_mcp.workspace import Workspace


def test_it_returns_the_sentence_and_its_place_and_says_what_it_is(workspace) -> None:
    asked = extractive.answer(Loop.over(workspace, "Who founded the Arvale Museum?", Ours()))

    assert asked.answer == "The Arvale Museum was founded by Ada Quill."
    assert asked.policy == "extractive" and asked.grounded
    assert asked.citations[0].path.endswith("guide.md") and asked.citations[0].state == "ok"


@pytest.mark.parametrize(
    "question",
    ["Who founded the Berlin Zoo?", "In which year did Bela Crane die?", "What is the code of Project Zeta?"],
)
def test_it_never_guesses(workspace, question: str) -> None:
    asked = extractive.answer(Loop.over(workspace, question, Ours()))

    assert (asked.found, asked.ended, asked.answer) == (False, "not_found", "not found")


def test_what_it_read_is_deleted(workspace) -> None:
    loop = Loop.over(workspace, "Who founded the Arvale Museum?", Ours())
    asked = extractive.answer(loop)

    assert all(entry.forgotten for entry in loop.conversation.results("readChunk", "searchEngine"))
    assert asked.metrics.freed_tokens > 0 and asked.metrics.deletions == asked.metrics.reads + 1


def test_a_heading_is_no_answer() -> None:
    text = "# How the bell was cast\n\nHow the bell was cast\n\nThe bell was cast by Tom Marsh in the yard."

    best = best_sentence("How was the bell cast?", text, 1)
    assert best is not None and best.text == "The bell was cast by Tom Marsh in the yard."


@pytest.mark.parametrize(
    ("quotes", "answer", "held"),
    [
        (["The museum was founded by Ada Quill."], "Ada Quill", True),
        (["The museum was founded by Ada Quill."], "ada quill.", True),
        (["In Pelham she spoke.", "She spoke in Arvale."], "Pelham, Arvale", True),
        (["In Pelham she spoke."], "Pelham, Arvale", False),
        (["It employs 532 people."], "5322", False),
        ([], "Ada Quill", False),
    ],
)
def test_an_answer_is_held_by_quotes_or_not(quotes: list[str], answer: str, held: bool) -> None:
    assert holds(quotes, answer) is held


@pytest.mark.parametrize("answer", ["not found", "Not found.", "", "The documents do not say.", "unknown"])
def test_ways_of_saying_that_nothing_was_found(answer: str) -> None:
    assert refuses(answer)


@pytest.mark.parametrize(
    "answer", ["Ada Quill", "The Unknown Soldier", "It was not founded by Ada but by Bela."]
)
def test_answers_are_no_refusals(answer: str) -> None:
    assert not refuses(answer)


def test_without_an_installed_model_auto_is_the_floor(home) -> None:
    assert settled(choice_from({}), home)[0].backend == "extractive"


def test_a_key_comes_from_the_environment_and_belongs_to_its_backend() -> None:
    environment = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a"}

    assert choice_from(environment, backend="openai").key == "o"
    assert choice_from(environment, backend="anthropic").key == "a"
    assert choice_from({**environment, "PENSIEVE_ASK_KEY": "p"}, backend="openai").key == "p"
    assert choice_from(environment, backend="extractive").key == ""


def test_a_small_model_that_gets_stuck_gives_way_to_the_floor_and_it_is_told(workspace, home) -> None:
    backend = Scripted(["nonsense"] * 20)
    asked = ask(
        workspace,
        "Who founded the Arvale Museum?",
        Choice("local"),
        home=home,
        dialect_name="compact",
        backend=backend,
    )

    assert asked.policy == "extractive" and "Ada Quill" in asked.answer and "no end" in asked.detail


def test_the_port_is_closed_until_a_backend_is_configured(workspace, home) -> None:
    assert asker(workspace, {}, home=home) is None


def test_the_port_answers_plain_data_and_tells_progress(workspace, home) -> None:
    port = asker(workspace, {"PENSIEVE_ASK_BACKEND": "extractive"}, home=home)
    assert port is not None
    told: list[str] = []

    data = port("Who founded the Arvale Museum?", [], told.append, lambda: False)

    assert data["answer"].endswith("Ada Quill.") and data["grounded"] is True
    assert data["citations"][0]["path"].endswith("guide.md")
    assert told[0].startswith("turn 1, searchEngine")


def test_a_question_can_be_kept_to_a_path(workspace, home) -> None:
    asked = ask(
        workspace, "Who founded the Arvale Museum?", Choice("extractive"), home=home, under=["docs/diary.txt"]
    )

    assert not asked.found


def test_a_call_of_the_dialect_is_written_as_the_model_wrote_it(workspace) -> None:
    loop = Loop.over(workspace, "Who?", Ours())
    loop.act(Call("searchEngine", {"keyword": "museum"}), "I look.")
    call = loop.conversation.spoken()[0]

    assert loop.conversation.call_of(call) == ("searchEngine", {"keyword": "museum"})
    assert call.message.kept_thought == "I look."


def test_its_notes_are_scratch_notes_that_no_list_shows(workspace) -> None:
    asked = extractive.answer(Loop.over(workspace, "Who founded the Arvale Museum?", Ours()))

    assert asked.grounded and not workspace.notebook.list().lines
    assert [note.key.partition("/")[0] for note in workspace.notebook.all_notes()]


def test_questions_in_german_are_answered_though_every_noun_has_a_capital(tmp_path, home) -> None:
    """34 with an answer and 16 without, the last 15 written after the rule. Before it 24 and 11 came out right."""
    told = json.loads((Path(__file__).parent / "german.json").read_text(encoding="utf-8"))
    folder = tmp_path / "archiv"
    folder.mkdir()
    for name, text in told["documents"].items():
        (folder / name).write_text(text, encoding="utf-8")
    right = {True: 0, False: 0}
    with Workspace.open(
        [folder], environment={"PENSIEVE_HOME": str(home), "PENSIEVE_UPGRADE": "false"}, builder="inline"
    ) as opened:
        opened.build_now()
        for question, wanted in [*told["seen while writing"], *told["fresh"]]:
            asked = extractive.answer(Loop.over(opened, question, Ours()))
            right[bool(wanted)] += (asked.found and wanted in asked.answer) if wanted else not asked.found
    assert right[True] >= 30 and right[False] == 16, right


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("fässer", "fässern", True),
        ("gründete", "gegründet", True),
        ("leitet", "leiterin", True),
        ("haus", "haut", False),
        ("der", "die", False),
        ("mühle", "müll", False),
        ("wärter", "wärme", False),
    ],
)
def test_forms_of_a_german_word_are_alike(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same and alike(other, one) is same

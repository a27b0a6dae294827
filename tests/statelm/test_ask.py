"""The shell's doors: ask, plot, model, train; and trajectories kept and looked at again."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny
from server import Answer, events, serving

from pensieve_mcp.cli import run
from pensieve_mcp.errors import Miscast
from pensieve_mcp.statelm import trajectories

QUESTION = "Who founded the Arvale Museum?"


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Pensieve = Callable[..., Said]


@pytest.fixture
def pensieve(home: Path, monkeypatch: pytest.MonkeyPatch) -> Pensieve:
    """`pensieve(*words)` runs one command line in this process."""
    for name in [n for n in os.environ if n.startswith("PENSIEVE_") or n.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PENSIEVE_HOME", str(home))

    def command(*words: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        code = run(words)
        return Said(code, out.getvalue(), err.getvalue())

    return command


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A scripted model that notes, deletes and answers."""
    quote = "The Arvale Museum was founded by Ada Quill."
    lines = [
        {"thought": "I search.", "name": "searchEngine", "arguments": {"keyword": "Arvale Museum founder"}},
        {"thought": "I note.", "name": "note", "arguments": {
            "key": "founder", "summary": "founder", "content": quote, "evidence": [{"quote": quote}]}},
        {"name": "deleteContext", "arguments": {"msg_id": "m3"}},
        {"name": "finish", "arguments": {"answer": "Ada Quill", "citations": ["founder"]}},
    ]  # fmt: skip
    path = tmp_path / "script.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def test_ask_answers_with_the_place_and_tells_what_it_does(
    pensieve: Pensieve, folder: Path, script: str
) -> None:
    said = pensieve("ask", QUESTION, str(folder), "--backend", "scripted", "--model", script)

    assert said.code == 0
    assert said.out.startswith("Ada Quill\n") and "guide.md" in said.out and ": ok" in said.out
    assert "grounded: false" not in said.out
    assert "searchEngine(keyword='Arvale Museum founder')" in said.err and "I search." in said.err
    assert "4 rounds / 1 memory operation / 1 deletion / 1 search;" in said.err


def test_ask_without_any_model_is_extractive_and_says_so(pensieve: Pensieve, folder: Path) -> None:
    said = pensieve("ask", QUESTION, str(folder), "--quiet")

    assert said.code == 0 and said.out.startswith("The Arvale Museum was founded by Ada Quill.")
    assert "policy: extractive" in said.out


@pytest.mark.parametrize("question", ["", " \n", "why? " * 4_000])
def test_a_question_that_is_none_is_refused_before_anything_is_read(
    pensieve: Pensieve, folder: Path, question: str
) -> None:
    said = pensieve("ask", question, str(folder))

    assert said.code == 1 and "characters" in said.err and "one question" in said.err
    assert pensieve("workspace", "list", "--json").data == []


def test_no_answer_ends_with_one(pensieve: Pensieve, folder: Path) -> None:
    said = pensieve("ask", "Who founded the Berlin Zoo?", str(folder), "--quiet", "--json")

    assert said.code == 1
    assert said.data["ended"] == "not_found" and said.data["grounded"] is False


def test_an_endpoint_is_asked_with_the_key_of_the_environment(
    pensieve: Pensieve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    finish = {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {
        "name": "finish", "arguments": '{"answer": "Ada Quill"}'}}]}, "finish_reason": "tool_calls"}]}  # fmt: skip
    with serving([Answer(events(finish, "[DONE]"))]) as served:
        said = pensieve(
            "ask", QUESTION, str(folder), "--backend", "openai", "--url", f"{served.url}/v1", "--json"
        )

    assert said.code == 0 and said.data["answer"] == "Ada Quill"
    assert said.data["grounded"] is False, "nothing was read"
    assert served.headers[0]["authorization"] == "Bearer k-123"
    assert "k-123" not in said.out + said.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--backend", "local"), "--model"),
        (("--backend", "anthropic"), "--model"),
        (("--backend", "scripted", "--model", "none.jsonl"), "cannot be read"),
        (("--backend", "openai", "--url", "nonsense"), "--url"),
    ],
)
def test_a_backend_that_cannot_be_opened_is_told(
    pensieve: Pensieve, folder: Path, words: tuple[str, ...], hint: str
) -> None:
    said = pensieve("ask", QUESTION, str(folder), *words)

    assert said.code == 1 and hint in said.err and "Traceback" not in said.err


def test_a_trajectory_is_saved_in_both_formats_and_drawn_again(
    pensieve: Pensieve, folder: Path, script: str, tmp_path: Path
) -> None:
    kept = tmp_path / "t.jsonl"
    asked = pensieve(
        "ask",
        QUESTION,
        str(folder),
        "--backend",
        "scripted",
        "--model",
        script,
        "--save",
        str(kept),
        "--json",
    )
    drawn = pensieve("plot", str(kept), "--replay", "--svg", str(tmp_path / "t.svg"))
    as_data = pensieve("plot", str(kept), "--json")

    assert "“I search.”" in drawn.out and "forgot m3 (deleteContext)" in drawn.out and "█" in drawn.out
    picture = (tmp_path / "t.svg").read_text("utf-8")
    assert picture.startswith("<svg") and picture.count('class="note"') == 2, (
        "the note, and what the mark means"
    )
    assert "n a note" in drawn.out and drawn.out.count("‾n") == 1
    measured = as_data.data["metrics"]
    assert (
        measured["rounds"],
        measured["memory_operations"],
        measured["deletions"],
        measured["searches"],
    ) == (4, 1, 1, 1)
    assert measured["freed_tokens"] == asked.data["metrics"]["freed_tokens"] > 0
    assert [point[2] for point in as_data.data["curve"]].count("forgot") == 1

    published = json.loads(Path(f"{kept}.published.json").read_text("utf-8"))
    assert {"timestamp", "model", "session_notes_summary", "api_call_count", "final_answer", "correct_answer",
            "full_history", "deleted_msg_ids", "meta_info"} == set(published)  # fmt: skip
    assert published["deleted_msg_ids"] == [2] and published["final_answer"] == "Ada Quill"
    assert published["full_history"][1]["content"] == [{"type": "text", "text": "I search."}]
    assert "Arvale" in json.dumps(published["full_history"][2]), "the history is whole, whatever was deleted"
    assert published["full_history"][2]["msg_id(invoking_assistant)"] == 1


def test_a_saved_trajectory_can_be_taken_into_another_workspace(
    pensieve: Pensieve, folder: Path, script: str, tmp_path: Path, workspace
) -> None:
    kept = tmp_path / "t.jsonl"
    pensieve("ask", QUESTION, str(folder), "--backend", "scripted", "--model", script, "--save", str(kept))

    record = workspace.ledger.import_episode(kept.read_text("utf-8").splitlines(keepends=True))

    transcript = workspace.ledger.transcript(record.episode_id)
    assert [e.message.tool for e in transcript.entries if e.message.role == "tool"] == [
        "searchEngine", "note", "deleteContext", "finish",
    ]  # fmt: skip
    assert transcript.sealed[0].answer == "Ada Quill" and transcript.entries[2].forgotten


def test_plot_draws_a_conversation_of_the_workspace(pensieve: Pensieve, folder: Path) -> None:
    asked = pensieve("ask", QUESTION, str(folder), "--quiet", "--json")
    drawn = pensieve("plot", "--episode", asked.data["episode"], "--replay", "--folder", str(folder))

    assert drawn.code == 0 and "█" in drawn.out and "readChunk" in drawn.out


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format": "x"}', "?", '{"format": "pensieve-episode"}\n{"said": 3}\n']
)
def test_a_file_that_is_no_trajectory_is_told_or_empty(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content, encoding="utf-8")
    try:
        assert trajectories.load(path).events == ()
    except Miscast as error:
        assert "no saved trajectory" in error.message


def test_model_status_tells_what_is_missing(pensieve: Pensieve) -> None:
    said = pensieve("model", "status", "--json")

    assert said.code == 0 and said.data["ready"] is False and said.data["merged"] is None
    assert pensieve("model", "remove").out == "Freed 0 MB.\n"


def test_training_data_is_the_same_by_seed_from_the_shell(pensieve: Pensieve, tmp_path: Path) -> None:
    for name in ("one", "two"):
        said = pensieve("train", "data", "--tasks", "4", "--paragraphs", "20", "--out", str(tmp_path / name))
        assert said.code == 0 and "samples of" in said.out

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_floor_is_evaluated_from_the_shell(pensieve: Pensieve) -> None:
    said = pensieve(
        "train", "eval", "--per-kind", "1", "--kinds", "single,none", "--paragraphs", "20", "--json"
    )

    assert said.data["kinds"]["none"]["finished"] == 1 and said.data["kinds"]["single"]["n"] == 1


def test_an_adapter_is_exported_from_the_shell(pensieve: Pensieve, tmp_path: Path) -> None:
    base, low = tiny.base(tmp_path / "base.gguf"), tiny.adapter(tmp_path / "low.gguf")
    said = pensieve(
        "train", "export", "--base", str(base), "--adapter", str(low), "--out", str(tmp_path / "m.gguf")
    )

    assert said.code == 0 and "sha256" in said.out and (tmp_path / "m.gguf").exists()


def test_training_without_torch_says_what_to_install(pensieve: Pensieve, tmp_path: Path) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        (tmp_path / "s.jsonl").write_text("", encoding="utf-8")
        said = pensieve("train", "sft", "--samples", str(tmp_path / "s.jsonl"))
        assert said.code == 1 and "[train]" in said.err
    else:
        pytest.skip("torch is installed here")


def test_a_model_of_random_weights_ends_honestly(folder: Path, tmp_path: Path, home: Path) -> None:
    """The whole way through llama.cpp: a grammar lets even noise write nothing impossible, and noise finds nothing."""
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    base = tiny.base(tmp_path / "noise.gguf")
    done = subprocess.run(
        [sys.executable, "-m", "pensieve_mcp.cli", "ask", QUESTION, str(folder), "--backend", "local", "--model",
         str(base), "--dialect", "compact", "--json", "--quiet"],
        capture_output=True, text=True, encoding="utf-8", timeout=200,
        env={**os.environ, "PENSIEVE_HOME": str(home)},
    )  # fmt: skip

    assert done.returncode in (0, 1), done.stderr[-2000:]
    data = json.loads(done.stdout[done.stdout.index("{") :])
    # every byte is a token of this model, so that its window may end before it does
    assert data["ended"] in ("finished", "not_found", "rounds", "stuck", "backend")
    assert data["metrics"]["rounds"] <= 40


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_models_words_are_shown_as_they_come(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSIEVE_HOME", str(home))
    monkeypatch.setenv("TERM", "xterm")
    thought = {"choices": [{"delta": {"content": "I think it was "}}]}
    more = {"choices": [{"delta": {"content": "Ada."}}]}
    finish = {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {
        "name": "finish", "arguments": '{"answer": "Ada Quill"}'}}]}, "finish_reason": "tool_calls"}]}  # fmt: skip
    told = Terminal()
    with serving([Answer(events(thought, more, finish, "[DONE]"))]) as served:
        monkeypatch.setattr(sys, "stderr", told)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        run(("ask", QUESTION, str(folder), "--backend", "openai", "--url", f"{served.url}/v1"))

    shown = told.getvalue()
    first, second = shown.index("… I think it was"), shown.index("… I think it was Ada.")
    assert first < second < shown.index("finish(answer='Ada Quill')")
    assert "\r\x1b[K" in shown[second:], "the line is cleared before what stays"


def test_off_a_terminal_nothing_is_redrawn(pensieve: Pensieve, folder: Path, script: str) -> None:
    said = pensieve("ask", QUESTION, str(folder), "--backend", "scripted", "--model", script)

    assert "\x1b" not in said.err + said.out


PNG = b"\x89PNG\r\n\x1a\n"


def saved(pensieve: Pensieve, folder: Path, script: str, kept: Path) -> Path:
    pensieve(
        "ask",
        QUESTION,
        str(folder),
        "--backend",
        "scripted",
        "--model",
        script,
        "--save",
        str(kept),
        "--quiet",
    )
    return kept


def test_a_png_is_drawn_by_the_extra(pensieve: Pensieve, folder: Path, script: str, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="the extra [plot] is not installed")
    kept = saved(pensieve, folder, script, tmp_path / "t.jsonl")
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    said = pensieve("plot", str(kept), "--png", str(one), "--svg", str(two))

    assert said.code == 0, said.err
    for picture in (one, two):
        data = picture.read_bytes()
        assert data.startswith(PNG)
        wide, high = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        assert (wide, high) == (1_640, 600)


def test_without_the_extra_a_program_draws_it_or_it_says_what_to_install(
    pensieve: Pensieve, folder: Path, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pensieve_mcp.cli import raster

    kept = saved(pensieve, folder, script, tmp_path / "t.jsonl")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr(raster.shutil, "which", lambda name: None)
    nothing = pensieve("plot", str(kept), "--png", str(tmp_path / "a.png"))
    asked: list[list[str]] = []

    def draw(command: list[str], **more: Any) -> Any:
        asked.append(command)
        assert Path(command[-1]).read_text("utf-8").startswith("<svg")
        Path(command[command.index("-o") + 1]).write_bytes(PNG)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(raster.shutil, "which", lambda name: name if name == "rsvg-convert" else None)
    monkeypatch.setattr(raster.subprocess, "run", draw)
    drawn = pensieve("plot", str(kept), "--png", str(tmp_path / "b.png"))
    monkeypatch.setattr(
        raster.subprocess,
        "run",
        lambda command, **more: subprocess.CompletedProcess(command, 1, b"", b"no font"),
    )
    failed = pensieve("plot", str(kept), "--png", str(tmp_path / "c.png"))

    assert nothing.code == 1 and "pensieve-statelm[plot]" in nothing.err
    assert drawn.code == 0 and asked[0][0] == "rsvg-convert"
    assert failed.code == 1 and "rsvg-convert failed: no font" in failed.err
    assert pensieve("plot", str(kept), "--png", str(tmp_path / "d.gif")).code == 2


def test_what_is_not_found_is_not_called_a_sentence_of_the_documents(
    pensieve: Pensieve, folder: Path
) -> None:
    said = pensieve("ask", "Who founded the Berlin Zoo?", str(folder), "--backend", "extractive", "--quiet")

    assert said.code == 1 and said.out.startswith("not found\n")
    assert "as it stands" not in said.out and "no model took part" in said.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--backend", "anthropic", "--model", "m"), "There is no key for Anthropic's API."),
        (
            ("--backend", "openai", "--url", "https://api.openai.com/v1"),
            "There is no key for https://api.openai.com/v1.",
        ),
        (("--backend", "scripted"), "No script is named."),
    ],
)
def test_what_a_backend_lacks_is_said_before_anything_is_tried(
    pensieve: Pensieve, folder: Path, options: tuple[str, ...], told: str
) -> None:
    said = pensieve("ask", QUESTION, str(folder), *options, "--quiet")

    assert said.code == 1 and told in said.err


def test_a_question_without_an_answer_leaves_no_open_conversation(
    pensieve: Pensieve, folder: Path, tmp_path: Path
) -> None:
    script = tmp_path / "short.jsonl"
    script.write_text("I do not know.\n", encoding="utf-8")
    said = pensieve("ask", QUESTION, str(folder), "--backend", "scripted", "--model", str(script), "--quiet")

    assert said.code == 1
    assert [one["state"] for one in pensieve("--folder", str(folder), "episodes", "list", "--json").data] == [
        "closed"
    ]

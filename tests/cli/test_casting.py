"""The spells by shell: the skill works without MCP. Each call is a process of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pensieve_mcp.spellbook.registry import spellbook

from .conftest import Pensieve, Said, command, fill


@pytest.fixture
def place(tmp_path: Path) -> Path:
    fill(tmp_path / "documents")
    command(tmp_path, "index", tmp_path / "documents", check=True)
    return tmp_path


def test_the_whole_cycle_goes_on_across_processes(place: Path) -> None:
    """SKILL.md, section By shell: search, read, note, delete, restore, finish, each in another process."""

    def cast(spell: str, *arguments: str, code: int = 0) -> Said:
        said = command(place, "cast", spell, *arguments, "--episode", handle)
        assert said.code == code, said.out + said.err
        return said

    first = command(place, "cast", "searchEngine", "keyword=notice period of the lease", check=True)
    handle = re.search(r"--episode (\S+?)\)", first.err)[1]  # type: ignore[index]  # the test fails where it is absent
    chunk = re.search(r"^c(\d+) ", first.out, re.M)[1]  # type: ignore[index]

    read = cast("readChunk", f"chunk_id={chunk}")
    message = read.out.split(" · ", 1)[0]
    assert "six months" in read.out

    noted = cast(
        "note",
        json.dumps(
            {
                "key": "notice",
                "summary": "Notice period",
                "content": "Six months.",
                "evidence": [{"chunk_id": int(chunk), "quote": "notice in writing of six months"}],
            }
        ),
    )
    assert "1 ok" in noted.out

    deleted = command(
        place, "cast", "deleteContext", f"msg_id={message}", "--episode", handle, "--json", check=True
    ).data
    assert deleted["result"]["freed_tokens"] > 0
    assert deleted["result"]["physical"] == "no", "a host's own prompt is out of reach here, and that is said"

    restored = command(place, "restore", message, "--episode", handle, check=True)
    assert "six months" in restored.out
    command(place, "forget", message, "--episode", handle, check=True)

    cast("finish", "answer=Six months, in writing.", f'citations=["c{chunk}", "notice"]')
    shown = command(place, "episodes", "show", handle, "--json", check=True).data
    assert shown["answers"] == ["Six months, in writing."]
    assert [e["msg_id"] for e in shown["entries"] if e["forgotten"]] == [message]
    assert shown["rounds"] == 7


def test_json_has_the_result_and_the_message(place: Path) -> None:
    said = command(place, "cast", "analyzeText", "--json", check=True).data

    assert said["result"]["total_documents"] == 3
    assert said["message"]["msg_id"] in said["text"]
    assert said["episode"].startswith("e")


def test_a_failed_spell_is_exit_code_one_with_its_text_on_stdout(place: Path) -> None:
    """A shell skill reads stdout: the error is the answer, as it is over MCP."""
    said = command(place, "cast", "readChunk", "chunk_id=999999")

    assert said.code == 1
    assert "c999999" in said.out
    assert command(place, "cast", "readChunk", "chunk_id=999999", "--json").data["error"] == "no_such_chunk"


def test_a_window_that_fills_up_is_said_before_it_is_full(place: Path) -> None:
    """Complaint 92: no warning before the limit."""
    small = ("--set", "window_tokens=1500", "--set", "reserve_tokens=100")
    first = command(place, *small, "cast", "readChunk", "documents/herons.txt", check=False)
    assert first.code == 2, "a path is no argument of a spell"
    read = command(place, *small, "cast", "readChunk", "--json", check=True).data
    again = command(place, *small, "cast", "readChunk", "--episode", read["episode"], check=True)

    assert "% of the window is used" in again.out
    assert "deleteContext" in again.out


def test_history_is_found_by_shell(place: Path) -> None:
    command(place, "cast", "readChunk", check=True)

    hits = command(place, "search", "--scope", "history", "herons", "--json", check=True).data["hits"]
    assert hits


def test_an_unknown_spell_or_argument_names_the_near_one(looking: Pensieve) -> None:
    assert "searchEngine" in looking("cast", "searchengin", "keyword=x").out
    assert "keyword" in looking("cast", "searchEngine", "keywords=x").out


def test_arguments_that_are_neither_pairs_nor_json_are_wrong_usage(looking: Pensieve) -> None:
    for bad in ("notice", "{not json", "=x"):
        assert looking("cast", "searchEngine", bad).code == 2, bad


def test_arguments_come_from_stdin(looking: Pensieve) -> None:
    assert "lease.md" in looking("cast", "searchEngine", "-", stdin='{"keyword": "notice"}').out
    assert looking("cast", "note", "key=a", "summary=b", "content=-", stdin="Long.\n").code == 0


def test_an_unknown_episode_is_refused(looking: Pensieve) -> None:
    said = looking("cast", "checkBudget", "--episode", "enobody")

    assert said.code == 1
    assert "enobody" in said.err
    assert "episodes list" in said.err


def test_spec_lists_what_an_mcp_host_gets(pensieve: Pensieve) -> None:
    data = pensieve("spec", "--json").data

    assert [one["name"] for one in data] == list(spellbook())
    assert all(one["inputSchema"]["type"] == "object" for one in data)
    assert pensieve("spec", "readChunk").out.startswith("readChunk [chunk_id]")
    assert pensieve("spec", "readchunks").code == 1


def test_spec_needs_no_workspace(pensieve: Pensieve, home: Path) -> None:
    pensieve("spec")

    assert not home.exists(), "looking leaves nothing behind (complaint 63)"


def test_a_whole_question_by_shell_where_a_backend_is_set_waits_for_its_answer(place: Path) -> None:
    question = "question=What is the notice period of the lease?"
    without = command(place, "cast", "askStateLM", question)
    asked = command(place, "cast", "askStateLM", question, "--set", "ask_backend=extractive", "--json")

    assert without.code == 1 and "no spell 'askStateLM'" in without.out
    assert asked.code == 0, asked.out + asked.err
    said = json.loads(asked.out)
    assert said["result"]["state"] == "answered" and "six months" in said["result"]["answer"]
    assert said["result"]["policy"] == "extractive" and said["result"]["citations"]

"""index, search, read, status, skipped, explain by shell."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import Pensieve, command


def test_indexing_says_what_was_read_and_what_was_skipped(pensieve: Pensieve, documents: Path) -> None:
    said = pensieve("index", documents)

    assert said.code == 0
    assert "3 documents" in said.out
    assert "Skipped" in said.err
    assert "binary 1" in said.err
    assert "\r" not in said.err, "no bar is drawn off a terminal (complaint 23)"


def test_indexing_again_finds_what_changed(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    (documents / "prices.csv").unlink()
    (documents / "new.txt").write_text("The zeppelin landed on the green.", encoding="utf-8")

    said = pensieve("index", "--json")

    assert said.data["documents"] == 3
    assert pensieve("search", "zeppelin", "--json").data["hits"][0]["path"] == "documents/new.txt"
    assert not pensieve("search", "barley", "--mode", "exact", "--json").data["hits"]


def test_search_names_chunk_place_and_highlight(looking: Pensieve) -> None:
    said = looking("search", "notice", "period", "of", "the", "lease")

    assert said.code == 0
    first = said.out.splitlines()[0]
    assert first.startswith("c")
    assert "documents/lease.md" in first
    assert "six months" in said.out
    assert " of " in said.err, "how many of how many, on stderr"


def test_every_mode_answers(looking: Pensieve) -> None:
    for mode in ("hybrid", "lexical", "dense", "exact"):
        said = looking("search", "--mode", mode, "six months", "--json")
        assert said.code == 0, said.err
        assert "documents/lease.md" in [hit["path"] for hit in said.data["hits"]], mode


def test_under_keeps_the_search_below_a_path(looking: Pensieve, shared: Path) -> None:
    by_name = looking("search", "north bank", "--under", "documents/herons.txt", "--json").data["hits"]
    by_path = looking("search", "north bank", "--under", shared / "documents" / "herons.txt", "--json").data[
        "hits"
    ]

    assert by_name
    # as sets: the second stage has a time budget, so a busy machine may order the last places otherwise
    assert {hit["id"] for hit in by_path} == {hit["id"] for hit in by_name}
    assert {hit["path"] for hit in by_name} == {"documents/herons.txt"}


def test_an_empty_answer_is_no_error_and_says_why(looking: Pensieve) -> None:
    """Complaint 26: an error must not look like absence, nor absence like an error."""
    said = looking("search", "--mode", "exact", "xylophonequark", "--json")

    assert said.code == 0
    assert said.data["hits"] == []
    assert said.data["message"].startswith("Nothing found.")


def test_a_query_of_punctuation_is_answered(looking: Pensieve) -> None:
    for query in ("???", "NOT (", "'", "a" * 100_000):
        assert looking("search", "--json", "--", query).code == 0


def test_an_empty_query_is_wrong_usage(looking: Pensieve) -> None:
    assert looking("search").code == 2
    assert looking("search", " ").code == 2


def test_reading_prints_the_text_alone_on_stdout(looking: Pensieve) -> None:
    chunk = looking("search", "rent of the mill", "--json").data["hits"][0]["id"]

    said = looking("read", chunk)

    assert said.code == 0
    assert "forty-two florins" in said.out
    assert said.err.splitlines()[-1].startswith(f"{chunk} · documents/lease.md")
    assert looking("read", chunk, "--json").data[0]["content"] == said.out.removesuffix("\n")


def test_a_place_finds_the_chunk_that_holds_the_line(looking: Pensieve, shared: Path) -> None:
    by_name = looking("read", "documents/herons.txt:80", "--json").data[0]
    by_path = looking("read", f"{shared / 'documents' / 'herons.txt'}:80", "--json").data[0]

    assert "Day 79:" in by_name["content"]
    assert by_path["chunk_id"] == by_name["chunk_id"]


def test_neighbours_come_in_order(looking: Pensieve) -> None:
    middle = looking("read", "documents/herons.txt:60", "--json").data[0]["chunk_id"]
    parts = looking("read", f"c{middle}", "--neighbours", "2", "--json").data

    starts = [part["start_pos"] for part in parts]
    assert starts == sorted(starts)
    assert middle in [part["chunk_id"] for part in parts]


def test_what_does_not_exist_is_said_with_the_next_step(looking: Pensieve) -> None:
    for arguments, word in (
        (("read", "c999999"), "c999999"),
        (("read", "documents/leese.md"), "lease.md"),
        (("read", ""), "documents"),
        (("read", "99999999999999999999"), "99999999999999999999"),
        (("read", "documents/herons.txt:99999"), "no line"),
        (("search", "rent", "--under", "documents/nowhere"), "nowhere"),
        (("note", "show", "absent"), "absent"),
    ):
        said = looking(*arguments)
        assert said.code == 1, arguments
        assert said.out == ""
        assert word in said.err
        assert len(said.err.strip().splitlines()) >= 2, f"a hint is missing: {said.err}"
        assert "Traceback" not in said.err


def test_status_tells_documents_and_where_the_state_lies(looking: Pensieve, shared: Path) -> None:
    data = looking("status", "--json").data

    assert data["documents"] == 3
    assert data["state"] == "ready"
    assert Path(data["state_folder"]).is_relative_to(shared / "home")
    assert "3 documents" in looking("status").out


def test_skipped_lists_every_file_with_its_reason(looking: Pensieve) -> None:
    data = {item["path"]: item["reason"] for item in looking("skipped", "--json").data}

    assert data["documents/picture.bin"] == "binary"
    assert data["documents/.hidden.txt"] == "hidden"
    assert looking("skipped", "--reason", "binary").out.startswith("binary\tdocuments/picture.bin")


def test_explain_says_why_a_file_is_in_or_out(looking: Pensieve, shared: Path) -> None:
    assert ": in: " in looking("explain", shared / "documents" / "lease.md").out
    assert "out (hidden)" in looking("explain", shared / "documents" / ".hidden.txt").out
    assert looking("explain", "/", "--json").data["taken"] is False


def test_no_folder_is_never_the_current_folder(pensieve: Pensieve, documents: Path) -> None:
    """Complaint 21: without a path the current folder was indexed."""
    said = pensieve("index")

    assert said.code == 1
    assert "There is no workspace yet" in said.err
    assert "pensieve index FOLDER" in said.err


def test_a_missing_folder_is_named(pensieve: Pensieve, tmp_path: Path) -> None:
    said = pensieve("index", tmp_path / "nowhere")

    assert said.code == 1
    assert str(tmp_path / "nowhere") in said.err


def test_an_empty_folder_is_a_state_and_says_so(pensieve: Pensieve, tmp_path: Path) -> None:
    """Complaints 12 and 35: zero files is valid, and told."""
    (tmp_path / "empty").mkdir()
    said = pensieve("index", tmp_path / "empty")

    assert said.code == 0
    assert "0 documents" in said.out
    assert "no file at all" in said.err
    found = pensieve("search", "anything")
    assert found.code == 0
    assert "Nothing found." in found.err
    assert "No readable document" in found.err or "index" in found.err, "why it is empty"


def test_two_runs_at_once_both_end_with_everything_indexed(documents: Path) -> None:
    """Complaint 8: two runs raced on a unique key. The second waits for the first."""
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(command, documents.parent, "index", documents, "--json") for _ in range(2)]
        said = [one.result() for one in runs]

    assert [one.code for one in said] == [0, 0], [one.err for one in said]
    assert [one.data["documents"] for one in said] == [3, 3]
    assert [one.data["state"] for one in said] == ["ready", "ready"]


def test_an_unknown_flag_or_command_is_wrong_usage(pensieve: Pensieve) -> None:
    """Complaint 21: an unknown flag was ignored."""
    assert pensieve("index", "--recursively").code == 2
    assert pensieve("serach", "x").code == 2
    assert pensieve("--set", "window_tokens", "status").code == 2


def test_an_unknown_setting_is_refused_with_a_near_name(pensieve: Pensieve, documents: Path) -> None:
    said = pensieve("--set", "window_token=5000", "index", documents)

    assert said.code == 1
    assert "window_tokens" in said.err


def test_options_may_stand_behind_the_command(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)

    assert pensieve("status", "--folder", documents, "--json").data["documents"] == 3
    assert pensieve("--folder", documents, "status", "--json").data["documents"] == 3


def test_nothing_is_written_into_the_documents(pensieve: Pensieve, documents: Path) -> None:
    """Complaint 61: indexing rewrote the user's files."""
    before = {path: path.stat().st_mtime_ns for path in documents.rglob("*")}
    pensieve("index", documents)
    pensieve("search", "lease")

    assert {path: path.stat().st_mtime_ns for path in documents.rglob("*")} == before


def test_state_inside_the_documents_is_refused(pensieve: Pensieve, documents: Path) -> None:
    said = pensieve("--state", documents / "state", "index", documents)

    assert said.code == 1
    assert "outside" in said.err


def test_with_several_workspaces_the_one_that_is_meant_is_said(
    pensieve: Pensieve, documents: Path, tmp_path: Path
) -> None:
    """Complaint 67: the project is decided for each call and shown."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("Quinces and medlars.", encoding="utf-8")
    pensieve("index", documents)
    pensieve("index", tmp_path / "other")

    said = pensieve("status")

    assert said.err.startswith("Workspace ")


def test_watching_with_rounds_ends(pensieve: Pensieve, documents: Path) -> None:
    said = pensieve("watch", documents, "--every", "0.2", "--rounds", "1", "--json")

    assert said.code == 0
    assert said.data["documents"] == 3


def test_exact_means_the_very_words_in_notes_and_history_too(looking: Pensieve) -> None:
    looking("note", "write", "a", "The mill is by the pond.")
    looking("note", "write", "b", "By the pond there is a mill.")
    said = looking("cast", "plan", "goal=Ask about the mill, then about the pond.", "--json")
    assert said.code == 0, said.err

    def ids(*arguments: str) -> list[str]:
        return [hit["id"] for hit in looking("search", *arguments, "--json").data["hits"]]

    assert ids("the MILL is", "--scope", "notes", "--mode", "exact") == ["a"]
    assert set(ids("mill pond", "--scope", "notes", "--mode", "lexical")) == {"a", "b"}
    assert ids("then about the pond", "--scope", "history", "--mode", "exact")
    assert not ids("about then the pond", "--scope", "history", "--mode", "exact")


def test_outside_of_every_workspace_it_is_said_which_one_is_meant(
    looking: Pensieve, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is only one, but whoever stands elsewhere may mean other documents."""
    monkeypatch.setenv("PENSIEVE_SECOND_STAGE", "false")  # which a search does not wait for where it is late
    outside = looking("search", "rent of the mill")
    monkeypatch.chdir(shared / "documents")
    inside = looking("search", "rent of the mill")

    assert outside.code == inside.code == 0 and outside.out == inside.out
    assert "Workspace documents-" in outside.err and "Workspace" not in inside.err

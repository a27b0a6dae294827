"""Evidence looked up when noted and at each read: ok, moved, changed, gone, unsupported (issue 6, item 1)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pensieve_mcp.evidence import check_all
from pensieve_mcp.notebook.types import NoteFilter

from .conftest import DIARY, LEASE, RENT, Desk

AT_LEASE = {"path": "docs/lease.md", "quote": RENT}


def test_a_quote_that_stands_there_is_ok_and_says_where(desk: Desk) -> None:
    desk.note("rent", "42 florins", AT_LEASE)
    piece = desk.piece("rent")

    assert (piece["state"], piece["path"]) == ("ok", "docs/lease.md")
    assert "Rent" in piece["locator"] and piece["detail"] == ""
    assert desk.stored("rent").evidence[0].verified is not None


def test_a_forged_quote_is_unsupported_and_the_note_is_kept(desk: Desk) -> None:
    told = desk.cast(
        "note", key="rent", summary="s", content="c",
        evidence=[{"path": "docs/lease.md", "quote": "The rent is ninety florins a year"}],
    )  # fmt: skip

    assert told.result["evidence"][0]["state"] == "unsupported"
    assert "Not found" in told.text
    assert desk.piece("rent")["state"] == "unsupported", "reading it again does not make it true"


@pytest.mark.parametrize(
    "evidence",
    [
        {"path": "docs/nothing.md", "quote": "x"},
        {"chunk_id": "c999999", "quote": RENT},
        {"chunk_id": "m999999", "quote": RENT},
        {"chunk_id": "nonsense", "quote": RENT},
        {"path": "../secret", "quote": "x"},
        {"path": "docs", "quote": "x"},
    ],
)
def test_a_place_that_does_not_exist_is_told_and_costs_no_note(desk: Desk, evidence: dict[str, str]) -> None:
    desk.note("k", "c", evidence)

    assert desk.piece("k")["state"] == "unsupported"
    assert desk.piece("k")["detail"]


def test_what_became_true_later_is_found(desk: Desk) -> None:
    desk.note("k", "c", {"path": "docs/lease.md", "quote": "The mill burnt down."})
    assert desk.piece("k")["state"] == "unsupported"
    desk.write("lease.md", LEASE + "\nThe mill burnt down.\n")
    desk.build()

    assert desk.piece("k")["state"] == "ok"


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed yet"])
def test_a_changed_passage_tells_what_stands_there_now(desk: Desk, indexed: bool) -> None:
    """The answer is about the file, whether or not the index has seen the change."""
    desk.note("rent", "42 florins", AT_LEASE)
    desk.write("lease.md", LEASE.replace("forty-two florins", "fifty florins"))
    if indexed:
        desk.build()
    piece = desk.piece("rent")

    assert piece["state"] == "changed"
    assert "fifty florins" in piece["detail"]
    assert "fifty florins" in desk.cast("readNote", key="rent").text
    desk.write("lease.md", LEASE)
    if indexed:
        desk.build()
    assert desk.piece("rent")["state"] == "ok", "an edit undone makes it true again"


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed yet"])
def test_a_quote_further_down_has_moved_and_tells_its_new_place(desk: Desk, indexed: bool) -> None:
    desk.note("rent", "c", AT_LEASE)
    before = desk.piece("rent")["locator"]
    desk.write("lease.md", LEASE.replace("## Rent", "\n\nA long preamble.\n\n\n## Rent"))
    if indexed:
        desk.build()
    piece = desk.piece("rent")

    assert piece["state"] == "moved"
    assert piece["locator"] != before and before in piece["detail"]
    desk.write("lease.md", LEASE)
    if indexed:
        desk.build()
    assert (desk.piece("rent")["state"], desk.piece("rent")["locator"]) == ("ok", before)


def test_a_renamed_file_is_followed(desk: Desk) -> None:
    desk.note("rent", "c", AT_LEASE)
    (desk.folder / "lease.md").rename(desk.folder / "contract.md")
    assert desk.piece("rent")["state"] == "gone", "the index has not seen the new name"
    desk.build()
    piece = desk.piece("rent")

    assert (piece["state"], piece["path"]) == ("moved", "docs/contract.md")
    assert "docs/lease.md" in piece["detail"]


def test_a_passage_carried_into_another_file_is_followed(desk: Desk) -> None:
    desk.note("rent", "c", {"path": "docs/lease.md", "quote": RENT + ", paid on the bridge, in coin."})
    desk.write(
        "lease.md", LEASE.replace(RENT + ", paid on the bridge, in coin. Late rent bears interest.", "")
    )
    desk.write(
        "terms/rent.md", "# Terms\n\n" + RENT + ", paid on the bridge, in coin. Late rent bears interest.\n"
    )
    desk.build()

    assert (desk.piece("rent")["state"], desk.piece("rent")["path"]) == ("moved", "docs/terms/rent.md")


def test_a_short_quote_that_stands_in_many_places_is_not_followed_elsewhere(desk: Desk) -> None:
    desk.note("k", "c", {"path": "docs/lease.md", "quote": "in coin"})
    desk.write("lease.md", LEASE.replace("in coin", "in silver"))
    desk.write("other.md", "They paid in coin at the fair, as everybody does.")
    desk.build()

    assert desk.piece("k")["state"] == "changed"


def test_a_removed_file_is_gone_and_comes_back(desk: Desk) -> None:
    desk.note("rent", "c", AT_LEASE)
    (desk.folder / "lease.md").unlink()
    assert desk.piece("rent")["state"] == "gone"
    desk.build()
    assert desk.piece("rent")["state"] == "gone"
    desk.write("lease.md", LEASE)
    desk.build()

    assert desk.piece("rent")["state"] == "ok"


@pytest.mark.parametrize("build", [True, False])
def test_a_file_replaced_by_a_folder_is_gone(desk: Desk, build: bool) -> None:
    desk.note("rent", "c", AT_LEASE)
    (desk.folder / "lease.md").unlink()
    desk.write("lease.md/inside.txt", "Something else entirely.")
    if build:
        desk.build()
    piece = desk.piece("rent")

    assert piece["state"] == "gone"
    assert "folder" in piece["detail"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
@pytest.mark.parametrize("build", [True, False])
def test_a_file_replaced_by_a_link_is_gone_and_what_it_leads_to_is_not_read(
    desk: Desk, tmp_path: Path, build: bool
) -> None:
    desk.note("rent", "c", AT_LEASE)
    outside = tmp_path / "outside.md"
    outside.write_text(LEASE, encoding="utf-8")
    (desk.folder / "lease.md").unlink()
    (desk.folder / "lease.md").symlink_to(outside)
    if build:
        desk.build()

    assert desk.piece("rent")["state"] == "gone"


def test_a_file_that_cannot_be_read_any_more_is_told(desk: Desk) -> None:
    desk.note("rent", "c", AT_LEASE)
    (desk.folder / "lease.md").write_bytes(bytes(range(256)) * 40)
    piece = desk.piece("rent")

    assert piece["state"] == "changed"
    assert "cannot be read" in piece["detail"]


def test_of_two_equal_quotes_the_noted_one_is_followed(desk: Desk) -> None:
    desk.write("twice.txt", "In the spring the gate was open.\n\nIn the autumn the gate was open.\n")
    desk.build()
    chunk = desk.workspace.corpus.document("docs/twice.txt")
    desk.note("k", "c", {"path": "docs/twice.txt", "quote": "the gate was open"})
    first = desk.stored("k").evidence[0]
    assert first.span is not None and first.prefix.endswith("In the spring ")
    # a third one comes before both: by nearness alone the wrong one would be taken
    desk.write(
        "twice.txt",
        "In winter the gate was open.\n\nIn the spring the gate was open.\n\nIn the autumn the gate was open.\n",
    )
    desk.build()
    desk.read("k")
    now = desk.stored("k").evidence[0]

    assert now.prefix.endswith("In the spring ") and now.span != first.span
    assert chunk.path == now.path


@pytest.mark.parametrize(
    ("stands", "quoted"),
    [
        ("The office was eﬃcient and ﬂawless.", "office was efficient and flawless"),
        ("The agree-\nment was signed.", "The agreement was signed."),
        ("A  sentence\nwith   odd\tspaces.", "A sentence with odd spaces."),
        ("“Curly” quotes — and dashes…", '"Curly" quotes - and dashes...'),
        ("naïve café", "nai\u0308ve cafe\u0301"),
        ("soft\u00adhyphen here", "softhyphen here"),
    ],
)
def test_white_space_ligatures_and_signs_may_differ(desk: Desk, stands: str, quoted: str) -> None:
    desk.write("odd.txt", f"Before it.\n\n{stands}\n\nAfter it.\n")
    desk.build()
    desk.note("k", "c", {"path": "docs/odd.txt", "quote": quoted})

    assert desk.piece("k")["state"] == "ok"
    desk.write("odd.txt", f"Before it.\n\nMuch more before.\n\n{stands}\n\nAfter it.\n")
    assert desk.piece("k")["state"] == "moved"


def test_evidence_without_a_quote_rests_on_its_chunk(desk: Desk) -> None:
    chunk = desk.cast("searchEngine", keyword="sacks Day 40").result["retrieved_chunks"][0]["chunk_id"]
    desk.note("sacks", "c", {"chunk_id": chunk})
    desk.note("lease", "c", {"path": "docs/lease.md"})
    assert desk.piece("sacks")["state"] == desk.piece("lease")["state"] == "ok"
    desk.write("diary.txt", DIARY.replace("ferry", "boat"))
    desk.write("lease.md", LEASE + "More.\n")
    desk.build()

    assert desk.piece("sacks")["state"] == "changed"
    assert desk.piece("lease")["state"] == "changed"


# --- messages ---------------------------------------------------------------------------------------------


def test_an_earlier_message_is_evidence_and_a_document_behind_it_counts(desk: Desk) -> None:
    chunk = desk.cast("searchEngine", keyword="rent florins").result["retrieved_chunks"][0]["chunk_id"]
    read = desk.cast("readChunk", chunk_id=chunk)
    desk.note("rent", "c", {"chunk_id": read.message["msg_id"], "quote": RENT})
    piece = desk.piece("rent")

    assert (piece["state"], piece["path"], piece["kind"]) == ("ok", "docs/lease.md", "observed")
    assert piece["msg_id"] == read.message["msg_id"]
    desk.cast("deleteContext", msg_id=read.message["msg_id"])
    assert desk.piece("rent")["state"] == "ok", "a deleted message still was said"


def test_who_said_it_is_the_kind_of_evidence(desk: Desk) -> None:
    user = desk.say("user", "The deadline is the third of March.")
    tool = desk.say("tool", "exit status 0, 41 tests passed", "shell")
    model = desk.say("assistant", "I believe the deadline is in March.")
    desk.note("d", "c", {"chunk_id": user, "quote": "the third of March"})
    desk.note("t", "c", {"chunk_id": tool, "quote": "41 tests passed"})
    desk.note("g", "c", {"chunk_id": model, "quote": "the deadline is in March"})

    assert [desk.piece(key)["kind"] for key in "dtg"] == ["user", "tool", "guess"]
    assert [desk.read(key)["strength"] for key in "dtg"] == [
        "what the user said",
        "a report or a tool's result",
        "a guess",
    ]


def test_a_note_quoted_as_evidence_of_another_supports_nothing(desk: Desk) -> None:
    """Else a guess would become a tool's result by being read once."""
    desk.note("guess", "The miller is rich.")
    told = desk.cast("readNote", key="guess")
    desk.note("fact", "c", {"chunk_id": told.message["msg_id"], "quote": "The miller is rich."})

    assert desk.read("fact")["strength"] == "a guess"


def test_a_message_that_does_not_say_so_or_was_purged(desk: Desk) -> None:
    said = desk.say("user", "The deadline is the third of March.")
    desk.note("no", "c", {"chunk_id": said, "quote": "the fourth of March"})
    desk.note("yes", "c", {"chunk_id": said, "quote": "the third of March"})
    assert desk.piece("no")["state"] == "unsupported"
    desk.workspace.ledger.purge(episode_id=desk.episode.episode_id, content_only=True)

    assert desk.piece("yes")["state"] == "gone"
    assert "purged" in desk.piece("yes")["detail"]


def test_a_part_of_a_long_message_is_evidence(desk: Desk) -> None:
    said = desk.say("tool", "\n".join(f"line {number} of the log is quiet" for number in range(200)), "shell")
    desk.note("in", "c", {"chunk_id": f"{said}.1", "quote": "line 3 of the log"})
    desk.note("out", "c", {"chunk_id": f"{said}.2", "quote": "line 3 of the log"})
    desk.note("none", "c", {"chunk_id": f"{said}.99", "quote": "line 3 of the log"})

    assert [desk.piece(key)["state"] for key in ("in", "out", "none")] == ["ok", "unsupported", "unsupported"]


# --- all notes ---------------------------------------------------------------------------------------------


def test_all_notes_are_checked_and_unchanged_files_are_not_read(desk: Desk) -> None:
    for day in range(1, 40):
        desk.note(f"day/{day}", "c", {"path": "docs/diary.txt", "quote": f"counted {day * 7} sacks"})
    desk.note("rent", "c", AT_LEASE)
    desk.note("forged", "c", {"path": "docs/lease.md", "quote": "never said"})
    told = check_all(desk.workspace)
    assert (told.notes, told.pieces, told.read) == (41, 41, 0)
    assert told.states == {"ok": 40, "unsupported": 1} and told.changes == ()

    desk.write("lease.md", LEASE.replace("forty-two", "fifty"))
    desk.build()
    told = check_all(desk.workspace)
    assert told.read == 1, "one file changed, one is read"
    assert [(c.key, c.before, c.after) for c in told.changes] == [("rent", "ok", "changed")]
    found = desk.workspace.notebook.list(only=NoteFilter(states=("changed",)))
    assert [line.key for line in found.lines] == ["rent"]
    assert desk.workspace.notebook.search("about", only=NoteFilter(states=("changed",))).total == 1
    assert desk.workspace.notebook.search("about", only=NoteFilter(under="docs/lease.md")).total == 2
    assert check_all(desk.workspace).changes == ()


def test_a_clock_that_jumps_back_changes_no_state(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.note("rent", "c", AT_LEASE)
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    assert desk.piece("rent")["state"] == "ok"
    path = desk.folder / "lease.md"
    os.utime(path, (1_000, 1_000))
    assert desk.piece("rent")["state"] == "ok", "another time, the same bytes"


def test_many_changed_notes_are_checked_in_one_go_after_restart(
    desk: Desk, open_desk: Callable[..., Desk]
) -> None:
    desk.note("rent", "c", AT_LEASE)
    desk.workspace.close()
    again = open_desk()

    assert again.piece("rent")["state"] == "ok"
    assert check_all(again.workspace).states == {"ok": 1}


def test_citations_are_checked_as_notes_are(desk: Desk) -> None:
    desk.note("rent", "c", AT_LEASE)
    said = desk.say("user", "The deadline is the third of March.")
    desk.write("lease.md", LEASE.replace("forty-two", "fifty"))
    told = desk.cast("finish", answer="42", citations=["rent", said, "docs/lease.md", "nothing"])

    assert [c["state"] for c in told.result["citations"]] == ["changed", "ok", "changed", "unknown"]


words = st.text("abcdefgh \n", min_size=1, max_size=200)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(before=words, after=words, cut=st.booleans())
def test_whatever_happens_around_a_quote_its_state_is_the_truth(
    desk: Desk, before: str, after: str, cut: bool
) -> None:
    """While the quote stands in its file it is ok or moved, and the span shows it; else it is changed."""
    quote = "Zebra stripes are counted twice a year."
    desk.write("zoo.txt", f"Start.\n\n{quote}\n\nEnd of it.\n")
    desk.build()
    desk.note("zebra", "c", {"path": "docs/zoo.txt", "quote": quote})
    desk.write("zoo.txt", f"Start.\n{before}\n{'' if cut else quote}\n{after}\nEnd of it.\n")
    state = desk.piece("zebra")["state"]

    assert state == "changed" if cut else state in ("ok", "moved")
    if not cut:
        (piece,) = desk.stored("zebra").evidence
        text = (desk.folder / "zoo.txt").read_text(encoding="utf-8")
        assert piece.span is not None and text[piece.span[0] : piece.span[1]] == quote


def test_a_disk_that_is_away_says_nothing_about_the_words(desk: Desk) -> None:
    desk.note("rent", "Forty-two florins.", {"path": "docs/lease.md", "quote": RENT})
    away = desk.folder.with_name("away")
    desk.folder.rename(away)
    assert [piece["state"] for piece in desk.read("rent")["evidence"]] == ["ok"]
    away.rename(desk.folder)
    assert [piece["state"] for piece in desk.read("rent")["evidence"]] == ["ok"]

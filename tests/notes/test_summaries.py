"""Summaries instead of deletion, folding and restoring ranges, parts, pins, detail of a hit (issue 6, item 10)."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pensieve_mcp.ledger.events import Entry
from pensieve_mcp.ledger.parts import split_parts
from pensieve_mcp.ledger.stubs import stub

from .conftest import Desk


def say_log(desk: Desk, lines: int = 200) -> str:
    return desk.say(
        "tool", "\n".join(f"line {n}: valve {n % 9} at {n * 3} bar" for n in range(lines)), "shell"
    )


def test_a_summary_stands_in_the_place_of_what_was_deleted(desk: Desk) -> None:
    said = say_log(desk)
    desk.cast("deleteContext", msg_id=said, summary="valve 7 stuck at 02:15, rest quiet")
    transcript = desk.episode.transcript()
    entry = transcript.entries[transcript.by_number[int(said[1:])]]

    assert entry.forgotten and "valve 7 stuck at 02:15" in stub(entry)
    assert (
        desk.cast("restoreContext", msg_id=said)
        .result["restored"][0]["content"]
        .startswith("line 0: valve 0")
    )


def test_a_range_is_folded_and_restored_exactly(desk: Desk) -> None:
    said = [desk.say("tool", f"result {n} " * 50, "shell") for n in range(6)]
    before = desk.episode.transcript()
    folded = desk.cast("deleteContext", msg_id=f"{said[0]}-{said[4][1:]}", summary="five quiet results")
    assert folded.result["freed_tokens"] > 0
    middle = desk.episode.transcript()
    assert [middle.entries[middle.by_number[int(m[1:])]].forgotten for m in said] == [True] * 5 + [False]
    back = desk.cast("restoreContext", msg_id=f"{said[0]}-{said[4][1:]}")

    assert [line["content"] for line in back.result["restored"]] == [f"result {n} " * 50 for n in range(5)]
    after = desk.episode.transcript()
    for handle in said:
        assert (
            after.entries[after.by_number[int(handle[1:])]]
            == before.entries[before.by_number[int(handle[1:])]]
        )


def test_a_part_is_forgotten_by_itself_and_comes_back(desk: Desk) -> None:
    said = say_log(desk)
    number = int(said[1:])
    whole = desk.episode.content(number)
    assert len(split_parts(whole)) > 2
    desk.cast("deleteContext", msg_id=f"{said}.2")
    entry = desk.episode.transcript().entries[desk.episode.transcript().by_number[number]]
    assert entry.forgotten_parts == (2,) and not entry.forgotten and entry.part_tokens > 0
    desk.cast("restoreContext", msg_id=f"{said}.2")

    entry = desk.episode.transcript().entries[desk.episode.transcript().by_number[number]]
    assert entry.forgotten_parts == () and desk.episode.content(number) == whole
    assert desk.cast("deleteContext", msg_id=f"{said}.99").is_error


def test_of_several_forgotten_parts_one_comes_back_and_only_its_words_are_printed(desk: Desk) -> None:
    said = say_log(desk)
    number = int(said[1:])
    parts = split_parts(desk.episode.content(number))

    def entry() -> Entry:
        transcript = desk.episode.transcript()
        return transcript.entries[transcript.by_number[number]]

    desk.cast("deleteContext", msg_id=f"{said}.2,{said}.3")
    both = entry().part_tokens
    back = desk.cast("restoreContext", msg_id=f"{said}.2").result["restored"]
    assert [line["content"] for line in back] == [parts[1]] and back[0]["msg_id"] == f"{said}.2"
    assert entry().forgotten_parts == (3,) and 0 < entry().part_tokens < both
    assert desk.cast("restoreContext", msg_id=f"{said}.2").result["status"] == "not_deleted"

    desk.cast("deleteContext", msg_id=said)
    desk.cast("restoreContext", msg_id=f"{said}.1,{said}.4")
    assert not entry().forgotten
    assert entry().forgotten_parts == tuple(p for p in range(1, len(parts) + 1) if p not in (1, 4))


def test_what_is_pinned_is_kept_in_a_folded_range(desk: Desk) -> None:
    said = [desk.say("tool", f"result {n} " * 50, "shell") for n in range(3)]
    desk.cast("deleteContext", msg_id=said[1], pin=True)
    desk.cast("deleteContext", msg_id=f"{said[0]}-{said[2][1:]}")
    transcript = desk.episode.transcript()

    assert [transcript.entries[transcript.by_number[int(m[1:])]].forgotten for m in said] == [
        True,
        False,
        True,
    ]


def test_the_detail_around_a_hit_is_read_without_restoring(desk: Desk) -> None:
    said = say_log(desk)
    desk.cast("deleteContext", msg_id=said)
    found = desk.cast("searchEngine", keyword="line 150 valve", scope="history", under=said)
    (hit,) = found.result["hits"]

    assert "line 150: valve 6 at 450 bar" in hit["highlights"][0] and "line 149" in hit["highlights"][0]
    part = int(hit["highlights"][0].split(":")[0].split(".")[1])
    assert "line 150:" in split_parts(desk.episode.content(int(said[1:])))[part - 1]
    transcript = desk.episode.transcript()
    assert transcript.entries[transcript.by_number[int(said[1:])]].forgotten, "it was only looked at"
    assert "line 150: valve 6" in found.text


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(min_size=1, max_size=4_000), st.text(max_size=300))
def test_any_message_comes_back_as_it_was(desk: Desk, text: str, summary: str) -> None:
    said = desk.say("tool", text.encode("utf-8", "replace").decode(), "shell")
    stored = desk.episode.content(int(said[1:]))
    desk.cast("deleteContext", msg_id=said, summary=summary)
    pieces, offset = [], 0
    while offset is not None:
        back = desk.cast("restoreContext", msg_id=said, offset=offset).result
        pieces.append(back["restored"][0]["content"])
        offset = back["next_offset"]

    assert "".join(pieces) == stored

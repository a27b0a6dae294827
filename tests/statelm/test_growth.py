"""A late turn of a long reading does the work of an early one: counted, never timed."""

from __future__ import annotations

import statistics
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp import storage
from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.ledger.events import Entry, Forgot, Message, Recalled, Said, fold
from pensieve_mcp.ledger.folding import Folder
from pensieve_mcp.ledger.stubs import BLOCK_GROUPS, Coalescing, coalesced
from pensieve_mcp.statelm import extractive
from pensieve_mcp.statelm.dialects.compact import Compact
from pensieve_mcp.statelm.dialects.ours import Ours
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.spoken import LAG, Spoken
from pensieve_mcp.statelm.turns import Call, Prompt, Reply, Turn
from pensieve_mcp.workspace import Workspace

EARLY, LATE = range(600, 612), range(1_500, 1_512)  # the window is full of stubs before
QUESTION = "What is the number of the Xylograph Zygote?"


class Small(Compact):
    """The bundled model's dialect over chunks so small that a short text has a thousand."""

    @property
    def chunk_set(self) -> ChunkSet | None:
        return ChunkSet(50, 0)


class Reads:
    """Reads on, and deletes each chunk."""

    model = "reads"

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def reply(self, prompt: Prompt) -> Reply:
        reads = self.loop.conversation.standing("readChunk")
        if reads:
            return Reply("", (Call("deleteContext", {"msg_id": f"m{reads[-1].message.number}"}),))
        return Reply("", (Call("readChunk", {"enable_scan": True}),))

    def close(self) -> None:
        """Nothing is open."""


class Meter:
    """Work of each turn: lines of Python run, steps of SQLite's machine, most bytes taken at once. Only in the
    turns that are compared, since counting is slow."""

    def __init__(self) -> None:
        self.steps = self.lines = 0
        self.turns: dict[int, tuple[int, int, int]] = {}
        self.on = False

    def stepped(self) -> int:
        self.steps += self.on
        return 0

    def traced(self, frame: Any, event: str, argument: Any) -> Any:
        self.lines += event == "line"
        return self.traced

    def turn(self, turn: Turn) -> None:
        if self.on:
            sys.settrace(None)
            self.turns[turn.number] = (self.lines, self.steps, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        self.on = turn.number + 1 in EARLY or turn.number + 1 in LATE
        self.lines = self.steps = 0
        if self.on:
            tracemalloc.start()
            sys.settrace(self.traced)

    def medians(self, turns: range) -> list[float]:
        return [statistics.median(self.turns[turn][kind] for turn in turns) for kind in range(3)]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meter]:
    meter = Meter()
    connect = storage._connect

    def counted(*arguments: Any) -> storage.Connection:
        connection = connect(*arguments)
        connection.set_progress_handler(meter.stepped, 20)
        return connection

    monkeypatch.setattr(storage, "_connect", counted)
    before = sys.gettrace()
    yield meter
    sys.settrace(before)
    tracemalloc.stop()


@pytest.fixture
def long(meter: Meter, tmp_path: Path) -> Iterator[Workspace]:
    docs = tmp_path / "docs"
    docs.mkdir()
    days = [
        f"Day {day}. We walked {day + 7} kilometres by the river Odle, past mill number {day}, and saw herons there; "
        "the water was low, the wind came from the hills, and nobody spoke of the house any more."
        for day in range(900)
    ]
    (docs / "diary.txt").write_text("\n\n".join(days), encoding="utf-8")
    workspace = Workspace.open(
        [docs],
        state=tmp_path / "state",
        environment={"PENSIEVE_HOME": str(tmp_path / "home")},
        arguments={"second_stage": False, "upgrade": False, "chunk_tokens": 50, "window_tokens": 6_000},
        builder="inline",
    )
    workspace.build_now()
    yield workspace
    workspace.close()


@pytest.mark.parametrize("reader", ["compact", "floor", "ours"])
def test_a_late_turn_of_a_long_reading_works_no_more_than_an_early_one(
    long: Workspace, meter: Meter, reader: str
) -> None:
    speaker = Small(search=False) if reader == "compact" else Ours(search=False)
    loop = Loop.over(
        long, QUESTION, speaker, watch=meter.turn, cancelled=lambda: len(loop.visible) >= LATE[-1]
    )
    asked = extractive.answer(loop) if reader == "floor" else loop.run(Reads(loop))

    assert asked.metrics.reads > 700 and asked.metrics.errors == 0
    early, late = meter.medians(EARLY), meter.medians(LATE)
    assert min(early) > 20, "something was counted"
    for before, after, what in zip(early, late, ("lines", "steps", "bytes"), strict=True):
        assert after <= before * 1.25, f"{what}: {before} at round {EARLY[0]}, {after} at round {LATE[0]}"


def test_another_transcript_shares_what_did_not_change() -> None:
    folder = Folder(Said(Message(number, "tool", "readChunk", 10, b"")) for number in range(1, 1_001))
    before = folder.transcript()
    folder.add(Forgot((900,)))
    folder.add(Said(Message(2_000, "tool", "readChunk", 10, b"")))
    after = folder.transcript()

    assert len(before.entries) == 1_000 and not before.entries[899].forgotten
    assert 2_000 not in before.by_number and list(before.by_number) == list(range(1, 1_001))
    assert after.entries[899].forgotten and after.by_number[2_000] == 1_000
    assert sum(one is two for one, two in zip(before.entries, after.entries, strict=False)) == 999
    assert [*reversed(after.entries)] == [*after.entries][::-1] == list(after.entries[::-1])
    assert after.entries[-1].message.number == 2_000 and after.entries[998:] == tuple(after.entries)[998:]
    other = folder.copy()
    other.add(Forgot((1,)))
    assert not folder.transcript().entries[0].forgotten and len(folder.transcript().touched) == 1_002


numbers = st.integers(0, 3 * LAG)
happening = st.lists(
    st.one_of(st.tuples(st.just("said"), numbers), st.tuples(st.just("forgot"), numbers),
              st.tuples(st.just("recalled"), numbers), st.tuples(st.just("looked"), numbers)), max_size=60
)  # fmt: skip


class Listing:
    """A fold that shows what it was given."""

    def __init__(self) -> None:
        self.seen: list[Entry] = []

    def add(self, entry: Entry) -> None:
        self.seen.append(entry)

    def copy(self) -> Listing:
        other = Listing()
        other.seen = list(self.seen)
        return other


@given(happening)
def test_what_is_carried_on_is_what_folding_all_gives(happened: list[tuple[str, int]]) -> None:
    folder = Folder()
    spoken = Spoken(folder.transcript().touched)
    said = 0
    for what, number in happened:
        if what == "said":
            for _ in range(number // 4 + 1):
                said += 2
                folder.add(Said(Message(said - 1, "assistant", "readChunk", 10, b"")))
                folder.add(Said(Message(said, "tool", "readChunk", 90, b"", invoking=said - 1)))
                folder.add(Forgot((said - 1, said)))
        elif what == "looked":
            spoken.catch_up(folder.transcript())
            spoken.fold("list", Listing)
            spoken.fold("coalesced", Coalescing, max(0, len(spoken.entries) - 16))
        else:
            folder.add((Forgot if what == "forgot" else Recalled)((number,)))
    transcript = folder.transcript()
    spoken.catch_up(transcript)

    assert spoken.fold("list", Listing).seen == list(transcript.entries) == spoken.entries
    end = max(0, len(spoken.entries) - 16)
    carried = spoken.fold("coalesced", Coalescing, end).shown(spoken.entries[end:])
    assert carried == coalesced(transcript.entries)


def test_a_long_run_of_stubs_is_cut_into_the_same_blocks_however_it_came() -> None:
    groups = 2 * BLOCK_GROUPS[0] + BLOCK_GROUPS[1] + 3
    events: list[Any] = []
    for number in range(1, 2 * groups, 2):
        events.append(Said(Message(number, "assistant", "readChunk", 10, b"")))
        events.append(Said(Message(number + 1, "tool", "readChunk", 90, b"", invoking=number)))
    entries = fold([*events, Forgot(tuple(range(1, 2 * groups + 1)))]).entries
    sizes = [len(item.numbers) for item in coalesced(entries, keep_last=0) if not isinstance(item, Entry)]

    assert sizes == [2 * BLOCK_GROUPS[0], 2 * BLOCK_GROUPS[0], 2 * BLOCK_GROUPS[1]]

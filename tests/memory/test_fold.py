"""What a model sees now is a pure function of what happened."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.ledger.events import (
    Compacted,
    Entry,
    Event,
    Forgot,
    Message,
    Pinned,
    Recalled,
    Said,
    Sealed,
    Transcript,
    fold,
)
from pensieve_mcp.ledger.folding import Folder
from pensieve_mcp.ledger.stubs import (
    PART_STUB_TOKENS,
    PUBLISHED,
    Run,
    coalesced,
    part_stub,
    published_arguments,
    published_result,
    standing_tokens,
    stub,
)
from pensieve_mcp.tokens import count_tokens

numbers = st.integers(min_value=-1, max_value=12)
some = st.lists(numbers, max_size=5).map(tuple)
texts = st.text(max_size=40)
messages = st.builds(
    Message,
    number=numbers,
    role=st.sampled_from(["assistant", "tool", "user", "system"]),
    tool=st.sampled_from(["readChunk", "searchEngine", ""]),
    tokens=st.integers(min_value=0, max_value=5_000),
    digest=st.just(b""),
    label=texts,
    invoking=st.none() | numbers,
    kept_thought=texts,
)
events = st.one_of(
    st.builds(Said, messages),
    st.builds(
        Forgot,
        some,
        keep_thought=st.booleans(),
        summary=texts,
        parts=st.lists(st.tuples(numbers, st.integers(-1, 4)), max_size=3).map(tuple),
        part_tokens=st.lists(st.integers(0, 3_000), max_size=4).map(tuple),
    ),
    st.builds(Recalled, some),
    st.builds(Pinned, some, st.booleans()),
    st.builds(Compacted, texts),
    st.builds(Sealed, texts),
)
histories = st.lists(events, max_size=30)


def said(number: int, *, role: str = "tool", tokens: int = 800, **more: object) -> Said:
    message = Message(number, role, "readChunk", tokens, b"", label="report.pdf p. 12")  # type: ignore[arg-type]
    return Said(replace(message, **more))  # type: ignore[arg-type]


@given(histories)
def test_any_history_folds_and_its_sums_are_right(history: list[Event]) -> None:
    transcript = fold(history)

    assert transcript.visible_tokens == sum(standing_tokens(entry) for entry in transcript.entries)
    assert transcript.peak_tokens >= transcript.visible_tokens >= 0
    assert transcript.freed_tokens >= 0
    assert transcript.rounds == sum(entry.message.role == "assistant" for entry in transcript.entries)
    assert [transcript.by_number[e.message.number] for e in transcript.entries] == list(
        range(len(transcript.entries))
    )


@given(histories, st.integers(min_value=0, max_value=30))
def test_folding_on_from_a_prefix_equals_folding_all(history: list[Event], cut: int) -> None:
    folder = Folder(history[:cut])
    folder.transcript()
    folder.extend(history[cut:])

    assert folder.transcript() == fold(history)
    assert folder.transcript().by_number == fold(history).by_number


@given(histories, some, st.booleans(), texts)
def test_forgetting_never_makes_the_transcript_longer(
    history: list[Event], which: tuple[int, ...], keep_thought: bool, summary: str
) -> None:
    before = fold(history)
    parts = tuple((number, 1) for number in which)
    for event in (
        Forgot(which, keep_thought=keep_thought, summary=summary),
        Forgot((), parts=parts, part_tokens=(100,) * len(parts)),
        Forgot(which, parts=parts, part_tokens=(100,) * len(parts)),
    ):
        _is_not_longer(before, fold([*history, event]))


def _is_not_longer(before: Transcript, after: Transcript) -> None:

    assert after.visible_tokens <= before.visible_tokens
    assert after.peak_tokens == before.peak_tokens
    assert len(after.entries) == len(before.entries)


@given(histories, some, texts)
def test_forgetting_then_recalling_is_identity(
    history: list[Event], which: tuple[int, ...], summary: str
) -> None:
    before = fold(history)
    untouched = tuple(n for n in which if n in before.by_number and not _was_forgotten(before.entries, n))
    forgot = Forgot(
        untouched, summary=summary, parts=tuple((n, 1) for n in untouched), part_tokens=(50,) * len(untouched)
    )
    after = fold([*history, forgot, Recalled(untouched)])

    assert after.entries == before.entries
    assert after.visible_tokens == before.visible_tokens
    assert after.freed_tokens == before.freed_tokens


def _was_forgotten(entries: tuple[Entry, ...], number: int) -> bool:
    entry = next(entry for entry in entries if entry.message.number == number)
    return entry.forgotten or bool(entry.forgotten_parts)


@given(histories, some)
def test_forgetting_twice_is_forgetting_once(history: list[Event], which: tuple[int, ...]) -> None:
    once = fold([*history, Forgot(which, summary="first")])
    assert fold([*history, Forgot(which, summary="first"), Forgot(which, summary="second")]) == once


def test_what_is_pinned_or_a_persons_is_never_forgotten() -> None:
    history = [said(1), said(2, role="user"), said(3, role="system"), Pinned((1,)), Forgot((1, 2, 3, 99))]
    assert not any(entry.forgotten for entry in fold(history).entries)
    assert fold([*history, Pinned((1,), pinned=False), Forgot((1,))]).entries[0].forgotten


def test_what_the_host_compacted_is_counted_as_nothing() -> None:
    transcript = fold([said(1), said(2), Compacted(), said(3, tokens=50)])
    assert transcript.visible_tokens == 50
    assert transcript.peak_tokens == 1_600
    assert transcript.compactions == 1


def test_a_seal_leaves_the_episode_open() -> None:
    transcript = fold([said(1), Sealed("42", ("c48",)), said(2)])
    assert [seal.answer for seal in transcript.sealed] == ["42"]
    assert len(transcript.entries) == 2


# --- stubs ------------------------------------------------------------------------------------------------


def test_a_stub_names_tool_source_size_and_the_way_back() -> None:
    entry = fold([said(12), Forgot((12,))]).entries[0]
    assert stub(entry) == (
        "[pensieve: m12 forgotten · readChunk result · report.pdf p. 12 · 800 tokens · "
        "restoreContext m12 brings it back]"
    )
    assert "restoreContext" not in stub(entry, restorable=False)
    assert stub(entry, wording="published") == PUBLISHED == "Content has been deleted to save space."


@given(messages, texts)
def test_a_stub_is_one_line_between_its_brackets(message: Message, summary: str) -> None:
    line = stub(Entry(message, forgotten=True, summary=summary))
    assert len(line.splitlines()) == 1
    assert line.startswith("[pensieve: ") and line.endswith("]")
    assert "[" not in line[1:] and "]" not in line[:-1]


def test_a_stub_stays_as_it_was_first_written() -> None:
    """A changed stub would cost the provider's prompt cache."""
    first = fold([said(3), Forgot((3,), summary="dates")])
    later = fold(
        [said(3), Forgot((3,), summary="dates"), said(4), Forgot((3, 4), summary="other"), Compacted()]
    )
    assert stub(first.entries[0]) == stub(later.entries[0])


def test_a_small_message_gets_a_small_stub() -> None:
    entry = fold([said(3, tokens=9), Forgot((3,))]).entries[0]
    assert stub(entry) == "[pensieve: m3 forgotten]"


def test_a_forgotten_part_frees_what_it_took_less_its_mark() -> None:
    part = Forgot((), parts=((3, 2),), part_tokens=(250,))
    transcript = fold([said(3), part, part])
    assert transcript.entries[0].forgotten_parts == (2,)
    assert transcript.visible_tokens == 800 - (250 - PART_STUB_TOKENS)
    assert transcript.freed_tokens == 250 - PART_STUB_TOKENS
    assert fold([said(3), part, Forgot((3,))]).visible_tokens < 60
    line = part_stub(transcript.entries[0].message, 2)
    assert line == "[pensieve: m3.2 forgotten · restoreContext m3.2 brings it back]"
    assert count_tokens(line) <= PART_STUB_TOKENS


def test_a_kept_thought_stands_before_the_stub() -> None:
    call = said(3, role="assistant", kept_thought="I look for dates.")
    entry = fold([call, Forgot((3,), keep_thought=True)]).entries[0]
    assert stub(entry).splitlines()[0] == "I look for dates."
    assert stub(entry, wording="published").splitlines() == ["I look for dates.", PUBLISHED]


def test_the_published_shapes_are_those_of_the_reference_code() -> None:
    assert json.loads(json.dumps(published_result(4, 3, "readChunk", reading_progress="2/9"))) == {
        "msg_id": 4,
        "msg_id(invoking_assistant)": 3,
        "status": "success",
        "message": PUBLISHED,
        "original_tool": "readChunk",
        "reading_progress": "2/9",
    }
    assert "reading_progress" not in published_result(4, 3, "searchEngine")
    assert published_arguments() == {"message": PUBLISHED}


def _rounds(count: int) -> list[Event]:
    history: list[Event] = []
    for number in range(count):
        history += [
            said(2 * number + 1, role="assistant", tokens=60),
            said(2 * number + 2, invoking=2 * number + 1),
        ]
    return history


def test_old_runs_of_stubs_coalesce_so_that_they_cannot_fill_the_window() -> None:
    """The paper's own failure (section 5.3): stubs accumulate over long trajectories."""
    transcript = fold([*_rounds(500), Forgot(tuple(range(1, 1_001)))])
    shown = coalesced(transcript.entries)
    runs = [item for item in shown if isinstance(item, Run)]

    assert len(shown) <= 16 + 7 + 7 + 16
    assert sum(count_tokens(run.line()) for run in runs) < 1_000
    assert transcript.visible_tokens > 20 * sum(count_tokens(run.line()) for run in runs)
    for run in runs:
        calls = {e.message.number for e in run.entries if e.message.role == "assistant"}
        assert calls == {e.message.invoking for e in run.entries if e.message.role == "tool"}, (
            "pairs stay whole"
        )


@given(st.lists(st.integers(min_value=1, max_value=60), max_size=60), st.integers(min_value=0, max_value=30))
def test_coalescing_loses_no_message_and_keeps_their_order(forgotten: list[int], keep_last: int) -> None:
    transcript = fold([*_rounds(30), Forgot(tuple(forgotten))])
    seen: list[Entry] = []
    for item in coalesced(transcript.entries, keep_last=keep_last):
        seen += item.entries if isinstance(item, Run) else [item]
    assert tuple(seen) == transcript.entries


def test_what_has_a_summary_is_not_coalesced_away() -> None:
    transcript = fold(
        [*_rounds(50), Forgot(tuple(range(3, 101))), Forgot((1, 2), summary="the treaty is of 1815")]
    )
    shown = coalesced(transcript.entries)
    assert any(isinstance(item, Run) for item in shown)
    assert [item.summary for item in shown if isinstance(item, Entry) and item.summary] == [
        "the treaty is of 1815"
    ] * 2

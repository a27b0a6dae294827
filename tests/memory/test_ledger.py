"""The ledger: numbers, appends, exact contents, search in history, retention, purge, export."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pensieve_mcp.errors import Miscast, NoSuchMessage, StorageError
from pensieve_mcp.handles import MessageRef
from pensieve_mcp.ledger.blobs import digest_of
from pensieve_mcp.ledger.events import Event, Forgot, Message, Pinned, Recalled, Said, Sealed, fold
from pensieve_mcp.ledger.store import EpisodeRecord, Ledger, host_handle

from .conftest import Memory, open_memory

Reopen = Callable[[], Memory]


def say(ledger: Ledger, episode: EpisodeRecord, text: str, **more: object) -> Message:
    """Say one result with this content."""
    fields: dict[str, object] = {"role": "tool", "tool": "readChunk", "tokens": 500, "label": "", **more}
    message = Message(number=ledger.reserve(), digest=digest_of(text), **fields)  # type: ignore[arg-type]
    ledger.append(episode.episode_id, [Said(message)], {message.digest: text})
    return message


@pytest.fixture
def episode(memory: Memory) -> EpisodeRecord:
    return memory.ledger.open_episode("stdio", "test-host", "thread-1", title="treaties")


# --- episodes ---------------------------------------------------------------------------------------------


def test_a_thread_resumes_its_episode_and_without_thread_each_is_new(memory: Memory) -> None:
    ledger = memory.ledger
    first = ledger.open_episode("stdio", "host", "t")
    memory.clock.now += 5
    again = ledger.open_episode("stdio", "host", "t")

    assert again.episode_id == first.episode_id and again.handle == first.handle
    assert again.last == first.last + 5
    assert ledger.open_episode("http", "host", "t").episode_id != first.episode_id
    assert ledger.open_episode("stdio", "host").handle != ledger.open_episode("stdio", "host").handle


def test_an_episode_is_found_by_its_handle_by_whoever_has_it(memory: Memory, reopen: Reopen) -> None:
    opened = memory.ledger.open_episode("http", title="a")
    assert reopen().ledger.episode(opened.handle) == opened
    assert memory.ledger.episode(opened.episode_id) == opened
    assert len(opened.handle) >= 26
    for unknown in ("e123", "", "\ud800", 77, 10**30):
        with pytest.raises(Miscast) as caught:
            memory.ledger.episode(unknown)
        assert caught.value.slug == "no_such_episode"


def test_episodes_are_listed_last_used_first_and_change_their_state(memory: Memory) -> None:
    ids = []
    for number in range(5):
        memory.clock.now += 1
        ids.append(memory.ledger.open_episode("cli", title=str(number)).episode_id)
    memory.ledger.update_episode(ids[0], state="closed", title="done")

    assert [one.episode_id for one in memory.ledger.episodes()] == ids[::-1]
    assert [one.title for one in memory.ledger.episodes(state="closed")] == ["done"]
    page = memory.ledger.episodes(limit=2)
    assert [one.episode_id for one in memory.ledger.episodes(before=page[-1].last)] == ids[2::-1]
    with pytest.raises(Miscast):
        memory.ledger.update_episode(999, title="x")


# --- numbers and appends ----------------------------------------------------------------------------------


def test_numbers_are_never_given_twice_whatever_is_lost(memory: Memory, reopen: Reopen) -> None:
    assert memory.ledger.reserve(3) == 1
    assert reopen().ledger.reserve() == 4
    memory.close()
    for name in ("blobs.db", "blobs.db-wal", "blobs.db-shm"):
        (memory.folder / name).unlink(missing_ok=True)
    fresh = open_memory(memory.folder, memory.clock)
    assert fresh.ledger.reserve() == 5
    with pytest.raises(ValueError, match="cannot reserve"):
        fresh.ledger.reserve(0)
    fresh.close()


def test_an_append_is_whole_or_not_at_all(memory: Memory, episode: EpisodeRecord) -> None:
    ledger = memory.ledger
    number = ledger.reserve()
    good = Said(Message(number, "tool", "readChunk", 5, digest_of("a")))
    with pytest.raises(ValueError, match="m99 was not reserved"):
        ledger.append(
            episode.episode_id, [good, Said(Message(99, "tool", "x", 5, b""))], {digest_of("a"): "a"}
        )
    assert ledger.events(episode.episode_id) == []

    ledger.append(episode.episode_id, [good], {digest_of("a"): "a"})
    with pytest.raises(ValueError, match="used before"):
        ledger.append(episode.episode_id, [good], {})
    with pytest.raises(ValueError, match="not given"):
        ledger.append(episode.episode_id, [Said(Message(ledger.reserve(), "tool", "x", 5, b"?" * 32))], {})
    with pytest.raises(ValueError, match="digest"):
        ledger.append(episode.episode_id, [], {b"no": "text"})
    with pytest.raises(Miscast):
        ledger.append(12345, [Forgot((1,))], {})
    assert ledger.events(episode.episode_id) == [good]


def test_the_transcript_follows_other_processes(
    memory: Memory, episode: EpisodeRecord, reopen: Reopen
) -> None:
    other = reopen()
    first = say(memory.ledger, episode, "one")
    assert len(other.ledger.transcript(episode.episode_id).entries) == 1
    second = say(other.ledger, episode, "two")
    memory.ledger.append(episode.episode_id, [Forgot((second.number,))], {})

    for ledger in (memory.ledger, other.ledger):
        transcript = ledger.transcript(episode.episode_id)
        assert [entry.message for entry in transcript.entries] == [first, second]
        assert [entry.forgotten for entry in transcript.entries] == [False, True]
        assert transcript == fold(ledger.events(episode.episode_id))
    with pytest.raises(Miscast):
        memory.ledger.transcript(999)


def test_events_can_be_read_on_from_a_place(memory: Memory, episode: EpisodeRecord) -> None:
    say(memory.ledger, episode, "one")
    place = memory.ledger.happened(episode.episode_id)[-1].event_id
    memory.ledger.append(episode.episode_id, [Pinned((1,)), Sealed("42", ("c1",))], {})
    assert memory.ledger.events(episode.episode_id, after=place) == [Pinned((1,)), Sealed("42", ("c1",))]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(alphabet=st.characters(exclude_categories=[]), max_size=2_000))
def test_any_text_comes_back_exactly(memory: Memory, text: str) -> None:
    episode = memory.ledger.open_episode("cli", "", "exact")
    message = say(memory.ledger, episode, text, label=text[:50])
    assert memory.ledger.content(message) == text
    assert memory.ledger.content(message.number) == text


def test_equal_contents_are_stored_once(memory: Memory, episode: EpisodeRecord) -> None:
    say(memory.ledger, episode, "the same words " * 500)
    before = memory.blobs.stored_bytes()
    say(memory.ledger, episode, "the same words " * 500)
    assert memory.blobs.stored_bytes() == before
    assert before < 1_000, "compressed"


def test_a_damaged_content_is_told(memory: Memory, episode: EpisodeRecord) -> None:
    message = say(memory.ledger, episode, "words " * 100)
    with memory.blobs._connections.writing() as db:
        db.conn.execute("UPDATE contents SET data = ?", (b"junk",))
    with pytest.raises(StorageError) as caught:
        memory.ledger.content(message)
    assert caught.value.slug == "storage_corrupt"
    assert memory.blobs.integrity()
    assert memory.ledger.history_search("words").total == 1, "one damaged content does not cost the search"


# --- looking up -------------------------------------------------------------------------------------------


def test_a_message_is_found_by_number_handle_and_host_call(memory: Memory, episode: EpisodeRecord) -> None:
    ledger = memory.ledger
    handle = ledger.handle_for_host_call("toolu_1")
    call = say(ledger, episode, "call", role="assistant", host_call_id="toolu_1")
    result = say(ledger, episode, "result", handle=handle, host_call_id="toolu_1", invoking=call.number)

    assert ledger.find(result.number).message == result
    assert ledger.find(handle.upper()).message == result
    assert ledger.find(MessageRef(host=handle)).message == result
    assert ledger.find(MessageRef(number=call.number)).at == memory.clock.now
    assert [stored.message for stored in ledger.by_host_call("toolu_1")] == [call, result]
    assert [stored.message for stored in ledger.by_host_call("toolu_1", role="tool")] == [result]
    assert ledger.by_host_call("toolu_2") == []


def test_an_unknown_message_is_answered_with_what_exists(memory: Memory, episode: EpisodeRecord) -> None:
    with pytest.raises(NoSuchMessage, match="nothing has been said yet"):
        memory.ledger.find(7, episode_id=episode.episode_id)
    say(memory.ledger, episode, "one")
    say(memory.ledger, episode, "two")
    other = memory.ledger.open_episode("cli")
    elsewhere = say(memory.ledger, other, "three")
    with pytest.raises(NoSuchMessage, match="m1 to m2"):
        memory.ledger.find(elsewhere.number, episode_id=episode.episode_id)
    for unknown in (0, -1, 10**40, "hbeef", "\ud800"):
        with pytest.raises(NoSuchMessage):
            memory.ledger.find(unknown)


def test_host_handles_are_constant_and_longer_where_two_would_be_one(memory: Memory, reopen: Reopen) -> None:
    calls = [f"call-{number}" for number in range(600)]
    handles = [memory.ledger.handle_for_host_call(call) for call in calls]

    assert len(set(handles)) == len(calls)
    assert any(len(handle) > 5 for handle in handles), "among 600 some share four digits"
    assert all(
        host_handle(call, len(handle) - 1) == handle for call, handle in zip(calls, handles, strict=True)
    )
    assert [reopen().ledger.handle_for_host_call(call) for call in calls[:20]] == handles[:20]


# --- search in history ------------------------------------------------------------------------------------


def test_what_was_said_is_found_at_once_also_when_forgotten(
    memory: Memory, episode: EpisodeRecord, reopen: Reopen
) -> None:
    message = say(memory.ledger, episode, "The treaty was signed in Vienna.", label="report.pdf p. 3")
    memory.ledger.append(episode.episode_id, [Forgot((message.number,))], {})

    answer = reopen().ledger.history_search("treaties signed")
    assert [hit.message for hit in answer.hits] == [message]
    assert answer.found == "all" and answer.total == 1
    assert "Vienna" in answer.hits[0].snippet
    assert memory.ledger.history_search("report.pdf").total == 1


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("条約は1815年に署名された。", "署名"),
        ("条約は1815年に署名された。", "条"),
        ("这份合同于二〇二四年生效", "合同"),
        ("조약은 서명되었다", "서명"),
        ("ประเทศไทยลงนามในสนธิสัญญา", "สนธิสัญญา"),
        ("संधि पर हस्ताक्षर हुए", "हस्ताक्षर"),
        ("Déjà vu à Zürich", "deja zurich"),
        ("call getUserName(snake_case)", "user name"),
        ("call getUserName(snake_case)", "snake_case"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
    ],
)
def test_scripts_and_spellings_are_found(
    memory: Memory, episode: EpisodeRecord, text: str, query: str
) -> None:
    message = say(memory.ledger, episode, text)
    say(memory.ledger, episode, "something else entirely")
    answer = memory.ledger.history_search(query)
    assert [hit.message for hit in answer.hits] == [message]


def test_a_search_can_be_narrowed(memory: Memory, episode: EpisodeRecord) -> None:
    ledger = memory.ledger
    other = ledger.open_episode("cli")
    mine = say(ledger, episode, "vienna", role="assistant", tool="note")
    say(ledger, other, "vienna")

    assert ledger.history_search("vienna").total == 2
    assert [h.message for h in ledger.history_search("vienna", episode_id=episode.episode_id).hits] == [mine]
    assert [h.message for h in ledger.history_search("vienna", role="assistant").hits] == [mine]
    assert [h.message for h in ledger.history_search("vienna", tool="note").hits] == [mine]
    assert len(ledger.history_search("vienna", limit=1).hits) == 1
    assert ledger.history_search("vienna", limit=-3).total == 2


def test_terms_are_relaxed_and_that_is_told(memory: Memory, episode: EpisodeRecord) -> None:
    say(memory.ledger, episode, "vienna congress")
    assert memory.ledger.history_search("vienna zeppelin").found == "any"
    assert memory.ledger.history_search("vien").found == "prefix"
    assert memory.ledger.history_search('"congress vienna"').found == "any", "a phrase has an order"
    assert memory.ledger.history_search("zeppelin").hits == ()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(query=st.text(alphabet=st.characters(exclude_categories=[]), max_size=60))
def test_any_string_is_answered(memory: Memory, query: str) -> None:
    episode = memory.ledger.open_episode("cli", "", "q")
    if not memory.ledger.events(episode.episode_id):
        say(memory.ledger, episode, "vienna AND NOT near(x) 条約")
    memory.ledger.history_search(query, role=query, tool=query)
    memory.notebook.search(query)


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "*", "col:x", "^", "-", "(" * 500, "!?" * 50_000, "x y " * 25_000]
)
def test_a_query_is_text_not_syntax(memory: Memory, episode: EpisodeRecord, query: str) -> None:
    say(memory.ledger, episode, "vienna")
    memory.ledger.history_search(query)
    memory.notebook.search(query)


# --- forks ------------------------------------------------------------------------------------------------


def test_a_fork_has_the_messages_of_another_conversation_in_the_given_order(
    memory: Memory, episode: EpisodeRecord, reopen: Reopen
) -> None:
    ledger = memory.ledger
    said = [say(ledger, episode, f"text {n}") for n in range(3)]
    numbers = [message.number for message in said]
    fork = ledger.open_episode("stdio", "test-host", "thread-2")
    own = say(ledger, fork, "its own")

    assert (
        ledger.inherit(fork.episode_id, [numbers[2], numbers[0], 999, own.number], [Forgot((numbers[0],))])
        == 2
    )
    assert ledger.inherit(fork.episode_id, numbers[:1], [Forgot((own.number,))]) == 0
    for one in (ledger, reopen().ledger):
        entries = one.transcript(fork.episode_id).entries
        assert [entry.message for entry in entries] == [own, said[2], said[0]]
        assert [entry.forgotten for entry in entries] == [False, False, True]
        assert not any(entry.forgotten for entry in one.transcript(episode.episode_id).entries)
    assert ledger.content(said[0]) == "text 0" and ledger.find(numbers[0]).episode_id == episode.episode_id
    exported = list(ledger.export_episode(fork.episode_id))
    copied = ledger.import_episode(exported)
    assert len(ledger.transcript(copied.episode_id).entries) == 3
    with pytest.raises(Miscast):
        ledger.inherit(999, numbers)
    with pytest.raises(ValueError):
        ledger.inherit(fork.episode_id, numbers, [Said(own)])


def test_a_purge_reaches_the_forks_of_other_processes(
    memory: Memory, episode: EpisodeRecord, reopen: Reopen
) -> None:
    ledger = memory.ledger
    first, second = (say(ledger, episode, text, label="treaties of 1911") for text in ("one", "two"))
    fork = ledger.open_episode("stdio", "test-host", "thread-2")
    ledger.inherit(fork.episode_id, [first.number, second.number])
    other = reopen().ledger
    assert other.transcript(fork.episode_id).entries[0].message.label == "treaties of 1911"

    ledger.purge_messages([first.number], lambda text: "1911" in text)
    labels = [entry.message.label for entry in other.transcript(fork.episode_id).entries]
    assert "1911" not in labels[0] and "1911" in labels[1]
    ledger.purge(episode_id=episode.episode_id)
    assert other.transcript(fork.episode_id).entries == ()


# --- retention and purge ----------------------------------------------------------------------------------

SECRET = "zanzibarquux"


def _traces(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if SECRET.encode() in file.read_bytes()]


def test_purging_an_episode_leaves_no_trace(memory: Memory, episode: EpisodeRecord) -> None:
    secret = say(memory.ledger, episode, f"{SECRET} x{SECRET}y", label=SECRET, kept_thought=SECRET)
    memory.ledger.append(episode.episode_id, [Forgot((secret.number,), summary=SECRET), Sealed(SECRET)], {})
    kept_episode = memory.ledger.open_episode("cli", title="kept")
    kept = say(memory.ledger, kept_episode, "vienna")
    assert _traces(memory.folder)

    purged = memory.ledger.purge(episode_id=episode.episode_id)

    assert (purged.episodes, purged.messages) == (1, 1)
    assert _traces(memory.folder) == []
    assert memory.ledger.history_search(SECRET).total == 0
    assert memory.ledger.content(kept) == "vienna"
    assert memory.ledger.history_search("vienna").total == 1
    with pytest.raises(Miscast):
        memory.ledger.transcript(episode.episode_id)
    assert memory.ledger.reserve() > kept.number, "numbers are not given out again"


def test_purging_contents_keeps_the_history_and_says_why_a_content_is_gone(
    memory: Memory, episode: EpisodeRecord, reopen: Reopen
) -> None:
    message = say(memory.ledger, episode, SECRET, label="report.pdf p. 1")
    other = reopen()
    assert other.ledger.transcript(episode.episode_id).entries
    memory.ledger.purge(episode_id=episode.episode_id, content_only=True)

    assert _traces(memory.folder) == []
    assert [entry.message for entry in other.ledger.transcript(episode.episode_id).entries] == [message]
    with pytest.raises(StorageError) as caught:
        other.ledger.content(message)
    assert caught.value.slug == "content_purged"
    assert "report.pdf p. 1" in caught.value.hint


def test_a_content_shared_with_another_episode_survives_its_purge(
    memory: Memory, episode: EpisodeRecord
) -> None:
    say(memory.ledger, episode, "shared words")
    other = memory.ledger.open_episode("cli")
    kept = say(memory.ledger, other, "shared words")
    memory.ledger.purge(episode_id=episode.episode_id)
    assert memory.ledger.content(kept) == "shared words"
    assert memory.ledger.history_search("shared").total == 1


def test_purging_by_time_takes_what_was_last_used_before(memory: Memory, episode: EpisodeRecord) -> None:
    say(memory.ledger, episode, "old")
    memory.clock.now += 100
    recent = memory.ledger.open_episode("cli")
    say(memory.ledger, recent, "new")
    assert memory.ledger.purge(before=memory.clock.now - 50).episodes == 1
    assert [one.episode_id for one in memory.ledger.episodes()] == [recent.episode_id]
    with pytest.raises(ValueError, match="before"):
        memory.ledger.purge()


def test_the_three_reasons_why_a_content_is_gone(memory: Memory, episode: EpisodeRecord) -> None:
    """An agent retried a dead id 25 times where the reason was not told (headroom 1776)."""
    expired = say(memory.ledger, episode, "old")
    memory.clock.now += 1_000_000
    freed = memory.ledger.retain(unused_seconds=500_000)
    unknown = Message(memory.ledger.reserve(), "tool", "Read", 5, b"")
    memory.ledger.append(episode.episode_id, [Said(unknown)], {})
    lost = say(memory.ledger, episode, "lost")
    memory.blobs.delete([lost.digest])

    assert freed > 0
    for message, slug in (
        (expired, "content_expired"),
        (unknown, "content_unknown"),
        (lost, "content_unknown"),
    ):
        with pytest.raises(StorageError) as caught:
            memory.ledger.content(message)
        assert caught.value.slug == slug
    assert memory.ledger.history_search("old").total == 0


def test_reading_keeps_a_content_alive(memory: Memory, episode: EpisodeRecord) -> None:
    """Originals expired while their marker still stood in context (headroom 714)."""
    read, unread = say(memory.ledger, episode, "read"), say(memory.ledger, episode, "unread")
    memory.clock.now += 400_000
    memory.ledger.content(read)
    memory.clock.now += 400_000
    memory.ledger.retain(unused_seconds=500_000)

    assert memory.ledger.content(read) == "read"
    with pytest.raises(StorageError):
        memory.ledger.content(unread)


def test_contents_of_a_conversation_in_use_do_not_expire(memory: Memory, episode: EpisodeRecord) -> None:
    message = say(memory.ledger, episode, "old but in use")
    memory.clock.now += 1_000_000
    memory.ledger.append(episode.episode_id, [Pinned((message.number,))], {})
    assert memory.ledger.retain(unused_seconds=500_000) == 0
    assert memory.ledger.content(message) == "old but in use"


def test_over_the_quota_the_longest_unused_of_other_conversations_go(memory: Memory) -> None:
    small = Ledger(memory.connections, memory.blobs, quota_bytes=20_000, clock=memory.clock)
    past, present = small.open_episode("cli"), small.open_episode("cli")
    old = []
    for number in range(10):
        memory.clock.now += 1
        old.append(say(small, past, _noise(number)))
    new = [say(small, present, _noise(100 + number)) for number in range(10)]

    assert memory.blobs.stored_bytes() <= 20_000
    assert all(small.content(message) for message in new)
    gone = []
    for message in old:
        try:
            small.content(message)
        except StorageError as error:
            gone.append((message, error.slug))
    assert gone == [(message, "content_expired") for message in old[: len(gone)]]
    assert gone


def _noise(seed: int) -> str:
    import random

    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz ", k=2_000))


def test_what_a_crash_left_unnamed_is_swept_but_not_what_is_being_said(memory: Memory) -> None:
    memory.blobs.put({digest_of("orphan"): "orphan"})
    memory.ledger.retain()
    assert memory.blobs.get(digest_of("orphan")) == "orphan", "it may be named in a moment"
    memory.clock.now += 10_000
    memory.ledger.retain()
    assert memory.blobs.get(digest_of("orphan")) is None


def test_a_content_that_a_purge_took_before_it_was_named_is_stored_again(
    memory: Memory, episode: EpisodeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = memory.blobs.put
    calls: list[int] = []

    def put_then_lose(contents: dict[bytes, str]) -> None:
        put(contents)
        calls.append(1)
        if len(calls) == 1:
            memory.blobs.delete(contents)

    monkeypatch.setattr(memory.blobs, "put", put_then_lose)
    message = say(memory.ledger, episode, "raced")
    assert memory.ledger.content(message) == "raced"


# --- in and out -------------------------------------------------------------------------------------------


def test_an_export_comes_back_as_the_same_conversation_under_new_numbers(
    memory: Memory, episode: EpisodeRecord
) -> None:
    ledger = memory.ledger
    one = say(ledger, episode, "one \ud800 half", role="assistant", kept_thought="why")
    two = say(ledger, episode, "two", invoking=one.number, chunk_ids=(4, 5))
    happened: list[Event] = [
        Forgot((one.number,), summary="s", parts=((two.number, 2),), part_tokens=(90,)),
        Recalled((one.number,)),
    ]
    ledger.append(episode.episode_id, [*happened, Pinned((two.number,)), Sealed("42", ("c4",))], {})
    lines = list(ledger.export_episode(episode.episode_id))
    copy = ledger.import_episode(lines)

    assert copy.title == episode.title and copy.handle != episode.handle
    assert not any(episode.handle in line for line in lines), "the handle lets one resume"
    ours, theirs = ledger.transcript(episode.episode_id), ledger.transcript(copy.episode_id)
    assert (theirs.visible_tokens, theirs.rounds, theirs.sealed) == (ours.visible_tokens, 1, ours.sealed)
    new = [entry.message for entry in theirs.entries]
    assert new[1].invoking == new[0].number > two.number
    assert [ledger.content(message) for message in new] == ["one \ud800 half", "two"]
    assert [entry.forgotten_parts for entry in theirs.entries] == [(), (2,)]
    again = list(ledger.export_episode(copy.episode_id))
    assert len(again) == len(lines)


def test_an_export_can_be_redacted(memory: Memory, episode: EpisodeRecord) -> None:
    say(memory.ledger, episode, f"key {SECRET}", label=SECRET)
    lines = memory.ledger.export_episode(episode.episode_id, redact=lambda text: text.replace(SECRET, "…"))
    assert SECRET not in "".join(lines)


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (lambda lines: [], "bad_import"),
        (lambda lines: ["{}\n"], "bad_import"),
        (lambda lines: [lines[0], lines[1][:40]], "bad_import"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 2'), *lines[1:]], "newer_format"),
        (lambda lines: [lines[0], json.dumps({"said": {"number": 1}})], "bad_import"),
        (lambda lines: [lines[0], "[]"], "bad_import"),
    ],
)
def test_a_wrong_newer_or_half_written_export_is_refused_whole(
    memory: Memory, episode: EpisodeRecord, change: Callable[[list[str]], list[str]], slug: str
) -> None:
    say(memory.ledger, episode, "one")
    lines = list(memory.ledger.export_episode(episode.episode_id))
    with pytest.raises(Miscast) as caught:
        memory.ledger.import_episode(change(lines))
    assert caught.value.slug == slug
    assert len(memory.ledger.episodes()) == 1


# --- sudden death -----------------------------------------------------------------------------------------

SAY_AND_FORGET = """
import sys
from pathlib import Path
from pensieve_mcp.ledger.blobs import Blobs, digest_of
from pensieve_mcp.ledger.events import Forgot, Message, Said
from pensieve_mcp.ledger.store import BASIN, Ledger
from pensieve_mcp.storage import Connections
state = Path(sys.argv[1])
ledger = Ledger(Connections(state / "pensieve.db", basins=(BASIN,), precious=True), Blobs(state / "blobs.db"))
episode = ledger.open_episode("stdio", "host", "crash").episode_id
print("ready", flush=True)
for turn in range(10**6):
    number = ledger.reserve()
    text = f"content of {number} " * 50
    message = Message(number, "tool", "readChunk", 100, digest_of(text))
    ledger.append(episode, [Said(message)], {message.digest: text})
    print("said", number, flush=True)
    ledger.append(episode, [Forgot((number,))], {})
    print("forgot", number, flush=True)
"""


@pytest.mark.parametrize("after", [1, 8, 33])
def test_killed_while_deleting_what_was_confirmed_is_there(
    memory: Memory, child: Callable[..., subprocess.Popen[str]], after: int
) -> None:
    process = child(SAY_AND_FORGET, memory.folder)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    confirmed = [process.stdout.readline() for _ in range(after)]
    process.kill()
    confirmed += process.stdout.readlines()
    process.wait()

    episode = memory.ledger.open_episode("stdio", "host", "crash").episode_id
    transcript = memory.ledger.transcript(episode)
    for line in confirmed:
        if line.endswith("\n"):
            kind, number = line.split()
            entry = transcript.entries[transcript.by_number[int(number)]]
            assert kind == "said" or entry.forgotten
    for entry in transcript.entries:
        assert memory.ledger.content(entry.message) == f"content of {entry.message.number} " * 50
    assert memory.ledger.reserve() > max(transcript.by_number)


def test_two_processes_speak_at_once_and_nothing_is_lost(
    memory: Memory, child: Callable[..., subprocess.Popen[str]]
) -> None:
    program = SAY_AND_FORGET.replace("10**6", "50").replace('"crash"', "sys.argv[2]")
    for process in [child(program, memory.folder, name) for name in "ab"]:
        _, complaint = process.communicate()
        assert process.returncode == 0, complaint
    numbers: list[int] = []
    for name in "ab":
        transcript = memory.ledger.transcript(memory.ledger.open_episode("stdio", "host", name).episode_id)
        assert all(entry.forgotten for entry in transcript.entries)
        numbers += transcript.by_number
    assert sorted(numbers) == list(range(1, 101))

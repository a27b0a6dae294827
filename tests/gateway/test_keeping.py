"""Server and gateway meet in the ledger: handles are valid, contents come back, the budget is the real one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from talks import FACTS, Step, Talk

from pensieve_mcp.budget import SeenCall, Share, Sighting, TurnSeen
from pensieve_mcp.episode import Calling, Episode
from pensieve_mcp.gateway.keeping import Keeper
from pensieve_mcp.gateway.rewrite import Report, rewrite
from pensieve_mcp.gateway.seeing import MOST_TURNS
from pensieve_mcp.gateway.threads import Thread, thread_of
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.ledger.hostnames import host_handle
from pensieve_mcp.ledger.parts import split_parts
from pensieve_mcp.spellbook.casting import CastResult, cast
from pensieve_mcp.wire.calls import Call, arguments_digest
from pensieve_mcp.wire.names import own_tool
from pensieve_mcp.wire.usage import Usage
from pensieve_mcp.workspace import Workspace

CLAUDE = Thread("claude-code", "session-1", is_shared=True)
HOST_TEXT = "\n".join(f"row {n} of the host's file" for n in range(300))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "light.md").write_text("# The light\n\nThe keeper used 412 barrels of oil.\n", encoding="utf-8")
    home = {"PENSIEVE_HOME": str(tmp_path / "home"), "PENSIEVE_UPGRADE": "false"}
    with Workspace.open([folder], environment=home, builder="inline") as opened:
        opened.build_now()
        yield opened


@pytest.fixture
def keeper(workspace: Workspace) -> Iterator[Keeper]:
    made = Keeper(lambda: workspace, Policy("eager"), own_tool=own)
    yield made
    made._pool.shutdown(wait=True)  # the workspace is the fixture's to close


def seen(
    keeper: Keeper, talk: Talk, thread: Thread = CLAUDE, usage: Usage | None = None, turn: str = ""
) -> Report:
    """One request passes, and what it leads to is written."""
    _, report = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"), handle_tokens=100)
    keeper.saw_request(report, thread)
    written = keeper.saw_answer(report, thread, usage, turn)
    assert written is not None
    written.result(30)
    return report


def do(
    episode: Episode, talk: Talk, name: str, *, past: Keeper | None = None, **arguments: Any
) -> CastResult:
    """A cast by the server, and its place in the host's conversation. `past` is the gateway that its call passes."""
    call_id = f"call_{len(talk.steps):04}"
    if past is not None:
        passes(past, talk, Call(call_id, f"mcp__pensieve__{name}", "", arguments_digest(arguments)))
    done = cast(episode, name, arguments, host_call_id=call_id)
    talk.own(name, arguments, "")
    talk.steps[-1].result = done.text
    talk.steps[-1].is_error = done.is_error
    return done


def passes(
    keeper: Keeper,
    talk: Talk,
    *calls: Call,
    thread: Thread = CLAUDE,
    turn: str = "t#1",
    usage: Usage | None = None,
) -> None:
    """The model's answer to the conversation holds these calls, and passes the gateway."""
    _, report = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"), handle_tokens=100)
    written = keeper.saw_calls(report, thread, turn, calls, usage)
    assert written is not None
    written.result(30)


def own(name: str, namespace: str) -> str | None:
    return own_tool(name, namespace, FACTS.servers, FACTS.tools)


def episode_of(workspace: Workspace, thread: Thread = CLAUDE) -> Episode:
    return workspace.episode("mcp", host=thread.host, thread=thread.name)


def held_up(keeper: Keeper, workspace: Workspace) -> tuple[threading.Event, threading.Event]:
    """The ledger opens late: the first event is set when the keeper waits for it, the second lets it go on."""
    opened, go_on = threading.Event(), threading.Event()

    def slowly() -> Workspace:
        opened.set()
        assert go_on.wait(60)
        return workspace

    keeper._open = slowly
    return opened, go_on


def test_a_hosts_result_is_deleted_and_restored_by_its_handle(workspace: Workspace, keeper: Keeper) -> None:
    talk = Talk()
    talk.host(HOST_TEXT)
    handle = seen(keeper, talk).host_results[0].handle
    episode = episode_of(workspace)

    deleted = do(episode, talk, "deleteContext", past=keeper, msg_id=handle)
    assert not deleted.is_error and deleted.result["deleted"][0]["msg_id"] == handle
    assert deleted.result["physical"] == "yes"
    report = seen(keeper, talk)
    assert [m.handle for m in report.messages if m.state == "forgotten"] == [handle]

    restored = do(episode, talk, "restoreContext", past=keeper, msg_id=handle)
    assert f"Restored {handle} in its old place." in restored.text and HOST_TEXT not in restored.text
    assert seen(keeper, talk).stubbed == 0


def test_what_the_host_no_longer_holds_is_restored_with_its_words(
    workspace: Workspace, keeper: Keeper
) -> None:
    """After a compaction of the host there is no old place."""
    talk = Talk()
    talk.host(HOST_TEXT)
    handle = seen(keeper, talk).host_results[0].handle
    do(episode_of(workspace), talk, "deleteContext", msg_id=handle)
    fresh = Talk()
    fresh.host("small")
    fresh.host("what the compaction left " * 60, "Bash", command="ls")
    seen(keeper, fresh)

    restored = do(episode_of(workspace), fresh, "restoreContext", past=keeper, msg_id=handle)
    assert HOST_TEXT[:3_000] in restored.text


def test_a_handle_of_another_conversation_is_unknown(workspace: Workspace, keeper: Keeper) -> None:
    talk = Talk()
    talk.host(HOST_TEXT)
    handle = seen(keeper, talk).host_results[0].handle
    other = episode_of(workspace, Thread("claude-code", "session-2", is_shared=True))

    refused = cast(other, "deleteContext", {"msg_id": handle})
    assert refused.is_error and refused.slug == "no_such_message"


def test_two_subagents_results_with_one_short_name_are_told_apart(
    workspace: Workspace, keeper: Keeper
) -> None:
    """Each conversation gave its own result the name; the server sees both in one episode."""
    first: dict[str, str] = {}
    calls = next(
        (first[name], call_id)
        for call_id in (f"toolu_{n}" for n in range(10_000))
        for name in (host_handle(call_id),)
        if first.setdefault(name, call_id) != call_id
    )
    talks = []
    for call_id, words in zip(calls, ("left row\n" * 300, "right row\n" * 300), strict=True):
        talk = Talk([Step(call_id, "Read", {"file_path": words[:5]}, words, host=True)])
        handle = seen(keeper, talk).host_results[0].handle
        talks.append(talk)
    episode = episode_of(workspace)

    refused = do(episode, talks[0], "deleteContext", past=keeper, msg_id=handle)
    assert refused.is_error and refused.slug == "ambiguous_handle"
    names = re.findall(r"h[0-9a-f]{5,}", refused.text)
    assert len(names) == 2 and names[0] != names[1]
    assert [seen(keeper, talk).stubbed for talk in talks] == [0, 0]

    own = next(name for name in names if name == host_handle(calls[0], len(name) - 1))
    deleted = do(episode, talks[0], "deleteContext", past=keeper, msg_id=own)
    assert not deleted.is_error and [seen(keeper, talk).stubbed for talk in talks] == [1, 0]
    states = {e.message.host_call_id: e.forgotten for e in episode.transcript().entries if e.message.handle}
    assert states == {calls[0]: True, calls[1]: False}
    restored = do(episode, talks[0], "restoreContext", past=keeper, msg_id=own)
    assert not restored.is_error and seen(keeper, talks[0]).stubbed == 0


def test_a_part_is_deleted_and_restored_by_server_and_gateway_alike(
    workspace: Workspace, keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "archive" / "long.md").write_text(
        "\n".join(f"Barrel {n} came ashore." for n in range(300)), encoding="utf-8"
    )
    workspace.build_now()
    episode, talk = episode_of(workspace), Talk()
    seen(keeper, talk)
    found = do(episode, talk, "searchEngine", keyword="Barrel")
    read = do(episode, talk, "readChunk", chunk_id=re.search(r"\bc(\d+)\b", found.text)[1])  # type: ignore[index]
    number = int(re.match(r"m(\d+)", read.text)[1])  # type: ignore[index]
    seen(keeper, talk)
    call_id = talk.steps[-1].call_id

    def standing() -> tuple[str, tuple[int, ...]]:
        body, _ = rewrite(talk.body("chat"), "chat", FACTS, Policy("eager"))
        words = next(m["content"] for m in json.loads(body)["messages"] if m.get("tool_call_id") == call_id)
        transcript = episode.transcript()
        return words, transcript.entries[transcript.by_number[number]].forgotten_parts

    whole = read.text
    parts = split_parts(whole)
    assert len(parts) > 2
    do(episode, talk, "deleteContext", past=keeper, msg_id=f"m{number}.2,m{number}.3")
    words, gone = standing()
    assert gone == (2, 3) and parts[1] not in words and parts[2] not in words and parts[0] in words
    seen(keeper, talk)
    back = do(episode, talk, "restoreContext", past=keeper, msg_id=f"m{number}.3")
    assert f"Restored m{number}.3 in its old place." in back.text
    words, gone = standing()
    assert gone == (2,) and parts[1] not in words and parts[2] in words
    do(episode, talk, "deleteContext", past=keeper, msg_id=f"m{number}")
    seen(keeper, talk)
    do(episode, talk, "restoreContext", past=keeper, msg_id=f"m{number}.1")
    words, gone = standing()
    assert gone == tuple(range(2, len(parts) + 1)) and words.startswith(parts[0]) and parts[2] not in words
    do(episode, talk, "restoreContext", past=keeper, msg_id=f"m{number}")
    assert standing() == (whole, ())


def test_a_host_that_names_no_thread_to_the_server_is_found_by_our_messages(
    workspace: Workspace, keeper: Keeper
) -> None:
    """opencode: its server process is one episode; before our first call there, host results wait."""
    unnamed = Thread("opencode", "ses_1")
    episode = workspace.episode("mcp", host="opencode")
    talk = Talk()
    talk.host(HOST_TEXT)
    report = seen(keeper, talk, unnamed)
    do(episode, talk, "readChunk", chunk_id="1")
    seen(keeper, talk, unnamed)

    assert not cast(episode, "deleteContext", {"msg_id": report.host_results[0].handle}).is_error


def test_a_conversation_of_another_workspace_is_not_taken_for_one_of_ours(
    workspace: Workspace, keeper: Keeper
) -> None:
    """Its numbers are those of our ledger, its words are not."""
    episode = workspace.episode("mcp", host="opencode")
    ours = Talk()
    do(episode, ours, "readChunk", chunk_id="1")
    foreign = Talk()
    foreign.read("words of another workspace")
    foreign.host(HOST_TEXT)
    seen(keeper, foreign, Thread("opencode", "ses_9"))

    assert episode.sighting() is None
    assert all(e.message.handle is None for e in episode.transcript().entries)


def test_each_host_result_is_written_once_also_by_a_second_gateway(
    workspace: Workspace, keeper: Keeper
) -> None:
    talk = Talk()
    talk.host(HOST_TEXT)
    seen(keeper, talk)
    seen(keeper, talk)
    second = Keeper(lambda: workspace, Policy("eager"))
    seen(second, talk)
    second._pool.shutdown(wait=True)
    handles = [e.message.handle for e in episode_of(workspace).transcript().entries]

    assert (
        len(handles) == 1
        and workspace.ledger.content(workspace.ledger.find(handles[0] or "").message) == HOST_TEXT
    )


def test_the_budget_is_the_conversations(workspace: Workspace, keeper: Keeper) -> None:
    talk = Talk()
    episode = episode_of(workspace)
    do(episode, talk, "readChunk", chunk_id="1")
    assert cast(episode, "checkBudget", {}).result["sees"] == "tool traffic"
    talk.host(HOST_TEXT)
    report = seen(keeper, talk, usage=Usage(50_000, 40_000, 0, 500))

    passes(keeper, talk, Call("call_9", "mcp__pensieve__checkBudget", "", arguments_digest({})))
    seen(keeper, talk, usage=Usage(50_000, 40_000, 0, 500), turn="t#1")
    told = cast(episode, "checkBudget", {}, host_call_id="call_9")
    assert told.result["sees"] == "conversation"
    assert 50_500 <= told.result["used_tokens"] < 51_500 and told.result["peak_tokens"] >= 50_000
    assert told.result["heaviest"][0]["msg_id"] == report.host_results[0].handle
    assert "the provider's count" in told.text


def test_a_host_that_leaves_the_gateway_is_told_no_from_its_next_call_on(
    workspace: Workspace, keeper: Keeper
) -> None:
    """The gateway sees each call in the model's answer before the host makes it; one it has not seen went elsewhere."""
    talk = Talk()
    episode = episode_of(workspace)
    do(episode, talk, "readChunk", past=keeper, chunk_id="1")
    do(episode, talk, "readChunk", past=keeper, chunk_id="1")
    assert do(episode, talk, "deleteContext", past=keeper, msg_id="m2").result["physical"] == "yes"
    keeper._policy = Policy("batched")
    assert do(episode, talk, "deleteContext", past=keeper, msg_id="m2").result["physical"] == "pending"

    left = do(episode, talk, "deleteContext", msg_id="m4")
    assert left.result["physical"] == "no" and left.result["still_in_prompt_tokens"] > 0
    assert do(episode, talk, "checkBudget").result["sees"] == "tool traffic"
    restored = do(episode, talk, "restoreContext", msg_id="m4")
    assert "412 barrels" in restored.text  # nobody puts it back in its place
    back = do(episode, talk, "deleteContext", past=keeper, msg_id="m4")
    assert back.result["physical"] == "pending"


def test_where_the_host_names_no_calls_each_one_seen_counts_for_one_made(
    workspace: Workspace, keeper: Keeper
) -> None:
    """opencode tells the server no ids: tool and arguments, whatever their order, and how often."""
    thread = Thread("opencode", "ses_1")
    episode = workspace.episode("mcp", host="opencode")
    talk = Talk()
    do(episode, talk, "readChunk", chunk_id="1")
    arguments = {"msg_id": "m2", "keep_thought": False}
    call = Call("toolu_1", "pensieve_deleteContext", "", arguments_digest(arguments))
    passes(keeper, talk, call, thread=thread, turn="ses_1#1")

    swapped = dict(reversed(arguments.items()))
    assert cast(episode, "deleteContext", swapped).result["physical"] == "yes"
    assert cast(episode, "deleteContext", arguments).result["physical"] == "no"
    passes(keeper, talk, call, thread=thread, turn="ses_1#2")
    other = Call("toolu_2", "pensieve_readNote", "", arguments_digest({}))
    passes(keeper, talk, other, thread=thread, turn="ses_1#3")  # the call before was refused by the person
    assert cast(episode, "deleteContext", arguments).result["physical"] == "no"
    assert cast(episode, "deleteContext", {"msg_id": "m2"}).result["physical"] == "no"


def asks(talk: Talk, tool: str, call_id: str, **arguments: Any) -> Call:
    """A call that the model writes next; `answered` gives its result."""
    talk.own(tool, arguments, "")
    talk.steps[-1].call_id = call_id
    return Call(call_id, f"mcp__pensieve__{tool}", "", arguments_digest(arguments))


def answered(episode: Episode, talk: Talk, call_id: str | None = None) -> CastResult:
    step = talk.steps[-1]
    done = cast(episode, step.tool, step.arguments, host_call_id=call_id)
    step.result = done.text
    return done


def used(done: CastResult) -> int:
    assert not done.is_error and done.result["sees"] == "conversation"
    return int(done.result["used_tokens"])


def test_each_of_several_subagents_at_once_is_told_its_own_size(workspace: Workspace, keeper: Keeper) -> None:
    """One session, one episode: whoever asks is not whoever spoke last."""
    episode = episode_of(workspace)
    main, left, right = Talk(), Talk(), Talk()
    do(episode, main, "readChunk", past=keeper, chunk_id="1")
    for talk, name, size in ((left, "l", 50_000), (right, "r", 10_000)):
        said = Talk()  # what the request held: nothing yet
        call = asks(talk, "checkBudget", f"{name}1")
        passes(keeper, said, call, turn=f"session-1#{name}1", usage=Usage(size, 0, 0, 100))

    assert used(answered(episode, left, "l1")) == 50_100
    assert used(answered(episode, right, "r1")) == 10_100, "nothing of the others' calls is in its prompt"

    read = [asks(left, "readChunk", "l2", chunk_id="1"), Call("l3", "mcp__pensieve__checkBudget", "", "")]
    before = Talk(left.steps[:-1])
    passes(keeper, before, *read, turn="session-1#l2", usage=Usage(51_000, 0, 0, 100))
    call = asks(right, "checkBudget", "r2")
    passes(keeper, Talk(right.steps[:-1]), call, turn="session-1#r2", usage=Usage(11_000, 0, 0, 100))
    answered(episode, left, "l2")
    told = cast(episode, "checkBudget", {}, host_call_id="l3")
    own = [e.message.tokens for e in episode.transcript().entries if e.message.host_call_id == "l2"]
    assert used(told) == 51_100 + sum(own) and sum(own) > 20
    assert used(answered(episode, right, "r2")) == 11_100


def test_what_stands_in_the_askers_prompt_is_restored_in_place_though_another_spoke_last(
    workspace: Workspace, keeper: Keeper
) -> None:
    episode = episode_of(workspace)
    left, right = Talk(), Talk()
    left.host(HOST_TEXT)
    handle = seen(keeper, left).host_results[0].handle
    do(episode, left, "deleteContext", past=keeper, msg_id=handle)
    call = asks(left, "restoreContext", "l1", msg_id=handle)
    passes(keeper, Talk(left.steps[:-1]), call, turn="session-1#l1")
    passes(keeper, right, asks(right, "readNote", "r1"), turn="session-1#r1")

    assert f"Restored {handle} in its old place." in answered(episode, left, "l1").text


def test_without_ids_of_calls_siblings_that_ask_the_same_at_once_are_told_the_largest_size_and_why(
    workspace: Workspace, keeper: Keeper
) -> None:
    """opencode names no call to the server; one sibling goes on while the other still waits for its answer."""
    main = Thread("opencode", "ses_0")
    episode = workspace.episode("mcp", host="opencode")
    talks = [Talk(), Talk()]
    first = Talk()
    do(episode, first, "readChunk", chunk_id="1")
    seen(keeper, first, main)
    threads = [Thread("opencode", f"ses_{n}", parent="ses_0") for n in (1, 2)]
    for number, (talk, thread) in enumerate(zip(talks, threads, strict=True), 1):
        call = asks(talk, "checkBudget", f"c{number}")
        usage = Usage(30_000 - 10_000 * number, 0, 0, 100)
        passes(keeper, Talk(), call, thread=thread, turn=f"ses_{number}#1", usage=usage)

    told = answered(episode, talks[1])
    assert used(told) == 20_100 and "2 conversations of this session asked at the same moment" in told.text
    told = answered(episode, talks[0])
    assert used(told) == 20_100
    seen(keeper, talks[0], threads[0], Usage(20_500, 0, 0, 5))  # one has its answer and goes on
    talks[1].steps.pop()
    call = asks(talks[1], "checkBudget", "c3")
    passes(keeper, Talk(), call, thread=threads[1], turn="ses_2#2", usage=Usage(11_000, 0, 0, 100))
    told = answered(episode, talks[1])
    assert used(told) == 11_100 and "at the same moment" not in told.text


def test_a_sibling_that_goes_on_does_not_make_the_others_call_unseen(
    workspace: Workspace, keeper: Keeper
) -> None:
    main = Thread("opencode", "ses_0")
    episode = workspace.episode("mcp", host="opencode")
    first = Talk()
    do(episode, first, "readChunk", chunk_id="1")
    seen(keeper, first, main)
    talks = [Talk(), Talk()]
    threads = [Thread("opencode", f"ses_{n}", parent="ses_0") for n in (1, 2)]
    for number, (talk, thread) in enumerate(zip(talks, threads, strict=True), 1):
        call = asks(talk, "checkBudget", f"c{number}")
        passes(keeper, Talk(), call, thread=thread, turn=f"ses_{number}#1", usage=Usage(number, 0, 0, 100))

    answered(episode, talks[0])
    seen(keeper, talks[0], threads[0])
    assert used(answered(episode, talks[1])) == 102


def opencode(workspace: Workspace, keeper: Keeper) -> tuple[Episode, Talk, list[Thread]]:
    """An episode, its main conversation, and how that and two sub-agents are named to the model's API."""
    threads = [Thread("opencode", f"ses_{n}", parent="ses_0" if n else "") for n in range(3)]
    episode, talk = workspace.episode("mcp", host="opencode"), Talk()
    do(episode, talk, "readChunk", chunk_id="1")
    seen(keeper, talk, threads[0])
    return episode, talk, threads


def goes_on(
    keeper: Keeper, talk: Talk, call_id: str, thread: Thread, turn: str, size: int, *, result_id: str = ""
) -> Report:
    """The model of this conversation asks for the budget, and its answer has passed to its end."""
    said = Talk(talk.steps[:])
    call = asks(talk, "checkBudget", call_id)
    passes(keeper, said, call, thread=thread, turn=turn, usage=Usage(size, 0, 0, 0))
    talk.steps[-1].call_id = result_id or call_id
    return seen(keeper, said, thread, Usage(size, 0, 0, 0), turn)


def test_a_server_that_gives_each_turns_calls_the_same_ids_makes_none_of_them_unseen(
    workspace: Workspace, keeper: Keeper
) -> None:
    episode, talk, (main, *_) = opencode(workspace, keeper)
    for number in range(3):
        goes_on(keeper, talk, "call_0", main, f"ses_0#a-{number}", 100 + number)
        assert used(answered(episode, talk)) == 100 + number


def test_a_server_that_counts_the_calls_of_each_conversation_anew_mixes_up_no_siblings(
    workspace: Workspace, keeper: Keeper
) -> None:
    episode, _, (_, *subs) = opencode(workspace, keeper)
    talks = [Talk(), Talk()]
    for number, (talk, thread) in enumerate(zip(talks, subs, strict=True), 1):
        goes_on(keeper, talk, "functions.checkBudget:0", thread, f"{thread.name}#a-{number}", 100 + number)
    answered(episode, talks[0])
    goes_on(keeper, talks[0], "functions.checkBudget:1", subs[0], "ses_1#a-3", 300)
    answered(episode, talks[0])
    seen(keeper, talks[0], subs[0], Usage(400, 0, 0, 0), "ses_1#a-4")
    assert used(answered(episode, talks[1])) == 102


def test_subagents_whose_calls_have_the_same_ids_are_told_what_one_of_them_has_not_the_last_speakers(
    workspace: Workspace, keeper: Keeper
) -> None:
    """Under one name, as Claude Code's are; whose the result was that came is not to be known."""
    episode, talks = episode_of(workspace), [Talk(), Talk()]
    for number, talk in enumerate(talks, 1):
        goes_on(keeper, talk, "functions.checkBudget:0", CLAUDE, f"session-1#a-{number}", 100 + number)
    answered(episode, talks[0], "functions.checkBudget:0")
    seen(keeper, talks[0], CLAUDE, Usage(900, 0, 0, 0), "session-1#a-3")
    told = answered(episode, talks[1], "functions.checkBudget:0")
    assert used(told) == 102 and "at the same moment" in told.text


def test_a_host_that_writes_the_ids_of_calls_otherwise_in_its_history_makes_no_sibling_unseen(
    workspace: Workspace, keeper: Keeper
) -> None:
    episode, _, (_, *subs) = opencode(workspace, keeper)
    talks = [Talk(), Talk()]
    for number, (talk, thread) in enumerate(zip(talks, subs, strict=True), 1):
        turn = f"{thread.name}#a-{number}"
        goes_on(keeper, talk, f"check:{number}", thread, turn, 100 + number, result_id=f"check_{number}")
    answered(episode, talks[0])
    seen(keeper, talks[0], subs[0], Usage(300, 0, 0, 0), "ses_1#a-3")
    assert used(answered(episode, talks[1])) == 102


def test_a_subagent_that_was_stopped_in_a_call_does_not_lend_its_figures_for_ever(
    workspace: Workspace, keeper: Keeper
) -> None:
    episode, talk, (main, stopped, _) = opencode(workspace, keeper)
    goes_on(keeper, Talk(), "s1", stopped, "ses_1#a-1", 150_000)
    sighting = Sighting.from_extra(workspace.ledger.extra(episode.episode_id))
    assert sighting is not None
    long_ago = replace(sighting, calls=tuple(replace(one, at=one.at - 600) for one in sighting.calls))
    workspace.ledger.set_extra(episode.episode_id, gateway=long_ago.to_extra())
    for number in range(70):  # more than are remembered as made
        goes_on(keeper, talk, f"m{number}", main, f"ses_0#a-{number + 2}", 20_000)
        told = answered(episode, talk)
        assert used(told) == 20_000 and "at the same moment" not in told.text


def test_the_end_of_an_answer_that_is_seen_after_the_next_answer_makes_no_call_unseen(
    workspace: Workspace, keeper: Keeper
) -> None:
    """Some servers leave the connection open for a while after the last word."""
    episode, talk, (main, *_) = opencode(workspace, keeper)
    before = Talk(talk.steps[:])
    goes_on(keeper, talk, "c1", main, "ses_0#a-9", 100)
    answered(episode, talk)
    goes_on(keeper, talk, "c2", main, "ses_0#a-10", 200)
    seen(keeper, before, main, Usage(100, 0, 0, 0), "ses_0#a-9")
    assert used(answered(episode, talk)) == 200


def test_a_second_gateway_on_the_same_session_makes_no_call_unseen(
    workspace: Workspace, keeper: Keeper
) -> None:
    episode, talk = episode_of(workspace), Talk()
    goes_on(keeper, talk, "a1", CLAUDE, "session-1#a-1", 100)
    answered(episode, talk, "a1")
    second = Keeper(lambda: workspace, Policy("eager"), own_tool=own)
    goes_on(second, talk, "b1", CLAUDE, "session-1#b-1", 500)
    second._pool.shutdown(wait=True)
    goes_on(keeper, Talk(), "a2", CLAUDE, "session-1#a-2", 100)
    assert used(answered(episode, talk, "b1")) == 500


def test_a_slow_ledger_does_not_lose_what_the_askers_prompt_is_made_of(
    workspace: Workspace, keeper: Keeper
) -> None:
    opened, go_on = held_up(keeper, workspace)
    talk = Talk()
    talk.host(HOST_TEXT)
    _, report = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"), handle_tokens=100)
    keeper.saw_answer(report, CLAUDE, None, urgent=True)
    assert opened.wait(60)
    call = Call("l1", "mcp__pensieve__checkBudget", "", arguments_digest({}))
    keeper.saw_calls(report, CLAUDE, "session-1#a-1", [call], None)
    keeper.saw_answer(report, CLAUDE, Usage(5_000, 0, 0, 0), "session-1#a-1", urgent=True)
    _, report = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"), handle_tokens=100)
    written = keeper.saw_answer(report, CLAUDE, Usage(300, 0, 0, 0), "session-1#a-2")
    go_on.set()
    assert written is not None
    written.result(30)
    told = cast(episode_of(workspace), "checkBudget", {}, host_call_id="l1")
    assert used(told) == 5_000 and sum(one["tokens"] for one in told.result["heaviest"]) > 4_500


def test_many_subagents_and_many_calls_at_once_are_all_known(workspace: Workspace, keeper: Keeper) -> None:
    episode = episode_of(workspace)
    talks = [Talk() for _ in range(MOST_TURNS + 4)]
    for number, talk in enumerate(talks):
        goes_on(keeper, talk, f"c{number}", CLAUDE, f"session-1#a-{number}", 100 + number)
    told = [used(answered(episode, talk, f"c{number}")) for number, talk in enumerate(talks)]
    assert told == [100 + number for number in range(len(talks))]

    many = [Call(f"x{number}", "mcp__pensieve__readNote", "", "") for number in range(100)]
    passes(keeper, Talk(), *many, turn="session-1#a-99")
    assert all(
        episode.during(Calling("readNote", {}, call_id)).physical() == "yes"
        for call_id in ("c0", "x0", "x99")
    )


def test_a_server_that_begins_its_count_with_zero_is_not_believed(
    workspace: Workspace, keeper: Keeper
) -> None:
    """It tells the size at the end of its answer, and some hosts make a call before that."""
    talk = Talk()
    talk.host(HOST_TEXT)
    said = Talk(talk.steps[:])
    passes(keeper, said, asks(talk, "checkBudget", "c1"), turn="session-1#a-1", usage=Usage(0, 0, 0, 0))
    told = answered(episode_of(workspace), talk, "c1")
    assert used(told) > 1_000 and "estimated from its size" in told.text


def test_half_a_surrogate_pair_in_a_hosts_command_does_not_keep_the_budget_from_being_told(
    workspace: Workspace, keeper: Keeper
) -> None:
    talk = Talk()
    talk.host(HOST_TEXT, "Bash", command="echo \ud800 x")
    body = talk.body("anthropic", ascii_only=True)
    _, report = rewrite(body, "anthropic", FACTS, Policy("eager"), handle_tokens=100)
    call = Call("c1", "mcp__pensieve__checkBudget", "", arguments_digest({}))
    written = keeper.saw_calls(report, CLAUDE, "session-1#a-1", [call], None)
    assert written is not None
    written.result(30)
    told = cast(episode_of(workspace), "checkBudget", {}, host_call_id="c1")
    assert "echo ? x" in told.text and told.text.encode()


def test_what_is_purged_is_purged_from_what_the_gateway_saw_too(workspace: Workspace, keeper: Keeper) -> None:
    talk = Talk()
    talk.host(HOST_TEXT, "Bash", command="grep zanzibarquux")
    call = Call("c1", "mcp__pensieve__checkBudget", "", arguments_digest({}))
    passes(keeper, talk, call, turn="session-1#a-1")
    episode = episode_of(workspace)
    (entry,) = episode.transcript().entries
    workspace.ledger.purge_messages([entry.message.number], lambda text: "zanzibarquux" in text)
    assert "zanzibarquux" not in json.dumps(workspace.ledger.extra(episode.episode_id))
    told = cast(episode, "checkBudget", {}, host_call_id="c1")
    assert "conversation" in told.text and "zanzibarquux" not in told.text


def test_a_conversation_that_is_purged_while_it_goes_on_is_seen_again(
    workspace: Workspace, keeper: Keeper
) -> None:
    """The server begins a new episode for it, and so must the gateway."""
    talk = Talk()
    goes_on(keeper, talk, "a1", CLAUDE, "session-1#a-1", 100)
    answered(episode_of(workspace), talk, "a1")
    workspace.ledger.purge(episode_id=episode_of(workspace).episode_id)
    goes_on(keeper, talk, "a2", CLAUDE, "session-1#a-2", 200)
    assert used(answered(episode_of(workspace), talk, "a2")) == 200


def test_of_calls_that_are_made_no_figures_are_kept(workspace: Workspace, keeper: Keeper) -> None:
    episode = episode_of(workspace)
    talk = Talk()
    for number in range(100):
        call = asks(talk, "checkBudget", f"c{number}")
        passes(keeper, Talk(talk.steps[:-1]), call, turn=f"session-1#{number}")
        answered(episode, talk, f"c{number}")
    sighting = Sighting.from_extra(workspace.ledger.extra(episode.episode_id))
    assert sighting is not None
    assert [one.turn for one in sighting.turns] == ["session-1#99"]
    assert [one.call_id for one in sighting.calls] == ["c99"] and len(sighting.made) == 64


def test_calls_of_other_servers_are_not_noted(keeper: Keeper) -> None:
    _, report = rewrite(Talk().body("anthropic"), "anthropic", FACTS, Policy("eager"))
    foreign = [Call("a", "mcp__other__deleteContext", "", "x"), Call("b", "deleteContext", "", "x")]
    assert keeper.saw_calls(report, CLAUDE, "t#1", foreign, None) is None


def test_beside_a_call_physical_is_said_by_what_was_seen_lately(
    workspace: Workspace, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk()
    episode = episode_of(workspace)
    do(episode, talk, "readChunk", chunk_id="1")
    assert episode.physical() == "no"
    seen(keeper, talk)
    assert episode.physical() == "yes"
    keeper._policy = Policy("batched")
    seen(keeper, talk)
    assert episode.physical() == "pending"

    for _ in range(20):  # turns that no gateway saw
        cast(episode, "readNote", {})
    assert episode.physical() == "no"
    seen(keeper, talk)
    assert episode.physical() == "pending"
    monkeypatch.setattr("pensieve_mcp.episode._BEGAN", 4e9)  # the host was started anew, without a gateway
    assert episode.physical() == "no"


def test_what_a_newer_gateway_writes_is_no_error(workspace: Workspace) -> None:
    assert Sighting.from_extra({"gateway": {"at": 1.0, "unheard_of": [1]}}) == Sighting(1.0)
    assert Sighting.from_extra({"gateway": {"policy": "eager"}}) is None
    assert Sighting.from_extra({"gateway": 7}) is None
    assert Sighting.from_extra({"gateway": {"at": 1.0, "calls": [["unheard of"]]}}) is None
    assert Sighting.from_extra({"gateway": {"at": 1.0, "turns": [[], 7]}}) is None
    call = SeenCall(1.0, "t#1", "toolu_1", "readChunk", "abc")
    share = Share("m2", "result", "readChunk c1", 1, 20)
    turn = TurnSeen("t#1", 10, 2, True, 0, "", "1-2", 2, (share,))
    kept = Sighting(1.0, calls=(call,), made=(call,), shares=(share,), turns=(turn,))
    assert Sighting.from_extra({"gateway": json.loads(json.dumps(kept.to_extra()))}) == kept


def test_a_slow_ledger_holds_one_body_of_a_conversation_and_loses_nothing(
    workspace: Workspace, keeper: Keeper
) -> None:
    opened, go_on = held_up(keeper, workspace)
    talk, sub = Talk(), Talk()
    sub.host(HOST_TEXT.replace("row", "line"), path="of a sub-agent")
    sub.steps[0].call_id = "call_of_sub"
    for turn in range(6):
        talk.host(f"{turn} {HOST_TEXT}", path=f"f{turn}")
        for said in (talk, sub):
            body = said.body("anthropic")
            _, report = rewrite(body, "anthropic", FACTS, Policy("eager"), handle_tokens=100)
            keeper.saw_request(report, CLAUDE)
            written = keeper.saw_answer(report, CLAUDE, Usage(1_000 + turn, 0, 0, 1))
            keeper.hurry()
            assert opened.wait(60)
    waiting = [one.report for one in keeper._waiting]
    assert sum(report.conversation is not None for report in waiting) <= 7, (
        "those of the sub-agent, and the last"
    )
    go_on.set()
    assert written is not None
    written.result(30)

    episode = episode_of(workspace)
    contents = {workspace.ledger.content(one.message) for one in episode.transcript().entries}
    assert contents == {f"{turn} {HOST_TEXT}" for turn in range(6)} | {HOST_TEXT.replace("row", "line")}
    sighting = episode.sighting()
    assert sighting is not None and (sighting.requests, sighting.peak) == (12, 1_005)


def test_an_error_of_the_ledger_is_kept_for_the_summary() -> None:
    def broken() -> Workspace:
        raise RuntimeError("no ledger")

    keeper = Keeper(broken, Policy())
    talk = Talk()
    talk.host(HOST_TEXT)
    seen(keeper, talk)
    keeper.close()
    assert keeper.totals.troubles == ["RuntimeError: no ledger"]


def test_the_conversation_is_named_by_the_headers_that_hosts_send() -> None:
    assert thread_of({b"x-claude-code-session-id": b"aa-1"}, "") == Thread("claude-code", "aa-1", True)
    assert thread_of({b"thread-id": b"01a", b"session-id": b"01b"}, "01c") == Thread(
        "codex", "01a", True, is_lasting=True
    )
    assert thread_of({b"user-agent": b"claude-cli/2"}, "bb-2") == Thread("claude-code", "bb-2", True)
    assert thread_of({b"user-agent": b"opencode/1", b"x-session-id": b"ses_1"}, "") == Thread(
        "opencode", "ses_1"
    )
    begun = {b"user-agent": b"opencode/1", b"x-session-id": b"ses_2", b"x-parent-session-id": b"ses_1"}
    assert thread_of(begun, "").parent == "ses_1"
    assert thread_of({b"x-claude-code-session-id": b"a b\n"}, "x" * 300) == Thread()


def test_a_cycle_ends_with_the_deleted_text_gone(workspace: Workspace, keeper: Keeper) -> None:
    """The server's own result, found by its handle line, as any host shows it."""
    talk = Talk()
    episode = episode_of(workspace)
    do(episode, talk, "readChunk", chunk_id="1")
    number = int(re.match(r"m(\d+)", talk.steps[-1].result)[1])  # type: ignore[index]
    do(episode, talk, "deleteContext", msg_id=f"m{number}")
    out, _ = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"))

    assert b"412 barrels" not in out and b"412 barrels" in talk.body("anthropic")
    do(episode, talk, "restoreContext", msg_id=f"m{number}")
    out, _ = rewrite(talk.body("anthropic"), "anthropic", FACTS, Policy("eager"))
    assert out == talk.body("anthropic")
    json.loads(out)

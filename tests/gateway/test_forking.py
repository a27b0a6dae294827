"""Forks and sub-agents in the ledger: a fork has what it holds, and no other conversation's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from talks import Talk
from test_keeping import HOST_TEXT, do, keeper, own, passes, seen, workspace

from pensieve_mcp.episode import Episode
from pensieve_mcp.gateway.keeping import Keeper
from pensieve_mcp.gateway.threads import Thread
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.wire.calls import Call, arguments_digest
from pensieve_mcp.workspace import Workspace

__all__ = ["keeper", "workspace"]  # fixtures

ORIGIN = Thread("codex", "01a", is_shared=True, is_lasting=True)
FORK = Thread("codex", "01b", is_shared=True, is_lasting=True)


def episode_of(workspace: Workspace, thread: Thread) -> Episode:
    return workspace.episode("mcp", host=thread.host, thread=thread.name)


def read(workspace: Workspace) -> tuple[Talk, str]:
    """The origin reads two chunks and deletes the second; answers its conversation and the first one's handle."""
    talk, episode = Talk(), episode_of(workspace, ORIGIN)
    for _ in range(2):
        do(episode, talk, "readChunk", chunk_id="1")
    first, second = (step.result.split(" ", 1)[0] for step in talk.steps)
    do(episode, talk, "deleteContext", msg_id=second)
    return talk, first


def calls(
    keeper: Keeper, workspace: Workspace, talk: Talk, thread: Thread, name: str, **arguments: Any
) -> Any:
    """A call of ours in this conversation that passes the gateway."""
    call_id = f"call_{thread.name}_{len(talk.steps)}"
    call = Call(call_id, f"mcp__pensieve__{name}", "", arguments_digest(arguments))
    passes(keeper, talk, call, thread=thread, turn=f"{thread.name}#1")
    return cast(episode_of(workspace, thread), name, arguments, host_call_id=call_id)


def test_a_fork_may_delete_what_it_holds_and_its_origin_keeps_it(
    workspace: Workspace, keeper: Keeper
) -> None:
    talk, first = read(workspace)
    fork = copy.deepcopy(talk)
    seen(keeper, fork, FORK)
    told = calls(keeper, workspace, fork, FORK, "deleteContext", msg_id=first)

    assert (told.is_error, told.result["physical"]) == (False, "yes"), told.text
    forked, origin = (episode_of(workspace, one).transcript() for one in (FORK, ORIGIN))
    state = lambda transcript: {e.message.number: e.forgotten for e in transcript.entries}  # noqa: E731
    assert [state(forked)[n] for n in (1, 2, 3, 4)] == [False, True, False, True]
    assert [state(origin)[n] for n in (1, 2, 3, 4)] == [False, False, False, True]
    assert "412 barrels" in episode_of(workspace, FORK).content(2)
    assert "conversation" in calls(keeper, workspace, fork, FORK, "checkBudget").text


def test_what_a_fork_does_not_hold_stays_the_others(workspace: Workspace, keeper: Keeper) -> None:
    """A sub-agent with a new history, and words that look like ours."""
    talk, first = read(workspace)
    blank = Talk()
    blank.own("readChunk", {"chunk_id": "1"}, "these words were never said")  # bears m2, too
    seen(keeper, blank, FORK)
    told = calls(keeper, workspace, blank, FORK, "deleteContext", msg_id=first)

    assert told.is_error and "There is no message m2 in this episode" in told.text
    seen(keeper, talk, ORIGIN)
    assert len(episode_of(workspace, ORIGIN).transcript().entries) == 6, "nothing is inherited from oneself"


def test_a_host_result_of_the_origin_is_deleted_in_the_fork_by_its_name(
    workspace: Workspace, keeper: Keeper
) -> None:
    talk, _ = read(workspace)
    talk.host(HOST_TEXT)
    handle = seen(keeper, talk, ORIGIN).host_results[0].handle
    fork = copy.deepcopy(talk)
    seen(keeper, fork, FORK)
    assert not calls(keeper, workspace, fork, FORK, "deleteContext", msg_id=handle).is_error


def test_a_forks_record_goes_with_the_origin_that_is_purged(workspace: Workspace, keeper: Keeper) -> None:
    talk, _ = read(workspace)
    seen(keeper, copy.deepcopy(talk), FORK)
    forked = episode_of(workspace, FORK)
    assert [e.message.number for e in forked.transcript().entries] == [1, 2, 3, 4, 5, 6]
    workspace.ledger.purge(episode_id=episode_of(workspace, ORIGIN).episode_id)
    assert forked.transcript().entries == ()


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
def test_a_subagent_that_the_server_cannot_tell_apart_shares_the_episode_of_who_began_it(
    workspace: Workspace, resumed: bool
) -> None:
    """opencode names no conversation to the server, which asks the gateway of its run; and a sub-agent's first
    request comes before anything of ours is in it.
    """
    parent = Thread("opencode", "ses_1")
    child = Thread("opencode", "ses_2", parent="ses_1")
    talk = Talk()
    if resumed:
        do(workspace.episode("mcp", host="opencode", thread="run:0123-old"), talk, "readChunk", chunk_id="1")
    keeper = Keeper(lambda: workspace, Policy("eager"), own_tool=own, run="0123-new")
    seen(keeper, talk, parent)
    seen(keeper, Talk(), child)
    seen(keeper, talk, parent)
    keeper._pool.shutdown(wait=True)

    assert keeper._episodes["opencode", "ses_1"] == keeper._episodes["opencode", "ses_2"]


@pytest.mark.parametrize(
    ("whose", "part"),
    [("ours", ""), ("ours", ".2"), ("the host's", "")],
    ids=["ours", "in part", "the host's"],
)
def test_what_was_deleted_before_the_fork_comes_back_in_it(
    workspace: Workspace, keeper: Keeper, whose: str, part: str
) -> None:
    long = Path(workspace.roots[0].folder) / "long.md"
    long.write_text(HOST_TEXT, encoding="utf-8")
    workspace.build_now()
    talk, episode = Talk(), episode_of(workspace, ORIGIN)
    if whose == "ours":
        do(episode, talk, "readChunk", chunk_id="2")
        name = talk.steps[0].result.split(" ", 1)[0]
    else:
        do(episode, talk, "checkBudget")
        talk.host(HOST_TEXT)
        name = seen(keeper, talk, ORIGIN).host_results[0].handle
    name += part
    assert not calls(keeper, workspace, talk, ORIGIN, "deleteContext", msg_id=name).is_error
    talk.own("deleteContext", {"msg_id": name}, "")
    entries = episode.transcript().entries
    talk.steps[-1].result = episode.content(entries[-1].message.number)

    fork = copy.deepcopy(talk)
    assert seen(keeper, fork, FORK).saved_tokens > 0
    forked = episode_of(workspace, FORK)
    assert forked.transcript().freed_tokens == episode.transcript().freed_tokens > 0
    told = calls(keeper, workspace, fork, FORK, "restoreContext", msg_id=name)
    assert f"Restored {name} in its old place" in told.text
    assert forked.transcript().freed_tokens == 0 < episode.transcript().freed_tokens


@pytest.mark.parametrize("whose", ["ours", "the host's"])
def test_what_was_pinned_before_the_fork_is_pinned_in_it(
    workspace: Workspace, keeper: Keeper, whose: str
) -> None:
    """The gateway leaves it in the fork's prompt, so the server must not say that it is deleted."""
    talk, name = read(workspace)
    if whose == "the host's":
        talk.host(HOST_TEXT)
        name = seen(keeper, talk, ORIGIN).host_results[0].handle
    told = calls(keeper, workspace, talk, ORIGIN, "deleteContext", msg_id=name, pin=True)
    talk.own("deleteContext", {"msg_id": name, "pin": True}, "")
    talk.steps[-1].result = told.text

    fork = copy.deepcopy(talk)
    seen(keeper, fork, FORK)
    refused = calls(keeper, workspace, fork, FORK, "deleteContext", msg_id=name)
    assert refused.slug == "pinned", refused.text
    assert not calls(keeper, workspace, fork, FORK, "deleteContext", msg_id=name, pin=False).is_error
    assert calls(keeper, workspace, talk, ORIGIN, "deleteContext", msg_id=name).slug == "pinned"


@pytest.mark.parametrize("how", ["purged", "expired"])
def test_a_fork_is_known_though_words_that_it_holds_in_part_are_kept_no_more(
    workspace: Workspace, keeper: Keeper, how: str
) -> None:
    long = Path(workspace.roots[0].folder) / "long.md"
    long.write_text(HOST_TEXT, encoding="utf-8")
    workspace.build_now()
    talk, episode = Talk(), episode_of(workspace, ORIGIN)
    do(episode, talk, "readChunk", chunk_id="2")
    name = talk.steps[0].result.split(" ", 1)[0]
    told = calls(keeper, workspace, talk, ORIGIN, "deleteContext", msg_id=f"{name}.2")
    talk.own("deleteContext", {"msg_id": f"{name}.2"}, "")
    talk.steps[-1].result = told.text
    if how == "purged":
        workspace.ledger.purge_messages([int(name[1:])], lambda text: False)
    else:
        workspace.ledger.retain(quota_bytes=0)

    fork = copy.deepcopy(talk)
    assert seen(keeper, fork, FORK).saved_tokens > 0
    assert not keeper.totals.troubles
    forked = episode_of(workspace, FORK).transcript()
    assert forked.entries[forked.by_number[int(name[1:])]].forgotten_parts == (2,)
    assert calls(keeper, workspace, fork, FORK, "checkBudget").result["sees"] == "conversation"

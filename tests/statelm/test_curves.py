"""What is drawn and measured of a conversation is what stood in the prompt, whatever the dialect leaves out of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pensieve_mcp.cli.curve import points_of
from pensieve_mcp.ledger.events import IN_MIND, Forgot, Message, Recalled, Said, fold
from pensieve_mcp.ledger.folding import standing
from pensieve_mcp.statelm import trajectories
from pensieve_mcp.statelm.backends.scripted import Scripted
from pensieve_mcp.statelm.conversation import Conversation
from pensieve_mcp.statelm.dialects import dialect
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.turns import Call, Reply
from pensieve_mcp.workspace import Workspace

QUESTION = "Who founded the Arvale Museum?"
LINES = {
    "compact": [Reply("read 1"), Reply("note 1"), Reply("finish Ada Quill")],
    "ours": [
        Call("searchEngine", {"keyword": "Arvale Museum founded"}),
        Call("readChunk", {"enable_scan": True}),
        Call("deleteContext", {"msg_id": "m5"}),
        Call("finish", {"answer": "Ada Quill"}),
    ],
    "published": [
        Call("buildIndex"),
        Call("readChunk", {"chunk_id": 0}),
        Call("deleteContext", {"msg_id": 4}),
        Call("finish", {"answer": "Ada Quill"}),
    ],
}


@pytest.mark.parametrize("name", ["compact", "ours", "published"])
def test_a_saved_conversation_is_drawn_as_large_as_it_was_told(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    loop = Loop.over(workspace, QUESTION, dialect(name))
    asked = loop.run(Scripted(LINES[name]))
    assert asked.answer == "Ada Quill" and asked.metrics.deletions
    ours, _ = trajectories.save(loop.conversation, asked, tmp_path / "run.jsonl")

    saved = trajectories.load(ours)
    points = points_of(saved.events, saved.in_mind)
    assert list(saved.in_mind) == loop.visible and max(p.visible for p in points) == asked.metrics.peak_tokens
    told = trajectories.metrics_of(saved.events, saved.in_mind)
    assert (told.peak_tokens, told.mean_tokens, told.rounds, told.deletions, told.freed_tokens, told.said_tokens) == (
        asked.metrics.peak_tokens, asked.metrics.mean_tokens, asked.metrics.rounds, asked.metrics.deletions,
        asked.metrics.freed_tokens, asked.metrics.said_tokens,
    )  # fmt: skip
    assert (told.memory_operations, told.searches, told.reads, told.errors, told.deletions_per_read) == (
        asked.metrics.memory_operations, asked.metrics.searches, asked.metrics.reads, 0,
        asked.metrics.deletions_per_read,
    )  # fmt: skip
    drops = [n for n, p in enumerate(points) if p.kind == "forgot"]
    sizes = [(points[n - 1].visible, points[n].visible) for n in drops]
    if name == "compact":  # the hits are let go second, when they stand in no prompt any more
        assert len(set(loop.visible[-3:])) == 1 and [before > after for before, after in sizes] == [
            True,
            False,
        ]
    else:
        assert drops and all(after < before for before, after in sizes), "a deletion is a drop"
    assert all(p.visible <= p.undeleted for p in points)
    assert points[-1].undeleted > points[-1].visible


def test_it_goes_along_into_another_workspace_and_a_later_loop_adds_to_it(workspace: Workspace) -> None:
    loop = Loop.over(workspace, QUESTION, dialect("ours"))
    loop.run(Scripted(LINES["ours"][:2]))  # the script ends too early
    again = Loop(Conversation.resume(workspace, loop.conversation.handle), dialect("ours"))
    again.run(Scripted(LINES["ours"][3:]))
    both = [*loop.visible, *again.visible]
    assert len(both) == 3 and again.conversation.in_mind() == tuple(both)

    lines = list(workspace.ledger.export_episode(loop.conversation.episode_id))
    copy = workspace.ledger.import_episode(lines)
    assert workspace.ledger.extra(copy.episode_id)[IN_MIND] == both
    assert trajectories.parse(lines).in_mind == tuple(both)


@pytest.mark.parametrize("odd", ["text", [1, "2"], [1, -2], [True], {"a": 1}, None])
def test_sizes_that_are_none_are_left_out(workspace: Workspace, odd: object) -> None:
    loop = Loop.over(workspace, QUESTION, dialect("ours"))
    loop.run(Scripted(LINES["ours"][:1]))
    head, *rest = workspace.ledger.export_episode(loop.conversation.episode_id)
    changed = [json.dumps({**json.loads(head), IN_MIND: odd}), *rest]

    assert trajectories.parse(changed).in_mind == ()
    assert IN_MIND not in workspace.ledger.extra(workspace.ledger.import_episode(changed).episode_id)


def said(number: int, role: str, tokens: int) -> Said:
    return Said(Message(number, role, "readChunk", tokens, b""))  # type: ignore[arg-type]


EVENTS = [
    said(1, "user", 10), said(2, "assistant", 20), said(3, "tool", 500), said(4, "assistant", 30), Forgot((3,)),
    said(5, "tool", 40), Recalled((3,)),
]  # fmt: skip


def test_counted_sizes_stand_at_their_results_and_a_deletion_shows_with_its_own() -> None:
    stood = list(standing(EVENTS, [900, 450]))

    assert [one.visible for one in stood] == [10, 30, 900, 900, 450, 450, 450]
    assert stood[2].undeleted == 900, "370 tokens stand beside what was said"
    assert stood[-1].undeleted >= 600
    assert [one.event for one in stood] == EVENTS


@pytest.mark.parametrize("foreign", [(), (900,), (900, 450, 3)])
def test_sizes_of_other_events_do_not_count(foreign: tuple[int, ...]) -> None:
    folded = [fold(EVENTS[: number + 1]).visible_tokens for number in range(len(EVENTS))]
    assert [one.visible for one in standing(EVENTS, foreign)] == folded

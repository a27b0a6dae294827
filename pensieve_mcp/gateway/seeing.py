"""What one request and its answer showed, and what becomes of it: the figures of a conversation, and of each turn whose
calls of our server are still to be made."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from pensieve_mcp.budget import SeenCall, Sighting, TurnSeen
from pensieve_mcp.gateway.itemising import shares_of
from pensieve_mcp.gateway.rewrite import Report
from pensieve_mcp.gateway.threads import Thread
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN, Policy
from pensieve_mcp.wire.usage import Usage

MOST_CALLS = 64  # that a host has been told of and has not made yet; it makes them at once, or never
MOST_TURNS = 16  # of conversations of one session that wait for such calls at once


@dataclass(frozen=True, slots=True)
class Sight:
    """What one request or its answer showed, to be written. The future ends with the episode's id."""

    report: Report
    thread: Thread
    usage: Usage | None = None
    turn: str = ""
    calls: tuple[SeenCall, ...] = ()
    first: bool = False  # of this request
    urgent: bool = False  # somebody waits for it
    written: Future[int | None] = field(default_factory=Future, compare=False)


def sighted(earlier: Sighting, sight: Sight, policy: Policy, tokens_a_byte: float | None) -> Sighting:
    """The conversation's figures after this. `tokens_a_byte` of the provider, where it told them once."""
    report, usage = sight.report, sight.usage
    prompt = usage.input if usage else round(report.bytes_out * (tokens_a_byte or 1 / BYTES_PER_TOKEN))
    handles = [one.handle for one in report.messages if one.state != "gone"]
    numbers = sorted(int(handle[1:]) for handle in handles if handle.startswith("m"))
    last = report.decisions[-1] if report.decisions else None
    now = replace(
        earlier,
        at=time.time(),
        policy=policy.name,
        window=policy.window_tokens,
        prompt=prompt,
        answer=usage.output if usage else 0,
        peak=max(earlier.peak, prompt),
        is_real=usage is not None,
        requests=earlier.requests + sight.first,
        saved=earlier.saved + report.saved_tokens * sight.first,
        waiting=report.waiting_tokens,
        why=last.why if last else "",
        present=",".join([*_runs(numbers), *(handle for handle in handles if handle.startswith("h"))]),
        last_number=numbers[-1] if numbers else 0,
    )
    return _with_calls(now, sight)


def _with_calls(now: Sighting, sight: Sight) -> Sighting:
    """The calls that are still to be made, with what was seen in their turns. One whose result passes was made; one of
    an earlier answer of the same conversation that has none never will be. Where the host names each call to the
    server the latter is not asked, since its sub-agents speak under one name, several at once.
    """
    conversation = sight.report.conversation
    done = {one.call_id for one in conversation.items if one.kind == "result"} if conversation else set()
    name = "" if sight.thread.is_shared else sight.turn.rpartition("#")[0]

    def waits(call: SeenCall) -> bool:
        return not name or call.turn == sight.turn or call.turn.rpartition("#")[0] != name

    made = [replace(call, at=now.at) for call in now.calls if call.call_id in done]
    open_ = [call for call in now.calls if call.call_id not in done and waits(call)]
    calls = (*open_, *sight.calls)[-MOST_CALLS:]
    asked = {call.turn for call in calls}
    turns = [one for one in now.turns if one.turn in asked and one.turn != sight.turn]
    if sight.turn in asked:
        figures = (now.prompt, now.answer, now.is_real, now.waiting, now.why, now.present, now.last_number)
        turns.append(TurnSeen(sight.turn, *figures, shares_of(sight.report, now.prompt)))
    return replace(now, calls=calls, made=(*now.made, *made)[-MOST_CALLS:], turns=tuple(turns[-MOST_TURNS:]))


def _runs(numbers: list[int]) -> list[str]:
    """`2-18`, `20`: numbers that follow each other by one, as a msg_id writes them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]

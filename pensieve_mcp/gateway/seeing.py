"""What one request and its answer showed, and what becomes of it: the figures of a conversation, and of each turn whose
calls of our server are still to be made."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from pensieve_mcp.budget import MOMENT_SECONDS, SeenCall, Sighting, TurnSeen
from pensieve_mcp.gateway.itemising import shares_of
from pensieve_mcp.gateway.rewrite import Report
from pensieve_mcp.gateway.threads import Thread
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN, Policy
from pensieve_mcp.wire.usage import Usage

MOST_CALLS = 256  # that a host has been told of and has not made yet; it makes them at once, or never
MOST_MADE = 64
MOST_TURNS = 16  # that wait for such calls at once, of which contents and make-up of the prompt are kept


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
    report = sight.report
    usage = sight.usage if sight.usage and sight.usage.input else None  # some begin with zeros
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
        answer=sight.usage.output if sight.usage else 0,
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
    """The calls that are still to be made, with what was seen in their turns; those that are over were made."""
    over = _over(now, sight)
    made = [replace(call, at=now.at) for call in now.calls if call in over]
    calls = (*(call for call in now.calls if call not in over), *sight.calls)[-MOST_CALLS:]
    asked = {call.turn for call in calls}
    turns = [one for one in now.turns if one.turn in asked and one.turn != sight.turn]
    if sight.turn in asked:
        figures = (now.prompt, now.answer, now.is_real, now.waiting, now.why, now.present, now.last_number)
        turns.append(TurnSeen(sight.turn, *figures, shares_of(sight.report, now.prompt)))
    turns[:-MOST_TURNS] = [replace(one, present="", shares=()) for one in turns[:-MOST_TURNS]]
    return replace(now, calls=calls, made=(*now.made, *made)[-MOST_MADE:], turns=tuple(turns))


def _over(now: Sighting, sight: Sight) -> set[SeenCall]:
    """Calls of earlier turns of this conversation that nobody waits for any more.

    Where the server is told no ids of calls, all, as soon as it goes on; else those whose results have come. Where
    several speak under one name (sub-agents of Claude Code), only one of which it is clear whose it is, since some
    servers count their calls anew in each conversation.
    """
    thread, conversation = sight.thread, sight.report.conversation
    name = sight.turn.rpartition("#")[0] if sight.turn else thread.name or sight.report.session
    earlier = [
        call for call in now.calls if call.turn.rpartition("#")[0] == name and _follows(sight.turn, call.turn)
    ]
    if name and sight.turn and not thread.is_shared:
        return set(earlier)
    items = conversation.items if conversation else ()
    results = {one.call_id for one in items if one.kind == "result"}
    new = itertools.takewhile(lambda one: one.kind != "call" and one.role != "assistant", reversed(items))
    latest = {one.call_id for one in new if one.kind == "result"}
    turns = Counter(call_id for call_id, _ in {(call.call_id, call.turn) for call in earlier})
    return {
        call
        for call in earlier
        if (call.call_id in latest and turns[call.call_id] == 1)
        or (call.call_id in results and (thread.is_lasting or call.at < now.at - MOMENT_SECONDS))
    }


def _follows(turn: str, other: str) -> bool:
    """Whether the turn is a later one, or of another gateway: the end of an answer may be seen after the next one."""
    if turn == other:
        return False
    (begin, _, count), (before, _, earlier) = turn.rpartition("-"), other.rpartition("-")
    return begin != before or not (count.isdecimal() and earlier.isdecimal()) or int(count) > int(earlier)


def _runs(numbers: list[int]) -> list[str]:
    """`2-18`, `20`: numbers that follow each other by one, as a msg_id writes them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]

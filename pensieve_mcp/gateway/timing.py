"""When a deletion is applied: a change deep in the prompt makes the provider's prefix cache miss from there on.

The decision is a pure function of the conversation so far, replayed from its beginning at every request. So a
deletion that was applied once stays applied, in a resumed or forked conversation too, and nothing has to be
remembered. Sizes are estimated from bytes, so that the replay of an unchanged prefix gives the same answer.

The model (our decision): tokens cost 1 fresh, `cached` from the cache, `written` into it, as shares of the fresh
price. Applying costs `written − cached` for every cached token behind the first change. It saves `written` for
doomed tokens that were not cached yet and `cached` for the others now, and `cached` for all of them in each of the
next `horizon` requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

PolicyName = Literal["eager", "batched", "threshold"]
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Policy:
    """`eager` applies at once; `batched` when it pays, or when the prompt passes `pressure_percent` of the window;
    `threshold` only then, or when at least `least_tokens` wait.
    """

    name: PolicyName = "batched"
    cached: float = 0.1
    written: float = 1.25
    horizon: int = 20  # further requests that a saving is counted for
    window_tokens: int = 200_000
    pressure_percent: int = 60
    least_tokens: int = 20_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at one request. Costs in fresh tokens' worth."""

    request: int  # of this conversation, from 1
    waiting: int  # messages
    doomed_tokens: int
    behind_tokens: int  # cached tokens behind the first change
    cost: float
    saving: float
    prompt_tokens: int
    applied: bool
    why: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """Places (of the conversation's items) whose deletion is in force, those that wait, and how it came about."""

    applied: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    decisions: tuple[Decision, ...] = field(default=())


def schedule(
    sizes: Sequence[int],
    stub_sizes: Callable[[int], int],
    requests: Sequence[int],
    forgotten_at: Callable[[int], Iterable[int]],
    policy: Policy,
    *,
    before_tokens: int = 0,
) -> Schedule:
    """Replay the conversation. `sizes` are tokens of its items; `requests` the places where a request was made (it
    holds the items before that place), ascending, the last one now; `forgotten_at(place)` the items that stand
    forgotten in the request made there. `before_tokens` is what the prompt holds before the first item.
    """
    applied: set[int] = set()
    waiting: set[int] = set()
    decisions: list[Decision] = []
    current = list(sizes)
    sums = _sums(current)
    earlier = 0
    for number, place in enumerate(requests, 1):
        forgotten = set(forgotten_at(place))
        if back := applied - forgotten:
            applied -= back  # restored: in its place at once, whatever it costs
            for item in back:
                current[item] = sizes[item]
            sums = _sums(current)
        waiting = forgotten - applied
        if waiting:
            decision = _decide(
                number, place, earlier, waiting, current, sums, stub_sizes, policy, before_tokens
            )
            decisions.append(decision)
            if decision.applied:
                for item in waiting:
                    current[item] = min(current[item], stub_sizes(item))
                applied |= waiting
                waiting = set()
                sums = _sums(current)
        earlier = place
    return Schedule(frozenset(applied), frozenset(waiting), tuple(decisions))


def _sums(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))


def _decide(
    number: int,
    place: int,
    earlier: int,
    waiting: set[int],
    current: Sequence[int],
    sums: Sequence[int],
    stub_sizes: Callable[[int], int],
    policy: Policy,
    before_tokens: int,
) -> Decision:
    first = min(waiting)
    doomed = sum(max(0, current[i] - stub_sizes(i)) for i in waiting)
    new = sum(max(0, current[i] - stub_sizes(i)) for i in waiting if i >= earlier)
    cached_end = max(earlier, first)
    behind = sums[cached_end] - sums[first] - sum(current[i] for i in waiting if i < earlier)
    cost = (policy.written - policy.cached) * behind
    saving = policy.written * new + policy.cached * (doomed - new) + policy.horizon * policy.cached * doomed
    prompt = before_tokens + sums[place]
    pressed = prompt * 100 >= policy.pressure_percent * policy.window_tokens
    if policy.name == "eager":
        applied, why = True, "eager: at once"
    elif pressed:
        applied, why = True, f"the prompt passes {policy.pressure_percent} % of the window"
    elif policy.name == "threshold":
        applied = doomed >= policy.least_tokens
        why = f"{doomed:,} tokens wait, {policy.least_tokens:,} are wanted"
    else:
        applied = saving >= cost
        why = (
            f"saves the price of {saving:,.0f} fresh tokens over {policy.horizon} requests, costs {cost:,.0f} "
            f"for {behind:,} cached tokens behind it"
        )
    return Decision(number, len(waiting), doomed, behind, cost, saving, prompt, applied, why)

"""When a deletion is applied: a change deep in the prompt makes the provider's prefix cache miss from there on.

The decision is a pure function of the conversation so far, replayed from its beginning at every request. So a
deletion that was applied once stays applied, in a resumed or forked conversation too, and nothing has to be
remembered. Sizes are estimated from bytes, so that the replay of an unchanged prefix gives the same answer.

The model (our decision): tokens cost 1 fresh, `cached` from the cache, `written` into it, as shares of the fresh
price. Applying costs `written − cached` for every cached token behind the first change. It saves `written` for
doomed tokens that were not cached yet and `cached` for the others now, and `cached` for all of them in each of the
next `horizon` requests. One old message must not hold up the younger ones behind which little stands, so `batched`
takes out those from the place on that pays best.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["eager", "batched", "threshold"]
BYTES_PER_TOKEN = 4
STUB_TOKENS = 45  # what a stub is taken to cost when a deletion is timed


@dataclass(frozen=True, slots=True)
class Policy:
    """`eager` applies at once; `batched` when it pays, or when the prompt passes `pressure_percent` of the window and
    `least_tokens` wait; `threshold` when these wait. All do when the prompt passes half of what is left above
    `pressure_percent`: a full window costs more than any cache. Below that even a crowded prompt is not rewritten for
    every small deletion.
    """

    name: PolicyName = "batched"
    cached: float = 0.1
    written: float = 1.25
    horizon: int = 20  # further requests that a saving is counted for
    window_tokens: int = 200_000
    pressure_percent: int = 60
    least_tokens: int = 20_000

    @property
    def full_percent(self) -> int:
        return (self.pressure_percent + 100) // 2


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at one request. Costs in fresh tokens' worth."""

    request: int  # of this conversation, from 1
    waiting: int  # messages
    taken: int  # of them, out of the prompt from this request on
    doomed_tokens: int  # of all that wait
    behind_tokens: int  # cached tokens behind the first change
    cost: float
    saving: float
    prompt_tokens: int
    why: str

    @property
    def applied(self) -> bool:
        return self.taken > 0


class Timing:
    """The conversation's size as it was sent, item by item and request by request. Copies share nothing.

    A forgotten item counts `STUB_TOKENS` from the request on that took it out, or its own size if that is less.
    """

    def __init__(self, policy: Policy, before_tokens: int = 0) -> None:
        """`before_tokens` is what the prompt holds before the first item."""
        self.applied: set[int] = set()
        self.waiting: set[int] = set()
        self.decisions: list[Decision] = []
        self._policy = policy
        self._whole: list[int] = []
        self._current: list[int] = []
        self._prompt = before_tokens
        self._earlier = 0  # items in the request before
        self._requests = 0

    def copy(self) -> Timing:
        other = Timing.__new__(Timing)
        other.__dict__.update(self.__dict__)
        other.applied, other.waiting = set(self.applied), set(self.waiting)
        other.decisions = list(self.decisions)
        other._whole, other._current = list(self._whole), list(self._current)
        return other

    def add(self, tokens: int) -> None:
        """The next item."""
        self._whole.append(tokens)
        self._current.append(tokens)
        self._prompt += tokens

    def request(self, forgotten: AbstractSet[int]) -> None:
        """A request is made of all items so far, of which these places stand forgotten."""
        self._requests += 1
        if back := self.applied - forgotten:
            self.applied -= back  # restored: in its place at once, whatever it costs
            for item in back:
                self._set(item, self._whole[item])
        self.waiting = set(forgotten - self.applied)
        if self.waiting:
            decision, taken = self._decide()
            self.decisions.append(decision)
            for item in taken:
                self._set(item, min(self._current[item], STUB_TOKENS))
            self.applied |= taken
            self.waiting -= taken
        self._earlier = len(self._current)

    def _set(self, item: int, tokens: int) -> None:
        self._prompt += tokens - self._current[item]
        self._current[item] = tokens

    def _decide(self) -> tuple[Decision, set[int]]:
        policy = self._policy
        everything = self._cuts()[-1]
        best, taken = everything, set(self.waiting)
        if policy.name == "eager":
            why = "eager: at once"
        elif self._passes(policy.full_percent):
            why = f"the prompt passes {policy.full_percent} % of the window"
        elif self._passes(policy.pressure_percent) and everything.doomed >= policy.least_tokens:
            why = f"the prompt passes {policy.pressure_percent} % of the window and {everything.doomed:,} tokens wait"
        elif policy.name == "threshold":
            if everything.doomed < policy.least_tokens:
                taken = set()
            why = f"{everything.doomed:,} tokens wait, {policy.least_tokens:,} are wanted"
        else:
            best = max(self._cuts(), key=lambda cut: (cut.saving - cut.cost, cut.doomed))
            taken = (
                {item for item in self.waiting if item >= best.first} if best.saving >= best.cost else set()
            )
            why = (
                f"saves the price of {best.saving:,.0f} fresh tokens over {policy.horizon} requests, costs "
                f"{best.cost:,.0f} for {best.behind:,} cached tokens behind it"
            )
        return Decision(
            self._requests,
            len(self.waiting),
            len(taken),
            everything.doomed,
            best.behind,
            best.cost,
            best.saving,
            self._prompt,
            why,
        ), taken

    def _passes(self, percent: int) -> bool:
        return self._prompt * 100 >= percent * self._policy.window_tokens

    def _cuts(self) -> list[_Cut]:
        """What it costs and saves to take out those that wait from one of them on, from the last one backwards."""
        policy, current, earlier = self._policy, self._current, self._earlier
        cuts: list[_Cut] = []
        doomed = new = behind = 0
        later = earlier
        for item in sorted(self.waiting, reverse=True):
            gain = max(0, current[item] - STUB_TOKENS)
            doomed += gain
            if item >= earlier:
                new += gain
            else:
                behind += sum(current[item + 1 : later])
                later = item
            cost = (policy.written - policy.cached) * behind
            saving = policy.written * new + policy.cached * (doomed - new)
            saving += policy.horizon * policy.cached * doomed
            cuts.append(_Cut(item, doomed, behind, cost, saving))
        return cuts


@dataclass(frozen=True, slots=True)
class _Cut:
    first: int  # the place it reaches back to
    doomed: int
    behind: int
    cost: float
    saving: float

"""How full the window is. Budget = window − visible tokens − reserve; 32,000 tokens and 150 rounds as in the paper.

What is counted is said: `conversation` where we see all of it (own loop, gateway), `tool traffic` where
only our own calls and
results pass by us. A host that is not behind the gateway keeps what was deleted; that is told, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Literal

from pensieve_mcp.ledger.events import Entry, Transcript
from pensieve_mcp.settings import Settings

Sight = Literal["conversation", "tool traffic"]
PLUGIN_ARGUMENT = "pensieve_plugin"
"""With this argument a host's plugin says that a call passed it. It stands in no schema, and no spell sees it."""

MOMENT_SECONDS = 60.0
"""A host makes a call at once when the model has written it, or never; unless a person is asked first."""

MOST_TOLD = 100_000  # characters; ten thousand handles


@dataclass(frozen=True, slots=True)
class Budget:
    """All counts in tokens of `tokens.COUNTER`, rounds in calls."""

    window: int
    used: int
    left: int
    reserve: int  # kept free for the model's own words, so neither used nor left
    peak: int
    freed: int
    rounds: int
    rounds_left: int
    sees: Sight
    physical: bool  # whether deleted text really leaves the prompt here
    still_in_prompt: int  # deleted in our record, still in the host's prompt

    @property
    def words(self) -> str:
        """What is in mind, kept free and left of the window: figures that add up to it, while it is not overfull."""
        kept = f"{self.reserve:,} kept free for answers, " if self.reserve else ""
        return f"{self.used:,} of {self.window:,} tokens in mind, {kept}{self.left:,} left"

    @property
    def used_percent(self) -> int:
        return round(100 * self.used / max(1, self.window))


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call of our server in a model's answer that passed the gateway, told before the host could make it."""

    at: float  # seconds since 1970
    turn: str  # the answer it stood in: the host's name of the conversation, and a number
    call_id: str
    tool: str
    digest: str  # of its arguments


@dataclass(frozen=True, slots=True)
class PluginSight:
    """What a plugin of the host says with a call that passes it: that it is there, and what the prompt holds.

    `drops` is when it takes deleted text out: at each `request`, or at the host's next `compaction`.
    """

    drops: Literal["request", "compaction"]
    present: str | None = (
        None  # handles in the last request, as a msg_id names them; None where it cannot know
    )
    gone: str = ""  # handles whose text it took out for good

    @classmethod
    def of(cls, told: object, call_id: str | None) -> PluginSight | None:
        """Read what came with a call, `request present=1-6`. None for anything else, and where it names another call
        than the host does: nobody but the host knows a call's id beforehand.
        """
        if not isinstance(told, str) or len(told) > MOST_TOLD:
            return None
        drops, *words = told.split(" ")
        more = dict(word.partition("=")[::2] for word in words)
        if drops not in ("request", "compaction") or (call_id is not None and more.get("call") != call_id):
            return None
        return cls(
            "request" if drops == "request" else "compaction", more.get("present"), more.get("gone", "")
        )


@dataclass(frozen=True, slots=True)
class Share:
    """What a message takes of the prompt, or `count` smaller ones of a kind together.

    `name` is its handle, `#5` for the fifth message where that has none, `system` or `tools`; empty for several.
    """

    name: str
    kind: str  # system, tools, user, assistant, thinking, call, result, …
    label: str
    count: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TurnSeen:
    """The request and answer in which calls of our server stood that are still to be made: several sub-agents may speak
    at once in one episode, each with a prompt of its own. Fields as in `Sighting`.
    """

    turn: str
    prompt: int
    answer: int
    is_real: bool
    waiting: int
    why: str
    present: str
    last_number: int
    shares: tuple[Share, ...]

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> TurnSeen:
        """Raises TypeError or ValueError for what this version does not know."""
        told = dict(zip((one.name for one in fields(cls)), row, strict=True))
        return cls(**{**told, "shares": tuple(Share(*share) for share in told["shares"])})


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the gateway last saw of a conversation; it stands in the episode's `extra` under `gateway`.

    Sizes in tokens, the provider's where it told them (`is_real`), else estimated from bytes.
    """

    at: float  # seconds since 1970
    policy: str = "batched"
    window: int = 200_000
    prompt: int = 0
    answer: int = 0
    peak: int = 0
    is_real: bool = False
    requests: int = 0
    saved: int = 0  # not sent, added up over all requests
    waiting: int = 0  # deleted, not yet taken out
    why: str = ""  # the last decision
    present: str = ""  # handles in the last request, as a msg_id names them
    last_number: int = 0  # the highest m id in it
    calls: tuple[
        SeenCall, ...
    ] = ()  # of our server, in answers that passed, still to be made, the latest last
    made: tuple[SeenCall, ...] = ()  # those whose results passed, `at` being when
    shares: tuple[Share, ...] = ()  # the prompt message by message, the heaviest first
    turns: tuple[TurnSeen, ...] = ()  # those of `calls`
    askers: int = 1  # conversations one of which asks now, and the host does not say which

    def largest(self, calls: Sequence[SeenCall]) -> SeenCall:
        """Of several calls the one whose prompt is the largest."""
        prompts = {one.turn: one.prompt for one in self.turns}
        return max(calls, key=lambda call: prompts.get(call.turn, 0))

    def as_seen_by(self, calls: Sequence[SeenCall]) -> Sighting:
        """With the figures of the conversation in which the call was written, not of whoever spoke last. Where it may
        be one of several, with the largest of them: who is told too much forgets too early, not too late.
        """
        turn = self.largest(calls).turn
        found = next((one for one in self.turns if one.turn == turn), None)
        if found is None:
            return self
        figures = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "turn"}
        return replace(self, **figures, askers=len({call.turn for call in calls}))

    def to_extra(self) -> dict[str, Any]:
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        rows = {
            name: [list(astuple(one)) for one in plain[name]] for name in ("calls", "made", "shares", "turns")
        }
        return {**plain, **rows}

    @classmethod
    def from_extra(cls, extra: Mapping[str, object]) -> Sighting | None:
        """None where no gateway was there, or a newer one wrote what this version does not know."""
        found = extra.get("gateway")
        if not isinstance(found, dict):
            return None
        known = {f.name for f in fields(cls)}
        try:
            rows = {
                "calls": tuple(SeenCall(*call) for call in found.get("calls", ())),
                "made": tuple(SeenCall(*call) for call in found.get("made", ())),
                "shares": tuple(Share(*share) for share in found.get("shares", ())),
                "turns": tuple(TurnSeen.from_row(row) for row in found.get("turns", ())),
            }
            told = {name: value for name, value in found.items() if name in known}
            return cls(**{**told, **rows})
        except (TypeError, ValueError):
            return None


def budget_of(
    transcript: Transcript, settings: Settings, *, sees: Sight, physical: bool, overhead_tokens: int = 0
) -> Budget:
    """The budget after this transcript. `overhead_tokens` is what the prompt holds besides it (system
    prompt, schemas)."""
    used = transcript.visible_tokens + overhead_tokens
    return Budget(
        window=settings.window_tokens,
        used=used,
        left=max(0, settings.window_tokens - settings.reserve_tokens - used),
        reserve=settings.reserve_tokens,
        peak=max(transcript.peak_tokens + overhead_tokens, used),
        freed=transcript.freed_tokens,
        rounds=transcript.rounds,
        rounds_left=max(0, settings.rounds - transcript.rounds),
        sees=sees,
        physical=physical,
        still_in_prompt=0 if physical else transcript.freed_tokens,
    )


def heaviest(transcript: Transcript, limit: int = 5) -> list[Entry]:
    """The largest messages that may be deleted, heaviest first."""
    movable = [
        e
        for e in transcript.entries
        if not e.forgotten and not e.pinned and e.message.role in ("tool", "assistant")
    ]
    return sorted(movable, key=lambda e: -e.message.tokens)[:limit]

"""How full the window is. Budget = window − visible tokens − reserve; 32,000 tokens and 150 rounds as in the paper.

What is counted is said: `conversation` where we see all of it (own loop, gateway), `tool traffic` where
only our own calls and
results pass by us. A host that is not behind the gateway keeps what was deleted; that is told, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pensieve_mcp.ledger.events import Entry, Transcript
from pensieve_mcp.settings import Settings

Sight = Literal["conversation", "tool traffic"]


@dataclass(frozen=True, slots=True)
class Budget:
    """All counts in tokens of `tokens.COUNTER`, rounds in calls."""

    window: int
    used: int
    left: int
    peak: int
    freed: int
    rounds: int
    rounds_left: int
    sees: Sight
    physical: bool  # whether deleted text really leaves the prompt here
    still_in_prompt: int  # deleted in our record, still in the host's prompt

    @property
    def used_percent(self) -> int:
        return round(100 * self.used / max(1, self.window))


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

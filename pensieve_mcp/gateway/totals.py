"""What passed the gateway, counted for the summary at the end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Totals:
    """What passed by, for the summary. Tokens estimated where they are savings, the provider's where it told."""

    requests: int = 0  # that the model's API took
    refused: int = 0  # that it answered with an error
    unreached: int = 0  # that found no API
    given_up: int = 0  # that the host ended before an answer began
    bytes_in: int = 0
    bytes_out: int = 0
    saved_tokens: int = 0
    forgotten: set[str] = field(default_factory=set)
    read: dict[str, set[str]] = field(default_factory=dict)  # tool → handles
    prompt: int = 0
    cached: int = 0
    written: int = 0
    answer: int = 0
    peak: int = 0
    told: int = 0  # answers that said what they cost
    troubles: list[str] = field(default_factory=list)

    @property
    def is_silent(self) -> bool:
        """Whether no request came at all."""
        return not (self.requests or self.refused or self.unreached or self.given_up)

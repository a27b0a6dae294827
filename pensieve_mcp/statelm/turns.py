"""Values of the loop: what a model is shown, what it answers, what was asked and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Policy = Literal["model", "extractive"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool as a model wrote it: in its dialect, unchecked."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str = ""  # the provider's; a new one is made where it gives none


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the backend counted them; zero where it does not say."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    """One state, printed. A chat model takes `messages` and `tools` (in OpenAI's shape, tools and their ids as they can
    be used in this state); a completion model takes `text`, and `grammar` (GBNF) lets it write nothing impossible."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    narrowed: tuple[dict[str, Any], ...] = ()
    """The same tools with what can be named now alone (messages, chunks, notes), for whoever enforces schemas."""
    every: tuple[dict[str, Any], ...] = ()
    """All tools of the dialect, the same at every turn, for whoever can be told which of them may be called now."""
    text: str = ""
    grammar: str = ""
    stop: tuple[str, ...] = ()
    max_output_tokens: int = 2_048
    forced: str = ""  # the reply, where there is only one that makes sense: the model is not asked


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. `text` is its thought; where it speaks in text only, the call stands in it, too."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()
    cut: bool = False  # ended by the limit of output


@dataclass(frozen=True, slots=True)
class Turn:
    """One round, for whoever watches."""

    number: int  # one-based
    tool: str
    arguments: Mapping[str, Any]
    thought: str
    text: str  # the result as the model sees it
    is_error: bool
    visible_tokens: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Cited:
    """Where the answer stands. `state` is that of the quote when it was last looked up."""

    path: str
    locator: str
    chunk_id: int | None
    quote: str
    state: str


@dataclass(frozen=True, slots=True)
class Metrics:
    """One question in the terms of the paper's table: rounds, memory operations, deletions, searches; and the
    window. Tokens are counted by `tokens.COUNTER`, `*_prompt_tokens` by the backend where it does."""

    rounds: int = 0
    memory_operations: int = 0  # note, updateNote, readNote
    deletions: int = 0
    searches: int = 0
    reads: int = 0
    errors: int = 0
    peak_tokens: int = 0
    mean_tokens: float = 0.0
    said_tokens: int = 0
    freed_tokens: int = 0
    deletions_per_read: float = 0.0
    peak_prompt_tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    model_seconds: float = 0.0  # of `seconds`, waiting for replies
    model_cpu_seconds: float = (
        0.0  # of `cpu_seconds`, spent during replies; nearly nothing where a server thinks
    )
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Asked:
    """The end of a question. `grounded`: the answer is in a note whose quote was found in the documents.

    `ended` says how: finished, not_found, rounds, stuck, backend, cancelled. An answer is never invented by the loop.
    """

    question: str
    answer: str
    found: bool
    grounded: bool
    policy: Policy
    ended: str
    citations: tuple[Cited, ...] = ()
    metrics: Metrics = Metrics()
    episode: str = ""
    model: str = ""
    dialect: str = ""
    detail: str = ""  # the worded error, or why there is no answer

"""Where replies come from: an endpoint, a provider, a model in this process, or a script.

A backend knows no tool and no episode: it gets a printed state and returns what the model wrote. Failures it cannot get
over are BackendErrors in words for whoever runs the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.turns import Prompt, Reply

NAMES = ("openai", "anthropic", "local", "scripted", "extractive")


class Backend(Protocol):
    """A model that can be asked for its next turn."""

    model: str

    def reply(self, prompt: Prompt) -> Reply:
        """Raises BackendError when no whole reply can be had."""

    def close(self) -> None: ...


COUNTED_SHARE = 0.85  # of a model's own tokens that may be filled by our count, which may be so far off


def context_of(backend: Backend) -> int | None:
    """The window of a model in this process, in its own tokens; None where a server knows it alone."""
    found: int | None = getattr(backend, "context_tokens", None)
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """Which backend is meant. `key` is a secret and is printed nowhere."""

    backend: str
    model: str = ""
    url: str = ""
    key: str = field(default="", repr=False)
    temperature: float | None = None
    constrain: bool | None = None
    """Let only what is possible in a state be sampled, where the server can enforce it; None: as the backend does."""
    options: Mapping[str, str] = field(default_factory=dict)

    def with_window(self, window_tokens: int) -> Choice:
        """One whose model in this process has room for such a window by our count; others know their own."""
        if self.backend != "local":
            return self
        needed = str(int(window_tokens / COUNTED_SHARE))
        return replace(self, options={"context_tokens": needed, **self.options})


def open_backend(choice: Choice, *, hear: Callable[[str], None] | None = None) -> Backend:
    """The backend of this choice; `hear` gets its words as they come. Raises BackendError."""
    if choice.backend == "openai":
        from pensieve_mcp.statelm.backends.openai import OpenAI

        return OpenAI(choice, hear=hear)
    if choice.backend == "anthropic":
        from pensieve_mcp.statelm.backends.anthropic import Anthropic

        return Anthropic(choice, hear=hear)
    if choice.backend == "local":
        from pensieve_mcp.statelm.backends.local import Local

        return Local(choice, hear=hear)
    if choice.backend == "scripted":
        from pensieve_mcp.statelm.backends.scripted import Scripted

        return Scripted.from_file(choice.model)
    raise BackendError(
        f"There is no backend {choice.backend[:60]!r}.",
        hint=f"There are {', '.join(NAMES)}.",
        slug="no_such_backend",
    )

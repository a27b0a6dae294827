"""A model as an editor: a prompt in, its text out. The consolidation is handed this port, and knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.asking import choice_from, settled
from pensieve_mcp.statelm.backends import Backend, Choice, open_backend
from pensieve_mcp.statelm.turns import Prompt

OUTPUT_TOKENS = 1_024


class Rewriter:
    """Calls its backend, which is opened with the first call. Close it."""

    def __init__(self, choice: Choice, backend: Backend | None = None) -> None:
        self._choice = choice
        self._backend = backend

    def __call__(self, prompt: str) -> str:
        """Raises BackendError when no whole text can be had."""
        if self._backend is None:
            self._backend = open_backend(self._choice)
        reply = self._backend.reply(
            Prompt(({"role": "user", "content": prompt},), max_output_tokens=OUTPUT_TOKENS)
        )
        if reply.cut or not reply.text.strip():
            raise BackendError(
                f"{self._backend.model or 'The model'} gave {'half a' if reply.cut else 'no'} text.",
                hint="Choose another model, or consolidate without one.",
                slug="no_text",
            )
        return reply.text

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


def rewriter(
    environment: Mapping[str, str], *, home: Path, backend: str = "", model: str = "", url: str = ""
) -> Rewriter | None:
    """The editor that options or environment name; None where no model is meant. Raises BackendError."""
    meant = choice_from(environment, backend=backend, model=model, url=url)
    if meant.backend == "auto":
        return None
    definite, _ = settled(meant, home)
    return None if definite.backend == "extractive" else Rewriter(definite)

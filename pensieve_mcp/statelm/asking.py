"""Ask a question of documents: choose backend and dialect, run the loop, fall back to the floor where a small
model got stuck. The shell and, through a port, the MCP server come in here.

The port: `asker(workspace, environment)` answers None while no backend is configured, else a function that takes a
question, paths, a listener and a cancel check, and answers plain data. The server is handed it and imports nothing of
this door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.settings import Settings
from pensieve_mcp.statelm import bundled, extractive
from pensieve_mcp.statelm.backends import Backend, Choice, context_of, open_backend
from pensieve_mcp.statelm.dialects import Dialect, dialect
from pensieve_mcp.statelm.dialects.ours import Ours
from pensieve_mcp.statelm.loop import Cancelled, Loop
from pensieve_mcp.statelm.turns import Asked, Turn

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

KEYS = {
    "openai": ("PENSIEVE_ASK_KEY", "OPENAI_API_KEY"),
    "anthropic": ("PENSIEVE_ASK_KEY", "ANTHROPIC_API_KEY"),
}
BACKEND_VARIABLE, MODEL_VARIABLE, URL_VARIABLE = (
    "PENSIEVE_ASK_BACKEND",
    "PENSIEVE_ASK_MODEL",
    "PENSIEVE_ASK_URL",
)
SMALL_MODEL_ROUNDS = 40  # of the bundled one: what it cannot do in these it cannot do at all

Asker = Callable[[str, Sequence[str], Callable[[str], None], Callable[[], bool]], dict[str, Any]]


def choice_from(
    environment: Mapping[str, str],
    settings: Settings | None = None,
    *,
    backend: str = "",
    model: str = "",
    url: str = "",
    temperature: float | None = None,
) -> Choice:
    """What is meant by options, then settings (file and environment), then the environment where there are no settings
    yet; `auto` is the bundled model where it is installed, else the floor. The key comes from the environment alone."""
    set_ = settings or Settings()
    if backend and set_.ask_backend not in ("", backend):
        set_ = replace(
            set_, ask_backend="", ask_model="", ask_url=""
        )  # its model and address are those of another backend
    chosen = backend or set_.ask_backend or environment.get(BACKEND_VARIABLE, "") or "auto"
    key = next((environment[name] for name in KEYS.get(chosen, ()) if environment.get(name)), "")
    return Choice(
        chosen,
        model or set_.ask_model or environment.get(MODEL_VARIABLE, ""),
        url or set_.ask_url or environment.get(URL_VARIABLE, ""),
        key,
        temperature,
        {"on": True, "off": False}.get(set_.ask_constrain),
    )


def settled(choice: Choice, home: Path) -> tuple[Choice, str]:
    """`auto` and `local` without a model made definite, and the dialect's name that goes with it. Raises
    BackendError."""
    if choice.backend == "auto":
        there = bundled.status(home)
        if there.ready:
            return replace(choice, backend="local", model=str(there.merged)), "compact"
        return replace(choice, backend="extractive"), "ours"
    if choice.backend == "local" and not choice.model:
        there = bundled.status(home)
        if not there.adapter:
            raise BackendError(
                "This version comes without a model of its own.",
                hint="Name a GGUF file with --model; docs/statelm.md tells how to make one.",
                slug="no_adapter",
            )
        if there.merged is None:
            raise BackendError(
                "The bundled model is not installed.",
                hint="Run: pensieve model install. Or name a GGUF file with --model.",
                slug="no_model",
            )
        return replace(choice, model=str(there.merged)), "compact"
    return choice, "ours"


def ask(
    workspace: Workspace,
    question: str,
    choice: Choice,
    *,
    home: Path,
    dialect_name: str = "",
    under: Sequence[str] = (),
    search: bool = True,
    watch: Callable[[Turn], None] = lambda turn: None,
    hear: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    backend: Backend | None = None,
) -> Asked:
    """Answer one question over an indexed workspace.

    Raises BackendError when no backend can be opened, Miscast and StorageError; what a model or server does later is
    told in `ended` and `detail`. `backend` stands in for the one of `choice`.
    """
    definite, usual = settled(choice, home) if backend is None else (choice, "ours")
    spoken = dialect_name or usual
    prefixes = workspace.prefix(*under)
    if definite.backend == "extractive" and backend is None:
        return extractive.answer(
            _loop(workspace, question, Ours(search=search), "", prefixes, watch, cancelled)
        )
    speaker = _dialect(spoken, search)

    def heard(text: str) -> None:
        if cancelled():  # a slow model need not write to its end
            raise Cancelled("Nobody wants the answer any more.", hint="Ask again.")
        if hear is not None:
            hear(text)

    if spoken != "compact":  # which fits into any window
        definite = definite.with_window(workspace.settings.window_tokens)
    opened = backend or open_backend(definite, hear=heard)
    try:
        loop = _loop(workspace, question, speaker, opened.model, prefixes, watch, cancelled)
        loop.fit(context_of(opened))
        if spoken == "compact" and search:
            loop.hard_stop_rounds = SMALL_MODEL_ROUNDS
        asked = loop.run(opened)
    finally:
        if backend is None:
            opened.close()
    if spoken == "compact" and asked.ended in ("stuck", "rounds") and search:
        floor = extractive.answer(_loop(workspace, question, Ours(), "", prefixes, watch, cancelled))
        return replace(
            floor,
            detail=f"The model came to no end ({asked.ended}); "
            + (
                "this is a sentence of the documents."
                if floor.found
                else f"no sentence answers it. {floor.detail}".strip()
            ),
        )
    return asked


def _dialect(name: str, search: bool) -> Dialect:
    if name == "compact":
        from pensieve_mcp.statelm.dialects.compact import Compact

        return Compact(search=search)
    return dialect(name, search=search)


def _loop(workspace: Workspace, question: str, speaker: Dialect, model: str, under: tuple[str, ...],
          watch: Callable[[Turn], None], cancelled: Callable[[], bool]) -> Loop:  # fmt: skip
    return Loop.over(workspace, question, speaker, model=model, under=under, watch=watch, cancelled=cancelled)


def as_data(asked: Asked) -> dict[str, Any]:
    """For JSON: the answer first."""
    data = asdict(asked)
    data["citations"] = [{k: v for k, v in cited.items()} for cited in data["citations"]]
    return data


def asker(
    workspace: Workspace, environment: Mapping[str, str], *, home: Path, choice: Choice | None = None
) -> Asker | None:
    """The port for `askStateLM`: None unless a backend is configured. Raises nothing; the function raises
    as `ask`."""
    meant = choice or choice_from(environment, workspace.settings)
    configured = choice is not None or workspace.settings.ask_backend or environment.get(BACKEND_VARIABLE)
    if not configured:
        return None

    def run(
        question: str, paths: Sequence[str], told: Callable[[str], None], cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        def watch(turn: Turn) -> None:
            told(f"turn {turn.number}, {turn.tool or 'no call'}, {turn.visible_tokens:,} tokens in mind.")

        asked = ask(workspace, question, meant, home=home, under=paths, watch=watch, cancelled=cancelled)
        return as_data(asked)

    return run

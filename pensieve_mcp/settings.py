"""Settings in two steps: as typed (file, environment, arguments), then resolved with where each came from.

One table (`FIELDS`) is the single home of names, defaults and meanings; `pensieve doctor` and the docs
print it. Files are
TOML: `settings.toml` in the user's data folder and in a workspace's state folder; environment variables are
`PENSIEVE_<NAME>`. Nothing below the doors reads the environment: a door calls `resolve` and hands the result down.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.places import typed

ENV_PREFIX = "PENSIEVE_"
FILE_NAME = "settings.toml"
APPLICATION = "pensieve-statelm"  # `~/.pensieve` belongs to another project


def _setting(
    default: Any, meaning: str, *, minimum: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"meaning": meaning, "minimum": minimum, "choices": choices})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default. Units are in the names."""

    window_tokens: int = _setting(
        32_000,
        "Size of the model's window that checkBudget counts against (the paper's budget).",
        minimum=512,
    )
    reserve_tokens: int = _setting(2_048, "Tokens kept free for the model's own output.", minimum=0)
    rounds: int = _setting(
        150,
        "Calls one episode may make before checkBudget says none are left (the paper's budget).",
        minimum=1,
    )
    advise_percent: int = _setting(
        70, "Share of the window at which results advise noting and deleting.", minimum=1
    )
    result_bytes: int = _setting(
        12_000, "Most bytes one result may have: the safe limit of every host we tested.", minimum=1_000
    )
    chunk_tokens: int = _setting(1_000, "Size of a chunk, what one readChunk reads.", minimum=50)
    overlap_tokens: int = _setting(0, "Tokens that neighbouring chunks share.", minimum=0)
    encoder: str = _setting(
        "static",
        "Encoder of the index: static (shipped), hashing:N (tests), or the name or folder of a "
        "sentence-transformers model.",
    )
    second_stage: bool = _setting(
        True, "Let MiniLM re-score the best hits of a question within a time budget."
    )
    upgrade: bool = _setting(True, "While idle, replace static vectors by MiniLM's in the background.")
    auto_index: bool = _setting(
        True,
        "The server looks for changed files when it starts, and before a search when the last look is old.",
    )
    rescan_seconds: int = _setting(
        300, "Age of the last look at the folders after which a search starts another.", minimum=5
    )
    workers: int = _setting(2, "Processes that read files.", minimum=1)
    hidden_files: bool = _setting(False, "Index files and folders whose name begins with a dot.")
    secret_files: bool = _setting(
        False, "Index files whose names look like keys or password stores (.env, id_rsa, secrets.yaml …)."
    )
    follow_links: bool = _setting(False, "Follow symbolic links whose target lies inside the same root.")
    fallback_encoding: str = _setting(
        "", "Encoding tried first for text that is not UTF-8, for example cp1251."
    )
    text_file_mb: int = _setting(256, "Largest text file that is read.", minimum=1)
    rich_file_mb: int = _setting(512, "Largest PDF, Office or other rich file that is read.", minimum=1)
    blobs_mb: int = _setting(
        2_048, "Room for the contents of deleted messages; the oldest go first.", minimum=1
    )
    retention_days: int = _setting(
        0,
        "Days after which contents of unused conversations are let go; 0 keeps them until `pensieve purge`.",
        minimum=0,
    )
    note_deletes: str = _setting(
        "allowed",
        "Whether a model may delete notes: allowed, or ask: the host asks its user where it can, else the notes are "
        "marked until a person runs pensieve note delete.",
        choices=("allowed", "ask"),
    )
    consolidate_idle_seconds: int = _setting(
        600,
        "The HTTP server consolidates notes after so long without a call, where something is new; 0: never.",
        minimum=0,
    )
    consolidate_backend: str = _setting(
        "",
        "Model that words notes about one quote as one while the HTTP server is idle; empty: rules alone. Keys come "
        "from the environment.",
        choices=("", "openai", "anthropic", "local", "scripted"),
    )
    consolidate_model: str = _setting("", "Model of that backend: its name at the endpoint, or a GGUF file.")
    consolidate_url: str = _setting("", "Address of the endpoint of that backend.")
    call_seconds: int = _setting(
        25, "Longest time one call may take before it answers with an error.", minimum=2
    )
    dialect: str = _setting(
        "ours",
        "Wording of stubs and results: ours, or published for the paper's trained weights.",
        choices=("ours", "published"),
    )
    ask_backend: str = _setting(
        "",
        "Who answers `pensieve ask`; set, it also adds the tool askStateLM. Keys come from the environment alone.",
        choices=("", "auto", "openai", "anthropic", "local", "extractive", "scripted"),
    )
    ask_model: str = _setting("", "Model of that backend: its name at the endpoint, or a GGUF file.")
    ask_url: str = _setting("", "Address of the endpoint of that backend.")
    ask_constrain: str = _setting(
        "auto",
        "Let that backend sample only calls that are possible now: auto (as far as its prompt cache holds), on (every "
        "id, too; costs the cache of openai and anthropic), off.",
        choices=("auto", "on", "off"),
    )
    gateway_policy: str = _setting(
        "batched",
        "When the gateway takes deleted text out of the prompt: eager (at once), batched (when it pays), "
        "threshold (when the prompt or what waits is large).",
        choices=("eager", "batched", "threshold"),
    )
    gateway_cached_percent: int = _setting(
        10, "Price of a token read from the provider's cache, as a share of a fresh one.", minimum=0
    )
    gateway_written_percent: int = _setting(
        125, "Price of a token written into the provider's cache, as a share of a fresh one.", minimum=0
    )
    gateway_horizon: int = _setting(
        20, "Further requests of a conversation that the gateway counts a saving for.", minimum=0
    )
    gateway_window_tokens: int = _setting(
        200_000, "Window of the host's model; behind the gateway checkBudget counts against it.", minimum=512
    )
    gateway_pressure_percent: int = _setting(
        60,
        "Share of that window from which on deletions of gateway_least_tokens are applied whatever they cost, and "
        "any from halfway between it and the full window on.",
        minimum=1,
    )
    gateway_least_tokens: int = _setting(
        20_000,
        "Deleted tokens that must wait before they are taken out: with the policy threshold, and in a crowded window.",
        minimum=0,
    )
    gateway_handle_tokens: int = _setting(
        500,
        "Size from which results of the host's own tools get a handle, so that they can be deleted.",
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings and, by name, where each value came from: `default`, a file's path, a variable's name or `argument`."""

    settings: Settings
    sources: Mapping[str, str]


def data_folder(environment: Mapping[str, str]) -> Path:
    """Where state lies: `PENSIEVE_HOME`, else the platform's data folder for this application. Not created.

    Raises WorkspaceError where `~` in it stands for nobody's home.
    """
    if home := environment.get("PENSIEVE_HOME"):
        return typed(home).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir(APPLICATION, appauthor=False))


def resolve(
    *,
    files: tuple[Path, ...] = (),
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Resolved:
    """Defaults, then files in order, then the environment, then arguments; None arguments count as not given.

    Raises WorkspaceError for an unknown name, a wrong type or an unreadable file.
    """
    values: dict[str, Any] = {}
    sources = {f.name: "default" for f in dataclasses.fields(Settings)}
    for path in files:
        for name, value in _read(path).items():
            values[name], sources[name] = _coerce(name, value, str(path)), str(path)
    for name in sources:
        variable = ENV_PREFIX + name.upper()
        if environment and (text := environment.get(variable)) not in (None, ""):
            values[name], sources[name] = _coerce(name, text, variable), variable
    for name, value in (arguments or {}).items():
        if value is not None:
            values[name], sources[name] = _coerce(name, value, "argument"), "argument"
    settings = Settings(**values)
    if settings.overlap_tokens >= settings.chunk_tokens:
        raise WorkspaceError(
            f"overlap_tokens is {settings.overlap_tokens}, but must be smaller than chunk_tokens, "
            f"{settings.chunk_tokens}.",
            hint="Lower overlap_tokens or raise chunk_tokens.",
            slug="bad_setting",
        )
    return Resolved(settings, sources)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise WorkspaceError(
            f"The settings file {path} cannot be read: {error}.",
            hint="Mend or remove it.",
            slug="bad_setting",
        ) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WorkspaceError(
            f"The settings file {path} is not valid TOML: {error}.",
            hint="Mend that line, for example: window_tokens = 32000",
            slug="bad_setting",
        ) from error


def _coerce(name: str, value: Any, source: str) -> Any:
    known = {f.name: f for f in dataclasses.fields(Settings)}
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=3)
        told = f"--set {name}" if source == "argument" else f"{source} sets {name!r}"
        raise WorkspaceError(
            f"{told}: there is no such setting.",
            hint=f"Did you mean {', '.join(near)}?" if near else "`pensieve doctor` lists the settings.",
            slug="bad_setting",
        )
    wanted: type = type(known[name].default)
    bad = WorkspaceError(
        f"{name} in {source} is {value!r}, but must be {_TYPE_WORDS[wanted]}.",
        hint="Correct it or remove it to use the default.",
        slug="bad_setting",
    )
    if wanted is bool:
        if isinstance(value, bool):
            return value
        lowered = str(value).strip().lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off"):
            return False
        raise bad
    if wanted is int:
        digits = str(value).strip().replace("_", "").replace(",", "")
        plain = digits.isascii() and digits.removeprefix("-").isdecimal()
        if isinstance(value, bool) or not plain or len(digits) > 15:
            raise bad
        number = int(digits)
        minimum = known[name].metadata["minimum"]
        if minimum is not None and number < minimum:
            raise WorkspaceError(
                f"{name} in {source} is {number}; the least is {minimum}.",
                hint="Raise it or remove it to use the default.",
                slug="bad_setting",
            )
        return number
    if not isinstance(value, str):
        raise bad
    choices = known[name].metadata["choices"]
    if choices and value not in choices:
        raise WorkspaceError(
            f"{name} in {source} is {value!r}; it is one of {', '.join(choices)}.",
            hint="Correct it or remove it to use the default.",
            slug="bad_setting",
        )
    return value


_TYPE_WORDS = {bool: "true or false", int: "a whole number", str: "text"}

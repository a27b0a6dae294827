"""A GGUF model in this process, through llama.cpp (extra `[local]`). The wheel is known to this file and
imported on use.

The prompt goes in as text with a grammar for this state, so an impossible action cannot be sampled. llama.cpp
keeps the keys and values of the common beginning of two prompts: after an edit only what follows it is computed
again.
"""

from __future__ import annotations

import json
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.places import typed
from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.memory import memory_bytes
from pensieve_mcp.statelm.backends.toolgrammar import tool_call_grammar
from pensieve_mcp.statelm.gguf import Gguf
from pensieve_mcp.statelm.template import printed
from pensieve_mcp.statelm.turns import Prompt, Reply, Usage

CONTEXT_TOKENS = 4_096
BATCH_TOKENS = 512  # of a prompt, between which a reply can be broken off
REPLY_SECONDS = 1_200.0
MAGIC = b"GGUF"


class Local:
    """One model file, loaded once. Its window is as large as asked for, and no larger than it was trained for."""

    def __init__(
        self,
        choice: Choice,
        *,
        hear: Callable[[str], None] | None = None,
        reply_seconds: float = REPLY_SECONDS,
        memory: Callable[[], int | None] = memory_bytes,
    ) -> None:
        path = typed(choice.model)
        self.model = path.name
        self._hear = hear or (lambda text: None)
        self.reply_seconds = reply_seconds
        _check(path)
        size, there = path.stat().st_size, memory()
        if there is not None and size > there:
            raise BackendError(
                f"{path.name} takes {size / 2**30:,.1f} GB of memory; this machine lets us have {there / 2**30:,.1f}.",
                hint="Take a smaller model, or an endpoint: --backend openai --url …",
                slug="no_memory",
            )
        try:
            import xllamacpp
        except ImportError as error:
            raise BackendError(
                f"llama.cpp is not installed ({error}).",
                hint="Install the extra: pip install 'pensieve-statelm[local]'.",
                slug="no_runtime",
            ) from error
        options = choice.options
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        wanted = int(options.get("context_tokens", CONTEXT_TOKENS))
        self.context_tokens = min(wanted, Gguf.context_tokens(path) or wanted)
        params.n_ctx = self.context_tokens
        params.n_parallel = 1
        params.n_batch = BATCH_TOKENS
        # the runtime listens on the loopback as well: nobody else shall ask it or see what it was asked
        params.api_keys = [secrets.token_hex(32)]
        params.endpoint_slots = params.ui = False
        params.endpoint_metrics = True
        params.warmup = False
        # else it keeps the states of all prompts, up to 8 GB; that of the last stands in the slot anyway
        params.cache_ram_mib = 0
        params.verbosity = -1
        threads = int(options.get("threads", "1"))
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        if adapter := options.get("adapter"):
            _check(Path(adapter))
            params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
        self.constrain = choice.constrain is not False and options.get("grammar", "on") != "off"
        self.temperature = choice.temperature or 0.0
        self.seed = (
            int(options["seed"]) if "seed" in options else None
        )  # of the first reply, one more for each
        try:
            with _interrupts_held():
                self._server: Any = xllamacpp.Server(params)
                # answered once its loop turns: destroyed before that, it would miss its end and never come back
                self._server.handle_metrics()
        except Exception as error:
            raise BackendError(
                f"The model {path.name} cannot be loaded: {' '.join(str(error).split())[:200]}.",
                hint="It may be damaged, of a kind that this runtime does not know, or too large for the memory "
                "that is free; install or download it again.",
                slug="bad_model",
            ) from error

    def reply(self, prompt: Prompt) -> Reply:
        request: dict[str, Any] = {
            "n_predict": prompt.max_output_tokens,
            "temperature": self.temperature,
            "cache_prompt": True,
            "stop": list(prompt.stop) or ["<|im_end|>"],
            "stream": True,
            "return_progress": True,  # heard while a long prompt is read, so that it can be broken off there
        }
        if self.seed is not None:
            request["seed"] = self.seed
            self.seed += 1
        if self.constrain:
            tools = prompt.narrowed or prompt.tools  # in the grammar alone: the prompt keeps its beginning
            rules = prompt.grammar or (tool_call_grammar(tools) if tools else "")
            if rules:
                request["grammar"] = rules
        plain = not prompt.text and not prompt.tools  # no call is wanted: the model's own template
        if plain:
            request["messages"] = list(prompt.messages)
        else:
            request["prompt"] = prompt.text or printed(prompt.messages, prompt.tools)
        ask = self._server.handle_chat_completions if plain else self._server.handle_completions
        try:
            with _interrupts_held() as interrupted:
                hearing = _Hearing(self._hear, self.reply_seconds, interrupted)
                ask(request, hearing.take)
        except Exception as error:
            raise _failed(str(error)) from error
        return hearing.reply()

    def close(self) -> None:
        self._server = None


@contextmanager
def _interrupts_held() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C came, which is passed on at the end. Raised inside, the runtime would swallow it where it calls us
    back, and be destroyed half begun where it loads.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


class _Hearing:
    """Pieces of one reply as the runtime hands them over. It swallows what a listener raises, so that is kept here and
    raised afterwards; the answer True ends the reply at once."""

    def __init__(
        self, hear: Callable[[str], None], seconds: float, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        self._hear = hear
        self._interrupted = interrupted
        self._seconds = seconds
        self._ending = time.monotonic() + seconds
        self._text: list[str] = []
        self._raised: BaseException | None = None
        self._error = self._finish = ""
        self._usage = Usage()

    def take(self, event: Any) -> bool:
        if self._interrupted():
            return True
        try:
            return self._take(json.loads(event) if isinstance(event, str | bytes) else event)
        except BaseException as raised:
            self._raised = raised
            return True

    def _take(self, event: dict[str, Any]) -> bool:
        if "error" in event:
            error = event["error"]
            self._error = str(error.get("message", error) if isinstance(error, dict) else error)
            return True
        heard = ""
        for choice in event.get("choices") or ():
            said = choice.get("delta") or choice.get("message") or {}
            heard += choice.get("text") or said.get("content") or ""
            self._finish = choice.get("finish_reason") or self._finish
        self._text.append(heard)
        timings = event.get("timings")
        if timings:
            cached = int(timings.get("cache_n", 0))
            made = int(timings.get("predicted_n", 0))
            self._usage = Usage(int(timings.get("prompt_n", 0)) + cached, cached, made)
        if time.monotonic() > self._ending:
            raise BackendError(
                f"The model was still replying after {self._seconds:,.0f} seconds.",
                hint="Take a smaller model, or one that runs faster here.",
                slug="too_slow_reply",
            )
        self._hear(heard)
        return False

    def reply(self) -> Reply:
        """The whole of it. Raises what the listener raised, and BackendError for what the runtime says."""
        if self._raised is not None:
            raise self._raised
        if self._error:
            raise _failed(self._error)
        return Reply("".join(self._text), usage=self._usage, cut=self._finish == "length")


def _failed(why: str) -> BackendError:
    return BackendError(
        f"The model failed: {' '.join(why.split())[:300]}.",
        hint="A prompt longer than the model's window is the usual reason; ask for a smaller window.",
        slug="model_failed",
    )


def _check(path: Path) -> None:
    """Raises BackendError for what is no model file, before a runtime chokes on it."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise BackendError(
            f"The model file {path} cannot be read: {error.strerror or error}.",
            hint="pensieve model install fetches the small one that comes with us.",
            slug="no_model",
        ) from error
    if head != MAGIC:
        raise BackendError(
            f"{path.name} is not a GGUF model.",
            hint="Give the path of a .gguf file, or run: pensieve model install",
            slug="bad_model",
        )

"""A GGUF model in this process, through llama.cpp (extra `[local]`). The wheel is known to this file and
imported on use.

The prompt goes in as text with a grammar for this state, so an impossible action cannot be sampled. llama.cpp
keeps the keys and values of the common beginning of two prompts: after an edit only what follows it is computed
again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.toolgrammar import tool_call_grammar
from pensieve_mcp.statelm.template import printed
from pensieve_mcp.statelm.turns import Prompt, Reply, Usage

CONTEXT_TOKENS = 4_096
MAGIC = b"GGUF"


class Local:
    """One model file, loaded once."""

    def __init__(self, choice: Choice) -> None:
        path = Path(choice.model).expanduser()
        self.model = path.name
        _check(path)
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
        params.n_ctx = int(options.get("context_tokens", CONTEXT_TOKENS))
        params.n_parallel = 1
        params.warmup = False
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
            self._server: Any = xllamacpp.Server(params)
        except Exception as error:
            raise BackendError(
                f"The model {path.name} cannot be loaded: {' '.join(str(error).split())[:200]}.",
                hint="It may be damaged or of a kind that this runtime does not know; install or download it again.",
                slug="bad_model",
            ) from error

    def reply(self, prompt: Prompt) -> Reply:
        request: dict[str, Any] = {
            "n_predict": prompt.max_output_tokens,
            "temperature": self.temperature,
            "cache_prompt": True,
            "stop": list(prompt.stop) or ["<|im_end|>"],
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
            answer = ask(request)
        except Exception as error:
            raise BackendError(
                f"The model failed: {' '.join(str(error).split())[:300]}.",
                hint="A prompt longer than the model's window is the usual reason; ask for a smaller window.",
                slug="model_failed",
            ) from error
        if isinstance(answer, str | bytes):
            answer = json.loads(answer)
        if "error" in answer:
            raise BackendError(
                f"The model failed: {str(answer['error'])[:300]}.",
                hint="A prompt longer than the model's window is the usual reason.",
                slug="model_failed",
            )
        choice = answer["choices"][0] if "choices" in answer else answer
        text = choice.get("text", choice.get("content", choice.get("message", {}).get("content") or ""))
        timings = answer.get("timings", {})
        cached = int(timings.get("cache_n", 0))
        usage = Usage(int(timings.get("prompt_n", 0)) + cached, cached, int(timings.get("predicted_n", 0)))
        return Reply(str(text), usage=usage, cut=choice.get("finish_reason") == "length")

    def close(self) -> None:
        self._server = None


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

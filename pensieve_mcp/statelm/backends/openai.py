"""Chat completions with tools as OpenAI defined them: Ollama, llama.cpp, vLLM, LM Studio and most providers
speak it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.http import Cut, Poster
from pensieve_mcp.statelm.dialects.reading import arguments_from
from pensieve_mcp.statelm.turns import Call, Prompt, Reply, Usage

DEFAULT_URL = "http://127.0.0.1:11434/v1"  # Ollama's, on this machine
KEY_VARIABLES = ("PENSIEVE_ASK_KEY", "OPENAI_API_KEY")
MAX_CALLS = 50


class OpenAI:
    """One endpoint and model."""

    def __init__(
        self, choice: Choice, *, hear: Callable[[str], None] | None = None, poster: Poster | None = None
    ) -> None:
        self.model = choice.model or "default"
        self.temperature = choice.temperature
        self._hear = hear or (lambda text: None)
        headers = {"Authorization": f"Bearer {choice.key}"} if choice.key else {}
        self._poster = poster or Poster(choice.url or DEFAULT_URL, headers)

    def reply(self, prompt: Prompt) -> Reply:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(prompt.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": prompt.max_output_tokens,
        }
        if prompt.tools:
            body["tools"] = list(prompt.tools)
            body["tool_choice"] = "auto"
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if prompt.stop:
            body["stop"] = list(prompt.stop)
        return self._poster.stream("/chat/completions", body, self._gather)

    def close(self) -> None:
        self._poster.close()

    def _gather(self, events: Iterator[dict[str, Any]]) -> Reply:
        """Pieces of a stream as one reply. Raises Cut when it breaks off."""
        text: list[str] = []
        calls: dict[int, dict[str, str]] = {}
        usage, finish, done = Usage(), "", False
        for event in events:
            if event.get("done"):
                done = True
                continue
            if event.get("error"):
                raise Cut(str(event["error"])[:200])
            usage = _usage(event.get("usage")) or usage
            for choice in event.get("choices") or ():
                said = choice.get("delta") or choice.get("message") or {}
                if piece := said.get("content"):
                    text.append(piece)
                    self._hear(piece)
                for place, call in enumerate(said.get("tool_calls") or ()):
                    number = call.get("index", place)
                    if number >= MAX_CALLS:
                        continue
                    whole = calls.setdefault(number, {"id": "", "name": "", "arguments": ""})
                    function = call.get("function") or {}
                    whole["id"] = call.get("id") or whole["id"]
                    whole["name"] += function.get("name") or ""
                    given = function.get("arguments") or ""
                    whole["arguments"] += given if isinstance(given, str) else _dumped(given)
                finish = choice.get("finish_reason") or finish
            done = done or bool(event.get("whole"))
        if not done and not finish:
            raise Cut("the stream ended before its end")
        made = []
        for whole in calls.values():
            arguments = arguments_from(whole["arguments"])
            if whole["name"] and arguments is not None:
                made.append(Call(whole["name"], arguments, whole["id"]))
            else:
                text.append(f"\n{whole['name']} {whole['arguments']}")
        return Reply("".join(text), tuple(made), usage, cut=finish == "length")


def _usage(given: Any) -> Usage | None:
    if not isinstance(given, dict):
        return None
    details = given.get("prompt_tokens_details") or {}
    return Usage(
        int(given.get("prompt_tokens") or 0),
        int(details.get("cached_tokens") or 0),
        int(given.get("completion_tokens") or 0),
    )


def _dumped(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)

"""Chat completions with tools as OpenAI defined them: Ollama, llama.cpp, vLLM, LM Studio and most providers
speak it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.http import Cut, Poster, Refused
from pensieve_mcp.statelm.backends.strictness import strict
from pensieve_mcp.statelm.dialects.reading import arguments_from
from pensieve_mcp.statelm.turns import Call, Prompt, Reply, Usage

DEFAULT_URL = "http://127.0.0.1:11434/v1"  # Ollama's, on this machine
KEY_VARIABLES = ("PENSIEVE_ASK_KEY", "OPENAI_API_KEY")
MAX_CALLS = 50
LESS = {"allowed": "required", "strict": "narrow", "narrow": "required", "required": "free", "free": ""}
"""How calls are bound, and what a server is asked that refuses it.

allowed    always the same strict schemas, and a list of what may be called now: the prompt cache holds (OpenAI's own)
strict     only what can be named now, strictly; narrow: the same for servers that make a grammar of schemas
required   a call of one of the tools that can be used now
free       tools that can be used now, or none
"""
ENFORCES = re.compile(r"^https://[\w.-]*\.?openai\.(com|azure\.com)\b")


class OpenAI:
    """One endpoint and model."""

    def __init__(
        self, choice: Choice, *, hear: Callable[[str], None] | None = None, poster: Poster | None = None
    ) -> None:
        self.model = choice.model or "default"
        self.temperature = choice.temperature
        self._hear = hear or (lambda text: None)
        address = choice.url or DEFAULT_URL
        enforces = ENFORCES.search(address) is not None
        usual, exact = ("allowed", "strict") if enforces else ("required", "narrow")
        self._way = {None: usual, True: exact, False: "free"}[choice.constrain]
        if poster is None and enforces and not choice.key:
            raise BackendError(
                f"There is no key for {address}.",
                hint="Set PENSIEVE_ASK_KEY or OPENAI_API_KEY in the environment.",
                slug="no_key",
            )
        headers = {"Authorization": f"Bearer {choice.key}"} if choice.key else {}
        self._poster = poster or Poster(address, headers, check=lambda: self._hear(""))

    def reply(self, prompt: Prompt) -> Reply:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(prompt.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": prompt.max_output_tokens,
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if prompt.stop:
            body["stop"] = list(prompt.stop)
        way = self._way
        while True:
            try:
                reply = self._poster.stream(
                    "/chat/completions", {**body, **_tools(prompt, way)}, self._gather
                )
            except Refused as refused:
                if not prompt.tools or refused.status not in (400, 422) or not LESS[way]:
                    raise
                way = LESS[way]
                continue
            if prompt.tools:
                self._way = way  # what the server did not know is not asked of it again
            return reply

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
                    given = given if isinstance(given, str) else _dumped(given)
                    whole["arguments"] += given
                    if heard := f"{function.get('name') or ''} {given}".strip():
                        self._hear(heard)
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


def _tools(prompt: Prompt, way: str) -> dict[str, Any]:
    """Tools, and how much of their schemas is to be enforced."""
    if not prompt.tools:
        return {}
    if way == "allowed":
        names = [
            {"type": "function", "function": {"name": tool["function"]["name"]}} for tool in prompt.tools
        ]
        now = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": names}}
        return _strict(prompt.every or prompt.tools, now)
    if way == "strict":
        return _strict(prompt.narrowed or prompt.tools, "required")
    tools = prompt.narrowed or prompt.tools if way == "narrow" else prompt.tools
    return {"tools": list(tools), "tool_choice": "auto" if way == "free" else "required"}


def _strict(tools: Sequence[dict[str, Any]], choice: Any) -> dict[str, Any]:
    return {"tools": [strict(tool) for tool in tools], "tool_choice": choice, "parallel_tool_calls": False}


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

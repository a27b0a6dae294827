"""Anthropic's Messages: tools and results are blocks, the system prompt stands apart, turns alternate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.backends import Choice
from pensieve_mcp.statelm.backends.http import Cut, Poster
from pensieve_mcp.statelm.dialects.reading import arguments_from
from pensieve_mcp.statelm.turns import Call, Prompt, Reply, Usage
from pensieve_mcp.vendors import ANTHROPIC

KEY_VARIABLES = ("PENSIEVE_ASK_KEY", "ANTHROPIC_API_KEY")
VERSION = "2023-06-01"
KEPT = {"type": "ephemeral"}
"""Marks up to where the provider keeps what it computed: without a mark it keeps nothing. One behind the tools and the
system prompt, one behind the last message, from where the next turn looks back for what is still the same."""


class Anthropic:
    """One model."""

    def __init__(
        self, choice: Choice, *, hear: Callable[[str], None] | None = None, poster: Poster | None = None
    ) -> None:
        if not choice.model:
            raise BackendError(
                "No model is named.",
                hint="Name one with --model, as the provider calls it.",
                slug="no_model_name",
            )
        if poster is None and not choice.key and not choice.url:  # an address of one's own may need none
            raise BackendError(
                "There is no key for Anthropic's API.",
                hint=f"Set {' or '.join(KEY_VARIABLES)} in the environment.",
                slug="no_key",
            )
        self.model = choice.model
        self.temperature = choice.temperature
        self._constrain = choice.constrain is True
        self._hear = hear or (lambda text: None)
        self._poster = poster or Poster(
            choice.url or ANTHROPIC,
            {"x-api-key": choice.key, "anthropic-version": VERSION},
            check=lambda: self._hear(""),
        )

    def reply(self, prompt: Prompt) -> Reply:
        system, messages = blocks(prompt.messages)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": prompt.max_output_tokens,
            "stream": True,
        }
        if system:  # after the tools and before the messages
            body["system"] = [{"type": "text", "text": system, "cache_control": KEPT}]
        if messages:
            messages[-1]["content"][-1]["cache_control"] = KEPT
        if prompt.tools:
            # a forced call has no thought before it, and tools that change every turn cost the prompt cache: only where
            # asked for
            tools = (prompt.narrowed or prompt.tools) if self._constrain else prompt.tools
            body["tools"] = [
                {
                    "name": tool["function"]["name"],
                    "description": tool["function"]["description"],
                    "input_schema": tool["function"]["parameters"],
                }
                for tool in tools
            ]
            kind = "any" if self._constrain else "auto"
            body["tool_choice"] = {"type": kind, "disable_parallel_tool_use": True}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return self._poster.stream("/v1/messages", body, self._gather)

    def close(self) -> None:
        self._poster.close()

    def _gather(self, events: Iterator[dict[str, Any]]) -> Reply:
        text: list[str] = []
        calls: dict[int, dict[str, str]] = {}
        prompt_tokens = cached = output = 0
        stop, ended = "", False
        for event in events:
            kind = event.get("type")
            if kind == "error":
                raise Cut(str((event.get("error") or {}).get("message", ""))[:200])
            if kind == "message_start":
                used = event["message"].get("usage") or {}
                cached = int(used.get("cache_read_input_tokens") or 0)
                prompt_tokens = int(used.get("input_tokens") or 0) + cached
                prompt_tokens += int(used.get("cache_creation_input_tokens") or 0)
            elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
                block = event["content_block"]
                calls[event["index"]] = {"id": block["id"], "name": block["name"], "arguments": ""}
                self._hear(f"{block['name']} ")
            elif kind == "content_block_delta":
                delta = event["delta"]
                if delta["type"] == "text_delta":
                    text.append(delta["text"])
                    self._hear(delta["text"])
                elif delta["type"] == "input_json_delta" and event["index"] in calls:
                    calls[event["index"]]["arguments"] += delta["partial_json"]
                    self._hear(delta["partial_json"])
            elif kind == "message_delta":
                stop = event["delta"].get("stop_reason") or stop
                output = int((event.get("usage") or {}).get("output_tokens") or output)
            elif kind == "message_stop":
                ended = True
        if not ended:
            raise Cut("the stream ended before its end")
        made = []
        for whole in calls.values():
            arguments = arguments_from(whole["arguments"])
            if arguments is not None:
                made.append(Call(whole["name"], arguments, whole["id"]))
            else:
                text.append(f"\n{whole['name']} {whole['arguments']}")
        return Reply(
            "".join(text), tuple(made), Usage(prompt_tokens, cached, output), cut=stop == "max_tokens"
        )


def blocks(messages: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """OpenAI-shaped messages as (system, alternating turns of blocks)."""
    system: list[str] = []
    turns: list[dict[str, Any]] = []

    def add(role: str, block: dict[str, Any]) -> None:
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].append(block)
        else:
            turns.append({"role": role, "content": [block]})

    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "system":
            system.append(text)
        elif message["role"] == "tool":
            add("user", {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text})
        else:
            if text.strip():
                add(message["role"], {"type": "text", "text": text})
            for call in message.get("tool_calls", ()):
                function = call["function"]
                block = {"type": "tool_use", "id": call["id"], "name": function["name"],
                         "input": json.loads(function["arguments"] or "{}")}  # fmt: skip
                add("assistant", block)
    return "\n\n".join(system), turns

"""A cast's answer as a tool result.

By default one text block, since the big hosts drop text where structured content stands; the typed result
travels in `_meta`, which no model sees. An error carries its words and its message id only: one host quotes a
whole error result to the model.
"""

from __future__ import annotations

import json
from typing import Any

from mcp_types import CallToolResult, TextContent

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.server.episodes import HANDLE_ARGUMENT
from pensieve_mcp.spellbook.casting import CastResult
from pensieve_mcp.spellbook.wording import bytes_of, cut_to_bytes
from pensieve_mcp.tokens import count_tokens

RESULT_KEY = "pensieve/result"
MESSAGE_KEY = "pensieve/message"
EPISODE_KEY = "pensieve/episode"
HANDLE_LINE = "handle"
TEXT = "text"


def answer(
    cast: CastResult,
    *,
    structured: bool = False,
    episode: str | None = None,
    begun: bool = False,
    most_bytes: int | None = None,
) -> CallToolResult:
    """The tool result of a cast. `episode` is its handle where the client must pass it on; `begun` says so in
    the text. `most_bytes` bounds a structured answer; text was bounded by the cast.
    """
    told = f"{HANDLE_ARGUMENT}={episode} · pass it with every further call" if episode and begun else ""
    meta: dict[str, Any] = {MESSAGE_KEY: cast.message}
    if episode:
        meta[EPISODE_KEY] = episode
    head, _, rest = cast.text.partition("\n")
    text = "\n".join(part for part in (head, told, rest) if part) if told else cast.text
    if cast.is_error:
        return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta=meta)
    if not structured:
        meta[RESULT_KEY] = cast.result
        return CallToolResult(content=[TextContent(text=text)], _meta=meta)
    first = {HANDLE_LINE: head, **({HANDLE_ARGUMENT: told} if told else {})}
    content = {**first, **_without_none(cast.result)}
    if most_bytes is not None and bytes_of(_json(content)) > most_bytes:
        content = _as_text(first, rest, most_bytes)
    # The same in both, since one host reads the text and another the structure.
    return CallToolResult(content=[TextContent(text=_json(content))], structured_content=content, _meta=meta)


def _as_text(first: dict[str, Any], body: str, most_bytes: int) -> dict[str, Any]:
    """The words in place of fields that would not fit; cut, and said to be, where escaping makes them longer."""
    content = {**first, TEXT: body}
    excess = bytes_of(_json(content)) - most_bytes
    while excess > 0 and body:
        body = body[: cut_to_bytes(body, max(0, bytes_of(body) - excess - 120))].rstrip()
        content[TEXT] = f"{body}\n[cut here: the result was longer than the limit]"
        excess = bytes_of(_json(content)) - most_bytes
    return content


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def refusal(error: PensieveError) -> CallToolResult:
    """The answer where no cast came about, so that there is no message in the ledger: no folder, no episode,
    too late.
    """
    text = f"{error.message} {error.hint}".strip()
    message = {"msg_id": None, "invoking_msg_id": None, "tokens": count_tokens(text)}
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta={MESSAGE_KEY: message})


def output_schema(schema: dict[str, Any], *, with_episode: bool) -> dict[str, Any]:
    """A spell's output schema with the handle line in front, as `--structured` publishes it.

    A field without a value is left out of the answer, since unions with null are refused by several hosts; so
    no field but the handle line is required.
    """
    extra: dict[str, Any] = {
        HANDLE_LINE: {"type": "string", "description": "Message id, place, tokens and what is left."}
    }
    extra[TEXT] = {"type": "string", "description": "In place of the fields, where they would not fit."}
    if with_episode:
        extra[HANDLE_ARGUMENT] = {"type": "string"}
    plain = _without_required(schema)
    return {
        **plain,
        "type": "object",
        "properties": {**extra, **plain.get("properties", {})},
        "required": [HANDLE_LINE],
    }


def _without_required(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_required(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: _without_required(inner) for name, inner in value.items()}
        if key == "properties"
        else _without_required(value)
        for key, value in node.items()
        if key != "required"
    }


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value

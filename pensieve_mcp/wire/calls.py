"""Which tools a model calls, read off its answer while that passes by.

Whoever sees the answer knows of a call before the host makes it; so the server can tell afterwards whether a call it
gets came this way. The answer is only looked at: what is too long, broken or cut off tells of no call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pensieve_mcp.wire.conversation import Dialect

MOST_BYTES = 16_000_000  # of one event, of a call's arguments, or of an answer that is not streamed
DIGEST_DIGITS = 16
_MARKS = {  # what a line of a stream must hold to be worth reading
    "anthropic": (b"tool_use", b"input_json_delta", b"content_block_stop"),
    "responses": (b"response.output_item.done",),
    "chat": (b'"tool_calls"', b'"finish_reason"'),
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model made it. `digest` is that of its arguments, whatever their order and white space."""

    call_id: str
    name: str
    namespace: str
    digest: str


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """The same for the same arguments on both sides of a host: order and white space do not count."""
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:DIGEST_DIGITS]


@dataclass(slots=True)
class _Open:
    """A call whose arguments are still coming."""

    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    whole: Any = None  # arguments that came at once

    def add(self, piece: object) -> None:
        if isinstance(piece, str) and self.size <= MOST_BYTES:
            self.pieces.append(piece)
            self.size += len(piece)

    def done(self) -> Call | None:
        text = "".join(self.pieces)
        return _call(self.call_id, self.name, "", text if text.strip() else (self.whole or {}))


class CallReader:
    """Takes an answer's bytes as they come; `feed` and `end` give the calls that are complete with them."""

    def __init__(self, dialect: Dialect, *, stream: bool) -> None:
        self._dialect: Dialect = dialect
        self._stream = stream
        self._rest = bytearray()
        self._lost = False  # the line, or the answer, is too long
        self._open: dict[int, _Open] = {}

    def feed(self, data: bytes) -> list[Call]:
        if not self._stream or b"\n" not in data:
            self._keep(data)
            return []
        *lines, rest = (bytes(self._rest) + data).split(b"\n")
        self._rest.clear()
        skip_first, self._lost = self._lost, False
        self._keep(rest)
        marks = _MARKS[self._dialect]
        found: list[Call] = []
        for line in lines[1:] if skip_first else lines:
            if line.startswith(b"data:") and any(mark in line for mark in marks):
                found += self._event(_object(line[5:]))
        return found

    def end(self) -> list[Call]:
        """The calls of an answer that is not streamed, once all of it was fed."""
        if self._stream or self._lost:
            return []
        raw, self._rest = bytes(self._rest), bytearray()
        return list(_calls_of(_object(raw), self._dialect))

    def _keep(self, data: bytes) -> None:
        if self._lost or len(self._rest) + len(data) > MOST_BYTES:
            self._rest.clear()
            self._lost = True
        else:
            self._rest += data

    def _event(self, event: Mapping[str, Any]) -> list[Call]:
        if self._dialect == "responses":
            done = (
                _responses_call(event.get("item"))
                if event.get("type") == "response.output_item.done"
                else None
            )
            return [done] if done else []
        if self._dialect == "anthropic":
            return self._anthropic(event)
        return self._chat(event)

    def _anthropic(self, event: Mapping[str, Any]) -> list[Call]:
        kind, place = event.get("type"), event.get("index")
        if not isinstance(place, int):
            return []
        if kind == "content_block_start":
            block = _mapping(event.get("content_block"))
            if block.get("type") == "tool_use":
                self._open[place] = _Open(
                    str(block.get("id")), str(block.get("name")), whole=block.get("input")
                )
        elif kind == "content_block_delta" and place in self._open:
            self._open[place].add(_mapping(event.get("delta")).get("partial_json"))
        elif kind == "content_block_stop" and place in self._open:
            done = self._open.pop(place).done()
            return [done] if done else []
        return []

    def _chat(self, event: Mapping[str, Any]) -> list[Call]:
        found: list[Call] = []
        for choice in _list(event.get("choices")):
            for piece in _list(_mapping(_mapping(choice).get("delta")).get("tool_calls")):
                made = _mapping(piece)
                function, place = _mapping(made.get("function")), made.get("index", 0)
                if not isinstance(place, int):
                    continue
                if made.get("id") or place not in self._open:
                    self._open[place] = _Open(str(made.get("id", "")), str(function.get("name", "")))
                self._open[place].add(function.get("arguments"))
            if _mapping(choice).get("finish_reason"):
                found += [done for one in self._open.values() if (done := one.done())]
                self._open.clear()
        return found


def _calls_of(answer: Mapping[str, Any], dialect: Dialect) -> Iterator[Call]:
    if dialect == "anthropic":
        for block in map(_mapping, _list(answer.get("content"))):
            if block.get("type") == "tool_use" and (
                one := _call(str(block.get("id")), str(block.get("name")), "", block.get("input"))
            ):
                yield one
    elif dialect == "responses":
        for item in _list(answer.get("output")):
            if made := _responses_call(item):
                yield made
    else:
        for choice in _list(answer.get("choices")):
            for piece in map(_mapping, _list(_mapping(_mapping(choice).get("message")).get("tool_calls"))):
                function = _mapping(piece.get("function"))
                if one := _call(
                    str(piece.get("id")), str(function.get("name")), "", function.get("arguments")
                ):
                    yield one


def _responses_call(item: object) -> Call | None:
    made = _mapping(item)
    if made.get("type") != "function_call":
        return None
    namespace = made.get("namespace")
    return _call(
        str(made.get("call_id")),
        str(made.get("name")),
        namespace if isinstance(namespace, str) else "",
        made.get("arguments"),
    )


def _call(call_id: str, name: str, namespace: str, arguments: object) -> Call | None:
    """None for arguments that are no object: no host makes such a call of ours."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    return (
        Call(call_id, name, namespace, arguments_digest(arguments)) if isinstance(arguments, dict) else None
    )


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(raw))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

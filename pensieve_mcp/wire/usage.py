"""What the provider says a request cost, read off its answer while that passes by.

The answer is only looked at: a line that is too long, broken or cut off costs the figures, nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pensieve_mcp.wire.conversation import Dialect

MOST_BYTES = 16_000_000  # of one event, or of an answer that is not streamed


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them. `input` is the whole prompt, what came from its cache included."""

    input: int
    cached: int = 0
    written: int = 0  # newly put into the cache, where the provider tells
    output: int = 0


def usage_from(fields: object, dialect: Dialect) -> Usage | None:
    """A `usage` object as a value; None where it has no prompt size."""
    if not isinstance(fields, dict):
        return None

    def number(holder: object, key: str) -> int:
        value = holder.get(key) if isinstance(holder, dict) else None
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0

    if dialect == "anthropic":
        if "input_tokens" not in fields:
            return None
        cached, written = (
            number(fields, "cache_read_input_tokens"),
            number(fields, "cache_creation_input_tokens"),
        )
        fresh = number(fields, "input_tokens")
        return Usage(fresh + cached + written, cached, written, number(fields, "output_tokens"))
    sent, answered = ("input", "output") if dialect == "responses" else ("prompt", "completion")
    if f"{sent}_tokens" not in fields:
        return None
    details = fields.get(f"{sent}_tokens_details")
    return Usage(
        number(fields, f"{sent}_tokens"),
        number(details, "cached_tokens"),
        0,
        number(fields, f"{answered}_tokens"),
    )


class UsageReader:
    """Takes an answer's bytes as they come; `usage()` is what they have told so far."""

    def __init__(self, dialect: Dialect, *, stream: bool) -> None:
        self._dialect: Dialect = dialect
        self._stream = stream
        self._rest = bytearray()
        self._too_long = False
        self._input: Usage | None = None
        self._output = 0

    def feed(self, data: bytes) -> None:
        if self._stream:
            if b"\n" not in data:
                self._keep(data)
                return
            *lines, rest = (bytes(self._rest) + data).split(b"\n")
            self._rest.clear()
            skip_first, self._too_long = self._too_long, False
            for line in lines[1:] if skip_first else lines:
                if b'"usage"' in line and line.startswith(b"data:"):
                    self._take(line[5:])
            self._keep(rest)
        else:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        if self._too_long or len(self._rest) + len(data) > MOST_BYTES:
            self._rest.clear()
            self._too_long = True
        else:
            self._rest += data

    def _take(self, raw: bytes) -> None:
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        for holder in (event.get("message"), event.get("response"), event):
            fields = holder.get("usage") if isinstance(holder, dict) else None
            if fields is None:
                continue
            found = usage_from(fields, self._dialect)
            if found is not None and (found.input or self._input is None):
                self._input = found
                self._output = max(self._output, found.output)
            elif isinstance(fields, dict) and isinstance(fields.get("output_tokens"), int):
                self._output = max(self._output, fields["output_tokens"])  # Anthropic's message_delta
            return

    def usage(self) -> Usage | None:
        """Complete only when the answer has ended."""
        if not self._stream and self._rest and not self._too_long:
            raw, self._rest = bytes(self._rest), bytearray()
            self._take(raw)
        if self._input is None:
            return None
        return Usage(self._input.input, self._input.cached, self._input.written, self._output)

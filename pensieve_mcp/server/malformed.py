"""What a line on stdin that is no message gets for an answer.

The SDK hands such a line on as an error and stays silent, so a client would wait for its answer for ever. JSON-RPC 2.0
has a code for it (section 5.1); the id of the request is told where the line lets it be read. What to do with a message
that is one is the SDK's.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

_LONE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_MOST_ID_CHARS = 200
_ANSWER = frozenset({"result", "error"})


def answer_to(error: Exception) -> JSONRPCError | None:
    """The error to answer with; None where JSON-RPC wants none: to a blank line, a notification, an answer."""
    details = _details(error)
    line = _line(details)
    if details and line is not None and not line.strip():
        return None
    message = _read(line) if line is not None else _object(details)
    if isinstance(message, dict) and (
        "id" not in message if "method" in message else _ANSWER & message.keys()
    ):
        return None
    code, words = _code_and_words(line, message)
    return JSONRPCError(jsonrpc="2.0", id=_id(message), error=ErrorData(code=code, message=words))


def _code_and_words(line: str | None, message: Any) -> tuple[int, str]:
    if line is None or isinstance(message, dict | list):
        if line is not None and _LONE.search(line):
            return PARSE_ERROR, (
                "The message holds half of a surrogate pair (an escape \\ud800 to \\udfff alone), which is no text. "
                "Send the whole character, or leave it out."
            )
        return INVALID_REQUEST, "This is JSON, but not a JSON-RPC 2.0 message; batches are not taken."
    return PARSE_ERROR, "This is not JSON: one message of JSON-RPC 2.0 stands on each line."


def _line(details: list[dict[str, Any]]) -> str | None:
    """The text that was not JSON; None where it was."""
    if not details:
        return ""
    one = next((one for one in details if one["type"] == "json_invalid"), None)
    return None if one is None else str(one["input"])


def _object(details: list[dict[str, Any]]) -> Any:
    """The JSON that was no message."""
    inputs = [one["input"] for one in details]
    return next((one for one in inputs if isinstance(one, dict) and _outer(one)), inputs[0])


def _details(error: Exception) -> list[dict[str, Any]]:
    """What the SDK's parser found; it hands on an error of pydantic's, which holds the line itself."""
    read = getattr(error, "errors", None)
    return list(read(include_url=False, include_context=False)) if callable(read) else []


def _outer(one: dict[str, Any]) -> bool:
    return bool(one.keys() & {"jsonrpc", "id", "method"})


def _read(line: str) -> Any:
    """As a lenient reader sees it: Python's own takes half a surrogate pair."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _id(message: Any) -> int | str | None:
    found = message.get("id") if isinstance(message, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | str):
        return None
    if isinstance(found, str) and (len(found) > _MOST_ID_CHARS or _unsendable(found)):
        return None
    return found


def _unsendable(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)

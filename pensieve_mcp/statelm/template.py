"""Chat messages as the text a Qwen3 model reads: turns in `im_start`/`im_end`, tools in the system turn, calls and
results in tags, an empty think block before the answer (the published weights run without thinking).

Written from the facts of that format; the tags and the sentences around the tool list are the interface the weights
were trained on, and differ in nothing but wording of ours where the weights do not care.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

START, END = "<|im_start|>", "<|im_end|>"
NO_THINKING = "<think>\n\n</think>\n\n"

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_FOOT = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)


def printed(messages: Sequence[dict[str, Any]], tools: Iterable[dict[str, Any]] = ()) -> str:
    """The prompt up to where the assistant's turn begins. A forged tag inside a result is broken up, so that a document
    cannot end its own turn."""
    specs = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    out: list[str] = []
    rest = list(messages)
    system = rest.pop(0)["content"] if rest and rest[0]["role"] == "system" else ""
    if specs:
        system = (
            (f"{system}\n\n" if system else "") + TOOLS_HEAD + "".join(f"\n{s}" for s in specs) + TOOLS_FOOT
        )
    if system:
        out.append(f"{START}system\n{system}{END}\n")
    place = 0
    while place < len(rest):
        message = rest[place]
        if message["role"] == "tool":  # neighbouring results share one user turn
            bodies = []
            while place < len(rest) and rest[place]["role"] == "tool":
                bodies.append(f"<tool_response>\n{harmless(rest[place]['content'])}\n</tool_response>")
                place += 1
            out.append(f"{START}user\n" + "\n".join(bodies) + f"{END}\n")
            continue
        if message["role"] == "assistant":
            out.append(f"{START}assistant\n{_spoken(message)}{END}\n")
        else:
            out.append(f"{START}{message['role']}\n{harmless(message['content'])}{END}\n")
        place += 1
    return "".join(out) + f"{START}assistant\n{NO_THINKING}"


def _spoken(message: dict[str, Any]) -> str:
    text = harmless(message.get("content") or "")
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = function["arguments"]
        said = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        text += (
            "\n" if text else ""
        ) + f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {said}}}\n</tool_call>'
    return text


def harmless(text: str) -> str:
    """Text of documents with the template's own marks broken by a thin space: they are data."""
    for mark in (
        START,
        END,
        "<|endoftext|>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
    ):
        if mark in text:
            text = text.replace(mark, mark[0] + "\u2009" + mark[1:])
    return text

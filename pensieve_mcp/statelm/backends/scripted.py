"""A model that says what it was told to: for tests, demos and replays. It keeps the bytes it was sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.dialects.reading import call_from
from pensieve_mcp.statelm.turns import Call, Prompt, Reply

Line = Reply | Call | str | Callable[[Prompt], "Reply | Call | str"]


class Scripted:
    """Says its lines one after another; a line may look at the prompt. Raises BackendError past the last."""

    model = "scripted"

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = list(lines)
        self.received: list[bytes] = []

    @classmethod
    def from_file(cls, path: str) -> Scripted:
        """Lines of JSON: `{"thought": …, "name": …, "arguments": {…}}`, or text."""
        if not path:
            raise BackendError(
                "No script is named.",
                hint="Name a file with one JSON call a line: --backend scripted --model FILE.",
                slug="no_script",
            )
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise BackendError(
                f"The script {path!r} cannot be read: {error}.",
                hint="Give --model a file with one JSON call a line.",
                slug="no_script",
            ) from error
        lines: list[Line] = []
        for line in text.split("\n"):
            if not line.strip():
                continue
            call = call_from(line)
            thought = str(json.loads(line).get("thought", "")) if call is not None else line
            lines.append(Reply(thought, (call,) if call is not None else ()))
        return cls(lines)

    def reply(self, prompt: Prompt) -> Reply:
        sent = (
            json.dumps({"messages": prompt.messages, "tools": prompt.tools}, ensure_ascii=False) + prompt.text
        )
        self.received.append(sent.encode("utf-8", "surrogatepass"))
        place = len(self.received) - 1
        if place >= len(self._lines):
            raise BackendError(
                "The script has no more lines.", hint="Let it end with finish.", slug="script_ended"
            )
        line = self._lines[place]
        said = line(prompt) if callable(line) else line
        if isinstance(said, str):
            said = Reply(said)
        elif isinstance(said, Call):
            said = Reply("", (said,))
        return said

    def close(self) -> None:
        """Nothing is open."""

"""`pensieve ask` at a real terminal: a pseudo terminal, as a person has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from server import Answer, events, serving

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo terminal of this kind")

QUESTION = "Who founded the Arvale Museum?"
LOGIN = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""What leads a session of its own on the terminal, so that Ctrl-C goes to it."""
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def piece(text: str) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}}]}


FINISH = {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {
    "name": "finish", "arguments": '{"answer": "Ada Quill"}'}}]}, "finish_reason": "tool_calls"}]}  # fmt: skip


class Screen:
    """A process on a pseudo terminal of 80 columns; what it wrote, and its exit status."""

    def __init__(self, words: list[str], home: Path, *, typed: Callable[[str], bytes]) -> None:
        import fcntl
        import pty
        import struct
        import termios

        terminal, theirs = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-c", LOGIN, "-m", "pensieve_mcp.cli", *words],
            env={**os.environ, "PENSIEVE_HOME": str(home), "TERM": "xterm", "PYTHONUTF8": "1"},
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""
        written = b""
        while True:
            try:
                block = os.read(terminal, 4_096)
            except OSError:  # the child has ended
                break
            if not block:
                break
            written += block
            self.text = written.decode("utf-8", "replace")
            if keys := typed(self.text):
                os.write(terminal, keys)
        os.close(terminal)
        self.code = process.wait(60)

    @property
    def lines(self) -> list[str]:
        """What a person reads in the end: of a line that was redrawn the last version."""
        plain = CONTROL.sub("", self.text.replace("\x1b[K", "\0"))
        return [
            line.split("\r")[-1].split("\0")[-1].rstrip() for line in plain.replace("\r\n", "\n").split("\n")
        ]


def nothing(text: str) -> bytes:
    return b""


def test_words_come_as_they_are_written_and_make_room_for_the_turn(folder: Path, home: Path) -> None:
    stream = events(piece("I think "), piece("it was "), piece("Ada."), FINISH, "[DONE]")
    with serving([Answer(stream, pause=0.05)]) as served:
        screen = Screen(["ask", QUESTION, str(folder), "--backend", "openai", "--url", f"{served.url}/v1"], home,
                        typed=nothing)  # fmt: skip

    first, whole = screen.text.index("… I think"), screen.text.index("… I think it was Ada.")
    assert first < whole < screen.text.index("finish(answer='Ada Quill')")
    assert screen.code == 0 and "Ada Quill" in screen.lines
    assert not [line for line in screen.lines if line.startswith("…")], "what was redrawn is gone"
    assert any("grounded: false" in line for line in screen.lines)


def test_a_key_in_the_middle_of_a_reply_ends_it_and_the_conversation_is_whole(
    folder: Path, home: Path
) -> None:
    pressed: list[str] = []

    def interrupt(text: str) -> bytes:
        if "… word" not in text or pressed:
            return b""
        pressed.append(text)
        return b"\x03"

    stream = events(*[piece(f"word{n} ") for n in range(2_000)], FINISH, "[DONE]")
    with serving([Answer(stream, pause=0.02)]) as served:
        words = ["ask", QUESTION, str(folder), "--backend", "openai", "--url", f"{served.url}/v1"]
        screen = Screen(words, home, typed=interrupt)

    assert screen.code == 130 and "word1999" not in screen.text and "Traceback" not in screen.text

"""Ctrl-C at a real terminal while a real coding agent waits for its model: it ends, we tell, nothing is left.

Skipped aloud where an agent is not installed.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from host_runs import binary
from scripted_model import ScriptedModel
from stages import stage

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

import pty

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_SECONDS = 120
CTRL_C = b"\x03"
ARGUMENTS = {
    "claude": ["-p", "Work."],
    "codex": ["exec", "--skip-git-repo-check", "Work."],
    "opencode": ["run", "Work."],
}
SETTLE_SECONDS = 2.5  # opencode takes no second one for the same before

LOGIN = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A program whose terminal we are: it leads a session of its own, and Ctrl-C goes to its foreground group."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        self.said = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOGIN, *command],
            cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)

    def wait(self, until: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                return False
            if select.select([self.ours], [], [], 0.05)[0]:
                try:
                    self.said += os.read(self.ours, 65_536)
                except OSError:  # the last who had it open is gone
                    time.sleep(0.05)
        return True

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def close(self) -> None:
        if not self.has_ended():
            self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param(host, marks=pytest.mark.skipif(binary(host) is None, reason=f"{host} is not installed"))
        for host in ARGUMENTS
    ],
)
def test_ctrl_c_at_the_terminal_ends_the_host_and_then_us(host: str, tmp_path: Path) -> None:
    with ScriptedModel([[{"text": "never said", "wait": WAIT_SECONDS}]]) as model:
        played = stage(host, tmp_path, model)
        command = [sys.executable, "-m", "pensieve_mcp.cli", "--folder", str(played.library), "run",
                   "--program", str(binary(host)), host, *ARGUMENTS[host]]  # fmt: skip
        terminal = Terminal(command, played.work, {**played.environment, "TERM": "xterm"})
        try:
            assert terminal.wait(model.done), terminal.said[-2_000:]
            for _ in range(3):  # opencode wants it twice
                os.write(terminal.ours, CTRL_C)
                if terminal.wait(terminal.has_ended, SETTLE_SECONDS):
                    break
            assert terminal.wait(terminal.has_ended, 30), terminal.said[-2_000:]
            terminal.wait(lambda: False, 0.3)
        finally:
            terminal.close()

    said = terminal.said.decode("utf-8", "replace")
    assert "Requests that ended before the model's API answered: 1." in said, said[-2_000:]
    assert "Traceback" not in said and "Not logged in" not in said
    assert terminal.process.returncode >= 0, "it ended by itself, with the host's code"
    assert not list((tmp_path / "pensieve").rglob("*.episode"))

"""Tables, bars and colour appear at a terminal and nowhere else (design: what we print is paid for in a window)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Pensieve, command, fill

pty = pytest.importorskip("pty", reason="pseudo terminals exist on POSIX only")


def at_a_terminal(place: Path, *arguments: str | Path, **variables: str) -> str:
    """What a person would see, control sequences included."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PENSIEVE_", "NO_COLOR"))
    }
    environment |= {
        "PENSIEVE_HOME": str(place / "home"),
        "TERM": "xterm",
        "COLUMNS": "100",
        "PYTHONUTF8": "1",
    } | variables
    fd, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pensieve_mcp.cli", *map(str, arguments)],
        cwd=place, env=environment, stdin=end, stdout=end, stderr=end,
    )  # fmt: skip
    os.close(end)
    seen = b""
    try:
        while piece := os.read(fd, 65_536):
            seen += piece
    except OSError:  # Linux reports the end of a terminal as an input error
        pass
    finally:
        os.close(fd)
    assert process.wait(timeout=60) == 0, seen.decode()
    return seen.decode("utf-8")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    fill(tmp_path / "documents")
    command(tmp_path, "workspace", "add", "mill", tmp_path / "documents", check=True)
    command(
        tmp_path, "note", "write", "rent", "Forty.", "--summary", "Rent [bold]of[/bold] the mill", check=True
    )
    return tmp_path


def test_a_terminal_gets_headings_and_a_pipe_gets_tabs(place: Path) -> None:
    terminal, pipe = at_a_terminal(place, "note", "list"), command(place, "note", "list")

    assert "summary" in terminal
    assert "[bold]of[/bold]" in terminal, "what stands in a note is no markup"
    assert pipe.out == "rent\tRent [bold]of[/bold] the mill\t1\n"


def test_a_terminal_sees_a_bar(place: Path) -> None:
    assert "Indexing mill" in at_a_terminal(place, "index")
    assert "\x1b" not in command(place, "index").err


def test_no_color_is_obeyed(place: Path) -> None:
    assert "\x1b[" in at_a_terminal(place, "note", "list")
    assert "\x1b[" not in at_a_terminal(place, "note", "list", NO_COLOR="1")
    assert "\x1b[" not in at_a_terminal(place, "note", "show", "rent", NO_COLOR="1")


def test_json_stays_plain_at_a_terminal(place: Path) -> None:
    assert "\x1b[" not in at_a_terminal(place, "note", "list", "--json")


def test_a_dumb_terminal_counts_as_none(place: Path) -> None:
    shown = at_a_terminal(place, "note", "list", TERM="dumb")
    assert "\nrent\t" in shown.replace("\r", "")


def test_a_pipe_is_silent_about_progress(pensieve: Pensieve, documents: Path) -> None:
    said = pensieve("index", documents)

    assert "\r" not in said.err + said.out
    assert len(said.out.splitlines()) == 1

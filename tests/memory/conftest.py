"""A whole memory (notebook, ledger, blobs) over a temporary folder, and children that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pensieve_mcp
from pensieve_mcp.ledger.blobs import Blobs
from pensieve_mcp.ledger.store import BASIN as LEDGER
from pensieve_mcp.ledger.store import Ledger
from pensieve_mcp.notebook.store import BASIN as NOTEBOOK
from pensieve_mcp.notebook.store import Notebook
from pensieve_mcp.storage import Connections

PACKAGE_ROOT = Path(pensieve_mcp.__file__).resolve().parents[1]


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Memory:
    folder: Path
    clock: Clock
    connections: Connections
    blobs: Blobs
    ledger: Ledger
    notebook: Notebook

    def close(self) -> None:
        self.ledger.close()
        self.connections.close()


def open_memory(folder: Path, clock: Clock | None = None) -> Memory:
    clock = clock or Clock()
    connections = Connections(folder / "pensieve.db", basins=(NOTEBOOK, LEDGER), precious=True)
    blobs = Blobs(folder / "blobs.db", clock=clock)
    return Memory(
        folder,
        clock,
        connections,
        blobs,
        Ledger(connections, blobs, clock=clock),
        Notebook(connections, clock=clock),
    )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    opened = open_memory(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def reopen(memory: Memory) -> Iterator[Callable[[], Memory]]:
    """Another process' view of the same state: connections of its own."""
    opened: list[Memory] = []

    def again() -> Memory:
        opened.append(open_memory(memory.folder, memory.clock))
        return opened[-1]

    yield again
    for one in opened:
        one.close()


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program with pipes on all three ends; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()

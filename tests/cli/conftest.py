"""A shell over temporary folders: `pensieve(...)` runs one command line in this process and answers what came out."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.cli import run

LEASE = """# The lease of the mill

## 1. Parties

The mill at Ashford is let by Agnes Holm to the brothers Teller, millers, from the first of May.

## 2. Rent

The rent is forty-two florins a quarter, paid on the bridge, in coin. Late rent bears interest of one twentieth part.

## 3. Notice

Either side may end the lease by notice in writing of six months. The notice is nailed to the door of the mill.
"""
HERONS = "Day book of the heronry.\n" + "\n".join(
    f"Day {day}: {day * 3 % 17} herons on the north bank, the water at {day % 5} feet."
    for day in range(1, 120)
)


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """stdout as JSON: one document."""
        return json.loads(self.out)


Pensieve = Callable[..., Said]


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "lease.md").write_text(LEASE, encoding="utf-8")
    (folder / "herons.txt").write_text(HERONS, encoding="utf-8")
    (folder / "prices.csv").write_text("grain,price\nrye,3\nbarley,2\n", encoding="utf-8")
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 8)
    (folder / ".hidden.txt").write_text("not shown", encoding="utf-8")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder; nothing of the person at the machine is seen."""
    for name in [name for name in os.environ if name.startswith("PENSIEVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PENSIEVE_HOME", str(tmp_path / "home"))
    for name in ("HOME", "USERPROFILE"):  # `doctor` looks into the hosts' configurations
        monkeypatch.setenv(name, str(tmp_path / "nobody"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return fill(tmp_path / "documents")


@pytest.fixture
def pensieve(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pensieve:
    def call(*arguments: str | Path, stdin: str = "") -> Said:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = run([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `documents` and an indexed `home`, made once; for tests that only look."""
    place = tmp_path_factory.mktemp("shared")
    fill(place / "documents")
    done = command(place, "index", place / "documents")
    assert done.code == 0, done.err
    return place


@pytest.fixture
def looking(shared: Path, pensieve: Pensieve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pensieve]:
    """`pensieve` on the shared, indexed workspace."""
    monkeypatch.setenv("PENSIEVE_HOME", str(shared / "home"))
    yield pensieve


def command(place: Path, *arguments: str | Path, stdin: str = "", check: bool = False) -> Said:
    """`pensieve` in a process of its own, with `place/home` as its data folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSIEVE_")}
    environment |= {"PENSIEVE_HOME": str(place / "home"), "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pensieve_mcp.cli", *map(str, arguments)],
        cwd=place,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return Said(done.returncode, done.stdout, done.stderr)

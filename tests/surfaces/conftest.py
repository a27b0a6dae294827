"""A small library and the server over it, in process and as a real subprocess."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters

from pensieve_mcp.server.opening import Opening, with_reader
from pensieve_mcp.server.options import Options
from pensieve_mcp.server.surface import Surface
from pensieve_mcp.workspace import Workspace

LIGHTHOUSE = """# The light of Velsay

## Oil

The keeper Maren Holt used 412 barrels of oil in the year 1911.

## Weather

On 3 March 1911 the wind tore off the western door. It was mended on 9 March.
"""
MULTILINGUAL = """# 灯台の記録

灯台守は一九一一年に油を四百十二樽使った。

Der Wärter schrieb: „Größe ist nicht Höhe.“ Смотритель закрыл дверь. الحارس أغلق الباب 🕯️
"""
LEDGER = "date,barrels\n" + "".join(f"1911-{month:02}-01,{30 + month}\n" for month in range(1, 13))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    (folder / "logs").mkdir(parents=True)
    (folder / "light.md").write_text(LIGHTHOUSE, encoding="utf-8")
    (folder / "languages.md").write_text(MULTILINGUAL, encoding="utf-8")
    (folder / "logs" / "oil.csv").write_text(LEDGER, encoding="utf-8")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the server reads: a home of its own, and settings that need no model of language."""
    return {
        "PENSIEVE_HOME": str(tmp_path / "home"),
        "PENSIEVE_UPGRADE": "false",
        "PENSIEVE_SECOND_STAGE": "false",
    }


Serve = Callable[..., Surface]


@pytest.fixture
def serve(library: Path, environment: dict[str, str]) -> Iterator[Serve]:
    """A server in this process; several may share one workspace. Builds run inline, so that tests need not
    wait.
    """
    openings: list[Opening] = []

    def make(
        *,
        host_environment: dict[str, str] | None = None,
        folders: Sequence[Path] | None = None,
        **options: bool,
    ) -> Surface:
        chosen = Options(
            folders=tuple(str(folder) for folder in ([library] if folders is None else folders)),
            working_directory="/somewhere",
        )

        def open_workspace() -> Workspace:
            if not chosen.given:
                raise chosen.no_folder()
            workspace = Workspace.open(chosen.folders, environment=environment, builder="inline")
            return with_reader(workspace, environment)

        openings.append(Opening(chosen, open_workspace))
        return Surface(openings[-1], host_environment or {}, look_seconds=0.02, **options)

    yield make
    for opening in openings:
        opening.close()


@pytest.fixture
def parameters(library: Path, environment: dict[str, str]) -> Callable[..., StdioServerParameters]:
    """How to start the real program over the library."""

    def make(*arguments: str, folder: Path | None = library, **variables: str) -> StdioServerParameters:
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "pensieve_mcp.server", *arguments, *([str(folder)] if folder else [])],
            env={**bare_environment(), **environment, **variables},
        )

    return make


def bare_environment() -> dict[str, str]:
    """This process's environment without what would steer the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PENSIEVE_", "CLAUDE"))}

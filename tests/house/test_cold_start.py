"""Heavy things wait: what a cold start must not load, looked at in fresh interpreters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = (
    "numpy",
    "tantivy",
    "tokenizers",
    "onnxruntime",
    "torch",
    "transformers",
    "sentence_transformers",
    "pypdfium2",
    "watchfiles",
)

LIST_TOOLS = """
import asyncio, json, sys
import pensieve_mcp.server as server
"""


def loaded_after(code: str, tmp_path: Path) -> set[str]:
    """Top-level names in sys.modules after `code`, in a new interpreter with an empty home."""
    program = (
        f"import sys, json\n{code}\nprint('\\n' + json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    )
    environment = {**os.environ, "PENSIEVE_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.strip().splitlines()[-1]))


def shell(*arguments: str) -> str:
    return f"from pensieve_mcp.cli import run\nassert run({list(arguments)!r}) == 0"


def test_importing_the_server_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_after("import pensieve_mcp.server", tmp_path)

    assert not loaded & {*HEAVY, "sqlite_utils", "rich"}


def test_the_help_of_the_shell_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_after(shell("--help"), tmp_path)

    assert not loaded & {*HEAVY, "mcp", "pydantic", "sqlite_utils", "rich", "asyncio"}


def test_listing_notes_loads_nothing_heavy(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    loaded = loaded_after(shell("--folder", str(documents), "note", "list"), tmp_path)

    assert not loaded & {*HEAVY, "mcp", "pydantic", "rich"}


def test_the_spellbook_loads_no_basin_library(tmp_path: Path) -> None:
    loaded = loaded_after(
        "from pensieve_mcp.spellbook.registry import spellbook\n[s.input_schema() for s in spellbook().values()]",
        tmp_path,
    )

    assert not loaded & {*HEAVY, "sqlite_utils", "mcp", "rich", "click"}

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

    assert not loaded & {*HEAVY, "sqlite_utils", "mcp", "rich"}


def test_the_help_of_the_shell_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_after(shell("--help"), tmp_path)

    assert not loaded & {*HEAVY, "mcp", "pydantic", "sqlite_utils", "rich", "asyncio"}


def test_listing_notes_loads_nothing_heavy(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    loaded_after(shell("workspace", "add", "shelf", str(documents)), tmp_path)
    loaded = loaded_after(shell("--workspace", "shelf", "note", "list"), tmp_path)

    assert not loaded & {*HEAVY, "mcp", "pydantic", "rich"}


def test_the_spellbook_loads_no_basin_library(tmp_path: Path) -> None:
    loaded = loaded_after(
        "from pensieve_mcp.spellbook.registry import spellbook\n[s.input_schema() for s in spellbook().values()]",
        tmp_path,
    )

    assert not loaded & {*HEAVY, "sqlite_utils", "mcp", "rich", "click"}


def test_the_server_lists_its_tools_before_it_loads_a_database(tmp_path: Path) -> None:
    """The real server over stdio: what had been imported when `tools/list` was answered (`-X importtime` tells)."""
    documents = tmp_path / "documents"
    documents.mkdir()
    told = tmp_path / "imports.txt"
    environment = {**os.environ, "PENSIEVE_HOME": str(tmp_path / "home"), "PENSIEVE_AUTO_INDEX": "false"}
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "house", "version": "0"},
    }
    asked = (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    )
    with told.open("w", encoding="utf-8") as errors:
        server = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "pensieve_mcp.server", str(documents)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
        assert server.stdin and server.stdout
        try:
            for message in asked:
                server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            answers = [json.loads(server.stdout.readline()) for _ in range(2)]
            imported = {
                line.rsplit("|", 1)[-1].strip().split(".")[0]
                for line in told.read_text(encoding="utf-8").splitlines()
                if line.startswith("import time:")
            }
        finally:
            server.stdin.close()
            server.stdout.close()
            server.wait(timeout=60)

    assert len(answers[1]["result"]["tools"]) == 12
    assert "mcp" in imported, "importtime told something"
    # click, and watchfiles where it is installed, come with the SDK's web server
    assert sorted(imported & {*HEAVY, "sqlite_utils"} - {"watchfiles"}) == []

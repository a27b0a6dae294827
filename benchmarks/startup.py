"""From the start of the process to the answered `tools/list`: CPU of our server against a bare one of the SDK.

    python benchmarks/startup.py [--runs 7] [--json FILE]

Both are started as a host would, asked over stdio in both eras of the protocol, and killed once the tools are
listed; what the system counted for the child until then is the figure. The bar is the ratio of the medians.
Then the modules that a start must not load are looked for, in the interpreter's own list of imports.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BAR = 1.25
FORBIDDEN = (
    "sqlite_utils",
    "numpy",
    "tantivy",
    "tokenizers",
    "pypdfium2",
    "onnxruntime",
    "torch",
    "sentence_transformers",
)

BARE = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")

@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

server.run("stdio")
"""
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "startup", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ASKED = {
    "2026-07-28": [
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": ENVELOPE}},
    ],
    "2025-06-18": [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "startup", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ],
}  # fmt: skip


def start_and_list(
    command: list[str], era: str, environment: dict[str, str], stderr: Path
) -> tuple[float, int]:
    """CPU seconds of one start to the answered list, and the number of tools."""
    with stderr.open("wb") as told:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, env=environment
        )
        assert child.stdin is not None and child.stdout is not None
        tools = -1
        for message in ASKED[era]:
            child.stdin.write(json.dumps(message).encode() + b"\n")
            child.stdin.flush()
            if "id" in message:
                answer = json.loads(child.stdout.readline())
                if message["id"] == 2:
                    tools = len(answer["result"]["tools"])
        child.kill()
        _, _, usage = os.wait4(child.pid, 0)
        child.returncode = 0
        child.stdin.close()
        child.stdout.close()
    return usage.ru_utime + usage.ru_stime, tools


def imported(stderr: Path) -> set[str]:
    """Names of imported modules in the output of `-X importtime`."""
    lines = stderr.read_text(encoding="utf-8", errors="replace").splitlines()
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines if line.startswith("import time:")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", help="write the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        documents = Path(place, "documents")
        documents.mkdir()
        (documents / "one.md").write_text("# One\n\nA document.\n", encoding="utf-8")
        environment = os.environ | {"PENSIEVE_HOME": str(Path(place, "home"))}
        stderr = Path(place, "stderr")
        commands = {
            "bare": [sys.executable, "-c", BARE],
            "ours": [sys.executable, "-m", "pensieve_mcp.server", str(documents)],
        }
        figures: dict[str, dict[str, float]] = {}
        for era in ASKED:
            seconds: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(given.runs):  # in turn, so that a busy machine is unkind to both
                for name, command in commands.items():
                    seconds[name].append(start_and_list(command, era, environment, stderr)[0])
            figures[era] = {name: statistics.median(values) for name, values in seconds.items()}
            figures[era]["ratio"] = figures[era]["ours"] / figures[era]["bare"]
        watched = [sys.executable, "-X", "importtime", *commands["ours"][1:]]
        _, tools = start_and_list(watched, "2026-07-28", environment, stderr)
        loaded = sorted(imported(stderr).intersection(FORBIDDEN))
    held = not loaded and all(figure["ratio"] <= BAR for figure in figures.values())
    table = ["protocol    bare SDK, CPU s  pensieve-mcp, CPU s  ratio"]
    table += [f"{era}  {f['bare']:15.3f}  {f['ours']:19.3f}  {f['ratio']:5.2f}" for era, f in figures.items()]
    table.append(f"tools listed: {tools}; loaded though forbidden: {', '.join(loaded) or 'none'}")
    table.append(f"({', '.join(FORBIDDEN)})")
    table.append(f"bar {BAR}: {'held' if held else 'missed'}")
    sys.stdout.write("\n".join(table) + "\n")
    if given.json:
        Path(given.json).write_text(
            json.dumps({"bar": BAR, "held": held, "eras": figures, "loaded": loaded}, indent=1) + "\n",
            encoding="utf-8",
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

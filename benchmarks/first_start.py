"""The first start over a large folder: how long a host waits for each answer, against a folder of one file.

    python benchmarks/first_start.py [--files 100000] [--json FILE]

A fresh data folder, so nothing is indexed yet. The server is started and asked over stdio as a host does: initialize,
tools/list, three searches, buildIndex, checkBudget. The same is done over a folder of one file in the same run; figures
are seconds on the clock, and ratios. Hosts give up starting after 30 to 60 s, and a call after 60 s (Claude Desktop).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CALL_LIMIT_SECONDS = 60.0
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "first_start", "version": "1"},
}
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("searchEngine", {"keyword": "barrels of oil of lamp 12"}),
    ("searchEngine", {"keyword": "wind from the south"}),
    ("searchEngine", {"keyword": "lamp 99999"}),
    ("buildIndex", {}),
    ("checkBudget", {}),
)


def fill(folder: Path, files: int) -> None:
    """So many small documents, 500 to a folder."""
    for number in range(files):
        below = folder / f"d{number // 500:03}"
        if number % 500 == 0:
            below.mkdir()
        wind = ("north", "south", "east", "west")[number % 4]
        (below / f"n{number:06}.md").write_text(
            f"# Record {number}\n\nThe keeper of lamp {number} used {number * 7 % 1000} barrels of oil. "
            f"The wind came from the {wind}.\n",
            encoding="utf-8",
        )


def first_start(folder: Path, state: Path) -> list[tuple[str, float, str]]:
    """What was asked, the seconds until its answer, and the answer's second line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pensieve_mcp.server", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PENSIEVE_HOME": str(state)},
    )
    assert process.stdin is not None and process.stdout is not None
    figures: list[tuple[str, float, str]] = []
    begun = time.monotonic()

    def ask(name: str, method: str, params: dict[str, Any]) -> None:
        nonlocal begun
        line = {"jsonrpc": "2.0", "id": len(figures) + 1, "method": method, "params": params}
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        answer: dict[str, Any] = {}
        while "id" not in answer:
            answer = json.loads(process.stdout.readline())
        content = answer["result"].get("content")
        said = content[0]["text"].split("\n")[1] if content else ""
        figures.append((name, time.monotonic() - begun, said))
        begun = time.monotonic()

    try:
        ask("start, initialize", "initialize", INITIALIZE)
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        ask("tools/list", "tools/list", {})
        for name, arguments in CALLS:
            ask(name, "tools/call", {"name": name, "arguments": arguments})
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--json", help="write the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folders = {"one": 1, "many": given.files}
        for name, files in folders.items():
            Path(place, name).mkdir()
            fill(Path(place, name), files)
        asked = {name: first_start(Path(place, name), Path(place, f"home {name}")) for name in folders}
        rows = [
            {"what": what, "one": one, "many": many, "ratio": many / one if one else 0.0, "said": said}
            for (what, one, _), (_, many, said) in zip(asked["one"], asked["many"], strict=True)
        ]
        held = all(row["many"] < CALL_LIMIT_SECONDS for row in rows)
        out = [f"of {given.files:,} files", f"{'':<20}  1 file, s  many, s  ratio  answer"]
        out += [
            f"{row['what']:<20}  {row['one']:9.2f}  {row['many']:7.2f}  {row['ratio']:5.1f}  {str(row['said'])[:100]}"
            for row in rows
        ]
        out.append(f"every answer within {CALL_LIMIT_SECONDS:g} s: {'yes' if held else 'no'}")
        sys.stdout.write("\n".join(out) + "\n")
        if given.json:
            Path(given.json).write_text(
                json.dumps({"files": given.files, "held": held, "rows": rows}, indent=1) + "\n"
            )
        sys.stdout.flush()  # to remove the files takes longer than all the rest
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

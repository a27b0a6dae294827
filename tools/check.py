# a script that talks
"""All that must hold before a change is taken: lint, format, types, current docs, tests. CI runs exactly this.

`python tools/check.py` goes on after a failure, so that one run shows everything, and ends with what failed. Arguments
are handed to pytest: `python tools/check.py tests/cli -x`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ("pensieve_mcp", "tests", "tools", "benchmarks")


def steps(arguments: list[str]) -> list[tuple[str, list[str]]]:
    code = [folder for folder in CODE if any((ROOT / folder).rglob("*.py"))]
    return [
        ("lint", ["-m", "ruff", "check", "--output-format", "concise", *code]),
        ("format", ["-m", "ruff", "format", "--check", *code]),
        ("types", ["-m", "mypy"]),
        ("docs", ["tools/print_docs.py", "--check"]),
        ("manifests", ["tools/make_manifests.py", "--check"]),
        ("validators", ["tools/validate_manifests.py"]),
        ("tests", ["-m", "pytest", *arguments]),
    ]


def main() -> int:
    failed = []
    for name, command in steps(sys.argv[1:]):
        print(f"== {name}: python {' '.join(command)}", flush=True)
        if subprocess.run([sys.executable, *command], cwd=ROOT).returncode:
            failed.append(name)
    print(f"FAILED: {', '.join(failed)}" if failed else "All checks passed.", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the hosts' and registries' own validators over `manifests/` and SKILL.md; what is not installed is said aloud.

A validator that warns fails the run, since a warning that stays is read by nobody. Programs are looked for
beside this Python, in the folders that `PENSIEVE_HOSTS` names (node packages) and on the path. `--all` makes a missing
one a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "manifests"
SECONDS = 120
QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "NO_COLOR": "1",
}


@dataclass(frozen=True)
class Check:
    """One call of a validator. `bad` is what its output must not hold though it exits with 0."""

    program: str
    arguments: tuple[str, ...]
    bad: str = ""


def checks(copy: Path) -> list[Check]:
    """`copy` holds SKILL.md in a folder of the skill's name, as an agent would keep it."""
    claude = r"[1-9]\d* (warning|error)|⚠|✘"
    plugins = [path.parents[1] for path in sorted(MANIFESTS.glob("**/.claude-plugin/plugin.json"))]
    found = [
        Check("claude", ("plugin", "validate", str(folder), "--strict"), claude)
        for folder in (*plugins, MANIFESTS / "claude-code", ROOT)
    ]
    found += [
        Check("mcpb", ("validate", str(MANIFESTS / "claude-desktop" / "manifest.json")), r"\bERROR\b|✖"),
        Check("agentskills", ("validate", str(copy))),
        Check("gemini", ("extensions", "validate", str(MANIFESTS / "gemini")), "(?i)warning"),
        Check("agnix", ("--strict", str(MANIFESTS))),
    ]
    found += [
        Check("skillsaw", ("lint", str(MANIFESTS / folder)), r"Warnings:\s*[1-9]|Errors:\s*[1-9]")
        for folder in ("claude-code", "codex", "agent-plugin", "registry")
    ]
    return found


def program(name: str) -> str | None:
    """Where a validator is, or None."""
    if named := os.environ.get(f"{name.upper()}_BIN"):
        return named
    hosts = [
        Path(one) / "node_modules" for one in os.environ.get("PENSIEVE_HOSTS", "").split(os.pathsep) if one
    ]
    if name == "claude":
        for modules in hosts:
            for path in sorted(modules.glob("@anthropic-ai/claude-code-*/claude")):
                return str(path)
    folders = [str(Path(sys.executable).parent), *(str(modules / ".bin") for modules in hosts)]
    return shutil.which(name, path=os.pathsep.join(folders)) or shutil.which(name)


def run(check: Check, command: str, home: str) -> str | None:
    """What the validator complains about; None if it is content."""
    paths = [
        str(Path(one) / "node_modules" / ".bin")
        for one in os.environ.get("PENSIEVE_HOSTS", "").split(os.pathsep)
    ]
    environment = {
        **os.environ,
        **QUIET,
        "HOME": home,
        "PATH": os.pathsep.join([*paths, os.environ.get("PATH", "")]),
    }
    try:
        done = subprocess.run(
            [command, *check.arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode or (check.bad and re.search(check.bad, output)):
        return f"exit code {done.returncode}\n{output.strip()[-3_000:]}"
    return None


def main() -> int:
    failed: list[str] = []
    missing: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "pensieve"
        copy.mkdir()
        shutil.copy(ROOT / "SKILL.md", copy)
        home = Path(folder) / "home"
        home.mkdir()
        for check in checks(copy):
            words = (
                " ".join((check.program, *check.arguments))
                .replace(f"{ROOT}{os.sep}", "")
                .replace(folder, "…")
            )
            command = program(check.program)
            if command is None:
                missing.add(check.program)
                print(f"SKIPPED  {words}: {check.program} is not installed")
                continue
            wrong = run(check, command, str(home))
            print(
                f"{'FAILED ' if wrong else 'ok     '}  {words}" + (f"\n{wrong}" if wrong else ""), flush=True
            )
            if wrong:
                failed.append(words)
    if missing:
        print(f"Not checked, since not installed: {', '.join(sorted(missing))}.")
    print(f"FAILED: {', '.join(failed)}" if failed else "Nothing to complain about.")
    return 1 if failed or (missing and "--all" in sys.argv[1:]) else 0


if __name__ == "__main__":
    sys.exit(main())

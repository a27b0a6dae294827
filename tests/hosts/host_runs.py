"""Start a real coding agent against our server, with a scripted model in place of an LLM.

Everything stays on the loopback: a fresh home for each run, a key that is none, telemetry and updates off.
Agents come from npm and are found through `CLAUDE_BIN`, `CODEX_BIN`, `OPENCODE_BIN` and `GEMINI_BIN`, in a
`node_modules` of this folder or one above, or in the folder that `PENSIEVE_HOSTS` names; npm skips some install
scripts, so the platform's own binary is taken.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripted_model import ScriptedModel, conversation_text, tool_names, tool_results

HOSTS = ("claude", "codex", "opencode", "gemini")
SERVER_NAME = "pensieve"
RUN_SECONDS = 240
TOKEN = "PENSIEVE_TOKEN"

_PLACES = {
    "claude": ("@anthropic-ai/claude-code-*/claude",),
    "codex": ("@openai/codex-*/vendor/*/bin/codex", ".bin/codex"),
    "opencode": ("opencode-linux-*/bin/opencode", "opencode-darwin-*/bin/opencode"),
    "gemini": (".bin/gemini",),
    "inspector": (".bin/mcp-inspector",),
}
_QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "MCP_TIMEOUT": "150000",  # a busy machine is no fault of the server
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
}


def binary(host: str) -> str | None:
    """The agent's program, or None if it is not installed."""
    if named := os.environ.get(f"{host.upper()}_BIN"):
        return named
    above = [folder / "node_modules" for folder in Path(__file__).resolve().parents]
    if elsewhere := os.environ.get("PENSIEVE_HOSTS"):
        above.insert(0, Path(elsewhere) / "node_modules")
    for modules in above:
        for pattern in _PLACES[host]:
            if found := next(
                (path for path in sorted(modules.glob(pattern)) if os.access(path, os.X_OK)), None
            ):
                return str(found)
    return shutil.which(host)


@dataclass(frozen=True)
class Run:
    """What a run left: the requests that took a turn of the script, oldest first."""

    host: str
    returncode: int
    output: str
    requests: list[dict[str, Any]]
    done: bool  # whether every turn of the script was used

    def results(self) -> list[dict[str, Any]]:
        """Tool results as the model saw them at last: id, text, error."""
        return tool_results(self.requests[-1]["body"])

    def tools(self) -> list[str]:
        return tool_names(self.requests[-1]["body"])

    def conversation(self) -> str:
        return conversation_text(self.requests[-1]["body"])


def run(
    host: str,
    server: list[str],
    turns: list[list[dict[str, Any]]],
    environment: dict[str, str],
    *,
    prompt: str | None = None,
    installed: list[str] | None = None,
    prepare: Callable[[Path, Path, dict[str, str]], list[str]] | None = None,
    meanwhile: Callable[[int, ScriptedModel], None] | None = None,
) -> Run:
    """Let the agent work through the turns with the server configured: a command, or the address of
    a running one. `environment` is the server's.

    `installed`: arguments of `pensieve` that set the server up in the agent's home instead; `server` is not used then.
    `prepare`: called with the agent's home, working folder and environment instead; answers more arguments for it.
    `meanwhile`: called with the agent's process id while it works; what is left of it then is killed.
    """
    program = binary(host)
    assert program is not None, f"{host} is not installed"
    with ExitStack() as stack:
        home = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{host}-", ignore_cleanup_errors=True))
        )
        work = home / "work"
        work.mkdir()
        model = stack.enter_context(ScriptedModel(turns))
        argv, extra = _CONFIGURE[host](
            program, model.url, home, work, [] if installed or prepare else server, environment
        )
        base = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8"}
        base |= _QUIET | extra
        if installed:
            command = [sys.executable, "-m", "pensieve_mcp.cli", *installed]
            done = subprocess.run(
                command, cwd=work, env=base, capture_output=True, text=True, timeout=RUN_SECONDS
            )
            assert done.returncode == 0, done.stderr
        if prepare:
            argv += prepare(home, work, base)
        argv = [prompt if prompt is not None and word == PROMPT else word for word in argv]
        process = subprocess.Popen(
            argv,
            cwd=work,
            env=base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            if meanwhile is not None:
                try:
                    meanwhile(process.pid, model)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return Run(host, process.returncode, output, model.turns_taken(), model.done())


def over_http(server: list[str]) -> str | None:
    """The address of a server that runs already, where the command is one."""
    return server[0] if server and server[0].startswith("http://") else None


PROMPT = "Work through the script."


def _claude(
    program: str, url: str, home: Path, work: Path, server: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    argv = [program, "-p", PROMPT, "--output-format", "stream-json", "--verbose"]
    if server:
        entry: dict[str, Any] = {
            "type": "stdio",
            "command": server[0],
            "args": server[1:],
            "env": environment,
        }
        if served := over_http(server):
            entry = {
                "type": "http",
                "url": served,
                "headers": {"Authorization": f"Bearer {environment[TOKEN]}"},
            }
        config = home / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {SERVER_NAME: entry}}))
        argv += ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", f"mcp__{SERVER_NAME}"]
    return argv, {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-dummy-0000"}


def _codex(
    program: str, url: str, home: Path, work: Path, server: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    folder = home / ".codex"
    folder.mkdir()
    # No approval is set: the annotations alone must let the tools run.
    entry = [
        f"[mcp_servers.{SERVER_NAME}]",
        f"command = {json.dumps(server[0] if server else '')}",
        f"args = {json.dumps(server[1:])}",
        "required = true",
        f"[mcp_servers.{SERVER_NAME}.env]",
        *(f"{name} = {json.dumps(value)}" for name, value in environment.items()),
    ]
    if served := over_http(server):
        entry = [
            f"[mcp_servers.{SERVER_NAME}]",
            f"url = {json.dumps(served)}",
            f'bearer_token_env_var = "{TOKEN}"',
            "required = true",
        ]
    lines = [
        'model = "gpt-5.5"',
        'model_provider = "scripted"',
        'approval_policy = "never"',
        'sandbox_mode = "read-only"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        "[model_providers.scripted]",
        'name = "scripted"',
        f'base_url = "{url}/v1"',
        'env_key = "SCRIPTED_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 0",
        "stream_max_retries = 0",
        *(entry if server else []),
    ]
    (folder / "config.toml").write_text("\n".join(lines) + "\n")
    return [program, "exec", "--skip-git-repo-check", "--json", PROMPT], {
        "CODEX_HOME": str(folder),
        "SCRIPTED_KEY": "sk-dummy",
        TOKEN: environment.get(TOKEN, ""),
    }


def _opencode(
    program: str, url: str, home: Path, work: Path, server: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    model = {"name": "m", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/anthropic",
        "name": "Scripted",
        "options": {"baseURL": url + "/v1", "apiKey": "x"},
        "models": {"m": model},
    }
    config: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/m",
        "small_model": "scripted/m",
        "permission": "allow",
        "provider": {"scripted": provider},
    }
    if server:
        entry = {"type": "local", "command": server, "enabled": True, "environment": environment}
        config["mcp"] = {SERVER_NAME: entry}
    (work / "opencode.json").write_text(json.dumps(config))
    return [program, "run", PROMPT], {}


def _gemini(
    program: str, url: str, home: Path, work: Path, server: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    config: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "telemetry": {"enabled": False},
    }
    if server:
        entry = {
            "command": server[0],
            "args": server[1:],
            "env": environment,
            "trust": True,
            "timeout": 60_000,
        }
        config["mcpServers"] = {SERVER_NAME: entry}
    settings.write_text(json.dumps(config))
    return [program, "-p", PROMPT, "--approval-mode", "yolo", "-m", "gemini-2.5-pro"], {
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": url,
    }


_CONFIGURE = {"claude": _claude, "codex": _codex, "opencode": _opencode, "gemini": _gemini}

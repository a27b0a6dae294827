"""How a host is started behind the gateway, with our server, without a change to the user's own files.

What each host takes was tested against the hosts themselves: environment variables and command-line
configuration, which go before what the user's files say. Credentials are neither read nor passed on by us: the
host has its own, and sends them through.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.gateway.proxy import Upstream
from pensieve_mcp.hosts.errors import HostError
from pensieve_mcp.hosts.jsonc import Jsonc
from pensieve_mcp.hosts.toml_tables import rendered
from pensieve_mcp.places import typed
from pensieve_mcp.vendors import ANTHROPIC, CHATGPT, OPENAI, V1

LOGIN_SECONDS = 10.0
SERVER_NAME = "pensieve"
HOSTS = ("claude", "codex", "opencode")
AGAIN = {"claude": "--continue", "codex": "resume --last", "opencode": "--continue"}
"""What goes on with the last conversation; started without us, the host would have neither server nor gateway."""


@dataclass(frozen=True, slots=True)
class Server:
    """Our MCP server's command, and the environment it needs where a host passes none."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `arguments` follow the program's name."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Where a host sends its requests now, and how it is told to send them to us."""

    upstreams: tuple[Upstream, ...]
    details: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def route(
    host: str, program: str, environment: Mapping[str, str], folder: Path, *, upstream: str | None = None
) -> Route:
    """Where this host goes without us, by its environment and configuration; `upstream` says it instead.

    Raises WorkspaceError for an unknown host or a configuration that cannot be read.
    """
    if host == "claude":
        return _claude_route(environment, folder, upstream)
    if host == "codex":
        return _codex_route(program, environment, upstream)
    if host == "opencode":
        return _opencode_route(environment, folder, upstream)
    raise WorkspaceError(
        f"There is no host {host!r}.", hint=f"There are {', '.join(HOSTS)}.", slug="no_such_host"
    )


def launch(
    host: str,
    route: Route,
    gateway: str,
    server: Server,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    scratch: Path,
) -> Launch:
    """The host's command line and environment. `scratch` is a folder for a temporary file."""
    make = {"claude": _claude, "codex": _codex, "opencode": _opencode}[host]
    return make(route, gateway, server, tuple(arguments), dict(environment), scratch)


# -- Claude Code -----------------------------------------------------------------------------------------------------


def _claude_route(environment: Mapping[str, str], folder: Path, upstream: str | None) -> Route:
    home = Path(
        environment.get("CLAUDE_CONFIG_DIR") or Path(environment.get("HOME") or typed("~")) / ".claude"
    )
    configured = ""
    for path in (
        home / "settings.json",
        folder / ".claude" / "settings.json",
        folder / ".claude" / "settings.local.json",
    ):
        variables = _json(path).get("env")
        if isinstance(variables, dict) and isinstance(variables.get("ANTHROPIC_BASE_URL"), str):
            configured = variables["ANTHROPIC_BASE_URL"]
    url = upstream or configured or environment.get("ANTHROPIC_BASE_URL") or ANTHROPIC
    warnings = tuple(
        f"{name} is set: Claude Code then does not go by ANTHROPIC_BASE_URL, and nothing passes the gateway."
        for name in ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
        if environment.get(name) not in (None, "", "0", "false")
    )
    return Route((Upstream.of(url),), {"in_settings": "yes" if configured else ""}, warnings)


def _claude(
    route: Route,
    gateway: str,
    server: Server,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    scratch: Path,
) -> Launch:
    entry = {
        "type": "stdio",
        "command": server.command[0],
        "args": list(server.command[1:]),
        "env": dict(server.environment),
    }
    config = scratch / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {SERVER_NAME: entry}}), encoding="utf-8")
    before = [f"--mcp-config={config}"]  # with `=`, since the option takes every word that follows it
    if route.details.get("in_settings"):
        before += ["--settings", json.dumps({"env": {"ANTHROPIC_BASE_URL": gateway}})]
    return Launch((*before, *arguments), {**environment, "ANTHROPIC_BASE_URL": gateway}, route.warnings)


# -- Codex -----------------------------------------------------------------------------------------------------------


def _codex_route(program: str, environment: Mapping[str, str], upstream: str | None) -> Route:
    home = Path(environment.get("CODEX_HOME") or Path(environment.get("HOME") or typed("~")) / ".codex")
    config = _toml(home / "config.toml")
    provider = config.get("model_provider")
    own = config.get("model_providers", {}).get(provider) if isinstance(provider, str) else None
    if isinstance(own, dict) and provider != "openai":
        url = upstream or own.get("base_url")
        if not isinstance(url, str):
            raise WorkspaceError(
                f"Codex's provider {provider} names no base_url.",
                hint="Give --upstream URL.",
                slug="bad_upstream",
            )
        warnings = (
            ()
            if own.get("wire_api", "responses") in ("responses", "chat")
            else ("Unknown wire_api of Codex.",)
        )
        return Route((Upstream.of(url, "/v1"),), {"provider": str(provider)}, warnings)
    url = upstream or config.get("openai_base_url") or environment.get("OPENAI_BASE_URL")
    if not isinstance(url, str) or not url:
        url = CHATGPT if _logged_in_with_chatgpt(program, environment) else OPENAI + V1
    return Route((Upstream.of(url, "/v1"),))


def said_by(
    program: str, *arguments: str, environment: Mapping[str, str], seconds: float
) -> tuple[str, str] | None:
    """What a host's program writes to stdout and stderr when it is asked something; None where it cannot be asked."""
    try:
        done = subprocess.run(
            [program, *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout, done.stderr


def _logged_in_with_chatgpt(program: str, environment: Mapping[str, str]) -> bool:
    """Codex says it itself; its credentials are none of our business."""
    said = said_by(program, "login", "status", environment=environment, seconds=LOGIN_SECONDS)
    return said is not None and "ChatGPT" in "".join(said)


def _codex(
    route: Route,
    gateway: str,
    server: Server,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    scratch: Path,
) -> Launch:
    provider = route.details.get("provider")
    place = f"model_providers.{provider}.base_url" if provider else "openai_base_url"
    entry = {
        "command": server.command[0],
        "args": list(server.command[1:]),
        "env": dict(server.environment),
        "required": True,  # else the first request goes out before our tools are there
    }
    options = {
        place: f"{gateway}/v1",
        f"mcp_servers.{SERVER_NAME}": entry,
        "features.enable_request_compression": False,
    }
    before = [word for key, value in options.items() for word in ("-c", f"{key}={rendered(value)}")]
    return Launch((*before, *arguments), environment, route.warnings)


# -- opencode --------------------------------------------------------------------------------------------------------


def _opencode_route(environment: Mapping[str, str], folder: Path, upstream: str | None) -> Route:
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or typed("~")) / ".config")
    found: dict[str, str] = {}
    for variable, name in (("ANTHROPIC_API_KEY", "anthropic"), ("OPENAI_API_KEY", "openai")):
        if environment.get(variable):
            found[name] = (ANTHROPIC if name == "anthropic" else OPENAI) + V1
    places = [home / "opencode" / name for name in ("opencode.json", "opencode.jsonc", "config.json")]
    if named := environment.get("OPENCODE_CONFIG"):
        places.append(Path(named))
    for above in (*reversed(folder.parents), folder):
        places += [above / "opencode.json", above / "opencode.jsonc"]
    for path in places:
        for name, provider in (_json(path).get("provider") or {}).items():
            url = provider.get("options", {}).get("baseURL") if isinstance(provider, dict) else None
            if isinstance(url, str) and url.startswith("http"):
                found[name] = url
    if upstream:
        found = {name: upstream for name in found} or {"anthropic": upstream}
    if not found:
        raise WorkspaceError(
            "opencode has no provider whose address is known here.",
            hint="Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or give a provider a baseURL. Logged in to Anthropic by "
            f"opencode auth login: pensieve run --upstream {ANTHROPIC}{V1} opencode.",
            slug="bad_upstream",
        )
    upstreams = tuple(Upstream.of(url, f"/{name}") for name, url in found.items())
    return Route(upstreams, {name: f"/{name}" for name in found})


def _opencode(
    route: Route,
    gateway: str,
    server: Server,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    scratch: Path,
) -> Launch:
    given = environment.get("OPENCODE_CONFIG_CONTENT")
    try:
        config = json.loads(given) if given else {}
    except ValueError:
        config = {}
    config.setdefault("mcp", {})[SERVER_NAME] = {
        "type": "local",
        "command": list(server.command),
        "enabled": True,
        "environment": dict(server.environment),
    }
    for name, prefix in route.details.items():
        config.setdefault("provider", {}).setdefault(name, {}).setdefault("options", {})["baseURL"] = (
            gateway + prefix
        )
    return Launch(arguments, {**environment, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}, route.warnings)


# -- reading what the user configured ----------------------------------------------------------------------------------


def _json(path: Path) -> dict[str, Any]:
    """A configuration file, comments and all, or nothing where there is none."""
    try:
        return Jsonc().read(path.read_text(encoding="utf-8-sig"))
    except OSError:
        return {}
    except (HostError, UnicodeDecodeError) as error:
        raise WorkspaceError(
            f"{path} cannot be read: {getattr(error, 'message', error)}",
            hint="Mend it, or give --upstream URL.",
            slug="bad_upstream",
        ) from error


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise WorkspaceError(
            f"{path} cannot be read: {error}.", hint="Mend it, or give --upstream URL.", slug="bad_upstream"
        ) from error


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What our server needs of the environment, for hosts that start it with hardly any."""
    wanted = ("PYTHONPATH", "XDG_DATA_HOME", "LOCALAPPDATA", "APPDATA", "SSL_CERT_FILE")
    return {
        name: value
        for name, value in environment.items()
        if name in wanted or name.upper().startswith("PENSIEVE_")
    }


def python_path(environment: Mapping[str, str]) -> str:
    """The folder our package lies in, before what is there already: a host starts servers in folders of its own."""
    package = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([package, *(environment.get("PYTHONPATH", "").split(os.pathsep))]).rstrip(
        os.pathsep
    )

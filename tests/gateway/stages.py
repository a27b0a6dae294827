"""A host's home, documents and model for one test: nothing of the machine's own, nothing beyond the loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host_runs import _QUIET, binary
from scripted_model import Script, ScriptedModel

from pensieve_mcp.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
SECRET = "The keeper Maren Holt used 412 barrels of oil in the year 1911."
HOST_SECRET = "row 300 says something about turnips"
PROMPT = "Work through the script."
RUN_SECONDS = 240


def handle(place: int, kind: str) -> Any:
    """The handle of the result at this place, as the model sees it, stub or not."""

    def find(results: list[dict[str, Any]]) -> str:
        found = re.search(
            rf"(?:\A|\n|\[pensieve: )({kind}[0-9a-f]+)(?: · | forgotten)", results[place]["text"]
        )
        assert found is not None, results[place]["text"][:300]
        return found[1]

    return find


@dataclass
class Stage:
    """A host's home, work folder, documents and model."""

    host: str
    home: Path
    work: Path
    library: Path
    environment: dict[str, str]
    model: ScriptedModel

    def run(self, *arguments: str) -> str:
        """One session through `pensieve run`; answers what was told at its end."""
        done = subprocess.run(
            [sys.executable, "-m", "pensieve_mcp.cli", "--folder", str(self.library), "run",
             "--program", str(binary(self.host)), self.host, *arguments],
            cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            encoding="utf-8", errors="replace", timeout=RUN_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
        return done.stderr

    def sent(self) -> list[str]:
        """The requests that took a turn, as the model got them."""
        return [json.dumps(request["body"], ensure_ascii=False) for request in self.model.turns_taken()]

    def configured(self) -> dict[str, str]:
        """The user's own configuration, to see that it stays as it is (opencode itself adds a `$schema`)."""
        places = [self.home / ".codex" / "config.toml", self.home / ".claude" / "settings.json"]
        found = {str(path): path.read_text() for path in places if path.is_file()}
        if (project := self.work / "opencode.json").is_file():
            kept = {k: v for k, v in json.loads(project.read_text()).items() if k != "$schema"}
            found[str(project)] = json.dumps(kept, sort_keys=True)
        return found


def stage(host: str, folder: Path, model: ScriptedModel, library: Path | None = None) -> Stage:
    """Over `library`, else over an archive of one document with `SECRET` in it."""
    home, work = folder / "home", folder / "work"
    for made in (home, work):
        made.mkdir()
    if library is None:
        library = folder / "archive"
        library.mkdir()
        log = "\n".join(
            f"Line {n} of the log tells of wind from the north and a calm sea." for n in range(120)
        )
        (library / "light.md").write_text(f"# The light of Velsay\n\n{SECRET}\n{log}\n", encoding="utf-8")
    (work / "big.txt").write_text(
        "\n".join(f"row {n} says something about turnips" for n in range(400)), encoding="utf-8"
    )
    environment = {
        "HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8", **_QUIET,
        "PENSIEVE_HOME": str(folder / "pensieve"), "PENSIEVE_UPGRADE": "false", "PENSIEVE_GATEWAY_POLICY": "eager",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p and Path(p).is_dir())]),
    }  # fmt: skip
    with Workspace.open([library], environment=environment, builder="inline") as workspace:
        workspace.build_now()
    if host == "claude":
        environment |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy-0000"}
    elif host == "codex":
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(
            'model = "gpt-5.5"\nmodel_provider = "scripted"\napproval_policy = "never"\n'
            'sandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n'
            f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model.url}/v1"\nenv_key = "SCRIPTED_KEY"\n'
            'wire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
        )
        environment |= {"CODEX_HOME": str(home / ".codex"), "SCRIPTED_KEY": "sk-dummy"}
    else:
        limits = {"name": "m", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
        provider = {"npm": "@ai-sdk/anthropic", "name": "S", "models": {"m": limits},
                    "options": {"baseURL": model.url + "/v1", "apiKey": "x"}}  # fmt: skip
        config = {"autoupdate": False, "share": "disabled", "model": "scripted/m", "small_model": "scripted/m",
                  "permission": "allow", "provider": {"scripted": provider}}  # fmt: skip
        (work / "opencode.json").write_text(json.dumps(config))
    return Stage(host, home, work, library, environment, model)


class Lanes:
    """A script for the main conversation and one for each sub-agent, told apart by a word in the sub-agent's task."""

    def __init__(self, main: list[list[dict[str, Any]]], **others: list[list[dict[str, Any]]]) -> None:
        self.lanes = {word: Script(turns) for word, turns in {"": main, **others}.items()}
        known = set().union(*(script.known for script in self.lanes.values()))
        for script in self.lanes.values():
            script.known = known  # a host that is searched for tools is searched for all
        self.turns: list[Any] = []
        self.next = 0

    def turn(self, body: dict[str, Any]) -> Any:
        return self.lanes[self.lane(body)].turn(body)

    def lane(self, body: dict[str, Any]) -> str:
        """The word of the sub-agent that asks, empty for the main conversation."""
        asked = json.dumps([
            item for item in body.get("input", body.get("messages", [])[:1])
            if item.get("type") in (None, "message", "agent_message")
        ])  # fmt: skip
        return next((word for word in self.lanes if word and word in asked), "")

    def done(self) -> bool:
        return all(script.next >= len(script.turns) for script in self.lanes.values())

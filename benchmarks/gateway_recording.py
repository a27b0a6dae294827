"""Records sessions of real coding agents for `gateway_policies.py`: sizes and structure, no text of others.

    PENSIEVE_HOSTS=… python benchmarks/gateway_recording.py [HOST:STYLE …]

Claude Code, Codex and opencode are driven through `pensieve run` by a scripted model on the loopback (the helpers of
the tests), over the sample library and files of Python's standard library, with their own tools and ours. The gateway
gives handles and takes nothing out, so what the model gets is what the host holds. Kept are ids, tool names,
arguments of our calls, handle lines and the length of every other string with a few digits of its digest.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "tests" / "hosts", ROOT / "tests" / "gateway"):
    sys.path.insert(0, str(folder))

import stages  # noqa: E402
from scripted_model import ScriptedModel  # noqa: E402
from stages import PROMPT, stage  # noqa: E402

stages.RUN_SECONDS = 900

DATA = ROOT / "benchmarks" / "data"
TOPICS = 10
SHORT = 48  # characters; a longer string is told by its length
HEAD = re.compile(r"(?:[mh][0-9a-f]+ · [^\n]{0,160}|\[pensieve: [^\n]{0,200})")
FILES = (
    "shlex.py", "csv.py", "textwrap.py", "heapq.py", "bisect.py", "copy.py", "glob.py", "fnmatch.py", "sched.py",
    "queue.py", "string.py", "tempfile.py", "gzip.py", "hmac.py", "netrc.py", "cmd.py", "pprint.py", "timeit.py",
    "difflib.py", "graphlib.py",
)  # fmt: skip
STYLES = ("tidy", "late")
ARGUMENTS = {
    "claude": ["-p", PROMPT, "--allowedTools", "mcp__pensieve", "Read", "Bash"],
    "codex": ["exec", "--skip-git-repo-check", PROMPT],
    "opencode": ["run", PROMPT],
}


def own_read(host: str, path: Path) -> dict[str, Any]:
    """The host's own tool reads a file."""
    return {
        "claude": {"tool": "Read", "args": {"file_path": str(path)}},
        "codex": {"tool": "exec_command", "args": {"cmd": f"cat {path.name}"}},
        "opencode": {"tool": "read", "args": {"filePath": str(path)}},
    }[host]


def shell(host: str, command: str) -> dict[str, Any]:
    return {
        "claude": {"tool": "Bash", "args": {"command": command, "description": "look"}},
        "codex": {"tool": "exec_command", "args": {"cmd": command}},
        "opencode": {"tool": "bash", "args": {"command": command, "description": "look"}},
    }[host]


def handles(*backwards: int) -> Any:
    """The handles of results so far, counted from the last; those that bear none are passed over."""

    def find(results: list[dict[str, Any]]) -> str:
        found = [
            match[1]
            for place in backwards
            if place <= len(results)
            and (match := re.search(r"(?:\A|\n)([mh][0-9a-f]+) · ", results[-place]["text"][:300]))
        ]
        return ",".join(found) or "m1"

    return find


def script(host: str, style: str, work: Path) -> list[list[dict[str, Any]]]:
    """Ten topics of seven or eight calls. Tidy: what was read for a topic is deleted at its end but for one file.
    Late: what was read three topics ago is deleted bit by bit.
    """
    turns: list[list[dict[str, Any]]] = []
    for topic in range(TOPICS):
        first, second = (work / name for name in FILES[2 * topic : 2 * topic + 2])
        turns += [
            [{"tool": "searchEngine", "args": {"keyword": f"{first.stem} and memory"}}],
            [{"tool": "readChunk", "args": {"chunk_id": str(2 * topic + 1)}}],
            [own_read(host, first)],
            [own_read(host, second)],
            [shell(host, f"grep -n def {first.name}")],
            [{"tool": "readChunk", "args": {"chunk_id": str(2 * topic + 2)}}],
            [
                {
                    "tool": "note",
                    "args": {"key": f"topic-{topic}", "content": f"What {first.stem} does. " * 12},
                }
            ],
        ]
        if style == "tidy":
            turns.append([{"tool": "deleteContext", "args": {"msg_id": handles(2, 3, 4, 6, 7)}}])
        elif topic >= 3:
            back = 3 * 9
            turns += [
                [{"tool": "deleteContext", "args": {"msg_id": handles(back - offset)}}] for offset in (2, 3)
            ]
        else:
            turns += [[{"tool": "checkBudget", "args": {}}], [shell(host, f"wc {second.name}")]]
    return [*turns, [{"text": "Done."}]]


def kept(value: Any) -> Any:
    """The value with long strings by length (in UTF-8) and digest; of a handle line its words stay."""
    if isinstance(value, dict):
        return {key: kept(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [kept(inner) for inner in value]
    if not isinstance(value, str) or len(value) <= SHORT:
        return value
    head = HEAD.match(value)
    words = head[0] if head else ""
    rest = value[len(words) :].encode("utf-8", "surrogatepass")
    return {"$": [words, len(rest), hashlib.sha256(rest).hexdigest()[:6]]}


def recorded(bodies: list[dict[str, Any]], host: str, style: str) -> dict[str, Any]:
    """All requests, each message once; a request is what it shares with the one before and what is new."""
    key = "input" if "input" in bodies[0] else "messages"
    messages: dict[str, int] = {}
    requests: list[dict[str, Any]] = []
    before: list[int] = []
    for body in bodies:
        numbers = [
            messages.setdefault(json.dumps(kept(message), ensure_ascii=False), len(messages))
            for message in body[key]
        ]
        same = 0
        while same < min(len(before), len(numbers)) and before[same] == numbers[same]:
            same += 1
        fixed = {
            part: [len(text), hashlib.sha256(text).hexdigest()[:6]]
            for part in ("tools", "system", "instructions")
            if (text := json.dumps(body.get(part, ""), ensure_ascii=False).encode())
        }
        requests.append({"same": same, "new": numbers[same:], "fixed": fixed})
        before = numbers
    return {
        "host": host,
        "style": style,
        "dialect": "responses" if key == "input" else "anthropic",
        "messages": [json.loads(text) for text in messages],
        "requests": requests,
    }


def record(host: str, style: str) -> None:
    from pensieve_mcp.workspace import Workspace

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with ScriptedModel([]) as model:
            played = stage(host, place, model)
            for name in FILES:
                shutil.copy(Path(sysconfig.get_path("stdlib")) / name, played.work / name)
            shutil.copytree(ROOT / "pensieve_mcp" / "sample" / "library", played.library, dirs_exist_ok=True)
            played.environment.update(
                PENSIEVE_GATEWAY_POLICY="threshold", PENSIEVE_GATEWAY_LEAST_TOKENS="1000000",
                PENSIEVE_GATEWAY_PRESSURE_PERCENT="95", PENSIEVE_GATEWAY_WINDOW_TOKENS="2000000",
            )  # fmt: skip
            with Workspace.open([played.library], environment=played.environment, builder="inline") as opened:
                opened.build_now()
            model.script = type(model.script)(script(host, style, played.work))
            told = played.run(*ARGUMENTS[host])
            assert model.done() and f"; {2 * TOPICS} chunks read" in told, told
            bodies = [
                json.loads(json.dumps(one["body"]).replace(str(place), "/talk"))
                for one in model.turns_taken()
            ]
        data = recorded(bodies, host, style)
        DATA.mkdir(exist_ok=True)
        packed = gzip.compress(
            json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0
        )
        path = DATA / f"session-{host}-{style}.json.gz"
        path.write_bytes(packed)
        print(
            f"{path.name}: {len(bodies)} requests, {len(data['messages'])} messages, {len(packed):,} bytes\n{told}"
        )


if __name__ == "__main__":
    wanted = sys.argv[1:] or [f"{host}:{style}" for host in ARGUMENTS for style in STYLES]
    for one in wanted:
        record(*one.split(":"))

"""What forgetting saves: sessions replayed request by request under each policy, with a model of the provider's cache.

    python benchmarks/gateway_policies.py [--steps 100] [--json FILE]

Two sets. Recorded: sessions of Claude Code, Codex and opencode (`data/`, made by `gateway_recording.py`), with their
true structure and sizes and made-up words. Synthetic: readers and a coder of many more steps. For each request the
prompt that would be sent is made by the gateway's own core; cached is what it shares with the request before, from its
first byte on (marks that steer the cache are no part of it), and the rest is written into the cache. Money is in
tokens' worth of fresh input: cached 0.1, written 1.25. Compared are no deletion at all, the oldest results cleared
beyond the last 4 when the prompt passes a limit (what a provider's own context editing does; half of the largest
prompt, at most 100,000 tokens), and the three policies.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.gateway.reading import Facts
from pensieve_mcp.gateway.rewrite import Lines, rewrite
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN, Policy
from pensieve_mcp.spellbook.registry import spellbook
from pensieve_mcp.wire.conversation import Dialect
from pensieve_mcp.wire.dialects import read_request
from pensieve_mcp.wire.reading import Earlier
from pensieve_mcp.wire.spans import Edit, splice

DATA = Path(__file__).parent / "data"
POLICIES = ("none", "oldest first", "eager", "batched", "threshold")
TOOLS = frozenset(spellbook())
CACHED, WRITTEN = 0.1, 1.25
TRIGGER_TOKENS, KEPT_RESULTS = 100_000, 4
FIXED = {
    "model": "m",
    "tools": [{"name": f"t{n}", "description": "d" * 900} for n in range(30)],
    "system": "s" * 20_000,
}
PROSE = "The keeper wrote a calm sea into the log and the oil was measured, barrel by barrel. "


@dataclass
class Session:
    """Messages so far; a request is made before every call of the model."""

    messages: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "user", "content": "Read the archive."}]
    )
    requests: list[int] = field(default_factory=list)
    number: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def call(self, name: str, arguments: dict[str, Any], words: str, *, ours: bool = True) -> int:
        self.requests.append(len(self.messages))
        call_id = f"toolu_{len(self.messages):06}"
        full = f"mcp__pensieve__{name}" if ours else name
        use = {"type": "tool_use", "id": call_id, "name": full, "input": arguments}
        self.messages.append({"role": "assistant", "content": [{"type": "text", "text": "Next step."}, use]})
        if ours:
            self.number += 2
            words = f"m{self.number} · {name} · {len(words) // 4:,} tokens · 9,000 left\n{words}"
        self.messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": words}]}
        )
        return self.number

    def text(self, tokens: int) -> str:
        tokens = round(tokens * self.chance.uniform(0.6, 1.4))
        return (PROSE * (tokens * 4 // len(PROSE) + 1))[: tokens * 4]


def reader(steps: int, *, gather: int, note: bool = True) -> Session:
    """Search, read about 10,000 tokens, note; every `gather` chunks what was read is deleted in one call."""
    session, waiting = Session(), []
    for step in range(steps):
        if step % 4 == 0:
            session.call("searchEngine", {"keyword": f"question {step}"}, session.text(600))
        waiting.append(session.call("readChunk", {"chunk_id": step}, session.text(10_500)))
        if note:
            session.call("note", {"key": f"k{step}", "content": session.text(120)}, "Noted.")
        if len(waiting) >= gather:
            session.call("deleteContext", {"msg_id": ",".join(f"m{n}" for n in waiting)}, "Deleted.")
            waiting.clear()
    session.requests.append(len(session.messages))
    return session


def forgetful(steps: int) -> Session:
    """Deletes late and one at a time: what it read eight steps ago. The worst case for a prefix cache."""
    session, read = Session(), []
    for step in range(steps):
        read.append(session.call("readChunk", {"chunk_id": step}, session.text(4_000)))
        session.call("note", {"key": f"k{step}", "content": session.text(100)}, "Noted.")
        if step >= 8:
            session.call("deleteContext", {"msg_id": f"m{read[step - 8]}"}, "Deleted.")
    session.requests.append(len(session.messages))
    return session


def coder(steps: int) -> Session:
    """The host's own reads and commands, with small edits; reads of ours in between, deleted after use."""
    session = Session()
    for step in range(steps):
        session.call("Read", {"file_path": f"src/{step % 9}.py"}, session.text(3_000), ours=False)
        session.call("Bash", {"command": "pytest -q"}, session.text(900), ours=False)
        if step % 3 == 0:
            number = session.call("readChunk", {"chunk_id": step}, session.text(2_500))
            session.call("deleteContext", {"msg_id": f"m{number}"}, "Deleted.")
    session.requests.append(len(session.messages))
    return session


def synthetic(session: Session) -> list[bytes]:
    return [
        json.dumps({**FIXED, "messages": session.messages[:place]}, ensure_ascii=False).encode()
        for place in session.requests
    ]


# -- recorded sessions -----------------------------------------------------------------------------------------------


def expanded(value: Any) -> Any:
    """A kept message with words of the length that was told, and without marks that steer the cache."""
    if isinstance(value, dict):
        if set(value) == {"$"}:
            words, size, digest = value["$"]
            return words + ("\n" + f"{digest} " * (size // 7 + 1))[:size]
        return {key: expanded(inner) for key, inner in value.items() if key != "cache_control"}
    return [expanded(inner) for inner in value] if isinstance(value, list) else value


def recorded(path: Path) -> tuple[str, Dialect, list[bytes]]:
    """Name, dialect and the requests of a session as its host made them."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    messages = [json.dumps(expanded(message), ensure_ascii=False) for message in data["messages"]]
    key = "input" if data["dialect"] == "responses" else "messages"
    bodies: list[bytes] = []
    numbers: list[int] = []
    for request in data["requests"]:
        numbers = numbers[: request["same"]] + request["new"]
        fixed = {part: f"{digest} " * (size // 7) for part, (size, digest) in request["fixed"].items()}
        before = {**fixed, "model": "m", "tools": [fixed["tools"]]}
        head = json.dumps(before, ensure_ascii=False)[:-1]
        bodies.append(f'{head}, "{key}": [{", ".join(messages[n] for n in numbers)}]}}'.encode())
    return f"{data['host']}, {data['style']}", data["dialect"], bodies


# -- replaying -------------------------------------------------------------------------------------------------------


def cleared(body: bytes, dialect: Dialect, gone: set[str], trigger: int) -> tuple[bytes, set[str]]:
    """The oldest results cleared when the prompt passes the trigger; what was cleared stays cleared."""
    conversation = read_request(body, dialect)
    results = [item for item in conversation.items if item.kind == "result" and item.body is not None]

    def made(which: set[str]) -> bytes:
        return splice(body, [Edit(*item.body, b'"[cleared]"') for item in results if item.call_id in which])

    if len(made(gone)) // BYTES_PER_TOKEN > trigger:
        gone = gone | {item.call_id for item in results[:-KEPT_RESULTS]}
    return made(gone), gone


def prompts(bodies: list[bytes], dialect: Dialect, policy: str) -> Iterator[bytes]:
    """The body of each request as it is sent."""
    facts = Facts(frozenset({"pensieve"}), TOOLS)
    lines, earlier, gone = Lines(), Earlier(), set[str]()
    trigger = min(TRIGGER_TOKENS, max(map(len, bodies)) // BYTES_PER_TOKEN // 2)
    for body in bodies:
        if policy == "oldest first":
            body, gone = cleared(body, dialect, gone, trigger)
        elif policy != "none":
            rules = Policy(policy)  # type: ignore[arg-type]  # the names are the policies'
            body, _ = rewrite(body, dialect, facts, rules, handle_tokens=500, lines=lines, earlier=earlier)
        yield body


def shared(a: bytes, b: bytes) -> int:
    """Bytes that both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def replay(bodies: list[bytes], dialect: Dialect, policy: str) -> dict[str, Any]:
    before = b""
    sizes: list[int] = []
    cached = 0
    for body in prompts(bodies, dialect, policy):
        sizes.append(len(body) // BYTES_PER_TOKEN)
        cached += shared(before, body) // BYTES_PER_TOKEN
        before = body
    sent = sum(sizes)
    money = CACHED * cached + WRITTEN * (sent - cached)
    return {"sent": sent, "cached": cached, "money": round(money), "peak": max(sizes), "sizes": sizes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sessions: list[tuple[str, Dialect, list[bytes]]] = [recorded(path) for path in sorted(DATA.glob("*.gz"))]
    sessions += [
        (name, "anthropic", synthetic(session))
        for name, session in (
            ("reader, deletes at once", reader(options.steps, gather=1)),
            ("reader, deletes five at a time", reader(options.steps, gather=5)),
            ("late deletions, one by one", forgetful(options.steps)),
            ("coder with the host's reads", coder(options.steps)),
        )
    ]
    figures: dict[str, Any] = {}
    print("| session | policy | requests | tokens sent | from the cache | price | largest prompt |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, dialect, bodies in sessions:
        figures[name] = {policy: replay(bodies, dialect, policy) for policy in POLICIES}
        nothing = figures[name]["none"]["money"]
        for policy, row in figures[name].items():
            share = 100 * row["cached"] // row["sent"]
            print(
                f"| {name} | {policy} | {len(row['sizes'])} | {row['sent']:,} | {share} % | {row['money']:,} "
                f"({100 * row['money'] / nothing:.0f} %) | {row['peak']:,} |"
            )
    if options.json:
        options.json.write_text(json.dumps(figures))
    dearer = [name for name, rows in figures.items() if rows["batched"]["money"] > rows["eager"]["money"]]
    print(
        f"{'FAIL' if dearer else 'pass'}: batched costs no more than eager; dearer: {', '.join(dearer) or 'none'}"
    )
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())

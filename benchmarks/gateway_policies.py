"""What forgetting saves: sessions replayed request by request under each policy, with a model of the provider's cache.

    python benchmarks/gateway_policies.py [--steps 100] [--svg FILE] [--json FILE]

Sessions have the shape of those the scripted model drives real hosts through (a call, its result, now and then the
host's own file read), at the size of a long reading. For each request the prompt that would be sent is made by
the gateway's own core; cached is what it shares with the request before, from its first byte on, and the rest is
written into the cache. Money is in tokens' worth of fresh input: cached 0.1, written 1.25. Compared are no
deletion at all, the oldest results cleared beyond the last 4 when the prompt passes 100,000 tokens (what a
provider's own context editing does), and the three policies.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.gateway.reading import Facts
from pensieve_mcp.gateway.rewrite import Lines, rewrite
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.wire.reading import Earlier

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


def cleared(messages: list[dict[str, Any]], gone: set[int]) -> tuple[list[dict[str, Any]], set[int]]:
    """The oldest results cleared when the prompt passes the trigger; what was cleared stays cleared."""

    def made(which: set[int]) -> list[dict[str, Any]]:
        return [
            {"role": "user", "content": [{**m["content"][0], "content": "[cleared]"}]}
            if place in which
            else m
            for place, m in enumerate(messages)
        ]

    shown = made(gone)
    if len(json.dumps(shown)) // 4 > TRIGGER_TOKENS:
        results = [
            p for p, m in enumerate(messages) if isinstance(m["content"], list) and m["role"] == "user"
        ]
        gone = gone | set(results[:-KEPT_RESULTS])
        shown = made(gone)
    return shown, gone


def prompts(session: Session, policy: str) -> Iterator[bytes]:
    """The body of each request as it is sent."""
    facts = Facts(frozenset({"pensieve"}), frozenset({"readChunk", "searchEngine", "note", "deleteContext"}))
    lines, earlier, gone = Lines(), Earlier(), set[int]()
    for place in session.requests:
        messages = session.messages[:place]
        if policy == "oldest first":
            messages, gone = cleared(messages, gone)
        body = json.dumps({**FIXED, "messages": messages}, ensure_ascii=False).encode()
        if policy in ("eager", "batched", "threshold"):
            body, _ = rewrite(body, "anthropic", facts, Policy(policy), lines=lines, earlier=earlier)  # type: ignore[arg-type]
        yield body


def shared(a: bytes, b: bytes) -> int:
    """Bytes that both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def replay(session: Session, policy: str) -> dict[str, Any]:
    before = b""
    sizes: list[int] = []
    cached = 0
    for body in prompts(session, policy):
        sizes.append(len(body) // 4)
        cached += shared(before, body) // 4
        before = body
    sent = sum(sizes)
    money = CACHED * cached + WRITTEN * (sent - cached)
    return {"sent": sent, "cached": cached, "money": round(money), "peak": max(sizes), "sizes": sizes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--svg", type=Path, help="picture of the prompt's size over the long reading")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sessions = {
        "reader, deletes at once": reader(options.steps, gather=1),
        "reader, deletes five at a time": reader(options.steps, gather=5),
        "late deletions, one by one": forgetful(options.steps),
        "coder with the host's reads": coder(options.steps),
    }
    policies = ("none", "oldest first", "eager", "batched", "threshold")
    figures: dict[str, Any] = {}
    print("| session | policy | requests | tokens sent | from the cache | price | peak prompt |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, session in sessions.items():
        figures[name] = {policy: replay(session, policy) for policy in policies}
        nothing = figures[name]["none"]["money"]
        for policy, row in figures[name].items():
            print(
                f"| {name} | {policy} | {len(row['sizes'])} | {row['sent']:,} "
                f"| {100 * row['cached'] // row['sent']} % | "
                f"{row['money']:,} ({100 * row['money'] / nothing:.0f} %) | {row['peak']:,} |"
            )
    if options.svg:
        from pensieve_mcp.cli.curve import Point, svg

        long = figures["reader, deletes at once"]
        points = [
            Point(
                with_,
                without,
                "forgot" if number and with_ < long["batched"]["sizes"][number - 1] else "result",
            )
            for number, (with_, without) in enumerate(
                zip(long["batched"]["sizes"], long["none"]["sizes"], strict=True)
            )
        ]
        title = f"Prompt of each request, {len(points)} requests over {long['none']['sizes'][-1]:,} tokens of reading"
        options.svg.write_text(
            svg(points, title=title, source="benchmarks/gateway_policies.py, policy batched")
        )
    if options.json:
        options.json.write_text(json.dumps(figures))
    long = figures["reader, deletes at once"]["batched"]
    half = long["sizes"][len(long["sizes"]) // 2 :]
    print(f"Long reading: peak {long['peak']:,} tokens, second half {min(half):,} to {max(half):,}.")
    return 0 if long["peak"] < TRIGGER_TOKENS else 1


if __name__ == "__main__":
    sys.exit(main())

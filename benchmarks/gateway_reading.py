"""A long reading through the true door: gateway, server and ledger, a scripted model, 100 steps of 10,000 tokens.

    python benchmarks/gateway_reading.py [--steps 100] [--svg FILE] [--json FILE]

The model reads the next chunk, notes it, and looks at its budget; when that says that a good part of the window is in
use it deletes all it has read since the last time, calls included, in one call. Every request goes over HTTP through a
running gateway to a model on the loopback, which counts the prompt and says so in its usage fields; every call is cast
by the server on the same workspace. Reported: the largest prompt, the peaks of its first and its last third, and what
would have been sent without deleting. The bar: no prompt beyond the budget, and peaks that do not grow.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pensieve_mcp.cli.curve import Point, svg
from pensieve_mcp.gateway.proxy import Upstream
from pensieve_mcp.gateway.serving import RunningGateway
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN
from pensieve_mcp.settings import Settings
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.spellbook.registry import spellbook
from pensieve_mcp.workspace import Workspace

BUDGET_TOKENS = 80_000
TIDY_AT = 0.55  # of the budget in use: then the reader deletes what it has read
CHUNK_TOKENS = 10_000
SESSION = "reading-1"
TOOLS = [{"name": f"t{n}", "description": "d" * 900, "input_schema": {"type": "object"}} for n in range(12)]
WORDS = ("keeper", "harbour", "lamp", "oil", "barrel", "wind", "ledger", "mast", "anchor", "tide", "beacon")


class Model(BaseHTTPRequestHandler):
    """Counts the prompt, and calls what the reader has put down for it."""

    sizes: ClassVar[list[int]] = []
    answer: ClassVar[dict[str, Any]] = {}

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.sizes.append(len(body) // BYTES_PER_TOKEN)
        usage = {"input_tokens": self.sizes[-1], "output_tokens": 40}
        out = json.dumps({"type": "message", "content": [self.answer], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)


@dataclass
class Reader:
    """The host's side of the conversation: it holds everything that was ever said."""

    gateway: str
    workspace: Workspace
    messages: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "user", "content": "Read it all."}]
    )
    whole: list[int] = field(default_factory=list)  # tokens of each request as the host has it
    deleted: list[int] = field(default_factory=list)  # requests after which something was deleted
    last: int = 0  # number of the last result

    def call(self, name: str, **arguments: Any) -> str:
        """One turn: a request whose answer is this call, and what our server says to it."""
        call = {"type": "tool_use", "id": f"toolu_{len(self.messages):06}", "name": f"mcp__pensieve__{name}",
                "input": arguments}  # fmt: skip
        Model.answer = call
        body = json.dumps({"model": "m", "messages": self.messages, "system": "s" * 8_000, "tools": TOOLS})
        self.whole.append(len(body.encode()) // BYTES_PER_TOKEN)
        place = urlsplit(self.gateway)
        line = HTTPConnection(place.hostname or "", place.port, timeout=120)
        headers = {"content-type": "application/json", "x-claude-code-session-id": SESSION}
        line.request("POST", "/v1/messages", body, headers)
        answer = line.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        line.close()
        episode = self.workspace.episode("mcp", host="claude-code", thread=SESSION)
        done = cast(episode, name, arguments, host_call_id=call["id"])
        assert not done.is_error, done.text
        self.last = int(done.message["msg_id"].removeprefix("m"))
        result = {
            "type": "tool_result",
            "tool_use_id": call["id"],
            "content": [{"type": "text", "text": done.text}],
        }
        self.messages += [
            {"role": "assistant", "content": [{"type": "text", "text": "Next."}, call]},
            {"role": "user", "content": [result]},
        ]
        return done.text


def documents(folder: Path, count: int) -> None:
    for number in range(count):
        lines = []
        for line in range(140):
            words = (WORDS[(number * 7 + line * 3 + place * place) % len(WORDS)] for place in range(60))
            lines.append(f"Entry {number}-{line}: {' '.join(words)}")
        (folder / f"log-{number:03}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(reader: Reader, steps: int) -> int:
    """Tokens that the chunks had in sum."""
    reader.call("searchEngine", keyword="storm signal")
    since, total = reader.last, 0
    for step in range(steps):
        text = reader.call("readChunk", chunk_id=str(step + 1), max_bytes=50_000)
        total += len(text.encode()) // BYTES_PER_TOKEN
        reader.call(
            "note",
            key=f"log-{step}",
            summary="wind",
            content=f"The log of ship {step} tells of wind and oil.",
        )
        budget = reader.call("checkBudget")
        found = re.search(r"([\d,]+) of [\d,]+ tokens in mind", budget)
        assert found is not None and "the provider's count" in budget, budget
        if int(found[1].replace(",", "")) > TIDY_AT * BUDGET_TOKENS:
            reader.call("deleteContext", msg_id=f"{since - 1}-{reader.last}")
            reader.deleted.append(len(reader.whole))
            since = reader.last
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--svg", type=Path, help="picture of the prompt's size")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "logs"
        folder.mkdir()
        documents(folder, options.steps)
        environment = {"PENSIEVE_HOME": place + "/home", "PENSIEVE_UPGRADE": "false",
                       "PENSIEVE_CHUNK_TOKENS": str(CHUNK_TOKENS * 2)}  # fmt: skip
        with Workspace.open([folder], environment=environment, builder="inline") as workspace:
            workspace.build_now()
            with RunningGateway(
                (Upstream.of(f"http://127.0.0.1:{upstream.server_address[1]}"),),
                Settings(gateway_window_tokens=BUDGET_TOKENS),
                lambda: Workspace.open([folder], environment=environment, builder="inline"),
                tools=frozenset(spellbook()),
            ) as gateway:
                reader = Reader(gateway.url, workspace)
                total = read(reader, options.steps)
    sizes, whole = Model.sizes, reader.whole
    peaks = [sizes[at - 1] for at in reader.deleted]
    third = max(1, len(peaks) // 3)
    first, last = max(peaks[:third]), max(peaks[-third:])
    if options.svg:
        points = [
            Point(sent, held, "forgot" if number in reader.deleted else "result")
            for number, (sent, held) in enumerate(zip(sizes, whole, strict=True))
        ]
        title = (
            f"Prompt of each request: {len(sizes)} requests, {total:,} tokens read, budget {BUDGET_TOKENS:,}"
        )
        options.svg.write_text(
            svg(points, title=title, source="benchmarks/gateway_reading.py, policy batched")
        )
    if options.json:
        options.json.write_text(json.dumps({"sent": sizes, "whole": whole, "deleted": reader.deleted}))
    print(
        f"{options.steps} chunks, {total:,} tokens read in {len(sizes)} requests. Largest prompt {max(sizes):,}, "
        f"without deleting {max(whole):,}. Peaks: first third {first:,}, last third {last:,}. "
        f"Sent in all {sum(sizes):,} tokens, without deleting {sum(whole):,}."
    )
    flat = max(sizes) <= BUDGET_TOKENS and last <= 1.1 * first
    print(
        f"{'pass' if flat else 'FAIL'}: no prompt beyond {BUDGET_TOKENS:,} tokens, peaks of the last third within 10 %"
    )
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())

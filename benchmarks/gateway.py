"""What the gateway costs: against a bare pass-through with the same libraries, in one run, in turns.

    python benchmarks/gateway.py [--requests 40] [--json FILE]

Upstream, bare pass-through and gateway are processes of their own on the loopback. Each round asks both, the order
changing. Reported: time to the first byte (median and ratio of the medians), CPU of the serving process a request,
throughput of 50 streams at once, and peak memory of requests of 10 MB, by themselves and after all else. Requests are
those of a host that has read much: 20 of its results were deleted, and its own file reads have handle lines.

Conversations grow by a result from request to request and move their caching mark, as hosts do; the first request
of each, which is read whole and whose handles go into the ledger, is told apart. The upstream answers at once, so the
ratio is the worst case; against a model that thinks for a second it is 1.0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BAR = 1.5
PAUSE_SECONDS = (
    0.03  # no host asks again at once; what is written after an answer has its time, and counts as CPU
)
SETTLE_SECONDS = 0.5  # what was written for a new conversation is done
TURNS = 10  # of a conversation, after its first request
STREAMS = 50
TOOLS = frozenset({"readChunk", "deleteContext"})
SIZES = (50_000, 200_000, 1_000_000, 5_000_000)
ANSWER = (
    b"data: "
    + json.dumps({"type": "message_start", "message": {"usage": {"input_tokens": 9}}}).encode()
    + b"\n\n"
)


@dataclass
class Talk:
    """A Messages request of about `size` bytes in which so many results were deleted, and its further turns."""

    size: int
    name: str
    deletions: int = 20
    messages: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "user", "content": "Read the archive."}]
    )
    number: int = 0

    def __post_init__(self) -> None:
        rounds = max(self.deletions * 2, 44)
        each = max(200, (self.size - 30_000) // rounds)
        for place in range(rounds):
            self.turn(place, each)
            if place % 2 == 0 and place // 2 < self.deletions:
                self.number += 2
                self._call(
                    "mcp__pensieve__deleteContext",
                    {"msg_id": f"m{self.number - 2}"},
                    f"m{self.number} · 9 tokens · 9 left\nDeleted.",
                )

    def turn(self, place: int, size: int) -> None:
        """One more result: of the host's own read, or of a chunk of ours."""
        words = "The keeper wrote “a calm sea” into the log, and the oil was measured.\n"
        words = (words * (size // 60 + 1))[:size]
        self.number += 2
        if place % 2:
            self._call("Read", {"file_path": f"src/{place}.py"}, f"{self.name} {place}\n{words}")
        else:
            head = f"m{self.number} · c{place} · log.md lines {place} · {size // 4} tokens · 9,000 left\n"
            self._call("mcp__pensieve__readChunk", {"chunk_id": place}, head + words)

    def _call(self, name: str, arguments: dict[str, Any], result: str) -> None:
        call_id = f"toolu_{self.name}_{len(self.messages):08}"
        use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        self.messages.append({"role": "assistant", "content": [{"type": "text", "text": "next"}, use]})
        block = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": result}]}
        self.messages.append({"role": "user", "content": [block]})

    def body(self) -> bytes:
        """As hosts send it: the caching mark stands at the last message."""
        *before, last = self.messages
        content = [{**last["content"][0], "cache_control": {"type": "ephemeral"}}]
        tools = [{"name": f"tool{n}", "description": "d" * 300, "input_schema": {"type": "object", "properties": {
            f"p{i}": {"type": "string", "description": "x" * 40} for i in range(8)}}} for n in range(25)]  # fmt: skip
        body = {
            "model": "m",
            "messages": [*before, {**last, "content": content}],
            "system": [{"type": "text", "text": "s" * 8_000}],
            "tools": tools,
            "stream": True,
        }
        return json.dumps(body, ensure_ascii=False).encode()


def turns(size: int, name: str, count: int) -> list[bytes]:
    """The requests of one conversation: it grows by a result of 2,400 bytes from each to the next."""
    talk = Talk(size, name)
    bodies = [talk.body()]
    for place in range(1, count):
        talk.turn(1_000 + place, 2_400)
        bodies.append(talk.body())
    return bodies


# -- the processes -----------------------------------------------------------------------------------------------


def upstream(port: Any) -> None:
    """Takes the request, answers one event at once and a second with the end."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                while length:
                    length -= len(await reader.read(min(length, 1 << 20)))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for _ in range(2):
                    writer.write(b"%x\r\n%s\r\n" % (len(ANSWER), ANSWER))
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=1 << 22)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def bare(port: Any, target: str) -> None:
    """The least that passes a request on and streams the answer back, with uvicorn and httpx2."""
    import httpx2
    import uvicorn

    clients: list[httpx2.AsyncClient] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if not clients:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            clients.append(httpx2.AsyncClient(timeout=None, limits=limits))
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        headers = [(n, v) for n, v in scope["headers"] if n not in (b"host", b"content-length")]
        request = httpx2.Request(
            scope["method"], target + scope["path"], headers=headers, content=b"".join(parts)
        )
        answer = await clients[0].send(request, stream=True)
        kept = [
            (n, v) for n, v in answer.headers.raw if n.lower() not in (b"transfer-encoding", b"connection")
        ]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
        async for chunk in answer.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await answer.aclose()

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(512)
        port.put(listening.getsockname()[1])
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def gateway(port: Any, target: str, state: str) -> None:
    """Ours, with handles and a ledger."""
    import signal

    from pensieve_mcp.gateway.proxy import Upstream
    from pensieve_mcp.gateway.serving import RunningGateway
    from pensieve_mcp.settings import Settings
    from pensieve_mcp.workspace import Workspace

    folder = Path(state) / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("a")
    opened = Workspace.open([folder], environment={"PENSIEVE_HOME": state + "/home"}, builder="inline")
    with RunningGateway(
        (Upstream.of(target),), Settings(gateway_policy="eager"), lambda: opened, tools=TOOLS
    ) as running:
        port.put(int(running.url.rpartition(":")[2]))
        signal.sigwait([signal.SIGTERM])
        os._exit(0)


Servers = dict[str, tuple[Any, int]]  # process and port by name


# -- asking ------------------------------------------------------------------------------------------------------


class Line:
    """A kept connection that measures the time from the end of sending to the first byte of the answer's body."""

    def __init__(self, port: int, session: str) -> None:
        self.port, self.session = port, session
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, body: bytes) -> float:
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"x-claude-code-session-id: {self.session}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        begun = time.perf_counter()
        self.socket.sendall(head.encode() + body)
        got = b""
        first = 0.0
        while not got.endswith(b"0\r\n\r\n"):
            piece = self.socket.recv(65_536)
            assert piece, got
            got += piece
            if not first and b"data: " in got:
                first = time.perf_counter() - begun
        assert got.startswith(b"HTTP/1.1 200"), got[:200]
        return first


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def at_once(port: int, conversations: list[list[bytes]]) -> float:
    """Requests a second of so many conversations at once."""

    async def one(number: int, bodies: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in bodies:
            head = f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-claude-code-session-id: s{number}\r\n"
            head += f"content-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                got += await reader.read(65_536)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one(number, bodies) for number, bodies in enumerate(conversations)))
    return sum(map(len, conversations)) / (time.perf_counter() - begun)


def first_bytes(servers: Servers, size: int, requests: int) -> dict[str, Any]:
    """Times to the first byte over several conversations, each server asked in turns."""
    count = max(1, (requests if size <= 1_000_000 else requests // 4) // TURNS)
    times: dict[str, list[float]] = {name: [] for name in servers}
    first: dict[str, list[float]] = {name: [] for name in servers}
    cpu = dict.fromkeys(servers, 0.0)
    sizes: list[int] = []
    for conversation in range(count):
        bodies = turns(size, f"{size}-{conversation}", TURNS + 1)
        lines = {name: Line(port, f"{size}-{conversation}") for name, (_, port) in servers.items()}
        for turn, body in enumerate(bodies):
            if turn == 1:
                time.sleep(SETTLE_SECONDS)
                before = {name: cpu_seconds(process.pid) for name, (process, _) in servers.items()}
            for name in sorted(servers, reverse=bool(turn % 2)):
                time.sleep(PAUSE_SECONDS)
                (times if turn else first)[name].append(lines[name].ask(body))
            sizes.append(len(body))
        time.sleep(PAUSE_SECONDS)
        for name, (process, _) in servers.items():
            cpu[name] += cpu_seconds(process.pid) - before[name]
    medians = {name: statistics.median(values) * 1_000 for name, values in times.items()}
    quarter = {name: statistics.quantiles(values, n=4)[0] for name, values in times.items()}
    return {
        "bytes": round(statistics.mean(sizes)),
        "first_byte_ms": medians,
        "ratio": medians["gateway"] / medians["bare"],
        "quiet_ratio": quarter["gateway"] / quarter["bare"],
        "first_request_ms": {name: statistics.median(values) * 1_000 for name, values in first.items()},
        "cpu_ms": {name: 1_000 * value / count / TURNS for name, value in cpu.items()},
    }


def started(spawn: Any, state: str) -> tuple[list[Any], Servers]:
    """The processes, and those of the servers that are compared with their ports."""
    ports: Any = spawn.Queue()
    Path(state).mkdir()
    processes = [spawn.Process(target=upstream, args=(ports,), daemon=True)]
    processes[0].start()
    target = f"http://127.0.0.1:{ports.get(timeout=60)}"
    servers: Servers = {}
    for name, function, arguments in (("bare", bare, (target,)), ("gateway", gateway, (target, state))):
        process = spawn.Process(target=function, args=(ports, *arguments), daemon=True)
        process.start()
        servers[name] = (process, ports.get(timeout=60))
        processes.append(process)
    return processes, servers


def end(processes: list[Any]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(10)


def large(servers: Servers) -> dict[str, float]:
    """Peak memory after a conversation of 10 MB that goes on twice."""
    bodies = turns(10_000_000, "large", 3)
    for _, port in servers.values():
        line = Line(port, "large")
        for body in bodies:
            line.ask(body)
    return {name: peak_mb(process.pid) for name, (process, _) in servers.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import tempfile

    spawn = multiprocessing.get_context("spawn")
    figures: dict[str, Any] = {"sizes": {}}
    with tempfile.TemporaryDirectory() as state:
        processes, servers = started(spawn, state + "/all")
        try:
            for size in SIZES:
                figures["sizes"][str(size)] = row = first_bytes(servers, size, options.requests)
                medians, first, cpu = row["first_byte_ms"], row["first_request_ms"], row["cpu_ms"]
                print(
                    f"{row['bytes']:>9,} bytes: first byte bare {medians['bare']:.2f} ms, "
                    f"gateway {medians['gateway']:.2f} ms, ratio {row['ratio']:.2f}, "
                    f"quickest quarters {row['quiet_ratio']:.2f}; first request "
                    f"of a talk {first['bare']:.1f} and {first['gateway']:.1f} ms; "
                    f"CPU {cpu['bare']:.1f} and {cpu['gateway']:.1f} ms"
                )
            for kind in ("new", "known"):
                bodies = [turns(200_000, f"{kind}{number}", 5) for number in range(STREAMS)]
                rates = {}
                for name, (_, port) in servers.items():
                    if kind == "known":
                        asyncio.run(at_once(port, [one[:1] for one in bodies]))
                        time.sleep(SETTLE_SECONDS)
                    rates[name] = asyncio.run(
                        at_once(port, [one[1:] if kind == "known" else one[:1] for one in bodies])
                    )
                    time.sleep(SETTLE_SECONDS)
                figures[f"streams_{kind}"] = rates
                print(
                    f"{STREAMS} {kind} conversations at once, 240 kB: "
                    + ", ".join(f"{n} {v:.0f} requests/s" for n, v in rates.items())
                )
            figures["peak_mb_after_all"] = large(servers)
        finally:
            end(processes)
        processes, servers = started(spawn, state + "/alone")
        try:
            figures["peak_mb_alone"] = large(servers)
        finally:
            end(processes)
    for name, words in (
        ("after_all", "after all that, and requests of 10 MB"),
        ("alone", "of requests of 10 MB alone"),
    ):
        peaks = figures[f"peak_mb_{name}"]
        ratio = peaks["gateway"] / peaks["bare"]
        print(
            f"peak memory {words}: bare {peaks['bare']:.0f} MB, gateway {peaks['gateway']:.0f} MB, ratio {ratio:.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    ratio = figures["sizes"]["200000"]["ratio"]
    print(
        f"{'pass' if ratio <= BAR else 'FAIL'}: first byte at 200 kB with 20 deletions, ratio {ratio:.2f}, bar {BAR}"
    )
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())

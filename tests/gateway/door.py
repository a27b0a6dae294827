"""A host, our server and a scripted model around a running gateway: the whole way of a request, in every dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from talks import FACTS, NAMES, Talk
from upstreams import Got, Handler, Upstream, ask

from pensieve_mcp.gateway.proxy import Upstream as Place
from pensieve_mcp.gateway.serving import RunningGateway
from pensieve_mcp.settings import Settings
from pensieve_mcp.spellbook.casting import CastResult, cast
from pensieve_mcp.wire.dialects import read_request
from pensieve_mcp.workspace import Workspace

PATHS = {"anthropic": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
HOSTS = {"anthropic": "claude-code", "responses": "codex", "chat": "opencode"}


@dataclass(frozen=True)
class Called:
    """A call that the model makes in an answer."""

    call_id: str
    tool: str
    arguments: dict[str, Any]


def answer(dialect: str, called: Called | None, prompt: int) -> dict[str, Any]:
    """The model's answer in one piece, with what it cost."""
    if dialect == "anthropic":
        content = [] if called is None else [
            {"type": "tool_use", "id": called.call_id, "name": called.tool, "input": called.arguments}
        ]  # fmt: skip
        return {"type": "message", "content": content, "usage": {"input_tokens": prompt, "output_tokens": 3}}
    words = "" if called is None else json.dumps(called.arguments)
    if dialect == "responses":
        output = [] if called is None else [
            {"type": "function_call", "call_id": called.call_id, "name": called.tool,
             "namespace": "mcp__pensieve", "arguments": words}
        ]  # fmt: skip
        return {"output": output, "usage": {"input_tokens": prompt, "output_tokens": 3}}
    function = None if called is None else {"name": called.tool, "arguments": words}
    calls = [] if called is None else [{"id": called.call_id, "type": "function", "function": function}]
    usage = {"prompt_tokens": prompt, "completion_tokens": 3}
    return {"choices": [{"message": {"content": "", "tool_calls": calls}}], "usage": usage}


def events(dialect: str, called: Called | None, prompt: int) -> list[bytes]:
    """The same answer as a stream, event by event."""
    whole = answer(dialect, called, prompt)
    made: list[dict[str, Any]]
    if dialect == "anthropic":
        made = [{"type": "message_start", "message": {"usage": whole["usage"]}}]
        for place, block in enumerate(whole["content"]):
            words = json.dumps(block["input"])
            delta = {"type": "input_json_delta", "partial_json": words}
            made += [
                {"type": "content_block_start", "index": place, "content_block": {**block, "input": {}}},
                {"type": "content_block_delta", "index": place, "delta": delta},
                {"type": "content_block_stop", "index": place},
            ]
        made.append({"type": "message_stop"})
    elif dialect == "responses":
        made = [{"type": "response.output_item.done", "item": item} for item in whole["output"]]
        made.append({"type": "response.completed", "response": {"usage": whole["usage"]}})
    else:
        calls = [{"index": n, **call} for n, call in enumerate(whole["choices"][0]["message"]["tool_calls"])]
        end = "tool_calls" if calls else "stop"
        made = [
            {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {"choices": [], "usage": whole["usage"]},
        ]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in made]


class Model:
    """Answers each request with what its header asks for, so that many may ask at once."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, Called | None, bool]] = {}

    def __call__(self, handler: Handler, body: bytes) -> None:
        dialect, called, streamed = self.answers[handler.headers["X-Turn"]]
        if not streamed:
            handler.whole(200, json.dumps(answer(dialect, called, len(body) // 4)).encode())
            return
        handler.begin_stream()
        for event in events(dialect, called, len(body) // 4):
            handler.piece(event)
        handler.end_stream()


@dataclass
class Conversation:
    """One conversation of a host: what it holds, and how it is called."""

    house: House
    dialect: str
    name: str
    streamed: bool = True
    talk: Talk = field(default_factory=Talk)
    more: dict[str, str] = field(default_factory=dict)  # headers besides
    turns: int = 0

    @property
    def headers(self) -> dict[str, str]:
        named = {
            "anthropic": {"X-Claude-Code-Session-Id": self.name},
            "responses": {"Thread-Id": self.name},
            "chat": {"User-Agent": "opencode/1", "X-Session-Id": self.name},
        }[self.dialect]
        return {"Content-Type": "application/json", **named, **self.more}

    @property
    def episode(self) -> Any:
        return self.house.workspace.episode("mcp", host=HOSTS[self.dialect], thread=self.name)

    def body(self) -> bytes:
        return self.talk.body(self.dialect)

    def turn(self, called: Called | None = None, body: bytes | None = None) -> bytes:
        """One request, answered with this call; what arrived at the model's API."""
        self.turns += 1
        mark = f"{self.dialect}-{self.name}-{self.turns}-{id(self)}"
        self.house.model.answers[mark] = (self.dialect, called, self.streamed)
        asked, got = ask(
            self.house.gateway.url,
            "POST",
            PATHS[self.dialect],
            self.body() if body is None else body,
            {**self.headers, "X-Turn": mark},
        )
        prompt = len(self.house.arrived(mark).body) // 4
        expected = (
            b"".join(events(self.dialect, called, prompt))
            if self.streamed
            else json.dumps(answer(self.dialect, called, prompt)).encode()
        )
        assert (asked.status, got) == (200, expected), "an answer passes as it is"
        return self.house.arrived(mark).body

    def call(self, tool: str, **arguments: Any) -> CastResult:
        """The model calls our tool, the server answers, and both stand in the conversation."""
        call_id = f"call_{self.name}_{len(self.talk.steps):04}"
        wire_name = NAMES[self.dialect].format(tool)
        self.turn(Called(call_id, wire_name, arguments))
        done = cast(self.episode, tool, arguments, host_call_id=call_id)
        self.talk.own(tool, arguments, "")
        step = self.talk.steps[-1]
        step.call_id, step.result, step.is_error = call_id, done.text, done.is_error
        return done

    def host_reads(self, words: str, path: str = "src/x.py") -> str:
        """The host's own tool; answers the handle that the model sees at its result."""
        self.talk.host(words, file_path=path)
        step = self.talk.steps[-1]
        step.call_id = f"call_{self.name}_{len(self.talk.steps) - 1:04}"
        text = self.results(self.turn())[step.call_id]
        found = re.match(r"(h[0-9a-f]{4,}) · ", text)
        assert found is not None, text[:200]
        return found[1]

    def results(self, body: bytes) -> dict[str, str]:
        read = read_request(body, self.dialect)  # type: ignore[arg-type]
        return {item.call_id: read.text_of(item) for item in read.items if item.kind == "result"}


class House:
    """A workspace, a gateway on it and a model behind; the first two may be started anew."""

    def __init__(self, folder: Path, upstream: Upstream, model: Model, policy: str) -> None:
        self.upstream, self.model = upstream, model
        self.library = folder / "archive"
        self.environment = {"PENSIEVE_HOME": str(folder / "home"), "PENSIEVE_UPGRADE": "false"}
        self._settings = Settings(gateway_policy=policy, gateway_handle_tokens=200)

    def open(self) -> None:
        self.workspace = self._opened()
        self.gateway = RunningGateway(
            (Place.of(self.upstream.url),), self._settings, self._opened, tools=FACTS.tools
        )
        self.gateway.__enter__()

    def _opened(self) -> Workspace:
        return Workspace.open([self.library], environment=self.environment, builder="inline")

    def close(self) -> None:
        self.gateway.__exit__()
        self.workspace.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def conversation(self, dialect: str, name: str = "s1", *, streamed: bool = True) -> Conversation:
        return Conversation(self, dialect, name, streamed)

    def arrived(self, mark: str) -> Got:
        return next(got for got in self.upstream.got if got.header("x-turn") == mark)


@contextmanager
def house(folder: Path, documents: dict[str, str], policy: str = "eager") -> Iterator[House]:
    """A house with these documents."""
    (folder / "archive").mkdir()
    for name, words in documents.items():
        (folder / "archive" / name).write_text(words, encoding="utf-8")
    model = Model()
    with Upstream(model) as upstream:
        made = House(folder, upstream, model, policy)
        with made._opened() as workspace:
            workspace.build_now()
        made.open()
        try:
            yield made
        finally:
            made.close()

"""A scripted stand-in for an LLM's API, on the loopback, for real coding agents to run against.

It speaks as much of three wire formats as they need: Anthropic Messages, OpenAI Responses and Gemini, streaming
and not. The "model" is a list of turns, each a list of actions: `{"text": …}`, `{"thinking": …}` (Anthropic's) or
`{"tool": NAME, "args": {…}}`,
where NAME is the bare name of a tool; an argument that is a function is called with the tool results that the
host has sent back so far. Hosts that defer tools behind a search are searched as a model would. Requests
without tools (titles, quota probes) get a short canned text. Every request is kept, so that a test sees what
the model would have been shown.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# --------------------------------------------------------------------------- reading requests


def text_of(content: Any) -> str:
    """Plain text of a content value in either API's shape."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(c) for c in content)
    if isinstance(content, dict):
        for key in ("text", "content", "output", "thinking"):
            if key in content:
                return text_of(content[key])
    return ""


def _is_tool_search(block: dict[str, Any]) -> bool:
    content = block.get("content")
    return isinstance(content, list) and any(c.get("type") == "tool_reference" for c in content)


def tool_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every tool result in a request but those of tool search, in order: {id, text, error, raw}."""
    found: list[dict[str, Any]] = []
    for message in body.get("messages", []):  # Anthropic
        if isinstance(message.get("content"), list):
            for block in message["content"]:
                if block.get("type") == "tool_result" and not _is_tool_search(block):
                    found.append(
                        {
                            "id": block.get("tool_use_id"),
                            "text": text_of(block.get("content")),
                            "error": bool(block.get("is_error")),
                            "raw": block,
                        }
                    )
    items = body.get("input", [])
    for item in items if isinstance(items, list) else []:  # Responses
        if item.get("type") in ("function_call_output", "custom_tool_call_output", "mcp_tool_call_output"):
            found.append(
                {"id": item.get("call_id"), "text": text_of(item.get("output")), "error": False, "raw": item}
            )
    for content in body.get("contents", []):  # Gemini
        for part in content.get("parts", []):
            if "functionResponse" in part:
                answer = part["functionResponse"].get("response") or {}
                found.append(
                    {
                        "id": part["functionResponse"].get("id"),
                        "text": str(answer.get("output", answer.get("error"))),
                        "error": "error" in answer,
                        "raw": part,
                    }
                )
    return found


def tool_names(body: dict[str, Any]) -> list[str]:
    """All tool names a request offers, namespaced ones as `namespace/name`."""
    names: list[str] = []
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            names += [f"{tool.get('name')}/{t.get('name')}" for t in tool.get("tools", [])]
        elif tool.get("functionDeclarations"):  # Gemini
            names += [f["name"] for f in tool["functionDeclarations"]]
        elif tool.get("name"):
            names.append(tool["name"])
        elif tool.get("type"):
            names.append(f"<{tool['type']}>")
    # Responses hosts can also bring tools in as input items (deferred tools).
    items = body.get("input", [])
    for item in items if isinstance(items, list) else []:
        for tool in item.get("tools") or []:
            if isinstance(tool, dict) and tool.get("type") == "namespace":
                names += [f"{tool.get('name')}/{t.get('name')}" for t in tool.get("tools", [])]
            elif isinstance(tool, dict) and tool.get("name"):
                names.append(tool["name"])
    return names


def conversation_text(body: dict[str, Any]) -> str:
    """System prompt and all messages as text, for `match`."""
    parts = [text_of(body.get("system")), text_of(body.get("instructions"))]
    parts += [text_of(m.get("content")) for m in body.get("messages", [])]
    parts += [
        text_of(c.get("parts")) for c in [body.get("systemInstruction") or {}, *body.get("contents", [])]
    ]
    items = body.get("input", [])
    if isinstance(items, str):
        parts.append(items)
    else:
        parts += [text_of(i.get("content")) for i in items]
    return "\n".join(parts)


def fill(value: Any, results: list[dict[str, Any]]) -> Any:
    """Call what stands as a function among the arguments with the tool results so far."""
    if callable(value):
        return value(results)
    if isinstance(value, dict):
        return {key: fill(inner, results) for key, inner in value.items()}
    return [fill(inner, results) for inner in value] if isinstance(value, list) else value


# --------------------------------------------------------------------------- the script

MAX_LOADS = 8


class Script:
    """Hands out one turn a request; turns wait while a host still has to load the tools."""

    def __init__(self, turns: list[list[dict[str, Any]]]) -> None:
        self.turns = turns
        self.next = 0
        self.loads = 0
        self.known = {action["tool"] for turn in turns for action in turn if "tool" in action}
        self.lock = threading.Lock()

    def turn(self, body: dict[str, Any]) -> tuple[bool, list[dict[str, Any]]]:
        """Whether a turn was taken, and the actions."""
        names = tool_names(body)
        if not names:
            return False, [{"text": "{}" if "contents" in body else "ok"}]
        with self.lock:
            if self.next >= len(self.turns):
                return True, [{"text": "SCRIPT OVER"}]
            actions = self.turns[self.next]
            missing = [
                action["tool"]
                for action in actions
                if "tool" in action
                and resolve_tool(action, names)[1] == action["tool"]
                and not any(name.rpartition("/")[2] == action["tool"] for name in names)
            ]
            if (
                missing
                and any(name in ("ToolSearch", "<tool_search>") for name in names)
                and self.loads < MAX_LOADS
            ):
                self.loads += 1
                return True, [{"load": sorted(self.known), "wait": 0.2 if self.loads == 1 else 1}]
            self.next += 1
            return True, actions


def resolve_tool(action: dict[str, Any], names: list[str], text: str = "") -> tuple[str | None, str]:
    """(namespace, name) under which a host offers a bare MCP tool name.

    `text` is the conversation: a host that defers tools only names them there.
    """
    want = action["tool"]
    for full in names:
        ns, _, name = full.rpartition("/")
        if name == want or name.endswith(f"_{want}"):  # mcp__server__tool, server_tool
            return (ns or None), name
    deferred = re.search(rf"\bmcp__[A-Za-z0-9_-]+?__{re.escape(want)}\b", text)
    return None, (deferred.group(0) if deferred else want)


# --------------------------------------------------------------------------- replies


def _usage_anthropic(body: dict[str, Any]) -> dict[str, Any]:
    n = max(1, len(json.dumps(body)) // 4)
    return {
        "input_tokens": n,
        "output_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def anthropic_message(body: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
    names, results = tool_names(body), tool_results(body)
    content: list[dict[str, Any]] = []
    for action in actions:
        if "thinking" in action:
            content.append({"type": "thinking", "thinking": action["thinking"], "signature": "c2lnbmVk"})
        if "text" in action:
            content.append({"type": "text", "text": action["text"]})
        if "load" in action:
            text = conversation_text(body)
            full = sorted(
                {
                    m
                    for t in action["load"]
                    for m in re.findall(rf"\bmcp__[A-Za-z0-9_-]+?__{re.escape(t)}\b", text)
                }
            )
            content.append(
                {
                    "type": "tool_use",
                    "id": "toolu_" + uuid.uuid4().hex[:22],
                    "name": "ToolSearch",
                    "input": {"query": "select:" + ",".join(full or action["load"]), "max_results": 20},
                }
            )
        if "tool" in action:
            _, name = resolve_tool(action, names, conversation_text(body))
            content.append(
                {
                    "type": "tool_use",
                    "id": "toolu_" + uuid.uuid4().hex[:22],
                    "name": name,
                    "input": fill(action.get("args", {}), results),
                }
            )
    stop = "tool_use" if any(c["type"] == "tool_use" for c in content) else "end_turn"
    return {
        "id": "msg_" + uuid.uuid4().hex[:22],
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "mock"),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage_anthropic(body),
    }


def anthropic_events(message: dict[str, Any]):
    start = dict(message, content=[], stop_reason=None)
    yield "message_start", {"type": "message_start", "message": start}
    for i, block in enumerate(message["content"]):
        if block["type"] == "text":
            yield (
                "content_block_start",
                {"type": "content_block_start", "index": i, "content_block": {"type": "text", "text": ""}},
            )
            yield (
                "content_block_delta",
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "text_delta", "text": block["text"]},
                },
            )
        elif block["type"] == "thinking":
            empty = dict(block, thinking="", signature="")
            yield "content_block_start", {"type": "content_block_start", "index": i, "content_block": empty}
            for kind, name in (("thinking_delta", "thinking"), ("signature_delta", "signature")):
                delta = {"type": kind, name: block[name]}
                yield "content_block_delta", {"type": "content_block_delta", "index": i, "delta": delta}
        else:
            yield (
                "content_block_start",
                {"type": "content_block_start", "index": i, "content_block": dict(block, input={})},
            )
            yield (
                "content_block_delta",
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
                },
            )
        yield "content_block_stop", {"type": "content_block_stop", "index": i}
    yield (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": message["usage"],
        },
    )
    yield "message_stop", {"type": "message_stop"}


def responses_object(body: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
    names, results = tool_names(body), tool_results(body)
    output: list[dict[str, Any]] = []
    for action in actions:
        if "text" in action:
            output.append(
                {
                    "type": "message",
                    "id": "msg_" + uuid.uuid4().hex[:16],
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": action["text"], "annotations": []}],
                }
            )
        if "load" in action:
            output.append(
                {
                    "type": "tool_search_call",
                    "id": "tsc_" + uuid.uuid4().hex[:16],
                    "call_id": "ts_" + uuid.uuid4().hex[:16],
                    "execution": "client",
                    "status": "completed",
                    "arguments": {"query": " ".join(action["load"]), "limit": 20},
                }
            )
        if "item" in action:  # a raw Responses output item
            output.append(fill(action["item"], results))
        if "tool" in action:
            namespace, name = resolve_tool(action, names, conversation_text(body))
            call: dict[str, Any] = {
                "type": "function_call",
                "id": "fc_" + uuid.uuid4().hex[:16],
                "call_id": "call_" + uuid.uuid4().hex[:16],
                "name": name,
                "status": "completed",
                "arguments": json.dumps(fill(action.get("args", {}), results)),
            }
            if namespace:
                call["namespace"] = namespace
            output.append(call)
    n = max(1, len(json.dumps(body)) // 4)
    return {
        "id": "resp_" + uuid.uuid4().hex[:16],
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": body.get("model", "mock"),
        "output": output,
        "usage": {
            "input_tokens": n,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n + 10,
        },
    }


def responses_events(response: dict[str, Any]):
    seq = 0

    def ev(kind: str, **data: Any):
        nonlocal seq
        seq += 1
        return kind, {"type": kind, "sequence_number": seq, **data}

    yield ev("response.created", response=dict(response, output=[], status="in_progress", usage=None))
    for i, item in enumerate(response["output"]):
        yield ev("response.output_item.added", output_index=i, item=dict(item, status="in_progress"))
        if item["type"] == "message":
            yield ev(
                "response.output_text.delta",
                output_index=i,
                content_index=0,
                item_id=item["id"],
                delta=item["content"][0]["text"],
            )
        yield ev("response.output_item.done", output_index=i, item=item)
    yield ev("response.completed", response=response)


def gemini_object(body: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
    names, results = tool_names(body), tool_results(body)
    parts: list[dict[str, Any]] = []
    for action in actions:
        if "text" in action:
            parts.append({"text": action["text"]})
        if "tool" in action:
            parts.append(
                {
                    "functionCall": {
                        "name": resolve_tool(action, names, conversation_text(body))[1],
                        "args": fill(action.get("args", {}), results),
                    }
                }
            )
    n = max(1, len(json.dumps(body)) // 4)
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": n, "candidatesTokenCount": 10, "totalTokenCount": n + 10},
        "modelVersion": "mock",
    }


# --------------------------------------------------------------------------- the server


class ScriptedModel:
    """`with ScriptedModel(turns) as model: … model.url … model.turns_taken()`."""

    def __init__(self, turns: list[list[dict[str, Any]]]) -> None:
        self.script = Script(turns)
        self.requests: list[dict[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:  # keep stderr clean
                pass

            def _reply(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def _sse(self, events: Any) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("cache-control", "no-cache")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for name, data in events:
                    chunk = ((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n").encode()
                    self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def _any(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                encoding = (self.headers.get("content-encoding") or "").lower()
                try:
                    if encoding == "gzip":
                        raw = gzip.decompress(raw)
                    body = json.loads(raw) if raw else None
                except Exception as exc:  # recorded, so that a test can see it
                    body = {"undecodable": repr(exc), "encoding": encoding, "size": len(raw)}
                record: dict[str, Any] = {
                    "time": time.time(),
                    "method": self.command,
                    "path": self.path,
                    "headers": {k.lower(): v for k, v in self.headers.items()},
                    "body": body,
                }
                owner.requests.append(record)
                try:
                    self._answer(record, body, raw)
                except (KeyError, IndexError, TypeError, ValueError) as exc:  # a script that does not fit
                    record["script_error"] = f"{type(exc).__name__}: {exc}"
                    self._reply(
                        400,
                        {
                            "type": "error",
                            "error": {
                                "type": "invalid_request_error",
                                "message": "host-sim: " + record["script_error"],
                            },
                        },
                    )

            def _answer(self, record: dict[str, Any], body: Any, raw: bytes) -> None:
                path = self.path.split("?")[0]
                if self.command == "POST" and path.endswith("/messages"):
                    record["turn"], actions = owner.script.turn(body)
                    time.sleep(sum(a.get("wait", 0) for a in actions))
                    record["reply"] = message = anthropic_message(body, actions)
                    if body.get("stream"):
                        self._sse(anthropic_events(message))
                    else:
                        self._reply(200, message)
                elif self.command == "POST" and path.endswith("/count_tokens"):
                    self._reply(200, {"input_tokens": len(raw) // 4})
                elif self.command == "POST" and path.endswith("/responses"):
                    record["turn"], actions = owner.script.turn(body)
                    time.sleep(sum(a.get("wait", 0) for a in actions))
                    record["reply"] = response = responses_object(body, actions)
                    if body.get("stream"):
                        self._sse(responses_events(response))
                    else:
                        self._reply(200, response)
                elif self.command == "POST" and path.endswith((":streamGenerateContent", ":generateContent")):
                    record["turn"], actions = owner.script.turn(body)
                    time.sleep(sum(a.get("wait", 0) for a in actions))
                    record["reply"] = answer = gemini_object(body, actions)
                    if path.endswith(":streamGenerateContent"):
                        self._sse([(None, answer)])
                    else:
                        self._reply(200, answer)
                elif self.command == "POST" and path.endswith(":countTokens"):
                    self._reply(200, {"totalTokens": len(raw) // 4})
                elif self.command == "GET" and path.endswith("/models"):
                    self._reply(200, {"object": "list", "data": [], "models": [], "has_more": False})
                elif self.command == "HEAD":
                    self._reply(200, {})
                else:
                    self._reply(
                        404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}}
                    )

            do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = _any

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.httpd.shutdown()
        self.httpd.server_close()

    def turns_taken(self) -> list[dict[str, Any]]:
        """The requests that took a turn."""
        return [request for request in self.requests if request.get("turn")]

    def done(self) -> bool:
        return self.script.next >= len(self.script.turns)

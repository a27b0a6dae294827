"""Endpoints: what is sent, how streams are read, what happens when servers fail. All on the loopback."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from server import Answer, Served, events, mute, serving

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.backends import Choice, http, open_backend
from pensieve_mcp.statelm.backends.anthropic import Anthropic, blocks
from pensieve_mcp.statelm.backends.http import Poster
from pensieve_mcp.statelm.backends.openai import OpenAI
from pensieve_mcp.statelm.dialects import dialect
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.turns import Prompt

TOOL = {
    "type": "function",
    "function": {"name": "finish", "description": "End.", "parameters": {"type": "object", "properties": {}}},
}
PROMPT = Prompt(({"role": "system", "content": "S"}, {"role": "user", "content": "Q"}), (TOOL,))


def delta(**said: Any) -> dict[str, Any]:
    return {"choices": [{"delta": said}]}


def call_delta(name: str, arguments: str, index: int = 0) -> dict[str, Any]:
    return delta(
        tool_calls=[{"index": index, "id": f"id{index}", "function": {"name": name, "arguments": arguments}}]
    )


END = {
    "choices": [{"delta": {}, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 3},
}
WHOLE = events(delta(content="I "), delta(content="look."), call_delta("finish", '{"answer":'), call_delta("", ' "x"}'),
               END, "[DONE]")  # fmt: skip


def openai(served: Served, waits: list[float] | None = None, **more: Any) -> OpenAI:
    kept = waits if waits is not None else []
    poster = Poster(served.url + "/v1", {}, sleep=kept.append, **more)
    return OpenAI(Choice("openai", "m"), poster=poster)


def test_a_stream_of_pieces_becomes_one_reply() -> None:
    heard: list[str] = []
    with serving([Answer(WHOLE)]) as served:
        backend = OpenAI(Choice("openai", "m", served.url + "/v1", key="secret-key"), hear=heard.append)
        reply = backend.reply(PROMPT)
        backend.close()

    assert reply.text == "I look." and list(filter(None, heard)) == [
        "I ",
        "look.",
        'finish {"answer":',
        '"x"}',
    ]
    assert (reply.calls[0].name, reply.calls[0].arguments) == ("finish", {"answer": "x"})
    assert (reply.usage.prompt_tokens, reply.usage.output_tokens) == (11, 3)
    assert served.asked[0]["path"] == "/v1/chat/completions" and served.asked[0]["stream"] is True
    assert served.asked[0]["tools"] == [TOOL] and served.headers[0]["authorization"] == "Bearer secret-key"


def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {"choices": [{"message": {"content": "T", "tool_calls": [
        {"function": {"name": "finish", "arguments": {"answer": "x"}}}]}, "finish_reason": "stop"}]}  # fmt: skip
    with serving([Answer([json.dumps(whole).encode()])]) as served:
        reply = openai(served).reply(PROMPT)

    assert reply.calls[0].arguments == {"answer": "x"} and reply.text == "T"


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_busy_server_is_tried_again_after_the_time_it_names(status: int) -> None:
    waits: list[float] = []
    busy = Answer([b'{"error": {"message": "slow down"}}'], status, {"retry-after": "7"})
    with serving([busy, Answer(WHOLE)]) as served:
        reply = openai(served, waits).reply(PROMPT)

    assert reply.calls and waits == [7.0] and len(served.asked) == 2


@pytest.mark.parametrize(
    "broken",
    [Answer(WHOLE[:2], cut=True), Answer(WHOLE[:2]), Answer(events(delta(content="a"), "{not json"))],
)
def test_a_stream_cut_in_the_middle_is_asked_for_again(broken: Answer) -> None:
    with serving([broken, Answer(WHOLE)]) as served:
        reply = openai(served).reply(PROMPT)

    assert reply.text == "I look." and len(served.asked) == 2


def test_a_server_that_stays_broken_is_a_worded_error_and_waits_grow() -> None:
    waits: list[float] = []
    with serving([Answer([b"oops"], 500)]) as served, pytest.raises(BackendError) as error:
        openai(served, waits).reply(PROMPT)

    assert "tried 4 times" in error.value.message and "500: oops" in error.value.message
    assert len(waits) == 3 and waits[0] < waits[1] < waits[2]


@pytest.mark.parametrize(("status", "hint"), [(401, "key"), (404, "--model"), (400, "window")])
def test_a_refusal_is_not_tried_again_and_says_what_to_do(status: int, hint: str) -> None:
    with serving([Answer([b'{"error": {"message": "no"}}'], status)]) as served:
        with pytest.raises(BackendError) as error:
            openai(served).reply(PROMPT)
        # a server that does not know forced calls says 400 as well, so it is asked once without
        assert [one["tool_choice"] for one in served.asked] == ["required", "auto"][: 1 + (status == 400)]

    assert hint in error.value.hint and "secret" not in str(error.value)


def test_a_server_that_is_down_is_a_worded_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(BackendError) as error:
        OpenAI(Choice("openai", "m"), poster=Poster(url, {}, sleep=lambda seconds: None)).reply(PROMPT)

    assert "no connection ([" in error.value.message and "refused" in error.value.message
    assert "--url" in error.value.hint


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other words")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_that_breaks_is_told_in_the_systems_words(scheme: str) -> None:
    def break_off() -> None:
        for _ in range(http.TRIES):
            asker, _ = listening.accept()
            said = asker.recv(65_536)
            while scheme == "http" and not said.endswith(b"}"):  # all of it, else it breaks in the writing
                said += asker.recv(65_536)
            asker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
            asker.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=break_off)
        thread.start()
        poster = Poster(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", {}, sleep=lambda seconds: None)
        with pytest.raises(BackendError, match=re.escape(os.strerror(errno.ECONNRESET))):
            OpenAI(Choice("openai", "m"), poster=poster).reply(PROMPT)
        thread.join()


def test_a_server_that_is_silent_is_given_up() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        poster = Poster(
            f"http://127.0.0.1:{listening.getsockname()[1]}", {}, silence_seconds=0.05, sleep=lambda s: None
        )
        with pytest.raises(BackendError) as error:
            OpenAI(Choice("openai", "m"), poster=poster).reply(PROMPT)

    assert "no answer in time" in error.value.message


@pytest.mark.parametrize("url", ["", "no address", "ftp://x/", "file:///etc/passwd"])
def test_a_wrong_address_is_told(url: str) -> None:
    with pytest.raises(BackendError) as error:
        Poster(url, {})

    assert "--url" in error.value.hint


def test_arguments_that_are_no_json_are_shown_back_to_the_model() -> None:
    with serving([Answer(events(call_delta("finish", '{"answer": '), END, "[DONE]"))]) as served:
        reply = openai(served).reply(PROMPT)

    assert not reply.calls and "finish" in reply.text


def test_anthropics_blocks_alternate_and_keep_calls_with_results() -> None:
    system, turns = blocks(
        [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "Q"},
            {"role": "assistant", "content": "T", "tool_calls": [
                {"id": "call_2", "type": "function", "function": {"name": "note", "arguments": '{"key": "a"}'}}]},
            {"role": "tool", "tool_call_id": "call_2", "content": "ok"},
            {"role": "user", "content": "[m3 to m9 forgotten]"},
        ]
    )  # fmt: skip

    assert system == "S" and [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"][1] == {
        "type": "tool_use",
        "id": "call_2",
        "name": "note",
        "input": {"key": "a"},
    }
    assert turns[2]["content"][0] == {"type": "tool_result", "tool_use_id": "call_2", "content": "ok"}


def test_anthropics_stream_becomes_one_reply() -> None:
    stream = events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 20}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I look."}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": "finish"},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"answer":'},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '"x"}'},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    with serving([Answer(stream[:4]), Answer(stream)]) as served:
        poster = Poster(served.url, {"x-api-key": "k"}, sleep=lambda seconds: None)
        reply = Anthropic(Choice("anthropic", "m"), poster=poster).reply(PROMPT)

    assert reply.text == "I look." and reply.calls[0].arguments == {"answer": "x"}
    assert reply.usage.prompt_tokens == 25 and reply.usage.cached_tokens == 20
    assert len(served.asked) == 2 and served.asked[1]["system"][0]["text"] == "S"
    assert served.asked[1]["tools"][0]["input_schema"] == {"type": "object", "properties": {}}


def test_an_unnamed_backend_or_model_is_told() -> None:
    with pytest.raises(BackendError, match="no backend"):
        open_backend(Choice("telepathy"))
    with pytest.raises(BackendError, match="No model"):
        open_backend(Choice("anthropic"))
    with pytest.raises(BackendError, match="cannot be read"):
        open_backend(Choice("scripted", "/nowhere/script.jsonl"))


def test_a_choice_does_not_print_its_key() -> None:
    assert "s3cret" not in repr(Choice("openai", "m", key="s3cret"))


def test_a_whole_question_over_an_endpoint(workspace) -> None:
    """The loop against a server that looks at what it is sent, deletions included."""

    def answer(asked: dict[str, Any], turn: int) -> Answer:
        if turn == 0:
            said = call_delta("searchEngine", '{"keyword": "hidden word hive"}')
        elif turn == 1:
            chunk = str(asked["messages"][-1]["content"]).split("\nc", 1)[1].split(" ", 1)[0]
            said = call_delta("readChunk", json.dumps({"chunk_id": f"c{chunk}"}))
        elif turn == 2:
            quote = "The hidden word of the seventh hive is xylograph."
            note = {"key": "word", "summary": "hidden", "content": "found it", "evidence": [{"quote": quote}]}
            said = call_delta("note", json.dumps(note))
        elif turn == 3:
            said = call_delta("deleteContext", '{"msg_id": "m5"}')
        else:
            said = call_delta("finish", '{"answer": "xylograph"}')
        return Answer(events(delta(content=f"Turn {turn}."), said, END, "[DONE]"))

    with serving(answer) as served:
        loop = Loop.over(workspace, "Which word is hidden?", dialect("ours"))
        asked = loop.run(openai(served))

    assert asked.answer == "xylograph" and asked.grounded
    assert served.asked[-1]["messages"][2]["content"] == "Turn 0."
    assert "walked" in json.dumps(served.asked[3]) and "walked" not in json.dumps(
        served.asked[4]["messages"][4:]
    )


ODD: tuple[Any, ...] = (
    {}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": {"tool_calls": [None]}}]}, {"choices": 7},
    {"choices": [{"delta": {"tool_calls": [{"index": "one", "function": 3}]}}]}, {"usage": {"prompt_tokens": "many"}},
    {"type": "content_block_delta"}, {"type": "content_block_start", "index": 0}, {"type": "message_start"},
    {"type": "content_block_delta", "index": [], "delta": {"type": "input_json_delta"}},
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
@pytest.mark.parametrize("kind", [OpenAI, Anthropic])
def test_events_of_any_shape_become_a_reply_or_a_worded_error(kind: Any, odd: Any) -> None:
    with serving([Answer(events(odd, "[DONE]"))]) as served:
        backend = kind(Choice("x", "m"), poster=Poster(served.url, {}, sleep=lambda seconds: None))
        try:
            backend.reply(PROMPT)
        except BackendError as error:
            assert "tried 4 times" in error.message


def test_a_stream_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_REPLY_LINES", 50)
    with (
        serving([Answer(events(*[delta(content="la ")] * 80))]) as served,
        pytest.raises(BackendError) as error,
    ):
        openai(served).reply(PROMPT)

    assert "has no end" in error.value.message and len(served.asked) == 1


def test_a_reply_that_drips_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REPLY_SECONDS", -1.0)
    with serving([Answer(WHOLE)]) as served, pytest.raises(BackendError) as error:
        openai(served).reply(PROMPT)

    assert "still replying" in error.value.message and len(served.asked) == 1


def test_a_question_is_cancelled_in_the_middle_of_a_reply(workspace, home) -> None:
    from pensieve_mcp.statelm import asking

    pieces = events(*[delta(content=f"word{n} ") for n in range(40)], END, "[DONE]")
    heard: list[str] = []
    with serving([Answer(pieces)]) as served:
        asked = asking.ask(
            workspace, "Q?", Choice("openai", "m", served.url), home=home, hear=heard.append,
            cancelled=lambda: len(heard) >= 3,
        )  # fmt: skip

    assert asked.ended == "cancelled" and len(heard) == 3 and len(served.asked) == 1


@pytest.mark.parametrize("backend", ["openai", "anthropic"])
def test_a_question_is_cancelled_while_it_waits_for_the_next_try(workspace, home, backend: str) -> None:
    from pensieve_mcp.statelm import asking

    with serving([Answer([b"busy"], 503, {"retry-after": "20"})]) as served:
        asked = asking.ask(
            workspace,
            "Q?",
            Choice(backend, "m", served.url),
            home=home,
            cancelled=lambda: len(served.asked) > 0,
        )

    assert asked.ended == "cancelled" and len(served.asked) == 1


def test_a_line_that_never_ends_is_not_heard_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that comes in drops nor one that fills the memory."""
    line = b"data: " + b"x" * 100
    for name, most, slug in (("MAX_LINE_CHARS", 50, "endless"), ("REPLY_SECONDS", -1.0, "too_slow_reply")):
        monkeypatch.setattr(http, name, most)
        with mute(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + line) as server:
            model = open_backend(Choice("openai", "m", server.url))
            with pytest.raises(BackendError) as error:
                model.reply(PROMPT)
            model.close()
            assert error.value.slug == slug and not server.released.is_set()


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\u0085"])
def test_signs_that_end_lines_elsewhere_end_none_of_a_reply(sign: str) -> None:
    event = {"choices": [{"delta": {"content": f"a{sign}b"}, "finish_reason": "stop"}]}
    said = json.dumps(event, ensure_ascii=False).encode()
    with serving([Answer([b"data: " + said + b"\r\n\r\n", b"data: [DONE]\n\n"])]) as served:
        model = open_backend(Choice("openai", "m", served.url))
        reply = model.reply(PROMPT)
        model.close()
    assert reply.text == f"a{sign}b"

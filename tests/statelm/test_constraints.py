"""An impossible action cannot be sampled where a server enforces schemas: what is sent, state by state; the grammar in
this process; and that an edit of the end of a prompt does not compute its beginning again."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny
from server import Answer, Served, events, serving

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.backends.anthropic import Anthropic
from pensieve_mcp.statelm.backends.http import Poster
from pensieve_mcp.statelm.backends.openai import OpenAI
from pensieve_mcp.statelm.backends.strictness import strict
from pensieve_mcp.statelm.backends.toolgrammar import tool_call_grammar
from pensieve_mcp.statelm.dialects import dialect
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.turns import Call, Prompt


def call(name: str, **arguments: object) -> Call:
    return Call(name, arguments)


def said(name: str, **arguments: object) -> Answer:
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta = {"tool_calls": [{"index": 0, "id": "a", "function": function}]}
    return Answer(events({"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}, "[DONE]"))


def field(body: dict[str, Any], tool: str, name: str) -> dict[str, Any]:
    (one,) = [t["function"] for t in body["tools"] if t["function"]["name"] == tool]
    found: dict[str, Any] = one["parameters"]["properties"][name]
    return found


def ask(workspace: Any, served: Served, answers: Any, **choice: Any) -> list[dict[str, Any]]:
    backend = OpenAI(Choice("openai", "m", served.url + "/v1", **choice))
    Loop.over(workspace, "Which word is hidden in the seventh hive?", dialect("ours")).run(backend)
    backend.close()
    return served.asked


def a_whole_question(body: dict[str, Any], place: int) -> Answer:
    """Search, read the first hit, delete what was read, restore it, note, finish."""
    texts = [str(m.get("content")) for m in body["messages"]]
    last = texts[-1]
    if place == 0:
        return said("searchEngine", keyword="hidden word seventh hive")
    if place == 1:
        return said("readChunk", chunk_id=last[last.index("\nc") + 1 :].split(" ", 1)[0])
    if place == 2:
        return said("deleteContext", msg_id=last.split(" ", 1)[0])
    if place == 3:
        return said("note", key="hive", summary="word", content="xylograph")
    return said("finish", answer="xylograph")


def test_the_schemas_sent_name_what_is_there_and_nothing_else(workspace) -> None:
    with serving(a_whole_question) as served:
        bodies = ask(workspace, served, None, constrain=True)

    names = [[t["function"]["name"] for t in body["tools"]] for body in bodies]
    assert all(body["tool_choice"] == "required" for body in bodies)
    assert "readChunk" not in names[0] and "deleteContext" not in names[0]
    # after the search: the chunks it found, and its call and result can be deleted
    hits = re.findall(r"^c(\d+) · ", str(bodies[1]["messages"][-1]["content"]), re.M)
    assert field(bodies[1], "readChunk", "chunk_id")["enum"] == [f"c{hit}" for hit in hits]
    assert re.fullmatch(r"\^\(\?:m\d+\|m\d+\).*", field(bodies[1], "deleteContext", "msg_id")["pattern"])
    # after the read: its neighbours can be read, too, and its result deleted
    read = int(re.search(r"· c(\d+) ·", str(bodies[2]["messages"][-1]["content"]))[1])  # type: ignore[index]
    assert {f"c{read - 1}", f"c{read}", f"c{read + 1}"} & set(
        field(bodies[2], "readChunk", "chunk_id")["enum"]
    )
    gone = str(bodies[2]["messages"][-1]["content"]).split(" ", 1)[0]
    deletable = re.compile(field(bodies[2], "deleteContext", "msg_id")["pattern"])
    assert deletable.match(gone) and deletable.match(f"{gone},{gone}") and not deletable.match("m999")
    # after the deletion it can be restored, and no longer deleted
    assert not re.match(field(bodies[3], "deleteContext", "msg_id")["pattern"], gone)
    assert re.match(field(bodies[3], "restoreContext", "msg_id")["pattern"], gone)
    assert "readNote" not in names[3]
    # after the note it can be read
    assert field(bodies[4], "readNote", "key")["enum"] == ["hive"]


@pytest.mark.parametrize(("constrain", "choice"), [(None, "required"), (False, "auto")])
def test_unless_asked_the_tools_change_only_when_one_is_offered(
    workspace, constrain: bool | None, choice: str
) -> None:
    with serving(a_whole_question) as served:
        bodies = ask(workspace, served, None, constrain=constrain)

    assert all(body["tool_choice"] == choice for body in bodies)
    assert "enum" not in field(bodies[2], "readChunk", "chunk_id")
    assert bodies[1]["tools"] == bodies[2]["tools"], "a prompt cache holds"


def test_a_server_that_knows_no_required_calls_is_asked_without_and_only_once(workspace) -> None:
    def picky(body: dict[str, Any], place: int) -> Answer:
        if body.get("tool_choice") == "required":
            return Answer([b'{"error": {"message": "tool_choice required is not supported"}}'], 400)
        return a_whole_question(body, place - 1)

    with serving(picky) as served:
        bodies = ask(workspace, served, None)

    assert [body["tool_choice"] for body in bodies].count("required") == 1
    assert [body["tool_choice"] for body in bodies][1:] == ["auto"] * 5


def test_a_server_that_refuses_in_every_way_is_told_once_and_keeps_its_way(workspace) -> None:
    with serving([Answer([b'{"error": "the prompt is too long"}'], 400)]) as served:
        backend = OpenAI(Choice("openai", "m", served.url + "/v1"))
        prompt = Loop.over(workspace, "Q?", dialect("ours")).prompt()
        for _ in range(2):
            with pytest.raises(BackendError, match="too long"):
                backend.reply(prompt)

    assert [body["tool_choice"] for body in served.asked] == ["required", "auto"] * 2


OPENAI = "https://api.openai.com/v1"


def test_openai_itself_is_told_what_may_be_called_beside_schemas_that_never_change(workspace) -> None:
    with serving(a_whole_question) as served:
        backend = OpenAI(Choice("openai", "m", OPENAI), poster=Poster(served.url + "/v1", {}))
        Loop.over(workspace, "Which word is hidden in the seventh hive?", dialect("ours")).run(backend)
        backend.close()

    bodies = served.asked
    assert len(bodies) == 5 and all(body["tools"] == bodies[0]["tools"] for body in bodies)
    allowed = []
    for body in bodies:
        assert body["tool_choice"]["type"] == "allowed_tools" and body["parallel_tool_calls"] is False
        assert body["tool_choice"]["allowed_tools"]["mode"] == "required"
        allowed.append([t["function"]["name"] for t in body["tool_choice"]["allowed_tools"]["tools"]])
    assert "readChunk" not in allowed[0] and "readChunk" in allowed[1]
    assert "readNote" not in allowed[3] and "readNote" in allowed[4]
    assert set(allowed[4]) <= {t["function"]["name"] for t in bodies[0]["tools"]}
    strict_ones = [t["function"] for t in bodies[0]["tools"] if "strict" in t["function"]]
    assert len(strict_ones) >= len(bodies[0]["tools"]) - 1
    for function in strict_ones:
        everywhere(function["parameters"])


@pytest.mark.parametrize(("constrain", "ways"), [
    (None, ["allowed_tools", "required"]), (True, ["required", "required"]), (False, ["auto"]),
])  # fmt: skip
def test_openai_in_an_older_version_is_asked_with_less(
    workspace, constrain: bool | None, ways: list[str]
) -> None:
    """Azure, for one, may not know a list of allowed tools, nor strict schemas."""
    prompt = Loop.over(workspace, "Q?", dialect("ours")).prompt()

    def older(body: dict[str, Any], place: int) -> Answer:
        refused = isinstance(body["tool_choice"], dict) or any(
            "strict" in t["function"] for t in body["tools"]
        )
        return Answer([b'{"error": "unknown parameter"}'], 400) if refused else said("finish", answer="x")

    with serving(older) as served:
        choice = Choice("openai", "m", OPENAI, constrain=constrain)
        backend = OpenAI(choice, poster=Poster(served.url + "/v1", {}))
        for _ in range(2):
            assert backend.reply(prompt).calls[0].name == "finish"

    given = [one["tool_choice"] for one in served.asked]
    assert [one if isinstance(one, str) else one["type"] for one in given] == [*ways, ways[-1]]


def test_openai_is_bound_to_what_can_be_named_where_asked(workspace) -> None:
    loop = Loop.over(workspace, "Q?", dialect("ours"))
    loop.act(call("searchEngine", keyword="hidden word seventh hive"))
    with serving([said("finish", answer="x")]) as served:
        backend = OpenAI(Choice("openai", "m", OPENAI, constrain=True), poster=Poster(served.url + "/v1", {}))
        backend.reply(loop.prompt())

    (body,) = served.asked
    assert body["tool_choice"] == "required" and body["parallel_tool_calls"] is False
    assert field(body, "readChunk", "chunk_id")["enum"]
    for tool in body["tools"]:
        assert tool["function"]["strict"] is True, tool["function"]["name"]
        everywhere(tool["function"]["parameters"])


def everywhere(schema: dict[str, Any]) -> None:
    """What OpenAI wants of a strict schema."""
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False and set(schema["required"]) == set(
            schema["properties"]
        )
        for one in schema["properties"].values():
            everywhere(one)
    if "items" in schema:
        everywhere(schema["items"])
    assert not {"default", "minimum", "maximum", "maxLength"} & set(schema)


def test_arguments_that_are_null_count_as_left_out(workspace) -> None:
    loop = Loop.over(workspace, "Q?", dialect("ours"))
    result = loop.act(call("searchEngine", keyword="hive", queries=None, mode=None, scope=None, under=None, limit=None,
                           cursor=None))  # fmt: skip

    assert result is not None and not result.is_error, result


def test_a_tool_with_an_object_of_any_fields_cannot_be_strict() -> None:
    loose = {"type": "function", "function": {"name": "note", "description": "", "parameters": {
        "type": "object", "properties": {"content": {"type": "object"}}, "required": ["content"]}}}  # fmt: skip

    assert strict(loose) is loose


def test_anthropic_is_forced_only_where_asked(workspace) -> None:
    """A forced call has no thought before it, and changing tools cost the prompt cache."""
    loop = Loop.over(workspace, "Q?", dialect("ours"))
    loop.act(call("searchEngine", keyword="hidden word seventh hive"))
    prompt = loop.prompt()
    whole = events({"type": "message_start", "message": {"usage": {}}}, {"type": "message_stop"})
    with serving([Answer(whole)]) as served:
        for constrain in (None, True):
            Anthropic(Choice("anthropic", "m", served.url, constrain=constrain)).reply(prompt)

    free, forced = served.asked
    assert free["tool_choice"]["type"] == "auto" and forced["tool_choice"]["type"] == "any"

    def chunk_schema(body: dict[str, Any]) -> dict[str, Any]:
        return next(t for t in body["tools"] if t["name"] == "readChunk")["input_schema"]["properties"][
            "chunk_id"
        ]

    assert "enum" not in chunk_schema(free) and chunk_schema(forced)["enum"]


def test_the_published_dialect_names_the_ids_that_exist(workspace) -> None:
    loop = Loop.over(workspace, "Which word is hidden?", dialect("published"))
    loop.act(call("buildIndex"))
    loop.act(call("searchEngine", keyword="hive"))
    loop.act(call("deleteContext", msg_id=2))
    prompt = loop.prompt()

    def schema(tools: Any, name: str, argument: str) -> dict[str, Any]:
        return next(t for t in tools if t["function"]["name"] == name)["function"]["parameters"][
            "properties"
        ][argument]

    assert schema(prompt.narrowed, "deleteContext", "msg_id")["enum"] == [1, 3, 4, 5, 6]
    total = workspace.corpus.chunk_count(loop.conversation.chunk_set)
    assert schema(prompt.narrowed, "readChunk", "chunk_id")["maximum"] == total - 1
    assert schema(prompt.tools, "deleteContext", "msg_id") == {"type": "integer"}, (
        "the weights see the schema they know"
    )
    assert '"enum": [1, 3' not in prompt.text


# -- grammar -----------------------------------------------------------------------------------------------


def integers(most: int) -> set[int]:
    """What the grammar of 0 to `most` lets through, by its own text."""
    tool = {"function": {"name": "t", "parameters": {"properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": most}}, "required": ["n"]}}}  # fmt: skip
    rule = next(line for line in tool_call_grammar([tool]).splitlines() if line.startswith("a0x0 ::= "))
    body = rule[rule.index("(") + 1 : rule.rindex(")")]
    pattern = re.compile(
        "|".join(f"(?:{re.sub(chr(34), '', way).replace(' ', '')})" for way in body.split(" | "))
    )
    return {n for n in range(most * 3 + 20) if pattern.fullmatch(str(n))}


@pytest.mark.parametrize("most", [0, 3, 9, 10, 11, 57, 99, 100, 640, 1_999])
def test_whole_numbers_up_to_a_most_are_exactly_these(most: int) -> None:
    assert integers(most) == set(range(most + 1))


def test_the_grammar_lists_the_messages_that_can_be_deleted(workspace) -> None:
    loop = Loop.over(workspace, "Q?", dialect("ours"))
    loop.act(call("searchEngine", keyword="hive"))
    prompt = loop.prompt()
    rules = tool_call_grammar(prompt.narrowed)

    numbers = [e.message.number for e in loop.conversation.deletable()]
    (line,) = [one for one in rules.splitlines() if '"m' + str(numbers[0]) + '"' in one]
    assert " | ".join(f'"m{n}"' for n in numbers) in line and "string" not in line


# -- in this process -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    path = tiny.base(tmp_path_factory.mktemp("model") / "noise.gguf")
    backend = open_backend(Choice("local", str(path), options={"context_tokens": "2048"}))
    yield backend
    backend.close()


def test_an_edit_near_the_end_computes_only_what_follows_it(local: Any) -> None:
    """Every byte is a token of this model, so that the numbers are exact to a few."""
    beginning = "the question and the notes stand here. " * 12
    chunk, stub = "a long chunk that was read just now. " * 12, "[forgotten]"

    def reply(text: str) -> Any:
        return local.reply(Prompt((), text=text, max_output_tokens=2)).usage

    first = reply(beginning + chunk)
    edited = reply(beginning + stub + " next")
    appended = reply(beginning + stub + " next and more")
    other = reply("another question. " + beginning)

    assert first.prompt_tokens > edited.prompt_tokens > 300
    shared = first.prompt_tokens - edited.prompt_tokens
    assert edited.cached_tokens > 0.9 * (edited.prompt_tokens - len(stub) - 8), (edited, shared)
    assert appended.cached_tokens >= edited.prompt_tokens - 2
    assert other.cached_tokens < 20


def test_noise_writes_only_what_the_state_allows(local: Any, workspace) -> None:
    """The grammar is the narrowed schemas': weights of noise can name no message or chunk that is not there."""
    loop = Loop.over(workspace, "Q?", dialect("ours"))
    loop.act(call("searchEngine", keyword="hidden word seventh hive"))
    prompt = loop.prompt()
    wanted = [t for t in prompt.narrowed if t["function"]["name"] in ("readChunk", "deleteContext")]
    small = Prompt((), tuple(wanted), tuple(wanted), text="go", max_output_tokens=400)
    reply = local.reply(small)
    _, calls = loop.dialect.read(reply)

    if reply.cut:  # noise may think to its limit; then there is no call at all
        assert not calls
        return
    (one,) = calls
    assert one.name in ("readChunk", "deleteContext")
    if "chunk_id" in one.arguments:
        assert one.arguments["chunk_id"] in [f"c{c}" for c in loop.offer().found]
    if one.name == "deleteContext":
        live = {f"m{e.message.number}" for e in loop.conversation.deletable()}
        assert set(str(one.arguments["msg_id"]).split(",")) <= live


def test_a_question_without_tools_goes_through_the_models_own_template(local: Any) -> None:
    message = {"role": "user", "content": "the"}
    reply = local.reply(Prompt((message,), max_output_tokens=3))

    assert reply.usage.output_tokens <= 3 and reply.usage.prompt_tokens > 0

"""The tools as clients of both eras see them: names, schemas, results, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from inline_snapshot import external_file, snapshot
from mcp.client.client import Client

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])

NAMES = (
    "analyzeText", "checkBudget", "buildIndex", "searchEngine", "readChunk", "note", "updateNote", "readNote",
    "deleteContext", "restoreContext", "plan", "finish",
)  # fmt: skip
PREFIXES = (
    "mcp__pensieve__",
    "mcp__plugin_pensieve_pensieve__",
    "mcp__plugin_pensieve-statelm_pensieve__",
    "mcp_pensieve_",
    "pensieve_",
)
"""How hosts name our tools; over 64 characters one of them drops the whole session."""


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from nodes(inner)


async def tools_of(serve: Serve, mode: str = "auto", **options: bool) -> list[Any]:
    async with Client(serve(**options).server, mode=mode) as client:
        return list((await client.list_tools()).tools)


@eras
async def test_twelve_tools_in_the_order_of_the_work(serve: Serve, mode: str) -> None:
    """Our decision: fixed, since prompt caches hang on it."""
    assert tuple(tool.name for tool in await tools_of(serve, mode)) == NAMES


async def test_both_eras_list_the_same_tools(serve: Serve) -> None:
    older, newer = await tools_of(serve, "legacy"), await tools_of(serve, "auto")

    assert [tool.model_dump() for tool in older] == [tool.model_dump() for tool in newer]


async def test_schemas_and_annotations_stay_as_published(serve: Serve) -> None:
    published = [
        tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in await tools_of(serve)
    ]

    assert json.dumps(published, indent=1, ensure_ascii=False) + "\n" == external_file(
        "published_tools.json", format=".txt"
    )


async def test_every_tool_may_run_unattended(serve: Serve) -> None:
    """Codex runs a tool without asking if it is read-only, or neither destructive nor open-world."""
    for tool in await tools_of(serve):
        hints = tool.annotations
        assert hints.read_only_hint or (hints.destructive_hint is False and hints.open_world_hint is False), (
            tool.name
        )


@pytest.mark.parametrize("explicit", [False, True])
async def test_schemas_are_flat(serve: Serve, explicit: bool) -> None:
    """Complaint: references, unions and schemas without properties are refused by several hosts."""
    for tool in await tools_of(serve, explicit=explicit):
        assert tool.input_schema["type"] == "object" and "properties" in tool.input_schema
        for node in nodes(tool.input_schema):
            assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "not"} & set(node), tool.name
            assert not isinstance(node.get("type"), list), tool.name


async def test_names_fit_every_host(serve: Serve) -> None:
    for tool in await tools_of(serve):
        assert all(len(prefix + tool.name) <= 64 for prefix in PREFIXES)


async def test_a_result_is_text_with_the_typed_result_beside_it(serve: Serve) -> None:
    async with Client(serve().server) as client:
        await client.call_tool("note", {"key": "oil", "summary": "412 barrels", "content": "In 1911."})
        result = await client.call_tool("readNote", {"key": "oil"})

    assert (len(result.content), result.structured_content, result.is_error) == (1, None, False)
    assert result.content[0].text == snapshot("""\
m4 · note oil · revision 1 · 32 tokens · 29,855 left
412 barrels
In 1911.\
""")
    typed = dict(result.meta["pensieve/result"])
    assert typed.pop("observed_at").endswith("+00:00")
    assert typed == snapshot(
        {
            "key": "oil",
            "summary": "412 barrels",
            "full_content": "In 1911.",
            "revision": 1,
            "evidence": [],
            "notes": [],
            "next_cursor": None,
            "status": "active",
            "reason": "",
            "kind": "",
            "valid": "",
            "applies_to": "workspace",
            "strength": "a guess",
            "author": "mcp",
            "neighbours": [],
            "in_force": None,
        }
    )
    assert result.meta["pensieve/message"] == snapshot(
        {"msg_id": "m4", "invoking_msg_id": "m3", "tokens": 32}
    )


async def test_an_error_is_words_and_a_message_id_only(serve: Serve) -> None:
    """One host quotes a whole error result to the model, so nothing else may be in it."""
    async with Client(serve().server, mode="legacy") as client:
        result = await client.call_tool("readNote", {"key": "nowhere"})

    assert result.is_error and result.structured_content is None
    assert result.content[0].text == snapshot("""\
m2 · error · 44 tokens · 29,892 left
There is no note 'nowhere', and none with a similar key. readNote without key lists all.\
""")
    assert result.meta == snapshot(
        {"pensieve/message": {"msg_id": "m2", "invoking_msg_id": "m1", "tokens": 44}}
    )


@eras
async def test_an_unknown_tool_is_told_with_near_names(serve: Serve, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        result = await client.call_tool("searchEngin", {})

    assert result.is_error
    assert "Did you mean searchEngine" in result.content[0].text


@eras
async def test_wrong_types_name_the_argument_and_the_value(serve: Serve, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        result = await client.call_tool("searchEngine", {"keyword": "oil", "limit": "many"})

    assert result.is_error
    assert "limit is 'many'" in result.content[0].text


async def test_structured_answers_say_the_same_twice(serve: Serve) -> None:
    """Some hosts show the structure, some the text; what they show must not differ."""
    async with Client(serve(structured=True).server) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        await client.call_tool("note", {"key": "oil", "summary": "412", "content": "„Größe“"})
        result = await client.call_tool("readNote", {"key": "oil"})
        failed = await client.call_tool("readNote", {"key": "nowhere"})

    assert json.loads(result.content[0].text) == result.structured_content
    assert next(iter(result.structured_content)) == "handle" and result.structured_content[
        "handle"
    ].startswith("m4 · ")
    assert set(result.structured_content) <= set(tools["readNote"].output_schema["properties"])
    assert "„Größe“" in result.content[0].text
    assert failed.is_error and failed.structured_content is None


async def test_a_structured_answer_that_would_not_fit_is_given_as_text(serve: Serve) -> None:
    async with Client(serve(structured=True).server) as client:
        await client.list_tools()
        await client.call_tool(
            "note", {"key": "long", "summary": "s", "content": 'a "quoted" line\\n\n' * 600}
        )
        result = await client.call_tool("readNote", {"key": "long"})

    assert set(result.structured_content) == {"handle", "text"}
    assert json.loads(result.content[0].text) == result.structured_content
    assert 8_000 < len(result.content[0].text.encode()) <= 12_000


async def test_parallel_calls_each_have_their_own_message(serve: Serve) -> None:
    results = []
    async with Client(serve().server) as client:

        async def write(number: int) -> None:
            results.append(
                await client.call_tool("note", {"key": f"n{number}", "summary": "s", "content": "c"})
            )

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(write, number)
        listed = await client.call_tool("readNote", {})

    assert not any(result.is_error for result in results)
    assert len({result.meta["pensieve/message"]["msg_id"] for result in results}) == 12
    assert len(listed.meta["pensieve/result"]["notes"]) == 12


async def test_a_storm_of_notes_fits_one_answer(serve: Serve) -> None:
    """The safe size of one result is 12,000 bytes in every host."""
    async with Client(serve().server) as client:
        for number in range(60):
            await client.call_tool(
                "note", {"key": f"a rather long key, number {number}", "summary": "ü" * 300, "content": "c"}
            )
        for name in ("readNote", "checkBudget"):
            result = await client.call_tool(name, {})
            assert len(result.content[0].text.encode()) <= 12_000, name

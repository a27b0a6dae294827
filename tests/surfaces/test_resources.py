"""Resources, completion and prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from inline_snapshot import snapshot
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])
AWKWARD = "ключ / with ? # % and ü"


@eras
async def test_every_note_is_a_resource_whatever_its_key(serve: Serve, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        await client.call_tool("note", {"key": AWKWARD, "summary": "the summary", "content": "the content"})
        listed = {resource.name: resource for resource in (await client.list_resources()).resources}
        text = (await client.read_resource(listed[AWKWARD].uri)).contents[0].text

    assert {"notes", "documents", "episode"} <= set(listed)
    assert listed[AWKWARD].description == "the summary"
    assert text.splitlines()[0].startswith(AWKWARD) and "the content" in text


@eras
async def test_a_resource_that_is_none_is_told_in_words(serve: Serve, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        for uri in (
            "pensieve://nothing",
            "pensieve://notes/absent",
            "pensieve://chunks/99999",
            "file:///etc/passwd",
        ):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            assert raised.value.error.code == (-32602 if mode == "auto" else -32002), uri
            assert (
                raised.value.error.message.endswith((".", "all.")) and raised.value.error.data["uri"] == uri
            )


async def test_many_notes_are_listed_page_by_page(serve: Serve) -> None:
    async with Client(serve().server) as client:
        for number in range(120):
            await client.call_tool("note", {"key": f"n{number:03}", "summary": "s", "content": "c"})
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)

    names = [resource.name for page in (first, second) for resource in page.resources]
    assert second.next_cursor is None
    assert names == ["notes", "documents", "episode", "handoff", *(f"n{number:03}" for number in range(120))]


async def test_keys_of_notes_are_completed_as_the_address_needs_them(serve: Serve) -> None:
    async with Client(serve().server) as client:
        for key in ("oil 1911", "oil 1912", "door"):
            await client.call_tool("note", {"key": key, "summary": "s", "content": "c"})
        reference = ResourceTemplateReference(uri="pensieve://notes/{key}")
        found = (await client.complete(reference, {"name": "key", "value": "OIL"})).completion
        all_keys = (await client.complete(reference, {"name": "key", "value": ""})).completion

    assert (found.values, found.total, found.has_more) == (["oil%201911", "oil%201912"], 2, False)
    assert len(all_keys.values) == 3


async def test_templates_name_what_can_be_filled_in(serve: Serve) -> None:
    async with Client(serve().server) as client:
        templates = (await client.list_resource_templates()).resource_templates
    async with Client(serve(explicit=True).server) as client:
        explicit = (await client.list_resource_templates()).resource_templates

    assert [template.uri_template for template in templates] == [
        "pensieve://notes/{key}",
        "pensieve://chunks/{id}",
    ]
    assert [template.uri_template for template in explicit] == [
        *(t.uri_template for t in templates),
        "pensieve://episode/{episode}",
        "pensieve://handoff/{episode}",
    ]


async def test_the_episode_tells_budget_and_plan(serve: Serve) -> None:
    async with Client(serve().server) as client:
        await client.call_tool("plan", {"goal": "find the oil", "next": "search"})
        text = (await client.read_resource("pensieve://episode")).contents[0].text

    assert "of 32,000 tokens in mind" in text and "Goal: find the oil" in text and "Next: search" in text


@eras
async def test_prompts_hold_what_is_known_now(serve: Serve, mode: str) -> None:
    async with Client(serve().server, mode=mode) as client:
        await client.call_tool("note", {"key": "oil", "summary": "412 barrels", "content": "c"})
        await client.call_tool("plan", {"goal": "find the oil"})
        names = [
            (prompt.name, [a.name for a in prompt.arguments or []])
            for prompt in (await client.list_prompts()).prompts
        ]
        texts = {
            name: (await client.get_prompt(name, {"question": "How much oil?"} if arguments else None))
            .messages[0]
            .content.text
            for name, arguments in names
        }

    assert names == snapshot([("answer", ["question"]), ("handoff", []), ("review-notes", [])])
    assert texts["answer"].startswith("Answer this from the documents: How much oil?")
    assert "Goal: find the oil" in texts["handoff"]
    assert all("oil: 412 barrels" in text for text in texts.values())


async def test_a_prompt_without_its_argument_is_told(serve: Serve) -> None:
    async with Client(serve().server) as client:
        with pytest.raises(MCPError, match="needs question"):
            await client.get_prompt("answer", {"question": "  "})
        with pytest.raises(MCPError, match="There are answer, handoff, review-notes"):
            await client.get_prompt("anser")


async def test_braces_in_a_question_are_text(serve: Serve) -> None:
    async with Client(serve().server) as client:
        text = (
            (await client.get_prompt("answer", {"question": "What is {notes} {0}?"})).messages[0].content.text
        )

    assert "What is {notes} {0}?" in text


def test_no_part_of_the_instructions_is_ever_cut_off() -> None:
    """A head of full length, the words for HTTP and the method together keep the limit."""
    from pensieve_mcp.server.instructions import ALONE_CHARS, EXPLICIT, MAX_CHARS, METHOD

    assert ALONE_CHARS + 1 + len(EXPLICIT) + len(METHOD) <= MAX_CHARS


async def test_instructions_name_the_folders_and_stay_short(serve: Serve) -> None:
    async with Client(serve().server) as client:
        newer = client.instructions
    async with Client(serve().server, mode="legacy") as client:
        older = client.instructions

    assert newer == older and len(newer) < 2_000
    alone = newer[:250]
    assert "archive" in alone and "searchEngine" in alone
    assert newer.splitlines()[0] in alone


async def test_the_handoff_is_a_resource(serve: Serve) -> None:
    async with Client(serve().server) as client:
        await client.call_tool("plan", {"goal": "find the oil", "constraints": ["by Friday"]})
        await client.call_tool("note", {"key": "oil", "summary": "412 barrels", "content": "c"})
        text = (await client.read_resource("pensieve://handoff")).contents[0].text

    assert "Goal: find the oil" in text and "Constraint: by Friday" in text and "oil: 412 barrels" in text

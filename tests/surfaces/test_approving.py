"""Where `note_deletes` is `ask`, the host asks its user before a note goes; in both eras of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])
KEY = "oil/1911"


class Person:
    """Answers as the test wants, and keeps what was asked. `meanwhile` happens while the form is open."""

    def __init__(self, action: str, content: dict[str, Any] | None = None) -> None:
        self.answer = types.ElicitResult(action=action, content=content)  # type: ignore[arg-type]
        self.asked: list[types.ElicitRequestFormParams] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        self.meanwhile()
        return self.answer


def agrees() -> Person:
    return Person("accept", {"delete": True})


@pytest.fixture
def asking(serve: Serve, environment: dict[str, str]) -> Serve:
    environment["PENSIEVE_NOTE_DELETES"] = "ask"
    return serve


async def written(client: Client) -> None:
    done = await client.call_tool("note", {"key": KEY, "summary": "oil of 1911", "content": "412 barrels"})
    assert not done.is_error


async def delete(client: Client, **more: Any) -> types.CallToolResult:
    return await client.call_tool("updateNote", {"key": KEY, "mode": "delete", **more})


def said(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@eras
async def test_a_note_goes_when_the_person_agrees(asking: Serve, mode: Any) -> None:
    surface, person = asking(), agrees()
    async with Client(surface.server, mode=mode, elicitation_callback=person) as client:
        await written(client)
        done = await delete(client)
        notes = surface.opening.workspace().notebook
        assert not done.is_error and "Deleted" in said(done)
        assert notes.current(KEY).deleted and notes.read(KEY, revision=1).content == "412 barrels"
    assert len(person.asked) == 1
    assert KEY in person.asked[0].message and "oil of 1911" in person.asked[0].message


@eras
@pytest.mark.parametrize("person", [Person("decline"), Person("accept", {"delete": False}), Person("accept")])
async def test_a_note_stays_as_it_is_when_the_person_does_not(
    asking: Serve, mode: Any, person: Person
) -> None:
    surface = asking()
    async with Client(surface.server, mode=mode, elicitation_callback=person) as client:
        await written(client)
        done = await delete(client)
        assert done.is_error and "does not want" in said(done)
        note = surface.opening.workspace().notebook.current(KEY)
        assert (note.deleted, note.status, note.revision) == (False, "active", 1)


@eras
@pytest.mark.parametrize("person", [Person("cancel"), None])
async def test_without_an_answer_it_is_marked(asking: Serve, mode: Any, person: Person | None) -> None:
    surface = asking()
    async with Client(surface.server, mode=mode, elicitation_callback=person) as client:
        await written(client)
        done = await delete(client)
        assert not done.is_error and "Asked a person" in said(done)
        note = surface.opening.workspace().notebook.current(KEY)
        assert not note.deleted and note.status == "needs review"


@eras
async def test_an_answer_holds_for_the_revision_that_was_shown(asking: Serve, mode: Any) -> None:
    surface, person = asking(), agrees()
    async with Client(surface.server, mode=mode, elicitation_callback=person) as client:
        await written(client)
        notes = surface.opening.workspace().notebook
        person.meanwhile = lambda: (
            None
            if len(person.asked) > 1
            else (notes.update(KEY, "append", new_content="and 3 cans"), None)[1]
        )
        done = await delete(client)
        if mode == "legacy":  # the older request waits within the call, which then finds another revision
            assert done.is_error and "revision" in said(done)
            assert not notes.current(KEY).deleted
        else:  # the newer one is asked anew, with the note as it is now
            assert len(person.asked) == 2 and notes.current(KEY).deleted


@eras
async def test_nobody_is_asked_about_what_deletes_nothing(asking: Serve, mode: Any) -> None:
    person = agrees()
    async with Client(asking().server, mode=mode, elicitation_callback=person) as client:
        await written(client)
        missing = await client.call_tool("updateNote", {"key": "nosuch", "mode": "delete"})
        await client.call_tool("updateNote", {"key": KEY, "mode": "append", "new_content": "more"})
        await delete(client, key="")
        assert missing.is_error and person.asked == []


@eras
async def test_where_deleting_is_allowed_nobody_is_asked(serve: Serve, mode: Any) -> None:
    person = agrees()
    async with Client(serve().server, mode=mode, elicitation_callback=person) as client:
        await written(client)
        assert not (await delete(client)).is_error and person.asked == []


@eras
async def test_over_stdio_too(
    parameters: Callable[..., StdioServerParameters], mode: Any, tmp_path: Path
) -> None:
    person = agrees()
    started = parameters(PENSIEVE_NOTE_DELETES="ask")
    async with Client(stdio_client(started), mode=mode, elicitation_callback=person) as client:
        await written(client)
        assert not (await delete(client)).is_error and len(person.asked) == 1
        assert "deleted" in said(await client.call_tool("readNote", {"key": KEY})).lower()

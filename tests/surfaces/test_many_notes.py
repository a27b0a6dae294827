"""However many notes there are and however long: what is listed, read, prompted and completed keeps a result's size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_types import ResourceTemplateReference

from pensieve_mcp.server.opening import Opening
from pensieve_mcp.server.options import Options
from pensieve_mcp.server.surface import Surface
from pensieve_mcp.workspace import Workspace

pytestmark = pytest.mark.anyio

KEY = "灯台/ключ {0:05}"
SUMMARY = "Note {0}: the keeper of the light counted barrels of oil, the door was mended, the wind came from the west"
LONG = "The oil ran low. 灯台守は油を使った。 " * 15_000
KEYS = ResourceTemplateReference(uri="pensieve://notes/{key}")

Library = Callable[[int, int], Surface]


@pytest.fixture
def notebook(library: Path, environment: dict[str, str], request: pytest.FixtureRequest) -> Library:
    """A server over a notebook with so many notes, whose results may have so many bytes."""

    def make(notes: int, most: int) -> Surface:
        told = {**environment, "PENSIEVE_RESULT_BYTES": str(most)}
        workspace = Workspace.open([library], environment=told, builder="inline")
        request.addfinalizer(workspace.close)
        for number in range(notes):
            workspace.notebook.write(KEY.format(number), summary=SUMMARY.format(number), content="c")
        workspace.notebook.write("a long one", summary="s", content=LONG)
        workspace.build_now()
        return Surface(Opening(Options(folders=(str(library),)), lambda: workspace), {})

    return make


NUMBERS = [
    pytest.param(150, 1_000, id="a few, and hardly any room"),
    pytest.param(150, 12_000, id="a few"),
    pytest.param(10_000, 12_000, id="10,000", marks=pytest.mark.slow),
]
numbers = pytest.mark.parametrize(("notes", "most"), NUMBERS)


@numbers
async def test_everything_keeps_the_size_of_a_result(notebook: Library, notes: int, most: int) -> None:
    surface = notebook(notes, most)
    async with Client(surface.server, mode="legacy") as client:
        await client.call_tool(
            "plan", {"goal": "g" * 3_000, "constraints": ["c" * 300] * 20, "steps": ["s" * 300] * 20}
        )
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            sent = page.model_dump_json(by_alias=True, exclude_none=True).encode()
            assert len(sent) <= most + 500 or len(page.resources) <= 5, f"{len(sent):,} bytes"
            names += [resource.name for resource in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        told = {}
        for name in ("notes", "episode", "handoff", "documents", "notes/a%20long%20one", "chunks/1"):
            told[name] = (await client.read_resource(f"pensieve://{name}")).contents[0].text
        for name, arguments in (("answer", {"question": "why?"}), ("handoff", None), ("review-notes", None)):
            found = await client.get_prompt(name, arguments)
            told[f"prompt {name}"] = found.messages[0].content.text
        begun = (await client.complete(KEYS, {"name": "key", "value": KEY.format(notes - 1)[:-1]})).completion
        every = (await client.complete(KEYS, {"name": "key", "value": ""})).completion

    assert names == [
        "notes", "documents", "episode", "handoff", "a long one", *(KEY.format(number) for number in range(notes)),
    ]  # fmt: skip
    for name, text in told.items():
        allowed = most if not name.startswith("prompt") else max(most, 1_800)
        assert len(text.encode()) <= allowed, f"{name}: {len(text.encode()):,} bytes"
    assert "readNote reads on]" in told["notes/a%20long%20one"]
    assert begun.total == 10, "keys at the end of the list are found, too"
    assert every.total == notes + 1 and every.has_more
    assert 0 < sum(len(value) for value in every.values) <= most


async def test_what_the_user_wrote_is_never_cut(notebook: Library) -> None:
    question = "Which barrels? " * 2_000
    async with Client(notebook(3, 1_000).server) as client:
        text = (await client.get_prompt("answer", {"question": question})).messages[0].content.text

    assert question.strip() in text


async def test_a_cursor_that_no_answer_gave_is_no_harm(notebook: Library) -> None:
    """It is a key: the list goes on behind it, whatever it is."""
    async with Client(notebook(3, 12_000).server) as client:
        page: Any = await client.list_resources(cursor="\x00 nobody gave this")

    assert page.resources[0].name == "a long one"

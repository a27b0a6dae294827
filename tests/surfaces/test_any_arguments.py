"""Any arguments give a result or a worded error, within the size every host stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.client import Client

from pensieve_mcp.spellbook.registry import spellbook

Serve = Callable[..., Any]

TEXT = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["", "m1", "m2", "c1", "1", "3-5,12", "archive/light.md", "..", "/", "oil", "\x00"]),
)
NUMBER = st.one_of(st.integers(-3, 50), st.integers(), st.floats())
SCALAR = st.one_of(st.none(), st.booleans(), NUMBER, TEXT)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool's name and arguments: mostly its own, with values of any kind; now and then unknown ones."""
    name, spell = draw(st.sampled_from(list(spellbook().items())))
    known = list(spell.args.model_fields)
    arguments = draw(st.dictionaries(st.sampled_from([*known, *known, "unknown"]), VALUE, max_size=6))
    if name == "buildIndex":
        arguments.pop("paths", None)
    return name, arguments


@pytest.mark.anyio
@pytest.mark.parametrize("explicit", [False, True])
async def test_any_arguments_give_a_result_or_a_worded_error(serve: Serve, explicit: bool) -> None:
    """One server and one client through all examples, as a host keeps them, too."""
    async with Client(serve(explicit=explicit).server) as client:

        @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(calls())
        def answered(call: tuple[str, dict[str, Any]]) -> None:
            check(*call, anyio.from_thread.run(client.call_tool, *call))

        await anyio.to_thread.run_sync(answered)


def check(name: str, arguments: dict[str, Any], result: Any) -> None:
    text = result.content[0].text
    assert text.strip() and len(result.content) == 1
    if "max_bytes" not in arguments:
        assert len(text.encode("utf-8", "surrogatepass")) <= 12_000
    if result.is_error:
        assert set(result.meta) <= {
            "pensieve/message",
            "pensieve/episode",
            "io.modelcontextprotocol/serverInfo",
        }
        assert "failed inside" not in text, text
        assert text.rstrip()[-1] in ".?!)…", text
    else:
        assert result.meta["pensieve/result"]

"""Any tool arguments give a result or a worded error, within the size a host takes (issue: bad input)."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pensieve_mcp.episode import Episode
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.spellbook.registry import spellbook

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=True)
    | st.text(max_size=40)
    | st.sampled_from(
        ["m1", "1-5", "c1", "docs", "docs/guide.md", "h7f3a", "m2.1", "\ud800", "a\x00b", '["x"]', "{"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*spellbook(), "nonsense", "", "readchunk"])
ARGUMENTS = st.sampled_from(
    sorted({field for one in spellbook().values() for field in one.args.model_fields})
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, arguments=st.dictionaries(ARGUMENTS | st.text(max_size=6), VALUES, max_size=4))
def test_any_arguments_are_answered(episode: Episode, name: str, arguments: dict[str, object]) -> None:
    result = cast(episode, name, arguments)
    assert result.slug != "internal", (name, arguments, result.text)
    assert result.text.startswith("m")
    if "max_bytes" not in arguments:
        assert len(result.text.encode("utf-8", "surrogatepass")) <= 12_000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(min_size=1, max_size=200), mode=st.sampled_from(["hybrid", "lexical", "dense", "exact"]))
def test_any_query_is_answered(episode: Episode, query: str, mode: str) -> None:
    result = cast(episode, "searchEngine", {"keyword": query, "mode": mode})
    assert not result.is_error or result.slug == "empty_query", result.text


def test_a_query_of_a_hundred_thousand_characters_is_answered(
    spell: Callable[..., object], episode: Episode
) -> None:
    for text in ("word " * 20_000, "?!,.;" * 20_000, "蜂" * 100_000):
        assert not cast(episode, "searchEngine", {"keyword": text}).is_error

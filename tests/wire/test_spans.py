"""Values are found to the byte, whatever is between them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.wire.spans import (
    Edit,
    Unreadable,
    decoded,
    elements,
    encoded,
    members,
    places_in_string,
    skip,
    splice,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)
BLANK = st.text(alphabet=" \t\n\r", max_size=3)


def written(value: Any, blank: str, ascii_only: bool) -> str:
    """JSON with odd white space around everything."""
    if isinstance(value, list):
        return (
            "[" + blank + f"{blank},{blank}".join(written(v, blank, ascii_only) for v in value) + blank + "]"
        )
    if isinstance(value, dict):
        pairs = (
            f"{json.dumps(k, ensure_ascii=ascii_only)}{blank}:{blank}{written(v, blank, ascii_only)}"
            for k, v in value.items()
        )
        return "{" + blank + f"{blank},{blank}".join(pairs) + blank + "}"
    return json.dumps(value, ensure_ascii=ascii_only)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=5), BLANK, st.booleans())
def test_members_stand_where_they_are_found(value: dict[str, Any], blank: str, ascii_only: bool) -> None:
    raw = written(value, blank, ascii_only).encode("utf-8", "surrogatepass")
    found, end = members(raw.decode("latin-1"), 0)

    assert end == len(raw) and list(found) == list(value)
    for key, (start, stop) in found.items():
        assert raw[start:stop] == written(value[key], blank, ascii_only).encode("utf-8", "surrogatepass")


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=5), BLANK)
def test_members_stand_where_they_are_found_when_lists_are_read_on_the_way(
    value: dict[str, Any], blank: str
) -> None:
    text = written(value, blank, True)
    seen: list[int] = []

    def reader(start: int) -> int:
        seen.append(start)
        return elements(text, start)[1]

    assert members(text, 0, dict.fromkeys(value, reader)) == members(text, 0)
    assert seen == [start for start, _ in members(text, 0)[0].values() if text[start] == "["]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=6), BLANK)
def test_elements_stand_where_they_are_found(value: list[Any], blank: str) -> None:
    raw = written(value, blank, False).encode("utf-8", "surrogatepass")
    found, end = elements(raw.decode("latin-1"), 0)

    assert end == len(raw)
    assert [raw[a:b] for a, b in found] == [
        written(v, blank, False).encode("utf-8", "surrogatepass") for v in value
    ]


@given(st.text(max_size=80), st.data(), st.booleans())
def test_a_character_of_a_string_is_found_under_its_escapes(
    text: str, data: st.DataObject, ascii_only: bool
) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    text = decoded(raw)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    places = places_in_string(raw, cuts)

    assert [decoded(raw[:place] + b'"') for place in places] == [text[:cut] for cut in cuts]


@given(st.binary(max_size=60), st.data())
def test_splicing_changes_the_named_places_only(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=4, max_size=4, unique=False)))
    edits = [Edit(cuts[0], cuts[1], b"one"), Edit(cuts[2], cuts[3], b"two")]
    expected = body[: cuts[0]] + b"one" + body[cuts[1] : cuts[2]] + b"two" + body[cuts[3] :]
    if cuts[0] == cuts[2]:  # two edits of one place have no order of their own
        return

    assert splice(body, reversed(edits)) == expected
    assert splice(body, []) is body


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        splice(b"abcdef", [Edit(0, 3, b""), Edit(2, 4, b"")])


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    found, _ = members('{"a": 1, "a": 22}', 0)
    assert found["a"] == (14, 16)


@pytest.mark.parametrize(
    "text", ['{"a": ', '{"a" 1}', '["x', "[1 2]", '{"a": 1', "{1: 2}", "[,]", "", '{"a": "\\']
)
def test_what_is_cut_off_or_wrong_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        (members if text.startswith("{") else elements)(text, 0)


def test_depth_and_digits_are_no_obstacle() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert skip(deep, 0) == len(deep)
    assert skip("[" + "7" * 10_000 + "]", 0) == 10_002
    with pytest.raises(Unreadable):
        skip("[" * 100_000, 0)


@given(st.text())
def test_what_we_write_is_ascii_and_means_the_same(text: str) -> None:
    assert encoded(text).isascii() and json.loads(encoded(text)) == text

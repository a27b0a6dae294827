"""Foreign configuration files survive: only our entry comes and goes, comments and form stay."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.hosts.editing import NOTATIONS, entry, with_entry, with_item, without_entry, without_item
from pensieve_mcp.hosts.errors import NotUnderstood

JSON, TOML, YAML = NOTATIONS["json"], NOTATIONS["toml"], NOTATIONS["yaml"]
OURS = {"command": "/opt/a b/pensieve-mcp", "args": ['/data/"quoted" 100%/Größe 灯台']}
JSON_PATH, TOML_PATH, YAML_PATH = (
    ("mcpServers", "pensieve"),
    ("mcp_servers", "pensieve"),
    ("extensions", "pensieve"),
)
GOOSE = {
    "type": "stdio",
    "enabled": True,
    "cmd": "pensieve-mcp",
    "args": ["/a b", "'x': #"],
    "envs": {},
    "timeout": 60,
}

COMMENTED = """{
  // servers of mine
  "mcpServers": {
    "other": { "command": "x" }, // first
    /* second */
    "third": { "command": "y", "args": [1, 2,], } // keep me
    // and me
  },
  "theme": "dark", // no change
}
"""
JSONS = [
    "", "\n", "{}", "{}\n", "{\n}\n", "// only a comment\n", '{"mcpServers":{}}', '{"mcpServers": null}',
    '{"a":1}', '{ "mcpServers": {"o":{"command":"x"}}, "b": [1] }', COMMENTED, COMMENTED.replace("\n", "\r\n"),
    COMMENTED.replace("  ", "\t"), '{\n    "a": {\n        "b": 1\n    }\n}', '{\n  "mcpServers": {\n  }\n}\n',
    '{\n  "mcpServers": { /* none */ }\n}\n', '{"a": "// no comment \\" {", "mcpServers": {"u": {}}}',
]  # fmt: skip
TOMLS = [
    "", "model = \"x\"",
    "# hi\nmodel = 'x' # why\n\n[mcp_servers.other]\ncommand = \"a\" # b\n"
    "args = [\n  \"c\", # d\n]\n",
    'text = """\n[mcp_servers.pensieve]\ncommand = "no"\n"""\n[a]\nb = 1\n\n# trailing\n',
    "[[list]]\nx = 1\n[[list]]\nx = 2\n[mcp_servers]\n[mcp_servers.'o t']\ncommand = 'y'\n",
    "mcp_servers.other.command = 'x'\n[z]\n", "a = 1\r\n\r\n[b]\r\nc = 2\r\n", "x = {a = '[', b = \"]\"}\n[t] # c\n",
]  # fmt: skip
YAMLS = [
    "", "# goose\nGOOSE_MODEL: m\n", "extensions: {}\n", "extensions:\n", "extensions: # mine\nGOOSE_MODEL: m\n",
    "GOOSE_PROVIDER: x\nextensions:\n  developer:\n    enabled: true\n    args:\n    - a\n    - b\n    # about\n\n"
    "  memory:\n    enabled: false\n    text: |\n      a: b\n       c\n# end\nlist:\n- 1\n- 2\n",
    "extensions:\n    wide:\n        enabled: true\nlast: 1", "---\r\nextensions:\r\n  a:\r\n    b: 1\r\n",
]  # fmt: skip


def cases() -> list[Any]:
    found = []
    for notation, path, ours, texts in (
        (JSON, JSON_PATH, OURS, JSONS),
        (TOML, TOML_PATH, OURS, TOMLS),
        (YAML, YAML_PATH, GOOSE, YAMLS),
    ):
        found += [
            pytest.param(notation, path, ours, text, id=f"{notation.name}-{n}")
            for n, text in enumerate(texts)
        ]
    return found


def parsed(notation: Any, text: str) -> Any:
    if notation is TOML:
        return tomllib.loads(text)
    if notation is YAML:
        return pytest.importorskip("yaml").safe_load(text)
    return notation.read(text)


@pytest.mark.parametrize(("notation", "path", "ours", "text"), cases())
def test_an_entry_comes_and_goes_and_leaves_the_rest(notation: Any, path: Any, ours: Any, text: str) -> None:
    added = with_entry(notation, text, path, ours)

    assert entry(notation, added, path) == ours
    assert parsed(notation, added)[path[0]][path[1]] == ours
    assert with_entry(notation, added, path, ours) == added, "a second time changes nothing"
    here = iter(re.findall(r"\w+", added))
    for word in re.findall(r"\w+", text.replace("null", "")):
        assert word in here, "every word of the file, comments too, in its order"

    gone = without_entry(notation, added, path)
    assert entry(notation, gone, path) is None
    assert without_entry(notation, gone, path) == gone
    had = entry(notation, text, path[:1]) if path[0] in text else None
    if had:
        assert gone.rstrip() == text.rstrip(), "where others are, the file is as before to the letter"


@pytest.mark.parametrize(("notation", "path", "ours", "text"), cases())
def test_a_changed_entry_leaves_the_rest(notation: Any, path: Any, ours: Any, text: str) -> None:
    added = with_entry(notation, text, path, ours)
    key = "command" if "command" in ours else "cmd"
    other = {**ours, key: "/other", "args": ["1", "2"], "timeout": 5}
    changed = with_entry(notation, added, path, other)

    assert entry(notation, changed, path) == other
    assert without_entry(notation, changed, path) == without_entry(notation, added, path)


def test_comments_inside_a_toml_entry_of_ours_survive_an_update() -> None:
    text = "[mcp_servers.pensieve]\n# why\ncommand = 'a' # here\nargs = []\n\n[z]\ny = 1\n"
    changed = with_entry(TOML, text, TOML_PATH, {"command": "b", "args": ["c"], "required": True})

    assert changed == (
        '[mcp_servers.pensieve]\n# why\ncommand = "b" # here\nargs = ["c"]\nrequired = true\n\n[z]\ny = 1\n'
    )


def test_tables_under_a_toml_entry_go_with_it() -> None:
    text = (
        "[a]\nb = 1\n[mcp_servers.pensieve]\ncommand = 'a'\n[mcp_servers.pensieve.env]\nX = 'y'\n[c]\nd = 1\n"
    )

    assert without_entry(TOML, text, TOML_PATH) == "[a]\nb = 1\n[c]\nd = 1\n"


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (JSON, "{'a': 1}"), (JSON, "{a: 1}"), (JSON, "[]"), (JSON, '{"a": 1'), (JSON, '{"a" 1}'), (JSON, "{} {}"),
        (JSON, '{"mcpServers": []}'), (JSON, '{"mcpServers": {}, "mcpServers": {}}'), (JSON, '{"a": "\n"}'),
        (JSON, "[" * 5_000), (JSON, '{"a":' * 5_000), (JSON, '{"a": NaN}'), (JSON, '{"a": 01}'), (JSON, "\0"),
        (TOML, "a = "), (TOML, "mcp_servers = {}\n"), (TOML, "mcp_servers = 1\n"), (TOML, "[a]\n[a]\n"),
        (TOML, "<html>"),
        (YAML, "extensions: &x\n  a: 1\n"), (YAML, "extensions: {a: {b: 1}}\n"), (YAML, "extensions:\n- a\n"),
        (YAML, "extensions:\n\ta: 1\n"), (YAML, "{a: 1}"), (YAML, "a: 1\n---\nb: 2\n"), (YAML, "a: 1\na: 2\n"),
        (YAML, "extensions: text\n"), (YAML, "just text\n"), (YAML, "a: 1\x0bextensions:\n  b: 1\n"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(notation: Any, text: str) -> None:
    path = {"JSON": JSON_PATH, "TOML": TOML_PATH, "YAML": YAML_PATH}[notation.name]
    with pytest.raises(NotUnderstood) as refused:
        with_entry(notation, text, path, OURS)

    assert refused.value.message and refused.value.hint


def test_an_error_names_the_line() -> None:
    with pytest.raises(NotUnderstood, match="Line 3 "):
        JSON.read('{\n  "a": 1,\n  b: 2\n}')


RULES = """{
  "permissions": {
    "allow": [
      "Bash(ls:*)", // list
      "x"
    ],
    "deny": []
  }
}
"""


@pytest.mark.parametrize("text", ["", "{}", COMMENTED, '{"permissions": {"allow": ["a"]}}', RULES])
def test_a_rule_comes_and_goes(text: str) -> None:
    path = ("permissions", "allow")
    added = with_item(JSON, text, path, "mcp__pensieve")

    assert entry(JSON, added, path)[-1] == "mcp__pensieve"
    assert with_item(JSON, added, path, "mcp__pensieve") == added
    gone = without_item(JSON, added, path, "mcp__pensieve")
    assert "mcp__pensieve" not in gone
    if "permissions" in text:
        assert gone == text


def test_a_rule_does_not_land_in_something_else() -> None:
    with pytest.raises(NotUnderstood):
        with_item(JSON, '{"permissions": {"allow": "all"}}', ("permissions", "allow"), "x")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), values, max_size=4), st.sampled_from([None, 1, 2, "\t"]))
def test_any_json_keeps_its_data(data: dict[str, Any], indent: Any) -> None:
    data.pop("mcpServers", None)
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    added = with_entry(JSON, text, JSON_PATH, OURS)

    assert json.loads(added) == {**data, "mcpServers": {"pensieve": OURS}}
    assert json.loads(without_entry(JSON, added, JSON_PATH)) == {**data, "mcpServers": {}}


@given(st.text(alphabet='{}[]":,/*\\ \n\ta1-', max_size=30))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for notation, path in ((JSON, JSON_PATH), (TOML, TOML_PATH), (YAML, YAML_PATH)):
        try:
            added = with_entry(notation, text, path, OURS)
        except NotUnderstood:
            continue
        assert entry(notation, added, path) == OURS


@given(st.text(max_size=20))
def test_any_path_can_be_written(folder: str) -> None:
    for notation, path in ((JSON, JSON_PATH), (TOML, TOML_PATH), (YAML, YAML_PATH)):
        value = {"command": "c", "args": [folder]}
        assert parsed(notation, with_entry(notation, "", path, value))[path[0]][path[1]] == value

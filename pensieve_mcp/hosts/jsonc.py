"""JSON with comments, edited in place: a member is put in or taken out, every other character stays.

The standard library reads neither comments nor spans, so a small scanner of our own finds both. It takes what the hosts
take: comments, trailing commas, an empty file. Anything else (single quotes, bare keys, doubled keys on our way) is
refused. Whether an edit did only what it should is checked by `editing.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pensieve_mcp.hosts.errors import NotUnderstood

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.S)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_BARE = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
MOST_NESTED = 200


@dataclass(slots=True)
class Node:
    """A value and where it stands, in characters. `members` of an object, `items` of an array."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    key: str
    start: int
    """Where its key begins."""
    node: Node


class Jsonc:
    """The notation of most hosts."""

    name = "JSON"

    def read(self, text: str) -> dict[str, Any]:
        """The file's data; an empty file is an empty object. Raises NotUnderstood."""
        node = _scan(text)
        return node.value if node else {}

    def put(self, text: str, path: tuple[str, ...], value: Any) -> str:
        """The text with the member at this path set. Raises NotUnderstood."""
        root = _scan(text)
        if root is None:
            return _with_root(text, _nested(path, value))
        here, depth = root, 0
        while True:
            found = _member(here, path[depth])
            if found is None or (found.node.value is None and depth + 1 < len(path)):
                break
            depth += 1
            if depth == len(path):
                return _replaced(text, found.node, value)
            here = found.node
            _expect_object(here, path[:depth], text)
        rest = _nested(path[depth + 1 :], value)
        return _replaced(text, found.node, rest) if found else _inserted(text, here, path[depth], rest)

    def drop(self, text: str, path: tuple[str, ...]) -> str:
        """The text without the member at this path; the same text if there is none. Raises NotUnderstood."""
        here = _scan(text)
        for depth, key in enumerate(path[:-1]):
            found = _member(here, key) if here else None
            if found is None or found.node.value is None:
                return text
            here = found.node
            _expect_object(here, path[: depth + 1], text)
        if here is None or (found := _member(here, path[-1])) is None:
            return text
        place = here.members.index(found)
        return _without(
            text,
            (found.start, found.node.end),
            here.members[place - 1].node.end if place else None,
        )

    def append(self, text: str, path: tuple[str, ...], item: Any) -> str:
        """The text with an item at the end of the list at this path, unless it is there. Raises NotUnderstood."""
        there = _at(self.read(text), path)
        if there is None:
            return self.put(text, path, [item])
        if not isinstance(there, list):
            raise NotUnderstood(
                f"{'.'.join(path)} is {json.dumps(there)[:80]}, not a list.",
                hint="Correct it by hand and try again.",
            )
        if item in there:
            return text
        node = _walk(text, path)
        return _added(
            text, node, [one.end for one in node.items], lambda indent: json.dumps(item, ensure_ascii=False)
        )

    def take(self, text: str, path: tuple[str, ...], item: Any) -> str:
        """The text without an item of the list at this path; the same text if it is not there."""
        there = _at(self.read(text), path)
        if not isinstance(there, list) or item not in there:
            return text
        items = _walk(text, path).items
        place = there.index(item)
        return _without(text, (items[place].start, items[place].end), items[place - 1].end if place else None)


# -- reading -----------------------------------------------------------------------------------------------------------


def _scan(text: str) -> Node | None:
    scanner = _Scanner(text)
    start = scanner.blank(0)
    if start == len(text):
        return None
    node = scanner.value(start, 0)
    if (rest := scanner.blank(node.end)) != len(text):
        raise scanner.wrong(rest, "the end of the file")
    if not isinstance(node.value, dict):
        raise NotUnderstood("The file holds no JSON object.", hint="Correct it by hand, or move it away.")
    return node


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text

    def blank(self, at: int) -> int:
        """The next character that is neither white space nor in a comment."""
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def wrong(self, at: int, wanted: str) -> NotUnderstood:
        line = self.text.count("\n", 0, at) + 1
        found = repr(self.text[at : at + 12]) if at < len(self.text) else "the end of the file"
        return NotUnderstood(
            f"Line {line} is not JSON: {found} stands where {wanted} should.",
            hint="Correct that line, or add the entry by hand: the same command with --print shows it.",
        )

    def value(self, at: int, depth: int) -> Node:
        if depth > MOST_NESTED:
            raise self.wrong(at, f"no more than {MOST_NESTED} levels of nesting")
        mark = self.text[at : at + 1]
        if mark == "{":
            return self.object(at, depth)
        if mark == "[":
            return self.array(at, depth)
        match = (_STRING if mark == '"' else _BARE).match(self.text, at)
        if match is None:
            raise self.wrong(at, "a value")
        try:
            return Node(at, match.end(), json.loads(match[0]))
        except ValueError as error:
            raise self.wrong(at, "a value") from error

    def object(self, at: int, depth: int) -> Node:
        node, here = Node(at, at, {}), self.blank(at + 1)
        while self.text[here : here + 1] != "}":
            match = _STRING.match(self.text, here)
            if match is None:
                raise self.wrong(here, "a key in double quotes or }")
            colon = self.blank(match.end())
            if self.text[colon : colon + 1] != ":":
                raise self.wrong(colon, "a colon")
            try:
                key = json.loads(match[0])
            except ValueError as error:
                raise self.wrong(here, "a key") from error
            inner = self.value(self.blank(colon + 1), depth + 1)
            node.members.append(Member(key, here, inner))
            node.value[key] = inner.value
            here = self.next(inner.end, "}")
        node.end = here + 1
        return node

    def array(self, at: int, depth: int) -> Node:
        node, here = Node(at, at, []), self.blank(at + 1)
        while self.text[here : here + 1] != "]":
            inner = self.value(here, depth + 1)
            node.items.append(inner)
            node.value.append(inner.value)
            here = self.next(inner.end, "]")
        node.end = here + 1
        return node

    def next(self, at: int, closing: str) -> int:
        here = self.blank(at)
        if self.text[here : here + 1] == ",":
            return self.blank(here + 1)
        if self.text[here : here + 1] != closing:
            raise self.wrong(here, f"a comma or {closing}")
        return here


def _member(node: Node, key: str) -> Member | None:
    found = [member for member in node.members if member.key == key]
    if len(found) > 1:
        raise NotUnderstood(f"The key {key!r} stands there {len(found)} times.", hint="Keep one of them.")
    return found[0] if found else None


def _expect_object(node: Node, path: tuple[str, ...], text: str) -> None:
    if not isinstance(node.value, dict):
        raise NotUnderstood(
            f"{'.'.join(path)} is {text[node.start : node.end][:80]}, not an object.",
            hint="Correct it by hand and try again.",
        )


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(data, dict):
            raise NotUnderstood(f"{key!r} is inside something that is no object.", hint="Correct it by hand.")
        data = data.get(key)
        if data is None:
            return None
    return data


def _walk(text: str, path: tuple[str, ...]) -> Node:
    node = _scan(text)
    for key in path:
        member = _member(node, key) if node else None
        assert member is not None
        node = member.node
    assert node is not None
    return node


# -- writing -----------------------------------------------------------------------------------------------------------


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """One level of indentation, as the file does it; two spaces where it does not."""
    match = re.search(r"^([ \t]+)\S", text, re.M)
    return (
        "\t" if match and match[1].startswith("\t") else (match[1] if match and len(match[1]) <= 8 else "  ")
    )


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _one_line(text: str) -> bool:
    return bool(text.strip()) and "\n" not in text.strip()


def _rendered(text: str, value: Any, indent: str) -> str:
    if _one_line(text):
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_newline(text) + indent).join(lines)


def _with_root(text: str, value: Any) -> str:
    gap = "" if not text.strip() else text.rstrip() + _newline(text)
    return gap + _rendered("", value, "").replace("\n", _newline(text)) + _newline(text)


def _replaced(text: str, node: Node, value: Any) -> str:
    return text[: node.start] + _rendered(text, value, _line_indent(text, node.start)) + text[node.end :]


def _inserted(text: str, node: Node, key: str, value: Any) -> str:
    name = json.dumps(key, ensure_ascii=False)
    ends = [member.node.end for member in node.members]
    return _added(text, node, ends, lambda indent: f"{name}: {_rendered(text, value, indent)}")


def _added(text: str, node: Node, ends: list[int], render: Callable[[str], str]) -> str:
    """A new last member or item, after whatever comment follows the last one."""
    closing = node.end - 1
    tail = ends[-1] if ends else node.start + 1
    comma = ""
    if ends:
        after = _Scanner(text).blank(tail)
        if text[after] == ",":
            tail = after + 1
        else:
            comma = ","
    kept = text[tail:closing].rstrip()  # comments between the last one and the bracket
    before, rest = text[:tail] + comma + kept, text[closing:]
    if _one_line(text):
        return before + (" " if ends else "") + render("") + rest
    if ends:
        first = node.members[0].start if node.members else node.items[0].start
        own = text[text.rfind("\n", 0, first) + 1 : first]
        indent = own if not own.strip(" \t") else _line_indent(text, node.start) + _unit(text)
    else:
        indent = _line_indent(text, node.start) + _unit(text)
    newline = _newline(text)
    gap = text[len(text[:tail]) + len(kept) : closing] if "\n" in text[tail + len(kept) : closing] else None
    ending = gap if ends and gap is not None else newline + _line_indent(text, node.start)
    return before + newline + indent + render(indent) + ending + rest


def _without(text: str, span: tuple[int, int], previous_end: int | None) -> str:
    start, end = span
    after = _Scanner(text).blank(end)
    cuts = []
    if text[after] == ",":
        cuts.append((after, after + 1))
    elif previous_end is not None:
        comma = _Scanner(text).blank(previous_end)
        cuts.append((comma, comma + 1))
    cuts.append((start, end))
    # A line that held nothing but what is cut goes with it.
    line = text.rfind("\n", 0, start) + 1
    last = max(cut[1] for cut in cuts if cut[0] >= start)
    stop = re.compile(r"[ \t]*\r?\n").match(text, last)
    if last > end and text[end : last - 1].strip():
        stop = None  # a comment stands between the value and its comma
    if stop and not text[line:start].strip():
        cuts.append((line, stop.end()))
    elif (gap := re.compile(r"[ \t]+").match(text, last)) and last > end:
        cuts.append((last, gap.end()))
    elif last == end and previous_end is not None and not text[previous_end:start].replace(",", "").strip():
        cuts.append((previous_end, start))
    kept, here = [], 0
    for first, stop_at in sorted(cuts):
        kept.append(text[here : max(here, first)])
        here = max(here, stop_at)
    return "".join(kept) + text[here:]

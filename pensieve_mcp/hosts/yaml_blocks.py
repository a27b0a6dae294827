"""YAML edited in place, as much of it as Goose's configuration needs: one block under `extensions`.

The standard library has no YAML, and a whole library for one host is too much. The file is taken apart by its
indentation: top-level keys, and below ours the entries. That is sure only for plain block style, so tabs, anchors, flow
style on our way, several documents and lines that are no key are refused. What is written is in double quotes as JSON
does it, which YAML reads alike.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pensieve_mcp.hosts.errors import NotUnderstood

_KEY = re.compile(
    r"""(?P<indent> *)(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[\w][^\s:#'"{}\[\],&*!|>%@`]*) *:(?= |$)(?P<rest>.*)"""
)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # JSON holds them bare, YAML must not
_EMPTY = re.compile(r" *(\{ *\}|null|~)? *(#.*)?$")


@dataclass(frozen=True, slots=True)
class Block:
    """A key and the lines that belong to it: `lines[start:end]`, without the blank lines and comments that follow."""

    key: str
    start: int
    end: int
    rest: str


class Yaml:
    """The notation of Goose. Paths have two steps: `extensions` and a name."""

    name = "YAML"

    def read(self, text: str) -> dict[str, Any]:
        """The entries under the top-level keys that have any in block style. Raises NotUnderstood."""
        lines = _lines(text)
        data: dict[str, Any] = {}
        for top in _blocks(lines, 0, len(lines), 0):
            if top.key == "extensions":
                data[top.key] = {one.key: _value(lines, one) for one in _children(lines, top)}
        return data

    def put(self, text: str, path: tuple[str, ...], value: dict[str, Any]) -> str:
        """The text with the entry at this path set. Raises NotUnderstood."""
        section, name = path
        lines = _lines(text)
        newline = "\r\n" if "\r\n" in text else "\n"
        tops = [top for top in _blocks(lines, 0, len(lines), 0) if top.key == section]
        if not tops:
            before = "".join(lines)
            if before and not before.endswith("\n"):
                before += newline
            return before + f"{section}:{newline}" + _written(name, value, "  ", newline)
        top = tops[0]
        children = _children(lines, top)
        indent = _indent(lines[children[0].start]) if children else "  "
        new = _written(name, value, indent, newline)
        same = [one for one in children if one.key == name]
        if same:
            return "".join([*lines[: same[0].start], new, *lines[same[0].end :]])
        head = lines[top.start]
        if not children and (match := _EMPTY.match(top.rest.rstrip("\r\n"))) and match[1]:
            head = head.replace(match[1], "", 1)
            head = head.rstrip() + newline
        end = children[-1].end if children else top.start + 1
        body = [head, *lines[top.start + 1 : end]]
        if not body[-1].endswith("\n"):
            body[-1] += newline
        return "".join([*lines[: top.start], *body, new, *lines[end:]])

    def drop(self, text: str, path: tuple[str, ...]) -> str:
        """The text without the entry at this path; an emptied section becomes `{}`. Raises NotUnderstood."""
        section, name = path
        lines = _lines(text)
        for top in _blocks(lines, 0, len(lines), 0):
            if top.key != section:
                continue
            children = _children(lines, top)
            same = [one for one in children if one.key == name]
            if not same:
                return text
            head = lines[top.start]
            if len(children) == 1 and "{" not in head:
                bare = head.rstrip("\r\n")
                colon = bare.index(":", len(_indent(bare)) + len(section))
                head = bare[: colon + 1] + " {}" + bare[colon + 1 :] + head[len(bare) :]
            return "".join(
                [*lines[: top.start], head, *lines[top.start + 1 : same[0].start], *lines[same[0].end :]]
            )
        return text

    def append(self, text: str, path: tuple[str, ...], item: Any) -> str:
        raise NotUnderstood("Lists in YAML are not added to.", hint="Add it by hand.")

    def take(self, text: str, path: tuple[str, ...], item: Any) -> str:
        return text


def entry_text(section: str, name: str, value: dict[str, Any]) -> str:
    """The section with one entry, ready to stand in a file."""
    return f"{section}:\n" + _written(name, value, "  ", "\n")


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    if "".join(lines) != text or any(
        sep in text for sep in ("\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")
    ):
        raise NotUnderstood(
            "The file has unusual line ends.", hint="Add the entry by hand: --print shows it."
        )
    return lines


def _refused(number: int, line: str, why: str) -> NotUnderstood:
    return NotUnderstood(
        f"Line {number + 1} of the YAML, {line.strip()[:60]!r}, {why}.",
        hint="Add the entry by hand: the same command with --print shows it.",
    )


def _blank(line: str) -> bool:
    bare = line.strip()
    return not bare or bare.startswith("#")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


def _blocks(lines: list[str], start: int, end: int, indent: int) -> list[Block]:
    """The keys at this indentation, each with the lines below it."""
    found: list[Block] = []
    last = start
    for number in range(start, end):
        line = lines[number].rstrip("\r\n")
        if _blank(line):
            continue
        if indent == 0 and number == 0 and re.fullmatch(r"\ufeff?---\s*", line):
            continue
        depth = len(_indent(line))
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise _refused(number, line, "is indented with tabs")
        if depth > indent or (
            depth == indent and found and re.match(r" *- ", line) and not found[-1].rest.strip()
        ):
            if not found:
                raise _refused(number, line, "belongs to no key")
        elif depth < indent or not (match := _KEY.fullmatch(line)):
            raise _refused(number, line, "is no key in block style")
        else:
            if found:
                found[-1] = Block(found[-1].key, found[-1].start, last, found[-1].rest)
            key = _scalar(match["key"])
            if any(one.key == key for one in found):
                raise _refused(number, line, "stands there twice")
            found.append(Block(str(key), number, number + 1, match["rest"]))
        last = number + 1
    if found:
        found[-1] = Block(found[-1].key, found[-1].start, last, found[-1].rest)
    return found


def _children(lines: list[str], top: Block) -> list[Block]:
    if not _EMPTY.fullmatch(top.rest.rstrip()):
        raise _refused(top.start, lines[top.start], "is not in block style")
    inner = [number for number in range(top.start + 1, top.end) if not _blank(lines[number])]
    if not inner:
        return []
    indent = len(_indent(lines[inner[0]]))
    if indent == 0:
        raise _refused(inner[0], lines[inner[0]], "is a list, not entries with names")
    return _blocks(lines, top.start + 1, top.end, indent)


def _value(lines: list[str], block: Block) -> Any:
    """What a block holds, where it is written as we or Goose write it; else its text."""
    rest = block.rest.strip()
    inner = [number for number in range(block.start + 1, block.end) if not _blank(lines[number])]
    if rest and not rest.startswith("#"):
        return _scalar(rest) if not inner else "".join(lines[block.start : block.end])
    if not inner:
        return None
    first = lines[inner[0]]
    if first.lstrip().startswith("- "):
        if all(lines[number].lstrip().startswith("- ") for number in inner):
            return [_scalar(lines[number].strip()[2:].strip()) for number in inner]
        return "".join(lines[block.start : block.end])
    try:
        children = _blocks(lines, block.start + 1, block.end, len(_indent(first)))
    except NotUnderstood:  # an entry of somebody else may be written as it likes
        return "".join(lines[block.start : block.end])
    return {one.key: _value(lines, one) for one in children}


def _scalar(text: str) -> Any:
    text = text.strip()
    if text[:1] in ('"', "[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if text in ("true", "false", "null", "~"):
        return {"true": True, "false": False}.get(text)
    return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else text


def _written(name: str, value: dict[str, Any], indent: str, newline: str) -> str:
    key = name if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) else json.dumps(name)
    lines = [f"{indent}{key}:"]
    for inner, one in value.items():
        text = _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(one, ensure_ascii=False))
        lines.append(f"{indent}{indent}{inner}: {text}")
    return newline.join(lines) + newline

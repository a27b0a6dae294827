"""TOML edited in place: a table is added at the end, its keys are changed where they stand, everything else stays.

The standard library reads TOML but does not write it. What is written here is one kind of thing, an ordinary table of
texts, numbers, switches and lists; other ways to write the same (inline tables, dotted keys) are read, and refused
where they would have to be changed. Whether an edit did only what it should is checked by `editing.py`.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from pensieve_mcp.hosts.errors import NotUnderstood

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}]|\n|[^\"'#\[\]{}\n]+",
    re.S,
)


@dataclass(slots=True)
class Line:
    """A key with its value, in characters: where the line begins, where the value stands, where the line ends."""

    key: tuple[str, ...]
    start: int
    value_start: int
    value_end: int
    end: int


@dataclass(slots=True)
class Table:
    """A `[table]`: from the start of its header's line to the end of its last key's, and what it holds."""

    path: tuple[str, ...]
    start: int
    header_end: int
    lines: list[Line] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.lines[-1].end if self.lines else self.header_end


class Toml:
    """The notation of Codex."""

    name = "TOML"

    def read(self, text: str) -> dict[str, Any]:
        """The file's data. Raises NotUnderstood."""
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise NotUnderstood(
                f"The file is not TOML: {error}.",
                hint="Correct that line, or add the entry by hand: the same command with --print shows it.",
            ) from error

    def put(self, text: str, path: tuple[str, ...], value: dict[str, Any]) -> str:
        """The text with the table at this path set: keys that stand there are changed, others added or taken out.

        Raises NotUnderstood.
        """
        old = _at(self.read(text), path)
        if old is None:
            return _appended(text, path, value)
        if not isinstance(old, dict):
            raise NotUnderstood(f"{'.'.join(path)} is no table.", hint="Correct it by hand and try again.")
        table = self._table(text, path)
        for key in [key for key in old if key not in value]:
            text = self._cut(text, table, key)
            table = self._table(text, path)
        for key, one in value.items():
            if key not in old:
                newline = _newline(text)
                start = "" if text[: table.end].endswith("\n") else newline
                text = f"{text[: table.end]}{start}{_key(key)} = {rendered(one)}{newline}{text[table.end :]}"
            elif old[key] != one:
                line = self._line(table, key)
                text = text[: line.value_start] + rendered(one) + text[line.value_end :]
            table = self._table(text, path)
        return text

    def drop(self, text: str, path: tuple[str, ...]) -> str:
        """The text without the table at this path and those under it; the same text if there is none.

        Raises NotUnderstood.
        """
        if _at(self.read(text), path) is None:
            return text
        self._table(text, path)
        for table in reversed([table for table in tables(text) if table.path[: len(path)] == path]):
            start, end = table.start, table.end
            before = text[:start]
            blank = re.search(r"(?<=\n)[ \t]*\r?\n$", before)
            if blank and not text[end:].strip():
                start = blank.start()  # the empty line that parted it from what stands before
            text = text[:start] + text[end:]
        return text

    def append(self, text: str, path: tuple[str, ...], item: Any) -> str:
        raise NotUnderstood("Lists in TOML are not added to.", hint="Add it by hand.")

    def take(self, text: str, path: tuple[str, ...], item: Any) -> str:
        return text

    def _table(self, text: str, path: tuple[str, ...]) -> Table:
        found = [table for table in tables(text) if table.path == path]
        if len(found) != 1:
            raise NotUnderstood(
                f"{'.'.join(path)} is not written as a table of its own, [{_dotted(path)}].",
                hint="Write it so, or remove it by hand and try again.",
            )
        return found[0]

    def _line(self, table: Table, key: str) -> Line:
        found = [line for line in table.lines if line.key == (key,)]
        if len(found) != 1:
            raise NotUnderstood(
                f"{_dotted((*table.path, key))} is not written as one key of [{_dotted(table.path)}].",
                hint="Remove it by hand and try again.",
            )
        return found[0]

    def _cut(self, text: str, table: Table, key: str) -> str:
        line = self._line(table, key)
        return text[: line.start] + text[line.end :]


def tables(text: str) -> list[Table]:
    """All tables of a text that `tomllib` accepts, arrays of tables left out (their keys belong to nobody we seek)."""
    found: list[Table] = []
    current: Table | None = None
    at = 0
    while at < len(text):
        end, marks = _logical_line(text, at)
        body = text[at:end]
        bare = body.lstrip(" \t\r\n")
        start = at + len(body) - len(bare)
        if bare.startswith("[["):
            current = None
        elif bare.startswith("["):
            current = Table(_header_path(bare), text.rfind("\n", 0, start) + 1, end)
            found.append(current)
        elif bare and not bare.startswith("#") and current is not None and marks:
            key, value_start, value_end = marks
            line_start = text.rfind("\n", 0, start) + 1
            current.lines.append(Line(_key_path(text[start:key]), line_start, value_start, value_end, end))
        at = end
    return found


def _logical_line(text: str, at: int) -> tuple[int, tuple[int, int, int] | None]:
    """(where it ends, newline included; (end of key, start and end of value), if there is an equals sign)."""
    depth, equals, last = 0, -1, at
    for token in _TOKEN.finditer(text, at):
        mark = token[0]
        if mark == "\n":
            if depth <= 0:
                return token.end(), _marks(text, equals, last)
        elif mark in "[{":
            depth += 1
            last = token.end()
        elif mark in "]}":
            depth -= 1
            last = token.end()
        elif not mark.startswith("#"):
            if equals < 0 and depth == 0 and mark[0] not in "\"'" and "=" in mark:
                equals = token.start() + mark.index("=")
            if mark.strip():
                last = token.start() + len(mark.rstrip())
    return len(text), _marks(text, equals, last)


def _marks(text: str, equals: int, last: int) -> tuple[int, int, int] | None:
    if equals < 0:
        return None
    start = equals + 1
    while start < last and text[start] in " \t":
        start += 1
    return equals, start, last


def _header_path(header: str) -> tuple[str, ...]:
    data, path = tomllib.loads(header), []
    while data:
        key, data = next(iter(data.items()))
        path.append(key)
    return tuple(path)


def _key_path(key: str) -> tuple[str, ...]:
    data: Any = tomllib.loads(f"{key} = 0")
    path = []
    while isinstance(data, dict):
        name, data = next(iter(data.items()))
        path.append(name)
    return tuple(path)


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return None
        data = data[key]
    return data


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else rendered(key)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(key) for key in path)


def rendered(value: Any) -> str:
    """A value as TOML. Texts as JSON writes them, which TOML reads alike, but for DEL."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {rendered(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(rendered(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def table_text(path: tuple[str, ...], value: dict[str, Any], newline: str = "\n") -> str:
    """A `[table]` with its keys, ready to stand in a file."""
    lines = [f"[{_dotted(path)}]", *(f"{_key(key)} = {rendered(one)}" for key, one in value.items())]
    return newline.join(lines) + newline


def _appended(text: str, path: tuple[str, ...], value: dict[str, Any]) -> str:
    newline = _newline(text)
    before = text
    if before and not before.endswith("\n"):
        before += newline
    if before.strip():
        before += newline
    return before + table_text(path, value, newline)

"""One way to change any host's file: as text, in its own notation, and proved before anybody writes it.

The proof is cheap: what is read from the changed text must be what was read from the old one with only our member
set or gone. An edit that fails it is refused, whatever the reason, so that a fault in a scanner costs an error and
not a configuration.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

from pensieve_mcp.hosts.errors import NotUnderstood
from pensieve_mcp.hosts.jsonc import Jsonc
from pensieve_mcp.hosts.toml_tables import Toml
from pensieve_mcp.hosts.yaml_blocks import Yaml


class Notation(Protocol):
    """A way to write configuration; all methods raise NotUnderstood."""

    name: str

    def read(self, text: str) -> dict[str, Any]: ...

    def put(self, text: str, path: tuple[str, ...], value: dict[str, Any]) -> str: ...

    def drop(self, text: str, path: tuple[str, ...]) -> str: ...

    def append(self, text: str, path: tuple[str, ...], item: Any) -> str: ...

    def take(self, text: str, path: tuple[str, ...], item: Any) -> str: ...


NOTATIONS: dict[str, Notation] = {"json": Jsonc(), "toml": Toml(), "yaml": Yaml()}


def entry(notation: Notation, text: str, path: tuple[str, ...]) -> Any:
    """What stands at this path, or None. Raises NotUnderstood."""
    data: Any = notation.read(text)
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def with_entry(notation: Notation, text: str, path: tuple[str, ...], value: dict[str, Any]) -> str:
    """The text with this entry, the same text if it stands there already. Raises NotUnderstood."""
    before = notation.read(text)
    if entry(notation, text, path) == value:
        return text
    wanted = copy.deepcopy(before)
    here = wanted
    for key in path[:-1]:
        if here.get(key) is None:
            here[key] = {}
        here = here[key]
        if not isinstance(here, dict):
            raise NotUnderstood(
                f"{key!r} holds no entries with names.", hint="Correct it by hand and try again."
            )
    here[path[-1]] = value
    return _proved(notation, notation.put(text, path, value), wanted)


def without_entry(notation: Notation, text: str, path: tuple[str, ...]) -> str:
    """The text without this entry, the same text if there is none. Raises NotUnderstood."""
    if entry(notation, text, path) is None:
        return text
    wanted = copy.deepcopy(notation.read(text))
    here = wanted
    for key in path[:-1]:
        here = here[key]
    del here[path[-1]]
    return _proved(notation, notation.drop(text, path), wanted)


def with_item(notation: Notation, text: str, path: tuple[str, ...], item: Any) -> str:
    """The text with this item in the list at the path. Raises NotUnderstood."""
    wanted = copy.deepcopy(notation.read(text))
    changed = notation.append(text, path, item)
    if changed == text:
        return text
    here: Any = wanted
    for key in path[:-1]:
        here = here.setdefault(key, {})
    here[path[-1]] = [*(here.get(path[-1]) or []), item]
    return _proved(notation, changed, wanted)


def without_item(notation: Notation, text: str, path: tuple[str, ...], item: Any) -> str:
    """The text without this item in the list at the path. Raises NotUnderstood."""
    wanted = copy.deepcopy(notation.read(text))
    changed = notation.take(text, path, item)
    if changed == text:
        return text
    here: Any = wanted
    for key in path:
        here = here[key]
    here.remove(item)
    return _proved(notation, changed, wanted)


def _proved(notation: Notation, changed: str, wanted: dict[str, Any]) -> str:
    if _pruned(notation.read(changed)) != _pruned(wanted):
        raise NotUnderstood(
            f"This {notation.name} is written in a way that cannot be changed safely.",
            hint="Nothing was written. Do it by hand: the same command with --print shows the entry.",
        )
    return changed


def _pruned(data: Any) -> Any:
    """Without sections that are empty: in TOML and YAML a section without entries is as good as none."""
    if not isinstance(data, dict):
        return data
    inner = {key: _pruned(value) for key, value in data.items()}
    return {key: value for key, value in inner.items() if value != {}}

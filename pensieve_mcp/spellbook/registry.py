"""What a spell is, and the book of all of them.

A spell's name, description and schemas have one home: its `@spell` function. MCP, the loop, the CLI, SKILL.md and the
docs are printed from here. Input schemas are flat (no `$ref`, no unions), since several hosts refuse anything else.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode

Stage = Literal["look", "find", "read", "note", "forget", "close"]


def _as_handle(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Handle = Annotated[str, BeforeValidator(_as_handle)]
"""`m12`, `c48`; numbers are accepted, too, since the published weights write them."""


class Args(BaseModel):
    """Arguments of a spell: validated leniently (a small model writes "48" and "true"), unknown names refused."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=False)


class Result(BaseModel):
    """Typed result of a spell: the published field names where they exist."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a spell hands to `cast`: the typed result, the text under the handle line, and what the stub
    will call it."""

    result: Result
    body: str
    facts: tuple[str, ...] = ()  # stand in the handle line after the id: `c48`, `report.pdf p. 12`
    label: str = ""
    chunk_ids: tuple[int, ...] = ()
    exempt: bool = False  # the caller asked for more bytes than the usual limit
    repeated_tokens: int = (
        0  # of the body: what counts already elsewhere, as a restored message in its old place
    )


@dataclass(frozen=True, slots=True)
class Spell:
    """One entry of the book. `reads_only`, `destroys` and `repeatable` become the MCP annotations."""

    name: str
    stage: Stage
    description: str
    args: type[Args]
    result: type[Result]
    function: Callable[[Episode, Any], Outcome]
    reads_only: bool = False
    repeatable: bool = False
    title: str = ""
    open_world: bool = False

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments: flat, without titles, null unions and defaults of null."""
        schema = _flat(self.args.model_json_schema())
        return {
            "type": "object",
            "properties": schema.get("properties", {}),
            **({"required": schema["required"]} if schema.get("required") else {}),
            "additionalProperties": False,
        }

    def output_schema(self) -> dict[str, Any]:
        """JSON Schema of the typed result, references inlined."""
        return _flat(self.result.model_json_schema())

    def annotations(self) -> dict[str, Any]:
        """Nothing of ours destroys for good: every deletion can be restored. Nothing but a question handed to a model
        of the user's reaches the open world."""
        return {
            "title": self.title or self.name,
            "readOnlyHint": self.reads_only,
            "destructiveHint": False,
            "idempotentHint": self.reads_only or self.repeatable,
            "openWorldHint": self.open_world,
        }


@dataclass(slots=True)
class _Book:
    spells: dict[str, Spell] = field(default_factory=dict)


_BOOK = _Book()


def spell(
    name: str,
    args: type[Args],
    returns: type[Result],
    *,
    stage: Stage,
    reads_only: bool = False,
    repeatable: bool = False,
    title: str = "",
    open_world: bool = False,
) -> Callable[[Callable[[Episode, Any], Outcome]], Callable[[Episode, Any], Outcome]]:
    """Declare a spell: its docstring is the description that every host's model reads."""

    def declare(function: Callable[[Episode, Any], Outcome]) -> Callable[[Episode, Any], Outcome]:
        _BOOK.spells[name] = Spell(
            name=name,
            stage=stage,
            description=" ".join((function.__doc__ or "").split()),
            args=args,
            result=returns,
            function=function,
            reads_only=reads_only,
            repeatable=repeatable,
            title=title,
            open_world=open_world,
        )
        return function

    return declare


ORDER = (
    "analyzeText", "checkBudget", "buildIndex", "searchEngine", "readChunk", "note", "updateNote", "readNote",
    "deleteContext", "restoreContext", "plan", "finish",
)  # fmt: skip
"""Order in every list: that of the work, and always the same, since prompt caches hang on it."""


ASKING = ("askStateLM",)
"""Last in the list, and only where a backend is configured."""


def spellbook(*, asking: bool = False) -> Mapping[str, Spell]:
    """All spells by name, in order; with `asking` those, too, that need a backend. Importing them is cheap: no basin is
    touched."""
    from pensieve_mcp.spellbook import (  # noqa: F401
        closing,
        entrusting,
        forgetting,
        looking,
        noting,
        reading,
        searching,
    )  # fmt: skip

    return {name: _BOOK.spells[name] for name in (*ORDER, *(ASKING if asking else ()))}


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            inlined = walk(definitions[node["$ref"].rsplit("/", 1)[1]])
            return {**inlined, **{k: walk(v) for k, v in node.items() if k != "$ref"}}
        if "anyOf" in node:
            kept = [walk(option) for option in node["anyOf"] if option.get("type") != "null"]
            rest = {
                k: walk(v)
                for k, v in node.items()
                if k not in ("anyOf", "default", "title") or (k == "default" and v is not None)
            }
            if len(kept) == 1:
                return {**kept[0], **rest}
            return {"anyOf": kept, **rest}
        cleaned = {}
        for key, value in node.items():
            if key == "title" and isinstance(value, str):
                continue
            if key == "default" and value is None:
                continue
            if key == "properties":
                cleaned[key] = {name: walk(inner) for name, inner in value.items()}
            else:
                cleaned[key] = walk(value)
        return cleaned

    walked: dict[str, Any] = walk(schema)
    walked.pop("description", None)
    return walked


def accepts_list(annotation: Any) -> bool:
    """Whether an argument takes a list, so that a comma string from a small model can be split for it."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return any(accepts_list(option) for option in get_args(annotation))
    return origin in (list, tuple)

"""Schemas as providers enforce them: every property required, nothing else allowed, what may be left out null."""

from __future__ import annotations

from typing import Any

UNKNOWN = ("default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "title")
"""Keywords that a strict schema may not have everywhere; the spell checks them all the same."""


def strict(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool in OpenAI's shape with `strict`; as it was where an object without named fields forbids that."""
    function = tool["function"]
    if not _named(function["parameters"]):
        return tool
    return {**tool, "function": {**function, "parameters": _bound(function["parameters"]), "strict": True}}


def _named(schema: dict[str, Any]) -> bool:
    if schema.get("type") == "object":
        fields = schema.get("properties")
        return fields is not None and all(_named(one) for one in fields.values())
    return (
        _named(schema["items"]) if schema.get("type") == "array" and "items" in schema else "type" in schema
    )


def _bound(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in UNKNOWN}
    if schema.get("type") == "array":
        return {**kept, "items": _bound(schema["items"])}
    if schema.get("type") != "object":
        return kept
    required = schema.get("required", ())
    fields = {
        name: _bound(one) if name in required else _or_null(_bound(one))
        for name, one in schema["properties"].items()
    }
    return {**kept, "properties": fields, "required": list(fields), "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema["type"]
    found = {**schema, "type": [kind, "null"]}
    if "enum" in schema:
        found["enum"] = [*schema["enum"], None]
    return found

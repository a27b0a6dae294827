"""A grammar (GBNF) for one call of the offered tools: free thought, then a call whose name and arguments fit a schema.

Flat schemas only, as ours and the published ones are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

STRING = r'"\"" ( [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\""'
BASE = {
    "string": STRING,
    "integer": '"-"? [0-9]{1,9}',
    "number": '"-"? [0-9]{1,9} ("." [0-9]{1,6})?',
    "boolean": '"true" | "false"',
    "strings": '"[" ws ( string ( "," ws string )* )? "]"',
    "value": "object | array | string | number | boolean | " + '"null"',
    "object": '"{" ws ( string ":" ws value ( "," ws string ":" ws value )* )? "}"',
    "array": '"[" ws ( value ( "," ws value )* )? "]"',
    "ws": "[ \\n]{0,2}",
}


SEVERAL = re.compile(r"\^\(\?:([^()]+)\)\(\?:,\(\?:[^()]+\)\)\{0,(\d+)\}\$\Z")
"""A pattern that lists names, several of them parted by commas."""


def _up_to(most: int) -> str:
    """Whole numbers from 0 to `most`, without leading zeros."""
    digits = str(most)
    ways = [f"[1-9] [0-9]{{{length - 1}}}" if length > 1 else "[0-9]" for length in range(1, len(digits))]
    for place, digit in enumerate(digits):
        first = 1 if place == 0 and len(digits) > 1 else 0
        rest = len(digits) - place - 1
        if int(digit) > first:
            head = f"{_literal(digits[:place])} " if place else ""
            ways.append(f"{head}[{first}-{int(digit) - 1}]" + (f" [0-9]{{{rest}}}" if rest else ""))
    return " | ".join([*ways, _literal(digits)])


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def tool_call_grammar(tools: Sequence[dict[str, Any]], *, thought_chars: int = 600) -> str:
    """GBNF: at most `thought_chars` of thought without `<`, then one `<tool_call>`."""
    rules = dict(BASE)
    names = []
    for number, tool in enumerate(tools):
        function = tool["function"]
        rules[f"t{number}"] = _call(number, function["name"], function["parameters"], rules)
        names.append(f"t{number}")
    rules["thought"] = f"[^<]{{0,{thought_chars}}}"
    root = f'thought "<tool_call>\\n" ({" | ".join(names)}) "\\n</tool_call>"'
    return "\n".join([f"root ::= {root}", *(f"{name} ::= {body}" for name, body in rules.items())]) + "\n"


def _call(number: int, name: str, schema: dict[str, Any], rules: dict[str, str]) -> str:
    """Required arguments in order, then optional ones in order, any of them left out."""
    properties = schema.get("properties", {})
    required = [one for one in properties if one in schema.get("required", ())]
    optional = [one for one in properties if one not in required]
    members = []
    for place, one in enumerate([*required, *optional]):
        rules[f"a{number}x{place}"] = f"{_literal(json.dumps(one) + ': ')} ({_value(properties[one])})"
        members.append(f"a{number}x{place}")
    head, tail = members[: len(required)], members[len(required) :]
    body = ' ", " '.join(head)
    if head:
        body += "".join(f' (", " {one})?' for one in tail)
    elif tail:
        # without a required one any optional one may come first
        starts = [
            " ".join([one, *(f'(", " {more})?' for more in tail[place + 1 :])])
            for place, one in enumerate(tail)
        ]
        body = "( " + " | ".join(starts) + " )?"
    opening = _literal(f'{{"name": {json.dumps(name)}, "arguments": {{')
    return f'{opening} {body} "}}}}"'


def _value(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(_literal(json.dumps(one, ensure_ascii=False)) for one in schema["enum"])
    if match := SEVERAL.match(schema.get("pattern", "")):
        one = " | ".join(_literal(name.replace("\\", "")) for name in match[1].split("|"))
        return f'"\\"" ({one}) ("," ({one})){{0,{match[2]}}} "\\""'
    if "maximum" in schema and schema.get("type") == "integer" and schema.get("minimum", 0) >= 0:
        return _up_to(int(schema["maximum"]))
    kind = schema.get("type")
    if kind == "array":
        return "strings" if schema.get("items", {}).get("type") == "string" else "array"
    return kind if isinstance(kind, str) and kind in BASE else "value"

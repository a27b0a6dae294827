"""One cast for every door: check the arguments, run the spell, name both messages, word the answer.

A cast leaves two messages in the ledger, the call and its result, each with an id, errors too. The result's text
begins with its handle line, `m12 · c48 · report.pdf p. 12 · 812 tokens · 9,340 left`, the same in text and
structured form.
Errors are raised below and worded here, once.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import Miscast, PensieveError
from pensieve_mcp.spellbook.registry import Args, Outcome, Spell, accepts_list, spellbook
from pensieve_mcp.spellbook.wording import bytes_of, cut_to_bytes, one_line
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from pensieve_mcp.budget import PluginSight
    from pensieve_mcp.episode import Approval, Episode

log = logging.getLogger(__name__)

HOST_EXTRAS = frozenset({"wait_for_previous"})  # added to every schema by a host, not meant for us
HEAD_BYTES = 600  # handle line and advice: ids, locator and counts
NEAR_NAME = 0.6  # likeness from which on a name is worth suggesting: `nosuch` is not `finish`
REFUSED_CALL_CHARS = 20_000  # what is kept of the arguments of a call that failed
MAX_ARGUMENT_CHARS = 4_000_000  # more is an accident; a note has at most a quarter of it
HEAD_TOKENS = 24  # what the handle line itself costs


@dataclass(frozen=True, slots=True)
class CastResult:
    """What a door passes on. `text` begins with the handle line; `result` is the typed result as plain data."""

    text: str
    result: dict[str, Any]
    message: dict[str, Any]  # msg_id, invoking_msg_id, tokens
    is_error: bool = False
    slug: str = ""


def cast(
    episode: Episode,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    host_call_id: str | None = None,
    plugin: PluginSight | None = None,
    approval: Approval | None = None,
    begins: bool = False,
) -> CastResult:
    """Run one spell in an episode. Never raises on anything a caller sends; storage that fails is a worded
    error, too. `plugin` is what a host's plugin said with the call, `approval` what a person answered to it.
    With `begins` the episode was begun for this call: one that fails is not recorded, so that the door can drop it."""
    from pensieve_mcp.episode import Calling

    spell: Spell | None = None
    outcome: Outcome | None = None
    error: PensieveError | None = None
    raw = dict(arguments or {})
    episode = episode.during(Calling(name, raw, host_call_id, plugin, approval))
    try:
        spell = find_spell(name, asking=episode.workspace.asks is not None)
        checked = check_arguments(spell, raw)
        outcome = spell.function(episode, checked)
    except PensieveError as raised:
        error = raised
    except Exception as raised:
        log.exception("%s failed", name)
        error = PensieveError(
            f"{name} failed inside: {type(raised).__name__}: {one_line(str(raised), 300)}.",
            hint="This is a fault of ours; the server's log has the details. Another call may still work.",
            slug="internal",
        )
    if error is not None and begins:
        return _unrecorded(error)
    return _answer(episode, spell, name, raw, outcome, error, host_call_id)


def _unrecorded(error: PensieveError) -> CastResult:
    text = f"{error.message} {error.hint}".strip()
    message = {"msg_id": None, "invoking_msg_id": None, "tokens": count_tokens(text)}
    return CastResult(text, {}, message, is_error=True, slug=error.slug)


def find_spell(name: str, *, asking: bool = False) -> Spell:
    """The spell of this name; with `asking` of those, too, that need a backend. Raises Miscast with near names."""
    book = spellbook(asking=asking)
    if name in book:
        return book[name]
    folded = {known.lower(): known for known in book}
    plain = re.sub(r"[^a-z]", "", name.lower())
    near = [plain] if plain in folded else difflib.get_close_matches(plain, folded, n=3, cutoff=NEAR_NAME)
    hint = (
        f"Did you mean {' or '.join(folded[n] for n in near)}?" if near else f"There are {', '.join(book)}."
    )
    raise Miscast(f"There is no spell {name[:80]!r}.", hint=hint, slug="no_such_spell")


def check_arguments(spell: Spell, raw: Mapping[str, Any]) -> Args:
    """Arguments as the spell wants them. Raises Miscast that names the argument, the value and what it should be."""
    from pydantic import ValidationError

    fields = spell.args.model_fields
    size = sum(len(value) for value in raw.values() if isinstance(value, str))
    if size > MAX_ARGUMENT_CHARS:
        raise Miscast(
            f"The arguments of {spell.name} have {size:,} characters; at most {MAX_ARGUMENT_CHARS:,} are taken.",
            hint="Note what matters and point to the source with evidence, or split it.",
            slug="arguments_too_long",
        )
    given: dict[str, Any] = {}
    for key, value in raw.items():
        if key in HOST_EXTRAS:
            continue
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=2, cutoff=0.6)
            hint = (
                f"Did you mean {' or '.join(near)}?"
                if near
                else f"{spell.name} takes {', '.join(fields) or 'no arguments'}."
            )
            raise Miscast(
                f"{spell.name} has no argument {str(key)[:80]!r}.", hint=hint, slug="unknown_argument"
            )
        if value is None:
            continue
        given[key] = _split_list(value) if accepts_list(fields[key].annotation) else value
    try:
        return spell.args.model_validate(given)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the arguments"
        if problem["type"] == "missing":
            required = [n for n, f in fields.items() if f.is_required()]
            raise Miscast(
                f"{spell.name} needs {where}.",
                hint=f"Required: {', '.join(required)}.",
                slug="missing_argument",
            ) from None
        raise Miscast(
            f"{where} is {one_line(repr(problem['input']), 120)}, but should be {_should_be(problem)}.",
            hint=f"Call {spell.name} again with that corrected.",
            slug="bad_argument",
        ) from None


def _should_be(problem: Mapping[str, Any]) -> str:
    """What an argument should be, from the checker's complaint, in words for whoever wrote the call."""
    kind, bounds = str(problem["type"]), problem.get("ctx", {})
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return words.format(bounds[name])
    if kind == "literal_error":
        return str(bounds["expected"]).replace("'", "")
    for beginning, words in _KINDS.items():
        if kind.startswith(beginning):
            return words
    return str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")


_BOUNDS = {
    "greater_than_equal": ("ge", "at least {:,}"),
    "less_than_equal": ("le", "at most {:,}"),
    "string_too_long": ("max_length", "at most {:,} characters long"),
    "string_too_short": ("min_length", "at least {:,} characters long"),
    "too_long": ("max_length", "a list of at most {:,}"),
    "too_short": ("min_length", "a list of at least {:,}"),
}
_KINDS = {
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "string_": "text",
    "list_": "a list",
    "dict_": "an object",
    "model_": "an object",
    "extra_forbidden": "left out: there is no such field",
}


def _split_list(value: Any) -> Any:
    """Lists as small models write them: a JSON string, or one item without brackets."""
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith(("[", "{")):
            try:
                value = json.loads(stripped)
            except (ValueError, RecursionError):
                return [value]
        elif not stripped:
            return []
        else:
            return [value]
    return [value] if isinstance(value, dict) else value


def _answer(
    episode: Episode,
    spell: Spell | None,
    name: str,
    raw: Mapping[str, Any],
    outcome: Outcome | None,
    error: PensieveError | None,
    host_call_id: str | None,
) -> CastResult:
    """Word the answer and write call and result into the ledger.

    What a spell did stays done when the ledger cannot be written (full disk, damaged file): then the answer says so
    and has no handle. An error instead would make a model do it again.
    """
    call_text = json.dumps({"name": name, "arguments": raw}, ensure_ascii=False, default=str)
    if error is not None and len(call_text) > REFUSED_CALL_CHARS:
        call_text = f"{call_text[:REFUSED_CALL_CHARS]}… [refused; {len(call_text):,} characters in all]"
    if outcome is not None:
        facts, body = list(outcome.facts), outcome.body
    else:
        assert error is not None
        facts, body = ["error"], f"{error.message} {error.hint}".strip()
    limit = episode.settings.result_bytes
    if not (outcome and outcome.exempt) and bytes_of(body) > limit - HEAD_BYTES:
        body = (
            body[: cut_to_bytes(body, limit - HEAD_BYTES - 100)].rstrip()
            + "\n[cut here: the result was longer than the limit]"
        )
    tokens = count_tokens(body) + HEAD_TOKENS
    facts = [one_line(fact, 200) for fact in facts]
    number: int | None = None
    call_number: int | None = None
    try:
        call_number, number = episode.reserve()
        repeated = outcome.repeated_tokens if outcome else 0
        left = max(0, episode.budget().left - max(0, tokens - repeated) - count_tokens(call_text))
        head = " · ".join([f"m{number}", *facts, f"{tokens:,} tokens", f"{left:,} left"])
        advice = episode.advice(left) if spell is not None and spell.stage in ("find", "read") else ""
        text = "\n".join(part for part in (head, body, advice) if part)
        episode.record(
            call_number=call_number,
            number=number,
            tool=spell.name if spell else one_line(name, 80),
            call_text=call_text,
            text=text,
            label=outcome.label if outcome else "",
            chunk_ids=outcome.chunk_ids if outcome else (),
            is_error=error is not None,
            host_call_id=host_call_id,
            repeated_tokens=repeated,
        )
    except PensieveError as refused:
        log.error("the ledger refused a message of %s: %s", name, refused)
        number = call_number = None
        why = f"[Not in the record, so it has no handle to delete it by: {one_line(refused.message, 300)}]"
        text = "\n".join([" · ".join([*facts, f"{tokens:,} tokens"]), body, why])
    return CastResult(
        text=text,
        result=outcome.result.model_dump(mode="json") if outcome else {},
        message={
            "msg_id": None if number is None else f"m{number}",
            "invoking_msg_id": None if call_number is None else f"m{call_number}",
            "tokens": tokens,
        },
        is_error=error is not None,
        slug=error.slug if error else "",
    )

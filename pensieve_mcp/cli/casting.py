"""cast, spec, forget, restore: the spells by shell, so that the skill works without MCP.

`pensieve cast readChunk chunk_id=48 --episode E` prints the text an MCP host would show its model.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option, leave
from pensieve_mcp.errors import Miscast

DOOR = "cli"
WHOLE_BYTES = 1_000_000_000  # a shell has no window to protect: what is restored is printed to its end

episode_option = click.option(
    "--episode", "handle", metavar="E", help="The conversation to go on with; without it a new one is begun."
)


@click.command(short_help="Cast SPELL as a model would, and print the answer.")
@click.argument("spell")
@click.argument("arguments", nargs=-1, metavar="[JSON | key=value]...")
@episode_option
@json_option
@command_options
def cast(
    shell: Shell,
    spell: str,
    arguments: tuple[str, ...],
    handle: str | None,
    as_json: bool,
) -> None:
    """Cast SPELL as a model would, and print the answer it would get.

    Arguments are one JSON object, or key=value pairs; a value that is JSON counts as such (limit=3,
    queries='["a", "b"]'), key=- takes the value from stdin. `pensieve spec` lists the spells.
    """
    leave(run_cast(shell, spell, parse_arguments(arguments), handle, as_json))


def run_cast(
    shell: Shell,
    spell: str,
    arguments: dict[str, Any],
    handle: str | None,
    as_json: bool,
    *,
    needs_episode: bool = False,
) -> int:
    """Cast in an episode and print; the exit code. The text goes to stdout, errors of the spell as well: both are the
    answer. Raises Miscast for an unknown handle; with `needs_episode` it does not say that it can be left out."""
    from pensieve_mcp.spellbook.casting import cast as cast_spell

    if handle is None and (refused := _refused(spell, arguments)) is not None:
        # a call that cannot be made begins no conversation
        return _failed(f"{refused.message} {refused.hint}".strip(), refused.slug, as_json)
    # builds run in this process: one that ends with the command would be begun and killed by every cast
    with shell.open() as workspace:
        if handle is not None and needs_episode:
            workspace.ledger.episode(handle)
        if workspace.settings.ask_backend:
            from pensieve_mcp.spellbook.entrusting import Asks

            workspace.asks = Asks.of(workspace, shell.environment, wait_seconds=None)
        episode = workspace.episode(DOOR, handle=handle)
        answer = cast_spell(episode, spell, arguments, begins=handle is None)
        if handle is None:
            if answer.is_error and workspace.ledger.drop_empty(episode.episode_id):
                return _failed(answer.text, answer.slug, as_json)
            say(f"Episode {episode.handle} (go on with --episode {episode.handle}).")
        if as_json:
            data: dict[str, Any] = {
                "episode": episode.handle,
                "text": answer.text,
                "result": answer.result,
                "message": answer.message,
            }
            if answer.is_error:
                data["error"] = answer.slug
            put_json(data)
        else:
            put(answer.text)
        return 1 if answer.is_error else 0


def _failed(text: str, slug: str, as_json: bool) -> int:
    put_json({"text": text, "error": slug}) if as_json else put(text)
    return 1


def _refused(spell: str, arguments: dict[str, Any]) -> Miscast | None:
    from pensieve_mcp.spellbook.casting import check_arguments, find_spell

    try:
        check_arguments(find_spell(spell, asking=True), arguments)
    except Miscast as refused:
        return refused
    return None


def parse_arguments(given: tuple[str, ...]) -> dict[str, Any]:
    """Arguments of a spell as typed. Raises UsageError for what is neither an object nor key=value."""
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        try:
            data = json.loads(given[0])
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"The arguments are not valid JSON: {error}.") from error
        return dict(data)
    if given == ("-",):
        try:
            data = json.loads(sys.stdin.read())
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"stdin is not valid JSON: {error}.") from error
        if not isinstance(data, dict):
            raise click.UsageError("stdin is not a JSON object.")
        return data
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{text!r} is neither a JSON object nor key=value.")
        found[key.strip()] = sys.stdin.read() if value == "-" else _value(value)
    return found


def _value(text: str) -> Any:
    """JSON where it is a list, an object or a literal; else the text. Numbers stay text, since the spells take both and
    `key=2024` names a note."""
    stripped = text.strip()
    if stripped[:1] in ("[", "{") or stripped in ("true", "false", "null"):
        try:
            return json.loads(stripped)
        except (ValueError, RecursionError):
            return text
    return text


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--episode", "handle", metavar="E", required=True, help="The conversation.")
@click.option("--summary", help="One line to stand in its place.")
@json_option
@command_options
def forget(shell: Shell, ids: tuple[str, ...], handle: str, summary: str | None, as_json: bool) -> None:
    """Forget messages of an episode: m12, 3-5. Notes stay; `restore` undoes it."""
    arguments = {"msg_id": ",".join(ids)} | ({"summary": summary} if summary else {})
    leave(run_cast(shell, "deleteContext", arguments, handle, as_json, needs_episode=True))


@click.command(short_help="Bring forgotten messages back.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--episode", "handle", metavar="E", required=True, help="The conversation.")
@json_option
@command_options
def restore(shell: Shell, ids: tuple[str, ...], handle: str, as_json: bool) -> None:
    """Print forgotten messages exactly as they were, and count them as visible again."""
    shell.settings.setdefault("result_bytes", str(WHOLE_BYTES))
    leave(run_cast(shell, "restoreContext", {"msg_id": ",".join(ids)}, handle, as_json, needs_episode=True))


@click.command(short_help="The spells with their arguments or schemas.")
@click.argument("spell", required=False)
@json_option
@command_options
def spec(shell: Shell, spell: str | None, as_json: bool) -> None:
    """The spells: names, descriptions, arguments; with --json their schemas, as an MCP host gets them."""
    from pensieve_mcp.spellbook.casting import find_spell
    from pensieve_mcp.spellbook.registry import spellbook

    chosen = [find_spell(spell, asking=True)] if spell else list(spellbook().values())
    if as_json:
        put_json(
            [
                {
                    "name": one.name,
                    "title": one.title,
                    "description": one.description,
                    "inputSchema": one.input_schema(),
                    "outputSchema": one.output_schema(),
                    "annotations": one.annotations(),
                    "stage": one.stage,
                }
                for one in chosen
            ]
        )
        return
    for one in chosen:
        schema = one.input_schema()
        required = schema.get("required", [])
        words = [name if name in required else f"[{name}]" for name in schema["properties"]]
        put(f"{one.name} {' '.join(words)}".rstrip())
        put(f"    {one.description}")
        if spell:
            for name, field in schema["properties"].items():
                put(f"    {name}: {describe(field)}")


def describe(field: dict[str, Any]) -> str:
    """An argument's type, limits, default and meaning in a line."""
    kind = str(field.get("type", "value"))
    if kind == "array":
        kind = f"list of {field.get('items', {}).get('type', 'value')}"
    if "enum" in field:
        kind = " or ".join(map(str, field["enum"]))
    words = kind
    if "default" in field:
        words += f" = {json.dumps(field['default'])}"
    return words + (f". {field['description']}" if field.get("description") else "")

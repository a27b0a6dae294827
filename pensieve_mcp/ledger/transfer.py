"""Conversations as JSON lines: to keep, to look at, to take to another machine.

The first line says what the file is, then one event a line (`said`, `forgot`, `recalled`, …) with the
content of what was said. Taken in, a conversation becomes a new episode with new numbers, since another
workspace's numbers mean other messages here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import Miscast, StorageError
from pensieve_mcp.ledger.blobs import digest_of
from pensieve_mcp.ledger.events import IN_MIND, Event, Forgot, Message, Pinned, Recalled, Said
from pensieve_mcp.ledger.schema import KINDS, EpisodeRecord, event_body, event_from

if TYPE_CHECKING:
    from pensieve_mcp.ledger.store import Ledger

FORMAT = "pensieve-episode"
VERSION = 1


def export(ledger: Ledger, episode_id: int, *, redact: Callable[[str], str] | None = None) -> Iterator[str]:
    """JSON lines, each with its line end. A content that is gone is null, with the reason beside it.

    `redact` is applied to contents, labels, thoughts, summaries and answers. Raises Miscast, StorageError.
    """
    episode = ledger.episode(episode_id)
    head = asdict(episode)
    for private in ("handle", "episode_id"):  # whoever has the handle may resume the conversation
        head.pop(private)
    counted = sizes(ledger.extra(episode_id).get(IN_MIND))
    more = {IN_MIND: counted} if counted else {}
    yield _line({"format": FORMAT, "version": VERSION, "episode": _redacted(head, redact), **more})
    for one in ledger.happened(episode_id):
        event = one.event
        if isinstance(event, Said):
            body = asdict(event.message)
            body["digest"] = event.message.digest.hex()
            try:
                body["content"] = ledger.content(event.message)
            except StorageError as error:
                body["content"], body["content_state"] = None, error.slug
            yield _line({"at": one.at, "said": _redacted(body, redact)})
        else:
            yield _line({"at": one.at, KINDS[type(event)]: _redacted(event_body(event), redact)})


def sizes(given: object) -> list[int]:
    """A list of sizes as it came from a file; empty for anything else."""
    if not isinstance(given, list) or not all(type(one) is int and one >= 0 for one in given):
        return []
    return given


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value) + "\n"


def _redacted(value: Any, redact: Callable[[str], str] | None) -> Any:
    if redact is None:
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        kept = ("digest", "role", "tool", "door", "host", "state", "host_call_id", "thread", "handle")
        return {key: one if key in kept else _redacted(one, redact) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(one, redact) for one in value]
    return value


def take_in(ledger: Ledger, lines: Iterable[str]) -> EpisodeRecord:
    """Store an exported conversation as a new episode; all of it, or nothing but an empty episode's numbers.

    Raises Miscast that names the line for a wrong, newer or half-written file.
    """
    head: dict[str, Any] | None = None
    counted: list[int] = []
    parsed: list[tuple[str, dict[str, Any]]] = []
    for count, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if head is None:
                head = _head(value)
                counted = sizes(value.get(IN_MIND))
                continue
            kind = next(key for key in value if key != "at")
            parsed.append((kind, dict(value[kind])))
        except RecursionError as error:
            raise Miscast(
                f"Line {count} of the export is nested too deeply to be read.",
                hint="Export the conversation again; a changed file is not taken in.",
                slug="bad_import",
            ) from error
        except (ValueError, StopIteration, TypeError, AttributeError) as error:
            raise Miscast(
                f"Line {count} of the export cannot be read: {error or 'no event in it'}.",
                hint="Export the conversation again; a half-written file is not taken in.",
                slug="bad_import",
            ) from error
    if head is None:
        raise Miscast("The export is empty.", hint="Export the conversation again.", slug="bad_import")
    messages: list[Message] = []
    contents: dict[bytes, str] = {}
    bodies: list[Event] = []
    try:
        for kind, body in parsed:
            if kind == "said":
                message = _message(body, contents)
                messages.append(message)
                bodies.append(Said(message))
            elif (event := event_from(kind, body)) is not None:
                bodies.append(event)
    except (KeyError, ValueError, TypeError) as error:
        raise Miscast(
            f"The export holds an event that cannot be read ({error!r}).",
            hint="Export the conversation again with this version.",
            slug="bad_import",
        ) from error
    numbers: dict[int, int] = {}
    if messages:
        first = ledger.reserve(len(messages))
        numbers = {message.number: first + place for place, message in enumerate(messages)}
        if len(numbers) != len(messages):
            raise Miscast("The export uses a message number twice.", slug="bad_import")
    episode = ledger.open_episode(
        str(head.get("door", "cli")), str(head.get("host", "")), title=str(head.get("title", ""))
    )
    ledger.append(episode.episode_id, [_renumbered(event, numbers) for event in bodies], contents)
    if counted:
        ledger.set_extra(episode.episode_id, **{IN_MIND: counted})
    return episode


def _head(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise Miscast(
            "This is not an exported conversation.",
            hint="Give a file written by pensieve episodes export.",
            slug="bad_import",
        )
    if not isinstance(value.get("version"), int) or value["version"] > VERSION:
        raise Miscast(
            f"The export has format version {value.get('version')!r}, this program reads up to {VERSION}.",
            hint="Update pensieve-statelm.",
            slug="newer_format",
        )
    episode = value.get("episode")
    return episode if isinstance(episode, dict) else {}


def _message(body: dict[str, Any], contents: dict[bytes, str]) -> Message:
    content = body.pop("content", None)
    body.pop("content_state", None)
    known = {name: body[name] for name in Message.__dataclass_fields__ if name in body}
    if content is not None and not isinstance(content, str):
        raise ValueError(f"content of m{body.get('number')} is not text")
    if body.get("role") not in ("assistant", "tool", "user", "system"):
        raise ValueError(f"role {body.get('role')!r} is unknown")
    digest = b"" if content is None else digest_of(content)
    if content is not None:
        contents[digest] = content
    # The host's ids mean its own conversation; the copy is not part of that.
    known |= {"digest": digest, "chunk_ids": tuple(known.get("chunk_ids", ())), "handle": None}
    known["host_call_id"] = None
    message = Message(**known)
    if isinstance(message.number, bool) or not isinstance(message.number, int):
        raise ValueError("a message has no number")
    return message


def _renumbered(event: Event, numbers: dict[int, int]) -> Event:
    if isinstance(event, Said):
        return Said(_renumbered_message(event.message, numbers))
    if isinstance(event, Forgot):
        sizes = (*event.part_tokens, *[0] * len(event.parts))
        known = [
            ((numbers[number], part), size)
            for (number, part), size in zip(event.parts, sizes, strict=False)
            if number in numbers
        ]
        return replace(
            event,
            numbers=_mapped(event.numbers, numbers),
            parts=tuple(pair for pair, _ in known),
            part_tokens=tuple(size for _, size in known),
        )
    if isinstance(event, Recalled | Pinned):
        return replace(event, numbers=_mapped(event.numbers, numbers))
    return event


def _mapped(old: Iterable[int], numbers: dict[int, int]) -> tuple[int, ...]:
    return tuple(numbers[number] for number in old if number in numbers)


def _renumbered_message(message: Message, numbers: Mapping[int, int]) -> Message:
    """The message under its new number, pointing at new numbers; what is not in `numbers` points at
    nothing."""
    return replace(
        message,
        number=numbers[message.number],
        invoking=None if message.invoking is None else numbers.get(message.invoking),
        part_of=None if message.part_of is None else numbers.get(message.part_of),
    )

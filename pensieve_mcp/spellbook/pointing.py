"""What a `msg_id` points at: messages of the episode by their handles, and parts of them (`m12.2`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pensieve_mcp.errors import Miscast, NoSuchMessage
from pensieve_mcp.handles import parse_message_ids
from pensieve_mcp.ledger.events import Entry, Transcript
from pensieve_mcp.ledger.hostnames import HostNames
from pensieve_mcp.ledger.parts import part_count
from pensieve_mcp.spellbook.wording import handles

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode


def name_of(entry: Entry) -> str:
    """The handle a model knows it by."""
    return entry.message.handle or f"m{entry.message.number}"


def names_of(entries: list[Entry]) -> str:
    hosts = [name_of(e) for e in entries if e.message.handle]
    ours = [e.message.number for e in entries if not e.message.handle]
    return ", ".join([*([handles(ours)] if ours else []), *hosts[:8]]) + (
        f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    )


def entry_at(transcript: Transcript, number: int) -> Entry:
    return transcript.entries[transcript.by_number[number]]


def resolve(
    episode: Episode, transcript: Transcript, msg_id: str
) -> tuple[list[Entry], list[tuple[int, int]]]:
    """Entries and (message, part) pairs that a `msg_id` names. Raises NoSuchMessage with what there is."""
    entries: dict[int, Entry] = {}
    parts: list[tuple[int, int]] = []
    for ref in parse_message_ids(msg_id):
        if ref.host is not None:
            entry = _host_entry(transcript, ref.host)
        elif (
            ref.number is not None
            and ref.number in transcript.by_number
            and entry_at(transcript, ref.number).message.handle is None
        ):  # a host's result has a number in the ledger, too, which nobody was told
            entry = entry_at(transcript, ref.number)
        elif ref.from_range:
            continue
        else:
            raise NoSuchMessage(
                f"There is no message {ref} in this episode.", hint=_what_there_is(transcript)
            )
        if ref.part is None:
            entries[entry.message.number] = entry
        else:
            total = part_count(episode.content(entry.message.number))
            if not 1 <= ref.part <= total:
                raise NoSuchMessage(
                    f"{name_of(entry)} has {total} parts, not a part {ref.part}.",
                    hint=f"Write {name_of(entry)}.1 to {name_of(entry)}.{total}.",
                )
            parts.append((entry.message.number, ref.part))
    if not entries and not parts:
        raise NoSuchMessage(
            f"No message of this episode is in {msg_id[:60]!r}.", hint=_what_there_is(transcript)
        )
    return list(entries.values()), parts


def host_names(entries: Iterable[Entry]) -> HostNames:
    """Those of the host's results, by the numbers that the ledger gave them."""
    names = HostNames()
    for entry in entries:
        if entry.message.handle and entry.message.host_call_id:
            names.name(entry.message.host_call_id, entry.message.number)
    return names


def _host_entry(transcript: Transcript, handle: str) -> Entry:
    """The host's result of this name. Raises NoSuchMessage, and Miscast where sub-agents have two of it."""
    names = host_names(transcript.entries)
    found = names.find(handle)
    if not found:
        raise NoSuchMessage(
            f"There is no message {handle} in this episode.",
            hint="Handles beginning with h are given by the gateway; use the handles at the head of results.",
        )
    if len(found) > 1:
        each = ", ".join(
            " ".join(f"{name} {m.tool} {m.label}".split())
            for number, name in names.longer(handle).items()
            for m in (entry_at(transcript, number).message,)
        )
        raise Miscast(
            f"{handle} may mean {len(found)} results of this episode.",
            hint=f"Write the longer name of the one you mean: {each}.",
            slug="ambiguous_handle",
        )
    return entry_at(transcript, found[0])


def _what_there_is(transcript: Transcript) -> str:
    results = [e for e in transcript.entries if e.message.role == "tool"]
    if not results:
        return "There are no results yet."
    kinds = (("Results in mind", False), ("Deleted", True))
    listed = [
        f"{words}: {names_of(found[-40:])}."
        for words, forgotten in kinds
        if (found := [entry for entry in results if bool(entry.forgotten) is forgotten])
    ]
    return " ".join(listed)

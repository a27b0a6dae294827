"""deleteContext, restoreContext: win back tokens, and bring back exactly what stood there.

The answer tells the truth: `physical` says whether the text really leaves the host's prompt, which only our
own loop, the
gateway or a plugin can bring about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from pensieve_mcp.errors import Miscast, NoSuchMessage
from pensieve_mcp.handles import parse_message_ids
from pensieve_mcp.ledger.events import Entry, Forgot, Pinned, Recalled, Transcript
from pensieve_mcp.ledger.parts import part_count, part_tokens
from pensieve_mcp.spellbook.registry import Args, Handle, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import cut_to_bytes, handles, listing, one_line
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode

MAX_SUMMARY_CHARS = 2_000


class DeleteArgs(Args):
    msg_id: Handle = Field(description="Handles: m12, h7f3a, m3,m7 or 3-5; m12.2 is a part.")
    keep_thought: bool = Field(False, description="Keep the words of the call, drop its arguments.")
    summary: str | None = Field(
        None, description="One line to stand in its place.", max_length=MAX_SUMMARY_CHARS
    )
    pin: bool | None = Field(None, description="true: protect instead of delete; false: unprotect.")


class DeletedLine(Result):
    msg_id: str
    role: str
    tokens: int


class DeleteResult(Result):
    status: str
    deleted: list[DeletedLine]
    freed_tokens: int
    physical: str
    still_in_prompt_tokens: int
    pinned: list[str]


@spell(
    "deleteContext", DeleteArgs, DeleteResult, stage="forget", repeatable=True, title="Delete from context"
)
def delete_context(episode: Episode, args: DeleteArgs) -> Outcome:
    """Replace earlier results or calls by short stubs to win back their tokens. Notes stay; restoreContext
    undoes it."""
    transcript = episode.transcript()
    entries, parts = _resolve(episode, transcript, args.msg_id)
    if args.pin is not None:
        return _pin(episode, args.pin, entries)
    lines: list[str] = []
    pinned = [e for e in entries if e.pinned]
    fixed = [e for e in entries if e.message.role in ("user", "system")]
    already = [e for e in entries if e.forgotten]
    doomed = [e for e in entries if not e.forgotten and e not in pinned and e not in fixed]
    if not doomed and not parts:
        if pinned:
            raise Miscast(
                f"{_names(pinned)} is pinned.",
                hint="Unpin first: deleteContext(msg_id, pin=false).",
                slug="pinned",
            )
        if fixed:
            raise Miscast(
                f"{_names(fixed)} is what the user said, which is never deleted.",
                hint="Delete results and calls.",
                slug="not_deletable",
            )
        return _outcome(episode, [], 0, [f"{_names(already)} was deleted before."])
    unnoted = [
        e
        for e in doomed
        if e.message.tool == "readChunk"
        and e.message.role == "tool"
        and not episode.noted_since(e.message.number)
    ]
    numbers = tuple(e.message.number for e in doomed)
    episode.append(
        [
            Forgot(
                numbers,
                reason="deleteContext",
                keep_thought=args.keep_thought,
                summary=one_line(args.summary or "", MAX_SUMMARY_CHARS),
                parts=tuple(parts),
                part_tokens=tuple(part_tokens(episode.content(number), part) for number, part in parts),
            )
        ]
    )
    freed = max(0, transcript.visible_tokens - episode.transcript().visible_tokens)
    if pinned:
        lines.append(f"Kept, since pinned: {_names(pinned)}.")
    if unnoted:
        lines.append(f"Nothing was noted since {_names(unnoted)} was read; restoreContext brings it back.")
    shown = [
        DeletedLine(
            msg_id=str(e.message.handle or f"m{e.message.number}"),
            role=e.message.role,
            tokens=e.message.tokens,
        )
        for e in doomed
    ]
    shown += [
        DeletedLine(
            msg_id=f"{_name(_entry(transcript, number))}.{part}",
            role="tool",
            tokens=part_tokens(episode.content(number), part),
        )
        for number, part in parts
    ]
    return _outcome(episode, shown, freed, lines)


def _outcome(episode: Episode, deleted: list[DeletedLine], freed: int, lines: list[str]) -> Outcome:
    physical = episode.physical()
    still = episode.budget().still_in_prompt
    if deleted:
        names = ", ".join(line.msg_id for line in deleted[:12]) + (
            f" and {len(deleted) - 12} more" if len(deleted) > 12 else ""
        )
        lines.insert(0, f"Deleted {names}: {freed:,} tokens freed.")
        if physical == "pending":
            seen = episode.sighting()
            lines.append(
                "The gateway takes it out of the prompt when that pays"
                f"{f' (policy {seen.policy})' if seen else ''}; restoreContext brings it back."
            )
        if physical == "next_compaction":
            lines.append(
                f"The host's prompt holds {still:,} deleted tokens until it compacts next: then its plugin takes them "
                "out. restoreContext brings them back."
            )
        if physical == "no":
            lines.append(
                f"In our record only: the host's prompt still holds {still:,} deleted tokens. "
                f"{episode.physical_advice()}"
            )
    return Outcome(
        DeleteResult(
            status="success",
            deleted=deleted,
            freed_tokens=freed,
            physical=physical,
            still_in_prompt_tokens=still,
            pinned=[],
        ),
        listing(lines),
        label="receipt of a deletion",
    )


def _pin(episode: Episode, pin: bool, entries: list[Entry]) -> Outcome:
    numbers = tuple(e.message.number for e in entries)
    episode.append([Pinned(numbers, pinned=pin)])
    return Outcome(
        DeleteResult(
            status="success",
            deleted=[],
            freed_tokens=0,
            physical=episode.physical(),
            still_in_prompt_tokens=episode.budget().still_in_prompt,
            pinned=[_name(e) for e in entries] if pin else [],
        ),
        f"{'Pinned' if pin else 'Unpinned'} {_names(entries)}.",
        label="receipt of a pin",
    )


class RestoreArgs(Args):
    msg_id: Handle = Field(description="Handles of deleted messages.")
    offset: int = Field(0, description="Character to go on from.", ge=0)


class RestoredLine(Result):
    msg_id: str
    tokens: int
    content: str


class RestoreResult(Result):
    status: str
    restored: list[RestoredLine]
    next_offset: int | None


@spell(
    "restoreContext",
    RestoreArgs,
    RestoreResult,
    stage="forget",
    repeatable=True,
    title="Restore a deleted message",
)
def restore_context(episode: Episode, args: RestoreArgs) -> Outcome:
    """Bring back deleted messages exactly as they were."""
    transcript = episode.transcript()
    entries, parts = _resolve(episode, transcript, args.msg_id)
    numbers = tuple(dict.fromkeys([e.message.number for e in entries] + [number for number, _ in parts]))
    hidden = tuple(
        n for n in numbers if _entry(transcript, n).forgotten or _entry(transcript, n).forgotten_parts
    )
    shown = _names([_entry(transcript, n) for n in numbers])
    plugin = episode.plugin()
    # Whoever sees the host's requests knows what they hold; a compaction may have taken more out than was deleted.
    is_watched = episode.sighting() is not None or (plugin is not None and plugin.present is not None)
    stands = (
        all(episode.stands_in_prompt(_entry(transcript, n).message) for n in numbers)
        if is_watched
        else not any(_entry(transcript, n).compacted for n in numbers)
    )
    if not hidden and not args.offset and stands:
        return Outcome(
            RestoreResult(status="not_deleted", restored=[], next_offset=None),
            f"{shown} is in mind already.",
            label="receipt of a restoration",
        )
    if stands if is_watched else episode.physical() == "yes":
        if hidden:
            episode.append([Recalled(hidden)])
        restored = [
            RestoredLine(
                msg_id=_name(_entry(transcript, n)), tokens=_entry(transcript, n).message.tokens, content=""
            )
            for n in numbers
        ]
        return Outcome(
            RestoreResult(status="success", restored=restored, next_offset=None),
            f"Restored {shown} in its old place.",
            label="receipt of a restoration",
        )
    lines: list[str] = []
    restored = []
    next_offset = None
    printed: list[int] = []
    repeated = 0
    room = episode.settings.result_bytes - 700
    for place, number in enumerate(numbers):
        content = episode.content(number)
        begin = args.offset if place == 0 else 0
        if begin and begin >= len(content):
            raise Miscast(
                f"offset is {begin:,}, but {_name(_entry(transcript, number))} has {len(content):,} characters.",
                hint="Leave offset out to read from its start.",
                slug="bad_argument",
            )
        name = _name(_entry(transcript, number))
        head = f"[{name}]" if len(numbers) > 1 else ""
        taken = cut_to_bytes(
            content[begin:], room - sum(len(line.encode()) + 1 for line in lines) - len(head)
        )
        printed.append(number)
        lines.append(f"{head}\n{content[begin : begin + taken]}" if head else content[begin : begin + taken])
        if not is_watched and not _entry(transcript, number).compacted:
            # it stands in our record in its old place: the copy must not count a second time (decision 0010)
            repeated += count_tokens(content[begin : begin + taken])
        restored.append(
            RestoredLine(
                msg_id=name,
                tokens=_entry(transcript, number).message.tokens,
                content=content[begin : begin + taken],
            )
        )
        if begin + taken < len(content):
            next_offset = begin + taken
            rest = [_entry(transcript, n) for n in numbers[place + 1 :]]
            lines.append(
                f"[{len(content) - next_offset:,} more characters: "
                f"restoreContext(msg_id='{name}', offset={next_offset})"
                + (f"; then {_names(rest)}" if rest else "")
                + "]"
            )
            break
    if back := tuple(number for number in hidden if number in printed):
        episode.append([Recalled(back)])
    shown = _names([_entry(transcript, n) for n in printed])
    return Outcome(
        RestoreResult(
            status="success" if hidden else "not_deleted", restored=restored, next_offset=next_offset
        ),
        listing(lines),
        facts=(f"{shown} restored",),
        label=f"{shown} restored",
        repeated_tokens=repeated,
    )


def _name(entry: Entry) -> str:
    """The handle a model knows it by."""
    return entry.message.handle or f"m{entry.message.number}"


def _names(entries: list[Entry]) -> str:
    hosts = [_name(e) for e in entries if e.message.handle]
    ours = [e.message.number for e in entries if not e.message.handle]
    return ", ".join([*([handles(ours)] if ours else []), *hosts[:8]]) + (
        f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    )


def _entry(transcript: Transcript, number: int) -> Entry:
    return transcript.entries[transcript.by_number[number]]


def _resolve(
    episode: Episode, transcript: Transcript, msg_id: str
) -> tuple[list[Entry], list[tuple[int, int]]]:
    """Entries and (message, part) pairs that a `msg_id` names. Raises NoSuchMessage with what there is."""
    entries: dict[int, Entry] = {}
    parts: list[tuple[int, int]] = []
    hosts = {e.message.handle: e for e in transcript.entries if e.message.handle}
    for ref in parse_message_ids(msg_id):
        if ref.host is not None:
            if ref.host not in hosts:
                raise NoSuchMessage(
                    f"There is no message {ref.host} in this episode.",
                    hint="Handles beginning with h are given by the gateway; use the handles at the head of results.",
                )
            entry = hosts[ref.host]
        elif (
            ref.number in transcript.by_number and _entry(transcript, ref.number).message.handle is None
        ):  # a host's result has a number in the ledger, too, which nobody was told
            entry = _entry(transcript, ref.number)
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
                    f"{_name(entry)} has {total} parts, not a part {ref.part}.",
                    hint=f"Write {_name(entry)}.1 to {_name(entry)}.{total}.",
                )
            parts.append((entry.message.number, ref.part))
    if not entries and not parts:
        raise NoSuchMessage(
            f"No message of this episode is in {msg_id[:60]!r}.", hint=_what_there_is(transcript)
        )
    return list(entries.values()), parts


def _what_there_is(transcript: Transcript) -> str:
    results = [e for e in transcript.entries if e.message.role == "tool" and not e.forgotten]
    if not results:
        return "There is nothing to delete yet."
    return f"Results that can be deleted: {_names(results[-40:])}."

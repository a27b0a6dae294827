"""deleteContext, restoreContext: win back tokens, and bring back exactly what stood there.

The answer tells the truth: `physical` says whether the text really leaves the host's prompt, which only our
own loop, the
gateway or a plugin can bring about.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from pensieve_mcp.errors import Miscast
from pensieve_mcp.ledger.events import Entry, Event, Forgot, Pinned, Recalled, Transcript
from pensieve_mcp.ledger.parts import part_tokens, recalled_parts, split_parts
from pensieve_mcp.ledger.stubs import standing_tokens
from pensieve_mcp.spellbook.pointing import entry_at, name_of, names_of, resolve
from pensieve_mcp.spellbook.registry import Args, Handle, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import cut_to_bytes, listing, one_line
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
    entries, parts = resolve(episode, transcript, args.msg_id)
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
                f"{names_of(pinned)} is pinned.",
                hint="Unpin first: deleteContext(msg_id, pin=false).",
                slug="pinned",
            )
        if fixed:
            raise Miscast(
                f"{names_of(fixed)} is what the user said, which is never deleted.",
                hint="Delete results and calls.",
                slug="not_deletable",
            )
        return _outcome(episode, [], 0, [f"{names_of(already)} was deleted before."])
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
    freed = _freed(transcript, episode.transcript(), {*numbers, *(number for number, _ in parts)})
    if pinned:
        lines.append(f"Kept, since pinned: {names_of(pinned)}.")
    if unnoted:
        lines.append(f"Nothing was noted since {names_of(unnoted)} was read; restoreContext brings it back.")
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
            msg_id=f"{name_of(entry_at(transcript, number))}.{part}",
            role="tool",
            tokens=part_tokens(episode.content(number), part),
        )
        for number, part in parts
    ]
    return _outcome(episode, shown, freed, lines)


def _freed(before: Transcript, after: Transcript, numbers: Collection[int]) -> int:
    """Tokens that these messages no longer take. Whoever else speaks in the episode meanwhile is left out of it."""
    return max(
        0,
        sum(standing_tokens(entry_at(before, n)) - standing_tokens(entry_at(after, n)) for n in numbers),
    )


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
            pinned=[name_of(e) for e in entries] if pin else [],
        ),
        f"{'Pinned' if pin else 'Unpinned'} {names_of(entries)}.",
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
    pieces = _pieces(transcript, *resolve(episode, transcript, args.msg_id))
    plugin = episode.plugin()
    # Whoever sees the host's requests knows what they hold; a compaction may have taken more out than was deleted.
    is_watched = episode.sighting() is not None or (plugin is not None and plugin.present is not None)
    stands = (
        all(episode.stands_in_prompt(piece.entry.message) for piece in pieces)
        if is_watched
        else not any(piece.entry.compacted for piece in pieces)
    )
    shown = _pieces_named(pieces)
    hidden = [piece for piece in pieces if piece.is_hidden]
    if not hidden and not args.offset and stands:
        return Outcome(
            RestoreResult(status="not_deleted", restored=[], next_offset=None),
            f"{shown} is in mind already.",
            label="receipt of a restoration",
        )
    if stands if is_watched else episode.physical() == "yes":
        if hidden:
            episode.append([event for piece in hidden for event in piece.events(episode)])
        return Outcome(
            RestoreResult(
                status="success", restored=[piece.line(episode, "") for piece in pieces], next_offset=None
            ),
            f"Restored {shown} in its old place.",
            label="receipt of a restoration",
        )
    return _printed(episode, pieces, args.offset, is_watched=is_watched)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A message to bring back, or parts of one."""

    entry: Entry
    parts: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        name = name_of(self.entry)
        return ", ".join(f"{name}.{part}" for part in self.parts) or name

    @property
    def is_hidden(self) -> bool:
        if self.parts and not self.entry.forgotten:
            return bool(set(self.parts) & set(self.entry.forgotten_parts))
        return self.entry.forgotten or bool(self.entry.forgotten_parts)

    def events(self, episode: Episode) -> list[Event]:
        number = self.entry.message.number
        if not self.parts:
            return [Recalled((number,))]
        return recalled_parts(self.entry, self.parts, episode.content(number))

    def content(self, episode: Episode) -> str:
        whole = episode.content(self.entry.message.number)
        if not self.parts:
            return whole
        texts = split_parts(whole)
        return "".join(texts[part - 1] for part in self.parts)

    def line(self, episode: Episode, content: str) -> RestoredLine:
        message = self.entry.message
        tokens = count_tokens(self.content(episode)) if self.parts else message.tokens
        return RestoredLine(msg_id=self.name, tokens=tokens, content=content)


def _pieces_named(pieces: list[_Piece]) -> str:
    whole = [piece.entry for piece in pieces if not piece.parts]
    names = [names_of(whole)] if whole else []
    return ", ".join([*names, *(piece.name for piece in pieces if piece.parts)])


def _pieces(transcript: Transcript, entries: list[Entry], parts: list[tuple[int, int]]) -> list[_Piece]:
    pieces = [_Piece(entry) for entry in entries]
    whole = {entry.message.number for entry in entries}
    for number in dict.fromkeys(number for number, _ in parts if number not in whole):
        wanted = tuple(sorted({part for n, part in parts if n == number}))
        pieces.append(_Piece(entry_at(transcript, number), wanted))
    return pieces


def _printed(episode: Episode, pieces: list[_Piece], offset: int, *, is_watched: bool) -> Outcome:
    """The words themselves, where their old place is out of reach: as many as fit, from `offset` of the first."""
    lines: list[str] = []
    restored: list[RestoredLine] = []
    printed: list[_Piece] = []
    next_offset = None
    repeated = 0
    room = episode.settings.result_bytes - 700
    for place, piece in enumerate(pieces):
        content = piece.content(episode)
        begin = offset if place == 0 else 0
        if begin and begin >= len(content):
            raise Miscast(
                f"offset is {begin:,}, but {piece.name} has {len(content):,} characters.",
                hint="Leave offset out to read from its start.",
                slug="bad_argument",
            )
        head = f"[{piece.name}]" if len(pieces) > 1 else ""
        taken = cut_to_bytes(
            content[begin:], room - sum(len(line.encode()) + 1 for line in lines) - len(head)
        )
        shown = content[begin : begin + taken]
        printed.append(piece)
        lines.append(f"{head}\n{shown}" if head else shown)
        if not is_watched and not piece.entry.compacted:
            # it stands in our record in its old place: the copy must not count a second time (decision 0010)
            repeated += count_tokens(shown)
        restored.append(piece.line(episode, shown))
        if begin + taken < len(content):
            next_offset = begin + taken
            rest = _pieces_named(pieces[place + 1 :])
            lines.append(
                f"[{len(content) - next_offset:,} more characters: "
                f"restoreContext(msg_id='{piece.name}', offset={next_offset})"
                + (f"; then {rest}" if rest else "")
                + "]"
            )
            break
    if hidden := [piece for piece in printed if piece.is_hidden]:
        episode.append([event for piece in hidden for event in piece.events(episode)])
    names = _pieces_named(printed)
    return Outcome(
        RestoreResult(
            status="success" if any(piece.is_hidden for piece in pieces) else "not_deleted",
            restored=restored,
            next_offset=next_offset,
        ),
        listing(lines),
        facts=(f"{names} restored",),
        label=f"{names} restored",
        repeated_tokens=repeated,
    )

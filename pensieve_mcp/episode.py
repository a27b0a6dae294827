"""One conversation: its transcript, its budget, its chunk set, and who speaks.

An episode is a view on the ledger; several processes may hold the same one. What it knows it reads from
events, so that a
restart changes nothing.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pensieve_mcp.budget import MOMENT_SECONDS, Budget, PluginSight, SeenCall, Sight, Sighting, budget_of
from pensieve_mcp.errors import Miscast, NoSuchChunk, NoSuchDocument
from pensieve_mcp.handles import parse_message_ids
from pensieve_mcp.ledger.events import Entry, Event, Message, Said, Transcript
from pensieve_mcp.ledger.stubs import standing_tokens
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import ChunkSet
    from pensieve_mcp.settings import Settings
    from pensieve_mcp.workspace import Workspace

Physical = Literal["yes", "pending", "next_compaction", "no"]

_CHUNK_HANDLE = re.compile(r"[cC]?([0-9]{1,15})\Z")

_BEGAN = time.time()  # of this process, hence of this stretch of a host's session
SIGHT_SECONDS = 30.0  # a host may ask its model before it starts the server
SIGHT_MESSAGES = 32  # of ours in one turn of a model, calls and results; without a gateway between they go on

RECENT_READS = 8  # chunks in which a quote without a place is looked for first


RUN_VARIABLE = "PENSIEVE_RUN"
GATEWAY_VARIABLE = "PENSIEVE_GATEWAY"
"""Set for a host that `pensieve run` starts, so that a plugin in it leaves the forgetting to the gateway."""

_RUN = re.compile(r"[0-9a-f-]{8,64}\Z")


def remember_run(state: Path, run: str, handle: str) -> None:
    """Note which episode the conversation of a `pensieve run` is. Raises OSError.

    A host may name its conversation to its model's API only, or to the server by another name after it was
    resumed; so the gateway, which sees it, tells the server, which is asked in it.
    """
    place = _place_of_run(state, run)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = place.with_suffix(f".{os.getpid()}")
        scratch.write_text(handle, encoding="ascii")
        scratch.replace(place)


def handle_of_run(state: Path, run: str) -> str | None:
    """The episode's handle, or None while the gateway does not know it."""
    place = _place_of_run(state, run)
    try:
        return place.read_text(encoding="ascii").strip() or None if place is not None else None
    except (OSError, UnicodeDecodeError):
        return None


def forget_run(state: Path, run: str) -> None:
    """The run has ended."""
    if (place := _place_of_run(state, run)) is not None:
        place.unlink(missing_ok=True)


def _place_of_run(state: Path, run: str) -> Path | None:
    return state / "runs" / f"{run}.episode" if _RUN.match(run) else None


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person answered who was asked about a call, and the revision of the note that they were shown."""

    given: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Calling:
    """The call that is being answered. By it an episode knows whether gateway or plugin stand in the way now."""

    tool: str
    arguments: Mapping[str, Any]
    call_id: str | None = None  # the host's, where it tells it
    plugin: PluginSight | None = None  # what a plugin said with it
    approval: Approval | None = None  # a person's answer to what the call wants, where one was asked


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation after checking. `state`: ok, changed, gone, unsupported, unread, unknown."""

    path: str
    locator: str
    chunk_id: int | None
    state: str


class Episode:
    """Handed to every spell. Cheap to make; thread-safe as far as the ledger is."""

    def __init__(
        self,
        workspace: Workspace,
        episode_id: int,
        handle: str,
        *,
        author: str = "",
        sees: Sight = "tool traffic",
        physical: Physical = "no",
        overhead_tokens: int = 0,
    ) -> None:
        self.workspace = workspace
        self.episode_id = episode_id
        self.handle = handle
        self.author = author
        self._sees = sees
        self._physical = physical
        self._overhead_tokens = overhead_tokens
        self._calling: Calling | None = None

    def during(self, calling: Calling) -> Episode:
        """The same conversation while this call is answered."""
        here = copy.copy(self)
        here._calling = calling
        return here

    @property
    def settings(self) -> Settings:
        return self.workspace.settings

    # -- what is in mind -----------------------------------------------------------------------------------

    def transcript(self) -> Transcript:
        return self.workspace.ledger.transcript(self.episode_id)

    def budget(self) -> Budget:
        """Behind the gateway the conversation's real size against the host's window, elsewhere what we see."""
        transcript = self.transcript()
        seen = self.sighting(transcript)
        if seen is None:
            plugin = self.plugin()
            budget = budget_of(
                transcript,
                self.settings,
                sees=self._sees,
                physical=self._physical in ("yes", "pending")
                or (plugin is not None and plugin.drops == "request"),
                overhead_tokens=self._overhead_tokens,
            )
            if plugin is not None and budget.still_in_prompt:
                budget = replace(budget, still_in_prompt=_still_standing(transcript, plugin.gone))
            return budget
        real = seen.prompt + seen.answer + self._said_since(seen, transcript)
        budget = budget_of(
            transcript,
            replace(self.settings, window_tokens=max(seen.window, self.settings.reserve_tokens + 512)),
            sees="conversation",
            physical=True,
            overhead_tokens=real - transcript.visible_tokens,
        )
        return replace(budget, peak=max(seen.peak, real))

    def sighting(self, transcript: Transcript | None = None) -> Sighting | None:
        """What the gateway saw of this conversation, if it stands between the host and its model now.

        While a call is answered it must have seen this very call in the model's answer. Asked beside a call (a
        resource, the command line), it must have been seen since this process began, and not so many messages ago
        that a turn of the model passed by it unseen. Nothing else is asked, no configuration either.
        """
        if self._physical != "no" or self._sees == "conversation":
            return None  # the own loop knows better
        seen = Sighting.from_extra(self.workspace.ledger.extra(self.episode_id))
        if seen is None:
            return None
        if self._calling is not None:
            calls = self._passed(seen, self._calling)
            return seen.as_seen_by(calls) if calls else None
        if seen.at < _BEGAN - SIGHT_SECONDS:
            return None
        ours = [e.message for e in (transcript or self.transcript()).entries if e.message.handle is None]
        if len(ours) > SIGHT_MESSAGES:
            long_ago = self.workspace.ledger.find(ours[-SIGHT_MESSAGES - 1].number)
            if long_ago.at > seen.at:
                return None
        return seen

    def _passed(self, seen: Sighting, calling: Calling) -> list[SeenCall]:
        """The call as the gateway saw it, if it did. By the host's id of it; where the host tells none, by its words:
        then each that was seen counts for one that was made, and it may be any of those that have no result yet.
        One that was seen long before another will not be made: a sub-agent was stopped.
        """
        if calling.call_id is not None:
            named = [[c for c in calls if c.call_id == calling.call_id] for calls in (seen.calls, seen.made)]
            return _latest(named[0] or named[1])
        from pensieve_mcp.wire.calls import arguments_digest

        words = (calling.tool, arguments_digest(calling.arguments))
        alike = [call for call in seen.calls if (call.tool, call.digest) == words]
        latest = _latest(alike)
        return latest if self._is_owed(alike, seen) or self._is_owed(latest, seen) else []

    def _is_owed(self, alike: Sequence[SeenCall], seen: Sighting) -> bool:
        """Whether of these calls, which have the same words, one is still to be made."""
        if not alike:
            return False
        first, words = min(call.at for call in alike), (alike[0].tool, alike[0].digest)
        made = sum(self._words_of(entry) == words for entry in self._calls_since(first, self.transcript()))
        # those that have gone on in the meantime are no more among the alike
        made -= sum(call.at >= first and (call.tool, call.digest) == words for call in seen.made)
        return made < len(alike)

    def _said_since(self, seen: Sighting, transcript: Transcript) -> int:
        """Tokens of our calls and results that came after what the gateway saw and stand in the asker's prompt next:
        those of the turn that asks. Asked beside a call, all there are.
        """
        since = [
            e
            for e in transcript.entries
            if e.message.handle is None and e.message.number > seen.last_number and not e.forgotten
        ]
        calls = self._passed(seen, self._calling) if self._calling is not None else []
        if self._calling is None or not calls:
            return sum(e.message.tokens for e in since)
        call = seen.largest(calls)
        turn = [one for one in (*seen.calls, *seen.made) if one.turn == call.turn and one != call]
        if self._calling.call_id is not None:
            ids = {one.call_id for one in turn}
            return sum(e.message.tokens for e in since if e.message.host_call_id in ids)
        words = {(one.tool, one.digest) for one in turn}
        own = {
            e.message.number
            for e in (self._calls_since(call.at, transcript) if words else ())
            if self._words_of(e) in words
        }
        return sum(e.message.tokens for e in since if own & {e.message.number, e.message.invoking})

    def _calls_since(self, at: float, transcript: Transcript) -> Iterator[Entry]:
        """Calls of ours that were made since then, the latest first."""
        for entry in reversed(transcript.entries):
            if entry.message.role != "assistant" or entry.message.handle is not None:
                continue
            if self.workspace.ledger.find(entry.message.number).at < at:
                return
            yield entry

    def _words_of(self, call: Entry) -> tuple[str, str] | None:
        """Tool and digest of the arguments, as the gateway notes them; None for a refused call's, which are kept
        in part."""
        from pensieve_mcp.wire.calls import arguments_digest

        try:
            given = json.loads(self.content(call.message.number))["arguments"]
        except ValueError:
            return None
        return call.message.tool, arguments_digest(given)

    def approval(self) -> Approval | None:
        """What a person answered who was asked about the call that is answered; None: nobody did."""
        return None if self._calling is None else self._calling.approval

    def plugin(self) -> PluginSight | None:
        """What a plugin of the host said with the call that is answered; behind a gateway it does not count."""
        return None if self._calling is None or self._physical != "no" else self._calling.plugin

    def stands_in_prompt(self, message: Message) -> bool:
        """Whether the host's last request held this message, whole, as far as gateway or plugin saw."""
        seen = self.sighting()
        plugin = self.plugin()
        held = seen.present if seen is not None else plugin.present if plugin is not None else None
        if not held:
            return False
        try:
            refs = parse_message_ids(held)
        except Miscast:
            return False
        return any(
            ref.host == message.handle if message.handle else ref.number == message.number for ref in refs
        )

    def content(self, number: int) -> str:
        """The exact text of a message of this episode. Raises StorageError when it was purged."""
        transcript = self.transcript()
        return self.workspace.ledger.content(transcript.entries[transcript.by_number[number]].message)

    def physical(self) -> Physical:
        """Whether a deletion leaves the host's prompt, by what was seen of this call."""
        seen = self.sighting()
        if seen is not None:
            return "yes" if seen.policy == "eager" else "pending"
        plugin = self.plugin()
        if plugin is not None:
            return "yes" if plugin.drops == "request" else "next_compaction"
        return self._physical

    def physical_advice(self) -> str:
        if self.physical() == "next_compaction":
            return "Its plugin takes them out when it compacts next."
        return "Only a compaction, a fresh window or a subagent drops them there."

    def advice(self, left: int) -> str:
        """The calm line above the threshold, else nothing. Never urgent: urgent words make models prune for
        its own sake."""
        seen = self.sighting()
        window = self.settings.window_tokens if seen is None else seen.window
        used = window - self.settings.reserve_tokens - left
        if used * 100 < self.settings.advise_percent * window:
            return ""
        return (
            f"[{used * 100 // window} % of the window is used. "
            "Note what matters from earlier reads, then deleteContext them.]"
        )

    # -- recording -----------------------------------------------------------------------------------------

    def reserve(self) -> tuple[int, int]:
        """Numbers of the next call and its result; never given twice, in any process."""
        first = self.workspace.ledger.reserve(2)
        return first, first + 1

    def record(
        self,
        *,
        call_number: int,
        number: int,
        tool: str,
        call_text: str,
        text: str,
        label: str,
        chunk_ids: tuple[int, ...],
        is_error: bool,
        host_call_id: str | None,
        thought: str = "",
        repeated_tokens: int = 0,
    ) -> None:
        """Write a call and its result into the ledger, in one transaction. `thought` is what was said with the call,
        where the door hears it; `repeated_tokens` of the result count already elsewhere."""
        contents = {}
        said: list[Event] = []
        for place, role, body in ((call_number, "assistant", call_text), (number, "tool", text)):
            digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()
            contents[digest] = body
            result = role == "tool"
            said.append(
                Said(
                    Message(
                        number=place,
                        role="tool" if result else "assistant",
                        tool=tool,
                        tokens=max(0, count_tokens(body) - repeated_tokens)
                        if result
                        else count_tokens(body) + count_tokens(thought),
                        digest=digest,
                        label=label if result else "",
                        invoking=call_number if result else None,
                        host_call_id=host_call_id,
                        is_error=is_error and result,
                        chunk_ids=chunk_ids if result else (),
                        kept_thought="" if result else thought,
                    )
                )
            )
        self.workspace.ledger.append(self.episode_id, said, contents)

    def append(self, events: Sequence[Event]) -> None:
        self.workspace.ledger.append(self.episode_id, list(events), {})

    # -- reading on ----------------------------------------------------------------------------------------

    @property
    def chunk_set(self) -> ChunkSet:
        return self.workspace.chunk_set_of(self.episode_id)

    def use_chunk_set(self, chunk_set: ChunkSet) -> None:
        self.workspace.remember_chunk_set(self.episode_id, chunk_set)

    def recent_chunks(self) -> tuple[int, ...]:
        """Chunks read lately, the latest first."""
        ids: dict[int, None] = {}
        for entry in reversed(self.transcript().entries):
            for chunk_id in reversed(entry.message.chunk_ids):
                ids[chunk_id] = None
            if len(ids) >= RECENT_READS:
                break
        return tuple(ids)

    def last_read(self) -> int | None:
        """The chunk a scan goes on from: the last one read, deleted or not."""
        for entry in reversed(self.transcript().entries):
            if entry.message.tool == "readChunk" and entry.message.chunk_ids:
                return entry.message.chunk_ids[-1]
        return None

    def position_after(self, chunk_id: int) -> int:
        """The place in document order after this chunk. Raises NoSuchChunk when its text is no longer in
        the documents."""
        try:
            position, _ = self.workspace.corpus.position_of(chunk_id, self.chunk_set)
        except NoSuchChunk as gone:
            raise NoSuchChunk(
                f"The chunk read last, c{chunk_id}, is no longer in the documents, so there is no next one.",
                hint="Name a chunk_id; searchEngine and analyzeText list them.",
            ) from gone
        return position + 1

    def noted_since(self, number: int) -> bool:
        """Whether a note was written after this message."""
        return any(
            entry.message.number > number
            and entry.message.role == "tool"
            and entry.message.tool in ("note", "updateNote")
            and not entry.message.is_error
            for entry in self.transcript().entries
        )

    # -- citing --------------------------------------------------------------------------------------------

    def check_citation(self, citation: str) -> Citation:
        """What a citation points at, and its state: a chunk handle or a path. Notes and messages are `finish`'s."""
        text = citation.strip()
        if match := _CHUNK_HANDLE.match(text):
            return self._cite_chunk(int(match[1]))
        return self._cite_path(text)

    def _cite_chunk(self, chunk_id: int) -> Citation:
        corpus = self.workspace.corpus
        try:
            chunk = corpus.chunk(chunk_id)
        except NoSuchChunk:
            return Citation("", "", chunk_id, "unknown")
        read = any(chunk_id in entry.message.chunk_ids for entry in self.transcript().entries)
        state = self._file_state(chunk.document_id)
        return Citation(
            corpus.document_by_id(chunk.document_id).path,
            corpus.locator(chunk.document_id, chunk.span),
            chunk_id,
            state if read or state != "ok" else "unread",
        )

    def _cite_path(self, path: str) -> Citation:
        try:
            document = self.workspace.corpus.document(path)
        except NoSuchDocument:
            return Citation("", "", None, "unknown")
        return Citation(document.path, "", None, self._file_state(document.document_id))

    def _file_state(self, document_id: int) -> str:
        fresh = self.workspace.corpus.freshness([document_id])[document_id]
        return "ok" if fresh == "yes" else fresh


def _latest(calls: Sequence[SeenCall]) -> list[SeenCall]:
    """Those seen at the same moment as the last of them."""
    last = max((call.at for call in calls), default=0.0)
    return [call for call in calls if call.at >= last - MOMENT_SECONDS]


def _still_standing(transcript: Transcript, gone: str) -> int:
    """Tokens that stand forgotten, less those of `gone`, which a plugin took out of the prompt."""
    try:
        numbers = {ref.number for ref in parse_message_ids(gone) if ref.part is None} if gone else set()
    except Miscast:
        numbers = set()
    away = sum(
        max(0, entry.message.tokens - standing_tokens(entry))
        for entry in transcript.entries
        if entry.forgotten and entry.message.number in numbers
    )
    return max(0, transcript.freed_tokens - away)

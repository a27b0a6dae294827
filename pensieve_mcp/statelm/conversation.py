"""The state of the loop: an episode whose prompt we hold ourselves, so that what is deleted is really gone from it.

Everything it knows is the ledger's fold, and what the ledger holds is what the model was shown: `record` waits until
the dialect has worded the result. So an episode can be continued, drawn and replayed from the ledger alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pensieve_mcp.episode import Episode
from pensieve_mcp.ledger.blobs import digest_of
from pensieve_mcp.ledger.events import IN_MIND, Entry, Forgot, Message, Said, Transcript
from pensieve_mcp.ledger.stubs import KEPT_LAST, Coalescing, Run
from pensieve_mcp.ledger.transfer import sizes
from pensieve_mcp.notebook.types import scratch
from pensieve_mcp.statelm.spoken import F, Spoken
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import ChunkSet
    from pensieve_mcp.episode import Calling
    from pensieve_mcp.notebook.types import Note
    from pensieve_mcp.settings import Settings
    from pensieve_mcp.workspace import Workspace

MAX_THOUGHT_CHARS = 4_000  # what is kept of a thought; longer ones are repetition
DOOR = "loop"
KEPT_CHARS = 2_000_000  # of messages at hand without the ledger: more than the windows of most models
RESERVE_TOKENS, RESERVE_PART = 200, 11  # of a small window: one line of output, of a larger one this part


class Conversation(Episode):
    """One question being answered."""

    question: str = ""
    window_tokens: int | None = None  # of the model, where it is smaller than the settings'
    rounds: int | None = None  # more than the settings' where documents are read in order
    _held: dict[str, Any] | None = None
    _spoken: Spoken | None = None
    _shown: tuple[int, list[Entry | Run]] = -1, []
    _settings: tuple[object, Settings] | None = None
    _kept_chars: int = 0

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @classmethod
    def begin(
        cls,
        workspace: Workspace,
        question: str,
        *,
        model: str = "",
        chunk_set: ChunkSet | None = None,
        private_notes: bool = False,
        under: tuple[str, ...] = (),
        overhead_tokens: int = 0,
    ) -> Conversation:
        """Open an episode and say the question in it. `private_notes`: keys the model writes are kept apart from those
        of other conversations. Raises StorageError."""
        opened = workspace.ledger.open_episode(DOOR, model, title=question[:200])
        new = cls(
            workspace,
            opened.episode_id,
            opened.handle,
            author=model or DOOR,
            sees="conversation",
            physical="yes",
            overhead_tokens=overhead_tokens,
        )
        new.question = question
        if chunk_set is not None:
            new.use_chunk_set(chunk_set)
        workspace.ledger.set_extra(new.episode_id, private_notes=private_notes, under=list(under))
        digest = digest_of(question)
        message = Message(
            number=workspace.ledger.reserve(),
            role="user",
            tool="",
            tokens=count_tokens(question),
            digest=digest,
            label="question",
        )
        workspace.ledger.append(new.episode_id, [Said(message)], {digest: question})
        return new

    @classmethod
    def resume(cls, workspace: Workspace, handle: str) -> Conversation:
        """Go on with an episode of the loop. Raises Miscast (`no_such_episode`)."""
        record = workspace.ledger.episode(handle)
        new = cls(
            workspace,
            record.episode_id,
            record.handle,
            author=record.host or DOOR,
            sees="conversation",
            physical="yes",
        )
        said = next((e.message for e in new.transcript().entries if e.message.role == "user"), None)
        new.question = workspace.ledger.content(said) if said is not None else record.title
        return new

    @cached_property
    def _extra(self) -> dict[str, object]:
        return self.workspace.ledger.extra(self.episode_id)

    @property
    def private_notes(self) -> bool:
        return bool(self._extra.get("private_notes"))

    @property
    def under(self) -> tuple[str, ...]:
        """Paths that searches are kept to."""
        given = self._extra.get("under")
        return tuple(str(path) for path in given) if isinstance(given, list) else ()

    @property
    def settings(self) -> Settings:
        """The workspace's, but in the window of this model, and with as many rounds as reading in order takes."""
        given = self.workspace.settings
        made_of = given, self.rounds, self.window_tokens
        if self._settings is None or self._settings[0] != made_of:
            self._settings = made_of, self._narrowed(given)
        return self._settings[1]

    def _narrowed(self, given: Settings) -> Settings:
        if self.rounds is not None:
            given = replace(given, rounds=max(self.rounds, given.rounds))
        if self.window_tokens is None or self.window_tokens >= given.window_tokens:
            return given
        reserve = min(given.reserve_tokens, max(RESERVE_TOKENS, self.window_tokens // RESERVE_PART))
        return replace(given, window_tokens=self.window_tokens, reserve_tokens=reserve)

    # -- recording -----------------------------------------------------------------------------------------

    def during(self, calling: Calling) -> Conversation:
        """Itself: no gateway or plugin stands in our way, and what a spell records is held here until `settle`."""
        return self

    def record(self, **said: Any) -> None:
        """Held until `settle`: the ledger shall have the words the model sees."""
        self._held = said

    def settle(self, word: Callable[[str], str], *, call_text: str = "", thought: str = "") -> None:
        """Write the call just cast as the model wrote it, its result as `word` makes it of ours."""
        held, self._held = self._held, None
        if held is None:
            return
        held["text"] = word(held["text"])
        held["call_text"] = call_text or held["call_text"]
        super().record(**held, thought=thought[:MAX_THOUGHT_CHARS])

    def say(
        self,
        tool: str,
        call_text: str,
        text: str,
        *,
        thought: str = "",
        is_error: bool = False,
        label: str = "",
        chunk_ids: tuple[int, ...] = (),
    ) -> None:
        """Write a call that no spell answered: no call at all, a refused one, one of the dialect's own."""
        call_number, number = self.reserve()
        super().record(
            call_number=call_number,
            number=number,
            tool=tool,
            call_text=call_text,
            text=text,
            label=label,
            chunk_ids=chunk_ids,
            is_error=is_error,
            host_call_id=None,
            thought=thought[:MAX_THOUGHT_CHARS],
        )

    def forget(self, numbers: tuple[int, ...], reason: str) -> None:
        self.append([Forgot(numbers, reason=reason)])

    # -- what is there -------------------------------------------------------------------------------------

    def _looked_at(self) -> Spoken:
        transcript = self.transcript()
        if self._spoken is None or self._spoken.touched is not transcript.touched:
            self._spoken = Spoken(transcript.touched)
            self._shown = -1, []
        self._spoken.catch_up(transcript)
        return self._spoken

    def spoken(self) -> Sequence[Entry]:
        """Calls and results, without the question. Not to be kept: it changes with the next event."""
        return self._looked_at().entries

    def deletable(self, most: int | None = None) -> tuple[Entry, ...]:
        """Of these what stands there whole and may go; of much the newest."""
        looked = self._looked_at()
        return looked.newest(looked.whole, most)

    def forgotten(self, most: int) -> tuple[Entry, ...]:
        """The newest of what was forgotten."""
        looked = self._looked_at()
        return looked.newest(looked.forgotten, most)

    def anything_forgotten(self) -> bool:
        return bool(self._looked_at().forgotten)

    def whole_results(self) -> int:
        """How many results stand there whole and may go."""
        return self._looked_at().whole_results

    def standing(self, tool: str) -> tuple[Entry, ...]:
        """Results of a tool that were not forgotten."""
        return tuple(e for e in self._looked_at().standing(tool) if not e.message.is_error)

    def worked(self, *tools: str) -> int:
        """How often these tools gave a result."""
        return self._looked_at().worked(*tools)

    def result(self, number: int) -> Entry | None:
        """A result by its number among the results, from 1."""
        looked = self._looked_at()
        return looked.entries[looked.answers[number - 1]] if 1 <= number <= len(looked.answers) else None

    def result_count(self) -> int:
        return len(self._looked_at().answers)

    def fold(self, name: str, start: Callable[[], F]) -> F:
        """The state of a fold over calls and results, to be changed at will; carried on from turn to turn."""
        return self._looked_at().fold(name, start)

    def coalesced(self) -> list[Entry | Run]:
        """Calls and results with old runs of stubs as single lines."""
        looked = self._looked_at()
        if self._shown[0] != looked.known:
            end = max(0, len(looked.entries) - KEPT_LAST)
            shown = looked.fold("coalesced", Coalescing, end).shown(looked.entries[end:])
            self._shown = looked.known, shown
        return self._shown[1]

    def by_number(self, number: int) -> Entry | None:
        """A call or result."""
        return self._looked_at().at(number)

    def call_of(self, entry: Entry) -> tuple[str, dict[str, Any]]:
        """Name and arguments of a call, or ("", {}) where the model called nothing."""
        try:
            said = json.loads(self.text_of(entry))
            return str(said["name"]), dict(said["arguments"])
        except (ValueError, KeyError, TypeError):
            return "", {}

    def text_of(self, entry: Entry) -> str:
        """Its words, as said. Kept at hand, since every turn prints them again."""
        number = entry.message.number
        text = self._texts.get(number)
        if text is None:
            text = self.workspace.ledger.content(entry.message)
            self._texts[number] = text
            self._kept_chars += len(text)
            while self._kept_chars > KEPT_CHARS and len(self._texts) > 1:
                self._kept_chars -= len(self._texts.pop(next(iter(self._texts))))
        return text

    def results(self, *tools: str, errors: bool = False) -> tuple[Entry, ...]:
        """Results of these tools, in order."""
        found = self._looked_at().results(*tools)
        return tuple(e for e in found if errors or not e.message.is_error)

    def noted_since(self, number: int) -> bool:
        """Whether a note was written after this message."""
        looked = self._looked_at()
        last = (looked.last("note"), looked.last("updateNote"))
        return any(e is not None and e.message.number > number for e in last)

    def last_result(self) -> Entry | None:
        spoken = self.spoken()
        return spoken[-1] if spoken else None

    # -- notes ---------------------------------------------------------------------------------------------

    def stored_key(self, key: str) -> str:
        """The notebook's name of a key the model uses."""
        return scratch(self.episode_id) + key if self.private_notes else key

    def shown_key(self, key: str) -> str:
        return key.removeprefix(scratch(self.episode_id)) if self.private_notes else key

    def keys(self) -> tuple[str, ...]:
        """Keys written in this conversation, as stored, in order of first writing."""
        written: dict[str, None] = {}
        for entry in self.results("note", "updateNote"):
            call = self.by_number(entry.message.invoking or 0)
            key = self.call_of(call)[1].get("key") if call is not None else None
            if isinstance(key, str):
                written[self.stored_key(key.strip())] = None
        return tuple(written)

    def notes(self) -> tuple[Note, ...]:
        """This conversation's notes as they are now."""
        found = (self.workspace.notebook.current(key) for key in self.keys() if key.strip())
        return tuple(note for note in found if note is not None and not note.deleted)

    def index_lines(self, limit: int = 60) -> list[str]:
        """`key: summary` of the notes, this conversation's first; where notes are shared the workspace's after them."""
        own = self.notes()
        lines = [f"{self.shown_key(note.key)}: {' '.join(note.summary.split())}" for note in own]
        if not self.private_notes:
            keys = {note.key for note in own}
            page = self.workspace.notebook.list(limit=limit)
            more = [line for line in page.lines if line.key not in keys]
            room = max(0, limit - len(lines))
            lines += [f"{line.key}: {' '.join(line.summary.split())}" for line in more[:room]]
            if page.total > len(keys) + room:
                lines.append("More notes: readNote() lists them.")
        return lines

    # -- size ----------------------------------------------------------------------------------------------

    def visible(self) -> Transcript:
        return self.transcript()

    def in_mind(self) -> tuple[int, ...]:
        """Tokens of the prompt after each result, as far as it was written down."""
        return tuple(sizes(self.workspace.ledger.extra(self.episode_id).get(IN_MIND)))

    def write_down(self, in_mind: Sequence[int]) -> None:
        self.workspace.ledger.set_extra(self.episode_id, **{IN_MIND: list(in_mind)})

    def with_overhead(self, tokens: int) -> None:
        """What the prompt holds besides the transcript: system prompt, schemas, notes."""
        self._overhead_tokens = tokens


def heaviest_results(conversation: Conversation) -> list[Entry]:
    """Results that may go, heaviest first; the last one stays, since it was not looked at yet."""
    last = conversation.last_result()
    movable = [e for e in conversation.deletable() if e.message.role == "tool" and e is not last]
    return sorted(movable, key=lambda e: -e.message.tokens)

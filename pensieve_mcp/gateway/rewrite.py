"""What goes to the model in place of a request: the pure core of the gateway.

(request, dialect, facts, policy) → (bytes, report). Contents of deleted results become constant stubs; a call
and its result stay paired; host results above a size get a handle line. Everything else passes byte for byte: edits
replace raw spans. Without deletions and handle lines the bytes that came are the bytes that go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.gateway.reading import Facts, Known, Story, part_borders, read_story
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN, Decision, Policy, Schedule, schedule
from pensieve_mcp.ledger.events import Entry, Event, Forgot, Message, Recalled, Said, Transcript
from pensieve_mcp.ledger.folding import Folder
from pensieve_mcp.ledger.stubs import part_stub, stub, stub_tokens
from pensieve_mcp.tokens import count_tokens
from pensieve_mcp.wire.conversation import Conversation, Dialect, Item
from pensieve_mcp.wire.dialects import read_request
from pensieve_mcp.wire.reading import Earlier
from pensieve_mcp.wire.spans import Edit, decoded, encoded, members, places_in_string, splice

STUB_TOKENS = 45  # what a stub is taken to cost when a deletion is timed
BYTES_A_PICTURE_TOKEN = 400  # base64 of a picture; providers count its area, which nobody here knows
ARGUMENT = "pensieve"  # the one argument that a forgotten call keeps


@dataclass(frozen=True, slots=True)
class Standing:
    """A message with a handle as it stands in the request that goes on."""

    handle: str
    call_id: str
    role: str
    tool: str
    label: str
    tokens: int
    state: str  # whole, forgotten, waiting (forgotten, not yet applied), in part, gone (a stub when it came)
    digest: bytes = b""  # of a result of ours as we said it; empty where a host changed it


@dataclass(frozen=True, slots=True)
class HostResult:
    """A host's own result that bears a handle; `text` is what it said, for the ledger."""

    handle: str
    call_id: str
    tool: str
    label: str
    tokens: int
    is_error: bool
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was done to one request. Sizes of the request in bytes, savings in estimated tokens."""

    dialect: Dialect
    bytes_in: int
    bytes_out: int
    model: str = ""
    session: str = ""
    items: int = 0
    has_tools: bool = False  # without tools it is a host's side errand (a title, a summary), no turn
    messages: tuple[Standing, ...] = ()
    host_results: tuple[HostResult, ...] = ()
    stubbed: int = 0
    saved_tokens: int = 0
    waiting_tokens: int = 0
    decisions: tuple[Decision, ...] = ()
    own_calls: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Lines:
    """Handle lines and what they cost to make, kept from request to request: a result's size is counted once."""

    made: dict[tuple[str, int], tuple[str, int, str]] = field(default_factory=dict)

    def get(self, call_id: str, size: int, make: Callable[[], tuple[str, int, str]]) -> tuple[str, int, str]:
        key = (call_id, size)
        if key not in self.made:
            if len(self.made) > 20_000:
                self.made.clear()
            self.made[key] = make()
        return self.made[key]


def rewrite(
    raw: bytes,
    dialect: Dialect,
    facts: Facts,
    policy: Policy,
    *,
    handle_tokens: int | None = None,
    lines: Lines | None = None,
    earlier: Earlier | None = None,
) -> tuple[bytes, Report]:
    """The body that goes on, and what was done.

    Host results of `handle_tokens` and more get a handle; None gives none. `lines` and `earlier` save work from
    request to request and change no answer. Never raises: what cannot be read is passed on as it came, and the
    report says so.
    """
    try:
        conversation = read_request(raw, dialect, earlier)
        return _Rewriting(conversation, facts, policy, handle_tokens, lines or Lines()).done()
    except (PensieveError, UnicodeError, ValueError, RecursionError) as error:
        return raw, Report(dialect, len(raw), len(raw), notes=(f"Passed on as it came: {error}",))


class _Rewriting:
    def __init__(
        self,
        conversation: Conversation,
        facts: Facts,
        policy: Policy,
        handle_tokens: int | None,
        lines: Lines,
    ) -> None:
        self._conversation = conversation
        self._policy = policy
        self._lines = lines
        self._handle_tokens = handle_tokens
        # Two bytes a token is less than any text takes but Chinese, Japanese and Korean; those are counted anyway.
        self._story: Story = read_story(
            conversation, facts, handle_bytes=None if handle_tokens is None else handle_tokens * 2
        )
        self._edits: list[Edit] = []
        self._states: dict[int, str] = {}
        self._host: dict[int, HostResult] = {}
        self._notes: list[str] = list(self._story.notes)
        if conversation.has_server_state:
            self._notes.append(
                "The request names an earlier one: what the provider keeps itself cannot be forgotten."
            )

    def done(self) -> tuple[bytes, Report]:
        self._measure_all()
        plan, last = self._plan()
        saved = 0
        for entry in last.entries:
            known = self._story.known[entry.message.number]
            if entry.forgotten and not known.is_stub:
                if known.place in plan.applied:
                    saved += self._stub(known, replace(entry, message=known.message))
                    self._states[entry.message.number] = "forgotten"
                    continue
                self._states[entry.message.number] = "waiting"
            elif known.is_stub:
                self._states[entry.message.number] = "gone"
            if not entry.forgotten and entry.forgotten_parts and not known.is_stub:
                saved += self._stub_parts(known, entry)
            if not known.is_ours and not known.is_stub:
                self._line(known)
        body = splice(self._conversation.raw, self._edits)
        return body, self._report(body, plan, saved)

    # -- what is forgotten now -------------------------------------------------------------------------------

    def _plan(self) -> tuple[Schedule, Transcript]:
        """The items whose deletion is in force, and the transcript at the end of the conversation."""
        events = self._story.events
        folder = Folder()
        if not any(isinstance(event, Forgot) for _, event in events):
            folder.extend(event for _, event in events)
            return Schedule(), folder.transcript()
        known = self._story.known
        forgotten: dict[int, frozenset[int]] = {}
        now: set[int] = set()
        standing: frozenset[int] = frozenset()
        read = 0
        for place in self._story.requests:
            changed = False
            while read < len(events) and events[read][0] < place:
                event = events[read][1]
                folder.add(event)
                read += 1
                if isinstance(event, Forgot | Recalled):
                    changed = True
                    for number in event.numbers:
                        entry = folder.entry(number)
                        if entry is not None and entry.forgotten and not known[number].is_stub:
                            now.add(known[number].place)
                        else:
                            now.discard(known[number].place)
            if changed:
                standing = frozenset(now)
            forgotten[place] = standing
        items = self._conversation.items
        sizes = [max(1, (item.span[1] - item.span[0]) // BYTES_PER_TOKEN) for item in items]
        before = sum(self._conversation.parts.get(part, 0) for part in ("system", "tools")) // BYTES_PER_TOKEN
        plan = schedule(
            sizes,
            lambda place: min(STUB_TOKENS, sizes[place]),
            self._story.requests,
            lambda place: forgotten[place],
            self._policy,
            before_tokens=before,
        )
        return plan, folder.transcript()

    # -- edits -----------------------------------------------------------------------------------------------

    def _stub(self, known: Known, entry: Entry) -> int:
        """Put the stub in its place; answers the estimated tokens saved."""
        item = known.item
        if item.body is None:
            return 0
        made = item.memo.get("stub")
        if made is None or made[0] != entry:
            made = item.memo["stub"] = (entry, stub(entry))
        words: str = made[1]
        if item.kind == "call":
            self._stub_arguments(item, words)
        elif not item.blocks:
            self._edits.append(Edit(*item.body, encoded(words)))
        else:
            self._stub_blocks(item, words)
        removed = item.body[1] - item.body[0]
        return max(0, removed // BYTES_PER_TOKEN - stub_tokens(words))

    def _stub_arguments(self, item: Item, words: str) -> None:
        assert item.body is not None
        if item.is_free:
            new = encoded(words)
        else:
            fields = b"{" + encoded(ARGUMENT) + b": " + encoded(words) + b"}"
            new = encoded(fields.decode("ascii")) if item.in_string else fields
        self._edits.append(Edit(*item.body, new))

    def _stub_blocks(self, item: Item, words: str) -> None:
        """Of a list of blocks the first text keeps its place with the stub; the others go, less a caching mark."""
        raw = self._conversation.raw
        keep = next(
            (block for block in item.blocks if any(block[0] < text[0] < block[1] for text in item.texts)),
            None,
        )
        marked = [
            block for block in item.blocks if block != keep and b'"cache_control"' in raw[slice(*block)]
        ]
        if keep is None or marked:
            # Nothing to keep, or a caching mark on a block that goes: the whole list is written anew, with the mark.
            self._edits.append(Edit(*self._span(item), self._list_with(item, words, marked)))
            return
        text = next(text for text in item.texts if keep[0] < text[0] < keep[1])
        self._edits.append(Edit(*text, encoded(words)))
        inside = self._span(item)
        if keep[0] > inside[0] + 1 and item.blocks[0] != keep:
            self._edits.append(Edit(item.blocks[0][0], keep[0], b""))
        if item.blocks[-1] != keep:
            self._edits.append(Edit(keep[1], item.blocks[-1][1], b""))

    def _list_with(self, item: Item, words: str, marked: list[tuple[int, int]]) -> bytes:
        kind = b"input_text" if self._conversation.dialect == "responses" else b"text"
        mark = b""
        if marked:
            found, _ = members(self._conversation.raw.decode("latin-1"), marked[-1][0])
            if (span := found.get("cache_control")) is not None:
                mark = b', "cache_control": ' + self._conversation.bytes_of(span)
        return b'[{"type": "' + kind + b'", "text": ' + encoded(words) + mark + b"}]"

    @staticmethod
    def _span(item: Item) -> tuple[int, int]:
        assert item.body is not None
        return item.body

    def _stub_parts(self, known: Known, entry: Entry) -> int:
        """Parts of a long result; their borders are those of the text as we said it, after a host's own words."""
        for span in known.item.texts:
            raw = self._conversation.bytes_of(span)
            text = str(decoded(raw, span[0]))
            start = self._head_in(text, known)
            if start is None:
                continue
            if any(part_stub(known.message, part) in text for part in entry.forgotten_parts):
                return 0  # another gateway was here
            borders = part_borders(text[start:])
            wanted = [part for part in entry.forgotten_parts if 1 <= part < len(borders)]
            ends = [start + border for part in wanted for border in (borders[part - 1], borders[part])]
            places = places_in_string(raw, ends)
            saved = 0
            for part, first, last in zip(wanted, places[::2], places[1::2], strict=True):
                words = part_stub(known.message, part) + "\n"
                # A quoted string without its quotes is what stands inside one.
                self._edits.append(Edit(span[0] + first, span[0] + last, encoded(words)[1:-1]))
                saved += max(0, (last - first) // BYTES_PER_TOKEN - count_tokens(words))
            self._states[known.message.number] = "in part"
            return saved
        return 0

    @staticmethod
    def _head_in(text: str, known: Known) -> int | None:
        if not known.is_ours:
            return 0 if len(known.item.texts) == 1 else None
        begin = f"m{known.message.number} · "
        if text.startswith(begin):
            return 0
        at = text.find("\n" + begin)
        return at + 1 if 0 <= at <= 120 and text.startswith(("Wall time: ", "Output:")) else None

    # -- the host's own results ------------------------------------------------------------------------------

    def _measure_all(self) -> None:
        """Count the host's results, each once in its life; too small a one has no handle after all."""
        counted: dict[int, Message | None] = {}
        for number, known in list(self._story.known.items()):
            if known.is_ours or known.is_stub:
                continue
            line, tokens, text = self._lines.get(
                known.item.call_id, self._size(known.item), partial(self._counted, known)
            )
            if self._handle_tokens is not None and tokens < self._handle_tokens:
                counted[number] = None
                del self._story.known[number]
                continue
            message = counted[number] = replace(known.message, tokens=tokens)
            self._story.known[number] = replace(known, message=message, line=line)
            self._host[number] = HostResult(
                message.handle or "",
                known.item.call_id,
                message.tool,
                message.label,
                tokens,
                message.is_error,
                text,
            )
        events: list[tuple[int, Event]] = []
        for place, event in self._story.events:
            if isinstance(event, Said) and event.message.number in counted:
                if (message_ := counted[event.message.number]) is not None:
                    events.append((place, Said(message_)))
            else:
                events.append((place, event))
        self._story.events = events

    def _counted(self, known: Known) -> tuple[str, int, str]:
        """The handle line, the tokens and the words of a host's result."""
        message = known.message
        begin = f"{message.handle} · "
        text = self._conversation.text_of(known.item)
        if text.startswith(begin):  # another gateway was here: its line is no part of the result
            text = text.partition("\n")[2]
        tokens = count_tokens(text) if text else self._size(known.item) // BYTES_A_PICTURE_TOKEN
        words = " ".join(part for part in (message.tool, message.label) if part)
        return f"{begin}{words} · {tokens:,} tokens\n", tokens, text

    def _size(self, item: Item) -> int:
        first, end = self._span(item)
        return end - first

    def _line(self, known: Known) -> None:
        """Write the handle line before the result's first text, unless it stands there."""
        item, words = known.item, known.line
        inside = encoded(words)[1:-1]
        if item.texts:
            start = item.texts[0][0] + 1
            if not self._conversation.raw.startswith(inside, start):
                self._edits.append(Edit(start, start, inside))
        elif item.blocks and self._conversation.dialect == "anthropic":
            start = item.blocks[0][0]
            self._edits.append(Edit(start, start, b'{"type": "text", "text": "' + inside + b'"}, '))

    # -- telling ---------------------------------------------------------------------------------------------

    def _report(self, body: bytes, plan: Schedule, saved: int) -> Report:
        standing = tuple(
            Standing(
                handle=known.message.handle or f"m{number}",
                call_id=known.message.host_call_id or "",
                role=known.message.role,
                tool=known.message.tool,
                label=known.message.label,
                tokens=known.message.tokens,
                state=self._states.get(number, "whole"),
                digest=known.digest,
            )
            for number, known in self._story.known.items()
        )
        return Report(
            dialect=self._conversation.dialect,
            bytes_in=len(self._conversation.raw),
            bytes_out=len(body),
            model=self._conversation.model,
            session=self._conversation.session,
            items=len(self._conversation.items),
            has_tools=self._conversation.parts.get("tools", 0) > 2,
            messages=standing,
            host_results=tuple(self._host.values()),
            stubbed=sum(state == "forgotten" for state in self._states.values()),
            saved_tokens=saved,
            waiting_tokens=sum(one.tokens for one in standing if one.state == "waiting"),
            decisions=plan.decisions,
            own_calls=tuple(
                one.call_id for one in standing if one.role == "tool" and one.handle.startswith("m")
            ),
            notes=tuple(self._notes),
        )

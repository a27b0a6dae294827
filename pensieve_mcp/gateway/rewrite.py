"""What goes to the model in place of a request: the pure core of the gateway.

(request, dialect, facts, policy) → (bytes, report). Contents of deleted results become constant stubs; a call
and its result stay paired; host results above a size get a handle line. Everything else passes byte for byte: edits
replace raw spans. Without deletions and handle lines the bytes that came are the bytes that go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.gateway.editing import Standing, done_to
from pensieve_mcp.gateway.reading import Facts, Known, Lines, host_text
from pensieve_mcp.gateway.replaying import Replay, Rules
from pensieve_mcp.gateway.timing import BYTES_PER_TOKEN, Decision, Policy
from pensieve_mcp.wire.conversation import Conversation, Dialect
from pensieve_mcp.wire.dialects import read_request
from pensieve_mcp.wire.reading import Earlier
from pensieve_mcp.wire.spans import Edit, splice

__all__ = ["HostResult", "Lines", "Report", "Standing", "rewrite"]


@dataclass(frozen=True, slots=True)
class HostResult:
    """A host's own result that bears a handle."""

    known: Known
    conversation: Conversation = field(compare=False, repr=False)

    @property
    def handle(self) -> str:
        return self.known.message.handle or ""

    @property
    def call_id(self) -> str:
        return self.known.item.call_id

    @property
    def tool(self) -> str:
        return self.known.message.tool

    @property
    def label(self) -> str:
        return self.known.message.label

    @property
    def tokens(self) -> int:
        return self.known.message.tokens

    @property
    def is_error(self) -> bool:
        return self.known.message.is_error

    @property
    def text(self) -> str:
        """What it said, for the ledger."""
        return host_text(self.conversation, self.known.item, self.handle)


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
    notes: tuple[str, ...] = ()
    conversation: Conversation | None = field(default=None, compare=False, repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)


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
        before = sum(conversation.parts.get(part, 0) for part in ("system", "tools")) // BYTES_PER_TOKEN
        rules = Rules(facts, policy, handle_tokens, before)
        return _rewritten(conversation, Replay.of(conversation, rules, lines or Lines()))
    except (PensieveError, UnicodeError, ValueError, RecursionError) as error:
        return raw, Report(dialect, len(raw), len(raw), notes=(f"Passed on as it came: {error}",))


def _rewritten(conversation: Conversation, replay: Replay) -> tuple[bytes, Report]:
    edits: list[Edit] = []
    messages: list[Standing] = []
    host: list[HostResult] = []
    saved = stubbed = waiting = 0
    applied = replay.timing.applied
    for known, entry in replay.messages():
        done = done_to(conversation, known, entry, applied=known.place in applied)
        edits += done.edits
        saved += done.saved
        messages.append(done.standing)
        if done.standing.state == "forgotten":
            stubbed += 1
        elif done.standing.state == "waiting":
            waiting += done.standing.tokens
        if not known.is_ours and not known.is_stub and known.message.role == "tool":
            host.append(HostResult(known, conversation))
    body = splice(conversation.raw, edits)
    notes = (
        ("The request names an earlier one: what the provider keeps itself cannot be forgotten.",)
        if conversation.has_server_state
        else ()
    )
    return body, Report(
        dialect=conversation.dialect,
        bytes_in=len(conversation.raw),
        bytes_out=len(body),
        model=conversation.model,
        session=conversation.session,
        items=len(conversation.items),
        has_tools=conversation.parts.get("tools", 0) > 2,
        messages=tuple(messages),
        host_results=tuple(host),
        stubbed=stubbed,
        saved_tokens=saved,
        waiting_tokens=waiting,
        decisions=tuple(replay.timing.decisions),
        notes=notes,
        conversation=conversation,
        edits=tuple(edits),
    )

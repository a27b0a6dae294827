"""The dialect of the small model that comes with us: a state of a few dozen tokens, one short line a call.

    Question: Where was the founder of the Arvale Museum born?
    Note: The Arvale Museum was founded by Ada Quill.
    Found for Ada Quill born:
    Ada Quill was born in Pelham. =1
    Ada Quill worked as a botanist. =2
    → read 1

A model of 135 million weights neither copies nor counts well, so it chooses. What it chooses from is numbered, the
number behind it, and put in order by rule: hits that hold all names of the query first (`=`, else `~`), then those
that hold most of its words, dated lines latest first. A note is one sentence of the text in sight (its evidence is
exact), an answer a run of a note's words, a name in a query one of the question or a note. A move without an
alternative (the question's own words as first search, deleting what was noted from or holds nothing) is made without
asking the model; it is cast and written down like any other. What is deleted is not printed any more, a hit that was
read neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.errors import Miscast
from pensieve_mcp.statelm.conversation import Conversation
from pensieve_mcp.statelm.dialects import Answered
from pensieve_mcp.statelm.dialects.hits import hit_lines
from pensieve_mcp.statelm.dialects.moves import Moves, grammar_of, moves_of
from pensieve_mcp.statelm.dialects.view import (
    FETCHED_HITS,
    LATEST_FIRST,
    MAX_READ_CHARS,
    View,
    hits_of,
    view_of,
)
from pensieve_mcp.statelm.offering import Offer
from pensieve_mcp.statelm.template import END, START, harmless
from pensieve_mcp.statelm.turns import Call, Prompt, Reply

if TYPE_CHECKING:
    from pensieve_mcp.spellbook.casting import CastResult

CHUNK_TOKENS = 180  # holds one passage, which is what a search finds
WINDOW_TOKENS = 2_200  # with 200 kept free: never more than 2,000 in mind
MAX_OUTPUT_TOKENS = 120
LINE = re.compile(r"\s*(read|note|drop|search|finish)\b[ \t]*([^\n]*)")


class Compact:
    """See the module. It remembers the state it printed last: the numbers in a reply are those of that state."""

    name = "compact"
    private_notes = True

    def __init__(self, *, search: bool = True, window_tokens: int = WINDOW_TOKENS) -> None:
        self.search = search
        self.window_tokens: int | None = window_tokens
        self._view: View | None = None

    @property
    def chunk_set(self) -> ChunkSet | None:
        return ChunkSet(CHUNK_TOKENS, 0)

    def hits_in(self, text: str) -> list[int]:
        return [hit.chunk_id for hit in hits_of(text)]

    # -- printing ------------------------------------------------------------------------------------------

    def prompt(self, conversation: Conversation, offer: Offer) -> Prompt:
        view, moves = self.look(conversation, offer)
        text = state_text(view) + f"{START}assistant\n"
        return Prompt(
            messages=({"role": "user", "content": text},),
            text=text,
            grammar=grammar_of(view, moves),
            stop=(END, "\n"),
            max_output_tokens=MAX_OUTPUT_TOKENS,
            forced=moves.forced,
        )

    def look(self, conversation: Conversation, offer: Offer) -> tuple[View, Moves]:
        """What is in sight and what can be done; the numbers of the next reply are read by it."""
        view = view_of(conversation, search=self.search, crowded=offer.crowded)
        self._view = view
        return view, moves_of(view, last_round=offer.last_round)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, reply: Reply) -> tuple[str, list[Call]]:
        match = LINE.match(reply.text)
        view = self._view
        if match is None or view is None:
            return reply.text.strip(), []
        call = _call(view, match[1], match[2].strip())
        return ("", [call]) if call is not None else (reply.text.strip(), [])

    def translate(self, conversation: Conversation, call: Call) -> Call | Answered:
        given = call.arguments
        match call.name:
            case "searchEngine":
                search: dict[str, Any] = {"keyword": str(given.get("query", "")), "limit": FETCHED_HITS}
                if (
                    not conversation.notes()
                ):  # until something is known, the question itself is the best query
                    search["queries"] = [conversation.question]
                if len(conversation.under) == 1:
                    search["under"] = conversation.under[0]
                return Call(call.name, search)
            case "readChunk":
                return Call(
                    call.name, {"chunk_id": str(given["id"])} if "id" in given else {"enable_scan": True}
                )
            case "note":
                text = str(given.get("text", ""))
                source = given.get("source")
                evidence = [{"chunk_id": str(source), "quote": text}] if source is not None else []
                key = conversation.stored_key(str(given.get("key", "fact")))
                return Call(
                    call.name, {"key": key, "summary": text[:200], "content": text, "evidence": evidence}
                )
            case "deleteContext":
                return Call(call.name, {"msg_id": _message_ids(conversation, given)})
            case "finish":
                keys = [note.key for note in conversation.notes()]
                return Call(call.name, {"answer": str(given.get("answer", "")), "citations": keys})
        raise Miscast(
            f"error: no tool {call.name[:40]}", hint="Write read, note, drop, search or finish.", slug="no_such_spell"
        )  # fmt: skip

    def word(self, conversation: Conversation, call: Call, result: CastResult, ours: str) -> str:
        if result.is_error:
            head, _, rest = ours.partition("\n")
            return "error: " + (rest or head)[:200]
        match call.name:
            case "searchEngine":
                query = str(call.arguments.get("query", ""))
                found = [
                    (int(hit["chunk_id"]), hit["highlights"]) for hit in result.result["retrieved_chunks"]
                ]
                return "\n".join(hit_lines(conversation, query, found)) or "no hits"
            case "readChunk":
                whole = "\n\n".join(part["content"] for part in result.result["retrieved_chunk"])
                # paragraphs stay apart, so that a heading does not become the beginning of a sentence
                parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", whole))
                return "\n\n".join(part for part in parts if part)[:MAX_READ_CHARS]
            case "note":
                return "saved"
            case "deleteContext":
                return "ok"
            case "finish":
                return "done"
        return ours


def state_text(view: View) -> str:
    """The state without the opening of the next turn; what training samples are cut from."""
    head = [f"Question: {view.question}", *(f"Note: {note}" for note in view.notes)]
    head += [f"Nothing for {query}" for query in view.vain]
    if view.hits:
        order = f", {LATEST_FIRST}" if view.latest_first else ""
        head.append(f"Found for {view.query}{order}:")
        head += [f"{hit.sentence} {hit.mark}{number}" for number, hit in enumerate(view.hits, 1)]
    out = [f"{START}user\n{harmless(chr(10).join(head))}{END}\n"]
    if view.text is not None:
        number = next((n for n, hit in enumerate(view.hits, 1) if hit.chunk_id == view.source), 0)
        if number:
            out.append(f"{START}assistant\nread {number}{END}\n")
        out.append(f"{START}user\n{harmless(_passage(view.text, view.notable))}{END}\n")
    return "".join(out)


def _passage(text: Sequence[str], notable: Sequence[str]) -> str:
    """The sentences that a note can be made of, numbered, with the one before and the one after each."""
    near = {place + step for place, one in enumerate(text) if one in notable for step in (-1, 0, 1)}
    shown: list[str] = []
    for place, one in enumerate(text):
        if place in near:
            shown.append(f"{one} ={notable.index(one) + 1}" if one in notable else one)
        elif not shown or shown[-1] != "…":
            shown.append("…")
    return " ".join(shown)


def _call(view: View, verb: str, rest: str) -> Call | None:
    """The call that a line means in this state; None where its number is not there."""
    number = int(rest) - 1 if rest.isdecimal() else -1
    match verb:
        case "read" if view.search and 0 <= number < len(view.hits):
            return Call("readChunk", {"id": view.hits[number].chunk_id})
        case "read" if not view.search and not rest:
            return Call("readChunk", {})
        case "note" if 0 <= number < len(view.notable):
            fact = {"key": f"fact {len(view.notes) + 1}", "text": view.notable[number]}
            return Call("note", fact if view.source is None else {**fact, "source": view.source})
        case "drop" if view.in_sight:
            return Call("deleteContext", {"ids": list(view.in_sight[-1:])})
        case "search" if rest:
            return Call("searchEngine", {"query": rest})
        case "finish" if rest:
            return Call("finish", {"answer": rest})
    return None


def line_of(view: View, call: Call) -> str:
    """The line that would make this call in this state. Raises ValueError where none does."""
    given = call.arguments
    match call.name:
        case "readChunk" if "id" in given:
            return f"read {[hit.chunk_id for hit in view.hits].index(given['id']) + 1}"
        case "readChunk":
            return "read"
        case "note":
            return f"note {view.notable.index(given['text']) + 1}"
        case "deleteContext":
            return "drop"
        case "searchEngine":
            return f"search {given['query']}"
        case "finish":
            return f"finish {given['answer']}"
    raise ValueError(call.name)


def _message_ids(conversation: Conversation, given: Any) -> str:
    ids = given.get("ids", [])
    wanted = []
    for one in ids if isinstance(ids, list) else [ids]:
        result = conversation.result(int(one)) if str(one).isdecimal() else None
        if result is None:
            raise Miscast(
                f"no message {one}",
                hint=f"There are 1 to {conversation.result_count()}.",
                slug="no_such_message",
            )
        wanted.append(f"m{result.message.number}")
    if not wanted:
        raise Miscast("ids is empty", hint="Name at least one message.", slug="bad_argument")
    return ",".join(wanted)

"""The dialect of the small model that comes with us: one line a call, a few dozen tokens a state, everything else bound
by a grammar made from the state.

    Question: Who founded the Arvale Museum?
    (468231 tokens, 2204 chunks, index ready)
    Notes:
    founder: The Arvale Museum was founded by Ada Quill.
    → readChunk {"id":17}

A model of 135 million weights cannot be trusted to copy, so it never copies: the text of a note is one of the sentences
it has just read (so its evidence is exact), an answer is a stretch of a note's words, a name in a query comes from the
question or a note, ids are those that exist. What is left to it is choosing. The tools it knows lie in its weights; no
system prompt is shown. Results alone have ids (from 1) and can be deleted; notes stand in the first message at every
turn; old pairs whose result is gone are not shown at all, so that a scan of a million tokens fits.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.errors import Miscast
from pensieve_mcp.ledger.events import Entry
from pensieve_mcp.statelm.conversation import Conversation
from pensieve_mcp.statelm.dialects import Answered
from pensieve_mcp.statelm.offering import Offer
from pensieve_mcp.statelm.sentences import STOP, WORD, coverage, names, sentences, stems
from pensieve_mcp.statelm.template import END, START, harmless
from pensieve_mcp.statelm.turns import Call, Prompt, Reply

if TYPE_CHECKING:
    from pensieve_mcp.spellbook.casting import CastResult

CHUNK_TOKENS = 180  # holds one passage, which is what a search finds
WINDOW_TOKENS = 2_200  # with 200 kept free: never more than 2,000 in mind
FETCHED_HITS = 8
SHOWN_HITS = 3  # of them, those nearest to the question: a small model writes half a query
SNIPPET_WORDS = 12
MAX_READ_CHARS = 1_400
KEPT_PAIRS = 14  # pairs of call and result that stay in sight
MAX_QUERY_WORDS = 8
MAX_OUTPUT_TOKENS = 160
MAX_ANSWER_WORDS = 12
NOTABLE = 3  # sentences that a note can be made of
ARTICLES = frozenset(("a", "an", "the"))
NOT_FOUND = "not found"

LINE = re.compile(r"\s*([A-Za-z]+)\s*(\{.*?\})\s*(?:\n|\Z)", re.S)
HIT = re.compile(r"^(\d+): ", re.M)
ARGUMENTS = {
    "searchEngine": "query",
    "readChunk": "id",
    "note": "key, text",
    "deleteContext": "ids",
    "finish": "answer",
}


class Compact:
    """See the module. `notes_block` False prints the form that the first, experimental adapter was trained on."""

    name = "compact"
    private_notes = True
    window_tokens: int | None = WINDOW_TOKENS

    def __init__(self, *, search: bool = True, notes_block: bool = True) -> None:
        self.search = search
        self.notes_block = notes_block

    @property
    def chunk_set(self) -> ChunkSet | None:
        return ChunkSet(CHUNK_TOKENS, 0)

    def hits_in(self, text: str) -> list[int]:
        return [int(found) for found in HIT.findall(text)]

    # -- printing ------------------------------------------------------------------------------------------

    def prompt(self, conversation: Conversation, offer: Offer) -> Prompt:
        text = self.state_text(conversation) + f"{START}assistant\n"
        return Prompt(
            messages=({"role": "user", "content": text},),
            text=text,
            grammar=grammar(conversation, offer, search=self.search),
            stop=(END, "\n"),
            max_output_tokens=MAX_OUTPUT_TOKENS,
        )

    def state_text(self, conversation: Conversation) -> str:
        """The state without the opening of the next turn; what training samples are cut from."""
        out = [f"{START}user\n{harmless(self._first(conversation))}{END}\n"]
        for number, call, result in pairs(conversation):
            if call is not None:
                out.append(f"{START}assistant\n{line_of(conversation, call)}{END}\n")
            body = "deleted" if result.forgotten else harmless(conversation.text_of(result))
            out.append(f"{START}tool\n[{number}] {body}{END}\n")
        return "".join(out)

    def _first(self, conversation: Conversation) -> str:
        corpus = conversation.workspace.corpus
        tokens = corpus.totals(conversation.under).tokens
        chunks = corpus.chunk_count(conversation.chunk_set)
        ready = "index ready" if self.search else "read in order"
        lines = [f"Question: {conversation.question}", f"({tokens} tokens, {chunks} chunks, {ready})"]
        if self.notes_block and (notes := conversation.notes()):
            lines.append("Notes:")
            lines += [
                f"{conversation.shown_key(note.key)}: {' '.join(note.content.split())}" for note in notes
            ]
        return "\n".join(lines)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, reply: Reply) -> tuple[str, list[Call]]:
        match = LINE.match(reply.text)
        if match is None:
            return reply.text.strip(), []
        try:
            arguments = json.loads(match[2])
        except ValueError:
            return reply.text.strip(), []
        return ("", [Call(match[1], arguments)]) if isinstance(arguments, dict) else (reply.text.strip(), [])

    def translate(self, conversation: Conversation, call: Call) -> Call | Answered:
        given = call.arguments
        match call.name:
            case "searchEngine":
                search: dict[str, Any] = {"keyword": str(given.get("query", "")), "limit": FETCHED_HITS}
                if (
                    not conversation.notes()
                ):  # until something is known, the question itself is the best second query
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
                source = source_of(conversation, text)
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
            f"error: no tool {call.name[:40]}", hint=f"Tools: {', '.join(ARGUMENTS)}.", slug="no_such_spell"
        )

    def word(self, conversation: Conversation, call: Call, result: CastResult, ours: str) -> str:
        if result.is_error:
            head, _, rest = ours.partition("\n")
            return "error: " + (rest or head)[:200]
        query = str(call.arguments.get("query", ""))
        match call.name:
            case "searchEngine":
                hits = [
                    f"{hit['chunk_id']}: {snippet(' '.join(hit['highlights']), query)}"
                    for hit in _nearest(conversation.question, query, result.result["retrieved_chunks"])
                ]
                return "\n".join(hits) or "no hits"
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


def _nearest(question: str, query: str, hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The hits whose highlights hold most of question and query, best first; equal ones as the search ranked them."""

    def held(hit: dict[str, Any]) -> float:
        return max(
            (coverage(question, one) + coverage(f": {query}", one) for one in hit["highlights"]), default=0.0
        )

    return sorted(hits, key=lambda hit: -held(hit))[:SHOWN_HITS]


def pairs(conversation: Conversation) -> list[tuple[int, Entry | None, Entry]]:
    """(id, call, result) of what is in sight. Ids count all results from 1, shown or not."""
    spoken = conversation.spoken()
    calls = {e.message.number: e for e in spoken if e.message.role == "assistant"}
    every = [
        (number, calls.get(entry.message.invoking or 0), entry)
        for number, entry in enumerate((e for e in spoken if e.message.role == "tool"), 1)
    ]
    old, recent = every[:-KEPT_PAIRS], every[-KEPT_PAIRS:]
    live = [
        pair
        for pair in old
        if not pair[2].forgotten and pair[2].message.tool in ("readChunk", "searchEngine")
    ]
    return live + recent


def line_of(conversation: Conversation, call: Entry) -> str:
    """A call as the model writes it; text without a call as it was."""
    name, arguments = conversation.call_of(call)
    if not call.message.tool or not name:
        return " ".join(call.message.kept_thought.split())[:200] or "…"
    return written(Call(name, arguments))


def written(call: Call) -> str:
    return f"{call.name} {json.dumps(dict(call.arguments), ensure_ascii=False, separators=(',', ':'))}"


def snippet(text: str, query: str, size: int = SNIPPET_WORDS) -> str:
    """The run of words that holds most of the query's, with the hits in its middle."""
    shown = text.split()
    wanted = stems(query)
    hit = [bool(wanted & stems(word)) for word in shown]
    starts = range(max(1, len(shown) - size + 1))
    best = max(starts, key=lambda start: (sum(hit[start : start + size]), -start))
    places = [place for place in range(best, min(len(shown), best + size)) if hit[place]]
    if places:
        middle = (places[0] + places[-1]) // 2 - size // 2
        best = max(0, min(len(shown) - size, middle))
    return " ".join(shown[best : best + size])


def live_reads(conversation: Conversation) -> list[Entry]:
    return [e for e in conversation.results("readChunk") if not e.forgotten]


def source_of(conversation: Conversation, text: str) -> int | None:
    """The chunk, read and still in sight, that holds this text."""
    for entry in reversed(live_reads(conversation)):
        if text and text in " ".join(conversation.text_of(entry).split()) and entry.message.chunk_ids:
            return entry.message.chunk_ids[0]
    return None


def _message_ids(conversation: Conversation, given: Any) -> str:
    results = [e for e in conversation.spoken() if e.message.role == "tool"]
    ids = given.get("ids", [])
    wanted = []
    for one in ids if isinstance(ids, list) else [ids]:
        number = int(one) if str(one).isdecimal() else 0
        if not 1 <= number <= len(results):
            raise Miscast(f"no message {one}", hint=f"There are 1 to {len(results)}.", slug="no_such_message")
        wanted.append(f"m{results[number - 1].message.number}")
    if not wanted:
        raise Miscast("ids is empty", hint="Name at least one message.", slug="bad_argument")
    return ",".join(wanted)


# -- grammar -----------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """A GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def inside_json(text: str) -> str:
    """A text as it stands between the quotes of a JSON string, as a GBNF literal."""
    return literal(json.dumps(text, ensure_ascii=False)[1:-1])


def grammar(conversation: Conversation, offer: Offer, *, search: bool = True) -> str:
    """GBNF of the actions that this state allows. One with a single branch still lets the model choose its words."""
    results = [e for e in conversation.spoken() if e.message.role == "tool"]
    last = results[-1].message.tool if results else ""
    live_ids = [
        number
        for number, entry in enumerate(results, 1)
        if not entry.forgotten and entry.message.tool in ("searchEngine", "readChunk")
    ]
    searches = [e for e in results if e.message.tool == "searchEngine" and not e.message.is_error]
    reads = live_reads(conversation)
    since = searches[-1].message.number if searches else 0  # a later search may lead to the same chunk again
    seen = {
        one
        for e in conversation.results("readChunk")
        if e.message.number > since
        for one in e.message.chunk_ids
    }
    unread = [chunk_id for chunk_id in offer.found if chunk_id not in seen]
    notes = conversation.notes()
    noted = {" ".join(note.content.split()) for note in notes}
    known = _best_sentences(conversation, [conversation.text_of(entry) for entry in reads], noted)
    rules: dict[str, str] = {}
    branches: list[str] = []

    def branch(name: str, body: str) -> None:
        branches.append(name)
        rules[name] = body

    if "searchEngine" in offer and not (unread and last == "searchEngine") and len(searches) < 12:
        branch(
            "sea", r'"searchEngine {\"query\":\"" word (" " word)' + f'{{0,{MAX_QUERY_WORDS - 1}}} "\\"}}"'
        )
        rules["word"] = " | ".join([*map(literal, _query_words(conversation)), "[a-z] [a-z-]{1,14}"])
    if "readChunk" in offer and not offer.crowded:
        if not search:
            branch("rd", '"readChunk {}"')
        elif unread:
            branch(
                "rd", r'"readChunk {\"id\":" (' + " | ".join(literal(str(one)) for one in unread) + ') "}"'
            )
    if known:
        branch("note", r'"note {\"key\":\"" key "\",\"text\":\"" sent "\"}"')
        rules["key"] = "[a-z] [a-z0-9 ]{1,23}"
        rules["sent"] = " | ".join(dict.fromkeys(map(inside_json, known)))
    if live_ids:
        branch("del", r'"deleteContext {\"ids\":[" id ("," id){0,5} "]}"')
        rules["id"] = " | ".join(literal(str(one)) for one in live_ids)
    if notes or len(searches) > 1 or not search or not branches:  # who gives up has looked twice
        branch("fin", r'"finish {\"answer\":\"" ans "\"}"')
        texts = [" ".join(note.content.split()) for note in notes]
        rules["ans"], more = _answers(texts, names(conversation.question))
        rules |= more
    if offer.last_round:
        branches = ["fin"]
    lines = [f"root ::= {' | '.join(branches)}", *(f"{name} ::= {body}" for name, body in rules.items())]
    return "\n".join(lines) + "\n"


def _query_words(conversation: Conversation) -> list[str]:
    """Words a query may take as they stand: the question's and the notes'."""
    texts = [conversation.question, *(note.content for note in conversation.notes())]
    found = dict.fromkeys(word for text in texts for word in WORD.findall(text) if word.lower() not in STOP)
    return [word for word in found if '"' not in word and "\\" not in word]


def _best_sentences(conversation: Conversation, texts: list[str], noted: set[str]) -> list[str]:
    """Of the sentences in sight those that hold most of the question or of the last query, in the order of the text."""
    last = next((e for e in reversed(conversation.spoken()) if e.message.tool == "searchEngine"
                 and e.message.role == "assistant"), None)  # fmt: skip
    query = str(conversation.call_of(last)[1].get("query", "")) if last is not None else ""
    every = dict.fromkeys(one for text in texts for one in sentences(text) if one not in noted)
    asked = (
        conversation.question,
        f": {query}",
    )  # the mark keeps the query's first word from counting as a beginning
    ranked = sorted(every, key=lambda one: -max(coverage(words, one) for words in asked))
    best = set(ranked[:NOTABLE])
    return [one for one in every if one in best]


def _answers(texts: list[str], asked: set[str]) -> tuple[str, dict[str, str]]:
    """Any run of words of a note, several of them parted by commas, or that nothing was found. One rule a word: from
    there the run goes on or ends. None begins with a name of the question or a small word but an article, or ends with
    a small word."""
    rules: dict[str, str] = {}
    starts: list[str] = []
    for which, text in enumerate(texts):
        shown = re.findall(r"\S+", text)
        for place, word in enumerate(shown):
            bare = word.strip('.,;:!?"“”()[]') or word
            small = bare.lower() in STOP
            for left in range(1, MAX_ANSWER_WORDS + 1):
                body = [] if small else [inside_json(bare)]
                if left > 1 and place + 1 < len(shown):
                    body.append(f'{inside_json(word)} " " w{which}x{place + 1}r{left - 1}')
                # a small word at the very end leads nowhere else
                rules[f"w{which}x{place}r{left}"] = " | ".join(body or [inside_json(bare)])
            begins = not (small or bare.lower() in asked or word.startswith("[") or word.endswith(":"))
            if bare.lower() in ARTICLES or begins:
                starts.append(f"w{which}x{place}r{MAX_ANSWER_WORDS}")
    if not starts:
        return literal(NOT_FOUND), {}
    rules = _reached(rules, starts)
    rules["span"] = " | ".join(starts)
    return f'span (", " span){{0,5}} | {literal(NOT_FOUND)}', rules


def _reached(rules: dict[str, str], starts: list[str]) -> dict[str, str]:
    """The rules that a start leads to: the runtime reads every rule of a grammar at every turn."""
    kept: dict[str, str] = {}
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = rules[name]
            waiting += [
                other for other in re.findall(r"(?<![\w\"])w\d+x\d+r\d+\b", rules[name]) if other in rules
            ]
    return kept

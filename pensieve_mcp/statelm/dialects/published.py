"""The paper's dialect, for its trained weights: field names, integer ids from 1, note block, stub, chunk ids from 0.

Written anew from the published contract (arXiv 2602.12108 and what its reference code answers). One counter
numbers calls and results, the question has none; ids reach the model through results only. Chunks are numbered
densely in document order; several documents count as one text. What the trained weights never saw (plan,
restoreContext, near names) is not offered here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pensieve_mcp.corpus.types import ChunkSet, Span
from pensieve_mcp.errors import Miscast, NoSuchChunk
from pensieve_mcp.ledger.events import Entry
from pensieve_mcp.ledger.stubs import PUBLISHED, published_arguments, published_result
from pensieve_mcp.statelm.conversation import Conversation
from pensieve_mcp.statelm.dialects import Answered
from pensieve_mcp.statelm.dialects.ours import call_id
from pensieve_mcp.statelm.dialects.reading import thought_and_calls
from pensieve_mcp.statelm.evidence import quotes_for
from pensieve_mcp.statelm.offering import Offer
from pensieve_mcp.statelm.template import printed
from pensieve_mcp.statelm.turns import Call, Prompt, Reply

if TYPE_CHECKING:
    from pensieve_mcp.spellbook.casting import CastResult

CHUNK_TOKENS = 4_000
INDEX_ID = "document_index"
FILE_NAME = "attached_document.txt"
MAX_HITS = 20
MOST_BYTES = 1_000_000  # of one chunk: the published weights know no pages

SYSTEM = (
    "You are a long-context assistant that works with tools. Stay factual, answer only from what you read, and spare "
    "your context window by deleting messages you no longer need and by taking notes. Begin with a plan."
)
NO_NOTES = "No notes recorded."
MEMORY = "External memory (notes so far):"


def _tool(name: str, description: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": list(required)},
        },
    }


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("analyzeText", "Length of the attached context."),
    _tool("loadDocument", "The whole text of the document."),
    _tool(
        "buildIndex",
        "Cut the document into chunks of fixed size and make them searchable.",
        chunk_size={"type": "integer", "description": "Tokens a chunk; default 4000."},
        overlap={"type": "integer", "description": "Tokens shared by neighbours; default 0."},
    ),
    _tool(
        "readChunk",
        "Read a chunk by its id; with enable_scan the chunk after the last one read.",
        chunk_id={"type": "integer"},
        enable_scan={"type": "boolean"},
    ),
    _tool(
        "searchEngine",
        "Search by keywords, parted by commas; ids, scores and highlights of chunks.",
        ("keyword",),
        keyword={"type": "string"},
    ),
    _tool(
        "note",
        "Write a note.",
        ("key", "summary", "content"),
        key={"type": "string"},
        summary={"type": "string"},
        content={"type": "object"},
    ),
    _tool("readNote", "Read a whole note.", ("key",), key={"type": "string"}),
    _tool(
        "updateNote",
        "Change a note.",
        ("key", "mode", "new_content"),
        key={"type": "string"},
        mode={"type": "string", "enum": ["append", "overwrite", "delete"]},
        new_content={"type": "object"},
        new_summary={"type": "string"},
    ),
    _tool("deleteContext", "Remove one message from the context.", ("msg_id",), msg_id={"type": "integer"}),
    _tool("checkBudget", "What is left of tokens and rounds."),
    _tool("finish", "End with a short answer.", ("answer",), answer={"type": "string"}),
)


class Published:
    """See the module. `keep_thought`: a deleted call keeps its words, as in the paper's scan mode; None:
    while scanning."""

    name = "published"
    private_notes = True
    window_tokens: int | None = None

    def __init__(self, *, search: bool = True, keep_thought: bool | None = None) -> None:
        self.search = search
        self.keep_thought = keep_thought

    @property
    def chunk_set(self) -> ChunkSet | None:
        return ChunkSet(CHUNK_TOKENS, 0)

    def hits_in(self, text: str) -> list[int]:
        try:
            found = json.loads(text).get("retrieved_chunks", [])
        except (ValueError, AttributeError):
            return []
        return [hit["chunk_id"] for hit in found if isinstance(hit, dict) and "chunk_id" in hit]

    # -- printing ------------------------------------------------------------------------------------------

    def prompt(self, conversation: Conversation, offer: Offer) -> Prompt:
        lines = conversation.index_lines()
        first = f"{conversation.question}\n\n{MEMORY}\n" + ("\n".join(lines) or NO_NOTES)
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": first}]
        for number, entry in enumerate(conversation.spoken(), 1):
            messages.append(self._message(conversation, number, entry))
        tools = tuple(tool for tool in TOOLS if self._offered(tool["function"]["name"], conversation, offer))
        return Prompt(
            messages=tuple(messages),
            tools=tools,
            narrowed=tuple(_narrowed(conversation, offer, tool) for tool in tools),
            every=tuple(t for t in TOOLS if self.search or t["function"]["name"] != "searchEngine"),
            text=printed(messages, tools),
            stop=("<|im_end|>",),
            max_output_tokens=2_048,
        )

    def _offered(self, name: str, conversation: Conversation, offer: Offer) -> bool:
        if name == "loadDocument":
            totals = conversation.workspace.corpus.totals(conversation.under)
            return totals.tokens <= conversation.budget().left and not offer.crowded and not offer.last_round
        return name in offer

    def _message(self, conversation: Conversation, number: int, entry: Entry) -> dict[str, Any]:
        message = entry.message
        if message.role == "assistant":
            thought = message.kept_thought
            if entry.forgotten and not entry.keep_thought:
                thought = PUBLISHED
            name, arguments = conversation.call_of(entry)
            if not message.tool:
                return {"role": "assistant", "content": thought}
            shown = published_arguments() if entry.forgotten else arguments
            function = {"name": name or message.tool, "arguments": json.dumps(shown, ensure_ascii=False)}
            return {
                "role": "assistant",
                "content": thought,
                "tool_calls": [{"id": call_id(number), "type": "function", "function": function}],
            }
        text = conversation.text_of(entry)
        if not message.tool:
            return {"role": "user", "content": PUBLISHED if entry.forgotten else text}
        body = _object(text)
        if entry.forgotten:
            body = published_result(
                number, number - 1, message.tool, reading_progress=body.get("reading_progress")
            )
        else:
            body = {"msg_id": number, "msg_id(invoking_assistant)": number - 1, **body}
        return {
            "role": "tool",
            "tool_call_id": call_id(number - 1),
            "content": json.dumps(body, ensure_ascii=False),
        }

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, reply: Reply) -> tuple[str, list[Call]]:
        return thought_and_calls(reply)

    def translate(self, conversation: Conversation, call: Call) -> Call | Answered:
        given = {name: value for name, value in call.arguments.items() if value is not None}
        match call.name:
            case "loadDocument":
                return _whole(conversation)
            case "analyzeText" | "checkBudget":
                return Call(call.name, {})
            case "buildIndex":
                return Call(call.name, {"chunk_size": given.get("chunk_size", CHUNK_TOKENS),
                                        "overlap": given.get("overlap", 0)})  # fmt: skip
            case "readChunk":
                return Call(call.name, _chunk_argument(conversation, given))
            case "searchEngine":
                return Call(
                    call.name, {**_keywords(conversation, str(given.get("keyword", ""))), "limit": MAX_HITS}
                )
            case "note":
                content = _text(given.get("content", ""))
                return Call(
                    call.name,
                    {
                        **given,
                        "key": conversation.stored_key(str(given.get("key", ""))),
                        "content": content,
                        "evidence": quotes_for(conversation, f"{given.get('summary', '')}\n{content}"),
                    },
                )
            case "readNote" | "updateNote":
                key = conversation.stored_key(str(given.get("key", "")))
                if call.name == "updateNote" and "new_content" in given:
                    given["new_content"] = _text(given["new_content"])
                return Call(call.name, {**given, "key": key})
            case "deleteContext":
                return Call(call.name, self._delete_arguments(conversation, given))
            case "finish":
                return Call(call.name, {"answer": str(given.get("answer", "")), "citations": list(
                    note.key for note in conversation.notes())})  # fmt: skip
        known = ", ".join(tool["function"]["name"] for tool in TOOLS)
        raise Miscast(f"Tool not found: {call.name[:60]}.", hint=f"There are {known}.", slug="no_such_spell")

    def _delete_arguments(self, conversation: Conversation, given: dict[str, Any]) -> dict[str, Any]:
        spoken = conversation.spoken()
        try:
            number = int(str(given.get("msg_id", "")).strip().lstrip("m"))
        except ValueError:
            number = 0
        if not 1 <= number <= len(spoken):
            raise Miscast(
                f"Message {given.get('msg_id')!r} not found.",
                hint=f"msg_id is a number from 1 to {len(spoken)}, as it stands in tool results."
                if spoken
                else "There is nothing to delete yet.",
                slug="no_such_message",
            )
        keep = scanning(conversation) if self.keep_thought is None else self.keep_thought
        return {"msg_id": f"m{spoken[number - 1].message.number}", "keep_thought": keep}

    def word(self, conversation: Conversation, call: Call, result: CastResult, ours: str) -> str:
        if result.is_error:
            return json.dumps({"error": _without_head(ours)}, ensure_ascii=False)
        return json.dumps(_shape(conversation, call, result.result), ensure_ascii=False)


def _narrowed(conversation: Conversation, offer: Offer, tool: dict[str, Any]) -> dict[str, Any]:
    """The tool with the ids that exist now, for whoever enforces schemas; the weights read the whole ones."""
    name = tool["function"]["name"]
    narrow: dict[str, dict[str, Any]] = {}
    if name == "deleteContext":
        whole = {e.message.number for e in offer.deletable}
        spoken = conversation.spoken()
        narrow["msg_id"] = {"enum": [n for n, e in enumerate(spoken, 1) if e.message.number in whole]}
    elif name == "readChunk":
        total = conversation.workspace.corpus.chunk_count(conversation.chunk_set)
        narrow["chunk_id"] = {"minimum": 0, "maximum": max(0, total - 1)}
    elif name in ("readNote", "updateNote") and offer.keys:
        narrow["key"] = {"enum": list(offer.keys)}
    if not narrow:
        return tool
    function, parameters = tool["function"], tool["function"]["parameters"]
    properties = {key: {**value, **narrow.get(key, {})} for key, value in parameters["properties"].items()}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": properties}}}


def scanning(conversation: Conversation) -> bool:
    """Whether the last read asked for enable_scan: the mode lasts until a read says otherwise."""
    for entry in reversed(conversation.spoken()):
        if entry.message.role == "assistant" and entry.message.tool == "readChunk":
            _, arguments = conversation.call_of(entry)
            if "enable_scan" in arguments:
                return arguments["enable_scan"] in (True, "true", "True", 1)
            if arguments.get("chunk_id") is not None:
                return False
    return False


def _shape(conversation: Conversation, call: Call, result: dict[str, Any]) -> dict[str, Any]:
    """The typed result with the published fields alone."""
    match call.name:
        case "analyzeText":
            return {"file_name": FILE_NAME, "total_tokens": result["total_tokens"]}
        case "buildIndex":
            total = result["total_chunks"]
            return {"index_id": INDEX_ID, "total_chunks": total, "first_chunk_id": 0,
                    "last_chunk_id": max(0, total - 1)}  # fmt: skip
        case "readChunk":
            return _read_shape(conversation, call, result)
        case "searchEngine":
            total = result["total"]
            hits = [
                {"chunk_id": dense(conversation, hit["chunk_id"]), "relevance_score": hit["relevance_score"],
                 "highlights": [emphasised(one, str(call.arguments.get("keyword", ""))) for one in hit["highlights"]]}
                for hit in result["retrieved_chunks"]
            ]  # fmt: skip
            words = [
                word.strip() for word in str(call.arguments.get("keyword", "")).split(",") if word.strip()
            ]
            shape: dict[str, Any] = {"retrieved_chunks": hits, "keywords": words}
            if not hits:
                shape["message"] = "No relevant chunks found."
            elif total > len(hits):
                shape["message"] = f"Showing the most relevant {len(hits)}/{total} chunks."
            return shape
        case "note":
            return {"status": "success", "key": conversation.shown_key(result["key"])}
        case "updateNote":
            key = conversation.shown_key(result["key"])
            return {"status": "success", "key": key, "message": f"Note '{key}' was updated."}
        case "readNote":
            return {"summary": result["summary"], "full_content": result["full_content"]}
        case "checkBudget":
            return {name: result[name] for name in ("conv_rounds", "available_tokens", "available_rounds")}
        case "deleteContext":
            first = result["deleted"][0] if result["deleted"] else {"role": "tool"}
            return {"status": "success", "deleted_msg_id": int(str(call.arguments.get("msg_id", 0)).lstrip("m")),
                    "deleted_role": first["role"]}  # fmt: skip
        case "finish":
            return {"final_answer": result["final_answer"]}
    return result


def emphasised(text: str, keywords: str) -> str:
    """Words of the keywords in tags, as the reference's highlighter marks them."""
    words = {re.escape(word) for word in re.findall(r"\w+", keywords)}
    if not words:
        return text
    return re.sub(rf"(?<!\w)(?:{'|'.join(sorted(words))})(?!\w)", r"<em>\g<0></em>", text, flags=re.I)


def _read_shape(conversation: Conversation, call: Call, result: dict[str, Any]) -> dict[str, Any]:
    corpus = conversation.workspace.corpus
    parts = []
    for part in result["retrieved_chunk"]:
        position = dense(conversation, part["chunk_id"])
        chunk = corpus.chunk(part["chunk_id"])
        start = position * (conversation.chunk_set.size_tokens - conversation.chunk_set.overlap_tokens)
        parts.append(
            {
                "chunk_id": position,
                "content": part["content"],
                "start_pos": start,
                "end_pos": start + chunk.tokens,
            }
        )
    shape: dict[str, Any] = {"retrieved_chunk": parts, "chunk_id": dense(conversation, result["chunk_id"])}
    if call.arguments.get("enable_scan") or call.arguments.get("chunk_id") is None:
        shape["reading_progress"] = result["reading_progress"]
    return shape


def dense(conversation: Conversation, chunk_id: int) -> int:
    """A chunk's place in document order, from 0: what the published weights call its id."""
    return conversation.workspace.corpus.position_of(chunk_id, conversation.chunk_set)[0]


def _chunk_argument(conversation: Conversation, given: dict[str, Any]) -> dict[str, Any]:
    if given.get("enable_scan") in (True, "true", "True", 1):
        return {"enable_scan": True, "max_bytes": MOST_BYTES}
    if "chunk_id" not in given:
        if scanning(conversation):
            return {"enable_scan": True, "max_bytes": MOST_BYTES}
        raise Miscast(
            "chunk_id is missing.",
            hint="Give chunk_id, or enable_scan true to read on.",
            slug="missing_argument",
        )
    total = conversation.workspace.corpus.chunk_count(conversation.chunk_set)
    try:
        position = int(given["chunk_id"])
    except (TypeError, ValueError):
        raise Miscast(
            f"chunk_id is {given['chunk_id']!r}, but must be an integer.",
            hint=f"Chunks are 0 to {total - 1}.",
            slug="bad_argument",
        ) from None
    chunk = conversation.workspace.corpus.chunk_at(conversation.chunk_set, position)
    if chunk is None:
        raise NoSuchChunk(f"There is no chunk {position}.", hint=f"Chunks are 0 to {total - 1}.")
    return {"chunk_id": str(chunk.chunk_id), "max_bytes": MOST_BYTES}


def _keywords(conversation: Conversation, text: str) -> dict[str, Any]:
    """Commas part keywords; of several words a keyword is a phrase first, and its words count as well."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise Miscast(
            "keyword is empty.", hint="Give one or more keywords, parted by commas.", slug="empty_query"
        )
    search: dict[str, Any] = {"keyword": words[0], "queries": words[1:10], "mode": "hybrid"}
    if len(conversation.under) == 1:
        search["under"] = conversation.under[0]
    return search


def _whole(conversation: Conversation) -> Answered:
    """All documents as one text, where they fit into what is left."""
    corpus = conversation.workspace.corpus
    totals = corpus.totals(conversation.under)
    left = conversation.budget().left
    if not totals.documents:
        return Answered(json.dumps({"error": "The document is empty."}), is_error=True)
    if totals.tokens > left:
        return Answered(
            json.dumps(
                {
                    "error": f"The document has {totals.tokens:,} tokens, {left:,} are left: build the index instead."
                }
            ),
            is_error=True,
        )
    documents, _ = corpus.documents(conversation.under, cursor=None, limit=1_000)
    texts = [corpus.text(found.document_id, Span(0, found.chars)) for found in documents]
    return Answered(
        json.dumps({"document_content": "\n\n".join(texts)}, ensure_ascii=False), label="the whole document"
    )


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"error": text}
    return value if isinstance(value, dict) else {"result": value}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _without_head(text: str) -> str:
    """Our handle line names ids of another count than the published one."""
    head, _, rest = text.partition("\n")
    return rest if head.startswith("m") and rest else text

"""The published contract once more, as one page: a whole question in the paper's dialect, word by word what the trained
weights are sent. Ids, field names, their order, stubs and the template are the interface; a change here breaks them.

Sources: the published tool file and reference code as described in arXiv 2602.12108, sections 3 and C.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.statelm.dialects.published import MOST_BYTES, TOOLS, Published, emphasised
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.turns import Call
from pensieve_mcp.workspace import Workspace

STUB = "Content has been deleted to save space."

# name → (parameters with types, required)
CONTRACT: dict[str, tuple[dict[str, str], list[str]]] = {
    "analyzeText": ({}, []),
    "loadDocument": ({}, []),
    "buildIndex": ({"chunk_size": "integer", "overlap": "integer"}, []),
    "readChunk": ({"chunk_id": "integer", "enable_scan": "boolean"}, []),
    "searchEngine": ({"keyword": "string"}, ["keyword"]),
    "note": ({"key": "string", "summary": "string", "content": "object"}, ["key", "summary", "content"]),
    "readNote": ({"key": "string"}, ["key"]),
    "updateNote": (
        {"key": "string", "mode": "string", "new_content": "object", "new_summary": "string"},
        ["key", "mode", "new_content"],
    ),
    "deleteContext": ({"msg_id": "integer"}, ["msg_id"]),
    "checkBudget": ({}, []),
    "finish": ({"answer": "string"}, ["answer"]),
}


def test_the_eleven_tools_with_their_parameters() -> None:
    found = {}
    for tool in TOOLS:
        function = tool["function"]
        schema = function["parameters"]
        assert tool["type"] == "function" and schema["type"] == "object"
        types = {name: one["type"] for name, one in schema["properties"].items()}
        found[function["name"]] = (types, schema["required"])
    assert found == CONTRACT
    (update,) = [
        t["function"]["parameters"]["properties"] for t in TOOLS if t["function"]["name"] == "updateNote"
    ]
    assert update["mode"]["enum"] == ["append", "overwrite", "delete"]


@pytest.fixture
def two_chunks(tmp_path: Path) -> Any:
    """One document of some chunks of 300 tokens."""
    docs = tmp_path / "docs"
    docs.mkdir()
    text = (
        "The mill at Pelham grinds rye. " * 100 + "\n\n" + "The bell of Arvale was paid by Ada Quill. " * 60
    )
    (docs / "book.txt").write_text(text, encoding="utf-8")
    workspace = Workspace.open(
        [docs],
        state=tmp_path / "state",
        environment={"PENSIEVE_HOME": str(tmp_path / "home")},
        arguments={"second_stage": False, "upgrade": False, "encoder": "hashing:64"},
        builder="inline",
    )
    workspace.build_now()
    yield workspace
    workspace.close()


def test_a_whole_question_is_sent_as_the_weights_know_it(two_chunks: Workspace) -> None:
    loop = Loop.over(two_chunks, "Who paid for the bell?", Published())
    sizes: list[int] = []

    def act(thought: str, name: str, **arguments: Any) -> dict[str, Any]:
        loop.act(Call(name, arguments), thought)
        prompt = loop.prompt()
        sizes.append(len(prompt.text))
        value = json.loads(prompt.messages[-1]["content"])
        assert isinstance(value, dict)
        return value

    analysed = act("How long is it?", "analyzeText")
    assert list(analysed) == ["msg_id", "msg_id(invoking_assistant)", "file_name", "total_tokens"]
    assert (analysed["msg_id"], analysed["msg_id(invoking_assistant)"]) == (2, 1)
    assert analysed["file_name"] == "attached_document.txt"

    built = act("", "buildIndex", chunk_size=300)
    total = built["total_chunks"]
    assert built == {
        "msg_id": 4, "msg_id(invoking_assistant)": 3, "index_id": "document_index", "total_chunks": total,
        "first_chunk_id": 0, "last_chunk_id": total - 1,
    }  # fmt: skip
    assert total >= 2

    searched = act("", "searchEngine", keyword="bell, Ada Quill")
    assert list(searched) == ["msg_id", "msg_id(invoking_assistant)", "retrieved_chunks", "keywords"]
    assert searched["keywords"] == ["bell", "Ada Quill"]
    hit = searched["retrieved_chunks"][0]
    assert list(hit) == ["chunk_id", "relevance_score", "highlights"] and hit["chunk_id"] >= 1
    assert round(hit["relevance_score"], 3) == hit["relevance_score"]
    assert "<em>Ada</em> <em>Quill</em>" in " ".join(hit["highlights"])

    read = act("", "readChunk", chunk_id=hit["chunk_id"])
    assert list(read) == ["msg_id", "msg_id(invoking_assistant)", "retrieved_chunk", "chunk_id"]
    (chunk,) = read["retrieved_chunk"]
    assert list(chunk) == ["chunk_id", "content", "start_pos", "end_pos"]
    assert chunk["chunk_id"] == read["chunk_id"] == hit["chunk_id"]
    assert chunk["start_pos"] == 300 * hit["chunk_id"] < chunk["end_pos"]

    noted = act("", "note", key="bell", summary="who paid", content={"who": "Ada Quill"})
    assert noted == {"msg_id": 10, "msg_id(invoking_assistant)": 9, "status": "success", "key": "bell"}

    deleted = act("", "deleteContext", msg_id=8)
    assert deleted == {
        "msg_id": 12, "msg_id(invoking_assistant)": 11, "status": "success", "deleted_msg_id": 8,
        "deleted_role": "tool",
    }  # fmt: skip
    assert act("", "deleteContext", msg_id=9)["deleted_role"] == "assistant"

    kept = act("", "readNote", key="bell")
    assert list(kept) == ["msg_id", "msg_id(invoking_assistant)", "summary", "full_content"]
    assert kept["summary"] == "who paid" and json.loads(kept["full_content"]) == {"who": "Ada Quill"}

    updated = act("", "updateNote", key="bell", mode="append", new_content={"more": "in 1871"})
    assert list(updated) == ["msg_id", "msg_id(invoking_assistant)", "status", "key", "message"]

    budget = act("", "checkBudget")
    assert list(budget) == [
        "msg_id", "msg_id(invoking_assistant)", "conv_rounds", "available_tokens", "available_rounds",
    ]  # fmt: skip
    assert budget["conv_rounds"] + budget["available_rounds"] == 150

    for name, arguments, words in (
        ("readChunk", {"chunk_id": 99}, "chunk 99"),
        ("readChunk", {"chunk_id": "x"}, "integer"),
        ("searchEngine", {"keyword": " , "}, "empty"),
        ("readNote", {"key": "none"}, "none"),
        ("deleteContext", {"msg_id": 99}, "not found"),
        ("wand", {}, "Tool not found"),
    ):
        wrong = act("", name, **arguments)
        assert list(wrong) == ["msg_id", "msg_id(invoking_assistant)", "error"] and words in wrong["error"], (
            wrong
        )

    prompt = loop.prompt()
    first = prompt.messages[1]
    assert first["role"] == "user" and "msg_id" not in first
    assert (
        first["content"].startswith("Who paid for the bell?\n\n") and "\nbell: who paid" in first["content"]
    )

    # what was deleted: the result keeps its ids and tool, the call keeps its name and pairing
    stub = json.loads(prompt.messages[1 + 8]["content"])
    assert stub == {
        "msg_id": 8, "msg_id(invoking_assistant)": 7, "status": "success", "message": STUB,
        "original_tool": "readChunk",
    }  # fmt: skip
    call = prompt.messages[1 + 9]
    assert call["role"] == "assistant" and call["content"] == STUB
    assert call["tool_calls"][0]["function"] == {"name": "note", "arguments": json.dumps({"message": STUB})}
    assert prompt.messages[1 + 10]["tool_call_id"] == call["tool_calls"][0]["id"]
    assert "was paid by Ada Quill. The bell" not in prompt.text, "the chunk's text is gone"

    # the template: tools in the system turn, results in tags in a user turn, an empty think block at the end
    text = prompt.text
    assert text.startswith("<|im_start|>system\n") and "<tools>\n{" in text
    assert '<|im_start|>user\n<tool_response>\n{"msg_id": 2, ' in text
    assert '<tool_call>\n{"name": "analyzeText", "arguments": {}}\n</tool_call><|im_end|>\n' in text
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "How long is it?" in text

    loop.act(Call("finish", {"answer": "Ada Quill"}))
    last = loop.conversation.results("finish")[-1]
    assert (
        json.loads(loop.conversation.text_of(last)) == {"final_answer": "Ada Quill"}
        and loop.answer == "Ada Quill"
    )


def test_a_scan_tells_its_progress_and_keeps_it_in_the_stub(two_chunks: Workspace) -> None:
    loop = Loop.over(two_chunks, "Who paid?", Published(search=False))
    loop.act(Call("buildIndex", {"chunk_size": 300}))
    loop.act(Call("readChunk", {"enable_scan": True}), "I read.")
    loop.act(Call("readChunk", {}), "On.")
    loop.act(Call("deleteContext", {"msg_id": 4}))
    loop.act(Call("deleteContext", {"msg_id": 3}))
    prompt = loop.prompt()

    assert "searchEngine" not in [tool["function"]["name"] for tool in prompt.tools]
    total = two_chunks.corpus.chunk_count(loop.conversation.chunk_set)
    second = json.loads(prompt.messages[1 + 6]["content"])
    assert (second["chunk_id"], second["reading_progress"]) == (1, f"2/{total}")
    stub = json.loads(prompt.messages[1 + 4]["content"])
    assert stub["message"] == STUB and stub["reading_progress"] == f"1/{total}"
    call = prompt.messages[1 + 3]
    assert call["content"].startswith("I read."), "in scan mode the thought stays"
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"message": STUB}


def test_chunks_are_whole_and_highlights_marked_as_the_reference_does() -> None:
    assert MOST_BYTES >= 12_000 * 8, "the agentic prompt lets chunks grow to 12,000 tokens"
    assert (
        emphasised("Bells and a bell of ada", "bell, Ada Quill")
        == "Bells and a <em>bell</em> of <em>ada</em>"
    )
    assert emphasised("a.b (c)", "") == "a.b (c)"

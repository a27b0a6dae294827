"""The floor: no model. Search, read the best chunks, note the sentence that answers most of the question,
delete, cite.

It returns a sentence of the documents with its place, says that it is extractive, and says "not found" where no
sentence speaks of what the question names. It never rewords and never guesses.
"""

from __future__ import annotations

from dataclasses import dataclass

from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.sentences import coverage, names, sentences, stems, words
from pensieve_mcp.statelm.turns import Asked, Call

READS = 3  # chunks read before the best sentence is chosen
LEAST_COVERAGE = 0.45  # of the question's weight that a sentence must hold
NEIGHBOURS = 2  # sentences before, in which the thing spoken of may be named
LEAST_WORDS = 8  # of what has no sentence mark: a row of a table, a line of a log
NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Candidate:
    text: str
    chunk_id: int
    score: float


def answer(loop: Loop) -> Asked:
    """Run one question to its end, in our own dialect. Raises StorageError."""
    question = loop.conversation.question
    search = loop.act(Call("searchEngine", {"keyword": question, "limit": READS * 2}))
    found: list[Candidate] = []
    if search is not None and not search.is_error:
        for hit in search.result["retrieved_chunks"][:READS]:
            if loop.cancelled():
                return loop.result("cancelled", extractive=True, model="none")
            read = loop.act(Call("readChunk", {"chunk_id": f"c{hit['chunk_id']}"}))
            if read is None or read.is_error:
                continue
            content = "".join(part["content"] for part in read.result["retrieved_chunk"])
            if best := best_sentence(question, content, hit["chunk_id"]):
                found.append(best)
                loop.act(
                    Call(
                        "note",
                        {
                            "key": f"{loop.conversation.episode_id}-c{hit['chunk_id']}",
                            "summary": best.text[:200],
                            "content": best.text,
                            "evidence": [{"chunk_id": f"c{hit['chunk_id']}", "quote": best.text}],
                        },
                    )
                )
            loop.act(Call("deleteContext", {"msg_id": read.message["msg_id"]}))
        loop.act(Call("deleteContext", {"msg_id": search.message["msg_id"]}))
    best = max(found, key=lambda one: one.score, default=None)
    if best is None:
        loop.act(Call("finish", {"answer": NOT_FOUND}))
    else:
        loop.act(Call("finish", {"answer": best.text, "citations": [f"c{best.chunk_id}"]}))
    return loop.result(extractive=True, model="none")


def best_sentence(question: str, text: str, chunk_id: int) -> Candidate | None:
    """The sentence that holds most of the question, if it speaks of what the question names; None otherwise."""
    named = names(question)
    asked = stems(question)
    listed = sentences(text)
    best: Candidate | None = None
    for place, sentence in enumerate(listed):
        around = set(words(" ".join(listed[max(0, place - NEIGHBOURS) : place + 1])))
        if (named and not named <= around) or not _tells(sentence, asked):
            continue
        score = coverage(question, sentence)
        if score >= LEAST_COVERAGE and (best is None or score > best.score):
            best = Candidate(sentence, chunk_id, score)
    return best


def _tells(sentence: str, asked: set[str]) -> bool:
    """Whether it is a sentence, not a heading, and says something that the question does not."""
    whole = sentence.rstrip("”\"')")[-1:] in tuple(".!?:;。！？") or len(sentence.split()) >= LEAST_WORDS
    return whole and not sentence.startswith("#") and len(stems(sentence) - asked) > 0

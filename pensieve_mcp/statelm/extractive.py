"""The floor: no model. Search, read the best chunks, note the sentence that answers most of the question,
delete, cite.

It returns a sentence of the documents with its place, says that it is extractive, and says "not found" where no
sentence speaks of what the question names. It never rewords and never guesses.
"""

from __future__ import annotations

from dataclasses import dataclass

from pensieve_mcp.notebook.types import scratch
from pensieve_mcp.statelm.capitals import Wanted, capitalises
from pensieve_mcp.statelm.loop import Loop
from pensieve_mcp.statelm.sentences import WORD, coverage, names, sentences, stems, words
from pensieve_mcp.statelm.turns import Asked, Call

READS = 3  # chunks read before the best sentence is chosen
LEAST_COVERAGE = 0.45  # of the question's weight that a sentence must hold
NEIGHBOURS = 2  # sentences before, in which the thing spoken of may be named
SCAN_CHUNKS, PROMPT_TOKENS = (
    3,
    2_500,
)  # of the window while reading in order; the prompt counts although none is sent
LEAST_WORDS = 8  # of what has no sentence mark: a row of a table, a line of a log
NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Candidate:
    text: str
    chunk_id: int
    score: float


def answer(loop: Loop) -> Asked:
    """Run one question to its end, in our own dialect; without search every chunk is read in order. Raises
    StorageError."""
    if not loop.dialect.search:
        return _scan(loop)
    question = loop.conversation.question
    wanted: dict[str, object] = {"keyword": question, "limit": READS * 2}
    if named := [word for word in WORD.findall(question) if word.lower() in names(question)]:
        # what is asked about by name is looked for by its name, too: common words must not crowd it out
        wanted["queries"] = [" ".join(named)]
    search = loop.act(Call("searchEngine", wanted))
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
                            "key": scratch(loop.conversation.episode_id) + f"c{hit['chunk_id']}",
                            "summary": best.text[:200],
                            "content": best.text,
                            "evidence": [{"chunk_id": f"c{hit['chunk_id']}", "quote": best.text}],
                        },
                    )
                )
            loop.act(Call("deleteContext", {"msg_id": read.message["msg_id"]}))
        loop.act(Call("deleteContext", {"msg_id": search.message["msg_id"]}))
    return _finish(loop, max(found, key=lambda one: one.score, default=None))


def _scan(loop: Loop) -> Asked:
    """Chunk after chunk: noted is what beats the best so far, and every chunk is deleted once it was looked at."""
    question = loop.conversation.question
    key = scratch(loop.conversation.episode_id) + "best"
    # nobody reads the prompt, so nothing is gained by a large window
    size = loop.conversation.chunk_set.size_tokens
    loop.conversation.window_tokens = SCAN_CHUNKS * size + PROMPT_TOKENS
    best: Candidate | None = None
    while not loop.cancelled():
        if loop.conversation.budget().left < size * 4 // 3:
            loop.prompt()  # folds old stubs, which fill any window in the end
        read = loop.act(Call("readChunk", {"enable_scan": True}))
        if read is None or read.is_error:  # past the last one, or there is none
            return _finish(loop, best)
        for part in read.result["retrieved_chunk"]:
            one = best_sentence(question, part["content"], part["chunk_id"])
            if one is None or (best is not None and one.score <= best.score):
                continue
            best = one
            evidence = [{"chunk_id": f"c{one.chunk_id}", "quote": one.text}]
            note = {"key": key, "summary": one.text[:200], "content": one.text, "evidence": evidence}
            loop.act(Call("note", note))
        loop.act(Call("deleteContext", {"msg_id": read.message["msg_id"]}))
    return loop.result("cancelled", extractive=True, model="none")


def _finish(loop: Loop, best: Candidate | None) -> Asked:
    if best is None:
        loop.act(Call("finish", {"answer": NOT_FOUND}))
    else:
        loop.act(Call("finish", {"answer": best.text, "citations": [f"c{best.chunk_id}"]}))
    return loop.result(extractive=True, model="none")


def best_sentence(question: str, text: str, chunk_id: int) -> Candidate | None:
    """The sentence that holds most of the question, if it speaks of what the question names; None otherwise."""
    asked = stems(question)
    listed = sentences(text)
    score = _bent_score if capitalises(text) else _score
    best: Candidate | None = None
    for place, sentence in enumerate(listed):
        if not _tells(sentence, asked):
            continue
        held = score(question, sentence, " ".join(listed[max(0, place - NEIGHBOURS) : place]))
        if held >= LEAST_COVERAGE and (best is None or held > best.score):
            best = Candidate(sentence, chunk_id, held)
    return best


def _score(question: str, sentence: str, before: str) -> float:
    named = names(question)
    if named and not named <= set(words(f"{before} {sentence}")):
        return 0.0
    return coverage(question, sentence)


def _bent_score(question: str, sentence: str, before: str) -> float:
    return Wanted.of(question).score(sentence, before)


def _tells(sentence: str, asked: set[str]) -> bool:
    """Whether it is a sentence, not a heading, and says something that the question does not."""
    whole = sentence.rstrip("”\"')")[-1:] in tuple(".!?:;。！？") or len(sentence.split()) >= LEAST_WORDS
    return whole and not sentence.startswith("#") and len(stems(sentence) - asked) > 0

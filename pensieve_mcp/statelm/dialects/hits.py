"""What a search found as the small model is shown it: a sentence of each chunk, marked and in order by rule.

Hits that hold all names of the query come first, then those that hold most of its words. Of several that say the same
of the same thing the latest is first: by their dates; undated, by their place in the documents, where the question asks
for the latest. Which of many is the last cannot be told by a search, so the documents it points to are looked through
for the last places of the name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.statelm.dialects.view import (
    DATED,
    LATEST_FIRST,
    MAX_READ_CHARS,
    OWN_WORDS,
    SHOWN_HITS,
    around,
    short,
    telling,
)
from pensieve_mcp.statelm.sentences import (
    asks_latest,
    coverage,
    names,
    of_oneself,
    sentences,
    without_latest,
)

if TYPE_CHECKING:
    from pensieve_mcp.corpus.store import CorpusStore
    from pensieve_mcp.statelm.conversation import Conversation

SAME_SHARE = 0.6  # of what the best hit holds beside names: what holds as much says the same
SCANNED_DOCUMENTS = 3  # that are looked through for the last place of a name
LAST_CHUNKS = 8  # of a document, with the name in them
LAST_PLACES = 200  # of the name, of which those chunks are
CHUNKS_A_PASSAGE = 3  # it reaches into: chunks of short paragraphs are smaller than a passage


def hit_lines(
    conversation: Conversation, query: str, found: Sequence[tuple[int, Sequence[str]]]
) -> list[str]:
    """A search's result as the ledger keeps it: chunk, mark and best sentence, in the order they are shown. Of several
    that say the same of the same thing the latest is first where they are dated; undated, where the question asks for
    the latest and the documents themselves stand in order."""
    noted = [" ".join(note.content.split()) for note in conversation.notes()]
    question, wanted = conversation.question, query
    latest = asks_latest(question)
    listed = _listed(conversation, found)
    if latest:
        question, wanted = without_latest(question), without_latest(query)
        listed |= _last_of(conversation, query, listed)
    ranked: list[_Ranked] = []
    for chunk_id, told in listed.items():
        tell = telling(conversation.workspace.corpus, chunk_id, told)
        best = max(
            ((*_fit(question, wanted, told, place, bool(noted)), place if latest else -place)
             for place in range(len(told)) if told[place] in tell and told[place] not in noted),
            default=None,
        )  # fmt: skip
        if best is not None:
            named, held, day, place = best
            ranked.append(_Ranked(named, held, day, chunk_id, told[abs(place)]))
    ranked.sort(key=lambda one: (-one.named, -one.held))
    shown = ranked[:SHOWN_HITS]
    lines: list[str] = []
    if sum(bool(one.day) for one in shown) > 1:
        shown.sort(key=lambda one: (one.named, one.day), reverse=True)
    elif latest and ranked:
        asked = (wanted,) if noted else (wanted, question)
        shown = _by_place(conversation.workspace.corpus, ranked, asked)[:SHOWN_HITS]
        lines = [LATEST_FIRST]
    return lines + [
        f"{one.chunk_id}{'=' if one.named else '~'} {short(one.sentence, query)}" for one in shown
    ]


class _Ranked(NamedTuple):
    named: bool
    held: float
    day: str
    chunk_id: int
    sentence: str


def _by_place(corpus: CorpusStore, ranked: Sequence[_Ranked], asked: Sequence[str]) -> list[_Ranked]:
    """Those that say about as much as the best, from the end of the documents; then the others, best first. Without a
    name to go by these are few: any sentence may hold half of the words."""
    named = " ".join(names(f"of {asked[0]}"))
    by_names = sum(coverage(f"of {one}", named) for one in asked)
    best = ranked[0]
    least = by_names + SAME_SHARE * (best.held - by_names)
    among = ranked if named else ranked[:SHOWN_HITS]
    alike = [one for one in among if one.named == best.named and one.held >= least]
    alike.sort(key=lambda one: -_position(corpus, one.chunk_id))
    return alike + [one for one in ranked if one not in alike]


def _position(corpus: CorpusStore, chunk_id: int) -> int:
    try:
        return corpus.chunk(chunk_id).position
    except PensieveError:
        return -1  # its document went away between search and reading


def _last_of(
    conversation: Conversation, query: str, listed: dict[int, list[str]]
) -> dict[int, list[str]]:  # fmt: skip
    """Chunks in which the names of the query stand last in the documents that were found. A search answers with a few
    of many; which of them is the last can only be seen in the whole document."""
    wanted = names(f"of {query}")
    if not wanted:
        return {}
    corpus = conversation.workspace.corpus
    documents: dict[int, None] = {}
    for chunk_id, told in listed.items():
        if any(wanted <= around(told, place) for place in range(len(told))):
            with suppress(PensieveError):  # its document went away meanwhile
                documents[corpus.chunk(chunk_id).document_id] = None
    found: dict[int, list[str]] = {}
    longest = max(sorted(wanted), key=len)
    for document in list(documents)[:SCANNED_DOCUMENTS]:
        places = deque(corpus.scan_literal(longest, [document]), maxlen=LAST_PLACES)
        last: dict[int, list[str]] = {}
        while places and len(last) < LAST_CHUNKS:
            offset = places.pop().offset
            chunk = corpus.chunk_containing(conversation.chunk_set, document, offset, offset + len(longest))
            if chunk is None or chunk.chunk_id in last:
                continue
            told = sentences(corpus.chunk_text(chunk)[:MAX_READ_CHARS])
            if any(wanted <= around(told, place) for place in range(len(told))):
                last[chunk.chunk_id] = told
        found |= last
    return found


def _listed(conversation: Conversation, found: Sequence[tuple[int, Sequence[str]]]) -> dict[int, list[str]]:
    """Sentences by chunk. A passage may reach into the next chunks: these count as found, too, where a highlight
    stands in them."""
    corpus = conversation.workspace.corpus
    listed: dict[int, list[str]] = {}
    for chunk_id, highlights in found:
        for one in range(chunk_id, chunk_id + CHUNKS_A_PASSAGE):
            try:
                text = corpus.chunk_text(one)[:MAX_READ_CHARS]
            except PensieveError:
                continue  # its document went away between search and reading, or this was the last chunk
            flat = " ".join(text.split())
            if one == chunk_id or any(head in flat for shown in highlights for head in _heads(shown)):
                listed.setdefault(one, sentences(text))
    return listed


def _heads(highlight: str) -> list[str]:
    """Enough of each sentence of a highlight to find it by."""
    return [one[:60] for part in highlight.split("…") for one in sentences(part) if len(one) > 12]


def _fit(
    question: str, query: str, listed: list[str], place: int, known: bool
) -> tuple[bool, float, str]:  # fmt: skip
    """(holds all names of the query, share of the query's words and of the question's, its date). To a question about
    oneself a sentence about oneself is worth a little by itself."""
    sentence = listed[place]
    asked = f"of {query}"  # the small word keeps the query's first word from counting as a beginning
    held = coverage(asked, sentence) + (0.0 if known else coverage(question, sentence))
    own = OWN_WORDS if of_oneself(question) and of_oneself(sentence) else 0.0
    day = DATED.match(sentence)
    named = names(asked) <= around(listed, place) and held > 0
    return named, round(held + own, 4), day[1] if day else ""

"""What the small model sees of a conversation: notes, what was searched in vain, hits, the text just read.

A fold of the ledger like every state of the loop. Ordering and marks are by rule (names and words of the query), so
that the model's choice is easy; what it may choose is in `moves`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.statelm.sentences import (
    STOP,
    WORD,
    asks_latest,
    coverage,
    names,
    of_oneself,
    query_of,
    sentences,
    stems,
    without_latest,
    words,
)

if TYPE_CHECKING:
    from pensieve_mcp.corpus.store import CorpusStore
    from pensieve_mcp.ledger.events import Entry
    from pensieve_mcp.statelm.conversation import Conversation

FETCHED_HITS = 12
SHOWN_HITS = 5  # of them, best by rule
CROWDED_HITS = 2
HIT_WORDS = 30
MAX_READ_CHARS = 1_200
NOTABLE = 3  # sentences that a note can be made of
NEIGHBOURS = 2  # sentences before, in which the thing spoken of may be named
LEAST_SHARE = 0.3  # of what the best of them holds
SCAN_COVERAGE = (
    0.34  # of the question's weight, which a sentence holds that is offered while reading in order
)
OWN_WORDS = 0.15  # of coverage, that a sentence about oneself is worth to a question about oneself
LATEST_FIRST = "latest first"
HIT = re.compile(r"^(\d+)([=~]) (.*)$", re.M)
HEADING = re.compile(r"#{1,6} ")
DATED = re.compile(r"^\W*(\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class Hit:
    """One found chunk by its best sentence. `mark`: `=` where all names of the query are there, else `~`."""

    chunk_id: int
    mark: str
    sentence: str


@dataclass(frozen=True, slots=True)
class View:
    """`in_sight`: ids of the results that stand, oldest first (ids count all results from 1). `text` is None where no
    text is in sight."""

    question: str
    search: bool = True
    notes: tuple[str, ...] = ()
    vain: tuple[str, ...] = ()  # queries since the last note that led to none
    searches: int = 0
    query: str = ""
    latest_first: bool = False  # undated hits that say the same stand by their place in the documents
    hits: tuple[Hit, ...] = ()
    source: int | None = None  # chunk of the text
    text: tuple[str, ...] | None = None
    notable: tuple[str, ...] = ()
    noted_from: bool = False  # the text in sight was noted from
    noted_since: bool = False  # something was noted since the search
    in_sight: tuple[int, ...] = ()
    failed: bool = False  # the last call was an error; a line without a call is none


class Course:
    """What the results so far come to, one after another. A fold that `Conversation` carries on."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._results = 0
        self.searches = 0
        self.tried: list[str] = []  # queries since the last note that led to none
        self.done: set[int] = set()  # chunks read and let go since the last search
        self.noted = {"searchEngine": False, "readChunk": False}
        self.live: dict[str, tuple[int, Entry]] = {}  # tool: (id, result)
        self.failed = False

    def copy(self) -> Course:
        other = Course(self._conversation)
        other.__dict__ |= self.__dict__
        other.tried, other.done = list(self.tried), set(self.done)
        other.noted, other.live = dict(self.noted), dict(self.live)
        return other

    def add(self, entry: Entry) -> None:
        message = entry.message
        if message.role != "tool":
            return
        self._results += 1
        self.failed = message.is_error and bool(message.tool)
        if message.is_error:
            return
        if message.tool == "searchEngine":
            self.searches += 1
            call = self._conversation.by_number(message.invoking or 0)
            query = "" if call is None else str(self._conversation.call_of(call)[1].get("query", ""))
            self.tried.append(query)
            self.done, self.noted["searchEngine"] = set(), False
        elif message.tool == "readChunk":
            self.noted["readChunk"] = False
            if entry.forgotten and self.searches:
                self.done.update(message.chunk_ids)
        elif message.tool == "note":
            self.noted = dict.fromkeys(self.noted, True)
            self.tried = self.tried[-1:] if "searchEngine" in self.live else []
        if message.tool in self.noted:
            self.live.pop(message.tool, None)
            if not entry.forgotten:
                self.live[message.tool] = (self._results, entry)


def view_of(conversation: Conversation, *, search: bool = True, crowded: bool = False) -> View:
    """The state as the small model sees it."""
    course = conversation.fold("compact", lambda: Course(conversation))
    live, noted, tried = course.live, course.noted, course.tried
    notes = tuple(" ".join(note.content.split()) for note in conversation.notes())
    query = tried[-1] if tried else ""
    hits: tuple[Hit, ...] = ()
    latest_first = False
    if "searchEngine" in live:
        worded = conversation.text_of(live["searchEngine"][1])
        latest_first = worded.startswith(LATEST_FIRST)
        every = hits_of(worded)
        hits = tuple(
            hit for hit in every
            if hit.chunk_id not in course.done and (not noted["searchEngine"] or hit.mark == "=")
        )[: CROWDED_HITS if crowded else None]  # fmt: skip
    text: tuple[str, ...] | None = None
    source: int | None = None
    notable: tuple[str, ...] = ()
    if "readChunk" in live:
        entry = live["readChunk"][1]
        text = tuple(sentences(conversation.text_of(entry)))
        source = entry.message.chunk_ids[0] if entry.message.chunk_ids else None
        tell = text if source is None else telling(conversation.workspace.corpus, source, text)
        notable = _notable(conversation.question, query if search else "", text, tell, notes, search)
        if not search and notable:  # shown as if a search had led here: that is what the model knows best
            query = query_of(conversation.question)
            best = max(notable, key=lambda one: coverage(conversation.question, one))
            hits = (Hit(source or 0, "=", short(best, query)),)
    vain = tried[:-1] if "searchEngine" in live else tried
    if noted["searchEngine"] and tried:
        vain = []
    return View(
        question=conversation.question,
        search=search,
        notes=notes,
        vain=tuple(vain),
        searches=course.searches,
        query=query if hits or "searchEngine" in live else "",
        latest_first=latest_first,
        hits=hits,
        source=source,
        text=text,
        notable=notable,
        noted_from=noted["readChunk"],
        noted_since=noted["searchEngine"],
        in_sight=tuple(sorted(number for number, _ in live.values())),
        failed=course.failed,
    )


def hits_of(text: str) -> list[Hit]:
    return [Hit(int(number), mark, sentence) for number, mark, sentence in HIT.findall(text)]


def telling(corpus: CorpusStore, chunk_id: int, listed: Sequence[str]) -> list[str]:
    """The sentences of a chunk without its headings, which name what is told below them; all where there is nothing
    else. What looks like one may be a comment in a program."""
    marked = [one for one in listed if HEADING.match(one)]
    if not marked:
        return list(listed)
    try:
        chunk = corpus.chunk(chunk_id)
        text = corpus.chunk_text(chunk)
        headings = {
            one for one in marked
            if one.strip("# ") in corpus.heading_at(chunk.document_id, chunk.span.start + max(0, text.find(one)))
        }  # fmt: skip
    except PensieveError:
        return list(listed)  # its document went away meanwhile
    return [one for one in listed if one not in headings] or list(listed)


def _notable(
    question: str, query: str, text: Sequence[str], tell: Sequence[str], noted: Sequence[str], search: bool
) -> tuple[str, ...]:
    """Of the sentences that tell something those that hold most of the query or the question, in the order of the text;
    of those alike the last where the question asks for the latest. Where some are about all names of the query, only
    these; without search, where nothing led here, only those about all names of the question."""
    every = [one for one in dict.fromkeys(tell) if one not in noted and len(one.split()) > 1]
    about = _about(names(f"of {query}") if search else names(question), text, every)
    if about or not search:
        every = about
    latest = asks_latest(question)
    if latest:
        question, query = without_latest(question), without_latest(query)
    asked = (f"of {query}",) if query and noted else (question, f"of {query}") if query else (question,)
    own = OWN_WORDS if of_oneself(question) else 0.0
    held = {one: max(coverage(w, one) for w in asked) + own * of_oneself(one) for one in every}
    least = max(SCAN_COVERAGE if not search else 0.001, LEAST_SHARE * max(held.values(), default=0.0))
    order = every[::-1] if latest else every
    best = {one for one in sorted(order, key=lambda one: -held[one])[:NOTABLE] if held[one] >= least}
    return tuple(one for one in every if one in best)


def _about(named: set[str], text: Sequence[str], every: Sequence[str]) -> list[str]:
    """Those that hold all names, or stand just after one that does; the same told of another is about that one."""
    own = [one for one in every if named <= set(words(one))]
    told = {_without_names(one) for one in own}
    return [
        one for one in every
        if one in own or (named <= around(text, text.index(one)) and _without_names(one) not in told)
    ]  # fmt: skip


def _without_names(sentence: str) -> frozenset[str]:
    return frozenset(words(sentence)) - names(f"of {sentence}")  # its first word may be the name


def around(text: Sequence[str], place: int) -> set[str]:
    """Words of a sentence and of those just before it, in which what it speaks of may be named."""
    return set(words(" ".join(text[max(0, place - NEIGHBOURS) : place + 1])))


def short(sentence: str, query: str) -> str:
    """At most so many words, those around the query's; a date at the beginning stays."""
    shown = sentence.split()
    if len(shown) <= HIT_WORDS:
        return " ".join(shown)
    wanted = stems(query)
    hit = [bool(wanted & stems(word)) for word in shown]
    best = max(
        range(len(shown) - HIT_WORDS + 1), key=lambda start: (sum(hit[start : start + HIT_WORDS]), -start)
    )
    cut = shown[best : best + HIT_WORDS]
    return " ".join([shown[0], "…", *cut] if best and DATED.match(sentence) else cut)


def query_words(view: View) -> list[str]:
    """Words a query may take as they stand: names of the question and the notes, the question's other words."""
    texts = [view.question, *view.notes]
    found = dict.fromkeys(word for text in texts for word in WORD.findall(text) if word.lower() not in STOP)
    return list(found)

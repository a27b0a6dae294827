"""Which tools can be used in this state: a tool whose precondition does not hold is not offered.

Untrained small models fail mostly on calls that could not work (ContextPilot's ablation), so they are not shown them:
reading a note before one was written, a chunk before a search, anything but making room when the window is nearly full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pensieve_mcp.ledger.events import Entry
from pensieve_mcp.statelm.conversation import Conversation

CROWDED_PERCENT = 90  # of the window: only making room and finishing from there
MOST_NAMED = 200  # messages in one schema: providers take some hundred values in all
ROOM_MAKERS = frozenset({"note", "updateNote", "deleteContext", "finish", "checkBudget"})


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be done now. `deletable` are the newest messages that may go, `found` chunks of searches that are still
    in mind."""

    spells: frozenset[str]
    deletable: tuple[Entry, ...] = ()
    found: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()  # of notes, as the model names them
    crowded: bool = False
    last_round: bool = False

    def __contains__(self, name: object) -> bool:
        return name in self.spells


ALWAYS = ("analyzeText", "checkBudget", "buildIndex", "searchEngine", "note", "plan", "finish")


def offer(conversation: Conversation, *, hits_in: Callable[[str], list[int]], search: bool = True) -> Offer:
    """The tools this state allows. `hits_in` reads chunk ids from a search result as the dialect words it; without
    `search` documents are read in order, as in the paper's needle test."""
    budget = conversation.budget()
    deletable = conversation.deletable(MOST_NAMED)
    spells = set(ALWAYS)
    if not search:
        spells.discard("searchEngine")
    found: dict[int, None] = {}
    for entry in conversation.standing("searchEngine"):
        for chunk_id in hits_in(conversation.text_of(entry)):
            found[chunk_id] = None
    if not search or conversation.worked("searchEngine", "readChunk", "buildIndex"):
        spells.add("readChunk")
    lines = conversation.index_lines()
    keys = tuple(conversation.shown_key(note.key) for note in conversation.notes())
    if lines:
        spells |= {"readNote", "updateNote"}
    if conversation.whole_results():
        spells.add("deleteContext")
    if conversation.anything_forgotten():
        spells.add("restoreContext")
    crowded = budget.used * 100 >= CROWDED_PERCENT * (budget.window - conversation.settings.reserve_tokens)
    if crowded:
        spells &= ROOM_MAKERS
    last_round = budget.rounds_left <= 0
    if last_round:
        spells = {"finish"}
    return Offer(frozenset(spells), deletable, tuple(found), keys, crowded, last_round)

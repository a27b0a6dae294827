"""How a state is printed for a kind of model, and how its actions are read.

`ours` for any model with tools; `published` for the paper's trained weights, whose field names, ids, stub and template
it keeps; `compact` for the small model that comes with us. A dialect knows no backend and casts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pensieve_mcp.errors import Miscast

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import ChunkSet
    from pensieve_mcp.spellbook.casting import CastResult
    from pensieve_mcp.statelm.conversation import Conversation
    from pensieve_mcp.statelm.offering import Offer
    from pensieve_mcp.statelm.turns import Call, Prompt, Reply

NAMES = ("ours", "published", "compact")


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that the dialect answers by itself, without a spell: the published `loadDocument`."""

    text: str
    label: str = ""
    is_error: bool = False


class Dialect(Protocol):
    """One way of printing and reading. Pure over the conversation; none of these writes."""

    name: str
    private_notes: bool
    search: bool
    window_tokens: int | None
    """Window its model was made for, None for that of the settings."""

    @property
    def chunk_set(self) -> ChunkSet | None:
        """Chunks its model was made for, None for those of the settings."""

    def hits_in(self, text: str) -> list[int]:
        """Chunk ids (ours) named by a search result that `word` wrote."""

    def prompt(self, conversation: Conversation, offer: Offer) -> Prompt: ...

    def read(self, reply: Reply) -> tuple[str, list[Call]]:
        """Thought and calls of a reply; calls written in the text are found there."""

    def translate(self, conversation: Conversation, call: Call) -> Call | Answered:
        """The call in the spellbook's terms. Raises Miscast for what cannot mean anything."""

    def word(self, conversation: Conversation, call: Call, result: CastResult, ours: str) -> str:
        """The result as the model sees it and the ledger keeps it. `ours` is the spellbook's own wording."""


def dialect(name: str, *, search: bool = True) -> Dialect:
    """By name. Raises Miscast."""
    if name == "ours":
        from pensieve_mcp.statelm.dialects.ours import Ours

        return Ours(search=search)
    if name == "published":
        from pensieve_mcp.statelm.dialects.published import Published

        return Published(search=search)
    if name == "compact":
        from pensieve_mcp.statelm.dialects.compact import Compact

        return Compact(search=search)
    raise Miscast(
        f"There is no dialect {name[:60]!r}.", hint=f"There are {', '.join(NAMES)}.", slug="no_such_dialect"
    )

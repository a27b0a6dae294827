"""What a person may choose from a host's menu: answer a question, hand over, go through the notes.

A prompt is text for the host's model; what it should do is done with the spells. Notes and plan are put in as
they stand now, as far as a result may be large; only what the user wrote is never cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pensieve_mcp.errors import Miscast
from pensieve_mcp.server.episodes import Episodes
from pensieve_mcp.server.opening import Opening
from pensieve_mcp.server.resources import within
from pensieve_mcp.spellbook.handoff import MAX_BYTES, as_text, gather
from pensieve_mcp.spellbook.wording import bytes_of, listing, one_line

_NOTES_BYTES = 6_000
_AROUND_BYTES = 1_200  # what a prompt says itself, the user's own words not counted


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    description: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class PromptCard:
    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...] = ()


CARDS = (
    PromptCard(
        "answer",
        "Answer from the documents",
        "Search, read, note, delete, then answer with citations.",
        (Argument("question", "What to find out."),),
    ),
    PromptCard(
        "handoff", "Hand over", "What whoever goes on needs to know: goal, findings with sources, next step."
    ),
    PromptCard(
        "review-notes",
        "Go through the notes",
        "Check notes against their evidence, merge doubles, mend what no longer holds.",
    ),
)

_ANSWER = """Answer this from the documents: {question}{more}

{notes}

Set the plan with its goal, then work in even rounds: search with several wordings in one call; read one or \
two chunks; note each finding with an exact quote and its chunk id as evidence; delete what you have read, in one \
call; search again for what is missing. Where order matters or everything counts, read on in order with readChunk \
without chunk_id. When the notes suffice, call finish with the answer and its citations. If other words and \
mode=exact find nothing either, say that the documents do not hold the answer."""

_ONE_WORD = """
(A host may hand on only the first word. If the user's command says more, all of that is the question.)"""
"""Claude Code splits a command's arguments at spaces and drops what is left over; the model sees them all."""

_HANDOFF = """Hand this work over to whoever continues it in a fresh conversation.

{record}

That record was made by rule and is what will be handed over. Bring it up to date: note whatever is in mind but \
in no note yet, each with its source; call plan so that goal, constraints, steps and next are current; and write what \
no rule can see (hypotheses, dead ends, what is unknown) in a few lines into the note `handoff`. Then say in one \
sentence that it is done."""

_REVIEW = """Go through the notebook.

{notes}

For each note: readNote shows the state of its evidence. Where it is ok, leave it. Where it has moved or \
changed, search for the place and overwrite the note with a new quote. Where nothing supports it, say so in \
the note. Merge notes that say the same with updateNote. Report what you changed, in a few lines."""


class Prompts:
    """Fills the cards in. Blocks on the notebook: call from a worker thread. Raises PensieveError."""

    def __init__(self, opening: Opening, episodes: Episodes) -> None:
        self._opening = opening
        self._episodes = episodes

    def get(
        self, name: str, arguments: Mapping[str, str] | None, *, session: str = ""
    ) -> tuple[PromptCard, str]:
        """The card and its text. Raises Miscast for an unknown name or a missing argument."""
        card = next((card for card in CARDS if card.name == name), None)
        if card is None:
            raise Miscast(
                f"There is no prompt {name[:80]!r}.",
                hint=f"There are {', '.join(card.name for card in CARDS)}.",
                slug="no_such_prompt",
            )
        given = {key: value for key, value in (arguments or {}).items() if value.strip()}
        for argument in card.arguments:
            if argument.required and argument.name not in given:
                raise Miscast(
                    f"The prompt {name} needs {argument.name}: {argument.description}",
                    hint="Give it and try again.",
                    slug="missing_argument",
                )
        notes = self._notes()
        if name == "answer":
            question = given["question"].strip()
            more = _ONE_WORD if len(question.split()) == 1 else ""
            return card, _ANSWER.format(question=question, more=more, notes=notes)
        if name == "handoff":
            episode = self._episodes.current(session)
            if episode is None:
                return card, _HANDOFF.format(record=f"No tool was called in this conversation yet.\n{notes}")
            room = min(MAX_BYTES, self._room())
            record = as_text(gather(episode), max_bytes=room)
            return card, _HANDOFF.format(record=within(record, room, "plan and readNote show all"))
        return card, _REVIEW.format(notes=notes)

    def _room(self) -> int:
        return max(500, self._opening.workspace().settings.result_bytes - _AROUND_BYTES)

    def _notes(self) -> str:
        room = min(_NOTES_BYTES, self._room())
        page = self._opening.workspace().notebook.list(limit=500)
        cursor = page.cursor
        if not page.lines:
            return "There are no notes yet."
        lines = ["Notes so far (readNote reads one):"]
        for note in page.lines:
            line = f"{note.key}: {one_line(note.summary, 160)}"
            if bytes_of(listing(lines)) + bytes_of(line) > room:
                cursor = note.key
                break
            lines.append(line)
        return listing([*lines, *(["and more: readNote without key lists all."] if cursor else [])])

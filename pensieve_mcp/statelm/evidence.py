"""Where an answer stands: quotes for notes of models that give none, and whether an answer is grounded.

Grounded means that a note of this conversation holds the answer in a quote that was found in the documents.
Looked up by string, never judged by a model.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.ledger.events import refuses
from pensieve_mcp.statelm.sentences import content_words, normal, sentences, words
from pensieve_mcp.statelm.turns import Cited

if TYPE_CHECKING:
    from pensieve_mcp.statelm.conversation import Conversation

MIN_QUOTE_CHARS = 12
MAX_QUOTES = 8
SHORT_ANSWER_WORDS = 12  # up to here every word of an answer must stand in the quotes
LONG_ANSWER_SHARE = 0.7  # of the content words of a longer answer


def quotes_for(conversation: Conversation, content: str) -> list[dict[str, Any]]:
    """Sentences of a note's text that stand word for word in chunks read lately, as evidence for it."""
    corpus = conversation.workspace.corpus
    texts: list[tuple[int, str]] = []
    for chunk_id in conversation.recent_chunks()[:4]:
        try:
            texts.append((chunk_id, " ".join(corpus.chunk_text(chunk_id).split())))
        except PensieveError:
            continue  # its document went away meanwhile; the note keeps its text all the same
    found: list[dict[str, Any]] = []
    for sentence in sentences(re.sub(r'[{}"\[\]]|\\n', "\n\n", content)):
        quote = sentence.strip(" ,:;")
        if len(quote) < MIN_QUOTE_CHARS:
            continue
        for chunk_id, text in texts:
            if quote.rstrip(".") in text:
                found.append({"chunk_id": str(chunk_id), "quote": quote.rstrip(".")})
                break
        if len(found) == MAX_QUOTES:
            break
    return found


def citations(conversation: Conversation, answer: str) -> tuple[bool, tuple[Cited, ...]]:
    """Whether the answer is grounded, and the quotes it rests on: those that hold something of it."""
    if refuses(answer):
        return False, ()
    wanted = set(content_words(answer))
    ranked: list[tuple[int, Cited]] = []
    for note in conversation.notes():
        for item in note.evidence:
            held = len(wanted & set(words(item.quote)))
            if held:
                cited = Cited(item.path, item.locator, item.chunk_id, item.quote, item.state)
                ranked.append((held, cited))
    ranked.sort(key=lambda pair: -pair[0])
    rests_on = tuple(dict.fromkeys(cited for _, cited in ranked))[:MAX_QUOTES]
    checked = [cited.quote for cited in rests_on if cited.state in ("ok", "moved")]
    return holds(checked, answer), rests_on


def holds(quotes: list[str], answer: str) -> bool:
    """Whether quotes hold an answer: a short one part by part as it stands, a longer one by most of its words and all
    its numbers."""
    if not quotes:
        return False
    texts = [f" {normal(quote)} " for quote in quotes]
    whole = normal(answer)
    if any(f" {whole} " in text for text in texts):
        return True
    every = set(" ".join(texts).split())
    said = content_words(answer)
    if len(said) <= SHORT_ANSWER_WORDS:
        parts = [normal(part) for part in re.split(r",|;|\band\b|\bund\b|\n", answer)]
        parts = [part for part in parts if part]
        return bool(parts) and all(any(f" {part} " in text for text in texts) for part in parts)
    numbers = {word for word in said if any(c.isdigit() for c in word)}
    share = sum(word in every for word in said) / max(1, len(said))
    return numbers <= every and share >= LONG_ANSWER_SHARE

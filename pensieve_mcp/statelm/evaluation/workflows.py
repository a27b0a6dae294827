"""What the loop is compared with: the same model without tools, with the question alone, and two fixed workflows.

direct     the documents as far as they fit into the window, then the question
question   the question alone: what the model knows or guesses
memagent   MemAgent (arXiv 2507.02259): section after section, each time the memory is written anew; then the answer
readagent  ReadAgent (arXiv 2402.09727): pages, a gist of each, pages looked up again for the question, the answer

Prompts and code are ours, made from the published algorithms: sizes as there, unless the window is smaller.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pensieve_mcp.statelm.backends import Backend
from pensieve_mcp.statelm.turns import Prompt, Usage
from pensieve_mcp.tokens import count_tokens

ANSWER_TOKENS = 128
SECTION_TOKENS, MEMORY_TOKENS = 5_000, 1_024  # MemAgent's own sizes
PAGE_TOKENS, GIST_TOKENS, MOST_LOOKED_UP = (
    800,
    160,
    5,
)  # ReadAgent's: up to 600 words a page, five pages looked up
MARGIN_TOKENS = 64  # what a chat template adds, and our count being an estimate
ESTIMATE = 0.85  # of a window is filled: the counter may be 15 % off

ANSWER = "Answer in a few words. If the text does not say, answer: not found."
NO_MEMORY = "(nothing yet)"


@dataclass(slots=True)
class Outcome:
    """The answer of a workflow and what it cost."""

    answer: str
    calls: int = 0
    peak_tokens: int = 0
    mean_tokens: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    model_cpu_seconds: float = 0.0  # of these during replies
    usage: Usage = field(default_factory=Usage)
    cut: bool = False  # text was left out, since it did not fit


class Speaker:
    """A model asked in plain words, with what it cost added up. Raises BackendError as the backend does."""

    def __init__(self, backend: Backend, window_tokens: int) -> None:
        self.backend = backend
        self.window_tokens = window_tokens
        self.sizes: list[int] = []
        self.usage = Usage()
        self.cut = False
        self._began = time.monotonic(), time.process_time()
        self._model_cpu_seconds = 0.0

    def room(self, output_tokens: int) -> int:
        """Tokens that a prompt may have."""
        return max(128, int((self.window_tokens - output_tokens - MARGIN_TOKENS) * ESTIMATE))

    def fitted(self, text: str, tokens: int) -> str:
        """The text from its beginning, as far as it fits; that it was cut is remembered."""
        if count_tokens(text) <= tokens:
            return text
        self.cut = True
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count_tokens(text[:middle]) <= tokens else (low, middle - 1)
        return text[:low]

    def say(self, prompt: str, output_tokens: int) -> str:
        text = self.fitted(prompt, self.room(output_tokens))
        self.sizes.append(count_tokens(text))
        message = {"role": "user", "content": text}
        began = time.process_time()
        reply = self.backend.reply(Prompt((message,), max_output_tokens=output_tokens))
        self._model_cpu_seconds += time.process_time() - began
        self.usage += reply.usage
        return re.sub(r"<think>.*?(?:</think>|\Z)", "", reply.text, flags=re.S).strip()

    def outcome(self, answer: str) -> Outcome:
        mean = sum(self.sizes) / len(self.sizes) if self.sizes else 0.0
        return Outcome(
            answer,
            len(self.sizes),
            max(self.sizes, default=0),
            round(mean, 1),
            round(time.monotonic() - self._began[0], 3),
            round(time.process_time() - self._began[1], 3),
            round(self._model_cpu_seconds, 3),
            self.usage,
            self.cut,
        )


Workflow = Callable[[Speaker, str, Sequence[str]], Outcome]


def sections(paragraphs: Sequence[str], tokens: int) -> list[str]:
    """Neighbouring paragraphs together, each section at most so long; an overlong paragraph is parted."""
    found: list[str] = []
    held: list[str] = []
    size = 0
    for paragraph in paragraphs:
        for piece in _parted(paragraph, tokens):
            cost = count_tokens(piece) + 1
            if held and size + cost > tokens:
                found.append("\n\n".join(held))
                held, size = [], 0
            held.append(piece)
            size += cost
    return [*found, "\n\n".join(held)] if held else found


def _parted(text: str, tokens: int) -> list[str]:
    cost = count_tokens(text)
    if cost <= tokens:
        return [text]
    step = max(1, len(text) * tokens // cost - 8)
    return [text[start : start + step] for start in range(0, len(text), step)]


def direct(speaker: Speaker, question: str, paragraphs: Sequence[str]) -> Outcome:
    asked = f"\n\nQuestion: {question}\n{ANSWER}"
    room = speaker.room(ANSWER_TOKENS) - count_tokens(asked) - 16
    text = speaker.fitted("\n\n".join(paragraphs), room)
    return speaker.outcome(speaker.say(f"Text:\n{text}{asked}", ANSWER_TOKENS))


def question_alone(speaker: Speaker, question: str, paragraphs: Sequence[str]) -> Outcome:
    return speaker.outcome(speaker.say(f"Question: {question}\n{ANSWER}", ANSWER_TOKENS))


def memagent(speaker: Speaker, question: str, paragraphs: Sequence[str]) -> Outcome:
    memory_tokens = min(MEMORY_TOKENS, speaker.window_tokens // 5)
    room = speaker.room(memory_tokens) - memory_tokens - count_tokens(question) - 128
    memory = NO_MEMORY
    for section in sections(paragraphs, max(64, min(SECTION_TOKENS, room))):
        memory = speaker.say(
            f"A question is to be answered from a long text that you see section by section.\nQuestion: {question}\n\n"
            f"Your memory so far:\n{speaker.fitted(memory, memory_tokens)}\n\nThe next section:\n{section}\n\n"
            "Write the memory anew: keep what helps to answer the question, add what this section says about it.",
            memory_tokens,
        )
    said = speaker.say(
        f"Question: {question}\n\nYour memory of the whole text:\n{memory}\n\n{ANSWER}", ANSWER_TOKENS
    )
    return speaker.outcome(said)


def readagent(speaker: Speaker, question: str, paragraphs: Sequence[str]) -> Outcome:
    """Pages are cut at paragraphs by size; the published method lets the model choose the paragraph to pause at, which
    doubles the calls. Gists are made for each question anew, so that each question pays its own way."""
    page_tokens = min(PAGE_TOKENS, speaker.room(GIST_TOKENS) - 64)
    pages = sections(paragraphs, max(64, page_tokens))
    gists = [
        speaker.say(f"Shorten this page to its gist, keep names and numbers:\n\n{page}", GIST_TOKENS)
        for page in pages
    ]
    listed = "\n".join(f"<Page {number}> {' '.join(gist.split())}" for number, gist in enumerate(gists))
    chosen = speaker.say(
        f"{speaker.fitted(listed, speaker.room(32) - count_tokens(question) - 96)}\n\nQuestion: {question}\n"
        f"These are gists of a text. Which pages would you read again to answer? At most {MOST_LOOKED_UP} numbers, "
        "like [3, 8].",
        32,
    )
    numbers = [int(one) for one in re.findall(r"\d{1,7}", chosen)]
    wanted = [n for n in dict.fromkeys(numbers) if n < len(pages)][:MOST_LOOKED_UP]
    room = speaker.room(ANSWER_TOKENS) - count_tokens(question) - 64
    shown = "\n\n".join(f"<Page {n}> {pages[n]}" for n in wanted)  # first, so that what is cut is gists
    shown = speaker.fitted(f"{shown}\n\n{listed}", room)
    return speaker.outcome(speaker.say(f"{shown}\n\nQuestion: {question}\n{ANSWER}", ANSWER_TOKENS))


WORKFLOWS: dict[str, Workflow] = {
    "direct": direct,
    "question": question_alone,
    "memagent": memagent,
    "readagent": readagent,
}

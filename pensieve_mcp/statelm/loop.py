"""The loop: print the state, let a model choose one call, cast it, write both down; until it finishes or must stop.

s' = F(s, a, o) with F the ledger's fold. The loop adds no words of its own to an answer: it ends with what the model
finished with, with an honest "not found", or with a worded reason. Guards answer a call instead of a spell
where casting it could not help: repeats, plans after plans, several calls at once, reading past the window.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from pensieve_mcp.errors import BackendError, Miscast, PensieveError
from pensieve_mcp.ledger.events import Transcript, refuses
from pensieve_mcp.ledger.stubs import Run, standing_tokens
from pensieve_mcp.spellbook.casting import REFUSED_CALL_CHARS, CastResult, cast
from pensieve_mcp.statelm.backends import COUNTED_SHARE, Backend
from pensieve_mcp.statelm.conversation import Conversation, heaviest_results
from pensieve_mcp.statelm.dialects import Answered, Dialect
from pensieve_mcp.statelm.evidence import citations
from pensieve_mcp.statelm.offering import Offer, offer
from pensieve_mcp.statelm.turns import Asked, Call, Metrics, Prompt, Reply, Turn, Usage
from pensieve_mcp.tokens import count_tokens

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

HARD_STOP_ROUNDS = 200  # the paper's evaluation; the budget of rounds (150) only leaves finish to be chosen
ROUNDS_A_CHUNK, SCAN_ROUNDS = 3, 50  # without search: read, note, delete; and some to begin and end
STRAY_TURNS = 4  # turns in a row that came to nothing, after which a model is stuck
SAME_CALL = 3  # times a chunk may be read, and the same search be made, whatever happened between
HEAVY_TOKENS = 200  # of a result that is worth deleting by itself
READING_PERCENT = 85  # of the window, below what counts as crowded
KEPT_ENTRIES = 16  # the last of a conversation, never folded into a line
UNCOUNTED = Usage()
CHANGING = frozenset({"note", "updateNote", "deleteContext", "restoreContext", "buildIndex"})
ENDLESS = frozenset(
    {"checkBudget", "readChunk"}
)  # may be called alike again: reading on, looking at the meter


class Cancelled(PensieveError):
    """Whoever asked does not want the answer any more."""

    slug = "cancelled"


class Loop:
    """One question with one dialect. `watch` sees every turn; `cancelled` is asked before each."""

    def __init__(
        self,
        conversation: Conversation,
        dialect: Dialect,
        *,
        watch: Callable[[Turn], None] = lambda turn: None,
        cancelled: Callable[[], bool] = lambda: False,
        hard_stop_rounds: int = HARD_STOP_ROUNDS,
    ) -> None:
        self.conversation = conversation
        conversation.window_tokens = dialect.window_tokens
        self.dialect = dialect
        self.watch = watch
        self.cancelled = cancelled
        self.hard_stop_rounds = hard_stop_rounds
        self.answer: str | None = None
        self.usage = Usage()
        self.peak_prompt_tokens = 0
        self.visible: list[int] = []
        self._printed: tuple[Transcript, Prompt] | None = (
            None  # the next prompt, where a turn's end printed it
        )
        self._before = conversation.in_mind()  # of an earlier loop over this conversation
        self._counts: Counter[str] = Counter()
        self._written: dict[str, Counter[str]] = {}  # calls by tool, since the state last changed
        self._searched: Counter[str] = Counter()  # ever
        self._runs: dict[tuple[int, int, int], int] = {}
        self._strays = 0
        self._last_tool = ""
        self._began = time.monotonic(), time.process_time()
        self._model_seconds = self._model_cpu_seconds = 0.0

    @classmethod
    def over(
        cls,
        workspace: Workspace,
        question: str,
        dialect: Dialect,
        *,
        model: str = "",
        under: tuple[str, ...] = (),
        watch: Callable[[Turn], None] = lambda turn: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Loop:
        """A new conversation over a workspace, cut into the chunks that the dialect's model knows."""
        if dialect.chunk_set is not None:
            workspace.corpus.ensure_chunk_set(dialect.chunk_set)
        conversation = Conversation.begin(
            workspace,
            question,
            model=model,
            chunk_set=dialect.chunk_set,
            private_notes=dialect.private_notes,
            under=under,
        )
        loop = cls(conversation, dialect, watch=watch, cancelled=cancelled)
        if not dialect.search:
            chunks = workspace.corpus.chunk_count(conversation.chunk_set)
            conversation.rounds = ROUNDS_A_CHUNK * chunks + SCAN_ROUNDS
            loop.hard_stop_rounds = 2 * conversation.rounds
        return loop

    def fit(self, context_tokens: int | None) -> None:
        """Keep to a model's own window where that is smaller. In its tokens, None where it is not known."""
        if context_tokens is not None:
            most = int(context_tokens * COUNTED_SHARE)
            given = self.conversation.window_tokens
            self.conversation.window_tokens = most if given is None else min(given, most)

    # -- one turn ------------------------------------------------------------------------------------------

    def offer(self) -> Offer:
        return offer(self.conversation, hits_in=self.dialect.hits_in, search=self.dialect.search)

    def prompt(self) -> Prompt:
        """The state as the model sees it now; makes room first where it would not fit."""
        while True:
            printed = self._print()
            if not self._make_room():
                return printed

    def _print(self) -> Prompt:
        """The state in the dialect's words, measured. What the end of a turn printed is the next prompt, as long as
        nothing was said in between."""
        state, kept = self.conversation.transcript(), self._printed
        self._printed = None
        if kept is not None and kept[0] is state:
            return kept[1]
        printed = self.dialect.prompt(self.conversation, self.offer())
        self._measure(printed)
        return printed

    def take(self, reply: Reply, offered: Offer | None = None) -> None:
        """One reply of a model: its first call is cast, anything else is answered with what to do instead."""
        self.usage += reply.usage
        self.peak_prompt_tokens = max(self.peak_prompt_tokens, reply.usage.prompt_tokens)
        thought, calls = self.dialect.read(reply)
        if not calls:
            self._stray(thought, reply)
            return
        self.act(calls[0], thought, ignored=len(calls) - 1, usage=reply.usage)

    def act(
        self, call: Call, thought: str = "", *, ignored: int = 0, usage: Usage = UNCOUNTED
    ) -> CastResult | None:
        """Cast one call of the dialect and write it down. None where a guard or the dialect answered it."""
        said = json.dumps(
            {"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False, default=str
        )
        try:
            self._guard(call, said)
            translated = self.dialect.translate(self.conversation, call)
        except PensieveError as refused:
            self._refuse(call, said, thought, refused, usage)
            return None
        if isinstance(translated, Answered):
            self.conversation.say(
                call.name,
                said,
                translated.text,
                thought=thought,
                is_error=translated.is_error,
                label=translated.label,
            )
            self._done(call, thought, translated.text, translated.is_error, usage)
            return None
        result = cast(self.conversation, translated.name, translated.arguments)
        more = (
            "\n[One call a turn: only the first was cast.]" if ignored and self.dialect.name == "ours" else ""
        )
        shown = ""

        def word(ours: str) -> str:
            nonlocal shown
            shown = self.dialect.word(self.conversation, call, result, ours) + more
            return shown

        self.conversation.settle(word, call_text=_kept(said) if result.is_error else said, thought=thought)
        self._done(call, thought, shown or result.text, result.is_error, usage)
        if translated.name == "finish" and not result.is_error:
            self.answer = str(result.result["final_answer"])
        return result

    # -- guards --------------------------------------------------------------------------------------------

    def _guard(self, call: Call, said: str) -> None:
        """Raises Miscast for a call that would be cast in vain."""
        if call.name == "plan" and self._last_tool == "plan" and call.arguments:
            raise Miscast(
                "The plan was written in the turn before.",
                hint="Take its first step now: searchEngine, readChunk or note.",
                slug="plan_again",
            )
        written = self._written.setdefault(call.name, Counter())
        written[said] += 1
        if written[said] > 1 and call.name not in ENDLESS:
            raise Miscast(
                "This very call was made before, and nothing has changed since.",
                hint="Search with other words, read another chunk, or finish with what the notes say.",
                slug="repeated",
            )
        if call.name == "searchEngine":
            self._searched[said] += 1
        if self._searched[said] > SAME_CALL:
            raise Miscast(
                f"This search was made {self._searched[said] - 1} times; it finds the same again.",
                hint="Search with other words, or finish with what the notes say.",
                slug="repeated",
            )
        if (
            call.name == "readChunk"
            and written[said] > SAME_CALL
            and call.arguments.get("enable_scan") is None
        ):
            wanted = call.arguments.get("chunk_id", call.arguments.get("id"))
            if wanted is not None:
                raise Miscast(
                    f"Chunk {wanted} was read {written[said] - 1} times.",
                    hint="Note what it says, or finish.",
                    slug="repeated",
                )

    def _refuse(self, call: Call, said: str, thought: str, refused: PensieveError, usage: Usage) -> None:
        text = str(refused)
        if self.dialect.name == "published":
            text = json.dumps({"error": text}, ensure_ascii=False)
        self.conversation.say(call.name[:80] or "call", _kept(said), text, thought=thought, is_error=True)
        self._done(call, thought, text, True, usage)

    def _stray(self, thought: str, reply: Reply) -> None:
        """No call in the reply: nothing, garbage, an answer in plain words."""
        offered = sorted(self.offer().spells)
        why = "The reply was cut off before a call. " if reply.cut else "There was no call in that reply. "
        text = f"{why}Call one tool: {', '.join(offered)}. To answer, call finish."
        said = json.dumps({"name": "", "arguments": {}})
        self.conversation.say("", said, text, thought=thought or "…", is_error=True)
        self._done(Call(""), thought, text, True, reply.usage)

    def _done(self, call: Call, thought: str, text: str, is_error: bool, usage: Usage) -> None:
        if call.name in CHANGING and not is_error:
            # The state is another one now, so what was tried before may be tried again.
            self._written = {call.name: self._written.get(call.name, Counter())}
        self._strays = self._strays + 1 if is_error else 0
        self._last_tool = call.name
        self._counts["errors" if is_error else call.name] += 1
        if (
            self.dialect.name == "compact"
        ):  # its prompt shows a part of what was read: only printing tells how much
            self._printed = self.conversation.transcript(), self._print()
        visible = self.conversation.budget().used
        self.visible.append(visible)
        self.watch(
            Turn(len(self.visible), call.name, dict(call.arguments), thought, text, is_error, visible, usage)
        )

    def _make_room(self) -> bool:
        """A prompt that does not fit cannot be sent: the heaviest result goes, in our name, and where none is heavy the
        older half of what is left, as one line. The model sees stubs, the ledger says who did it. Answers whether
        anything went."""
        if self.conversation.budget().used <= self._most_tokens():
            return False
        heavy = heaviest_results(self.conversation)
        if heavy and (heavy[0].message.tokens >= HEAVY_TOKENS or self.dialect.name != "ours"):
            numbers: tuple[int, ...] = (heavy[0].message.number,)
        elif self.dialect.name == "ours":
            # calls and small results of a long reading: their stubs become one line
            old = self.conversation.deletable()[:-KEPT_ENTRIES]
            numbers = tuple(entry.message.number for entry in old[: (len(old) + 1) // 2])
        else:
            return False
        if not numbers:
            return False
        self.conversation.forget(numbers, "over budget: deleted by the loop")
        return True

    def _most_tokens(self) -> int:
        """What may stand in the prompt. Reading in order must always find room for one more chunk."""
        settings = self.conversation.settings
        most = settings.window_tokens - settings.reserve_tokens
        if self.dialect.search or self.dialect.name != "ours":
            return most
        return min(most * READING_PERCENT // 100, most - self.conversation.chunk_set.size_tokens * 5 // 4)

    def _measure(self, printed: Prompt) -> None:
        visible = self.conversation.transcript().visible_tokens
        if self.dialect.name == "compact":
            overhead = count_tokens(printed.text) - visible
        else:
            first = sum(count_tokens(str(m["content"])) for m in printed.messages[:2])
            overhead = first + self._tools_tokens(printed)
            if self.dialect.name == "ours":
                overhead -= self._spared()
        self.conversation.with_overhead(overhead)  # below zero where old pairs are not shown at all

    def _tools_tokens(self, printed: Prompt) -> int:
        return count_tokens(json.dumps(printed.tools, ensure_ascii=False))

    def _spared(self) -> int:
        """What old stubs take less as lines than one by one. A line never changes, so it is counted once."""
        spared = 0
        for item in self.conversation.coalesced():
            if not isinstance(item, Run):
                continue
            name = item.numbers[0], item.numbers[-1], len(item.entries)
            if name not in self._runs:
                standing = sum(standing_tokens(entry) for entry in item.entries)
                self._runs[name] = standing - count_tokens(item.line())
            spared += self._runs[name]
        return spared

    # -- many turns ----------------------------------------------------------------------------------------

    def run(self, backend: Backend) -> Asked:
        """Turn until the end. Never raises on what a model or its server does; StorageError is passed on."""
        ended, detail = "finished", ""
        try:
            while self.answer is None:
                if self.cancelled():
                    ended = "cancelled"
                    break
                if self.conversation.transcript().rounds >= self.hard_stop_rounds:
                    ended, detail = (
                        "rounds",
                        f"Stopped after {self.hard_stop_rounds} rounds without an answer.",
                    )
                    break
                if self._strays >= STRAY_TURNS:
                    ended, detail = (
                        "stuck",
                        f"Stopped after {STRAY_TURNS} turns in a row that came to nothing.",
                    )
                    break
                printed = self.prompt()
                self.take(Reply(printed.forced) if printed.forced else self._asked(backend, printed))
        except BackendError as error:
            ended, detail = "backend", str(error)
        except Cancelled:  # in the middle of a reply
            ended = "cancelled"
        except KeyboardInterrupt:
            self.result("cancelled")  # the conversation is over for the ledger, too
            raise
        return self.result(ended, detail, model=backend.model)

    def _asked(self, backend: Backend, printed: Prompt) -> Reply:
        began = time.monotonic(), time.process_time()
        try:
            return backend.reply(printed)
        finally:
            self._model_seconds += time.monotonic() - began[0]
            self._model_cpu_seconds += time.process_time() - began[1]

    def result(
        self, ended: str = "finished", detail: str = "", *, model: str = "", extractive: bool = False
    ) -> Asked:
        """What came of it, with the answer's support looked up. Without an answer the conversation is over, too."""
        self.conversation.write_down([*self._before, *self.visible])
        if self.answer is None:
            self.conversation.workspace.ledger.update_episode(self.conversation.episode_id, state="closed")
        answer = self.answer if self.answer is not None else ""
        found = bool(answer) and not refuses(answer)
        grounded, cited = citations(self.conversation, answer) if found else (False, ())
        if ended == "finished" and not found:
            ended = "not_found"
        if not found:  # a reader who found nothing is told what the state of the index has to do with it
            detail = " ".join(filter(None, (detail, self.conversation.workspace.standing())))
        return Asked(
            question=self.conversation.question,
            answer=answer,
            found=found,
            grounded=grounded,
            policy="extractive" if extractive else "model",
            ended=ended,
            citations=cited,
            metrics=self.metrics(),
            episode=self.conversation.handle,
            model=model,
            dialect=self.dialect.name,
            detail=detail,
        )

    def metrics(self) -> Metrics:
        transcript = self.conversation.transcript()
        counts = self._counts
        reads = counts["readChunk"] + counts["loadDocument"]
        return Metrics(
            rounds=len(self.visible),
            memory_operations=counts["note"] + counts["updateNote"] + counts["readNote"],
            deletions=counts["deleteContext"],
            searches=counts["searchEngine"],
            reads=reads,
            errors=counts["errors"],
            peak_tokens=max([*self.visible, 0]),
            mean_tokens=round(sum(self.visible) / len(self.visible), 1) if self.visible else 0.0,
            said_tokens=sum(e.message.tokens for e in transcript.entries),
            freed_tokens=transcript.freed_tokens,
            deletions_per_read=round(counts["deleteContext"] / reads, 2) if reads else 0.0,
            peak_prompt_tokens=self.peak_prompt_tokens,
            seconds=round(time.monotonic() - self._began[0], 3),
            cpu_seconds=round(time.process_time() - self._began[1], 3),
            model_seconds=round(self._model_seconds, 3),
            model_cpu_seconds=round(self._model_cpu_seconds, 3),
            usage=self.usage,
        )


def _kept(said: str) -> str:
    """What is kept of a refused call: enough to see what it was, and no prompt filled with it."""
    return said if len(said) <= REFUSED_CALL_CHARS else f"{said[:REFUSED_CALL_CHARS]}… [refused]"

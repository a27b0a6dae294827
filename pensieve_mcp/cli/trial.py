"""try: the main job, seen. A scripted host reads a library with the real spells and draws what stood in its window.

The host is a plain policy without a model: search, read the best chunks, note the sentence that shares most words with
the question, delete what it read, answer with what it noted. Every step goes through `cast`, as a model's would.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.curve import draw, points_of, svg
from pensieve_mcp.cli.indexing import build, overview, say_what_is_missing, sentence
from pensieve_mcp.cli.output import bold, dim, put, put_json, say, width
from pensieve_mcp.cli.shell import NewFile, Shell, command_options, json_option
from pensieve_mcp.errors import PensieveError

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.spellbook.casting import CastResult

QUESTIONS = (
    "Who paid for the casting of the second bell?",
    "What did the survey of the rock find under the south gallery?",
    "When was the new bell rung in fog for the first time, and who heard it?",
    "How many redwings struck the lantern before and after the second bell was hung?",
)
"""Asked of the sample library; the answers stand in different files, one of them only in a letter that names nobody the
question does."""

SMALL = {"window_tokens": 8_000, "reserve_tokens": 500, "chunk_tokens": 800}
"""A window that the library would fill two and a half times, so that deleting has a reason."""

MAX_QUOTE_CHARS = 480
MAX_QUOTE_SENTENCES = 5
QUOTES_IN_ANSWER = 3
RANK_WEIGHT = 0.9  # what a place further down in the search takes off a quote
LONE_WEIGHT = 0.5  # of a quote that holds only one of the question's words
TITLE_WEIGHT = 0.5  # of a quote that ends without a mark, as headings do
CHUNK_HANDLE = re.compile(r"c\d+(–c\d+)?")
NAME = re.compile(r"\b(?:[A-Z][a-z]+ ){1,2}[A-Z][a-z]+\b")
STOP = frozenset(
    re.findall(
        r"\w+",
        "a all an and are as at be by did do does for from had has have how in is it its many must not of on or than "
        "that the their then there they this to up was were what when where which who whose why will with",
    )
)


@click.command("try", short_help="See the main job and its context curve.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--question", "-q", "questions", multiple=True, help="What to ask; repeat it. Needed with PATH."
)
@click.option(
    "--reads", type=click.IntRange(1, 20), default=2, show_default=True, help="Chunks to read after a search."
)
@click.option(
    "--svg",
    "picture",
    metavar="FILE",
    type=NewFile(),
    help="Draw the curve into FILE as well.",
)
@json_option
@command_options
def try_it(
    shell: Shell,
    paths: tuple[str, ...],
    questions: tuple[str, ...],
    reads: int,
    picture: str | None,
    as_json: bool,
) -> None:
    """See the main job: index, search, read, note, delete, finish, and the context curve.

    Reads a small library that ships with the package, or PATH with your own --question. Nothing is left behind.
    """
    from pensieve_mcp.sample import LIBRARY
    from pensieve_mcp.workspace import Workspace

    if paths and not questions:
        raise click.UsageError("With PATH give at least one --question.")
    with (
        tempfile.TemporaryDirectory(prefix="pensieve-try-", ignore_cleanup_errors=True) as state,
        Workspace.open(
            paths or shell.folders or (LIBRARY,),
            name="try",
            state=Path(state) / "state",
            environment=shell.environment,
            arguments={**SMALL, **shell.settings},
            builder="inline",
        ) as workspace,
    ):
        said = (lambda text: None) if as_json else put
        data = overview(workspace, build(workspace))
        said(sentence(data))
        if workspace.roots[0].folder == str(
            LIBRARY
        ):  # what our own library leaves out is meant to be left out
            data["skipped"].pop("ignored", None)
        say_what_is_missing(workspace, data, kept=False)
        # This host holds its own prompt, so that what it deletes is really gone from it.
        host = ScriptedHost(
            workspace.episode("try", host="scripted", sees="conversation", physical="yes"), reads, said
        )
        answers = [host.answer(question) for question in questions or QUESTIONS]
        budget = host.cast("checkBudget").result
        events = workspace.ledger.events(host.episode.episode_id)
        points = points_of(events)
        notes = [line.key for line in workspace.notebook.list().lines]
        summary = {
            "documents": data["documents"],
            "library_tokens": data["tokens"],
            "window_tokens": workspace.settings.window_tokens,
            "casts": host.casts,
            "read_tokens": host.read_tokens,
            "said_tokens": points[-1].undeleted,
            "peak_tokens": budget["peak_tokens"],
            "freed_tokens": budget["freed_tokens"],
            "left_tokens": budget["available_tokens"],
            "notes": notes,
            "answers": answers,
            "curve": [[p.visible, p.undeleted, p.kind] for p in points],
        }
        if picture:
            Path(picture).write_text(
                svg(
                    points,
                    window=workspace.settings.window_tokens,
                    title=f"{len(answers)} questions to {data['documents']} documents, {data['tokens']:,} tokens",
                    source=f"A run of pensieve try: {host.casts} calls, {points[-1].undeleted:,} tokens said, "
                    f"{budget['peak_tokens']:,} at the peak.",
                ),
                encoding="utf-8",
            )
            say(f"The curve is in {picture}.")
        if as_json:
            put_json(summary)
            return
        _report(summary, [*draw(points, window=workspace.settings.window_tokens, columns=width())])


def _report(summary: dict[str, Any], curve: Sequence[str]) -> None:
    put("")
    for line in curve:
        put(line)
    put("")
    told = {name: f"{value:,}" for name, value in summary.items() if isinstance(value, int)}
    put(
        f"Read {told['read_tokens']} tokens of a library of {told['library_tokens']}; said {told['said_tokens']} in "
        f"{told['casts']} calls. Freed {told['freed_tokens']}, so that never more than {told['peak_tokens']} stood in "
        f"a window of {told['window_tokens']}. "
        + (
            f"Noted {len(summary['notes'])}: {', '.join(summary['notes'])}."
            if summary["notes"]
            else "Noted nothing."
        )
    )
    for answer in summary["answers"]:
        put("")
        put(bold(answer["question"]))
        if not answer["quotes"]:
            put(f"  {answer['answer']}")
        for quote, citation in zip(answer["quotes"], answer["citations"], strict=True):
            for line in textwrap.wrap(f"“{quote}”", min(width(), 100) - 4):
                put(f"  {line}")
            place = f"{citation['path']} {citation['locator']}".strip()
            put(dim(f"  {place}: {citation['state']}"))
    put("")
    put(
        "No model took part: a script chose the sentences. In a host such as Claude Code or Codex a model does, and "
        "its deletions stand in pensieve's record; what leaves the host's own prompt stands in the README."
    )


@dataclass(frozen=True)
class Quote:
    """What the host noted: the words, where they stand, and how many of the question's words are in them."""

    text: str
    chunk_id: int
    score: float


@dataclass
class ScriptedHost:
    """Plays a model: casts spells, looks at their typed results, and keeps count. `said` prints a step."""

    episode: Episode
    reads: int
    said: Callable[[str], None]
    casts: int = 0
    read_tokens: int = 0

    def cast(self, spell: str, **arguments: Any) -> CastResult:
        """One spell. Raises PensieveError when it fails: the trial should not go on as if it had not."""
        from pensieve_mcp.spellbook.casting import cast

        self.casts += 1
        answer = cast(self.episode, spell, arguments)
        used = self.episode.budget().used
        self.said(dim(f"{used:>6,} in mind  ") + f"{spell:<14}" + _short(spell, answer))
        if answer.is_error:
            raise PensieveError(answer.text, slug=answer.slug)
        return answer

    def answer(self, question: str) -> dict[str, Any]:
        """One question from search to finish: what was found leads to a second search, as one clue does to another."""
        self.said("")
        self.said(bold(question))
        seen: set[int] = set()
        first = self._search(question, seen)
        names = list(
            dict.fromkeys(
                name for quote in first for name in NAME.findall(quote.text) if name not in question
            )
        )
        second = self._search(f"{question} {' '.join(names[:2])}", seen) if names else []
        quotes = sorted([*first, *second], key=lambda quote: -quote.score)
        best = quotes[:QUOTES_IN_ANSWER]
        words = " […] ".join(quote.text for quote in best) or "The documents do not say."
        cited = [f"c{quote.chunk_id}" for quote in best]
        done = self.cast("finish", answer=words, citations=cited)
        # What was found stands in the notes, so calls and receipts of this question may go as well.
        beginning, end = self._first_of_question, int(done.message["invoking_msg_id"][1:]) - 1
        self.cast("deleteContext", msg_id=f"{beginning}-{end}", summary="")
        return {
            "question": question,
            "answer": words,
            "quotes": [q.text for q in best],
            "citations": done.result["citations"],
        }

    def _search(self, keyword: str, seen: set[int]) -> list[Quote]:
        """Search, read the best chunks not read before, note what bears on the question, delete each."""
        search = self.cast("searchEngine", keyword=keyword, limit=self.reads * 2)
        if not seen:
            self._first_of_question = int(search.message["invoking_msg_id"][1:])
        found: list[Quote] = []
        hits = [hit["chunk_id"] for hit in search.result["retrieved_chunks"] if hit["chunk_id"] not in seen]
        for rank, chunk_id in enumerate(hits[: self.reads]):
            seen.add(chunk_id)
            read = self.cast("readChunk", chunk_id=chunk_id)
            self.read_tokens += read.message["tokens"]
            content = "".join(part["content"] for part in read.result["retrieved_chunk"])
            text, score = best_quote(keyword, content)
            if text:
                quote = Quote(" ".join(text.split()), chunk_id, score * RANK_WEIGHT**rank)
                found.append(quote)
                self.cast(
                    "note",
                    key=_key(keyword, len(seen)),
                    summary=quote.text[:100],
                    content=quote.text,
                    evidence=[{"chunk_id": chunk_id, "quote": text}],
                )
            self.cast(
                "deleteContext",
                msg_id=read.message["msg_id"],
                summary="noted" if text else "nothing to the question",
            )
        self.cast("deleteContext", msg_id=search.message["msg_id"])
        return found


def _short(spell: str, answer: CastResult) -> str:
    """What a step did, from its own handle line and first sentence."""
    head, _, rest = answer.text.partition("\n")
    # its chunk ids mean nothing once the trial is over
    facts = [part for part in head.split(" · ")[:-2] if part and not CHUNK_HANDLE.fullmatch(part)]
    if spell in ("searchEngine", "deleteContext", "note"):
        facts.append(textwrap.shorten(rest.split("\n", 1)[0], 80, placeholder=" …"))
    return " · ".join(facts)


def _key(question: str, number: int) -> str:
    words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP]
    return "-".join([*words[:3], str(number)])


def best_quote(question: str, text: str) -> tuple[str, float]:
    """The run of sentences that holds most of the question's words, weighed by how rare they are in the text, and its
    score. One that holds a single word of several counts little; empty when none holds any."""
    stems = {_stem(word) for word in re.findall(r"\w+", question.lower()) if word not in STOP}
    paragraphs = [_sentences(paragraph) for paragraph in re.split(r"\n\s*\n", text)]
    everywhere = [_stems(sentence) & stems for paragraph in paragraphs for sentence in paragraph]
    weight = {stem: 1 / max(1, sum(stem in one for one in everywhere)) ** 0.5 for stem in stems}
    best, best_score = "", 0.0
    for paragraph in paragraphs:
        for start in range(len(paragraph)):
            for end in range(start + 1, min(start + MAX_QUOTE_SENTENCES, len(paragraph)) + 1):
                # joined as they stand in the text, since a quote must be exact
                run = text[
                    text.index(paragraph[start]) : text.index(paragraph[end - 1]) + len(paragraph[end - 1])
                ]
                held = _stems(run) & stems
                if len(run) > MAX_QUOTE_CHARS or not held:
                    continue
                shorter_is_better = 1 - 0.02 * (end - start - 1)
                score = sum(weight[stem] for stem in held) * shorter_is_better
                if len(held) == 1 < len(stems):
                    score *= LONE_WEIGHT
                if not re.search(r"[.!?:;。！？][”\"')]*\Z", run):
                    score *= TITLE_WEIGHT
                if score > best_score:
                    best, best_score = run, score
    return best.strip(), best_score


def _sentences(paragraph: str) -> list[str]:
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z“\"'(])", paragraph)
    return [part.strip() for part in parts if part.strip()]


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"\w+", text.lower())}


def _stem(word: str) -> str:
    return re.sub(r"(?:ings?|ed|es|s)$", "", word) if len(word) > 4 else word

"""try: the main job, seen. A scripted host reads a library with the real spells and draws what stood in its window.

The host is a plain policy without a model: search, read the best chunks, note the sentence that shares most words with
the question, delete what it read, answer with what it noted. Every step goes through `cast`, as a model's would.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.curve import draw, points_of, svg
from pensieve_mcp.cli.indexing import build, overview, sentence
from pensieve_mcp.cli.output import bold, dim, put, put_json, say, width
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.errors import PensieveError

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.spellbook.casting import CastResult

QUESTIONS = (
    "Who paid for the casting of the second bell?",
    "Why must a new bell hang on the north gallery?",
    "When was the new bell rung in fog for the first time, and who heard it?",
    "How many redwings struck the lantern before and after the second bell?",
)
"""Asked of the sample library; each answer stands in another of its files, in words other than the question's."""

SMALL = {"window_tokens": 6_000, "reserve_tokens": 500, "chunk_tokens": 300}
"""A window that the library does not fit into three times over, so that deleting has a reason."""

MAX_QUOTE_CHARS = 300
STOP = frozenset(
    re.findall(
        r"\w+",
        "a after all an and are as at be before by did do does for from had has have how in is it its many must not of "
        "on or than that the their then there they this to up was were what when where which who whose why will with",
    )
)


@click.command("try")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--question", "-q", "questions", multiple=True, help="What to ask; repeat it. Needed with PATH."
)
@click.option(
    "--reads", type=click.IntRange(1, 20), default=3, show_default=True, help="Chunks to read for a question."
)
@click.option(
    "--svg",
    "picture",
    metavar="FILE",
    type=click.Path(dir_okay=False),
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
            state=Path(state) / "state",
            environment=shell.environment,
            arguments={**SMALL, **shell.settings},
            builder="inline",
        ) as workspace,
    ):
        said = (lambda text: None) if as_json else put
        data = overview(workspace, build(workspace))
        said(sentence(data))
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
        f"{told["casts"]} calls. Freed {told["freed_tokens"]}, so that never more than {told["peak_tokens"]} stood in a "
        f"window of {told['window_tokens']}. Noted {len(summary['notes'])}: {', '.join(summary['notes'])}."
    )
    for answer in summary["answers"]:
        put("")
        put(bold(answer["question"]))
        put(answer["answer"])
        for citation in answer["citations"]:
            put(
                dim(
                    f"  [{citation['citation']}] {citation['path']} {citation['locator']}: {citation['state']}"
                )
            )
    put("")
    put(
        "No model took part: a script chose the sentences. In a host such as Claude Code or Codex a model does, and "
        "its deletions stand in pensieve's record; what leaves the host's own prompt stands in the README."
    )


@dataclass
class ScriptedHost:
    """Plays a model: casts spells, looks at their typed results, and keeps count. `said` prints a step."""

    episode: Episode
    reads: int
    said: Any
    casts: int = 0
    read_tokens: int = 0
    read_before: set[int] = field(default_factory=set)

    def cast(self, spell: str, **arguments: Any) -> CastResult:
        """One spell. Raises PensieveError when it fails: the trial should not go on as if it had not."""
        from pensieve_mcp.spellbook.casting import cast

        self.casts += 1
        answer = cast(self.episode, spell, arguments)
        budget = self.episode.budget()
        self.said(dim(f"{budget.used:>6,} in mind  ") + f"{spell:<14}" + _short(spell, arguments, answer))
        if answer.is_error:
            raise PensieveError(answer.text, slug=answer.slug)
        return answer

    def answer(self, question: str) -> dict[str, Any]:
        """One question from search to finish."""
        self.said("")
        self.said(bold(question))
        search = self.cast("searchEngine", keyword=question, limit=self.reads + 2)
        found: list[tuple[str, int]] = []
        for hit in search.result["retrieved_chunks"][: self.reads]:
            read = self.cast("readChunk", chunk_id=hit["chunk_id"])
            self.read_tokens += read.message["tokens"]
            content = "".join(part["content"] for part in read.result["retrieved_chunk"])
            quote = best_sentence(question, content)
            if quote:
                found.append((quote, hit["chunk_id"]))
                self.cast(
                    "note",
                    key=_key(question, len(found)),
                    summary=" ".join(quote.split())[:120],
                    content=" ".join(quote.split()),
                    evidence=[{"chunk_id": hit["chunk_id"], "quote": quote}],
                )
            self.cast(
                "deleteContext", msg_id=read.message["msg_id"], summary="noted" if quote else "nothing in it"
            )
        self.cast("deleteContext", msg_id=search.message["msg_id"])
        words = " ".join(" ".join(quote.split()) for quote, _ in found) or "Nothing was found."
        done = self.cast("finish", answer=words, citations=[f"c{chunk_id}" for _, chunk_id in found])
        return {"question": question, "answer": words, "citations": done.result["citations"]}


def _short(spell: str, arguments: dict[str, Any], answer: CastResult) -> str:
    """What a step did, from its own handle line and first sentence."""
    head, _, rest = answer.text.partition("\n")
    facts = [part for part in head.split(" · ")[:-2] if part]
    if spell in ("searchEngine", "deleteContext", "note"):
        facts.append(" ".join(rest.split("\n", 1)[0].split())[:90])
    return " · ".join(facts)


def _key(question: str, number: int) -> str:
    words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP]
    return "-".join(words[:4]) + (f"-{number}" if number > 1 else "")


def best_sentence(question: str, text: str) -> str:
    """The sentence of the text that shares most of the question's words, weighed by how rare they are in it; empty
    when none does."""
    stems = {_stem(word) for word in re.findall(r"\w+", question.lower()) if word not in STOP}
    sentences = [part for part in _sentences(text) if len(part) <= MAX_QUOTE_CHARS]
    held = [{_stem(word) for word in re.findall(r"\w+", part.lower())} & stems for part in sentences]
    counts = {stem: sum(stem in one for one in held) for stem in stems}
    scores = [sum(1 / counts[stem] ** 0.5 for stem in one) for one in held]
    best = max(range(len(scores)), key=scores.__getitem__, default=None)
    return sentences[best].strip() if best is not None and scores[best] > 0 else ""


def _sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from (
            part.strip() for part in re.split(r"(?<=[.!?])\s+(?=[A-Z“\"'(])", paragraph) if part.strip()
        )


def _stem(word: str) -> str:
    return re.sub(r"(?:ings?|ed|es|s)$", "", word) if len(word) > 4 else word

"""Runs suites: beds are written and indexed once, every question is asked of every system, and every answer is a line
of a file at once. What stands in the file is not asked again, so a run goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import BackendError, Miscast
from pensieve_mcp.statelm import asking
from pensieve_mcp.statelm.backends import Backend, Choice, context_of, open_backend
from pensieve_mcp.statelm.conversation import Conversation
from pensieve_mcp.statelm.evaluation.suites import SUITES, Bed, Item
from pensieve_mcp.statelm.evaluation.workflows import WORKFLOWS, Outcome, Speaker
from pensieve_mcp.statelm.training.evaluate import score
from pensieve_mcp.statelm.turns import Asked
from pensieve_mcp.workspace import Workspace

LOOP = "loop"
SYSTEMS = (LOOP, *WORKFLOWS)
FORMAT = "pensieve-eval"
RECORDS = "records.jsonl"
OURS_IN_NAME = ("suite", "length", "seed", "n", "bed", "system", "model", "dialect", "search", "item")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. Lengths 0: the suite's own."""

    suites: tuple[str, ...]
    lengths: tuple[int, ...] = ()
    n: int = 20
    seed: int = 31
    systems: tuple[str, ...] = (LOOP,)
    dialect: str = ""
    search: bool = True
    window_tokens: int = 32_000
    label: str = ""  # names the model in the records where its own name says little
    keep_beds: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)  # settings of the workspaces


Record = dict[str, Any]
Tell = Callable[[str], None]


def load(path: Path) -> list[Record]:
    """The records of a file; a last line that was cut by a crash is left out. Raises Miscast for another file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # an answer may hold U+2028
    found: list[Record] = []
    for number, line in enumerate(lines):
        try:
            value = json.loads(line)
            if number == 0 and value["format"] != FORMAT:
                raise KeyError("format")
        except (ValueError, KeyError, TypeError) as error:
            if number and number == len(lines) - 1:
                break
            raise Miscast(
                f"{path.name} holds no records of pensieve eval (line {number + 1}).",
                hint="Name another folder with --out.",
                slug="bad_records",
            ) from error
        if number:
            found.append(value)
    return found


class Records:
    """The file: what is there, and lines added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all = load(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {"format": FORMAT, "version": 1}
        # written anew: a cut last line must not run into the next one
        text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in [head, *self.all])
        beside = path.with_name(path.name + ".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
        self._done = {name_of(one) for one in self.all if one["kind"] == "answer"}

    def has(self, record: Record) -> bool:
        return name_of(record) in self._done

    def add(self, record: Record) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.all.append(record)
        if record["kind"] == "answer":
            self._done.add(name_of(record))


def name_of(record: Record) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in OURS_IN_NAME)


def run(
    plan: Plan,
    choice: Choice,
    out: Path,
    *,
    home: Path,
    text: Sequence[str],
    tell: Tell = lambda line: None,
    model: Callable[[], Backend] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Record]:
    """Run the plan into `out` and answer all records there. `model` stands in for the backend of the choice.

    Raises Miscast for a suite or system that is none, BackendError where no model can be opened.
    """
    for name, known in ((plan.suites, SUITES), (plan.systems, SYSTEMS)):
        if strange := [one for one in name if one not in known]:
            raise Miscast(
                f"There is no {strange[0]!r} to evaluate.",
                hint=f"There are {', '.join(known)}.",
                slug="no_such_suite",
            )
    definite, usual = asking.settled(choice, home) if model is None else (choice, "ours")
    extractive = definite.backend == "extractive" and model is None
    if extractive and plan.systems != (LOOP,):
        raise BackendError(
            "Without a model there is only the loop's own policy to run.",
            hint="Leave --systems out, or choose a --backend.",
            slug="no_model",
        )
    records = Records(out / RECORDS)
    definite = definite.with_window(plan.window_tokens)
    opened = None if extractive else (model or (lambda: open_backend(definite)))()
    try:
        runner = _Runner(plan, definite, plan.dialect or usual, records, opened, home, tell, cancelled)
        for suite in plan.suites:
            for length in plan.lengths or SUITES[suite].lengths:
                if cancelled():
                    return records.all
                runner.bed(SUITES[suite].make(length, plan.n, plan.seed, text), out / "beds")
    finally:
        if opened is not None:
            opened.close()
    return records.all


class _Runner:
    """One plan being run."""

    def __init__(
        self,
        plan: Plan,
        choice: Choice,
        dialect: str,
        records: Records,
        backend: Backend | None,
        home: Path,
        tell: Tell,
        cancelled: Callable[[], bool],
    ) -> None:
        self.plan, self.choice, self.dialect, self.records = plan, choice, dialect, records
        self.backend, self.home, self.tell, self.cancelled = backend, home, tell, cancelled
        self.model = plan.label or (backend.model if backend is not None else "no model")

    def bed(self, bed: Bed, folder: Path) -> None:
        """Every open question of the bed."""
        digest = digest_of(bed)
        waiting = [
            (system, item)
            for system in self.plan.systems
            for item in bed.items
            if not self.records.has(self._head(bed, digest, system, item))
        ]
        if not waiting:
            return
        place = folder / f"{bed.suite}-{bed.length}-{digest}"
        needs_index = any(system == LOOP for system, _ in waiting)
        workspace = self._prepared(bed, digest, place) if needs_index else None
        try:
            for system, item in waiting:
                if self.cancelled():
                    return
                self._ask(bed, digest, system, item, workspace)
        finally:
            if workspace is not None:
                workspace.close()
            if not self.plan.keep_beds:
                shutil.rmtree(place, ignore_errors=True)

    def _head(self, bed: Bed, digest: str, system: str, item: Item) -> Record:
        return {
            "kind": "answer",
            "suite": bed.suite,
            "length": bed.length,
            "seed": self.plan.seed,
            "n": self.plan.n,
            "bed": digest,
            "system": system,
            "model": self.model,
            "dialect": self.dialect if system == LOOP and self.backend is not None else "",
            "search": self.plan.search if system == LOOP else False,
            "item": item.number,
        }

    def _prepared(self, bed: Bed, digest: str, place: Path) -> Workspace:
        for path, text in bed.files.items():
            file = place / "docs" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_text(text, encoding="utf-8")
        began = time.monotonic(), time.process_time()
        workspace = Workspace.open(
            [place / "docs"],
            state=place / "state",
            environment={"PENSIEVE_HOME": str(place / "home")},
            arguments={
                "second_stage": False,
                "upgrade": False,
                "window_tokens": self.plan.window_tokens,
                **self.plan.arguments,
            },
            builder="inline",
        )
        workspace.build_now()
        tokens = workspace.corpus.totals(()).tokens
        seconds, cpu = time.monotonic() - began[0], time.process_time() - began[1]
        self.tell(f"{bed.suite} {bed.length:,}: {tokens:,} tokens indexed in {seconds:.1f} s")
        self.records.add(
            {
                "kind": "bed",
                "suite": bed.suite,
                "length": bed.length,
                "bed": digest,
                "tokens": tokens,
                "documents": len(bed.files),
                "seconds": round(seconds, 2),
                "cpu_seconds": round(cpu, 2),
            }
        )
        return workspace

    def _ask(self, bed: Bed, digest: str, system: str, item: Item, workspace: Workspace | None) -> None:
        head = self._head(bed, digest, system, item)
        if system == LOOP:
            assert workspace is not None
            asked = asking.ask(
                workspace,
                item.question,
                self.choice,
                home=self.home,
                dialect_name=self.dialect if self.backend is not None else "",
                under=(item.under,) if item.under else (),
                search=self.plan.search,
                cancelled=self.cancelled,
                backend=self.backend,
            )
            if asked.ended == "cancelled":
                return
            forget_notes(workspace, asked)
            body = _of_loop(asked)
        else:
            assert self.backend is not None
            window = context_of(self.backend) or self.plan.window_tokens
            speaker = Speaker(self.backend, min(window, self.plan.window_tokens))
            paragraphs = "".join(text for path, text in bed.files.items() if item.under in ("", path)).split(
                "\n\n"
            )
            try:
                body = _of_workflow(WORKFLOWS[system](speaker, item.question, paragraphs))
            except BackendError as error:
                body = {**_of_workflow(speaker.outcome("")), "ended": "backend", "detail": str(error)}
        contains, exact = score(plain_numbers(str(body["answer"])), item.gold)
        record = {
            **head,
            "question": item.question,
            "gold": list(item.gold),
            "position": item.position,
            "of": item.kind,
            "contains": contains,
            "exact": exact,
            **body,
        }
        self.records.add(record)
        mark = "right" if contains else "wrong"
        self.tell(f"{bed.suite} {bed.length:,} {system} {item.number + 1}/{len(bed.items)}: {mark}"
                  f" in {body['seconds']:.1f} s")  # fmt: skip


def digest_of(bed: Bed) -> str:
    """Names what was written and asked: another Python's text makes another bed."""
    digest = hashlib.sha256()
    for path in sorted(bed.files):
        digest.update(f"{path}\0{bed.files[path]}\0".encode())
    digest.update(json.dumps([asdict(item) for item in bed.items], ensure_ascii=False).encode())
    return digest.hexdigest()[:12]


def plain_numbers(text: str) -> str:
    """4,821,907 as 4821907: the published score strips commas as well."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)


def forget_notes(workspace: Workspace, asked: Asked) -> None:
    """What one question noted must not help the next one."""
    written = Conversation.resume(workspace, asked.episode).keys()
    for key in written:
        if workspace.notebook.current(key) is not None:
            workspace.notebook.purge(key)


def _of_loop(asked: Asked) -> Record:
    metrics = asdict(asked.metrics)
    return {
        "answer": asked.answer,
        "ended": asked.ended,
        "grounded": asked.grounded,
        "policy": asked.policy,
        "detail": asked.detail,
        **{name: value for name, value in metrics.items() if name != "usage"},
        **metrics["usage"],
    }


def _of_workflow(outcome: Outcome) -> Record:
    return {
        "answer": outcome.answer,
        "ended": "finished",
        "grounded": False,
        "policy": "model",
        "detail": "text was cut" if outcome.cut else "",
        "rounds": outcome.calls,
        "peak_tokens": outcome.peak_tokens,
        "mean_tokens": outcome.mean_tokens,
        "seconds": outcome.seconds,
        "cpu_seconds": outcome.cpu_seconds,
        "model_cpu_seconds": outcome.model_cpu_seconds,
        **asdict(outcome.usage),
    }


def answers(records: Iterable[Record]) -> Iterator[Record]:
    return (one for one in records if one["kind"] == "answer")

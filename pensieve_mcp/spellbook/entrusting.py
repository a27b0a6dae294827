"""askStateLM: hand a whole question to our own loop, for hosts whose model is no reader itself.

Off unless a backend is configured (`ask_backend`): a door then gives the workspace an `Asks`. The loop is another
door, so it is named here and looked up when a first question comes, never imported. A question runs on a thread of its
own; a call waits a while for it, and the same question asked again joins it, as buildIndex does.
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pensieve_mcp.errors import Miscast, PensieveError
from pensieve_mcp.settings import data_folder
from pensieve_mcp.spellbook.registry import Args, Outcome, Result, spell
from pensieve_mcp.spellbook.wording import count, listing, one_line

if TYPE_CHECKING:
    from pensieve_mcp.episode import Episode
    from pensieve_mcp.settings import Settings
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

PORT = "pensieve_mcp.statelm.asking"
"""The module whose `asker` answers: `asker(workspace, environment, home=…)` gives a function of question, paths, a
listener and a cancel check, that answers plain data."""

Asker = Callable[[str, Sequence[str], Callable[[str], None], Callable[[], bool]], dict[str, Any]]

ENDPOINTS = frozenset({"openai", "anthropic"})  # backends that speak to a server
WAIT_SECONDS = 20.0  # of a call; every host waits 30 and more
AT_ONCE = 2  # questions that run side by side: each may load a model
KEPT_SECONDS = 600.0  # an answer that a host lost on its way can be fetched again
MAX_QUESTION_CHARS = 4_000
ENDING_SECONDS = 2.0  # for running questions to see that the workspace closes


@dataclass
class Job:
    """One question being answered. `told` is what it does just now."""

    question: str
    paths: tuple[str, ...]
    told: str = "Beginning."
    turns: int = 0
    answer: dict[str, Any] | None = None
    error: Exception | None = None
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    done: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    waiters: int = 0

    @property
    def seconds(self) -> float:
        return (self.ended if self.ended is not None else time.monotonic()) - self.began


class Asks:
    """The questions of one workspace. Safe to use from several threads. `wait_seconds` None waits to the end."""

    def __init__(
        self,
        make: Callable[[], Asker | None],
        *,
        wait_seconds: float | None = WAIT_SECONDS,
        stays_here: bool = False,
    ) -> None:
        """`stays_here`: what is read goes to no other machine."""
        self._make = make
        self.stays_here = stays_here
        self._asker: Asker | None = None
        self.wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, tuple[str, ...]], Job] = {}
        self._closed = False

    @classmethod
    def of(
        cls,
        workspace: Workspace,
        environment: Mapping[str, str],
        *,
        wait_seconds: float | None = WAIT_SECONDS,
    ) -> Asks | None:
        """None unless a backend is configured."""
        if not workspace.settings.ask_backend:
            return None

        def make() -> Asker | None:
            asker = importlib.import_module(PORT).asker
            made: Asker | None = asker(workspace, environment, home=data_folder(environment))
            return made

        return cls(make, wait_seconds=wait_seconds, stays_here=stays_here(workspace.settings))

    def join(self, question: str, paths: Sequence[str]) -> Job:
        """The job of this question: the one that runs, or one that ended lately, else a new one. Raises Miscast when
        too many run."""
        key = _key(question, paths)
        with self._lock:
            now = time.monotonic()
            self._jobs = {
                k: j for k, j in self._jobs.items() if j.ended is None or now - j.ended < KEPT_SECONDS
            }
            job = self._jobs.get(key)
            if job is not None and not job.stopped.is_set():
                job.waiters += 1
                return job
            running = [j for j in self._jobs.values() if j.ended is None]
            if self._closed or len(running) >= AT_ONCE:
                asked = "; ".join(one_line(j.question, 80) for j in running)
                raise Miscast(
                    f"{len(running)} questions are being answered already: {asked}.",
                    hint="Ask one of them again to get its answer, then this one.",
                    slug="asking_already",
                )
            job = self._jobs[key] = Job(key[0], key[1], waiters=1)
            threading.Thread(target=self._run, args=(job,), name="ask", daemon=True).start()
            return job

    def leave(self, job: Job) -> None:
        """A call that waited is answered."""
        with self._lock:
            job.waiters -= 1
            if job.error is not None:  # the next call tries anew
                self._jobs.pop(_key(job.question, job.paths), None)

    def peek(self, question: str, paths: Sequence[str]) -> Job | None:
        with self._lock:
            return self._jobs.get(_key(question, paths))

    def cancel(self, question: str, paths: Sequence[str]) -> None:
        """Whoever asked gave up. A question that another call waits for goes on."""
        job = self.peek(question, paths)
        if job is not None and job.waiters <= 1 and job.ended is None:
            job.stopped.set()

    def close(self) -> None:
        """End what runs; waits a moment for it, since it writes into databases that are about to close."""
        with self._lock:
            self._closed = True
            running = [job for job in self._jobs.values() if job.ended is None]
        for job in running:
            job.stopped.set()
        for job in running:
            job.done.wait(ENDING_SECONDS)

    def _run(self, job: Job) -> None:
        def told(words: str) -> None:
            job.turns += 1
            job.told = words

        try:
            with self._lock:
                if self._asker is None:
                    self._asker = self._make()
                asker = self._asker
            if asker is None:
                raise Miscast(
                    "No backend is configured.",
                    hint="Set ask_backend in settings.toml or PENSIEVE_ASK_BACKEND.",
                    slug="no_backend",
                )
            job.answer = asker(job.question, job.paths, told, job.stopped.is_set)
        except Exception as error:  # told by the call that waits for it
            job.error = error
            if not isinstance(error, PensieveError):
                log.exception("a question failed")
        job.ended = time.monotonic()
        job.done.set()


def stays_here(settings: Settings) -> bool:
    """Whether the configured backend works on this machine: in this process, or behind an address of the loopback."""
    if settings.ask_backend not in ENDPOINTS:
        return True
    try:
        host = urllib.parse.urlsplit(settings.ask_url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _key(question: str, paths: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    return question.strip(), tuple(dict.fromkeys(path.strip() for path in paths if path.strip()))


# -- the spell ---------------------------------------------------------------------------------------------


class AskArgs(Args):
    question: str
    paths: list[str] | None = Field(None, description="Documents or folders to keep to; none: all.")


class AskCitation(Result):
    path: str
    locator: str
    chunk_id: int | None
    quote: str
    state: str


class AskResult(Result):
    state: str  # answered, reading
    answer: str
    found: bool
    grounded: bool
    policy: str
    ended: str
    citations: list[AskCitation]
    rounds: int
    peak_tokens: int
    seconds: float
    model: str
    trajectory: str  # the handle of its episode


def question_in(text: str) -> str:
    """The question without blanks around it. Raises Miscast where there is none, or far more than one."""
    question = text.strip()
    if not question or len(question) > MAX_QUESTION_CHARS:
        raise Miscast(
            f"question has {len(question):,} characters; 1 to {MAX_QUESTION_CHARS:,} are taken.",
            hint="Ask one question in a sentence or two.",
            slug="bad_argument",
        )
    return question


@spell("askStateLM", AskArgs, AskResult, stage="find", title="Ask the reader", open_world=True)
def ask_statelm(episode: Episode, args: AskArgs) -> Outcome:
    """Let another model read the documents and answer a whole question, with citations. Takes long: while it reads, the
    same call again waits on."""
    asks: Asks | None = episode.workspace.asks
    if asks is None:
        raise Miscast(
            "No backend is configured, so nobody could answer.",
            hint="Search and read yourself; or the user sets ask_backend.",
            slug="no_backend",
        )
    question = question_in(args.question)
    episode.workspace.prefix(*(args.paths or ()))  # a path that is none is told at once
    job = asks.join(question, args.paths or ())
    try:
        limit = asks.wait_seconds
        job.done.wait(None if limit is None else min(limit, 0.8 * episode.settings.call_seconds))
        if job.error is not None:
            raise job.error
        return _reading(job) if job.answer is None else _answered(job, job.answer)
    finally:
        asks.leave(job)


def _reading(job: Job) -> Outcome:
    words = f"Still reading after {job.seconds:.0f} s: {job.told} Ask the same again for the answer."
    result = AskResult(
        state="reading", answer="", found=False, grounded=False, policy="", ended="", citations=[],
        rounds=job.turns, peak_tokens=0, seconds=round(job.seconds, 1), model="", trajectory="",
    )  # fmt: skip
    return Outcome(result, words, facts=("reading",), label="a question, still being read")


def _answered(job: Job, data: Mapping[str, Any]) -> Outcome:
    metrics = data["metrics"]
    cited = [AskCitation(**one) for one in data["citations"]]
    found = bool(data["found"])
    lines = [str(data["answer"]) if found else "Not found." if data["ended"] == "not_found" else "No answer."]
    if data["detail"]:
        lines.append(str(data["detail"]))
    for one in cited:
        where = " ".join(p for p in (f"c{one.chunk_id}" if one.chunk_id else "", one.path, one.locator) if p)
        lines.append(f"[{where}: {one.state}] “{one_line(one.quote, 400)}”")
    if found:
        lines.append(
            "grounded: true"
            if data["grounded"]
            else "grounded: false; no quote found in the documents holds this answer: check it yourself."
        )
    if data["policy"] == "extractive":
        lines.append("policy: extractive; a sentence as it stands in the documents, no model took part.")
    result = AskResult(
        state="answered",
        answer=str(data["answer"]),
        found=found,
        grounded=bool(data["grounded"]),
        policy=str(data["policy"]),
        ended=str(data["ended"]),
        citations=cited,
        rounds=int(metrics["rounds"]),
        peak_tokens=int(metrics["peak_tokens"]),
        seconds=round(job.seconds, 1),
        model=str(data["model"]),
        trajectory=str(data["episode"]),
    )
    return Outcome(
        result,
        listing(lines),
        facts=("answer" if found else "no answer", count(result.rounds, "round")),
        label=f"answer to “{one_line(job.question, 60)}”",
    )

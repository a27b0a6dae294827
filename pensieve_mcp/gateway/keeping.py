"""Where the gateway meets the server: it writes into the ledger what it saw, so that handles of the host's
results are known there, contents can come back, and the budget is the real one.

The request never waits for it for long and never fails with it: a full disk, a locked or damaged database is
logged and told in the summary, and the conversation goes on. What came up while a transaction was written goes into
the next one together, since making one durable takes longer than all else.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pensieve_mcp.budget import SeenCall, Sighting
from pensieve_mcp.episode import remember_run
from pensieve_mcp.errors import PensieveError
from pensieve_mcp.gateway.forking import inherit, told_before
from pensieve_mcp.gateway.itemising import shares_of
from pensieve_mcp.gateway.rewrite import HostResult, Report
from pensieve_mcp.gateway.seeing import Sight, sighted
from pensieve_mcp.gateway.threads import Thread
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.gateway.totals import Totals
from pensieve_mcp.ledger.events import Message
from pensieve_mcp.wire.calls import Call
from pensieve_mcp.wire.usage import Usage

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

MOST_WAITING = 256  # jobs; a ledger that is this far behind is stuck, and newer sightings replace older ones
GATHER_SECONDS = 0.25  # what nobody waits for is written together with what comes up until then,
GATHERED = 48  # or so many jobs,
GATHERED_BYTES = 8 * 2**20  # or requests of so many bytes, which are held until then
PORTION_BYTES = 2**20  # of contents in one transaction: their full text takes as much memory again
MOST_HOMELESS = 16  # conversations, each with its last request, in which the server has not spoken yet
MOST_KEPT = 4_096
MOST_KNOWN = 100_000


class Keeper:
    """Takes sightings from the proxy, writes them on one thread of its own. Methods may be called from any thread."""

    def __init__(
        self,
        open_workspace: Callable[[], Workspace] | None,
        policy: Policy,
        *,
        run: str = "",
        own_tool: Callable[[str, str], str | None] = lambda name, namespace: None,
    ) -> None:
        """`run` names a `pensieve run`: the server is then told which episode its conversation is. `own_tool` gives
        the bare name of a tool of our server by name and namespace, as the host puts them, else None.
        """
        self._open = open_workspace
        self._own_tool = own_tool
        self._turns = itertools.count(1)
        self._token = secrets.token_hex(4)  # turns of another gateway are others
        self._run = run
        self._told: int | None = None
        self._policy = policy
        self._workspace: Workspace | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gateway-ledger")
        self._lock = threading.Lock()
        self._waiting: list[Sight] = []
        self._is_writing = False
        self._hurry, self._closing = threading.Event(), False
        self._episodes: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._recorded: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._known_calls: OrderedDict[str, None] = OrderedDict()
        self._homeless: OrderedDict[tuple[str, str], dict[str, HostResult]] = OrderedDict()
        self._real_share: dict[int, float] = {}  # episode → the provider's tokens for a byte sent
        self.totals = Totals()

    def begin(self) -> None:
        """Open the ledger, which takes a while the first time: the first call should not wait for it."""
        if self._open is not None:
            self._pool.submit(self._begin)

    def _begin(self) -> None:
        with self._guarded():
            self._opened().ledger.last_event()

    # -- what the proxy tells ----------------------------------------------------------------------------------

    def count(self, report: Report, status: int | None) -> None:
        """A request and how the API answered it, for the summary; `status` is None where it could not be reached."""
        with self._lock:
            totals = self.totals
            if status is None:
                totals.unreached += 1
                return
            if status >= 400:
                totals.refused += 1
                return
            totals.requests += 1
            totals.bytes_in += report.bytes_in
            totals.bytes_out += report.bytes_out
            totals.saved_tokens += report.saved_tokens
            for one in report.messages:
                if one.state == "forgotten":
                    totals.forgotten.add(one.handle)
                if one.role == "tool":
                    totals.read.setdefault(one.tool, set()).add(one.handle)

    def given_up(self) -> None:
        """A request whose answer the host did not wait for, for the summary."""
        with self._lock:
            self.totals.given_up += 1

    def saw_request(self, report: Report, thread: Thread) -> bool:
        """Whether it shows what the server must know before the model calls it again: handles, or
        which conversation it is. Then `write` it before the host has such a call; else `saw_answer` will do.
        """
        if (thread.host, thread.name or report.session) not in self._episodes:
            return True
        return any(one.call_id not in self._known_calls for one in report.host_results)

    def write(self, report: Report, thread: Thread) -> Future[int | None] | None:
        """Write soon what a request showed, without waiting for its answer; the future ends with the episode's id.
        None when nothing will be written.
        """
        return self._later(Sight(report, thread, first=True))

    def hurry(self) -> None:
        """Write what waits now: somebody waits for it."""
        self._hurry.set()

    def saw_calls(
        self, report: Report, thread: Thread, turn: str, calls: Sequence[Call], usage: Usage | None
    ) -> Future[int | None] | None:
        """The answer holds calls, which the host will make as soon as it has them: those of our server are written
        first, since it tells by them what passed here. None when none is ours. `turn` is `new_turn`'s.
        """
        now = time.time()
        seen = tuple(
            SeenCall(now, turn, call.call_id, tool, call.digest)
            for call in calls
            if (tool := self._own_tool(call.name, call.namespace)) is not None
        )
        return self._later(Sight(report, thread, usage, turn, seen, urgent=True)) if seen else None

    def new_turn(self, report: Report, thread: Thread) -> str:
        """A name for the answer to a request."""
        return f"{thread.name or report.session}#{self._token}-{next(self._turns)}"

    def saw_answer(
        self,
        report: Report,
        thread: Thread,
        usage: Usage | None,
        turn: str = "",
        *,
        again: bool = False,
        urgent: bool = False,
    ) -> Future[int | None] | None:
        """The answer has passed by, and told what it cost or not; now all of it is written. `again`: its request
        was written before. `urgent`: the host may ask at once what it cost.
        """
        if usage is not None:
            with self._lock:
                totals = self.totals
                totals.told += 1
                totals.prompt += usage.input
                totals.cached += usage.cached
                totals.written += usage.written
                totals.answer += usage.output
                totals.peak = max(totals.peak, usage.input)
        return self._later(Sight(report, thread, usage, turn, first=not again, urgent=urgent))

    def close(self) -> None:
        """Write what waits, within a few seconds, and close."""
        done = threading.Event()

        def end() -> None:
            if self._workspace is not None:
                self._workspace.close()
            done.set()

        self._closing = True
        self._hurry.set()
        self._pool.submit(end)
        done.wait(5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _later(self, sight: Sight) -> Future[int | None] | None:
        if self._open is None:
            return None
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                return None
            self._lighten(sight)
            self._waiting.append(sight)
            held = sum(one.report.bytes_in for one in self._waiting if one.report.conversation is not None)
            if sight.urgent or len(self._waiting) >= GATHERED or held >= GATHERED_BYTES:
                self._hurry.set()
            begin, self._is_writing = not self._is_writing, True
        if begin:
            self._pool.submit(self._write_all)
        return sight.written

    def _lighten(self, sight: Sight) -> None:
        """What waits of earlier requests of the same conversation keeps its figures; bodies and host results are in
        this one. A ledger that is slow would else hold each of them.
        """
        if not sight.thread.name:
            return
        held = {one.call_id for one in sight.report.host_results}
        for place, one in enumerate(self._waiting):
            report = one.report
            if (
                one.thread == sight.thread
                and not one.urgent  # what its prompt is made of is asked for
                and report is not sight.report
                and report.conversation is not None
                and held.issuperset(result.call_id for result in report.host_results)
            ):
                light = replace(report, conversation=None, host_results=(), edits=())
                self._waiting[place] = replace(one, report=light)

    def _write_all(self) -> None:
        while True:
            if not self._closing:
                self._hurry.wait(GATHER_SECONDS)
            with self._lock:
                self._hurry.clear()
                sights, self._waiting = self._waiting, []
                if not sights:
                    self._is_writing = False
                    return
            found: list[int | None] = [None] * len(sights)
            try:
                with self._guarded():
                    found = self._write(sights)
            finally:
                for sight, episode_id in zip(sights, found, strict=True):
                    sight.written.set_result(episode_id)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A fault in here is told and must not reach the conversation."""
        try:
            yield
        except PensieveError as error:
            self._trouble(str(error))
        except Exception as error:
            log.exception("the ledger could not be written")
            self._trouble(f"{type(error).__name__}: {error}")

    def _trouble(self, words: str) -> None:
        with self._lock:
            if words not in self.totals.troubles:
                log.warning("The ledger was not written: %s", words)
                self.totals.troubles = [*self.totals.troubles[-9:], words]

    # -- on the ledger's thread --------------------------------------------------------------------------------

    def _write(self, sights: Sequence[Sight]) -> list[int | None]:
        """Write them together; answers the episode of each, None where the server has not spoken yet."""
        workspace = self._opened()
        named = self._open_named(workspace, sights)
        found: list[int | None] = []
        results: dict[tuple[int, str], HostResult] = {}
        away: set[tuple[int, str]] = set()
        pinned: set[tuple[int, str]] = set()
        seen: dict[int, Sighting] = {}
        last: dict[int, Sight] = {}
        for sight in sights:
            report, thread = sight.report, sight.thread
            key = (thread.host, thread.name or report.session)
            episode_id = self._episode(workspace, report, thread, key, named)
            found.append(episode_id)
            fresh = {one.call_id: one for one in report.host_results}
            if episode_id is None:
                self._keep_homeless(key, fresh)
                continue
            for one in (*self._homeless.pop(key, {}).values(), *fresh.values()):
                if (episode_id, one.call_id) not in self._recorded:
                    results[episode_id, one.call_id] = one
            theirs = [one for one in report.messages if one.role == "tool" and one.handle[0] == "h"]
            away |= {(episode_id, one.call_id) for one in theirs if one.state in ("forgotten", "waiting")}
            pinned |= {(episode_id, one.call_id) for one in theirs if one.pinned}
            usage = sight.usage
            if usage and usage.input:
                self._real_share[episode_id] = usage.input / max(1, report.bytes_out)
            # read anew each time: another gateway may have written of the same session
            earlier = seen.get(episode_id) or Sighting.from_extra(workspace.ledger.extra(episode_id))
            earlier = earlier or Sighting(0.0)
            seen[episode_id] = sighted(earlier, sight, self._policy, self._real_share.get(episode_id))
            last[episode_id] = sight
        for episode_id, sight in last.items():
            sighting = seen[episode_id]
            known = next((one.shares for one in sighting.turns if one.turn == sight.turn), None)
            shares = shares_of(sight.report, sighting.prompt) if known is None else known
            seen[episode_id] = replace(sighting, shares=shares)
        self._record(workspace, results, away, pinned, seen)
        self._know(call_id for _, call_id in results)
        return found

    def _keep_homeless(self, key: tuple[str, str], fresh: Mapping[str, HostResult]) -> None:
        """The server has not spoken in this conversation: what the host's results say is kept until it does."""
        if key[1] and fresh:
            self._homeless[key] = {**self._homeless.pop(key, {}), **fresh}
            self._know(fresh)
            if len(self._homeless) > MOST_HOMELESS:
                self._homeless.popitem(last=False)

    def _open_named(self, workspace: Workspace, sights: Sequence[Sight]) -> dict[tuple[str, str], int]:
        """Episodes of conversations that are new and that the server knows by the same name, by host and name: all
        begun in one transaction.
        """
        named = dict.fromkeys((s.thread.host, s.thread.name) for s in sights if self._is_own(s.thread))
        new = [key for key in named if key not in self._episodes]
        opened = workspace.ledger.open_episodes("mcp", new) if new else []
        return {key: one.episode_id for key, one in zip(new, opened, strict=True)}

    def _is_own(self, thread: Thread) -> bool:
        """Whether its name alone says which episode it is."""
        return thread.is_shared and bool(thread.name) and (thread.is_lasting or not self._run)

    def _opened(self) -> Workspace:
        assert self._open is not None
        if self._workspace is None:
            self._workspace = self._open()
        return self._workspace

    def _episode(
        self,
        workspace: Workspace,
        report: Report,
        thread: Thread,
        key: tuple[str, str],
        new: Mapping[tuple[str, str], int],
    ) -> int | None:
        """The server's episode of this conversation: by messages of ours in it, or by the host's name of it; `new` are
        those just begun.

        In a `pensieve run` the gateway decides which it is and tells the server.
        """
        found = self._episodes.get(key) if key[1] else None
        if found is not None and workspace.ledger.has_episode(found):
            self._episodes.move_to_end(key)
        else:  # new here, or purged meanwhile
            named = thread.name if thread.is_shared else ""
            found = new.get(key) if self._is_own(thread) else _episode_of_messages(workspace, report)
            if found is None and thread.parent:
                found = self._episodes.get((thread.host, thread.parent))
            if found is None and named:
                found = workspace.episode("mcp", host=thread.host, thread=named).episode_id
            elif found is None and self._run:
                found = workspace.episode("mcp", host=thread.host, thread=f"run:{self._run}").episode_id
            if found is not None and thread.is_lasting:
                inherit(workspace.ledger, found, report)
            if found is not None and key[1]:
                self._episodes[key] = found
                while len(self._episodes) > MOST_KEPT:
                    self._episodes.popitem(last=False)
        if self._run and found is not None and found != self._told:
            remember_run(workspace.state, self._run, workspace.ledger.episode(found).handle)
            self._told = found
        return found

    def _record(
        self,
        workspace: Workspace,
        results: Mapping[tuple[int, str], HostResult],
        away: Collection[tuple[int, str]],
        pinned: Collection[tuple[int, str]],
        seen: Mapping[int, Sighting],
    ) -> None:
        """Host results with their handles and contents, each once, and the sightings. One that is new here and deleted
        (`away`) or pinned already was so before the conversation forked.
        """
        told = workspace.ledger.told_of([call_id for _, call_id in results]) if results else set()
        contents: dict[bytes, str] = {}
        messages: list[tuple[int, Message]] = []
        size = 0
        for key, one in results.items():
            if key in told:
                continue
            text = one.text
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            contents[digest] = text
            messages.append((key[0], replace(one.known.message, digest=digest)))
            size += len(text)
            if size >= PORTION_BYTES:
                workspace.ledger.keep_sightings(messages, contents, {}, away, pinned)
                contents, messages, size = {}, [], 0
        workspace.ledger.keep_sightings(
            messages,
            contents,
            {number: {"gateway": sighting.to_extra()} for number, sighting in seen.items()},
            away,
            pinned,
        )
        for key in results:
            self._recorded[key] = None
        while len(self._recorded) > MOST_KEPT:
            self._recorded.popitem(last=False)

    def _know(self, calls: Iterable[str]) -> None:
        for call_id in calls:
            self._known_calls[call_id] = None
        while len(self._known_calls) > MOST_KNOWN:
            self._known_calls.popitem(last=False)


def _episode_of_messages(workspace: Workspace, report: Report) -> int | None:
    """The episode whose ledger holds a result of this request."""
    for one in reversed(report.messages):
        if (stored := told_before(workspace.ledger, one)) is not None:
            return stored.episode_id
    return None

"""Notebook and ledger against plain models, with processes that come and go."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from pensieve_mcp.errors import Conflict, Miscast, NoSuchMessage, NoSuchNote, StorageError
from pensieve_mcp.ledger.blobs import digest_of
from pensieve_mcp.ledger.events import Event, Forgot, Message, Pinned, Recalled, Said, fold
from pensieve_mcp.notebook.types import Evidence

from .conftest import Clock, Memory, open_memory

KEYS = st.sampled_from(["a", "A", "b/1", "b 1", "c"])
WORDS = st.sampled_from(["vienna", "treaty", "条約", "", "1815\n"])


class Machine(RuleBasedStateMachine):
    """Two views of one state folder, as two processes have them; each may be closed and opened anew."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.views: list[Memory] = []

    @initialize()
    def start(self) -> None:
        self.views = [open_memory(self.folder, self.clock) for _ in range(2)]

    @rule(which=st.integers(0, 1))
    def restart(self, which: int) -> None:
        self.views[which].close()
        self.views[which] = open_memory(self.folder, self.clock)

    @rule(seconds=st.sampled_from([-1000.0, 0.0, 1.0, 5000.0]))
    def time_passes_or_jumps(self, seconds: float) -> None:
        self.clock.now += seconds

    def teardown(self) -> None:
        for view in self.views:
            view.close()
        shutil.rmtree(self.folder)


@dataclass
class Past:
    """The model of one note: its revisions, None for a deletion."""

    revisions: list[tuple[str, str] | None] = field(default_factory=list)

    @property
    def now(self) -> tuple[str, str] | None:
        return self.revisions[-1] if self.revisions else None


class NotebookMachine(Machine):
    """Revisions only grow, conflicts change nothing, and what is current is what was written last."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, Past] = {}

    def past(self, key: str) -> Past:
        return self.model.setdefault(key, Past())

    def expected(self, key: str, guess: int | None) -> bool:
        """Whether a change that expects `guess` goes through."""
        past = self.past(key)
        return guess is None or guess == len(past.revisions) or (guess == 0 and past.now is None)

    @rule(view=st.integers(0, 1), key=KEYS, summary=WORDS, content=WORDS, guess=st.none() | st.integers(0, 4))
    def write(self, view: int, key: str, summary: str, content: str, guess: int | None) -> None:
        notebook = self.views[view].notebook
        piece = Evidence(content or "quote", state="ok")
        if not self.expected(key, guess):
            with pytest.raises(Conflict):
                notebook.write(key, summary, content, evidence=[piece], expect_revision=guess)
            return
        note = notebook.write(key, summary, content, evidence=[piece], expect_revision=guess)
        self.past(key).revisions.append((summary.strip(), content))
        assert note.revision == len(self.past(key).revisions)
        assert note.evidence == (piece,)

    @rule(view=st.integers(0, 1), key=KEYS, content=WORDS, guess=st.none() | st.integers(1, 4))
    def append(self, view: int, key: str, content: str, guess: int | None) -> None:
        notebook, now = self.views[view].notebook, self.past(key).now
        if now is None:
            with pytest.raises(NoSuchNote):
                notebook.update(key, "append", content, expect_revision=guess)
        elif not self.expected(key, guess):
            with pytest.raises(Conflict):
                notebook.update(key, "append", content, expect_revision=guess)
        else:
            notebook.update(key, "append", content, expect_revision=guess)
            self.past(key).revisions.append((now[0], f"{now[1]}\n{content}" if now[1] else content))

    @rule(view=st.integers(0, 1), key=KEYS)
    def delete(self, view: int, key: str) -> None:
        if self.past(key).now is None:
            with pytest.raises(NoSuchNote):
                self.views[view].notebook.update(key, "delete")
        else:
            assert self.views[view].notebook.update(key, "delete").deleted
            self.past(key).revisions.append(None)

    @rule(view=st.integers(0, 1), key=KEYS, revision=st.integers(0, 6))
    def restore(self, view: int, key: str, revision: int) -> None:
        revisions = self.past(key).revisions
        if 0 < revision <= len(revisions) and revisions[revision - 1] is not None:
            self.views[view].notebook.restore(key, revision)
            revisions.append(revisions[revision - 1])
        else:
            with pytest.raises(NoSuchNote):
                self.views[view].notebook.restore(key, revision)

    @rule(view=st.integers(0, 1), key=KEYS, other=KEYS)
    def merge(self, view: int, key: str, other: str) -> None:
        notebook, source = self.views[view].notebook, self.past(other).now
        if key == other or source is None:
            with pytest.raises(Miscast):
                notebook.update(key, "merge", keys=[other])
            return
        merged = notebook.update(key, "merge", keys=[other])
        now = self.past(key).now
        told = f"{other}: {source[0]}\n{source[1]}"
        expected = (source[0], told) if now is None else (now[0], f"{now[1]}\n\n{told}")
        assert (merged.summary, merged.content) == expected
        self.past(key).revisions.append(expected)
        self.past(other).revisions.append(None)

    @rule(view=st.integers(0, 1), key=KEYS, revision=st.integers(1, 6))
    def read_the_past(self, view: int, key: str, revision: int) -> None:
        revisions = self.past(key).revisions
        if revision > len(revisions):
            with pytest.raises(NoSuchNote):
                self.views[view].notebook.read(key, revision)
        else:
            note, then = self.views[view].notebook.read(key, revision), revisions[revision - 1]
            assert note.deleted == (then is None)
            assert then is None or (note.summary, note.content) == then

    @invariant()
    def every_view_sees_the_model(self) -> None:
        live = {key: past.now for key, past in self.model.items() if past.now is not None}
        for view in self.views:
            assert {n.key: (n.summary, n.content) for n in view.notebook.all_notes()} == live
            for word in ("vienna", "条約"):
                found = {hit.line.key for hit in view.notebook.search(word).hits}
                assert found >= {key for key, said in live.items() if word in said[0] + said[1]}
                assert found <= set(live)


class LedgerMachine(Machine):
    """A list of events is the model: numbers never come back, and fold of the list is the transcript."""

    said = Bundle("said")

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, list[Event]] = {}
        self.texts: dict[int, str] = {}
        self.gone: set[int] = set()
        self.highest = 0

    @initialize()
    def start(self) -> None:
        self.views = [open_memory(self.folder, self.clock) for _ in range(2)]
        for thread in ("one", "two"):
            self.model[self.views[0].ledger.open_episode("cli", "", thread).episode_id] = []

    @rule(view=st.integers(0, 1), count=st.integers(1, 5))
    def reserve(self, view: int, count: int) -> None:
        first = self.views[view].ledger.reserve(count)
        assert first > self.highest
        self.highest = first + count - 1

    @rule(
        target=said,
        view=st.integers(0, 1),
        episode=st.integers(1, 2),
        texts=st.lists(
            st.text(max_size=30) | st.sampled_from(["the treaty", "条約"]), min_size=1, max_size=3
        ),
        role=st.sampled_from(["assistant", "tool"]),
    )
    def say(self, view: int, episode: int, texts: list[str], role: str) -> object:
        if episode not in self.model:
            return multiple()
        ledger = self.views[view].ledger
        first = ledger.reserve(len(texts))
        assert first > self.highest
        self.highest = first + len(texts) - 1
        events: list[Event] = []
        for number, text in enumerate(texts, start=first):
            events.append(Said(Message(number, role, "x", len(text) * 20, digest_of(text))))  # type: ignore[arg-type]
            self.texts[number] = text
        ledger.append(episode, events, {digest_of(text): text for text in texts})
        self.model[episode] += events
        return multiple(*range(first, first + len(texts)))

    @rule(
        view=st.integers(0, 1),
        episode=st.integers(1, 2),
        numbers=st.lists(said, min_size=1, max_size=4).map(tuple),
        make=st.sampled_from(
            [Forgot, Recalled, Pinned, lambda n: Forgot(n, summary="s"), lambda n: Pinned(n, pinned=False)]
        ),
    )
    def happen(self, view: int, episode: int, numbers: tuple[int, ...], make: type[Forgot]) -> None:
        if episode in self.model:
            self.views[view].ledger.append(episode, [make(numbers)], {})
            self.model[episode].append(make(numbers))

    @rule(view=st.integers(0, 1), numbers=st.lists(said, min_size=1, max_size=3).map(tuple))
    def forget_and_recall(self, view: int, numbers: tuple[int, ...]) -> None:
        ledger = self.views[view].ledger
        for episode, events in self.model.items():
            before = ledger.transcript(episode)
            fresh = tuple(n for n in numbers if n in before.by_number)
            fresh = tuple(n for n in fresh if not before.entries[before.by_number[n]].forgotten)
            ledger.append(episode, [Forgot(fresh)], {})
            assert ledger.transcript(episode).visible_tokens <= before.visible_tokens
            ledger.append(episode, [Recalled(fresh)], {})
            assert ledger.transcript(episode).entries == before.entries
            events += [Forgot(fresh), Recalled(fresh)]

    @rule(view=st.integers(0, 1), number=said)
    def content(self, view: int, number: int) -> None:
        ledger = self.views[view].ledger
        if number in self.gone:
            with pytest.raises((StorageError, NoSuchMessage)):
                ledger.content(number)
        else:
            assert ledger.content(number) == self.texts[number]

    @precondition(lambda self: len(self.model) > 1)
    @rule(view=st.integers(0, 1), content_only=st.booleans())
    def purge(self, view: int, content_only: bool) -> None:
        episode = max(self.model)
        self.gone |= {e.message.number for e in self.model[episode] if isinstance(e, Said)}
        self.views[view].ledger.purge(episode_id=episode, content_only=content_only)
        if not content_only:
            del self.model[episode]

    @invariant()
    def every_view_sees_the_model(self) -> None:
        for view in self.views:
            for episode, events in self.model.items():
                assert view.ledger.transcript(episode) == fold(events)
            for word in ("treaty", "条約"):
                found = {hit.message.number for hit in view.ledger.history_search(word, limit=1000).hits}
                live = {n for n, text in self.texts.items() if n not in self.gone}
                assert found <= live
                assert found >= {
                    n for n in live if self.texts[n] in ("the treaty", "条約") and word in self.texts[n]
                }


SETTINGS = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNotebook = NotebookMachine.TestCase
TestNotebook.settings = SETTINGS
TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(SETTINGS, max_examples=12)  # a purge vacuums two files

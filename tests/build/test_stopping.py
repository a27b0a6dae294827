"""A build that was stopped: what was ready stays ready, and what is left is said (a newcomer's findings 2, 3 and 4)."""

from __future__ import annotations

import json

import pytest

from pensieve_mcp import building

from .conftest import prose


def test_a_look_that_was_stopped_leaves_a_ready_workspace_ready(bench):
    """A host's short session ends its builder in the middle of the first look."""
    for number in range(6):
        bench.write(f"{number}.txt", prose(4, str(number)))
    store = bench.build()
    before = store.progress()
    bench.build(store, cancel=lambda: True)

    after = store.progress()
    assert (after.state, after.detail) == ("ready", "")
    assert (after.documents_done, after.documents_total) == (before.documents_done, before.documents_total)


def test_a_builder_killed_while_it_looks_leaves_a_ready_workspace_ready(bench, monkeypatch):
    bench.write("a.txt", prose(4))
    store = bench.build()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(building._Build, "_compare", killed)
    with pytest.raises(KeyboardInterrupt):
        bench.build(store)
    with store.connections.reading() as db:
        told = json.loads(db.conn.execute("SELECT told FROM progress").fetchone()[0])
    assert told["state"] == "ready", "so it stands there whatever ends the builder"
    assert store.progress().state == "ready"


def test_a_stopped_build_that_had_read_everything_is_ready(bench):
    bench.write("a.txt", prose(4))
    stop = []
    bench.readers.before = lambda name: stop.append(name)
    store = bench.build(cancel=lambda: bool(stop), workers=1)

    assert store.progress().state == "ready"
    assert bench.indexed().keys() == {"docs/a.txt"}


def test_an_interrupted_build_says_how_much_is_left(bench):
    for number in range(20):
        bench.write(f"{number:02}.txt", prose(5, str(number)))
    stop = []
    bench.readers.before = lambda name: stop.append(name) if name == "10.txt" else None
    store = bench.build(cancel=lambda: bool(stop), workers=1)

    told = store.progress()
    left = 20 - told.documents_done
    assert told.state == "stale" and 0 < left < 20
    assert told.detail == f"Indexing was interrupted: {left} of 20 files are left."


def test_only_documents_that_the_index_holds_count_as_searchable(bench):
    for number in range(4):
        bench.write(f"{number}.txt", prose(5, str(number)))
    store = bench.store()
    seen = []

    def look(name: str) -> None:
        seen.append(store.progress().searchable)

    bench.readers.before = look
    bench.build(store, workers=1)
    assert seen[0] == 0, "read is not yet searchable"
    assert store.progress().searchable == 4


def test_the_first_texts_are_published_before_much_is_read(bench, monkeypatch):
    """A first search soon finds something, whatever the size of the folder: our decision, about a second."""
    monkeypatch.setattr(building, "FIRST_DOCUMENTS", 3)
    for number in range(30):
        bench.write(f"{number:02}.txt", prose(5, str(number)))
    store = bench.store()
    when = []
    bench.readers.before = lambda name: when.append(store.progress().searchable)
    bench.build(store, workers=1)

    assert when[10] > 0
    assert when[-1] < 29, "later commits are rarer"

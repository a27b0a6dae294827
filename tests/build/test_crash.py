"""`kill -9` at any point of a build, and two processes at once: nothing is lost, nothing is there twice.

The killed process is a real one. It kills itself at a point named by its arguments, so that the test needs no clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pensieve_mcp.corpus.types import ChunkSet

from .conftest import Bench, prose

SET = ChunkSet(64)
PROGRAM = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(os.pathsep)
import importlib.util
spec = importlib.util.spec_from_file_location("bench", sys.argv[2])
bench = importlib.util.module_from_spec(spec); sys.modules["bench"] = bench; spec.loader.exec_module(bench)
from pensieve_mcp import building
from pensieve_mcp.corpus.ids import Ids
from pensieve_mcp.corpus.intake import Intake
building.BATCH_DOCUMENTS = 3
building.FIRST_COMMIT_SECONDS = building.COMMIT_SECONDS = 0.0
home, where, count = Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])

def die_at(owner, name, after):
    real = getattr(owner, name)
    def dying(*args, **kwargs):
        global count
        count -= 1
        if count < 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*args, **kwargs)
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, dying)

owner, name, when = where.split(".")
owners = {"Intake": Intake, "Ids": Ids, "FakeIndex": bench.FakeIndex, "PlainReaders": bench.PlainReaders}
die_at(owners[owner], name, when == "after")
bench.Bench(home / "docs", home / "state").build(workers=1)
"""
POINTS = [
    ("PlainReaders.extract.before", 4),
    ("Ids.documents.after", 1),
    ("Ids.chunks.after", 1),
    ("Intake.put.before", 1),
    ("Intake.put.after", 0),
    ("Intake.put.after", 2),
    ("FakeIndex.add.after", 1),
    ("Intake.committing.after", 1),
    ("FakeIndex.commit.before", 1),
    ("FakeIndex.commit.after", 0),
    ("FakeIndex.commit.after", 2),
    ("Intake.committed.after", 1),
    ("Intake.remove.after", 0),
    ("Intake.moved.after", 0),
    ("Intake.set_facts.after", 1),
]


def texts(store):
    return {
        c.chunk_id: store.chunk_text(c)
        for c in (store.chunk_at(SET, p) for p in range(store.chunk_count(SET)))
    }


def build_and_die(bench: Bench, where: str, count: int) -> int:
    here = Path(__file__).parent
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            os.pathsep.join(p for p in sys.path if p),
            str(here / "conftest.py"),
            str(bench.folder.parent),
            where,
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return run.returncode


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("where", "count"), POINTS)
def test_a_build_killed_anywhere_is_finished_by_the_next(bench, where, count):
    for number in range(8):
        bench.write(f"{number}.txt", prose(12, f"x{number}"))
    bench.write("old.txt", "Will be removed.")
    bench.write("here.txt", "Will be moved.")
    if where.split(".")[1] in ("remove", "moved"):
        bench.build()
        bench.close()
    (bench.folder / "old.txt").unlink()
    (bench.folder / "here.txt").rename(bench.folder / "there.txt")

    assert build_and_die(bench, where, count) == -signal.SIGKILL
    store = bench.store()
    before = texts(store)
    # What can be seen after the crash is whole.
    for document in store.documents()[0]:
        path = bench.folder.parent / document.path
        assert not path.exists() or document.chars == len(path.read_text())
    bench.build(store)

    after = texts(store)
    wanted = {
        f"docs/{path.relative_to(bench.folder).as_posix()}": path.read_text()
        for path in bench.folder.iterdir()
    }
    assert {d.path for d in store.documents()[0]} == wanted.keys()
    assert sorted(after.values()) == sorted(
        text for path in wanted for text in _chunks_of(store, path)
    ) and "".join(after.values()) == "".join(wanted[path] for path in sorted(wanted))
    assert all(after[i] == text for i, text in before.items() if i in after)
    assert bench.indexed() == wanted
    assert store.progress().state == "ready"
    with store.connections.reading() as db:
        assert db.conn.execute("SELECT count(*) FROM documents WHERE indexed = 0").fetchone() == (0,)
        assert db.conn.execute("SELECT count(*) FROM unindexed").fetchone() == (0,)


def _chunks_of(store, path):
    document = store.document(path)
    position, _ = store.position_of(store.chunk_containing(SET, document.document_id, 0).chunk_id)
    found = []
    while (chunk := store.chunk_at(SET, position)) is not None and chunk.document_id == document.document_id:
        found.append(store.chunk_text(chunk))
        position += 1
    return found


def test_the_progress_of_a_dead_builder_is_stale(bench):
    bench.write("a.txt", "One.")
    assert build_and_die(bench, "PlainReaders.extract.before", 0) == -signal.SIGKILL
    store = bench.store()
    with store.connections.writing() as db:
        db.conn.execute("UPDATE lease SET beat = beat - 1000")

    assert store.progress().state == "stale"
    assert "interrupted" in store.progress().detail


def test_a_reader_sees_each_document_whole_while_another_process_builds(bench):
    """A second store looks in the middle of the first's build, between any two files."""
    for number in range(6):
        bench.write(f"{number}.txt", prose(20, f"y{number}"))
    reader = bench.store()
    seen = []

    def look(name):
        for document in reader.documents()[0]:
            path = bench.folder.parent / document.path
            assert "".join(_chunks_of(reader, document.path)) == path.read_text()
        seen.append((reader.progress().state, len(reader.documents()[0])))

    bench.readers.before = look
    from pensieve_mcp import building

    old = building.BATCH_DOCUMENTS
    building.BATCH_DOCUMENTS = 1
    try:
        bench.build(workers=1)
    finally:
        building.BATCH_DOCUMENTS = old

    assert {state for state, _ in seen} == {"building"}
    assert seen[-1][1] > 0 and reader.progress().state == "ready"

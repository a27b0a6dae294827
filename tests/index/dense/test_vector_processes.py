"""The vector store across processes: writers that are killed, readers that keep reading."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from pensieve_mcp.errors import StorageError
from pensieve_mcp.index.vectors import VectorStore

# Generation g holds the passages 0 .. 40 g - 1 but those whose document (passage % 7) is g % 7, which go in the
# commit of g and come back in the next one: additions, removals and merges in every commit.
WRITER = """
import os, signal, sys
from pathlib import Path
import numpy as np
from pensieve_mcp.index.vectors import VectorStore

folder, first, last, die_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def rows(passages):
    return np.stack([np.random.default_rng(p).normal(size=16) for p in passages]).astype(np.float32)

calls = 0
def dying(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call

if die_at:  # before each sync, rename and deletion of the first commit, one after another
    os.fsync = dying(os.fsync)
    Path.replace = dying(Path.replace)
    Path.unlink = dying(Path.unlink)

store = VectorStore.open(folder)
for g in range(first, last):
    store.remove_documents([g % 7])
    fresh = [p for p in range(40 * (g - 1), 40 * g) if p % 7 != g % 7]
    back = [p for p in range(40 * (g - 1)) if p % 7 == (g - 1) % 7]
    both = fresh + back
    store.add(both, [p % 7 for p in both], rows(both))
    store.commit(g)
    print(g, flush=True)
"""


def rows(passages):
    return np.stack([np.random.default_rng(int(p)).normal(size=16) for p in passages]).astype(np.float32)


def check(store):
    """That the store holds exactly its generation; returns that."""
    generation = store.generation
    expected = [p for p in range(40 * generation) if p % 7 != generation % 7] if generation else []
    found, cosines = store.search(np.ones(16, np.float32), 100_000)
    assert sorted(map(int, found)) == expected
    if expected:
        true = rows(found) @ np.ones(16, np.float32) / 4 / np.linalg.norm(rows(found), axis=1)
        assert np.allclose(cosines, true, atol=0.03)
    return generation


def write(folder, first, last, die_at=0):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(first), str(last), str(die_at)],
        stdout=subprocess.PIPE,
        text=True,
    )


posix = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is of POSIX systems")


@posix
@pytest.mark.parametrize("die_at", range(1, 9))
def test_killed_at_any_step_of_a_commit_the_last_generation_is_whole(tmp_path, die_at):
    writer = write(tmp_path, 1, 4)
    writer.communicate(timeout=60)
    assert check(VectorStore.open(tmp_path)) == 3
    killed = write(tmp_path, 4, 5, die_at)
    killed.communicate(timeout=60)
    survivor = VectorStore.open(tmp_path)
    generation = check(survivor)
    if killed.returncode == 0:  # the commit has fewer steps than die_at
        assert generation == 4
    else:
        assert killed.returncode == -signal.SIGKILL
        assert generation in (3, 4)
    again = write(tmp_path, generation + 1, generation + 3)
    again.communicate(timeout=60)
    assert again.returncode == 0
    assert survivor.refresh()
    assert check(survivor) == generation + 2
    named = {about["name"] for about in survivor._snapshot.manifest.segments}
    assert {path.name for path in tmp_path.glob("*.seg")} == named


@posix
def test_the_steps_tried_above_are_all_the_steps_of_a_commit(tmp_path):
    """Guards the test above: the fourth step exists, and the last number tried is beyond the last step."""
    write(tmp_path, 1, 4).communicate(timeout=60)
    whole = write(tmp_path, 4, 5, 8)
    whole.communicate(timeout=60)
    assert whole.returncode == 0
    early = write(tmp_path, 5, 6, 4)
    early.communicate(timeout=60)
    assert early.returncode == -signal.SIGKILL


@posix
def test_a_writer_killed_while_it_works_loses_at_most_its_last_commit(tmp_path):
    done = 0
    for _ in range(4):
        with write(tmp_path, done + 1, 1_000) as writer:
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(5)]
            writer.send_signal(signal.SIGKILL)
            said += [int(line) for line in writer.stdout.read().split()]
        done = check(VectorStore.open(tmp_path))
        assert done in (said[-1], said[-1] + 1)


def test_a_reader_in_another_process_sees_each_generation_whole(tmp_path):
    """The reader is this process; the writer commits, merges and sweeps files away under it."""
    reader = VectorStore.open(tmp_path, read_only=True)
    assert check(reader) == 0
    seen = set()
    with write(tmp_path, 1, 40) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            announced = int(line)
            reader.refresh()
            seen.add(check(reader))
            assert reader.generation >= announced
    assert writer.returncode == 0
    assert max(seen) == 39
    assert len(seen) > 5


def test_a_snapshot_stays_readable_while_others_commit(tmp_path):
    write(tmp_path, 1, 3).communicate(timeout=60)
    old = VectorStore.open(tmp_path, read_only=True)
    write(tmp_path, 3, 30).communicate(timeout=60)
    assert check(old) == 2
    assert old.refresh()
    assert check(old) == 29


def test_while_one_process_writes_another_cannot_and_is_told(tmp_path):
    code = (
        "import sys; import numpy as np; from pathlib import Path\n"
        "from pensieve_mcp.index.vectors import VectorStore\n"
        "store = VectorStore.open(Path(sys.argv[1])); store.add([1], [1], np.ones((1, 16), np.float32))\n"
        "print('ready', flush=True); sys.stdin.readline(); store.commit(1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        other = VectorStore.open(tmp_path)
        with pytest.raises(StorageError) as caught:
            other.add([2], [1], np.ones((1, 16), np.float32))
        assert caught.value.slug == "index_busy"
        writer.communicate("\n", timeout=60)
    other.add([2], [1], np.ones((1, 16), np.float32))
    other.commit(2)
    assert sorted(map(int, other.search(np.ones(16, np.float32), 5)[0])) == [1, 2]


def test_searching_threads_keep_a_whole_state_while_one_thread_writes(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    store = VectorStore.open(tmp_path)
    query = np.ones(16, np.float32)

    def search(_):
        found = len(store.search(query, 10_000)[0])
        return found % 10 == 0  # each commit brings ten

    with ThreadPoolExecutor(4) as pool:
        asked = []
        for generation in range(1, 40):
            passages = range(10 * (generation - 1), 10 * generation)
            store.add(passages, [1] * 10, rows(passages))
            asked += [pool.submit(search, None) for _ in range(4)]
            store.commit(generation)
        assert all(one.result() for one in asked)

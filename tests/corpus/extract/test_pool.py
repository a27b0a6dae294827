"""A bad file costs one file: never the pool, never a hang. Facts: extraction, section 6."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pensieve_mcp.corpus.extract.pool import ExtractionPool
from pensieve_mcp.corpus.types import Extracted, FileHint, Limits, Unreadable

from .conftest import HERE, Outcome, Reader

MakeReader = Callable[..., Reader]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and descriptors of POSIX")


def refused(outcome: Outcome) -> Unreadable:
    assert isinstance(outcome, Unreadable), outcome
    return outcome


def read_whole(outcome: Outcome) -> Extracted:
    assert isinstance(outcome, Extracted), outcome
    return outcome


def gone(pid: int) -> bool:
    """True once the process is no more; waits for that, in small steps, for at most ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        threading.Event().wait(0.02)
    return False


@pytest.mark.parametrize("pipes", [pytest.param(False, marks=posix), True])
def test_a_file_comes_back_as_one_text_with_its_blocks(make_reader: MakeReader, pipes: bool) -> None:
    read = make_reader(pipes=pipes)
    for n in range(3):
        document = read_whole(read("a.plain", f"first {n}\r\nsecond\n".encode()))
        assert document.text == f"first {n}\nsecond\n"
        assert [document.text[b.start : b.end] for b in document.blocks] == [f"first {n}", "second"]
        assert document.extractor == "plain/1"
        assert document.status == "ok"
    assert len(read.pool.worker_pids()) == 1


def test_the_descriptor_is_read_from_its_start(make_reader: MakeReader, tmp_path: Path) -> None:
    read = make_reader()
    (tmp_path / "x").write_text("all of it\n")
    with (tmp_path / "x").open("rb") as file:
        file.seek(5)
        assert read.pool.extract(file.fileno(), FileHint("x.plain", 10)).text == "all of it\n"


@pytest.mark.parametrize(
    ("suffix", "reason", "said"),
    [
        ("exit", "crashed", "exit status 3"),
        ("abort", "crashed", "SIGABRT"),
        ("segv", "crashed", "SIGSEGV"),
        ("stop", "timeout", "stopped after"),
        ("spin", "timeout", "stopped after"),
        ("garbage", "crashed", "gibberish"),
        ("swallow", "out_of_memory", "memory"),
        ("touch", "out_of_memory", "memory"),
        ("recurse", "corrupt", "nested"),
        ("refuse", "encrypted", "password"),
        ("write", "unreadable", ""),
    ],
)
@posix
def test_a_reader_that_dies_costs_one_file(
    make_reader: MakeReader, suffix: str, reason: str, said: str
) -> None:
    read = make_reader(idle_timeout_seconds=3, memory_bytes=500_000_000)
    before = read.pool.worker_pids()
    problem = refused(read(f"bad.{suffix}", b"x"))
    assert (problem.reason, said in problem.detail) == (reason, True), problem
    read.works()
    assert before == []
    assert len(read.pool.worker_pids()) == 1


@posix
def test_a_worker_started_by_a_large_process_is_not_taken_for_large_itself(make_reader: MakeReader) -> None:
    """The peak of getrusage outlives exec (seen when the whole suite ran in one process of 1.2 GB)."""
    ballast = bytearray(600_000_000)
    ballast[::4096] = b"x" * len(ballast[::4096])
    read = make_reader(idle_timeout_seconds=3, memory_bytes=500_000_000)
    assert refused(read("bad.spin", b"x")).reason == "timeout"
    assert ballast[0] == ord("x")
    read.works()


@posix
def test_over_pipes_too_a_reader_that_hangs_is_killed(make_reader: MakeReader) -> None:
    read = make_reader(idle_timeout_seconds=2.5, pipes=True)
    assert refused(read("bad.stop", b"x")).reason == "timeout"
    assert refused(read("bad.abort", b"x")).reason == "crashed"
    read.works()


@posix
def test_a_crash_on_page_900_leaves_the_other_999(make_reader: MakeReader) -> None:
    document = read_whole(make_reader()("book.pages", b"x"))
    assert document.status == "partial"
    assert [unit.ordinal for unit in document.units] == [n for n in range(1, 1001) if n not in (3, 900)]
    (warning,) = document.facts.warnings
    assert "unit 900 was left out: crashed" in warning


@posix
def test_a_second_crash_ends_the_reading_and_keeps_what_came_before(make_reader: MakeReader) -> None:
    document = read_whole(make_reader()("twice.pages", b"x"))
    assert document.status == "partial"
    assert document.units[-1].ordinal == 949
    assert "reading ended after page 949: crashed" in document.facts.warnings[-1]


@posix
def test_what_was_read_before_a_hang_is_kept(make_reader: MakeReader) -> None:
    document = read_whole(make_reader(idle_timeout_seconds=2.5)("late.stop-late", b"x"))
    assert document.status == "partial"
    assert len(document.units) == 5
    assert "timeout" in document.facts.warnings[0]


def test_a_bug_in_a_reader_names_its_place(make_reader: MakeReader) -> None:
    document = read_whole(make_reader()("x.bug", b"x"))
    assert document.status == "partial"
    assert "KeyError" in document.facts.warnings[0]
    assert "bad_readers.py:" in document.facts.warnings[0]


def test_a_steady_trickle_still_ends_at_the_total_limit(make_reader: MakeReader) -> None:
    read = make_reader(base_timeout_seconds=2.0)
    document = read_whole(read("x.trickle", b"x"))
    assert document.status == "partial"
    assert "timeout" in document.facts.warnings[0]
    assert 1 <= document.text.count("drop") <= 40


@posix
def test_a_worker_killed_from_outside_in_mid_file_costs_that_file(make_reader: MakeReader) -> None:
    read = make_reader(idle_timeout_seconds=30)
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(read("x.spin", b"x")))
    thread.start()
    while not (pids := read.pool.worker_pids()):
        threading.Event().wait(0.01)
    os.kill(pids[0], signal.SIGKILL)
    thread.join(timeout=20)
    assert refused(outcomes[0]).reason == "crashed"
    read.works()


@posix
def test_an_idle_worker_killed_from_outside_costs_nothing(make_reader: MakeReader) -> None:
    read = make_reader()
    read.works()
    (pid,) = read.pool.worker_pids()
    os.kill(pid, signal.SIGKILL)
    read.works()
    assert read.pool.worker_pids() != [pid]


@posix
def test_a_stopped_idle_worker_is_replaced(make_reader: MakeReader) -> None:
    read = make_reader(idle_timeout_seconds=2.5)
    read.works()
    os.kill(read.pool.worker_pids()[0], signal.SIGSTOP)
    assert refused(read("a.plain", b"x")).reason == "timeout"
    read.works()


def test_prints_of_a_library_do_not_reach_the_channel(make_reader: MakeReader) -> None:
    for pipes in (False, True) if sys.platform != "win32" else (True,):
        read = make_reader(pipes=pipes)
        assert "after the act" in read_whole(read("x.stdout", b"x")).text


@posix
def test_a_library_that_fills_stderr_blocks_nothing(make_reader: MakeReader) -> None:
    read = make_reader()
    for _ in range(4):  # 128 KB, twice what a pipe holds
        outcome = read("x.chatty", b"x")
        assert isinstance(outcome, Extracted)


@posix
def test_a_worker_knows_nothing_of_our_environment(
    make_reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    detail = refused(make_reader()("x.environment", b"x")).detail
    assert "SECRET_TOKEN" not in detail
    assert "TZ" in detail


def test_a_worker_is_renewed_after_some_files(make_reader: MakeReader) -> None:
    read = make_reader(recycle_files=3)
    pids = []
    for _ in range(4):
        read.works()
        pids += read.pool.worker_pids()
    assert len(set(pids)) == 2


def test_many_threads_share_few_workers(make_reader: MakeReader, tmp_path: Path) -> None:
    read = make_reader(workers=2)

    def one(n: int) -> str:
        path = tmp_path / f"file-{n}"
        path.write_text(f"number {n}\n")
        with path.open("rb") as file:
            return read.pool.extract(file, FileHint("a.plain", path.stat().st_size)).text

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(60))) == [f"number {n}\n" for n in range(60)]
    assert len(read.pool.worker_pids()) <= 2


def test_closing_ends_idle_and_busy_workers(make_reader: MakeReader) -> None:
    read = make_reader(workers=2, idle_timeout_seconds=30)
    outcomes: list[Outcome] = []
    read.works()
    thread = threading.Thread(target=lambda: outcomes.append(read("x.spin", b"x")))
    thread.start()
    while len(read.pool.worker_pids()) < 1:
        threading.Event().wait(0.01)
    threading.Event().wait(0.4)
    pids = read.pool.worker_pids()
    read.pool.close()
    thread.join(timeout=20)
    assert refused(outcomes[0]).reason == "crashed"
    assert all(gone(pid) for pid in pids)
    read.pool.close()


def test_a_closed_pool_says_so(make_reader: MakeReader) -> None:
    read = make_reader()
    read.pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        read("a.plain", b"x")


def test_more_workers_than_three_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 3"):
        ExtractionPool(workers=4)


@posix
@pytest.mark.parametrize("suffix", ["plain", "spin"])
def test_no_orphan_is_left_when_the_parent_is_killed(suffix: str, tmp_path: Path) -> None:
    """Idle: the channel ends. Busy: the watchdog sees that the parent is gone."""
    path = tmp_path / f"x.{suffix}"
    path.write_text("x")
    script = f"""
import sys, threading
sys.path.insert(0, {str(HERE)!r})
from pensieve_mcp.corpus.extract.pool import ExtractionPool
from pensieve_mcp.corpus.types import FileHint
pool = ExtractionPool(readers="bad_readers:readers")
def work():
    pool.extract(open({str(path)!r}, "rb"), FileHint("x.{suffix}", 1))
thread = threading.Thread(target=work); thread.start()
if "{suffix}" == "plain": thread.join()
while not pool.worker_pids(): pass
threading.Event().wait(0.5)
print(*pool.worker_pids(), flush=True)
threading.Event().wait(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


def test_more_characters_than_allowed_are_cut_and_said(make_reader: MakeReader) -> None:
    read = make_reader(limits=Limits(document_chars=1000))
    document = read_whole(read("a.plain", b"line\n" * 1000))
    assert len(document.text) == 1000
    assert document.status == "partial"
    assert "1,000" in document.facts.warnings[0]


def test_an_empty_file_starts_no_worker(make_reader: MakeReader) -> None:
    read = make_reader()
    assert refused(read("a.plain", b"")).reason == "empty"
    assert read.pool.worker_pids() == []


def test_white_space_alone_is_no_text(make_reader: MakeReader) -> None:
    assert refused(make_reader()("a.plain", b" \n\t\n")).reason == "no_text"

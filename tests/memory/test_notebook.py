"""The notebook: revisions, conflicts, twins, limits, search, plan, subscriptions, sudden death."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pensieve_mcp.errors import Conflict, Miscast, NoSuchNote, StorageError
from pensieve_mcp.notebook.store import Notebook
from pensieve_mcp.notebook.types import Evidence, NoteLimits

from .conftest import Memory

Reopen = Callable[[], Memory]

QUOTE = Evidence(
    quote="signed on 9 June 1815",
    path="papers/report.pdf",
    locator="p. 12",
    chunk_id=48,
    message=7,
    document_digest=b"\x00" * 32,
    span=(100, 121),
    prefix="The treaty was ",
    suffix=".",
    state="ok",
    verified=5.0,
)


@pytest.fixture
def notebook(memory: Memory) -> Notebook:
    return memory.notebook


def test_a_note_comes_back_as_it_was_written_after_a_restart(memory: Memory, reopen: Reopen) -> None:
    written = memory.notebook.write(
        "treaty/date",
        "Signed 9 June 1815",
        "The Final Act.\r\n\ttabs, 条約 and \x00 stay.",
        evidence=[QUOTE],
        applies_to="papers",
        links=["treaty/parties", "treaty/parties"],
        author="e1",
    )
    assert written.revision == 1 and written.links == ("treaty/parties",)
    assert reopen().notebook.read("treaty/date") == written
    assert reopen().notebook.read(" treaty/date ") == written


def test_overwriting_keeps_what_was_there(notebook: Notebook) -> None:
    first = notebook.write("k", "one", "first", evidence=[QUOTE])
    second = notebook.write("k", "two", "second")

    assert (second.revision, second.evidence) == (2, ())
    assert "revision 1" in second.warnings[0]
    assert notebook.read("k").content == "second"
    assert notebook.read("k", revision=1) == first
    assert [(r.revision, r.action, r.summary) for r in notebook.history("k")] == [
        (1, "write", "one"),
        (2, "write", "two"),
    ]


def test_append_overwrite_and_delete(notebook: Notebook) -> None:
    notebook.write("k", "s", "one", evidence=[QUOTE])
    appended = notebook.update("k", "append", "two", evidence=[Evidence("more")])
    assert appended.content == "one\ntwo"
    assert [piece.quote for piece in appended.evidence] == [QUOTE.quote, "more"]
    assert notebook.update("k", "overwrite", new_summary="t").content == "one\ntwo"
    assert notebook.update("k", "overwrite", "three").summary == "t"

    notebook.update("k", "delete", author="me")
    with pytest.raises(NoSuchNote, match=r"deleted at revision 5 \(by me"):
        notebook.read("k")
    with pytest.raises(NoSuchNote):
        notebook.update("k", "append", "x")
    assert notebook.list().total == 0
    assert notebook.search("three").total == 0
    restored = notebook.restore("k", 2)
    assert (restored.content, restored.revision) == ("one\ntwo", 6)
    assert notebook.search("two").total == 1
    with pytest.raises(NoSuchNote, match="1 to 6"):
        notebook.restore("k", 5)


def test_a_deleted_key_can_be_written_anew(notebook: Notebook) -> None:
    notebook.write("k", "s", "one")
    notebook.update("k", "delete")
    assert notebook.write("k", "s", "new", expect_revision=0).revision == 3
    assert notebook.read("k", revision=1).content == "one"


def test_a_conflict_names_both_versions_and_changes_nothing(notebook: Notebook) -> None:
    notebook.write("k", "first summary", "c", author="alice")
    notebook.write("k", "second summary", "c", author="bob")
    for change in (
        lambda: notebook.update("k", "append", "mine", expect_revision=1),
        lambda: notebook.write("k", "s", "mine", expect_revision=1),
        lambda: notebook.update("k", "delete", expect_revision=1),
        lambda: notebook.restore("k", 1, expect_revision=1),
        lambda: notebook.write("k", "s", "mine", expect_revision=0),
    ):
        with pytest.raises(Conflict) as caught:
            change()
        assert "revision 2" in caught.value.message and "second summary" in caught.value.message
        assert "expect_revision=2" in caught.value.hint
    with pytest.raises(Conflict, match="first summary"):
        notebook.update("k", "append", "mine", expect_revision=1)
    with pytest.raises(Conflict, match="does not exist"):
        notebook.write("other", "s", "c", expect_revision=4)
    assert notebook.read("k").revision == 2
    assert notebook.update("k", "append", "mine", expect_revision=2).revision == 3


def test_merging_takes_notes_in_and_their_evidence_with_them(notebook: Notebook) -> None:
    notebook.write("a", "A", "alpha", evidence=[QUOTE], links=["b", "z"])
    notebook.write("b", "B", "beta", evidence=[QUOTE, Evidence("beta said")])
    merged = notebook.update("a", "merge", keys=["b", "a", "b"])

    assert merged.content == "alpha\n\nb: B\nbeta"
    assert merged.summary == "A"
    assert [piece.quote for piece in merged.evidence] == [QUOTE.quote, "beta said"]
    assert merged.links == ("z",)
    with pytest.raises(NoSuchNote):
        notebook.read("b")
    assert notebook.restore("b", 1).content == "beta"


def test_merging_into_a_new_key_and_what_cannot_be_merged(notebook: Notebook) -> None:
    notebook.write("a", "A", "alpha")
    notebook.write("b", "B", "beta")
    with pytest.raises(NoSuchNote):
        notebook.update("all", "merge", keys=["a", "gone"])
    assert notebook.read("a").revision == 1, "nothing happened"
    with pytest.raises(Miscast):
        notebook.update("a", "merge", keys=["a"])
    with pytest.raises(Miscast):
        notebook.update("a", "merge")
    merged = notebook.update("all", "merge", "both", "Both", ["a", "b"])
    assert (merged.content, merged.summary, merged.revision) == ("both", "Both", 1)
    assert [line.key for line in notebook.list().lines] == ["all"]


def test_twins_are_told_to_the_writer(notebook: Notebook) -> None:
    """The same title in another spelling made a second note, and only the log knew (basic-memory 1077)."""
    notebook.write("Treaty Date", "s", "c")
    twin = notebook.write("treaty_date", "s", "c")
    assert twin.warnings == ("There is also a note 'Treaty Date': merge them if they mean the same.",)
    assert notebook.write("treaty parties", "s", "c").warnings == ()


def test_a_missing_note_is_answered_with_near_names(notebook: Notebook) -> None:
    notebook.write("treaty/date", "s", "c")
    for near in ("Treaty/Date", "treaty-date", "treaty/dates", "date"):
        with pytest.raises(NoSuchNote) as caught:
            notebook.read(near)
        assert "treaty/date" in caught.value.hint
    notebook.write("tre", "s", "c")
    with pytest.raises(NoSuchNote, match="Did you mean 'treaty/date' or 'tre'"):
        notebook.read("treaty/dates")
    with pytest.raises(NoSuchNote, match="none with a similar key"):
        notebook.read("zzz")
    with pytest.raises(NoSuchNote):
        notebook.history("zzz")
    with pytest.raises(NoSuchNote, match="1 to 1"):
        notebook.read("treaty/date", revision=9)


@pytest.mark.parametrize(
    "key", ["", "   ", "a\nb", "a\x00b", "a\x1b[31m", "x" * 201, "a\u2028b", "half \ud800", "a\rb", 7, None]
)
def test_a_key_that_is_no_key_is_refused(notebook: Notebook, key: str) -> None:
    for spell in (
        lambda: notebook.write(key, "s", "c"),
        lambda: notebook.read(key),
        lambda: notebook.update(key, "append", "c"),
        lambda: notebook.history(key),
    ):
        with pytest.raises(Miscast) as caught:
            spell()
        assert caught.value.slug == "bad_key" and "one line" in caught.value.hint
    assert notebook.list().total == 0


@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "/abs", "C:\\x", "con", ".", "%2e%2e", "日本", "a" * 200]
)
def test_a_key_that_only_looks_dangerous_is_a_key(notebook: Notebook, key: str) -> None:
    """Names with `..` left the folder elsewhere (Serena 1665); here a key is no path."""
    notebook.write(key, "s", "c")
    assert notebook.read(key).key == key


def test_what_is_too_long_is_refused_with_the_way_to_split_it(notebook: Notebook) -> None:
    with pytest.raises(Miscast) as caught:
        notebook.write("k", "s", "x" * 10_000_000)
    assert caught.value.slug == "note_too_long"
    assert "10,000,000" in caught.value.message and "k/1 to k/10" in caught.value.hint
    with pytest.raises(Miscast) as caught:
        notebook.write("k", "s" * 501, "x")
    assert caught.value.slug == "summary_too_long"
    with pytest.raises(Miscast):
        notebook.write("k", "s", "x", evidence=[Evidence("q")] * 201)
    with pytest.raises(Miscast):
        notebook.write("k", "s", "x", evidence=[Evidence("q" * 10_001)])
    with pytest.raises(Miscast):
        notebook.write("k", "s", "half \ud800")
    notebook.write("k", "s", "é" * 400_000)
    with pytest.raises(Miscast):
        notebook.update("k", "append", "é" * 400_000)
    assert notebook.read("k").revision == 1


def test_a_summary_becomes_one_line(notebook: Notebook) -> None:
    assert notebook.write("k", " two\n lines\t\x07", "c").summary == "two lines"


def test_a_mode_that_is_none_is_refused(notebook: Notebook) -> None:
    notebook.write("k", "s", "c")
    for mode, slug in (
        ("replace", "bad_mode"),
        ("append", "missing_content"),
        ("overwrite", "missing_content"),
    ):
        with pytest.raises(Miscast) as caught:
            notebook.update("k", mode)  # type: ignore[arg-type]
        assert caught.value.slug == slug


# --- lists and search -------------------------------------------------------------------------------------


def test_lists_are_paged_by_key_and_prefix(notebook: Notebook) -> None:
    for name in ("b/2", "a/1", "b/1", "B/3", "b_x", "b/%"):
        notebook.write(name, f"about {name}", "c")
    keys: list[str] = []
    cursor = None
    while True:
        page = notebook.list("b/", cursor=cursor, limit=1)
        assert page.total == 3
        keys += [line.key for line in page.lines]
        cursor = page.cursor
        if cursor is None:
            break
    assert keys == ["b/%", "b/1", "b/2"]
    assert str(notebook.list("a").lines[0]) == "a/1: about a/1"
    assert notebook.list("\ud800", cursor="\ud800").lines == ()


def test_what_was_noted_is_found_at_once_by_any_process(memory: Memory, reopen: Reopen) -> None:
    other = reopen()
    memory.notebook.write("treaty/date", "Signed in Vienna", "条約は1815年に署名された", evidence=[QUOTE])
    for query in ("vienna", "署名", "条", "treaty", "9 June", "signing", '"signed in vienna"'):
        answer = other.notebook.search(query)
        assert [hit.line.key for hit in answer.hits] == ["treaty/date"], query
    memory.notebook.write("treaty/date", "Signed in Paris", "elsewhere")
    assert other.notebook.search("vienna").total == 0
    assert other.notebook.search("paris").total == 1


def test_a_match_in_the_key_stands_before_one_in_the_content(notebook: Notebook) -> None:
    notebook.write("other", "s", "a long text that names vienna once among many other words " * 3)
    notebook.write("vienna", "s", "c")
    for number in range(5):
        notebook.write(f"filler {number}", "s", "nothing of it")
    assert [hit.line.key for hit in notebook.search("vienna").hits] == ["vienna", "other"]
    assert len(notebook.search("vienna", limit=1).hits) == 1


# --- evidence, secrets, plan, subscriptions ---------------------------------------------------------------


def test_a_later_look_at_the_evidence_is_stored_without_a_new_revision(notebook: Notebook) -> None:
    from dataclasses import replace

    note = notebook.write("k", "s", "c", evidence=[QUOTE])
    notebook.check_evidence("k", 1, [replace(QUOTE, state="gone", detail="file removed", verified=9.0)])
    again = notebook.read("k")
    assert (again.revision, again.evidence[0].state, again.evidence[0].detail) == (1, "gone", "file removed")
    assert notebook.list().lines[0].unsupported == 1
    with pytest.raises(ValueError, match="evidence"):
        notebook.check_evidence("k", 1, [Evidence("another quote")])
    with pytest.raises(NoSuchNote):
        notebook.check_evidence("k", 4, [])
    assert note.evidence == (QUOTE,)


def test_secrets_are_taken_out_before_storing_and_that_is_told(memory: Memory) -> None:
    redacting = Notebook(memory.connections, redact=lambda text: text.replace("sk-123", "[secret]"))
    note = redacting.write("k", "the key sk-123", "is sk-123", evidence=[Evidence("sk-123", prefix="sk-123")])
    plan = redacting.plan("use sk-123", ["sk-123"], ["sk-123"], "sk-123")

    assert (note.summary, note.content) == ("the key [secret]", "is [secret]")
    assert note.evidence[0].quote == note.evidence[0].prefix == "[secret]"
    assert "Secrets" in note.warnings[0]
    assert "sk-123" not in repr(plan)
    assert not any(b"sk-123" in file.read_bytes() for file in memory.folder.iterdir())


def test_purging_a_note_leaves_no_trace_of_any_revision(memory: Memory) -> None:
    memory.notebook.write("k", "s", "zanzibarquux", evidence=[Evidence("zanzibarquux")])
    memory.notebook.write("k", "s", "harmless")
    memory.notebook.write("other", "s", "stays")
    assert memory.notebook.purge("k") == 2
    assert not any(b"zanzibarquux" in file.read_bytes() for file in memory.folder.iterdir())
    assert [line.key for line in memory.notebook.list().lines] == ["other"]
    with pytest.raises(NoSuchNote):
        memory.notebook.purge("k")


def test_a_plan_changes_in_parts_and_keeps_its_past(notebook: Notebook, reopen: Reopen) -> None:
    assert notebook.read_plan().revision == 0
    notebook.plan("find the date", ["cite pages"], ["search", "read"], "search")
    plan = notebook.plan(steps=["read"], next="read")
    assert (plan.goal, plan.constraints, plan.steps, plan.revision) == (
        "find the date",
        ("cite pages",),
        ("read",),
        2,
    )
    assert reopen().notebook.read_plan() == plan
    assert notebook.read_plan(1).next == "search"
    notebook.plan("another", scope="e2")
    assert notebook.read_plan().goal == "find the date"
    with pytest.raises(Miscast) as caught:
        notebook.plan("x" * 30_000)
    assert caught.value.slug == "plan_too_long"


def test_purging_a_plan_leaves_no_trace(memory: Memory) -> None:
    memory.notebook.plan("zanzibarquux", scope="1")
    memory.notebook.plan("stays", scope="2")
    assert memory.notebook.purge_plan(scope="1") == 1
    assert memory.notebook.read_plan(scope="1").revision == 0
    assert memory.notebook.read_plan(scope="2").goal == "stays"
    assert not any(b"zanzibarquux" in file.read_bytes() for file in memory.folder.iterdir())


def test_changes_of_any_process_are_seen_by_a_watcher(memory: Memory, reopen: Reopen) -> None:
    watch = memory.notebook.watch()
    start = memory.notebook.change_counter()
    assert watch.poll() is None
    other = reopen()
    other.notebook.write("a", "s", "c")
    other.notebook.write("b", "s", "c")
    other.notebook.update("a", "append", "more")
    other.notebook.plan("goal", scope="e1")
    changes = watch.poll()
    assert changes is not None
    assert (changes.keys, changes.plans) == (("b", "a"), ("e1",))
    assert watch.poll() is None
    other.ledger.reserve()
    assert watch.poll() is None, "the ledger's writes are no change of a note"
    assert memory.notebook.changes_since(start) == changes
    assert memory.notebook.changes_since(changes.counter).keys == ()
    watch.close()


# --- many writers, sudden death, trouble ------------------------------------------------------------------


def test_fifty_pipelined_writes_from_threads_are_all_there(memory: Memory) -> None:
    """50 pipelined creates left one entry, each reported as a success (servers 1819, 2579)."""
    errors: list[Exception] = []

    def write(number: int) -> None:
        try:
            memory.notebook.write(f"note {number}", "s", "c")
            memory.notebook.update("shared", "append", f"line {number}")
        except Exception as error:
            errors.append(error)

    memory.notebook.write("shared", "s", "")
    threads = [threading.Thread(target=write, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    assert memory.notebook.list("note ").total == 50
    assert sorted(memory.notebook.read("shared").content.split("\n")) == sorted(
        f"line {number}" for number in range(50)
    )


NOTE = """
import sys
from pathlib import Path
from pensieve_mcp.notebook.store import BASIN, Notebook
from pensieve_mcp.storage import Connections
notebook = Notebook(Connections(Path(sys.argv[1]) / "pensieve.db", basins=(BASIN,), precious=True))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    notebook.write(f"{sys.argv[2]} {number}", "s", f"content {number}")
    print(f"wrote {number}", flush=True)
    notebook.update("shared", "append", f"{sys.argv[2]} {number}")
    print(f"appended {number}", flush=True)
    if number % 3 == 2:
        notebook.update(f"{sys.argv[2]} {number}", "delete")
        print(f"deleted {number}", flush=True)
"""


def test_two_processes_write_fifty_notes_each_and_all_are_there(
    memory: Memory, child: Callable[..., subprocess.Popen[str]]
) -> None:
    memory.notebook.write("shared", "s", "")
    both = [child(NOTE, memory.folder, name, 50) for name in "ab"]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        _, complaint = process.communicate("go\n")
        assert process.returncode == 0, complaint

    for name in "ab":
        assert memory.notebook.list(f"{name} ").total == 50 - 16
        assert memory.notebook.read(f"{name} 47", revision=1).content == "content 47"
    shared = memory.notebook.read("shared")
    assert shared.revision == 101
    assert sorted(shared.content.split("\n")) == sorted(f"{name} {n}" for name in "ab" for n in range(50))


@pytest.mark.parametrize("after", [1, 9, 40])
def test_killed_while_noting_what_was_confirmed_is_there(
    memory: Memory, child: Callable[..., subprocess.Popen[str]], after: int
) -> None:
    memory.notebook.write("shared", "s", "")
    process = child(NOTE, memory.folder, "x", 10**6)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    confirmed = [process.stdout.readline() for _ in range(after)]
    process.kill()
    confirmed += process.stdout.readlines()
    process.wait()

    whole = [line.split() for line in confirmed if line.endswith("\n")]
    deleted = {number for what, number in whole if what == "deleted"}
    lines = memory.notebook.read("shared").content.split("\n")
    for what, number in whole:
        if what == "wrote":
            assert memory.notebook.read(f"x {number}", revision=1).content == f"content {number}"
            assert number in deleted or number == whole[-1][1] or memory.notebook.read(f"x {number}")
        elif what == "appended":
            assert f"x {number}" in lines
        else:
            with pytest.raises(NoSuchNote):
                memory.notebook.read(f"x {number}")
    assert memory.notebook.write("after", "s", "c").revision == 1


def test_a_full_disk_refuses_a_note_and_loses_none(memory: Memory) -> None:
    memory.notebook.write("first", "s", "c")
    with memory.connections.alone() as db:
        pages = db.conn.execute("PRAGMA page_count").fetchone()[0]
        db.conn.execute(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(StorageError) as caught:
        memory.notebook.write("second", "s", "x" * 900_000)
    assert caught.value.slug == "storage_full"
    assert [line.key for line in memory.notebook.list().lines] == ["first"]
    with memory.connections.alone() as db:
        db.conn.execute("PRAGMA max_page_count = 1000000")
    assert memory.notebook.write("second", "s", "x" * 900_000).revision == 1


def test_ten_thousand_notes_are_listed_and_found(memory: Memory) -> None:
    from pensieve_mcp.notebook.schema import put_note
    from pensieve_mcp.notebook.types import Note

    with memory.connections.writing() as db:  # in one transaction: the test is about reading
        for number in range(10_000):
            put_note(db, Note(f"n{number:05}", "s", f"word{number}", 1, 0.0, 0.0), "write")
    assert memory.notebook.list().total == 10_000
    assert [hit.line.key for hit in memory.notebook.search("word777").hits] == ["n00777"]
    assert memory.notebook.list(limit=10**9).total == len(memory.notebook.list(limit=10**9).lines)


def test_limits_can_be_set(memory: Memory) -> None:
    small = Notebook(memory.connections, limits=NoteLimits(content_bytes=10, key_chars=5))
    with pytest.raises(Miscast):
        small.write("k", "s", "x" * 11)
    with pytest.raises(Miscast):
        small.write("longkey", "s", "x")


def test_loading_creates_nothing(tmp_path: Path) -> None:
    """Merely loading a configuration recreated an empty folder (basic-memory 1029)."""
    from pensieve_mcp.storage import Connections

    Notebook(Connections(tmp_path / "state" / "pensieve.db"))
    assert list(tmp_path.iterdir()) == []

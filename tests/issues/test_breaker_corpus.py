"""What somebody who set out to break the product found in the corpus; numbers are those of that report."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import select
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pensieve_mcp.corpus import walk as walking
from pensieve_mcp.corpus.extract.package import Package
from pensieve_mcp.corpus.folders import fresh, open_regular, stat_of
from pensieve_mcp.corpus.types import Limits, Root, Unreadable
from pensieve_mcp.errors import NoSuchDocument
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace


def settled(folder: Path) -> None:
    """Give the files an age, so that no look at them has to read them again."""
    for file in folder.rglob("*"):
        os.utime(file, ns=(1_600_000_000 * 10**9,) * 2)


def filled(folder: Path, count: int = 5) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"f{number}.txt").write_text(f"the kestrel number {number}", encoding="utf-8")
    return folder


def opened(place: Path, *folders: Path) -> Workspace:
    return Workspace.open(list(folders), state=place, environment=os.environ, builder="inline")


# -- 3: a disk that is not mounted ------------------------------------------------------------------------------


def test_an_unmounted_disk_loses_nothing_however_often_it_is_looked_at(tmp_path):
    disk = filled(tmp_path / "disk")
    with opened(tmp_path / "state", disk) as workspace:
        workspace.build_now()
        disk.rename(tmp_path / "away")
        disk.mkdir()
        seen, told = [], ""
        for _ in range(3):
            told = " ".join(workspace.build_now().warnings)
            seen.append(workspace.corpus.totals(()).documents)
        assert seen == [5, 5, 5]
        assert set(workspace.corpus.freshness([1, 2]).values()) == {"unreadable"}
        assert "not mounted" in told
        disk.rmdir()
        (tmp_path / "away").rename(disk)
        workspace.build_now()
        assert workspace.corpus.totals(()).documents == 5
        for file in disk.iterdir():
            file.unlink()
        workspace.build_now()  # the known folder itself is empty now
        assert workspace.corpus.totals(()).documents == 0


# -- 9: a flat folder of known files ----------------------------------------------------------------------------


def test_a_flat_folder_of_known_files_is_not_called_empty(tmp_path, monkeypatch):
    folder = filled(tmp_path / "flat")
    settled(folder)
    monkeypatch.setattr(walking, "RACY_NS", -(10**12))
    with opened(tmp_path / "state", folder) as workspace:
        for _ in range(3):
            told = workspace.build_now()
            assert told.state == "ready" and not told.warnings
        states = list(walking.survey(workspace.roots, workspace.rules, familiar=None))
        assert states[-1].state == "ok"


# -- 8: a file that could not be opened and is gone -------------------------------------------------------------


def refusing(monkeypatch, *names: str) -> None:
    """As a file without permission does, also where the tests run as root."""
    import pensieve_mcp.building as building

    def refuse(root, raw, **more):
        if os.fsdecode(raw) in names:
            raise Unreadable("unreadable", "permission denied")
        return open_regular(root, raw, **more)

    monkeypatch.setattr(building, "open_regular", refuse)


def test_a_file_that_could_not_be_opened_is_forgotten_when_it_is_gone(tmp_path, monkeypatch):
    folder = filled(tmp_path / "r", 1)
    (folder / "no.txt").write_text("this one has a length of its own", encoding="utf-8")
    refusing(monkeypatch, "no.txt")
    with opened(tmp_path / "state", folder) as workspace:
        workspace.build_now()
        assert [one.path for one in workspace.corpus.skipped()[0]] == ["r/no.txt"]
        workspace.build_now(workspace.plan(under=("r/f0.txt",)))
        assert [one.path for one in workspace.corpus.skipped()[0]] == ["r/no.txt"]
        (folder / "no.txt").unlink()
        workspace.build_now()
        assert workspace.corpus.skipped()[0] == []


# -- 6: a bomb is told by its directory -------------------------------------------------------------------------


def bomb(name: str, parts: int, megabytes: int) -> io.BytesIO:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(parts):
            packed.writestr(name.format(number), b"<p>bombtext</p>" * (megabytes * 2**20 // 15))
    data.seek(0)
    return data


@pytest.mark.parametrize(
    ("name", "parts", "megabytes"), [("word/document{}.xml", 1, 80), ("sheet{}.xml", 5, 20)]
)
def test_a_bomb_is_refused_before_anything_is_inflated(name, parts, megabytes, monkeypatch):
    packed = bomb(name, parts, megabytes)
    monkeypatch.setattr(
        zipfile.ZipFile, "open", lambda *_: pytest.fail("something was inflated to find that out")
    )
    with pytest.raises(Unreadable) as refused:
        Package(packed, Limits())
    assert refused.value.reason == "bomb"


def test_a_small_package_that_packs_well_is_no_bomb():
    Package(bomb("word/document{}.xml", 1, 20), Limits())


# -- 5: text that was cut off is told everywhere ----------------------------------------------------------------


def cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one text of which only the beginning fits the limit of characters."""
    folder = filled(tmp_path / "documents", 1)
    (folder / "line.txt").write_text("kestrel " * 200_000 + "endneedle", encoding="utf-8")
    monkeypatch.setattr(Workspace, "limits", property(lambda _: Limits(document_chars=1_200_000)))
    return folder


def test_what_was_cut_off_is_told_by_every_command(tmp_path, monkeypatch, pensieve):
    folder = cut_off(tmp_path, monkeypatch)
    indexed = pensieve("index", folder)
    assert "1 document was read in part" in indexed.err
    assert "read in part" in pensieve("status").err
    assert pensieve("status", "--json").data["partial"] == 1
    listed = pensieve("skipped")
    assert "partial" in listed.out and "line.txt" in listed.out and "1,200,000 characters" in listed.out
    assert "partial" in pensieve("skipped", "--reason", "partial", "--json").out
    explained = pensieve("explain", folder / "line.txt")
    assert ": in:" in explained.out and "1,200,000 characters" in explained.out
    assert "read in part" in pensieve("search", "--mode", "exact", "endneedle").err


def test_what_was_cut_off_is_told_to_a_model(tmp_path, monkeypatch, home):
    folder = cut_off(tmp_path, monkeypatch)
    with opened(tmp_path / "state", folder) as workspace:
        workspace.build_now()
        episode = workspace.episode("test")
        assert "1 document was read in part" in cast(episode, "analyzeText", {}).text
        found = cast(episode, "searchEngine", {"keyword": "endneedle", "mode": "exact"}).text
        assert "read in part" in found
        document = workspace.corpus.document("documents/line.txt")
        assert document.media_type == "text/plain" and document.encoding


# -- 10: gone, or not to be seen now ----------------------------------------------------------------------------


def test_a_file_that_cannot_be_looked_at_is_not_called_gone(tmp_path, monkeypatch):
    folder = filled(tmp_path / "r", 2)
    root = Root("r", str(folder))
    known = stat_of((folder / "f0.txt").stat())
    assert fresh(root, b"f0.txt", known) == "yes"
    assert fresh(root, b"nothing.txt", known) == "gone"
    assert fresh(Root("r", str(tmp_path / "absent")), b"f0.txt", known) == "unreadable"
    (tmp_path / "mountpoint").mkdir()
    bare, home = Root("r", str(tmp_path / "mountpoint")), (0, 1)
    assert fresh(bare, b"f0.txt", known, home=home) == "unreadable"
    assert fresh(bare, b"f0.txt", known) == "gone"

    from pensieve_mcp.corpus import folders

    def refuse(path):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(folders, "open_folder", refuse)
    assert fresh(root, b"f0.txt", known) == "unreadable"


def test_an_unreachable_root_is_worded_so(tmp_path):
    folder = filled(tmp_path / "r", 2)
    with opened(tmp_path / "state", folder) as workspace:
        workspace.build_now()
        folder.rename(tmp_path / "away")
        episode = workspace.episode("test")
        found = cast(episode, "searchEngine", {"keyword": "kestrel"})
        assert "file cannot be read now" in found.text and "gone" not in found.text
        assert found.result["retrieved_chunks"][0]["fresh"] == "unreadable"
        chunk = found.result["retrieved_chunks"][0]["chunk_id"]
        read = cast(episode, "readChunk", {"chunk_id": str(chunk)}).text
        assert "cannot be read now" in read and "gone" not in read


# -- 11: a root that was dropped --------------------------------------------------------------------------------


def test_a_dropped_root_is_not_served_before_the_next_build(tmp_path):
    left, right = filled(tmp_path / "left", 2), filled(tmp_path / "right", 3)
    with opened(tmp_path / "state", left, right) as workspace:
        workspace.build_now()
        assert workspace.corpus.totals(()).documents == 5
        dropped = workspace.corpus.chunk_at(workspace.default_chunk_set, 4)
        assert dropped is not None
    with opened(tmp_path / "state", left) as workspace:
        found = cast(workspace.episode("test"), "searchEngine", {"keyword": "kestrel", "limit": 20})
        assert found.result["total"] == 2
        assert {one["path"].split("/")[0] for one in found.result["retrieved_chunks"]} == {"left"}
        assert workspace.corpus.totals(()).documents == 2
        assert {one.root for one in workspace.corpus.documents()[0]} == {"left"}
        with pytest.raises(NoSuchDocument):
            workspace.corpus.document("right/f0.txt")
        read = cast(workspace.episode("test"), "readChunk", {"chunk_id": str(dropped.chunk_id)})
        assert read.is_error and "kestrel" not in read.text


# -- 21: what is no fault of ours -------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps the folder a process stands in")
def test_a_removed_working_folder_is_told_as_such(tmp_path, pensieve, monkeypatch):
    place = tmp_path / "gone"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()
    said = pensieve("index", ".")
    assert said.code == 1 and "no longer there" in said.err and "fault of ours" not in said.err
    assert "There is no workspace yet" in pensieve("status").err
    documents = filled(tmp_path / "documents")
    assert pensieve("index", documents).code == 0
    assert "5 documents" in pensieve("status").out
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", [("note", "import"), ("episodes", "import")])
def test_deeply_nested_json_is_refused_in_words(tmp_path, documents, pensieve, command):
    assert pensieve("index", documents).code == 0
    file = tmp_path / "deep.json"
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    file.write_text(deep, encoding="utf-8")
    with pytest.raises(RecursionError):
        json.loads(deep)
    said = pensieve(*command, file)
    assert said.code != 0 and "fault of ours" not in said.err
    assert "nested" in said.err
    for arguments in ((deep,), ("key=k", f"links={'[' * 100_000}")):
        assert "fault of ours" not in pensieve("cast", "note", *arguments).err


# -- 15: workers of a killed host -------------------------------------------------------------------------------

HOST = """
import sys, threading, time
from pensieve_mcp.corpus.extract.pool import ExtractionPool
from pensieve_mcp.corpus.types import FileHint

pool = ExtractionPool(1)

def read():
    with open(sys.argv[1], "rb") as file:
        pool.extract(file, FileHint("f.txt", 5))

pids = []
for _ in range(2):  # the second reading finds the worker alive, though the thread of the first is gone
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    pids += pool.worker_pids()
print(*pids, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_stopped_worker_ends_with_its_host(tmp_path):
    (tmp_path / "f.txt").write_text("hello", encoding="utf-8")
    host = subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path / "f.txt")], stdout=subprocess.PIPE)
    assert host.stdout is not None
    first, second = map(int, host.stdout.readline().split())
    worker = os.pidfd_open(second)
    os.kill(second, signal.SIGSTOP)
    host.kill()
    host.wait()
    host.stdout.close()
    try:
        assert first == second
        assert select.select([worker], [], [], 30)[0], "the stopped worker is still there"
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker, signal.SIGKILL)
        os.close(worker)

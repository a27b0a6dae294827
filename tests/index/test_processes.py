"""Two processes on one index: a reader sees commits, a second writer is refused, a killed writer harms nothing."""

import signal
import subprocess
import sys
import textwrap

import pytest

from pensieve_mcp.errors import StorageError
from pensieve_mcp.index.encoders import open_encoder
from pensieve_mcp.index.index import Index
from pensieve_mcp.index.types import PassageRecord, SearchRequest

CHILD = """
import sys
from pathlib import Path
from pensieve_mcp.index.encoders import open_encoder
from pensieve_mcp.index.index import Index
from pensieve_mcp.index.types import PassageRecord

index = Index.open(Path(sys.argv[1]), second_stage=False, opener=lambda spec: open_encoder("hashing:64"))

def record(number, word):
    return PassageRecord(number, number, f"root/{number}", "", "", f"{word} text")

def say(word):
    print(word, flush=True)
    sys.stdin.readline()
"""


class Child:
    """Another process with the index opened as `index`, that runs until its next `say`."""

    def __init__(self, folder, code):
        source = CHILD + textwrap.dedent(code)
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def heard(self):
        return self.process.stdout.readline().strip()

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        self.process.communicate("\n" * 5)


@pytest.fixture
def index(tmp_path):
    return Index.open(tmp_path, second_stage=False, opener=lambda spec: open_encoder("hashing:64"))


def found(index, query):
    answer = index.search(SearchRequest((query,), "lexical", deadline_seconds=60.0))
    return [hit.passage_id for hit in answer.hits]


def test_a_reader_sees_what_another_process_commits(index, tmp_path):
    child = Child(
        tmp_path,
        """
        with index.writer() as writer:
            writer.add([record(1, "first")])
            say("added")
            writer.commit(1)
            say("committed")
        """,
    )
    assert child.heard() == "added"
    assert found(index, "first") == [] and index.generation == 0
    child.go_on()
    assert child.heard() == "committed"
    assert found(index, "first") == [1] and index.generation == 1
    with pytest.raises(StorageError) as busy:
        index.writer()
    assert busy.value.slug == "index_busy"
    child.end()
    index.writer().close()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_killed_writer_leaves_the_last_commit(index, tmp_path):
    child = Child(
        tmp_path,
        """
        writer = index.writer()
        writer.add([record(1, "first")])
        writer.commit(1)
        writer.add(record(number, "second") for number in range(2, 3000))
        writer.remove_documents([1])
        say("in the middle")
        """,
    )
    assert child.heard() == "in the middle"
    child.process.send_signal(signal.SIGKILL)
    child.process.communicate()
    assert found(index, "first") == [1] and found(index, "second") == []
    assert index.generation == 1 and index.check() == ()
    with index.writer() as writer:
        writer.add([PassageRecord(5000, 5000, "root/after", "", "", "third text")])
        writer.commit(2)
    assert found(index, "third") == [5000]

"""The builder as a process of its own, with the real readers and the real index."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pensieve_mcp.builder import Background
from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.index.types import SearchRequest
from pensieve_mcp.workspace import Workspace

from .conftest import prose


@pytest.fixture
def workspace(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Treaty\n\nThe treaty was signed in Osnabrück.\n\n" + prose(20))
    (tmp_path / "docs" / "b.txt").write_text("Bees make honey.")
    with Workspace.open(
        [tmp_path / "docs"],
        state=tmp_path / "state",
        environment={"PENSIEVE_HOME": str(tmp_path)},
        arguments={"upgrade": False, "workers": 1},
        builder="inline",
    ) as opened:
        yield opened


def test_a_build_in_the_background_can_be_searched_here(workspace):
    background = Background(workspace)
    try:
        background.start(ChunkSet(64))
        assert background.busy and background.checked(workspace.progress()).state == "building"
        assert background.wait(60)
        told = background.checked(workspace.progress())
        assert (told.state, told.documents_done) == ("ready", 2), told

        (tmp := Path(workspace.roots[0].folder, "c.txt")).write_text("Wasps do not.")
        background.start(ChunkSet(64))
        assert background.wait(60) and workspace.progress().documents_done == 3
        tmp.unlink()
    finally:
        background.close()
    answer = workspace.index.search(SearchRequest(("signed in Osnabrück",)))
    texts = workspace.corpus.passage_texts([answer.hits[0].passage_id])
    assert "The treaty was signed" in next(iter(texts.values()))


def test_a_builder_without_a_parent_ends(workspace):
    process = subprocess.Popen(
        [sys.executable, "-m", "pensieve_mcp.builder", "--state", str(workspace.state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps({"settings": dataclasses.asdict(workspace.settings)}).encode() + b"\n")
    process.stdin.write(b'{"do": "build"}\n')
    process.stdin.flush()
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "done":
            break
    process.stdin.close()

    assert process.wait(30) == 0
    assert events[0]["event"] == "progress" and events[-1]["state"] == "ready"
    process.stdout.close()


def test_a_builder_that_dies_is_told_and_started_again(workspace):
    background = Background(workspace)
    try:
        background.start(ChunkSet(64))
        assert background._process is not None
        background._process.kill()
        assert background.wait(60)
        failed = background.checked(workspace.progress())
        if failed.state != "ready":  # it may have been faster than the kill
            assert failed.state == "failed" and "exit status" in failed.detail
        background.start(ChunkSet(64))
        assert background.wait(60)
        assert background.checked(workspace.progress()).state == "ready"
    finally:
        background.close()
    assert not background.busy


def test_a_senseless_request_is_an_error_not_a_death(workspace):
    background = Background(workspace)
    try:
        background.start(ChunkSet(3))
        assert background.wait(60)
        told = background.checked(workspace.progress())
        assert told.state == "failed" and "chunk_size 3 is out of range" in told.detail
        background.start(ChunkSet(64))
        assert background.wait(60) and background.checked(workspace.progress()).state == "ready"
    finally:
        background.close()

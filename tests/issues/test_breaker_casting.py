"""What a spell did stays told as done when the ledger cannot be written (found by breaking in)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pensieve_mcp.errors import StorageError
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace


@pytest.fixture
def opened(tmp_path: Path) -> Workspace:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("A wombat digs.", encoding="utf-8")
    workspace = Workspace.open(
        [tmp_path / "docs"],
        state=tmp_path / "state",
        environment={"PENSIEVE_HOME": str(tmp_path / "home")},
        arguments={"second_stage": False},
        builder="inline",
    )
    workspace.build_now()
    return workspace


def _damage(workspace: Workspace) -> None:
    workspace.ledger.close()
    for name in ("blobs.db", "blobs.db-wal", "blobs.db-shm"):
        (workspace.state / name).unlink(missing_ok=True)
    (workspace.state / "blobs.db").write_bytes(os.urandom(50_000))


def test_an_append_is_never_both_refused_and_done(opened: Workspace) -> None:
    with opened:
        episode = opened.episode("test")
        assert not cast(episode, "note", {"key": "k", "summary": "s", "content": "one"}).is_error
        _damage(opened)
        answer = cast(episode, "updateNote", {"key": "k", "mode": "append", "new_content": "X"})
        stored = opened.notebook.read("k").content.count("X")
    assert stored == (0 if answer.is_error else 1)
    assert not answer.is_error
    assert answer.message["msg_id"] is None
    assert "Not in the record" in answer.text


def test_search_and_reading_answer_when_the_ledger_cannot_be_written(
    opened: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened:
        episode = opened.episode("test")

        def full(*_: object) -> int:
            raise StorageError("The disk is full.", hint="Make room.", slug="storage_full")

        monkeypatch.setattr(opened.ledger, "reserve", full)
        found = cast(episode, "searchEngine", {"keyword": "wombat"})
        wrong = cast(episode, "readChunk", {"chunk_id": 999})
    assert "docs/a.md" in found.text and "The disk is full" in found.text
    assert wrong.is_error and "no chunk c999" in wrong.text


def test_a_refused_call_of_megabytes_is_not_kept_and_does_not_fill_the_budget(opened: Workspace) -> None:
    with opened:
        episode = opened.episode("test")
        refused = cast(episode, "note", {"key": "k", "summary": "s", "content": "word " * 2_000_000})
        assert refused.is_error and refused.slug == "arguments_too_long"
        assert cast(episode, "checkBudget", {}).result["used_tokens"] < 20_000

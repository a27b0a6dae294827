"""A workspace over a few small documents that tests may change, and what a conversation on it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.episode import Episode
from pensieve_mcp.ledger.events import Message, Said
from pensieve_mcp.notebook.types import Note
from pensieve_mcp.spellbook.casting import CastResult, cast
from pensieve_mcp.tokens import count_tokens
from pensieve_mcp.workspace import Workspace

LEASE = """# The lease of the mill

## Parties

The mill at Ashford is let by Agnes Holm to the brothers Teller, millers, from the first of May.

## Rent

The rent is forty-two florins a quarter, paid on the bridge, in coin. Late rent bears interest.

## Notice

Either side may end the lease by notice in writing of six months. The notice is nailed to the door.
"""
DIARY = "\n\n".join(
    f"Day {day}. The miller counted {day * 7} sacks and the ferry crossed {day + 2} times before dusk."
    for day in range(1, 60)
)
RENT = "The rent is forty-two florins a quarter"


@dataclass
class Desk:
    """A workspace, one conversation on it, and the folder behind both."""

    folder: Path
    workspace: Workspace
    episode: Episode

    def cast(self, spell: str, **arguments: Any) -> CastResult:
        result = cast(self.episode, spell, arguments)
        assert result.slug != "internal", result.text
        return result

    def note(self, key: str, content: str = "c", *evidence: Any, **more: Any) -> dict[str, Any]:
        arguments = {"summary": f"about {key}", "content": content, "evidence": list(evidence), **more}
        result = self.cast("note", key=key, **arguments)
        assert not result.is_error, result.text
        return result.result

    def read(self, key: str) -> dict[str, Any]:
        result = self.cast("readNote", key=key)
        assert not result.is_error, result.text
        return result.result

    def piece(self, key: str) -> dict[str, Any]:
        """The only piece of evidence of a note, as readNote tells it now."""
        (piece,) = self.read(key)["evidence"]
        return dict(piece)

    def stored(self, key: str) -> Note:
        return self.workspace.notebook.read(key)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def build(self) -> None:
        self.workspace.build_now()

    def say(self, role: str, text: str, tool: str = "") -> str:
        """A message of a host's conversation, and its handle."""
        import hashlib

        number = self.workspace.ledger.reserve(1)
        digest = hashlib.sha256(text.encode()).digest()
        message = Message(number, role, tool, count_tokens(text), digest)  # type: ignore[arg-type]
        self.workspace.ledger.append(self.episode.episode_id, [Said(message)], {digest: text})
        return f"m{number}"

    def other(self, author: str) -> Desk:
        """Another agent on the same workspace."""
        return Desk(self.folder, self.workspace, self.workspace.episode("test", host=author))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "lease.md").write_text(LEASE, encoding="utf-8")
    (docs / "diary.txt").write_text(DIARY, encoding="utf-8")
    return docs


@pytest.fixture
def open_desk(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    opened: list[Workspace] = []

    def make(**settings: Any) -> Desk:
        workspace = Workspace.open(
            [folder],
            state=tmp_path / "state",
            environment={"PENSIEVE_HOME": str(tmp_path / "home")},
            arguments={"second_stage": False, "upgrade": False, **settings},
            builder="inline",
        )
        opened.append(workspace)
        return Desk(folder, workspace, workspace.episode("test", host="first"))

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def desk(open_desk: Callable[..., Desk]) -> Desk:
    made = open_desk()
    made.build()
    return made

"""A small workspace over a temporary folder, with stand-ins for the readers and the index.

The stand-in index keeps its generations in a file, as the real one does, so that crashes between the two databases
can be played; the real index has its own tests, and one here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pensieve_mcp import building
from pensieve_mcp.corpus.ids import BASIN, Ids
from pensieve_mcp.corpus.store import CorpusStore
from pensieve_mcp.corpus.types import (
    Block,
    ChunkSet,
    Extracted,
    Facts,
    FileHint,
    Root,
    Unit,
    Unreadable,
)
from pensieve_mcp.index.types import PassageRecord, PassageTexts
from pensieve_mcp.storage import Connections


class PlainReaders:
    """Reads text; form feeds part pages; `boom` in the text is a corrupt file."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.before: Callable[[str], None] = lambda name: None

    def extract(self, file: BinaryIO, hint: FileHint) -> Extracted:
        self.before(hint.name)
        self.read.append(hint.name)
        data = file.read()
        if b"boom" in data:
            raise Unreadable("corrupt", "it went boom")
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        units, at = [], 0
        for number, page in enumerate(text.split("\f"), start=1):
            units.append(Unit("page" if "\f" in text else "body", number, "", at, at + len(page)))
            at += len(page)
        text = text.replace("\f", "")
        return Extracted(
            text,
            Facts("text/plain", verbatim=True),
            tuple(units),
            tuple(_paragraphs(text)),
            "plain/1",
        )

    def close(self) -> None:
        pass


def _paragraphs(text: str) -> Iterable[Block]:
    at, heading = 0, ()
    for part in text.split("\n\n"):
        if part.startswith("# "):
            heading = (part.split("\n", 1)[0][2:],)
        if part:
            yield Block(at, at + len(part), heading=heading)
        at += len(part) + 2


class FakeIndex:
    """Passages by document in a JSON file, written whole at each commit."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "index.json"
        self.kept: dict[str, dict[str, list[str]]] = {}
        self._generation = 0
        if self.file.exists():
            told = json.loads(self.file.read_text())
            self._generation, self.kept = told["generation"], told["documents"]

    @property
    def generation(self) -> int:
        return self._generation

    def writer(self) -> FakeIndex:
        return self

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def add(self, records: Iterable[PassageRecord]) -> int:
        number = 0
        for record in records:
            passages = self.kept.setdefault(str(record.document_id), {})
            assert str(record.passage_id) not in passages
            passages[str(record.passage_id)] = [record.path, record.text]
            number += 1
        return number

    def remove_documents(self, document_ids: Iterable[int]) -> None:
        for document_id in document_ids:
            self.kept.pop(str(document_id), None)

    def repath(self, document_id: int, records: Iterable[PassageRecord]) -> None:
        self.remove_documents([document_id])
        self.add(records)

    def commit(self, generation: int) -> None:
        assert generation > self._generation
        self._generation = generation
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"generation": generation, "documents": self.kept}))
        fresh.replace(self.file)

    def upgrade(self, texts: PassageTexts, *, seconds: float, cancel: Callable[[], bool]) -> bool:
        return not cancel()

    def close(self) -> None:
        pass


@dataclass
class Bench:
    """A folder of documents and the state beside it."""

    folder: Path
    state: Path
    extractors: str = "plain/1"
    readers: PlainReaders = field(default_factory=PlainReaders)
    open_index: Callable[[Path], Any] = FakeIndex
    _open: list[Any] = field(default_factory=list)

    def store(self) -> CorpusStore:
        precious = Connections(self.state / "pensieve.db", basins=(BASIN,), precious=True)
        store = CorpusStore.open(self.state / "corpus.db", Ids(precious), self.roots())
        self._open += [store, precious]
        return store

    def roots(self) -> tuple[Root, ...]:
        return (Root("docs", str(self.folder)),)

    def plan(self, **changes: Any) -> building.Plan:
        values: dict[str, Any] = {
            "roots": self.roots(),
            "index_folder": self.state / "index",
            "open_index": self.open_index,
            "open_readers": lambda: self.readers,
            "extractors": self.extractors,
            "chunk_set": ChunkSet(64),
        }
        return building.Plan(**{**values, **changes})

    def build(
        self, store: CorpusStore | None = None, *, cancel: Callable[[], bool] = lambda: False, **changes: Any
    ) -> CorpusStore:
        store = store or self.store()
        building.build(store, self.plan(**changes), cancel=cancel)
        return store

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def indexed(self) -> dict[str, str]:
        """Text of each path as the index has it."""
        index = FakeIndex(self.state / "index")
        texts: dict[str, str] = {}
        for passages in index.kept.values():
            for number in sorted(passages, key=int):
                path, text = passages[number]
                texts[path] = texts.get(path, "") + text
        return texts

    def close(self) -> None:
        for thing in self._open:
            thing.close()


@pytest.fixture
def bench(tmp_path: Path):
    folder, state = tmp_path / "docs", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    made = Bench(folder, state)
    yield made
    made.close()


def prose(count: int, salt: str = "") -> str:
    """Sentences that are all different."""
    return " ".join(
        f"Sentence {number}{salt} tells of item {number * 7919 % 1009} and its owner."
        for number in range(count)
    )

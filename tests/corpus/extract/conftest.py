"""A pool with the bad readers in it, and a way to hand it bytes under a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pensieve_mcp.corpus.extract.pool import ExtractionPool
from pensieve_mcp.corpus.types import Extracted, FileHint, Limits, Unreadable

HERE = Path(__file__).parent

Outcome = Extracted | Unreadable


class Reader:
    """Extracts bytes under a name and gives the failure as a value."""

    def __init__(self, pool: ExtractionPool, folder: Path) -> None:
        self.pool = pool
        self._folder = folder
        self._count = 0

    def __call__(self, name: str, content: bytes | Path) -> Outcome:
        if isinstance(content, bytes):
            self._count += 1
            path = self._folder / f"{self._count}-{name}"
            path.write_bytes(content)
        else:
            path = content
        with path.open("rb") as file:
            try:
                return self.pool.extract(file, FileHint(name, path.stat().st_size))
            except Unreadable as problem:
                return problem

    def works(self) -> None:
        """The pool reads an ordinary file now."""
        document = self("fine.rtf", rb"{\rtf1 still here\par}")
        assert isinstance(document, Extracted), document
        assert "still here" in document.text


@pytest.fixture
def make_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Reader]]:
    """Readers on pools with the bad readers in them; all pools are closed at the end."""
    monkeypatch.syspath_prepend(str(HERE))
    pools: list[ExtractionPool] = []

    def make(**options: object) -> Reader:
        pool = ExtractionPool(readers="bad_readers:readers", **options)  # type: ignore[arg-type]
        pools.append(pool)
        return Reader(pool, tmp_path)

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One pool for the module, with the readers that ship."""
    with ExtractionPool(workers=1, limits=Limits()) as pool:
        yield Reader(pool, tmp_path_factory.mktemp("read"))

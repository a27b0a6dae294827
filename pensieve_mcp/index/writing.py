"""Writing the index: words and static vectors in the same pass, one generation for both.

The order of a commit is words, vectors. A process killed between the two leaves words that are found, and
vectors of the generation before, which readers leave out; `Index.generation` then tells the older number, so
that whoever builds does the last batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import BackendError, IndexMismatch
from pensieve_mcp.index.full_disk import telling_full
from pensieve_mcp.index.lexical import LexicalIndex, LexicalWriter
from pensieve_mcp.index.loading import Loading
from pensieve_mcp.index.types import PassageRecord

if TYPE_CHECKING:
    from pensieve_mcp.index.vectors import VectorStore

ENCODED_AT_ONCE = 256  # passages


class IndexWriter:
    """Made by `Index.writer()`. Nothing is seen before `commit`; `close` without it drops the rest.

    `warnings` tells when passages went in without vectors because their encoder failed: they are found by
    words, and searching by meaning says that it is off.
    """

    def __init__(
        self,
        lexical: LexicalIndex,
        vectors: VectorStore,
        encoder: Loading,
        state: dict[str, Any],
        save: Callable[[dict[str, Any]], None],
    ) -> None:
        with telling_full(lexical.folder):
            self._lexical: LexicalWriter = lexical.writer()
        self._index = lexical
        self._vectors = vectors
        self._loading = encoder
        self._state = state
        self._save = save
        self._without_vectors = 0
        encoder.start()

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self._without_vectors:
            return ()
        return (f"{self._without_vectors:,} passages have no vectors: {self._loading.failure}",)

    def add(self, records: Iterable[PassageRecord]) -> int:
        """Index passages; returns how many. Passage ids must be new (remove the document first).

        Raises StorageError (`storage_full` for a full disk), IndexMismatch when the encoder is not the one the
        index was made with.
        """
        with telling_full(self._index.folder):
            return self._add_all(records)

    def _add_all(self, records: Iterable[PassageRecord]) -> int:
        number = 0
        batch: list[PassageRecord] = []
        for record in records:
            batch.append(record)
            if len(batch) == ENCODED_AT_ONCE:
                number += self._add(batch)
                batch = []
        return number + (self._add(batch) if batch else 0)

    def _add(self, batch: Sequence[PassageRecord]) -> int:
        self._lexical.add(batch)
        encoder = self._loading.get(None)
        if encoder is None:
            self._without_vectors += len(batch)
            return len(batch)
        if self._state.get("encoder") not in (None, encoder.name):
            raise IndexMismatch(
                f"The vectors of this index were made by {self._state['encoder']}, the encoder now is {encoder.name}.",
                hint="Build the index again, or choose the old encoder.",
                slug="other_encoder",
            )
        try:
            vectors = encoder.documents([record.text for record in batch])
        except BackendError as error:
            self._without_vectors += len(batch)
            self._loading.failure = self._loading.failure or str(error)
            return len(batch)
        if self._state.get("encoder") is None:
            self._state["encoder"] = encoder.name
            self._save(self._state)
        self._vectors.add(
            [record.passage_id for record in batch], [record.document_id for record in batch], vectors
        )
        return len(batch)

    def remove_documents(self, document_ids: Iterable[int]) -> None:
        """All passages of these documents; unknown ids are passed over."""
        ids = list(document_ids)
        with telling_full(self._index.folder):
            self._lexical.remove_documents(ids)
            self._vectors.remove_documents(ids)

    def repath(self, document_id: int, records: Iterable[PassageRecord]) -> None:
        """A renamed document: the same passages under a new path. Vectors stay as they are."""
        with telling_full(self._index.folder):
            self._lexical.remove_documents([document_id])
            self._lexical.add(records)

    def commit(self, generation: int) -> None:
        """Show all of it, under this number (greater than the last).

        Raises StorageError, `storage_full` for a full disk.
        """
        with telling_full(self._index.folder):
            self._lexical.commit(generation)
            self._vectors.commit(generation)

    def close(self) -> None:
        """Give the lock back. What was not committed is lost."""
        self._vectors.discard()
        self._lexical.close()

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

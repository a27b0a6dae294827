"""The third tier: true vectors take the place of the table's, in the background and in small commits.

A passage gets one vector of its whole text and one of each sentence or so (`highlight.stretches`): a single vector
of a long stretch loses single facts. Of the implicit needles of our long documents, the first 4,000 characters shown
hold 10 % with it alone, 40 % with windows of 250 characters, 71 % with sentences. What is done is committed batch
by batch, so stopping, or being killed, costs one batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pensieve_mcp.index.highlight import stretches
from pensieve_mcp.index.types import Encoder, PassageTexts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pensieve_mcp.index.vectors import VectorStore

# The best of many short texts is near to anything: without this, lines of code outdo whole functions (nDCG@10 of
# code .559, with it .621, whole functions alone .647; single facts in long documents .672, .662, .244).
STRETCH_WEIGHT = 0.85
ENCODED_AT_ONCE = 16  # texts, mostly sentences; larger batches only cost memory
COMMITTED_AT_ONCE = 64  # passages
FILLED_AT_ONCE = 256


def parts(text: str) -> list[str]:
    """The texts that are encoded: the whole and, where there are several, its stretches in their order."""
    spans = stretches(text)
    return [text.strip()] if len(spans) < 2 else [text.strip(), *(text[start:end] for start, end in spans)]


def upgrade(
    vectors: VectorStore,
    model: Encoder,
    texts: PassageTexts,
    *,
    generation: int,
    seconds: float,
    cancel: Callable[[], bool],
) -> bool:
    """True when no passage is left. The caller holds the write lock. Raises BackendError, StorageError.

    When the time is over, or somebody cancels, the passages that are done by then are kept; a slow machine, which
    makes no whole batch in `seconds`, comes to its end as well, since at least one passage a call is made.
    """
    import numpy as np

    ends = time.monotonic() + seconds
    for batch in _batches(vectors.pending("upgraded"), COMMITTED_AT_ONCE):
        if cancel() or time.monotonic() >= ends:
            return False
        given = texts(batch)
        ids: list[int] = []
        pieces: list[str] = []
        weights: list[float] = []
        for passage in batch:
            for number, piece in enumerate(parts(given.get(passage, ""))):
                ids.append(passage)
                pieces.append(piece)
                weights.append(STRETCH_WEIGHT if number else 1.0)
        made: list[NDArray[np.float32]] = []
        whole = 0  # pieces of passages that are done
        is_over = False
        while whole < len(pieces) and not is_over:
            start = sum(map(len, made))
            made.append(model.documents(pieces[start : start + ENCODED_AT_ONCE]))
            whole = _whole(ids, start + len(made[-1]))
            is_over = cancel() or (whole > 0 and time.monotonic() >= ends)
        if whole:
            vectors.replace(
                ids[:whole], np.concatenate(made)[:whole], kind="upgraded", weights=weights[:whole]
            )
            vectors.commit(generation)
        if whole < len(pieces):
            return False
    return True


def _whole(ids: Sequence[int], done: int) -> int:
    """How many of the first `done` pieces belong to passages of which all pieces are among them."""
    while 0 < done < len(ids) and ids[done - 1] == ids[done]:
        done -= 1
    return done


def fill(
    vectors: VectorStore,
    encoder: Encoder,
    texts: PassageTexts,
    places: Mapping[int, int],
    *,
    generation: int,
) -> int:
    """Vectors for those of `places` (passage to document) that have none; returns how many were made.

    The caller holds the write lock. Raises BackendError, StorageError.
    """
    import numpy as np

    passages = list(places)
    # A passage without a vector has cosine 0 to anything; a slanted question makes a chance 0 unlikely.
    slanted = np.linspace(1.0, 2.0, encoder.dim, dtype=np.float32)
    have = vectors.cosines(slanted / np.linalg.norm(slanted), passages)
    missing = [passage for passage, cosine in zip(passages, have, strict=True) if cosine == 0.0]
    for batch in _batches(missing, FILLED_AT_ONCE):
        given = texts(batch)
        made = encoder.documents([given.get(passage, "") for passage in batch])
        vectors.add(batch, [places[passage] for passage in batch], made)
    if missing:
        vectors.commit(generation)
    return len(missing)


def _batches(passage_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(passage_ids), size):
        yield passage_ids[start : start + size]

"""Values and ports of the index. It learns only passages, and knows no file, no chunk set, no notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Mode = Literal["hybrid", "lexical", "dense", "exact"]

PassageTexts = Callable[[Sequence[int]], Mapping[int, str]]
"""Texts of passages by id, for second stage, exact search and highlights; absent ids are left out."""


@dataclass(frozen=True, slots=True)
class PassageRecord:
    """One passage as the index is told of it. `path` is `root/relative/file`."""

    passage_id: int
    document_id: int
    path: str
    title: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """`queries` are prose, except quoted phrases; in mode exact each is a literal. `under` are path prefixes
    (`root/folder` or a whole file's path); a hit is under one of them. `limit` counts passages."""

    queries: tuple[str, ...]
    mode: Mode = "hybrid"
    under: tuple[str, ...] = ()
    limit: int = 200
    deadline_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class PassageHit:
    passage_id: int
    document_id: int
    score: float  # fused, comparable within one answer
    lexical: float = 0.0  # BM25 over its upper bound, 0..1
    dense: float = 0.0  # cosine, -1..1
    stretch: int = 0  # which one of `highlight.stretches` is nearest in meaning, from 1; 0: not known


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Best first. `total` counts the passages that match lexically (or literally); `notes` are sentences for the
    reader: that all terms were relaxed to any, that vectors are still loading, which near spellings exist."""

    hits: tuple[PassageHit, ...]
    total: int
    mode_used: Mode
    notes: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    terms: tuple[str, ...] = field(default=())  # what to highlight, folded


class Encoder(Protocol):
    """Texts to unit vectors. Implementations: static table, MiniLM, sentence-transformers, hashing (tests)."""

    @property
    def name(self) -> str:
        """Fingerprint: model, version, sha256 prefix."""
        ...

    @property
    def dim(self) -> int: ...

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dim) float32, rows of unit length; an empty text gives a zero row. Raises BackendError."""
        ...

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]: ...

"""One segment of the vector store: a file that is written once, mapped, and never changed.

Rows are sorted by passage, so a passage is found by bisection and its vectors lie side by side. Which rows
are dead is told by a separate small file that is replaced as a whole. Which segments exist is known to
`vectors.py`, how they are searched to `vector_scan.py`.

Layout, each column at a multiple of 64 bytes, sizes following from the manifest's `rows` and `dim`:
rows int8 (rows, dim) · scales float32 · passages uint64 · documents uint32 · kinds uint8, and in segments of
at least CODED_ROWS rows: centre float32 (dim) · codes uint64 (dim/64, rows), bit = value above the column's
mean.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODED_ROWS = 20_000  # below, reading all int8 rows is faster than reading codes first
ALIGNMENT = 64
BLOCK_ROWS = 4_096
BASE, UPGRADED = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows on their way into a segment, all of the same length."""

    vectors: NDArray[np.int8]  # (rows, dim)
    scales: NDArray[np.float32]  # times the int8 row = a vector as long as its weight; 0 for a zero vector
    passages: NDArray[np.uint64]
    documents: NDArray[np.uint32]
    kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.scales)

    def kept(self, chosen: NDArray[Any]) -> Rows:
        """Those of a mask or a list of row numbers."""
        return Rows(
            self.vectors[chosen],
            self.scales[chosen],
            self.passages[chosen],
            self.documents[chosen],
            self.kinds[chosen],
        )


def quantised(
    passages: NDArray[np.uint64], documents: NDArray[np.uint32], vectors: NDArray[np.float32], kind: int
) -> Rows:
    """int8 with a scale for each row, such that row times scale has unit length: +-0.001 of a cosine, and no
    difference in nDCG on ten sets."""
    peaks = np.abs(vectors).max(axis=1, keepdims=True) if vectors.size else np.zeros((len(vectors), 1))
    ints = np.round(vectors * (127 / np.where(peaks > 0, peaks, 1))).astype(np.int8)
    floats = ints.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", floats, floats))
    scales = np.divide(1, lengths, out=np.zeros(len(lengths), np.float32), where=lengths > 0)
    return Rows(ints, scales.astype(np.float32), passages, documents, np.full(len(ints), kind, np.uint8))


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows, sorted by passage; rows of one passage stay in their order."""
    passages = np.concatenate([part.passages for part in parts])
    order = np.argsort(passages, kind="stable")
    return Rows(
        np.concatenate([part.vectors for part in parts])[order],
        np.concatenate([part.scales for part in parts])[order],
        passages[order],
        np.concatenate([part.documents for part in parts])[order],
        np.concatenate([part.kinds for part in parts])[order],
    )


def _columns(rows: int, dim: int) -> dict[str, tuple[int, str, tuple[int, ...]]]:
    """Column -> (offset in bytes, type, shape)."""
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "rows": ("i1", (rows, dim)),
        "scales": ("<f4", (rows,)),
        "passages": ("<u8", (rows,)),
        "documents": ("<u4", (rows,)),
        "kinds": ("u1", (rows,)),
    }
    if rows >= CODED_ROWS:
        shapes["centre"] = ("<f4", (dim,))
        shapes["codes"] = ("<u8", (-(-dim // 64), rows))
    columns: dict[str, tuple[int, str, tuple[int, ...]]] = {}
    offset = 0
    for name, (kind, shape) in shapes.items():
        columns[name] = (offset, kind, shape)
        offset += int(np.prod(shape)) * np.dtype(kind).itemsize
        offset += -offset % ALIGNMENT
    columns["end"] = (offset, "u1", (0,))
    return columns


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """An opened segment. `dead` marks the rows that count no more (None: all live)."""

    name: str
    dim: int
    rows: NDArray[np.int8]  # mapped, as are the others
    scales: NDArray[np.float32]
    passages: NDArray[np.uint64]
    documents: NDArray[np.uint32]
    kinds: NDArray[np.uint8]
    centre: NDArray[np.float32] | None
    codes: NDArray[np.uint64] | None
    dead: NDArray[np.bool_] | None = None
    dead_file: str | None = None
    dead_count: int = 0
    passage_count: int = 0  # live ones
    upgraded_count: int = 0  # live passages with vectors of the better kind
    size_bytes: int = field(default=0)

    def __len__(self) -> int:
        return len(self.scales)

    def live(self) -> NDArray[np.bool_]:
        return np.ones(len(self), bool) if self.dead is None else ~self.dead

    def rows_of(self, passages: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row numbers, index into `passages` of each): live rows only."""
        low = np.searchsorted(self.passages, passages, "left")
        counts = np.searchsorted(self.passages, passages, "right") - low
        asked = np.repeat(np.arange(len(passages)), counts)
        starts = np.repeat(low - (np.cumsum(counts) - counts), counts)
        numbers = starts + np.arange(len(asked))
        if self.dead is not None and len(numbers):
            alive = ~self.dead[numbers]
            numbers, asked = numbers[alive], asked[alive]
        return numbers.astype(np.int64), asked.astype(np.int64)

    def live_rows(self) -> Rows:
        """Copied into memory, for merging."""
        chosen = np.flatnonzero(self.live())
        everything = Rows(self.rows, self.scales, self.passages, self.documents, self.kinds)
        return everything.kept(chosen)


def write_segment(path: Path, rows: Rows) -> None:
    """Write and sync a segment's file; a half-written one is never named by a manifest."""
    dim = rows.vectors.shape[1]
    columns = _columns(len(rows), dim)
    values: dict[str, NDArray[Any]] = {
        "rows": rows.vectors,
        "scales": rows.scales,
        "passages": rows.passages,
        "documents": rows.documents,
        "kinds": rows.kinds,
    }
    if len(rows) >= CODED_ROWS:
        sums = np.zeros(dim, np.float64)
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows.vectors[start : start + BLOCK_ROWS].astype(np.float32)
            sums += rows.scales[start : start + BLOCK_ROWS] @ block
        centre = (sums / len(rows)).astype(np.float32)
        codes = np.empty((-(-dim // 64), len(rows)), np.uint64)
        for start in range(0, len(rows), BLOCK_ROWS):
            end = start + BLOCK_ROWS
            floats = rows.vectors[start:end].astype(np.float32) * rows.scales[start:end, None]
            codes[:, start:end] = code_bits(floats, centre).T
        values |= {"centre": centre, "codes": codes}
    with path.open("wb") as out:
        for name, value in values.items():
            offset, kind, _ = columns[name]
            out.write(b"\0" * (offset - out.tell()))
            out.write(np.ascontiguousarray(value, dtype=kind).data)
        out.write(b"\0" * (columns["end"][0] - out.tell()))
        out.flush()
        os.fsync(out.fileno())


def code_bits(vectors: NDArray[np.float32], centre: NDArray[np.float32]) -> NDArray[np.uint64]:
    """(n, dim/64) uint64, rounded up: bit = value above the column's mean."""
    packed = np.packbits(vectors > centre, axis=1, bitorder="little")
    padded = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u8")


def open_segment(folder: Path, about: dict[str, Any], dim: int) -> Segment:
    """Map a segment as the manifest describes it. Raises OSError or ValueError when the file does not fit."""
    path = folder / about["name"]
    columns = _columns(int(about["rows"]), dim)
    size = path.stat().st_size
    if size != columns["end"][0]:
        raise ValueError(f"{path.name} has {size} bytes where {columns['end'][0]} were expected")
    mapped = np.memmap(path, dtype=np.uint8, mode="r")
    opened: dict[str, NDArray[Any]] = {}
    for name, (offset, kind, shape) in columns.items():
        if name != "end":
            length = int(np.prod(shape)) * np.dtype(kind).itemsize
            opened[name] = np.asarray(mapped[offset : offset + length]).view(kind).reshape(shape)
    dead = None
    if about.get("dead"):
        bits = np.fromfile(folder / about["dead"], np.uint8)
        dead = np.unpackbits(bits, bitorder="little", count=int(about["rows"])).astype(bool)
    return Segment(
        name=about["name"],
        dim=dim,
        rows=opened["rows"],
        scales=opened["scales"],
        passages=opened["passages"],
        documents=opened["documents"],
        kinds=opened["kinds"],
        centre=opened.get("centre"),
        codes=opened.get("codes"),
        dead=dead,
        dead_file=about.get("dead"),
        dead_count=0 if dead is None else int(dead.sum()),
        passage_count=int(about["passages"]),
        upgraded_count=int(about["upgraded"]),
        size_bytes=size,
    )


def write_dead(path: Path, dead: NDArray[np.bool_]) -> None:
    """Write and sync the marks of one segment, a bit for each row."""
    with path.open("wb") as out:
        out.write(np.packbits(dead, bitorder="little").tobytes())
        out.flush()
        os.fsync(out.fileno())

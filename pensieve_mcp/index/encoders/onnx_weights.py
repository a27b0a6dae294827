"""Reads the weights out of an ONNX file, and nothing else of it.

A full ONNX runtime costs 78 MB on disk; the file's weights lie in a simple protobuf list, so numpy alone can
have them (docs/decisions/0003-minilm-engine.md). What the graph computes is known to `bert.py`; the file's
sha256 is checked by `minilm.py`, so its layout cannot surprise us.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Field numbers of onnx.proto (ModelProto.graph, GraphProto.initializer, TensorProto.*).
GRAPH = 7
INITIALIZER = 5
DIMS, DATA_TYPE, NAME, RAW_DATA = 1, 2, 8, 9
NUMPY_TYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?"}


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value) pairs of one message: numbers, or bytes that are not copied."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"unknown protobuf wire type {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"protobuf field of {size} bytes at byte {at} runs over the end")
        yield key >> 3, data[at : at + size]
        at += size


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """All initializers by name, as read-only views of the mapped file: int8 stays int8, nothing is copied.

    Raises ValueError when the file is no ONNX model, OSError when it cannot be read.
    """
    import numpy as np

    mapped = memoryview(np.memmap(path, dtype=np.uint8, mode="r"))  # type: ignore[arg-type]  # a buffer
    weights: dict[str, NDArray[Any]] = {}
    for number, graph in _fields(mapped):
        if number != GRAPH or isinstance(graph, int):
            continue
        for kind, tensor in _fields(graph):
            if kind != INITIALIZER or isinstance(tensor, int):
                continue
            dims: list[int] = []
            name, raw, data_type = "", None, 0
            for field, value in _fields(tensor):
                if field == DIMS and isinstance(value, int):
                    dims.append(value)
                elif field == DATA_TYPE and isinstance(value, int):
                    data_type = value
                elif field == NAME and not isinstance(value, int):
                    name = bytes(value).decode()
                elif field == RAW_DATA and not isinstance(value, int):
                    raw = value
            if raw is not None and data_type in NUMPY_TYPES:
                weights[name] = np.frombuffer(raw, dtype=NUMPY_TYPES[data_type]).reshape(dims)
    if not weights:
        raise ValueError(f"{path.name} holds no weights")
    return weights

"""The mean of two adapters of one run. What a short last stage adds and what it takes away both come in half: a stage
about what is not there makes a model honest, and less ready to follow a way to its end."""

from __future__ import annotations

from pathlib import Path

from pensieve_mcp.errors import Miscast
from pensieve_mcp.statelm.gguf import F16, Gguf, write


def mean_of(one: Path, other: Path, out: Path) -> Path:
    """Write the mean of two adapters with the same matrices, in half precision. Raises Miscast where they differ in
    shape, BackendError for a damaged file."""
    first, second = Gguf.open(one), Gguf.open(other)
    shapes = [[(tensor.name, tensor.shape) for tensor in adapter.tensors] for adapter in (first, second)]
    if shapes[0] != shapes[1]:
        raise Miscast(
            f"{one.name} and {other.name} have other matrices.",
            hint="Take two adapters of one run.",
            slug="adapters_differ",
        )
    tensors = [
        (
            tensor.name,
            tensor.shape,
            F16,
            (0.5 * first.floats(tensor) + 0.5 * second.floats(second.by_name(tensor.name)))
            .astype("float16")
            .tobytes,
        )
        for tensor in first.tensors
    ]
    write(out, {k: v for k, v in first.fields.items() if k != "general.alignment"}, tensors)
    return out

"""The forward pass of a small BERT in numpy: six layers, 384 wide, mean pooling.

Texts are packed one after another instead of padded to one length: the linear layers see one long matrix,
only attention goes text by text, so no time is spent on padding and no mask is needed. Which file the weights
come from and how text becomes word pieces is left to `minilm.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LAYERS, HEADS, WIDTH = 6, 12, 384
LAYER_NORM_EPSILON = 1e-12
GELU_ROWS = 64  # 64 x 1536 float32 = 400 KB: the passes over it stay in the second-level cache


@dataclass(frozen=True, slots=True)
class Layer:
    attention: NDArray[np.float32]  # (384, 3*384): query (already over sqrt of the head's width), key, value
    attention_bias: NDArray[np.float32]
    output: NDArray[np.float32]  # (384, 384)
    output_bias: NDArray[np.float32]
    output_norm: tuple[NDArray[np.float32], NDArray[np.float32]]
    wide: NDArray[np.float32]  # (384, 1536)
    wide_bias: NDArray[np.float32]
    narrow: NDArray[np.float32]  # (1536, 384)
    narrow_bias: NDArray[np.float32]
    narrow_norm: tuple[NDArray[np.float32], NDArray[np.float32]]


class Bert:
    """Weights of an ONNX export with int8 matrices (`…_q`, `…_scale`); the layers are kept as float32 (42
    MB), the embeddings stay int8 in the mapped file."""

    def __init__(self, weights: dict[str, NDArray[Any]], prefix: str = "inner.") -> None:
        import numpy as np

        def named(name: str) -> NDArray[np.float32]:
            return np.asarray(weights[f"{prefix}{name}"], np.float32)

        def norm(name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            return named(f"{name}.weight"), named(f"{name}.bias")

        # The exporter named matrices val_49, val_57, …: in order of use, six for a layer.
        numbers = sorted(int(m.group(1)) for name in weights if (m := re.fullmatch(r"val_(\d+)_q", name)))
        matrices = [weights[f"val_{n}_q"].astype(np.float32) * weights[f"val_{n}_scale"] for n in numbers]
        if len(matrices) != 6 * LAYERS:
            raise ValueError(f"{len(matrices)} weight matrices where {6 * LAYERS} were expected")
        self._words = weights[f"{prefix}embeddings.word_embeddings.weight_q"]
        self._word_scales = weights[f"{prefix}embeddings.word_embeddings.weight_scale"]
        places = weights[f"{prefix}embeddings.position_embeddings.weight_q"].astype(np.float32)
        places *= weights[f"{prefix}embeddings.position_embeddings.weight_scale"]
        self._places = places + named("embeddings.token_type_embeddings.weight")[0]
        self._first_norm = norm("embeddings.LayerNorm")
        self._layers: list[Layer] = []
        shrink = np.float32(1 / math.sqrt(WIDTH // HEADS))
        for number in range(LAYERS):
            query, key, value, output, wide, narrow = matrices[6 * number : 6 * number + 6]
            name = f"encoder.layer.{number}"
            biases = [named(f"{name}.attention.self.{part}.bias") for part in ("query", "key", "value")]
            self._layers.append(
                Layer(
                    np.ascontiguousarray(np.concatenate([query * shrink, key, value], axis=1)),
                    np.concatenate([biases[0] * shrink, *biases[1:]]),
                    output,
                    named(f"{name}.attention.output.dense.bias"),
                    norm(f"{name}.attention.output.LayerNorm"),
                    wide,
                    named(f"{name}.intermediate.dense.bias"),
                    narrow,
                    named(f"{name}.output.dense.bias"),
                    norm(f"{name}.output.LayerNorm"),
                )
            )

    def encode(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Word piece ids of texts, [CLS] and [SEP] included, to (texts, 384) means, not yet of unit
        length."""
        import numpy as np

        lengths = [len(ids) for ids in pieces]
        ends = np.cumsum(lengths, dtype=np.int64)
        spans = [(int(end) - length, int(end)) for end, length in zip(ends, lengths, strict=True)]
        flat = np.concatenate([np.asarray(ids, np.int64) for ids in pieces])
        states = self._words[flat].astype(np.float32)  # (all pieces, 384)
        states *= self._word_scales[flat]
        for start, end in spans:
            states[start:end] += self._places[: end - start]
        _normalise(states, *self._first_norm)
        for layer in self._layers:
            states += self._attend(layer, states, spans)
            _normalise(states, *layer.output_norm)
            wide = states @ layer.wide
            for row in range(0, len(wide), GELU_ROWS):
                _gelu(wide[row : row + GELU_ROWS], layer.wide_bias)
            states += wide @ layer.narrow
            states += layer.narrow_bias
            _normalise(states, *layer.narrow_norm)
        sums: NDArray[np.float32] = np.add.reduceat(states, ends - np.asarray(lengths), axis=0)
        return sums / np.asarray(lengths, np.float32)[:, None]

    @staticmethod
    def _attend(
        layer: Layer, states: NDArray[np.float32], spans: list[tuple[int, int]]
    ) -> NDArray[np.float32]:
        import numpy as np

        projected = states @ layer.attention
        projected += layer.attention_bias
        mixed = np.empty_like(states)
        for start, end in spans:
            # (3, heads, pieces, 32), copied so that the products run through BLAS
            parts = projected[start:end].reshape(end - start, 3, HEADS, WIDTH // HEADS).transpose(1, 2, 0, 3)
            query, key, value = np.ascontiguousarray(parts)
            scores = query @ key.transpose(0, 2, 1)
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=2, keepdims=True)
            mixed[start:end] = (scores @ value).transpose(1, 0, 2).reshape(end - start, WIDTH)
        result: NDArray[np.float32] = mixed @ layer.output
        result += layer.output_bias
        return result


def _normalise(states: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    """Layer norm in place, over the last axis."""
    import numpy as np

    states -= states.mean(axis=1, keepdims=True)
    spread = np.einsum("ij,ij->i", states, states) / np.float32(states.shape[1]) + np.float32(
        LAYER_NORM_EPSILON
    )
    states /= np.sqrt(spread)[:, None]
    states *= weight
    states += bias


def _gelu(x: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    """x + bias through GELU in place. numpy has no erf: the tanh form is off by at most 5e-4 (Hendrycks and
    Gimpel, 2016), which the test against float32 vectors covers."""
    import numpy as np

    x += bias
    inner = x * x
    inner *= np.float32(0.044715 * 0.7978845608)
    inner += np.float32(0.7978845608)
    inner *= x
    np.tanh(inner, out=inner)
    inner += 1
    inner *= np.float32(0.5)
    x *= inner

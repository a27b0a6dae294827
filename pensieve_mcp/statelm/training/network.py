# mypy: disable-error-code="import-not-found, misc, no-any-return, unused-ignore"
"""The base model in torch, read from its GGUF file, with a LoRA on its upper layers. torch is known to this file.

Weights stay in llama.cpp's order (rotary pairs lie side by side), so that the adapter written from here needs no
permutation. The lower layers are frozen and run without gradients; only the adapter is trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm.gguf import F16, Field, Gguf, write
from pensieve_mcp.statelm.training.samples import Encoded

PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


class Packed(NamedTuple):
    """A batch as tensors. `tokens` (rows, length) is padded at the right, for which causal attention needs no mask; a
    target is the token after (`rows`, `columns`).
    """

    tokens: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    weights: torch.Tensor


def packed(batch: Sequence[Encoded]) -> Packed:
    """The batch on the processor."""
    length = max(len(one.tokens) for one in batch)
    tokens = torch.tensor([[*one.tokens, *[0] * (length - len(one.tokens))] for one in batch])
    places = [
        (row, place, one.weights[place + 1])
        for row, one in enumerate(batch)
        for place in range(len(one.tokens) - 1)
        if one.weights[place + 1]
    ]
    rows, columns = torch.tensor([p[0] for p in places]), torch.tensor([p[1] for p in places])
    return Packed(tokens, rows, columns, torch.tensor([p[2] for p in places]))


class LowRank(nn.Module):
    """A frozen matrix plus `scale · B A`."""

    def __init__(self, weight: torch.Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.weight = weight
        self.scale = scale
        out, inner = weight.shape
        drawn = torch.randn(rank, inner) / math.sqrt(inner) if rank else None  # alike on every device
        self.a = nn.Parameter(drawn.to(weight.device)) if drawn is not None else None
        self.b = nn.Parameter(torch.zeros(out, rank, device=weight.device)) if rank else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.linear(x, self.weight)
        if self.a is not None and self.b is not None:
            y = (
                y
                + functional.linear(functional.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype)) * self.scale
            )
        return y


class Layer(nn.Module):
    """One block of the llama architecture."""

    def __init__(
        self,
        load: Callable[[str], torch.Tensor],
        number: int,
        rank: int,
        scale: float,
    ) -> None:
        super().__init__()
        names = {part: f"blk.{number}.{part}.weight" for part in PARTS}
        self.parts = nn.ModuleDict({part: LowRank(load(name), rank, scale) for part, name in names.items()})
        self.attention_norm = load(f"blk.{number}.attn_norm.weight")
        self.mlp_norm = load(f"blk.{number}.ffn_norm.weight")

    def forward(
        self, x: torch.Tensor, shape: Shape, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        rows, length, _ = x.shape
        seen = functional.rms_norm(x, (x.shape[-1],), self.attention_norm, shape.epsilon)
        q = self.parts["attn_q"](seen).view(rows, length, shape.heads, -1).transpose(1, 2)
        k = self.parts["attn_k"](seen).view(rows, length, shape.kv_heads, -1).transpose(1, 2)
        v = self.parts["attn_v"](seen).view(rows, length, shape.kv_heads, -1).transpose(1, 2)
        group = shape.heads // shape.kv_heads
        q, k = _rotated(q, rotation), _rotated(k, rotation)
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.parts["attn_output"](mixed.transpose(1, 2).reshape(rows, length, -1))
        seen = functional.rms_norm(x, (x.shape[-1],), self.mlp_norm, shape.epsilon)
        inner = functional.silu(self.parts["ffn_gate"](seen)) * self.parts["ffn_up"](seen)
        out: torch.Tensor = x + self.parts["ffn_down"](inner)
        return out


class Shape:
    """Sizes that the file names."""

    def __init__(self, source: Gguf) -> None:
        def of(name: str) -> Any:
            return source.fields[f"llama.{name}"].value

        self.layers = int(of("block_count"))
        self.heads = int(of("attention.head_count"))
        self.kv_heads = int(of("attention.head_count_kv"))
        self.head_size = int(of("embedding_length")) // self.heads
        self.epsilon = float(of("attention.layer_norm_rms_epsilon"))
        self.base = float(of("rope.freq_base"))


class Network(nn.Module):
    """The whole model. `first` is the lowest layer that has an adapter."""

    def __init__(
        self,
        source: Gguf,
        *,
        rank: int = 16,
        alpha: float = 32.0,
        first: int = 10,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.shape = Shape(source)
        self.rank, self.alpha, self.first = rank, alpha, min(first, self.shape.layers - 1)
        self.device = device or torch.device("cpu")

        def load(name: str) -> torch.Tensor:
            return torch.from_numpy(source.floats(source.by_name(name)).copy()).to(dtype).to(self.device)

        self.embedding = load("token_embd.weight")
        self.norm = load("output_norm.weight")
        self.layers = nn.ModuleList(
            Layer(load, number, rank if number >= self.first else 0, alpha / max(1, rank))
            for number in range(self.shape.layers)
        )

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """(rows, length) token ids → (rows, length, width)."""
        x = functional.embedding(tokens, self.embedding)
        rotation = self._rotation(tokens.shape[1], x.dtype)
        with torch.no_grad():
            for layer in self.layers[: self.first]:
                x = layer(x, self.shape, rotation)
        for layer in self.layers[self.first :]:
            x = layer(x, self.shape, rotation)
        return functional.rms_norm(x, (x.shape[-1],), self.norm, self.shape.epsilon)

    def loss(self, batch: Sequence[Encoded]) -> tuple[torch.Tensor, float]:
        """(weighted sum of the loss over targets, on the network's device; sum of weights)."""
        rows = packed(batch)
        return self.weighted(rows), float(rows.weights.sum())

    def weighted(self, batch: Packed) -> torch.Tensor:
        """The weighted sum of the loss over a batch's targets."""
        tokens, rows, columns, weights = (tensor.to(self.device) for tensor in batch)
        logits = functional.linear(self.hidden(tokens)[rows, columns], self.embedding).float()
        each = functional.cross_entropy(logits, tokens[rows, columns + 1], reduction="none")
        return (each * weights).sum()

    def _rotation(self, length: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        half = self.shape.head_size // 2
        frequencies = self.shape.base ** (-torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        return angles.cos().to(dtype).to(self.device), angles.sin().to(dtype).to(self.device)

    def low_ranks(self) -> Iterator[tuple[str, LowRank]]:
        for number, layer in enumerate(self.layers):
            if number >= self.first:
                for part in PARTS:
                    yield f"blk.{number}.{part}.weight", layer.parts[part]

    def trained(self) -> list[nn.Parameter]:
        return [p for _, one in self.low_ranks() for p in (one.a, one.b) if p is not None]

    def save_adapter(self, path: Path) -> None:
        """Half precision, as llama.cpp reads it."""
        tensors = []
        for name, one in self.low_ranks():
            for letter, matrix in (("a", one.a), ("b", one.b)):
                assert matrix is not None
                values = matrix.detach().to(torch.float16).cpu().numpy()
                tensors.append((f"{name}.lora_{letter}", tuple(values.shape), F16, values.tobytes))
        fields = {
            "general.architecture": Field(8, "llama"),
            "general.type": Field(8, "adapter"),
            "general.name": Field(8, "pensieve-statelm"),
            "adapter.type": Field(8, "lora"),
            "adapter.lora.alpha": Field(6, float(self.alpha)),
        }
        write(path, fields, tensors)

    def load_adapter(self, path: Path) -> None:
        """Go on from an adapter of the same rank, layers and scale. Raises BackendError for another one."""
        source = Gguf.open(path)
        wanted = {
            f"{name}.lora_{letter}": tuple(matrix.shape)
            for name, one in self.low_ranks()
            for letter, matrix in (("a", one.a), ("b", one.b))
            if matrix is not None
        }
        alpha = source.fields.get("adapter.lora.alpha")
        if {t.name: t.shape for t in source.tensors} != wanted or alpha is None or alpha.value != self.alpha:
            raise BackendError(
                f"{path.name} is an adapter of another rank, other layers or another scale than the one to be trained.",
                hint="Give the --rank and --first-layer that it was made with.",
                slug="other_adapter",
            )
        with torch.no_grad():
            for name, one in self.low_ranks():
                for letter, matrix in (("a", one.a), ("b", one.b)):
                    assert matrix is not None
                    matrix.copy_(
                        torch.from_numpy(source.floats(source.by_name(f"{name}.lora_{letter}")).copy())
                    )


def _rotated(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Neighbouring pairs turn together, as llama.cpp stores them."""
    cos, sin = rotation
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

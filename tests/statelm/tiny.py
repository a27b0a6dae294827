"""A llama of a few thousand random weights as a GGUF file: enough to merge, train and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pensieve_mcp.statelm.gguf import F16, F32, Field, as_q8_0, write

WIDTH, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 2, 1, 2
Q8_0 = 8


def byte_letters() -> list[str]:
    """The printable letters that byte-level BPE stands bytes for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, more = {}, 0
    for byte in range(256):
        if byte in shown:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + more)
            more += 1
    return [table[byte] for byte in range(256)]


def base(path: Path, seed: int = 1) -> Path:
    """Write the model. Every byte is a token, and two merges."""
    dice = np.random.default_rng(seed)
    letters = byte_letters()
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "th", "the"]
    while len(words) % 32:
        words.append(f"<|unused{len(words)}|>")
    kinds = [3 if word.startswith("<|") else 1 for word in words]
    fields = {
        "general.architecture": Field(8, "llama"),
        "general.name": Field(8, "tiny"),
        "general.file_type": Field(4, 7),
        "llama.block_count": Field(4, LAYERS),
        "llama.context_length": Field(4, 2048),
        "llama.embedding_length": Field(4, WIDTH),
        "llama.feed_forward_length": Field(4, INNER),
        "llama.attention.head_count": Field(4, HEADS),
        "llama.attention.head_count_kv": Field(4, KV_HEADS),
        "llama.attention.layer_norm_rms_epsilon": Field(6, 1e-5),
        "llama.rope.freq_base": Field(6, 10_000.0),
        "llama.rope.dimension_count": Field(4, WIDTH // HEADS),
        "llama.vocab_size": Field(4, len(words)),
        "tokenizer.ggml.model": Field(8, "gpt2"),
        "tokenizer.ggml.pre": Field(8, "smollm"),
        "tokenizer.ggml.tokens": Field(9, words, 8),
        "tokenizer.ggml.token_type": Field(9, kinds, 5),
        "tokenizer.ggml.merges": Field(9, ["t h", "th e"], 8),
        "tokenizer.ggml.bos_token_id": Field(4, 1),
        "tokenizer.ggml.eos_token_id": Field(4, 2),
        "tokenizer.ggml.add_bos_token": Field(7, False),
    }
    head = WIDTH // HEADS
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (KV_HEADS * head, WIDTH),
        "attn_v": (KV_HEADS * head, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }

    def matrix(rows: int, columns: int) -> bytes:
        return as_q8_0((dice.standard_normal((rows, columns)) * 0.1).astype(np.float32))

    def ones() -> bytes:
        return np.ones(WIDTH, np.float32).tobytes()

    tensors = [("token_embd.weight", (len(words), WIDTH), Q8_0, lambda: matrix(len(words), WIDTH))]
    for layer in range(LAYERS):
        for name, (rows, columns) in shapes.items():
            tensors.append(
                (f"blk.{layer}.{name}.weight", (rows, columns), Q8_0, lambda r=rows, c=columns: matrix(r, c))
            )
        for name in ("attn_norm", "ffn_norm"):
            tensors.append((f"blk.{layer}.{name}.weight", (WIDTH,), F32, ones))
    tensors.append(("output_norm.weight", (WIDTH,), F32, ones))
    write(path, fields, tensors)
    return path


def adapter(
    path: Path, *, rank: int = 4, seed: int = 2, width: int = WIDTH, name: str = "blk.1.attn_q.weight"
) -> Path:
    """One low-rank change, as llama.cpp reads it."""
    dice = np.random.default_rng(seed)
    a = dice.standard_normal((rank, width)).astype(np.float16)
    b = dice.standard_normal((WIDTH, rank)).astype(np.float16)
    fields = {
        "general.architecture": Field(8, "llama"),
        "general.type": Field(8, "adapter"),
        "adapter.type": Field(8, "lora"),
        "adapter.lora.alpha": Field(6, 2.0 * rank),
    }
    write(
        path,
        fields,
        [
            (f"{name}.lora_a", a.shape, F16, a.tobytes),
            (f"{name}.lora_b", b.shape, F16, b.tobytes),
        ],
    )
    return path

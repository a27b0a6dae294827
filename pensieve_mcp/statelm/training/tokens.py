"""The base model's own tokens, made from its GGUF file. `tokenizers` is imported on use."""

from __future__ import annotations

from typing import Any

from pensieve_mcp.statelm.gguf import Gguf

CONTROL = 3  # GGUF's mark of tokens such as <|im_end|>


class Tokenizer:
    """Byte-level BPE with digits one by one, as the file says (`smollm`)."""

    def __init__(self, source: Gguf) -> None:
        from tokenizers import Tokenizer as Engine
        from tokenizers import models, pre_tokenizers

        words = source.fields["tokenizer.ggml.tokens"].value
        kinds = source.fields["tokenizer.ggml.token_type"].value
        merges = [tuple(merge.split(" ", 1)) for merge in source.fields["tokenizer.ggml.merges"].value]
        vocabulary = {word: number for number, word in enumerate(words)}
        self._engine: Any = Engine(models.BPE(vocab=vocabulary, merges=merges))
        self._engine.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        self._engine.add_special_tokens(
            [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
        )

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return ids

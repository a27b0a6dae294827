"""Text to word pieces of BERT's uncased vocabulary, which MiniLM and our static table share.

The package with MiniLM's weights brings no vocabulary, so ours ships one (index/data/NOTICE). The special
tokens are not registered with the tokenizer: "[CLS]" inside a document is seven characters of text, not a
command.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
CLS, SEP = 101, 102
MAX_WORD_CHARACTERS = 100  # longer words are unknown to BERT

# BERT splits at whitespace and at each punctuation mark, so what lies between ASCII ones can be cut by a
# regular expression; a run with anything else in it (CJK, other spaces, accents) is handed whole to the real
# tokenizer.
RUNS = re.compile(r"[^ \t\n\r!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")
CACHED_RUNS = 200_000  # about 30 MB; a text in a language or two has fewer


@functools.cache
def load_tokenizer() -> Any:
    """`tokenizers.Tokenizer` with BERT's uncased rules; adds no special tokens, cuts nothing, pads
    nothing."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    lines = (DATA / "bert_uncased_vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {piece: number for number, piece in enumerate(lines)}
    tokenizer = Tokenizer(
        models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


class PieceCache(dict[str, tuple[int, ...]]):
    """Piece numbers of runs of characters, remembered: text repeats its words, and looking one up costs a
    tenth of splitting it again. Equal to the tokenizer's own answer, which a property test compares."""

    def __missing__(self, run: str) -> tuple[int, ...]:
        whole = run.encode("utf-8", "replace").decode()  # half a surrogate pair is no text to the tokenizer
        pieces = tuple(load_tokenizer().encode(whole, add_special_tokens=False).ids)
        if len(run) > MAX_WORD_CHARACTERS:  # a paragraph of Chinese, or data: not worth remembering
            return pieces
        if len(self) >= CACHED_RUNS:
            self.clear()
        self[run] = pieces
        return pieces


_pieces = PieceCache()


def piece_numbers(text: str) -> list[int]:
    """All word pieces of a text, without special tokens."""
    return list(chain.from_iterable(map(_pieces.__getitem__, RUNS.findall(text))))


def framed_pieces(texts: Sequence[str], *, max_pieces: int, max_characters: int) -> list[list[int]]:
    """Word pieces with [CLS] and [SEP] around them, at most `max_pieces` in all, of the first
    `max_characters` characters."""
    return [[CLS, *piece_numbers(text[:max_characters])[: max_pieces - 2], SEP] for text in texts]

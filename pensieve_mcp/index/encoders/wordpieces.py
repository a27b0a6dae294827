"""Text to word pieces of BERT's uncased vocabulary, which MiniLM and our static table share.

The package with MiniLM's weights brings no vocabulary, so ours ships one (index/data/NOTICE). The special
tokens are not registered with the tokenizer: "[CLS]" inside a document is seven characters of text, not a
command.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
CLS, SEP = 101, 102
MAX_WORD_CHARACTERS = 100  # longer words are unknown to BERT
LONGEST_PIECE = 18  # characters of the longest entry of the vocabulary

# BERT splits at white space and at each mark of punctuation, so words can be cut by `str.split` and a regular
# expression; what has signs we do not know the rules for is handed whole to the real tokenizer.
_MARKS = r"!-/:-@\[-`{-~\u2013\u2014\u2018\u2019\u201c\u201d\u2026"
RUNS = re.compile(rf"[^ \t\n\r{_MARKS}]+|[{_MARKS}]")
_LETTERS = re.compile("[0-9A-Za-z\u00c0-\u024f\u0400-\u045f]+")  # of these we know the rules
_STRANGE_SPACES = (
    "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # white space to Python, nothing to BERT, which joins what they part
)
CACHED_RUNS = 150_000  # words, about 30 MB; a text in a language or two has fewer
CACHED_PARTS = 3  # "word" and "word,"; code has no end of longer combinations
CACHED_LENGTH = 32  # characters; longer ones hardly come twice


@functools.cache
def _vocabulary() -> dict[str, int]:
    lines = (DATA / "bert_uncased_vocab.txt").read_text(encoding="utf-8").splitlines()
    return {piece: number for number, piece in enumerate(lines)}


@functools.cache
def load_tokenizer() -> Any:
    """`tokenizers.Tokenizer` with BERT's uncased rules; adds no special tokens, cuts nothing, pads
    nothing."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.WordPiece(_vocabulary(), unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


class PieceCache(dict[str, bytes]):
    """Piece numbers of words between blanks, two bytes each, remembered: text repeats its words, and looking one up
    costs a twentieth of splitting it again. Equal to the tokenizer's own answer, which a property test compares."""

    def __missing__(self, word: str) -> bytes:
        runs = RUNS.findall(word)
        if len(runs) == 1:
            found = array("H", _pieces_of_run(runs[0])).tobytes()
        else:
            found = b"".join(map(self.__getitem__, runs))
        if len(runs) <= CACHED_PARTS and len(word) <= CACHED_LENGTH:
            if len(self) >= CACHED_RUNS:
                self.clear()
            self[word] = found
        return found


def _pieces_of_run(run: str) -> Sequence[int]:
    vocabulary = _vocabulary()
    word = run.lower() if run.isascii() else run
    known = vocabulary.get(word)
    if known is not None:
        return (known,)
    if _LETTERS.fullmatch(run):
        if not run.isascii():
            apart = unicodedata.normalize("NFD", run)
            word = "".join(sign.lower() for sign in apart if unicodedata.category(sign) != "Mn")
        return _longest_first(word, vocabulary)
    whole = run.encode("utf-8", "replace").decode()  # half a surrogate pair is no text to the tokenizer
    ids: list[int] = load_tokenizer().encode(whole, add_special_tokens=False).ids
    return ids


def _longest_first(word: str, vocabulary: Mapping[str, int]) -> Sequence[int]:
    """WordPiece's own rule for one word of lower case: the longest piece that fits, again and again."""
    unknown = (vocabulary["[UNK]"],)
    if len(word) > MAX_WORD_CHARACTERS:
        return unknown
    pieces = []
    start = 0
    while start < len(word):
        for end in range(min(len(word), start + LONGEST_PIECE), start, -1):
            piece = vocabulary.get(word[start:end] if not start else f"##{word[start:end]}")
            if piece is not None:
                break
        else:
            return unknown
        pieces.append(piece)
        start = end
    return pieces


_pieces = PieceCache()


def piece_bytes(text: str) -> bytes:
    """All word pieces of a text, without special tokens, as unsigned numbers of two bytes in this machine's order."""
    if any(map(text.__contains__, _STRANGE_SPACES)):
        return b"".join(map(_pieces.__getitem__, RUNS.findall(text)))
    return b"".join(map(_pieces.__getitem__, text.split()))


def piece_numbers(text: str) -> list[int]:
    """All word pieces of a text, without special tokens."""
    return array("H", piece_bytes(text)).tolist()


def framed_pieces(texts: Sequence[str], *, max_pieces: int, max_characters: int) -> list[list[int]]:
    """Word pieces with [CLS] and [SEP] around them, at most `max_pieces` in all, of the first
    `max_characters` characters."""
    return [[CLS, *piece_numbers(text[:max_characters])[: max_pieces - 2], SEP] for text in texts]

"""Text to vectors: the shipped static table, MiniLM in numpy, any sentence-transformers model, a hash for
tests.

Nothing heavy is imported here; each encoder's module says what it costs.
"""

from __future__ import annotations

from pensieve_mcp.errors import BackendError
from pensieve_mcp.index.encoders.language import latin_english_weight
from pensieve_mcp.index.types import Encoder

MAX_HASHING_DIM = 4_096


def open_encoder(spec: str, *, allow_download: bool = False) -> Encoder:
    """`static`, `minilm`, `hashing:64`, or a sentence-transformers model's name or folder (extra
    transformers).

    Static and MiniLM share one vector space: passages of the one can be searched with questions of the other.
    `allow_download` matters to named models only. Raises BackendError with the way to get what is missing.
    """
    if spec == "static":
        from pensieve_mcp.index.encoders.static import shared_static_encoder

        return shared_static_encoder()
    if spec == "minilm":
        from pensieve_mcp.index.encoders.minilm import shared_minilm_encoder

        return shared_minilm_encoder()
    if spec == "hashing" or spec.startswith("hashing:"):
        from pensieve_mcp.index.encoders.hashing import HashingEncoder

        size = spec.partition(":")[2] or "64"
        if not size.isdecimal() or not 1 <= int(size) <= MAX_HASHING_DIM:
            raise BackendError(
                f"There is no encoder {spec!r}: the number of dimensions is 1 to {MAX_HASHING_DIM}.",
                hint="Write for example hashing:64.",
                slug="encoder_missing",
            )
        return HashingEncoder(int(size))
    if not spec.strip():
        raise BackendError(
            "index.encoder is empty.",
            hint="Write static, minilm or a model's folder.",
            slug="encoder_missing",
        )
    from pensieve_mcp.index.encoders.sentence_transformers import SentenceTransformersEncoder

    return SentenceTransformersEncoder(spec, allow_download=allow_download)


def script_weight(text: str) -> float:
    """How much of the dense side's weight a question deserves with the shipped encoders: 1 for English, 0.1
    for other languages in Latin letters, 0 for other scripts. Every encoder has a method of this name as
    well."""
    return latin_english_weight(text)


__all__ = ["open_encoder", "script_weight"]

"""An encoder without a model, for tests and for machines where nothing else may run.

Each word adds a vector drawn from its hash, so texts that share words lie near each other; it knows no
meaning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORD = re.compile(r"\w+")


class HashingEncoder:
    """Implements the port `Encoder`; the same on every machine and in every process."""

    def __init__(self, dim: int = 64) -> None:
        self.dim = dim
        self.name = f"hashing-{dim}"

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dim) float32, unit length; zero rows for texts without a word."""
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in enumerate(texts):
            for word in WORD.findall(text.lower()):
                drawn = hashlib.shake_128(word.encode("utf-8", "surrogatepass")).digest(self.dim)
                out[row] += np.frombuffer(drawn, np.uint8).astype(np.float32) - 127.5
        lengths = np.linalg.norm(out, axis=1, keepdims=True)
        np.divide(out, lengths, out=out, where=lengths > 0)
        return out

    queries = documents

    def script_weight(self, text: str) -> float:
        """Every script is the same to a hash."""
        return 1.0

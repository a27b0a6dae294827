"""Encoders that come while the index already answers, and vectors that are computed once.

Loading a model takes from a quarter of a second to many seconds. It happens on a thread of its own; whoever
asks meanwhile gets nothing and says so (complaints jdocmunch #110, basic-memory 0.24.1: never load inside the
first call, degrade once and at once). A failed load is remembered with its reason and not tried again.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.index.types import Encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OpenEncoder = Callable[[str], Encoder]

CACHED_VECTORS = 8_192  # of 384 float32: 12 MB


class Loading:
    """One encoder on its way. `start` returns at once, `get` waits as long as it is told."""

    def __init__(self, spec: str, opener: OpenEncoder) -> None:
        self.spec = spec
        self._opener = opener
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._started = False
        self._encoder: Encoder | None = None
        self.failure = ""  # why it will never come

    def start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        # A daemon: a process that has its answer must not wait for a model.
        threading.Thread(target=self._load, name=f"encoder {self.spec}", daemon=True).start()

    def _load(self) -> None:
        try:
            self._encoder = self._opener(self.spec)
        except PensieveError as error:
            self.failure = str(error)
        except Exception as error:  # the thread has no caller: the reason is kept for whoever asks
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self._ended.set()

    def get(self, wait_seconds: float | None = 0.0) -> Encoder | None:
        """The encoder, or None while it loads and after it failed. None waits to the end."""
        self.start()
        self._ended.wait(wait_seconds)
        return self._encoder

    @property
    def pending(self) -> bool:
        """Whether it was started and has not ended."""
        return self._started and not self._ended.is_set()


class VectorCache:
    """True vectors by the hash of their text, the least used dropped first. Safe on threads."""

    def __init__(self, size: int = CACHED_VECTORS) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, text: str) -> NDArray[np.float32] | None:
        key = _key(text)
        with self._lock:
            vector = self._kept.get(key)
            if vector is not None:
                self._kept.move_to_end(key)
            return vector

    def keep(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        with self._lock:
            for text, vector in zip(texts, vectors, strict=True):
                self._kept[_key(text)] = vector
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()

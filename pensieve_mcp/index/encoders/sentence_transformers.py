"""Any sentence-transformers model, by name or folder (extra `transformers`).

The library takes 5.8 s and 420 MB to import, so that happens at the first text. Nothing is downloaded unless
the setting allows it. torch runs on one thread for questions: with two, one question took 320 ms instead of
19.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.index.encoders.language import latin_english_weight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BERT_VOCABULARY = 30_522  # a model of this vocabulary knows the scripts MiniLM knows
QUESTION_CHARACTERS = 8_000
BATCH = 8  # larger ones only cost memory


class SentenceTransformersEncoder:
    """Implements the port `Encoder`. `name` carries what the folder holds, so another model under the same
    name counts as another one. Raises BackendError when the library or the model is missing."""

    def __init__(self, model: str, *, allow_download: bool = False) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise BackendError(
                f"index.encoder is {model!r}, but sentence-transformers is not installed.",
                hint="Run `pip install 'pensieve-statelm[transformers]'`, or set index.encoder to minilm.",
                slug="encoder_missing",
            )
        self._model_name = model
        self._allow_download = allow_download and not os.environ.get("HF_HUB_OFFLINE")
        self._lock = threading.Lock()
        self._model: Any = None
        self._dim: int | None = None

    @property
    def dim(self) -> int:
        if self._dim is None:
            self._loaded()
        assert self._dim is not None
        return self._dim

    @property
    def name(self) -> str:
        return f"sentence-transformers:{self._model_name}-{self.dim}@{self._state()}"

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dim) float32, unit length; zero rows for empty texts."""
        return self._encode(texts, "encode_document")

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As documents, with the model's own prompt for questions where it has one."""
        return self._encode([text[:QUESTION_CHARACTERS] for text in texts], "encode_query")

    def script_weight(self, text: str) -> float:
        """0 when the model's tokenizer knows less than half of the text; for BERT's English vocabulary as
        MiniLM."""
        tokenizer = self._loaded().tokenizer
        if len(tokenizer) == BERT_VOCABULARY:
            return latin_english_weight(text)
        unknown = getattr(tokenizer, "unk_token_id", None)
        pieces = tokenizer(text[:QUESTION_CHARACTERS], add_special_tokens=False)["input_ids"]
        return 0.0 if pieces and unknown is not None and pieces.count(unknown) * 2 > len(pieces) else 1.0

    def _encode(self, texts: Sequence[str], method: str) -> NDArray[np.float32]:
        import numpy as np

        model = self._loaded()
        out = np.zeros((len(texts), self.dim), np.float32)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if rows:
            encode = getattr(model, method, model.encode)  # versions before 5 have only encode
            try:
                out[rows] = encode(
                    [texts[row].encode("utf-8", "replace").decode() for row in rows],
                    batch_size=BATCH,
                    show_progress_bar=False,
                    normalize_embeddings=True,
                )
            except (RuntimeError, ValueError) as error:
                raise BackendError(
                    f"The encoder {self._model_name!r} failed: {error}.",
                    hint="Try another model in index.encoder; `minilm` is always there.",
                    slug="encoder_failed",
                ) from error
        return out

    def _loaded(self) -> Any:
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._load()
        return self._model

    def _load(self) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]  # an extra
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        try:
            model = SentenceTransformer(
                self._model_name,
                device="cpu",
                local_files_only=not self._allow_download,
                trust_remote_code=False,
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise BackendError(
                f"The encoder {self._model_name!r} cannot be opened: {str(error).splitlines()[0][:200]}.",
                hint="Name a folder that holds a sentence-transformers model, or a model that is already "
                "downloaded; downloading has to be allowed in the settings.",
                slug="encoder_missing",
            ) from error
        size = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        self._dim = int(size())
        self._model = model

    def _state(self) -> str:
        """Digest of names and sizes of the model's weights in a folder; for a hub name, the revision's
        own."""
        folder = Path(self._model_name)
        if folder.is_dir():
            files = sorted(folder.rglob("*.safetensors")) + sorted(folder.rglob("*.bin"))
            listing = "".join(f"{f.relative_to(folder).as_posix()}:{f.stat().st_size};" for f in files)
            return hashlib.sha256(listing.encode()).hexdigest()[:12]
        config = getattr(getattr(self._loaded()[0], "auto_model", None), "config", None)
        return str(getattr(config, "_commit_hash", None) or "unknown")[:12]

"""The shipped static table: a text's vector is the mean of its word pieces' rows, in MiniLM's space.

Fast enough to give every passage a vector while it is being indexed, without any model. The table (30,522 x
384 int8, one scale) is made by tools/make_static_table.py; its rows already contain the fitted bias. Vectors
can be compared with MiniLM's own, see `minilm.py`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import BackendError
from pensieve_mcp.index.encoders.blas import use_one_thread
from pensieve_mcp.index.encoders.language import latin_english_weight
from pensieve_mcp.index.encoders.wordpieces import DATA, piece_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SURE_PIECES = 255  # sums of so many bytes fit into 16 bits


class StaticEncoder:
    """Implements the port `Encoder`. Safe to use from several threads."""

    def __init__(self, folder: Path = DATA) -> None:
        import numpy as np

        use_one_thread()
        try:
            self.about: dict[str, Any] = json.loads(
                (folder / "static_table.json").read_text(encoding="utf-8")
            )
            self._table: NDArray[np.int8] = np.load(folder / "static_table.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise BackendError(
                f"The static table in {folder} cannot be read: {error}.",
                hint="Install pensieve-statelm again.",
                slug="encoder_missing",
            ) from error
        self.dim = int(self._table.shape[1])
        self.name = f"static-minilm-{self.dim}@{self.about['sha256'][:12]}"

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dim) float32, unit length; zero rows for texts without a word piece.

        Sums are made of the table's bytes as they are: its scale cancels when lengths are made one.
        """
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        table = np.asarray(self._table)  # a memmap makes a slow view of whatever is taken from it
        rows = np.empty((SURE_PIECES, self.dim), np.int8)
        for number, text in enumerate(texts):
            pieces = np.frombuffer(piece_bytes(text), np.uint16)
            for start in range(0, len(pieces), SURE_PIECES):
                some = pieces[start : start + SURE_PIECES]
                taken = table.take(some, 0, rows[: len(some)], "clip")
                out[number] += np.add.reduce(taken, 0, np.int16)
        lengths = np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
        np.divide(out, lengths, out=out, where=lengths > 0)
        return out

    queries = documents

    def script_weight(self, text: str) -> float:
        """How much a question in this script and language can be trusted: 1 for English, 0 for unknown
        scripts."""
        return latin_english_weight(text)


def rows_as_floats(folder: Path = DATA) -> NDArray[np.float32]:
    """(30522, 384) float32 rows, as `sentence_transformers`' StaticEmbedding wants them."""
    import numpy as np

    about = json.loads((folder / "static_table.json").read_text(encoding="utf-8"))
    table: NDArray[np.float32] = np.load(folder / "static_table.npy").astype(np.float32) * np.float32(
        about["scale"]
    )
    return table


def export_static_embedding(target: Path) -> None:
    """Write the table as a folder that `StaticEmbedding.load` (sentence-transformers) reads:
    `model.safetensors` with float32 rows, and `tokenizer.json`. 47 MB; the shipped int8 table is a quarter of
    it."""
    from pensieve_mcp.index.encoders.wordpieces import load_tokenizer

    rows = rows_as_floats()
    header = {
        "embedding.weight": {"dtype": "F32", "shape": list(rows.shape), "data_offsets": [0, rows.nbytes]}
    }
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    target.mkdir(parents=True, exist_ok=True)
    with (target / "model.safetensors").open("wb") as out:  # the format is a length, a json header, the bytes
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        rows.astype("<f4").tofile(out)
    load_tokenizer().save(str(target / "tokenizer.json"))


@functools.cache
def shared_static_encoder() -> StaticEncoder:
    """The one of this process."""
    return StaticEncoder()

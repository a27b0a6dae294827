"""A small library of invented papers that ships with the package, so that `pensieve try` has something to read.

Nothing in it is true; a question about it can only be answered by reading. Leaves to the CLI what is asked of it.
"""

from __future__ import annotations

from pathlib import Path

LIBRARY = Path(__file__).resolve().parent / "library"
"""The folder to index."""

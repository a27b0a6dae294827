"""The shell of the cli's room: issues are told at the highest door that shows them."""

from __future__ import annotations

from ..cli.conftest import Pensieve, documents, home, pensieve

__all__ = ["Pensieve", "documents", "home", "pensieve"]

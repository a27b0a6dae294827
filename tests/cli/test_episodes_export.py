"""An exported conversation is meant for other eyes: what looks like a secret stays here unless asked for."""

from __future__ import annotations

from pathlib import Path

from .conftest import Pensieve

KEY = "AKIA" + "IOSFODNN7EXAMPLQ"


def test_secrets_are_left_out_of_an_export_unless_asked_for(pensieve: Pensieve, documents: Path) -> None:
    pensieve("index", documents)
    said = pensieve("cast", "finish", f"answer=The key is {KEY}.", "--json")
    assert said.code == 0, said.err
    handle = pensieve("episodes", "list", "--json").data[0]["handle"]

    assert KEY not in pensieve("episodes", "export", handle).out
    assert KEY in pensieve("episodes", "export", handle, "--exact").out

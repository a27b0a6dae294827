"""The helpers beside the tests are imported by name, and the scripted model of the host tests with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "hosts"):
    sys.path.insert(0, str(folder))

RECORDED = {"claude": "anthropic", "codex": "responses", "opencode": "anthropic"}


@pytest.fixture(params=RECORDED, ids=lambda name: name)
def recorded(request: pytest.FixtureRequest) -> tuple[str, str, bytes]:
    """(host, dialect, body) of a request as the host sent it; prompts and schemas of the host are blanked out."""
    return request.param, RECORDED[request.param], (HERE / "recorded" / f"{request.param}.json").read_bytes()

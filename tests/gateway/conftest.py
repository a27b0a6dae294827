"""The helpers beside the tests are imported by name, and the scripted model of the host tests with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from upstreams import Upstream

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "hosts"):
    sys.path.insert(0, str(folder))

RECORDED = {"claude": "anthropic", "codex": "responses", "opencode": "anthropic"}


@pytest.fixture(params=RECORDED, ids=lambda name: name)
def recorded(request: pytest.FixtureRequest) -> tuple[str, str, bytes]:
    """(host, dialect, body) of a request as the host sent it; prompts and schemas of the host are blanked out."""
    return request.param, RECORDED[request.param], (HERE / "recorded" / f"{request.param}.json").read_bytes()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A server in the model's place, on the loopback."""
    from upstreams import Upstream

    with Upstream() as running:
        yield running

"""The simulation over recorded sessions says what it is for: tokens sent, what the cache gives, and the price."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "gateway_policies.py"


@pytest.fixture(scope="module")
def simulation() -> Any:
    spec = importlib.util.spec_from_file_location("gateway_policies", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("host", ["claude", "codex", "opencode"])
def test_a_recorded_session_is_cheaper_where_it_forgets(simulation: Any, host: str) -> None:
    _, dialect, bodies = simulation.recorded(SOURCE.parent / "data" / f"session-{host}-tidy.json.gz")
    told = {policy: simulation.replay(bodies, dialect, policy) for policy in ("none", "batched", "eager")}

    for row in told.values():
        assert len(row["sizes"]) == len(bodies) > 50
        assert row["sent"] == sum(row["sizes"]) > row["cached"] > 0
        price = simulation.CACHED * row["cached"] + simulation.WRITTEN * (row["sent"] - row["cached"])
        assert row["money"] == round(price)
    assert told["batched"]["money"] <= told["eager"]["money"] < told["none"]["money"]
    assert told["batched"]["peak"] < told["none"]["peak"]
    assert (
        told["batched"]["cached"] / told["batched"]["sent"] > told["eager"]["cached"] / told["eager"]["sent"]
    )

"""What all tests share: real host programs get a second and a third try, nothing else does.

They start slowly and time out on a busy machine; what they are asked to show is in the test either way.
"""

from __future__ import annotations

import pytest

HOST_TRIES = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("host") is not None:
            item.add_marker(pytest.mark.flaky(reruns=HOST_TRIES - 1))

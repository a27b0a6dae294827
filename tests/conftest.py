"""What all tests share: real host programs get a second and a third try, nothing else does; no test depends on time.

They start slowly and time out on a busy machine; what they are asked to show is in the test either way.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# No promise here is about time: a loaded machine must not fail what is right.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

HOST_TRIES = 3

# A shell's background job and nohup ignore these, and what a test starts would inherit it, and rightly heed it.
for name, action in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if (number := getattr(signal, name, None)) and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("host") is not None:
            item.add_marker(pytest.mark.flaky(reruns=HOST_TRIES - 1))

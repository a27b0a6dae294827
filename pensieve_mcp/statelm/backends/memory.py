"""How much memory this process may have, so that a model too large for it is refused in words: llama.cpp would end the
whole process, or the system would."""

from __future__ import annotations

import os
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int | None:
    """The least of the machine's memory, the container's and the process's limit; None where the system tells none."""
    found = [limit for limit in (_machine(), _container(), _process()) if limit is not None]
    return min(found, default=None)


def _machine() -> int | None:
    if not hasattr(os, "sysconf"):  # Windows
        return None
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _container() -> int | None:
    try:
        told = CONTAINER.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(told) if told.isdecimal() else None


def _process() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit

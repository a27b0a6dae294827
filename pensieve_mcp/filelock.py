"""One holder at a time of a file, over processes and within one; the system frees it when the holder's process dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class FileLock:
    """Held from `acquire` to `release`. The file stays: taking it away would let two hold two of the same name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        return self._handle is not None

    def acquire(self) -> bool:
        """False at once while somebody else has it. Raises OSError where the file cannot be made."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)  # closing frees the lock
            self._handle = None

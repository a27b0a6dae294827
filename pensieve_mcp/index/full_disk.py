"""A full disk, told as what it is whichever library met it.

tantivy and numpy say it each in their own words, inside errors that look like damage; "delete the folder" would be
the wrong advice, since the last commit is unharmed.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pensieve_mcp.errors import StorageError

_NUMBERS = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_WINDOWS = {39, 112}  # ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL
_WORDS = re.compile(
    r"no space left|disk quota exceeded|not enough space on the disk|os error (28|122|112|39)\b|"
    r"kind: StorageFull|code: 28\b",
    re.IGNORECASE,
)


@contextmanager
def telling_full(folder: Path) -> Iterator[None]:
    """Errors inside the block that come of a full disk, as StorageError `storage_full`; others as they are."""
    try:
        yield
    except Exception as error:
        if getattr(error, "slug", "") == "storage_full" or not is_full(error):
            raise
        raise StorageError(
            f"The disk is full: the index in {folder} could not be written. What was committed is unharmed.",
            hint="Free some space on that disk, or move the state with --state DIR, then build again.",
            slug="storage_full",
        ) from error


def is_full(error: BaseException | None) -> bool:
    """Whether this error, or one that it came of, says that the disk or the quota is used up."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and (
            error.errno in _NUMBERS or getattr(error, "winerror", None) in _WINDOWS
        ):
            return True
        if _WORDS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False

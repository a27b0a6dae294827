"""Places on this machine as somebody typed them: what `~` stands for, and whether something is there.

Both questions can go unanswered, and both are worded here, so that no door shows an exception of the library.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pensieve_mcp.errors import WorkspaceError

NOT_THERE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
)
"""Errors by which a system says that there is nothing of that name, or can be nothing."""


def typed(path: str | os.PathLike[str]) -> Path:
    """The path with `~` or `~name` at its beginning as the folder it stands for. `./~name` means what is called so.

    Raises WorkspaceError (`no_home`) where nobody knows that folder.
    """
    text = os.fspath(path)
    if not text.startswith("~"):
        return Path(text)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        if os.path.lexists(text):
            return Path(os.curdir, text)
        first = Path(text).parts[0]
        if first == "~":
            raise WorkspaceError(
                f"{text} begins with ~, and no home folder is known here.",
                hint="Set HOME, or write the path out.",
                slug="no_home",
            ) from error
        raise WorkspaceError(
            f"{text} begins with {first}, and this machine knows no user {first[1:]}.",
            hint=f"Write the path out; what is itself called so is ./{text}.",
            slug="no_home",
        ) from error


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether something is there; a link counts by what it leads to. Raises WorkspaceError (`not_permitted`) where the
    machine does not let us look."""
    try:
        os.stat(path)  # noqa: PTH116  # Path.exists() answers or raises, by the version of Python
    except ValueError:  # a character that no name can have
        return False
    except OSError as error:
        if error.errno in NOT_THERE:
            return False
        raise not_permitted(path, error) from error
    return True


def not_permitted(path: str | os.PathLike[str], error: OSError) -> WorkspaceError:
    """What the machine does not let us do with a path, in words."""
    return WorkspaceError(
        f"{os.fspath(path)} may not be used: {error.strerror or error}.",
        hint="Give yourself permission on it and on the folders above it, or name another.",
        slug="not_permitted",
    )

"""Opening folders and files so that nothing outside a root can be read, whatever happens meanwhile.

On POSIX every step is relative to the descriptor of the folder above and refuses links, so a folder swapped
for a link, a path longer than PATH_MAX or a rename under the walk do no harm. Windows has no such calls:
there full paths with the `\\\\?\\` prefix are used, and reparse points are refused at every component.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat as modes
import sys
from collections.abc import Sequence
from typing import BinaryIO, Literal, Protocol

from pensieve_mcp.corpus.types import Fresh, Root, SkipReason, Stat, Unreadable

_FOLDER_FLAGS = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # else a FIFO without a writer would hold us for ever
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
HAS_DIR_FD = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
_REPARSE = getattr(modes, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)


class Gone(Unreadable):
    """The file is no longer there."""

    def __init__(self, detail: str = "it is no longer there") -> None:
        super().__init__("unreadable", detail)


class Swapped(Unreadable):
    """Something else stands where the walk found the file, or its content changed since."""

    def __init__(self, detail: str = "it changed since the walk found it") -> None:
        super().__init__("unreadable", detail)


def stat_of(result: os.stat_result) -> Stat:
    """The part of a stat that tells change."""
    return Stat(result.st_size, result.st_mtime_ns, result.st_ctime_ns, result.st_ino)


def reason_of(error: OSError) -> tuple[SkipReason, str]:
    """An operating system error in our words."""
    if error.errno in (errno.ELOOP, errno.EMLINK):  # FreeBSD says EMLINK for O_NOFOLLOW
        return "symlink", "links are not followed"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "unreadable", "permission denied"
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return "special", "not a regular file"
    return "unreadable", error.strerror or str(error)


def worded(error: OSError) -> Unreadable:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return Gone()
    return Unreadable(*reason_of(error))


class Folder(Protocol):
    """An open folder. `close` it; children are opened from it and never leave it."""

    key: tuple[int, int]  # (device, inode)

    def entries(self, limit: int) -> list[os.DirEntry[str]]: ...
    def folder(self, name: str) -> Folder: ...
    def open(self, name: str) -> int: ...
    def lstat(self, name: str) -> os.stat_result: ...
    def close(self) -> None: ...


class FdFolder:
    """A folder by descriptor (POSIX)."""

    __slots__ = ("_fd", "key")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        found = os.fstat(fd)
        self.key = (found.st_dev, found.st_ino)

    @classmethod
    def at(cls, path: str) -> FdFolder:
        return cls(os.open(path, _FOLDER_FLAGS))

    def entries(self, limit: int) -> list[os.DirEntry[str]]:
        with os.scandir(self._fd) as found:
            return list(itertools.islice(found, limit))

    def folder(self, name: str) -> FdFolder:
        return FdFolder(os.open(name, _FOLDER_FLAGS, dir_fd=self._fd))

    def open(self, name: str) -> int:
        return os.open(name, _FILE_FLAGS, dir_fd=self._fd)

    def lstat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    def close(self) -> None:
        os.close(self._fd)


class PathFolder:
    """A folder by path, for systems without descriptors of folders (Windows)."""

    __slots__ = ("_path", "key")

    def __init__(self, path: str) -> None:
        found = os.lstat(path)
        if not modes.S_ISDIR(found.st_mode) or is_link(found):
            code = errno.ELOOP if is_link(found) else errno.ENOTDIR
            raise OSError(code, os.strerror(code), path)
        self._path = path
        self.key = (found.st_dev, found.st_ino)

    @classmethod
    def at(cls, path: str) -> PathFolder:
        return cls(_long(path))

    def entries(self, limit: int) -> list[os.DirEntry[str]]:
        with os.scandir(self._path) as found:
            return list(itertools.islice(found, limit))

    def folder(self, name: str) -> PathFolder:
        return PathFolder(self._join(name))

    def open(self, name: str) -> int:
        path = self._join(name)
        found = os.lstat(path)
        if is_link(found):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        fd = os.open(path, _FILE_FLAGS)
        opened = os.fstat(fd)
        if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino):
            os.close(fd)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return fd

    def lstat(self, name: str) -> os.stat_result:
        return os.lstat(self._join(name))

    def close(self) -> None:
        return None

    def _join(self, name: str) -> str:
        return self._path + os.sep + name


def _long(path: str) -> str:
    if sys.platform == "win32" and not path.startswith("\\\\"):
        return "\\\\?\\" + path
    return path


def is_link(found: os.stat_result) -> bool:
    """A symbolic link, or on Windows a junction or any other reparse point."""
    return modes.S_ISLNK(found.st_mode) or bool(getattr(found, "st_file_attributes", 0) & _REPARSE)


def open_folder(path: str) -> Folder:
    """Open a root. Raises OSError."""
    return FdFolder.at(path) if HAS_DIR_FD else PathFolder.at(path)


def descend(folder: Folder, names: list[str]) -> Folder:
    """Open a folder below `folder`, link by link refused, and close `folder` and all between. Raises OSError."""
    here = folder
    for name in names:
        try:
            below = here.folder(name)
        finally:
            here.close()
        here = below
    return here


def parts_of(raw: bytes) -> list[str]:
    """The names in a relative path. Raises Unreadable for one that could lead out of its root."""
    names = os.fsdecode(raw).split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise Unreadable("unreadable", "the path does not stay inside its root")
    if sys.platform == "win32" and any("\\" in name or ":" in name for name in names):
        raise Unreadable("unreadable", "the path does not stay inside its root")
    return names


def _place(root: Root, raw: bytes) -> tuple[Folder, str]:
    """The open folder that holds the file, and its name there. Raises Unreadable."""
    try:
        if root.is_file:
            parent, name = os.path.split(root.folder)
            return open_folder(parent), name
        *above, name = parts_of(raw)
        return descend(open_folder(root.folder), above), name
    except OSError as error:
        raise worded(error) from error


def open_regular(
    root: Root, raw: bytes, *, expect: Stat | None = None, follow_links: bool = False
) -> BinaryIO:
    """Open a file of a root for reading: a regular file, met without passing any link.

    With `expect` it must be the very file the walk saw, unchanged. `follow_links` allows links whose target
    lies inside the same root; the target is then opened by the same link-refusing steps.
    Raises Unreadable (reason "symlink", "special", "unreadable"), Gone, Swapped.
    """
    try:
        folder, name = _place(root, raw)
        try:
            fd = folder.open(name)
        finally:
            folder.close()
    except (OSError, Unreadable) as error:
        failure = worded(error) if isinstance(error, OSError) else error
        # A link as a folder shows as "not a directory" on Linux, which `worded` calls gone.
        if not follow_links or root.is_file or not (failure.reason == "symlink" or isinstance(failure, Gone)):
            raise failure from error
        target = inside(root, raw)
        if target is None or target == raw:
            raise failure from error
        return open_regular(root, target, expect=expect)
    try:
        found = os.fstat(fd)
        if not modes.S_ISREG(found.st_mode):
            raise Unreadable("special", "not a regular file")
        if expect is not None and stat_of(found) != expect:
            raise Swapped
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def inside(root: Root, raw: bytes) -> bytes | None:
    """Where a link of the root leads, as a path relative to the root; None when that is outside or nowhere."""
    try:
        top = os.path.realpath(root.folder, strict=True)
        target = os.path.realpath(os.path.join(top, *parts_of(raw)), strict=True)  # noqa: PTH118
        relative = os.path.relpath(target, top)
    except (OSError, Unreadable, ValueError):
        return None
    if relative == os.curdir:
        return b""
    if relative.split(os.sep, 1)[0] == os.pardir:
        return None
    return os.fsencode(relative.replace(os.sep, "/"))


def absence(error: OSError | Unreadable) -> Literal["gone", "unreadable"]:
    """Whether a failure says that the file is not there, or only that it cannot be looked at."""
    failure = worded(error) if isinstance(error, OSError) else error
    return "unreadable" if failure.reason == "unreadable" and not isinstance(failure, Gone) else "gone"


def fresh(root: Root, raw: bytes, known: Stat, *, home: tuple[int, int] | None = None) -> Fresh:
    """Whether a file is still as it was: yes, changed, gone, or unreadable where that cannot be told now.

    A root that cannot be reached says nothing of its files; nor does one that holds nothing at all and is not the
    folder (device, inode) it was when they were read, `home`: so looks the place of a disk that is not mounted.
    """
    try:
        top = open_folder(os.path.split(root.folder)[0] if root.is_file else root.folder)
    except OSError:
        return "unreadable"
    try:
        bare = home is not None and not root.is_file and top.key != home and not top.entries(1)
    except OSError:
        bare = True
    finally:
        top.close()
    try:
        folder, name = _place(root, raw)
        try:
            found = folder.lstat(name)
        finally:
            folder.close()
    except (OSError, Unreadable) as error:
        return "unreadable" if bare else absence(error)
    if not modes.S_ISREG(found.st_mode):
        return "gone"
    return "yes" if stat_of(found) == known else "changed"


def kind_of(mode: int) -> str:
    """What a thing that is no regular file is called."""
    for test, name in (
        (modes.S_ISFIFO, "a FIFO"),
        (modes.S_ISSOCK, "a socket"),
        (modes.S_ISBLK, "a block device"),
        (modes.S_ISCHR, "a character device"),
        (modes.S_ISDIR, "a folder"),
    ):
        if test(mode):
            return name
    return "not a regular file"


def keys_of(folders: Sequence[str]) -> frozenset[tuple[int, int]]:
    """(device, inode) of those folders that exist."""
    keys = set()
    for folder in folders:
        try:
            found = os.stat(folder)  # noqa: PTH116
        except OSError:
            continue  # a state folder that does not exist yet cannot be walked into
        keys.add((found.st_dev, found.st_ino))
    return frozenset(keys)

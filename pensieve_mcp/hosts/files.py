"""Reading and replacing somebody else's file so that it is never lost: checked, backed up, swapped in one step.

A link is followed and stays a link, since people keep their configuration elsewhere and link to it. What changed
between reading and writing belongs to whoever changed it, and is left alone.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pensieve_mcp.errors import Conflict
from pensieve_mcp.hosts.errors import HostError

MOST_BYTES = 64 * 2**20  # a host that keeps its history in its configuration has some megabytes
MARK = "pensieve-backup"


@dataclass(frozen=True, slots=True)
class Found:
    """A configuration as it is: its real place, its text without a byte order mark, its bytes; empty if not there."""

    path: Path
    text: str
    raw: bytes | None
    bom: bool = False

    @property
    def there(self) -> bool:
        return self.raw is not None


def read(path: Path) -> Found:
    """The file, or an empty one where there is none. Raises HostError for what may not be read or is no text."""
    try:
        real = path.resolve(strict=False)
        found = real.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise HostError(
                f"{path} is a link to {path.resolve(strict=False)}, which is not there.",
                hint="Create that file or remove the link, and try again.",
            ) from None
        return Found(real, "", None)
    except (OSError, RuntimeError) as error:  # a loop of links, a folder that may not be entered
        raise HostError(f"{path} cannot be read: {error}.", hint="Mend that and try again.") from error
    if not stat.S_ISREG(found.st_mode):
        raise HostError(f"{path} is not a file.", hint="Move it away and try again.")
    if found.st_size > MOST_BYTES:
        raise HostError(
            f"{path} has {found.st_size / 2**20:,.0f} MB, which no configuration has.",
            hint="Move it away, or add the entry by hand: the same command with --print shows it.",
        )
    try:
        raw = real.read_bytes()
    except OSError as error:
        raise HostError(
            f"{path} cannot be read: {error.strerror}.", hint="Give yourself permission."
        ) from error
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise HostError(f"{path} is UTF-16; hosts read UTF-8.", hint="Save it as UTF-8 and try again.")
    bom = raw.startswith(codecs.BOM_UTF8)
    try:
        return Found(real, raw.decode("utf-8-sig"), raw, bom)
    except UnicodeDecodeError as error:
        raise HostError(
            f"{path} is not UTF-8: byte {error.start} is {raw[error.start]:#04x}.",
            hint="Save it as UTF-8 and try again.",
        ) from error


def write(found: Found, text: str, *, now: datetime | None = None, keep: bool = True) -> Path | None:
    """Replace the file by this text and answer where the old one is kept, None if there was none, or with `keep` off.

    Raises Conflict if somebody changed it since it was read, HostError if it may not be written; then nothing is
    changed.
    """
    path = found.path
    try:
        data = (codecs.BOM_UTF8 if found.bom else b"") + text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise HostError(
            f"A path holds {text[error.start]!r}, which cannot be written as UTF-8.",
            hint="Rename that folder.",
        ) from error
    if found.raw is None:
        _create(path, data)
        return None
    mode = path.stat().st_mode
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise HostError(
            f"{path} is read-only.",
            hint="Make it writable and try again, or add the entry by hand: see --print.",
        )
    backup = _backup(path, now or datetime.now()) if keep else None
    try:
        temporary = _beside(path, data)
        try:
            temporary.chmod(stat.S_IMODE(mode))
            _keep_owner(path, temporary)
            if path.read_bytes() != found.raw:
                raise Conflict(
                    f"{path} was changed by another program meanwhile.",
                    hint="Nothing was written. Try again.",
                )
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise HostError(
            f"{path} cannot be written: {error.strerror}.", hint="Mend that and try again."
        ) from error
    return backup


def remove(found: Found, *, up_to: Path | None = None) -> None:
    """Take the file away, and folders above it that are empty then, up to and including this one.

    Raises Conflict if somebody changed it since it was read, HostError if it may not be removed.
    """
    path = found.path
    try:
        if path.read_bytes() != found.raw:
            raise Conflict(f"{path} was changed by another program meanwhile.", hint="It stays. Try again.")
        path.unlink()
        if up_to is not None:
            top = up_to.resolve()
            for folder in path.parents:
                if not folder.is_relative_to(top):
                    break
                folder.rmdir()
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return  # something else lies there, which stays
        raise HostError(f"{path} cannot be removed: {error.strerror}.", hint="Remove it by hand.") from error


def _create(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path, data)
        try:
            os.link(temporary, path)  # fails where somebody made the file meanwhile
        except FileExistsError:
            raise Conflict(f"{path} was made by another program meanwhile.", hint="Try again.") from None
        except OSError:  # a file system without hard links
            temporary.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise HostError(
            f"{path} cannot be written: {error.strerror}.", hint="Mend that and try again."
        ) from error


def _beside(path: Path, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


def _backup(path: Path, now: datetime) -> Path:
    stem = f"{path.name}.{MARK}-{now:%Y%m%d-%H%M%S}"
    number = 0
    while True:
        backup = path.with_name(stem + (f"-{number}" if number else ""))
        try:
            handle = os.open(backup, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise HostError(
                f"No backup of {path} can be made: {error.strerror}.",
                hint="Nothing was changed. Mend that and try again.",
            ) from error
        os.close(handle)
        try:
            shutil.copy2(path, backup)
        except OSError as error:
            with contextlib.suppress(OSError):
                backup.unlink()
            raise HostError(
                f"No backup of {path} can be made: {error.strerror}.", hint="Nothing was changed."
            ) from error
        return backup


def _keep_owner(path: Path, temporary: Path) -> None:
    if hasattr(os, "chown"):
        old, new = path.stat(), temporary.stat()
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.chown(temporary, old.st_uid, old.st_gid)

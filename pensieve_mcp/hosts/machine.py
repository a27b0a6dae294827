"""The machine as the host definitions see it: which system, whose home, which variables, what exists.

Handed in, so that the places on Windows and macOS are tested anywhere.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Literal

from pensieve_mcp.places import typed

System = Literal["linux", "macos", "windows"]


def _exists(path: PurePath) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def _matching(folder: PurePath, pattern: str) -> Iterable[PurePath]:
    try:
        return sorted(Path(folder).glob(pattern))
    except OSError:
        return ()


@dataclass(frozen=True, slots=True)
class Machine:
    system: System
    home: PurePath
    environment: Mapping[str, str] = field(default_factory=dict)
    exists: Callable[[PurePath], bool] = _exists
    matching: Callable[[PurePath, str], Iterable[PurePath]] = _matching
    """The paths in a folder that match a pattern, sorted."""
    which: Callable[[str], str | None] = shutil.which
    """Where a program is on the path."""

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Machine:
        """This machine."""
        system: System = {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux")  # type: ignore[assignment]
        home = environment.get("USERPROFILE" if system == "windows" else "HOME")
        return cls(system, Path(home) if home else typed("~"), environment)

    def path(self, text: str) -> PurePath:
        """A path in this system's notation."""
        if isinstance(self.home, Path):
            return Path(text)
        return PureWindowsPath(text) if self.system == "windows" else PurePosixPath(text)

    def folder(self, variable: str, *default: str) -> PurePath:
        """The folder that a variable names, if it is absolute; else this one under the home."""
        named = self.environment.get(variable, "").strip()
        if named and self.path(named).is_absolute():
            return self.path(named)
        return self.home.joinpath(*default)

    def application_data(self) -> PurePath:
        """Where desktop programs keep a user's settings."""
        if self.system == "windows":
            return self.folder("APPDATA", "AppData", "Roaming")
        if self.system == "macos":
            return self.home / "Library" / "Application Support"
        return self.folder("XDG_CONFIG_HOME", ".config")

"""Which version of us is installed, for launchers and for the doctor."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from pensieve_mcp.hosts.catalog import DISTRIBUTION


def installed_version() -> str:
    """The installed version; `0` where the package runs from a bare folder."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"

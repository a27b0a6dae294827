"""What can go wrong with somebody else's configuration file. The person at the machine mends it."""

from __future__ import annotations

from pensieve_mcp.errors import WorkspaceError


class HostError(WorkspaceError):
    """A host's configuration cannot be used as it is; nothing was written."""

    slug = "host_config"


class NotUnderstood(HostError):
    """A file or entry whose form we do not understand, so that changing it could lose something."""

    slug = "host_config_not_understood"

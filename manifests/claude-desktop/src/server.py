"""Starts the server; Claude Desktop has uv install it."""

import sys

from pensieve_mcp.server import main

sys.exit(main())

"""`python -m pensieve_mcp.server`, the same as `pensieve-mcp`."""

import sys

from pensieve_mcp.server import main

sys.exit(main())

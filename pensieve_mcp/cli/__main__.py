"""`python -m pensieve_mcp.cli`, the same as the command `pensieve`."""

from pensieve_mcp.cli import main

main()

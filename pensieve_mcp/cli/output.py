"""How results look: JSON for programs, lines for pipes, tables and bars for a person at a terminal.

Rich is known here only, and imported when a terminal wants it. Off a terminal nothing is redrawn and nothing is
coloured: a progress bar in a transcript is paid for by a model's window.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pensieve_mcp.corpus.types import BuildProgress


def say(text: str) -> None:
    """Talk, to stderr."""
    click.echo(text, err=True)


class PipeClosed(Exception):
    """Whoever read our stdout has enough, as `head` has. Not an OSError, which click would make a failure of."""


def put(text: str) -> None:
    """Data, to stdout. Raises PipeClosed."""
    try:
        click.echo(text)
    except BrokenPipeError as closed:
        raise PipeClosed from closed


def put_json(data: Any) -> None:
    """One JSON document; indented where a person looks at it."""
    put(
        json.dumps(
            data, ensure_ascii=not _unicode_out(), indent=2 if _terminal(sys.stdout) else None, default=str
        )
    )


def put_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table at a terminal; elsewhere lines with tabs for cut, sort and awk, and the headings on stderr."""
    if not _terminal(sys.stdout):
        if rows:
            say("\t".join(headings))
        for row in rows:
            put("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, box=None, pad_edge=False, header_style="" if _no_colour() else "dim")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: brackets in file names are no markup
    Console(no_color=_no_colour(), highlight=False).print(table)


def dim(text: str) -> str:
    return text if _no_colour() or not _terminal(sys.stdout) else click.style(text, dim=True)


def bold(text: str) -> str:
    return text if _no_colour() or not _terminal(sys.stdout) else click.style(text, bold=True)


@contextmanager
def bar(title: str, *, meaning: bool = False) -> Iterator[Callable[[BuildProgress], None]]:
    """A bar of a build at a terminal (stderr), `meaning`: of what the sentence model reads; elsewhere silent."""
    if not _terminal(sys.stderr):
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[what]}"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True, no_color=_no_colour()),
        transient=True,
    ) as shown:
        task = shown.add_task(title, total=1, what="")

        def tell(progress: BuildProgress) -> None:
            done, total = progress.documents_done, progress.documents_total
            what = f"documents · {progress.chunks:,} chunks"
            if meaning:
                done, total, what = progress.upgraded_passages, progress.passages, "passages"
            shown.update(task, completed=done, total=max(1, total), what=what)

        yield tell


class Line:
    """One line at a terminal that holds the end of what a model is writing; `clear` makes room for what stays."""

    def __init__(self, columns: int) -> None:
        self._columns = max(20, columns - 1)
        self._text = ""

    def hear(self, piece: str) -> None:
        if not piece:  # nothing was written: a long prompt is being read
            return
        self._text = " ".join((self._text + piece).split(" "))[-4_000:]
        shown = " ".join(self._text.split())[-self._columns + 2 :]
        sys.stderr.write(f"\r\x1b[K… {shown}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._text:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._text = ""


class Silent(Line):
    """Off a terminal nothing is redrawn."""

    def __init__(self) -> None:
        super().__init__(80)

    def hear(self, piece: str) -> None:
        """Nobody watches."""


@contextmanager
def writing(*, silent: bool = False) -> Iterator[Line]:
    """Where a model's words are shown as they come: at a terminal (stderr), else nowhere."""
    import shutil

    shown = not silent and _terminal(sys.stderr)
    line = Line(shutil.get_terminal_size((80, 24)).columns) if shown else Silent()
    try:
        yield line
    finally:
        line.clear()


def width(default: int = 80) -> int:
    """Columns of the terminal, or of a page."""
    import shutil

    return shutil.get_terminal_size((default, 24)).columns if _terminal(sys.stdout) else default


def _terminal(stream: Any) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)()) and os.environ.get("TERM") != "dumb"


def _no_colour() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def _unicode_out() -> bool:
    return (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "") == "utf8"

"""The shell door: `pensieve`. Data goes to stdout, talk to stderr; exit codes 0 done, 1 our error, 2 wrong usage.

Click is known to this folder only, rich to `output.py`. Each command group has a file that is imported when it is asked
for, and imports what it needs when it runs: `pensieve note list` must not wait for an index.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main() -> None:
    """Entry point of the command `pensieve`."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and answer its exit code. Never raises on what a person can type.

    A traceback appears only where PENSIEVE_DEBUG is set; otherwise an unforeseen error is one line that says so.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A file name may hold what the terminal cannot show; that must not end a command.
            stream.reconfigure(errors="backslashreplace")
    from pensieve_mcp.cli.output import PipeClosed

    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except (PipeClosed, BrokenPipeError):
        # `pensieve … | head` closed the pipe: nothing more is wanted, which is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _run(arguments: Sequence[str] | None) -> int:
    import click

    from pensieve_mcp.cli.app import app
    from pensieve_mcp.cli.output import PipeClosed
    from pensieve_mcp.errors import PensieveError

    try:
        code = app.main(
            args=None if arguments is None else list(arguments), prog_name="pensieve", standalone_mode=False
        )
        return code if isinstance(code, int) else DONE
    except click.UsageError as wrong:
        wrong.show()
        return USAGE
    except click.ClickException as failed:
        failed.show()
        return FAILED
    except (click.Abort, KeyboardInterrupt) as ended:
        if not any(isinstance(e, KeyboardInterrupt) for e in (ended, ended.__context__)):
            return _not_confirmed(nobody=isinstance(ended.__context__, EOFError))
        _talk("Interrupted; what was finished is kept.")
        return INTERRUPTED
    except PensieveError as error:
        from pensieve_mcp.cli.translating import for_person

        _talk(f"pensieve: {for_person(error.message)}")
        if error.hint:
            _talk(f"  {for_person(error.hint)}")
        if os.environ.get("PENSIEVE_DEBUG"):
            raise
        return FAILED
    except PipeClosed:
        raise
    except Exception as error:
        if os.environ.get("PENSIEVE_DEBUG"):
            raise
        if isinstance(error, FileNotFoundError) and _stands_nowhere():
            _talk("pensieve: The folder this was called in is no longer there.")
            _talk("  Change to another folder, and call it again.")
            return FAILED
        if isinstance(error, PermissionError) and error.filename:  # the machine's word, no fault of ours
            from pensieve_mcp.places import not_permitted

            refused = not_permitted(os.fsdecode(error.filename), error)
            _talk(f"pensieve: {refused.message}")
            _talk(f"  {refused.hint}")
            return FAILED
        _talk(f"pensieve: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        _talk("  This is a fault of ours. PENSIEVE_DEBUG=1 shows where it happened.")
        return FAILED


def _not_confirmed(*, nobody: bool) -> int:
    """A question was answered with no, or there was nobody to answer it."""
    if nobody:
        _talk("\nThere was no answer, so nothing was done. To do it without being asked use --yes.")
        return USAGE
    _talk("Nothing was done.")
    return FAILED


def _talk(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201  # talk of the shell, never data


def _stands_nowhere() -> bool:
    """Whether the working folder was removed, so that no relative path means anything."""
    try:
        os.getcwd()  # noqa: PTH109  # Path.cwd() would be imported for this alone
    except FileNotFoundError:
        return True
    return False

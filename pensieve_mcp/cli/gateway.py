"""gateway and run: a host behind the gateway, so that what it forgets leaves its prompt."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.output import put, say
from pensieve_mcp.cli.shell import NewFile, Shell, command_options, leave
from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.heeding import Heeding

if TYPE_CHECKING:
    from pensieve_mcp.gateway.serving import RunningGateway
    from pensieve_mcp.settings import Settings
    from pensieve_mcp.workspace import Workspace


@click.command(short_help="Pass requests to a model's API, without deleted text.")
@click.option("--upstream", metavar="URL", help="The API that requests go on to.")
@click.option("--anthropic", is_flag=True, help="The same as the Anthropic API's address.")
@click.option("--openai", is_flag=True, help="The same as the OpenAI API's address.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8721, show_default=True, help="0 takes a free one."
)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--server-name", "servers", multiple=True, help="Name of our MCP server in the host, if not pensieve."
)
@click.option("--no-handles", is_flag=True, help="Give results of the host's own tools no handles.")
@click.option(
    "--no-ledger", is_flag=True, help="Write nothing down; handles of the host's results then work not."
)
@click.option("--explain", is_flag=True, help="Tell of each request what was done and why.")
@command_options
def gateway(
    shell: Shell,
    upstream: str | None,
    anthropic: bool,
    openai: bool,
    port: int,
    bind: str,
    servers: tuple[str, ...],
    no_handles: bool,
    no_ledger: bool,
    explain: bool,
) -> None:
    """Pass requests between a host and its model's API, without what the model has deleted.

    Point the host at the printed address. Requests go to the one upstream only; keys pass through untouched.
    """
    from pensieve_mcp.gateway.proxy import Upstream
    from pensieve_mcp.vendors import ANTHROPIC, OPENAI

    named = [url for url in (upstream, ANTHROPIC if anthropic else None, OPENAI if openai else None) if url]
    if len(named) != 1:
        raise click.UsageError("Give one of --upstream URL, --anthropic and --openai.")
    url = named[0]
    _log_to_stderr()
    stop = threading.Event()
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: stop.set())
    settings, workspace = _opened(shell, with_ledger=not no_ledger)
    with _gateway(
        (Upstream.of(url),),
        settings,
        workspace,
        servers=frozenset(servers) or frozenset({"pensieve"}),
        handles=not (no_handles or no_ledger),
        bind=bind,
        port=port,
        explain=explain,
    ) as running:
        put(running.url)
        sys.stdout.flush()
        say(f"Requests to it go on to {url}. Start the host with its API's address set to it, for example")
        say(
            f"  {'OPENAI_BASE_URL' if openai else 'ANTHROPIC_BASE_URL'}={running.url} …    Ctrl-C ends the gateway."
        )
        try:
            while not stop.wait(0.5):
                pass
        except KeyboardInterrupt:
            pass
    _tell_summary(running)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Start claude, codex or opencode behind the gateway.",
)
@click.option(
    "--upstream", metavar="URL", help="The API, where the host's own configuration does not say it."
)
@click.option("--program", metavar="PATH", help="The host's program, if it is not on the PATH.")
@click.option("--no-handles", is_flag=True, help="Give results of the host's own tools no handles.")
@click.option(
    "--explain",
    metavar="FILE",
    type=NewFile(),
    help="Write into FILE what was done to each request, and why.",
)
@click.argument("host", type=click.Choice(("claude", "codex", "opencode")))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@command_options
def run(
    shell: Shell,
    upstream: str | None,
    program: str | None,
    no_handles: bool,
    explain: str | None,
    host: str,
    arguments: tuple[str, ...],
) -> None:
    """Start a host behind the gateway, with our server, for this once.

    Everything after HOST goes to the host. Its own configuration files stay as they are; its exit code is ours.
    """
    from pensieve_mcp.episode import GATEWAY_VARIABLE, RUN_VARIABLE, forget_run
    from pensieve_mcp.gateway import hosts, unheard

    found = program or shutil.which(host)
    if found is None:
        raise WorkspaceError(
            f"There is no program {host} on the PATH.",
            hint=_ours_stands_before(host, arguments) or unheard.how_to_get(host),
            slug="no_such_host",
        )
    environment = dict(shell.environment)
    name = str(uuid.uuid4())
    route = hosts.route(host, found, environment, Path.cwd(), upstream=upstream)
    settings, workspace = _opened(shell, with_ledger=True)
    assert workspace is not None
    server = hosts.Server(
        (
            sys.executable,
            "-m",
            "pensieve_mcp.server",
            "--state",
            str(workspace.state),
            *(word for pair in shell.settings.items() for word in ("--set", "=".join(pair))),
            *(root.folder for root in workspace.roots),
        ),
        {
            **hosts.server_environment(environment),
            "PYTHONPATH": hosts.python_path(environment),
            RUN_VARIABLE: name,
        },
    )
    with (
        _Host() as started,
        tempfile.TemporaryDirectory(prefix="pensieve-run-", ignore_cleanup_errors=True) as scratch,
    ):
        try:
            with _gateway(
                route.upstreams,
                settings,
                workspace,
                handles=not no_handles,
                explain=explain or False,
                run=name,
            ) as running:
                launched = hosts.launch(
                    host, route, running.url, server, arguments, environment, Path(scratch)
                )
                for warning in launched.warnings:
                    say(warning)
                surroundings = {**launched.environment, GATEWAY_VARIABLE: running.url}
                code = started.run(
                    [found, *launched.arguments], surroundings, hint=_other_program(host, program)
                )
        finally:
            forget_run(workspace.state, name)
        _tell_summary(running)
        if running.keeper.totals.is_silent and not started.was_signalled:
            for line in unheard.next_steps(host, found, arguments, code, environment):
                say(f"  {line}")
        if running.keeper.totals.requests and sys.stderr.isatty():
            say(f"pensieve: To go on, with everything in its place: pensieve run {host} {hosts.AGAIN[host]}")
    leave(code)


# -- helpers ---------------------------------------------------------------------------------------------------------


def _opened(shell: Shell, *, with_ledger: bool) -> tuple[Settings, Workspace | None]:
    """The settings, and the workspace that is meant. Raises WorkspaceError where one is needed and none is known."""
    if not with_ledger:
        from pensieve_mcp.settings import FILE_NAME, data_folder, resolve

        home = data_folder(shell.environment)
        return resolve(
            files=(home / FILE_NAME,), environment=shell.environment, arguments=shell.settings
        ).settings, None
    folders = tuple(
        f for f in (shell.environment.get("PENSIEVE_FOLDERS") or "").split(os.pathsep) if f.strip()
    )
    if folders and not shell.folders and shell.name is None and shell.state is None:
        workspace = shell.open(*folders)
    else:
        workspace = shell.open()
    return workspace.settings, workspace


def _gateway(
    upstreams: Any,
    settings: Settings,
    workspace: Workspace | None,
    *,
    explain: bool | str = False,
    **options: Any,
) -> RunningGateway:
    from pensieve_mcp.gateway.serving import RunningGateway, policy_of
    from pensieve_mcp.gateway.telling import explained
    from pensieve_mcp.spellbook.registry import spellbook

    told = None
    if explain:
        policy = policy_of(settings)

        def told(path: str, report: Any) -> None:
            lines = list(explained(path, report, policy))
            if isinstance(explain, str):
                with Path(explain).open("a", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
            else:
                for line in lines:
                    say(line)

    return RunningGateway(
        upstreams,
        settings,
        None if workspace is None else lambda: workspace,
        tools=frozenset(spellbook(asking=True)),
        told=told,
        **options,
    )


class _Host:
    """The host in our place: it has the terminal, signals reach it, its exit code is the answer."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: int | None = None
        self._starting = threading.Lock()
        self._heeding: Heeding | None = None
        self._interrupting: Any = None
        self.was_signalled = False

    def __enter__(self) -> _Host:
        # A Ctrl-C at the terminal goes to the host as well, which decides what it means; elsewhere it is passed on.
        at_terminal = sys.stdin is not None and sys.stdin.isatty()
        if at_terminal:
            self._interrupting = signal.signal(signal.SIGINT, self._interrupted)
        self._heeding = Heeding(("SIGTERM", "SIGHUP") + (() if at_terminal else ("SIGINT",)), self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        if self._heeding is not None:
            self._heeding.end()
        if self._interrupting is not None:
            signal.signal(signal.SIGINT, self._interrupting)

    def _interrupted(self, *_: object) -> None:
        self.was_signalled = True

    def _pass_on(self, number: int) -> None:
        self.was_signalled = True
        with self._starting:
            if self._process is None:
                self._early = number
            elif self._process.poll() is None:
                self._process.send_signal(number)

    def run(self, command: list[str], environment: dict[str, str], *, hint: str = "") -> int:
        """Its exit code, 128 and more where a signal ended it. Raises WorkspaceError, with the hint, where it cannot be
        started."""
        with self._starting:
            if self._early is not None:
                return 128 + self._early
            try:
                self._process = subprocess.Popen(command, env=environment)
            except OSError as error:
                raise WorkspaceError(
                    f"{command[0]} cannot be started: {error.strerror or error}.",
                    hint=hint,
                    slug="no_such_host",
                ) from error
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def _ours_stands_before(host: str, arguments: tuple[str, ...]) -> str:
    """The hint where our option was given to the host, which gets everything that follows its name; else empty."""
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option == "--program":
            path = value if equals else (*arguments, "PATH")[place + 1]
            return (
                f"--program {path} follows {host} and so is the host's; ours stands before it: "
                f"pensieve run --program {path} {host}"
            )
    return ""


def _other_program(host: str, named: str | None) -> str:
    """What to do where the program cannot be started: it was named, or found on the PATH."""
    if named is None:
        return "Name the host's program with --program PATH."
    return f"--program named {named}: give the path of {host}'s program, or leave the option out to take the PATH's."


def _tell_summary(running: RunningGateway) -> None:
    from pensieve_mcp.gateway.telling import summary

    for line in summary(running.keeper.totals):
        say(f"pensieve: {line}")


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="pensieve: %(message)s")

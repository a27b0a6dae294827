"""One commit of the vector store: which files it writes, which segments it merges, what it publishes.

Everything is written and synced under new names first; the manifest, replaced last, makes it true in one
step. Deciding what has changed, and the lock, are left to `vectors.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pensieve_mcp.index.vector_files import Manifest, write_manifest
from pensieve_mcp.index.vector_segments import UPGRADED, Rows, Segment, joined, write_dead, write_segment

DEAD_SHARE = 0.25  # a segment with more dead rows than this is written anew
TIER_FACTOR = 8  # so many segments of about one size become one: each row is rewritten log8(n) times
TIER_FIRST_ROWS = 256
LARGE_ROWS = (
    131_072  # such segments are merged no further: joining eight of them would take gigabytes of memory
)


def publish(
    folder: Path,
    manifest: Manifest,
    segments: Sequence[Segment],
    *,
    killed: Mapping[str, NDArray[np.bool_]],
    pending: Sequence[Rows],
    generation: int,
    fingerprint: str,
) -> Manifest:
    """Write what was added and which rows died (`killed`: segment name to all its dead rows), merge, publish.

    Raises OSError before anything is published, or not at all.
    """
    number = manifest.next_file
    unchanged: list[Segment] = []
    marked: list[Segment] = []
    for segment in segments:
        dead = killed.get(segment.name)
        if dead is None:
            unchanged.append(segment)
            continue
        fresh = dead & segment.live()
        gone = np.unique(segment.passages[fresh])
        better = np.unique(segment.passages[fresh & (segment.kinds == UPGRADED)])
        marked.append(
            replace(
                segment,
                dead=dead,
                dead_file=None,
                dead_count=int(dead.sum()),
                passage_count=segment.passage_count - len(gone),
                upgraded_count=segment.upgraded_count - len(better),
            )
        )
    rows = joined(pending) if any(len(part) for part in pending) else None
    kept, merged = _choose_merges(unchanged + marked, 0 if rows is None else len(rows))
    parts = [part for part in [*(segment.live_rows() for segment in merged), rows] if part and len(part)]
    abouts: list[dict[str, Any]] = []
    for segment in kept:
        about = _about(segment)
        if segment.dead is not None and segment.dead_file is None:
            about["dead"] = f"{number:08d}.dead"
            write_dead(folder / about["dead"], segment.dead)
            number += 1
        abouts.append(about)
    dim = manifest.dim
    if parts:
        together = joined(parts)
        dim = together.vectors.shape[1]
        name = f"{number:08d}.seg"
        write_segment(folder / name, together)
        number += 1
        abouts.append(
            {
                "name": name,
                "rows": len(together),
                "dead": None,
                "passages": len(np.unique(together.passages)),
                "upgraded": len(np.unique(together.passages[together.kinds == UPGRADED])),
            }
        )
    published = Manifest(
        generation=generation,
        sequence=manifest.sequence + 1,
        dim=dim,
        fingerprint=fingerprint or manifest.fingerprint,
        next_file=number,
        segments=tuple(abouts),
    )
    write_manifest(folder, published)
    return published


def _choose_merges(segments: list[Segment], new_rows: int) -> tuple[list[Segment], list[Segment]]:
    """(kept as they are, to be written anew together with the new rows).

    A segment that is a quarter dead is written anew; so is a whole tier of sizes once it has eight members.
    The new rows count as a member of their tier, and the outcome may fill the next.
    """
    merged = [segment for segment in segments if segment.dead_count > DEAD_SHARE * len(segment)]
    rest = sorted((segment for segment in segments if segment not in merged), key=len)
    rows = new_rows + sum(len(segment) - segment.dead_count for segment in merged)
    while True:
        tier = [s for s in rest if _tier(len(s)) <= _tier(rows) and len(s) <= LARGE_ROWS]
        if len(tier) + 1 < TIER_FACTOR:
            return rest, merged
        merged += tier
        rest = [segment for segment in rest if segment not in tier]
        rows += sum(len(segment) - segment.dead_count for segment in tier)


def _tier(rows: int) -> int:
    tier, limit = 0, TIER_FIRST_ROWS
    while rows > limit:
        tier, limit = tier + 1, limit * TIER_FACTOR
    return tier


def _about(segment: Segment) -> dict[str, Any]:
    return {
        "name": segment.name,
        "rows": len(segment),
        "dead": segment.dead_file,
        "passages": segment.passage_count,
        "upgraded": segment.upgraded_count,
    }

"""How much a rescan of unchanged files costs, against a bare scandir + stat walk of the same tree.

    python benchmarks/walk.py [--files 100000] [--rounds 5]

The bar: walk, rules, and comparison with what was known together at most twice the bare walk, in CPU time.
Rounds alternate, and the median of each is told, so that a busy machine harms both alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from pensieve_mcp.corpus.changes import Known, compare, rescan
from pensieve_mcp.corpus.types import FoundFile, Root
from pensieve_mcp.corpus.walk import WalkRules, survey

FILES_PER_FOLDER = 100
OLD_NS = 1_600_000_000 * 10**9  # long before the scan, so that nothing is racily clean


def plant(top: Path, files: int) -> None:
    """Folders three levels deep with 100 small files each and a few rule files, as in a source tree."""
    (top / ".gitignore").write_text("*.log\nbuild/\n/dist\n!keep.log\ntmp-*\ndocs/**/draft\n")
    for number in range(files // FILES_PER_FOLDER):
        folder = top / f"area-{number % 10}" / f"group {number // 10 % 20}" / f"set{number}"
        folder.mkdir(parents=True)
        for item in range(FILES_PER_FOLDER):
            (folder / f"note-{number}-{item}.{('md', 'txt', 'py', 'json')[item % 4]}").write_bytes(b"x")


def bare(top: str) -> int:
    count = 0
    stack = [top]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
                    count += 1
    return count


def no_hash(item: FoundFile) -> bytes:
    raise AssertionError(f"{item.path} was to be hashed although nothing changed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plant(Path(folder), options.files)
        roots = [Root("tree", os.path.realpath(folder))]
        rules = WalkRules()
        known = {
            (item.root, item.raw): Known(number, item.stat, b"")
            for number, item in enumerate(survey(roots, rules))
            if isinstance(item, FoundFile)
        }
        later = time.time_ns() + 3_600 * 10**9
        times: dict[str, list[float]] = {"bare": [], "survey": [], "survey + compare": [], "rescan": []}
        for _ in range(options.rounds):
            start = time.process_time()
            bare(folder)
            times["bare"].append(time.process_time() - start)
            start = time.process_time()
            for _item in survey(roots, rules):
                pass
            times["survey"].append(time.process_time() - start)
            start = time.process_time()
            changes = compare(known, survey(roots, rules), scan_started_ns=later, hash_file=no_hash)
            times["survey + compare"].append(time.process_time() - start)
            assert changes.is_quiet and len(changes.unchanged) == len(known)
            start = time.process_time()
            changes = rescan(known, roots, rules, scan_started_ns=later, hash_file=no_hash)
            times["rescan"].append(time.process_time() - start)
            assert changes.is_quiet and len(changes.unchanged) == len(known)
        base = statistics.median(times["bare"])
        print(f"{len(known):,} unchanged files, CPU seconds, median of {options.rounds} rounds")
        for name, values in times.items():
            print(f"{name:<18}{statistics.median(values):>8.3f} s{statistics.median(values) / base:>8.2f} x")


if __name__ == "__main__":
    main()

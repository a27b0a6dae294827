"""Why a path is in or out, and which rule says so: the walk's own decisions along one path.

Takes the same steps as `walk.py`, folder by folder from the root, so that the two cannot disagree in wording.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Sequence
from dataclasses import dataclass

from pensieve_mcp.corpus.folders import inside, is_link, keys_of, kind_of, open_folder, parts_of, reason_of
from pensieve_mcp.corpus.ignore import GITIGNORE, PENSIEVEIGNORE, Rule
from pensieve_mcp.corpus.layers import Layers, WalkRules, judge, latin
from pensieve_mcp.corpus.names import read_path, show_name, show_path
from pensieve_mcp.corpus.types import FoundFile, Root, Skipped, SkipReason, Unreadable
from pensieve_mcp.corpus.walk import survey


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a path is in or out. `rule` is the one that decided, where one did."""

    path: str
    taken: bool
    reason: SkipReason | None
    detail: str
    rule: Rule | None = None
    exists: bool = True


def explain(roots: Sequence[Root], rules: WalkRules, path: str) -> Explanation:
    """Why a path is in or out: `root/relative/file` as shown, or an absolute path. It need not exist."""
    root, raw = _locate(roots, path)
    if root is None:
        return Explanation(
            path, False, "ignored", "it lies in none of the roots: " + ", ".join(r.name for r in roots)
        )
    shown = show_path(root.name, raw)
    if root.is_file:
        shown = root.name
        for item in survey([root], rules):
            if isinstance(item, FoundFile):
                return Explanation(shown, True, None, "it is a root by itself; no rule hides it")
            if isinstance(item, Skipped):
                return Explanation(shown, False, item.reason, item.detail)
    if raw == b"":
        return Explanation(shown, True, None, "it is a root")
    try:
        return _explain_below(root, rules, shown, parts_of(raw))
    except Unreadable as error:
        return Explanation(shown, False, error.reason, error.detail)
    except OSError as error:
        return Explanation(shown, False, *reason_of(error))


def _locate(roots: Sequence[Root], path: str) -> tuple[Root | None, bytes]:
    best: tuple[Root | None, bytes] = (None, b"")
    longest = -1
    for root in roots:
        if (path == root.name or path.startswith(root.name + "/")) and len(root.name) > longest:
            best, longest = (root, read_path(path[len(root.name) + 1 :].rstrip("/"))), len(root.name)
    if best[0] is not None or not os.path.isabs(path):  # noqa: PTH117
        return best
    # only the folder is resolved: the last name may be a link, and that is then the answer
    head, tail = os.path.split(os.path.normpath(path))
    whole = os.path.join(os.path.realpath(head), tail)  # noqa: PTH118
    for root in roots:
        top = os.path.realpath(root.folder)
        if whole == top or os.path.realpath(whole) == top:
            return root, b""
        if not root.is_file and whole.startswith(top.rstrip(os.sep) + os.sep):
            return root, os.fsencode(whole[len(top.rstrip(os.sep)) + 1 :].replace(os.sep, "/"))
    return best


def _explain_below(root: Root, rules: WalkRules, shown: str, names: list[str]) -> Explanation:
    layers, never = Layers(rules), keys_of(rules.never)
    here, above, part = open_folder(root.folder), layers.top(), root.name
    name: str | None = None
    let_in: Rule | None = None
    try:
        for depth, name_below in enumerate(names):
            own, _ = layers.read(here, [GITIGNORE, PENSIEVEIGNORE], part)
            above = layers.inside(above, name, own)
            name, last = name_below, depth == len(names) - 1
            part = f"{part}/{show_name(name)}"
            try:
                found: os.stat_result | None = here.lstat(name)
            except FileNotFoundError:
                found = None
            is_folder = modes.S_ISDIR(found.st_mode) if found is not None else not last
            verdict = judge(above, rules.hidden, latin(name), is_folder)
            where = "" if last else f"its folder {part} is passed over: "
            if verdict.reason is not None:
                return Explanation(shown, False, verdict.reason, where + verdict.detail, verdict.rule)
            let_in = verdict.rule
            if found is None:
                return Explanation(shown, False, "unreadable", f"{part} does not exist", let_in, exists=False)
            if is_link(found):
                if not rules.follow_links:
                    return Explanation(shown, False, "symlink", where + "links are not followed")
                if inside(root, read_path(part[len(root.name) + 1 :])) is None:
                    return Explanation(shown, False, "symlink", where + "it leads out of its root or nowhere")
                return Explanation(
                    shown, True, None, "a link inside its root, unless its target is taken itself"
                )
            if is_folder and depth >= rules.max_depth:
                detail = where + f"more than {rules.max_depth} folders deep"
                return Explanation(shown, False, "too_deep", detail)
            if is_folder and (found.st_dev, found.st_ino) in never:
                return Explanation(shown, False, "ignored", where + "the folder of our own state")
            if not last:
                below = here.folder(name)
                here.close()
                here = below
                continue
            if not is_folder and not modes.S_ISREG(found.st_mode):
                return Explanation(shown, False, "special", kind_of(found.st_mode))
            if not is_folder and found.st_size > rules.max_file_bytes:
                limit = rules.max_file_bytes
                detail = f"{found.st_size:,} bytes; the limit is {limit:,}"
                return Explanation(shown, False, "too_large", detail)
    finally:
        here.close()
    return Explanation(shown, True, None, f"let in by {let_in}" if let_in else "no rule hides it", let_in)

"""Which rules are in force in which folder, and what they say together about a name.

The patterns themselves are `ignore.py`'s; walking and explaining (`walk.py`, `explaining.py`) ask here.
"""

from __future__ import annotations

import functools
import operator
import os
import stat as modes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pensieve_mcp.corpus.folders import Folder, reason_of
from pensieve_mcp.corpus.ignore import (
    BUILTIN_PATTERNS,
    GITIGNORE,
    MAX_RULE_FILE_BYTES,
    PENSIEVEIGNORE,
    SECRET_PATTERNS,
    Gate,
    Rule,
    Rules,
    list_rules,
    parse_rules,
)
from pensieve_mcp.corpus.types import SkipReason

MAX_DEPTH = 128  # also the number of folders held open at once
MAX_FILES_PER_ROOT = 2_000_000
MAX_FILE_BYTES = 512 * 2**20  # no reader takes more; those that take less say so themselves


@dataclass(frozen=True, slots=True)
class WalkRules:
    """What to take. `patterns` are the person's own, in gitignore syntax, relative to each root and above all
    other rules: `!` there even lets in a secret. `never` are absolute folders that are not entered (our state).

    Order of say: `patterns`; secrets; `.pensieveignore` (deepest folder first; `!` lets in hidden and built-in
    names too); `.gitignore` (likewise, also outside git trees); the built-in list; hidden names.
    """

    patterns: tuple[str, ...] = ()
    gitignore: bool = True
    pensieveignore: bool = True
    builtin: bool = True
    hidden: bool = False  # take names that begin with a dot
    secrets: bool = False  # take what looks like a key or password file
    follow_links: bool = False  # only where the target lies inside the same root
    never: tuple[str, ...] = ()
    max_depth: int = MAX_DEPTH
    max_files: int = MAX_FILES_PER_ROOT
    max_file_bytes: int = MAX_FILE_BYTES


@dataclass(frozen=True, slots=True)
class Layer:
    """One set of rules as it applies in one folder."""

    rules: Rules
    kind: Literal["own", "secret", "pensieve", "git", "builtin"]
    parents: tuple[str, ...] = ()  # folders between the rule file and here, as the matcher sees names


@dataclass(frozen=True, slots=True)
class Verdict:
    reason: SkipReason | None  # None: taken
    rule: Rule | None = None

    @property
    def detail(self) -> str:
        if self.rule is not None:
            return str(self.rule)
        return "names that begin with a dot are not taken" if self.reason == "hidden" else ""


_TAKEN = Verdict(None)
_HIDDEN = Verdict("hidden")


def judge(layers: Sequence[Layer], take_hidden: bool, name: str, is_folder: bool) -> Verdict:
    """The verdict on one name, which is Latin-1 as the matcher sees it."""
    git_spoke = False
    for layer in layers:
        if git_spoke and layer.kind == "git":
            continue
        rule = layer.rules.verdict(name, is_folder, layer.parents)
        if rule is None:
            continue
        if rule.hides:
            return Verdict("secret" if layer.kind == "secret" else "ignored", rule)
        if layer.kind != "git":
            return Verdict(None, rule)
        git_spoke = True
    return _TAKEN if take_hidden or name[0] != "." else _HIDDEN


def latin(name: str) -> str:
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


class Layers:
    """The rules in force, folder by folder: the fixed ones, and those of the rule files above."""

    def __init__(self, rules: WalkRules) -> None:
        self.rules = rules
        fixed: list[tuple[Literal["own", "secret", "builtin"], tuple[str, ...], str]] = [
            ("own", rules.patterns, "settings"),
            ("secret", () if rules.secrets else SECRET_PATTERNS, "secrets"),
            ("builtin", BUILTIN_PATTERNS if rules.builtin else (), "built-in"),
        ]
        self._fixed = {
            kind: list_rules(patterns, source, numbered=kind == "own")
            for kind, patterns, source in fixed
            if patterns
        }

    def top(self) -> tuple[Layer, ...]:
        return tuple(Layer(rules, kind) for kind, rules in self._fixed.items())

    def inside(self, above: tuple[Layer, ...], name: str | None, own: Sequence[Layer]) -> tuple[Layer, ...]:
        """The layers of a folder called `name` (None: the root), with the rule files that lie in it."""
        step = () if name is None else (latin(name),)
        carried = [
            Layer(x.rules, x.kind, x.parents + step) if step and x.rules.needs_parents else x for x in above
        ]
        layers = [*own, *carried]
        return tuple(sorted(layers, key=lambda x: _SAY[x.kind]))

    @staticmethod
    def gate(layers: Sequence[Layer]) -> Gate:
        """Which names directly in a folder with these layers need judging at all (but for hidden ones)."""
        return functools.reduce(operator.or_, (x.rules.gate(x.parents) for x in layers), Gate())

    def read(
        self, folder: Folder, names: Sequence[str], shown: str
    ) -> tuple[list[Layer], list[tuple[str, str]]]:
        """The rule files among `names`, and (name, what is wrong) of those that could not be used in full."""
        layers: list[Layer] = []
        trouble: list[tuple[str, str]] = []
        wanted: list[tuple[str, Literal["pensieve", "git"]]] = []
        if self.rules.pensieveignore and PENSIEVEIGNORE in names:
            wanted.append((PENSIEVEIGNORE, "pensieve"))
        if self.rules.gitignore and GITIGNORE in names:
            wanted.append((GITIGNORE, "git"))
        for name, kind in wanted:
            try:
                fd = folder.open(name)
                with os.fdopen(fd, "rb") as file:
                    if not modes.S_ISREG(os.fstat(fd).st_mode):
                        trouble.append((name, "its rules are not used: not a regular file"))
                        continue
                    found = parse_rules(file.read(MAX_RULE_FILE_BYTES + 1), f"{shown}/{name}")
            except OSError as error:
                trouble.append((name, f"its rules are not used: {reason_of(error)[1]}"))
                continue
            if found.overflow:
                trouble.append((name, f"rules over the limits are not used: {found.overflow:,}"))
            if found:
                layers.append(Layer(found, kind))
        return layers, trouble


_SAY = {
    "own": 0,
    "secret": 1,
    "pensieve": 2,
    "git": 3,
    "builtin": 4,
}  # sorted() is stable: deepest stays first

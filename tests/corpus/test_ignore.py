"""gitignore(5), byte for byte; the judge is git itself."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pensieve_mcp.corpus.ignore import MAX_PATTERN_CHARS, MAX_PATTERNS, match_tokens, parse_rules
from pensieve_mcp.corpus.types import FoundFile, Root
from pensieve_mcp.corpus.walk import WalkRules, survey

NAMES = [
    "a",
    "b",
    "c",
    "ab",
    "foo",
    "bar",
    "foo.txt",
    "bar.log",
    "a.py",
    "build",
    "x y",
    "#h",
    "!b",
    "t ",
    "é",
    "[x]",
    "a-b",
]
PATTERNS = [
    "a", "/a", "a/", "*.txt", "!*.txt", "foo/*", "/foo/**", "**/bar", "foo/**/bar", "*", "!*/", "!foo.txt", "build/",
    "!build/", "[ab]", "[!a]*", "a?", "\\#h", "\\!b", "x\\ y", "t\\ ", "foo/bar", "/foo/bar/", "**", "**/", "a/**",
    "!a/b", "*.log", "!bar.log", "", "# c", "/", "f*o", "*/bar", "!/foo", "foo//bar", "[[:alpha:]]", "a**b", "**a",
    "[a-c]", "\\a", "foo/", "!foo/", ".", "./a", "?", "??", "\\[x]", "[[]x]", "[]x]*", "[a-]*", "[^[:alnum:]]*", "[a/b]",  # noqa: E501
    "a\\/b", "***", "/***/bar", "foo/***", "[[:bogus:]]", "[[:digit]", "[z-a]", "a[-]b", "t ", "foo\\", "[", "*[",
    "**/foo/**", "!**/foo.txt", "/*/", "/*/a", "é", "[é]*", "*.p[!z]",
]  # fmt: skip

needs_git = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed; it is the judge here"
)
GITLIKE = WalkRules(builtin=False, hidden=True, secrets=True, pensieveignore=False, patterns=(".git",))


def plant(top: Path, dice: random.Random) -> None:
    folders = [top]
    for _ in range(6):
        folder = dice.choice(folders) / dice.choice(NAMES)
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for _ in range(25):
        file = dice.choice(folders) / dice.choice(NAMES)
        if not file.exists():
            file.touch()
    for folder in {top, *dice.sample(folders, min(2, len(folders)))}:
        lines = [dice.choice(PATTERNS) for _ in range(dice.randint(1, 5))]
        (folder / ".gitignore").write_text(dice.choice(["\n", "\r\n"]).join(lines) + "\n", newline="")


@needs_git
@pytest.mark.parametrize("seed", range(60))
def test_random_trees_are_read_as_git_reads_them(tmp_path: Path, seed: int) -> None:
    environment = {**os.environ, "HOME": str(tmp_path / "none"), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    top = tmp_path / "tree"
    top.mkdir()
    plant(top, random.Random(seed))
    subprocess.run(["git", "init", "-q", str(top)], check=True, env=environment)

    listed = subprocess.run(
        ["git", "-C", str(top), "ls-files", "-z", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        env=environment,
    )
    expected = {name for name in listed.stdout.split(b"\0") if name}
    found = {x.raw for x in survey([Root("t", str(top))], GITLIKE) if isinstance(x, FoundFile)}

    assert found == expected


@needs_git
def test_single_patterns_are_read_as_git_reads_them(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path / "none"), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=environment)
    paths = [*NAMES, *(f"{a}/{b}" for a in ("a", "foo") for b in NAMES), "foo/a/bar", "a/x/y/b"]
    wrong = []
    for pattern in PATTERNS:
        (tmp_path / ".gitignore").write_text(pattern + "\n")
        asked = subprocess.run(
            ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "-z", "--stdin"],
            input="\0".join(paths).encode(),
            capture_output=True,
            env=environment,
            check=False,
        )
        expected = {name.decode() for name in asked.stdout.split(b"\0") if name}
        rules = parse_rules(pattern.encode(), "x")
        for path in paths:
            parts = [p.encode().decode("latin-1") for p in path.split("/")]
            hidden = False
            for i in range(len(parts)):  # a hidden folder hides all below it
                rule = rules.verdict(parts[i], i < len(parts) - 1, parts[:i])
                if rule is not None and rule.hides:
                    hidden = True
                    break
            if hidden != (path in expected):
                wrong.append((pattern, path, hidden))
    assert wrong == []


class CountingTokens(list):  # type: ignore[type-arg]
    steps = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.steps += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("stars", [10, 100, 1_000])
def test_a_hostile_pattern_costs_at_most_pattern_times_name(stars: int) -> None:
    """`a*a*a*…b` against `aaaa…` never ends in a backtracking engine."""
    rules = parse_rules(("a*" * stars + "b").encode(), "x")
    (_, _, segment) = rules._loose[0]
    tokens, name = CountingTokens(segment.tokens), "a" * 1_000

    assert not match_tokens(tokens, name)
    assert tokens.steps <= 3 * (len(tokens) + 1) * (len(name) + 1)


def test_a_verdict_names_file_line_and_pattern() -> None:
    rules = parse_rules(b"# notes\n\n*.log\n!keep.log\n", "docs/.gitignore")

    hides, lets = rules.verdict("a.log", False), rules.verdict("keep.log", False)

    assert str(hides) == "docs/.gitignore:3: *.log"
    assert lets is not None and not lets.hides and lets.line == 4


def test_rules_over_the_limits_are_counted_not_used() -> None:
    many = parse_rules(b"\n".join(b"name%d" % i for i in range(MAX_PATTERNS + 7)), "x")
    long = parse_rules(b"a" * (MAX_PATTERN_CHARS + 1) + b"\nb\n", "x")
    big = parse_rules(b"# " + b"x" * (2 << 20) + b"\nlate\n", "x")

    assert (len(many.rules), many.overflow) == (MAX_PATTERNS, 7)
    assert (len(long.rules), long.overflow) == (1, 1)
    assert big.overflow > 0 and big.verdict("late", False) is None


def test_the_gate_never_shuts_out_a_name_that_a_rule_speaks_of() -> None:
    for pattern in PATTERNS:
        rules = parse_rules(pattern.encode(), "x")
        for parents in ((), ("a",), ("foo",), ("foo", "a")):
            gate = rules.gate(parents)
            for name in (n.encode().decode("latin-1") for n in NAMES):
                passes = (
                    gate.is_open
                    or name in gate.exact
                    or name.startswith(gate.starts)
                    or name.endswith(gate.ends)
                )
                spoken: Sequence[object] = [
                    r for f in (False, True) if (r := rules.verdict(name, f, parents)) is not None
                ]
                assert passes or not spoken, (pattern, parents, name)

"""Which names a folder asks us to leave alone: git's ignore rules, without regular expressions.

Why our own: a matcher that translates patterns to regular expressions can be made to hang by any indexed
folder, and would hold the interpreter while it does. Here matching one name costs at most
pattern length x name length. Semantics are those of gitignore(5) and git's wildmatch.c, byte for byte.

This module knows patterns and names only; the walk (`walk.py`) decides what a verdict means.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_RULE_FILE_BYTES = 2**20  # facts section 5: a rule file is a note, not a database
MAX_PATTERNS = 10_000
MAX_PATTERN_CHARS = 4_096

GITIGNORE: Final = ".gitignore"
PENSIEVEIGNORE: Final = ".pensieveignore"

BUILTIN_PATTERNS: Final = (
    ".git", ".hg", ".svn", ".bzr", ".jj", "CVS/", "node_modules/", "__pycache__/", ".venv/", "venv/", ".tox/",
    ".nox/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".DS_Store", "Thumbs.db",
    "desktop.ini", "$RECYCLE.BIN/", "System Volume Information/", "~$*", "*.swp", "*.swo", "*.pyc", "*.pyo",
)  # fmt: skip

_STORES = ("credentials", "aws[-_]credentials", "aws[-_]keys", "db[-_]credentials", "passwords")
_STORE_ENDINGS = ("txt", "csv", "json", "ini", "cfg", "conf", "toml", "yml", "yaml", "xml", "properties")
_DATA_ENDINGS = (
    "json",
    "ini",
    "toml",
    "yml",
    "yaml",
    "properties",
)  # of secrets: in these nobody writes prose

SECRET_PATTERNS: Final = (
    ".env", ".env.*", ".envrc", "*.env", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12",
    "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.kdb", "*.ppk", "*.gpg", "*.asc.key", ".ssh/", ".gnupg/", ".aws/",
    ".azure/", ".kube/", ".docker/config.json", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd",
    ".git-credentials", "service-account*.json", "client_secret*.json", "*[-_]accessKeys.csv", "rootkey.csv",
    "aws[-_]credentials", *(f"{name}.{ending}" for name in _STORES for ending in _STORE_ENDINGS),
    *(f"{name}.{ending}" for name in ("secrets", "secrets[-_.]*", "credentials[-_.]*") for ending in _DATA_ENDINGS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern and where it stands. `source` is the rule file as shown to people, or "built-in" and the like."""

    source: str
    line: int  # one-based; 0 where there are no lines
    pattern: str  # as written, undecodable bytes as surrogates
    hides: bool  # False for a `!` pattern, which lets in

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return f"{where}: {self.pattern}"


class _Star:
    """`*` inside one segment: any run of characters."""


_STAR = _Star()
_ANY_FOLDERS = None  # a `**` segment

# A token is one character, a set of characters (`?` and `[…]`), or a star. Characters are bytes read as
# Latin-1, since git compares bytes: `?` does not match a two-byte letter, neither there nor here.
_Token = str | frozenset[str] | _Star
_ALL: Final = frozenset(chr(i) for i in range(256))

_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGIT = frozenset("0123456789")
_PRINT = frozenset(chr(i) for i in range(32, 127))
_SPACE = frozenset(" \t\n\r")
_CLASSES: Final = {
    "alpha": _LOWER | _UPPER,
    "digit": _DIGIT,
    "alnum": _LOWER | _UPPER | _DIGIT,
    "upper": _UPPER,
    "lower": _LOWER,
    "space": _SPACE,
    "blank": frozenset(" \t"),
    "punct": _PRINT - _LOWER - _UPPER - _DIGIT - frozenset(" "),
    "xdigit": _DIGIT | frozenset("abcdefABCDEF"),
    "cntrl": frozenset(chr(i) for i in (*range(32), 127)),
    "print": _PRINT,
    "graph": _PRINT - frozenset(" "),
}


@dataclass(frozen=True, slots=True)
class _Segment:
    """One path segment of a pattern, with the shapes that nearly all patterns have told apart for speed."""

    tokens: Sequence[_Token]
    literal: str | None = None  # the whole name
    suffix: str | None = None  # `*` and then this
    prefix: str | None = None  # this and then `*`

    @property
    def edges(self) -> tuple[str, str]:
        """The letters a matching name surely begins and ends with."""
        lead = "".join(itertools.takewhile(lambda t: isinstance(t, str), self.tokens))  # type: ignore[arg-type]
        tail = "".join(itertools.takewhile(lambda t: isinstance(t, str), reversed(self.tokens)))  # type: ignore[arg-type]
        return lead, tail[::-1]

    def matches(self, name: str) -> bool:
        if self.literal is not None:
            return name == self.literal
        if self.suffix is not None:
            return name.endswith(self.suffix)
        if self.prefix is not None:
            return name.startswith(self.prefix)
        return match_tokens(self.tokens, name)


def match_tokens(tokens: Sequence[_Token], name: str) -> bool:
    """Glob match that backtracks to the last star only: at most len(tokens) x len(name) steps."""
    i = j = 0
    star = -1
    star_at = 0
    n, m = len(tokens), len(name)
    while j < m:
        token = tokens[i] if i < n else None
        if isinstance(token, _Star):
            star, star_at = i, j
            i += 1
        elif token is not None and (token == name[j] if isinstance(token, str) else name[j] in token):
            i += 1
            j += 1
        elif star >= 0:
            star_at += 1
            j = star_at
            i = star + 1
        else:
            return False
    while i < n and isinstance(tokens[i], _Star):
        i += 1
    return i == n


def _bracket(text: str, i: int) -> tuple[frozenset[str], int] | None:
    """Read `[…]` whose `[` stands at i - 1; the set and the place after `]`, or None when malformed.

    Follows wildmatch.c step by step, with its view of `[:` without `:]`, of `-` at the ends and after a class.
    """
    n = len(text)
    negated = i < n and text[i] in "!^"
    if negated:
        i += 1
    found: set[str] = set()
    previous = ""
    first = True
    while first or i >= n or text[i] != "]":
        first = False
        if i >= n:
            return None
        char = text[i]
        if char == "\\":
            i += 1
            if i >= n:
                return None
            char = text[i]
            found.add(char)
        elif char == "-" and previous and i + 1 < n and text[i + 1] != "]":
            i += 1
            last = text[i]
            if last == "\\":
                i += 1
                if i >= n:
                    return None
                last = text[i]
            found.update(chr(c) for c in range(ord(previous), ord(last) + 1))
            char = ""
        elif char == "[" and text[i + 1 : i + 2] == ":":
            end = text.find("]", i + 2)
            if end < 0:
                return None
            if end == i + 2 or text[end - 1] != ":":
                found.add("[")
            else:
                members = _CLASSES.get(text[i + 2 : end - 1])
                if members is None:
                    return None
                found.update(members)
                i = end
                char = ""
        else:
            found.add(char)
        previous = char
        i += 1
    return (_ALL - found if negated else frozenset(found)), i + 1


def _segments(text: str) -> list[_Segment | None] | None:
    """Cut a pattern into segments at its slashes (escaped ones too, but not those in brackets); None: never matches."""
    segments: list[_Segment | None] = []
    tokens: list[_Token] = []
    only_stars = 0  # how many stars this segment has, while it has nothing else

    def close() -> bool:
        nonlocal tokens, only_stars
        if only_stars >= 2:
            if not segments or segments[-1] is not _ANY_FOLDERS:
                segments.append(_ANY_FOLDERS)
        elif not tokens:
            return False  # `a//b` names nothing
        else:
            segments.append(_segment(tokens))
        tokens, only_stars = [], 0
        return True

    i, n = 0, len(text)
    while i < n:
        char = text[i]
        if char == "*":
            if not tokens or not isinstance(tokens[-1], _Star):
                tokens.append(_STAR)
                only_stars = 1 if len(tokens) == 1 else -1
            elif len(tokens) == 1 and only_stars > 0:
                only_stars += 1
            i += 1
            continue
        if char == "/" or text.startswith("\\/", i):
            if not close():
                return None
            i += 1 if char == "/" else 2
            continue
        only_stars = -1
        if char == "\\":
            if i + 1 >= n:
                return None
            tokens.append(text[i + 1])
            i += 2
        elif char == "?":
            tokens.append(_ALL)
            i += 1
        elif char == "[":
            read = _bracket(text, i + 1)
            if read is None:
                return None
            tokens.append(read[0])
            i = read[1]
        else:
            tokens.append(char)
            i += 1
    return segments if close() else None


def _segment(tokens: list[_Token]) -> _Segment:
    plain = [t for t in tokens if isinstance(t, str)]
    if len(plain) == len(tokens):
        return _Segment(tokens, literal="".join(plain))
    if len(plain) == len(tokens) - 1:
        if isinstance(tokens[0], _Star):
            return _Segment(tokens, suffix="".join(plain))
        if isinstance(tokens[-1], _Star):
            return _Segment(tokens, prefix="".join(plain))
    return _Segment(tokens)


def _match_path(segments: Sequence[_Segment | None], parts: Sequence[str]) -> bool:
    """The same backtracking one level up, where `**` takes the place of the star."""
    i = j = 0
    star = -1
    star_at = 0
    n, m = len(segments), len(parts)
    while j < m:
        segment = segments[i] if i < n else None
        if i < n and segment is _ANY_FOLDERS:
            if i == n - 1:
                return True
            star, star_at = i, j
            i += 1
        elif segment is not None and segment.matches(parts[j]):
            i += 1
            j += 1
        elif star >= 0:
            star_at += 1
            j = star_at
            i = star + 1
        else:
            return False
    return i == n


@dataclass(frozen=True, slots=True)
class Gate:
    """A quick refusal, since nearly every name is one that no rule speaks of. True only says "perhaps"."""

    exact: frozenset[str] = frozenset()
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    is_open: bool = False  # some pattern is too general to tell; every name must be asked for

    def __or__(self, other: Gate) -> Gate:
        starts, ends = {*self.starts, *other.starts}, {*self.ends, *other.ends}
        is_open = self.is_open or other.is_open or len(starts) + len(ends) > MAX_GATE
        return Gate(self.exact | other.exact, tuple(starts), tuple(ends), is_open)


MAX_GATE = 200  # beyond this many beginnings and endings, trying them all costs more than asking the rules


def _alive(segments: Sequence[_Segment | None], parents: Sequence[str]) -> bool:
    """Whether a pattern with slashes can still match something directly in the folder `parents`."""
    for segment, name in zip(segments, parents, strict=False):
        if segment is _ANY_FOLDERS:
            return True
        if not segment.matches(name):
            return False
    return len(segments) == len(parents) + 1 or _ANY_FOLDERS in segments[: len(parents) + 1]


class Rules:
    """The patterns of one rule file, ready to be asked. Names and paths are bytes read as Latin-1 (`as_name`)."""

    __slots__ = (
        "_by_ending",
        "_by_name",
        "_loose",
        "_pathed",
        "_prefixes",
        "_shaped",
        "_suffixes",
        "overflow",
        "rules",
    )

    def __init__(self, lines: Iterable[str], source: str, *, numbered: bool = True) -> None:
        """`lines` are Latin-1 views of the file's bytes; `overflow` tells how many patterns were over the caps."""
        self.rules: list[Rule] = []
        self.overflow = 0
        # Most rules are one name or `*.ending`; those are found by dictionary, newest rule first.
        self._by_name: dict[str, list[tuple[int, bool]]] = {}
        self._by_ending: dict[str, list[tuple[int, bool]]] = {}
        self._loose: list[tuple[int, bool, _Segment]] = []  # other patterns without a slash
        self._pathed: list[tuple[int, bool, list[_Segment | None]]] = []
        for number, line in enumerate(lines, 1):
            self._add(line, source, number if numbered else 0)
        for table in (self._by_name, self._by_ending):
            for found in table.values():
                found.reverse()
        self._loose.reverse()
        self._pathed.reverse()
        # When all loose patterns are `*x` or `x*`, two C calls tell the names that none of them can match.
        self._prefixes = tuple(s.prefix for *_, s in self._loose if s.prefix is not None)
        self._suffixes = tuple(s.suffix for *_, s in self._loose if s.suffix is not None)
        self._shaped = len(self._prefixes) + len(self._suffixes) == len(self._loose)

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def needs_parents(self) -> bool:
        """Whether any pattern looks at the folders above a name."""
        return bool(self._pathed)

    def _add(self, line: str, source: str, number: int) -> None:
        line = line.removesuffix("\r")
        if not line or line[0] == "#":
            return
        if len(line) > MAX_PATTERN_CHARS or len(self.rules) >= MAX_PATTERNS:
            self.overflow += 1
            return
        text = line = _without_trailing_spaces(line)
        hides = not text.startswith("!")
        if not hides:
            text = text[1:]
        folders_only = text.endswith("/")
        if folders_only:
            text = text[:-1]
        if not text:
            return
        anchored = "/" in text
        segments = _segments(text.removeprefix("/"))
        if segments is None:
            return
        index = len(self.rules)
        self.rules.append(
            Rule(source, number, line.encode("latin-1").decode("utf-8", "surrogateescape"), hides)
        )
        if anchored:
            if len(segments) > 1 and segments[-1] is _ANY_FOLDERS:
                segments.append(_Segment([_STAR], suffix=""))  # `a/**` is what lies inside a, not a itself
            self._pathed.append((index, folders_only, segments))
            return
        segment = segments[0] or _Segment([_STAR], suffix="")
        if segment.literal is not None:
            self._by_name.setdefault(segment.literal, []).append((index, folders_only))
        elif segment.suffix is not None and segment.suffix[:1] == "." and segment.suffix.count(".") == 1:
            self._by_ending.setdefault(segment.suffix, []).append((index, folders_only))
        else:
            self._loose.append((index, folders_only, segment))

    def gate(self, parents: Sequence[str]) -> Gate:
        """Which names in the folder `parents` any of these rules could speak of at all."""
        exact = {*self._by_name}
        starts: set[str] = set()
        ends = {*self._by_ending}
        is_open = False
        pathed = (segments[-1] for *_, segments in self._pathed if _alive(segments, parents))
        for segment in (*(segment for *_, segment in self._loose), *pathed):
            if segment is not None and segment.literal is not None:
                exact.add(segment.literal)
                continue
            lead, tail = segment.edges if segment is not None else ("", "")
            if lead:
                starts.add(lead)
            elif tail:
                ends.add(tail)
            else:
                is_open = True
        return Gate(frozenset(exact), tuple(starts), tuple(ends), is_open)

    def verdict(self, name: str, is_folder: bool, parents: Sequence[str] = ()) -> Rule | None:
        """The last rule that matches `name`, or None. `parents` are the folders between the rule file and it."""
        best = -1
        for index, folders_only in self._by_name.get(name, ()):
            if is_folder or not folders_only:
                best = index
                break
        if self._by_ending:
            dot = name.rfind(".")
            if dot >= 0:
                for index, folders_only in self._by_ending.get(name[dot:], ()):
                    if index < best:
                        break
                    if is_folder or not folders_only:
                        best = index
                        break
        if self._shaped and not (name.startswith(self._prefixes) or name.endswith(self._suffixes)):
            loose: Sequence[tuple[int, bool, _Segment]] = ()
        else:
            loose = self._loose
        for index, folders_only, segment in loose:
            if index < best:
                break
            if (is_folder or not folders_only) and segment.matches(name):
                best = index
                break
        if self._pathed:
            parts = (*parents, name)
            for index, folders_only, segments in self._pathed:
                if index < best:
                    break
                if (is_folder or not folders_only) and _match_path(segments, parts):
                    best = index
                    break
        return self.rules[best] if best >= 0 else None


def _without_trailing_spaces(line: str) -> str:
    end = len(line)
    while end and line[end - 1] == " ":
        before = line[: end - 1]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            break  # `\ ` keeps its space
        end -= 1
    return line[:end]


def as_name(raw: bytes) -> str:
    """A name as the matcher sees it: one character per byte, as git compares."""
    return raw.decode("latin-1")


def parse_rules(data: bytes, source: str) -> Rules:
    """Read a rule file. What lies beyond the first megabyte, or is over the caps, is counted in `overflow`."""
    lines = data[:MAX_RULE_FILE_BYTES].removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    rules = Rules(lines, source)
    if len(data) > MAX_RULE_FILE_BYTES:
        rules.overflow += 1
    return rules


def list_rules(patterns: Iterable[str], source: str, *, numbered: bool = False) -> Rules:
    """Rules from a list in code or settings instead of a file."""
    return Rules(
        (p.encode("utf-8", "surrogateescape").decode("latin-1") for p in patterns), source, numbered=numbered
    )

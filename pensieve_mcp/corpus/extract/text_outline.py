"""Where the headings of a text stand: Markdown, rst, Org, TeX, AsciiDoc, source code, ini and the like.

One regular expression per format finds candidates in a single pass; a little state tells fenced code and
literal parts from headings. Only places and titles come out; nothing of the text is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pensieve_mcp.corpus.extract.text_blocks import Heading

TITLE_CHARS = 160  # a heading path is shown in every locator
MAX_HEADING_CHARS = 2_000  # of a line that is looked at for pictures and links
MAX_DEPTH = 16


class Levels:
    """A heading path: a new title of level n takes the place of all at level n and deeper."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self.title = ""

    def enter(self, level: int, title: str) -> tuple[str, ...]:
        title = " ".join(title.split())[:TITLE_CHARS]
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        if title and len(self._open) < MAX_DEPTH:
            self._open.append((level, title))
            if not self.title:
                self.title = title
        return tuple(name for _, name in self._open)


class Markdown:
    """ATX and setext headings; fenced code and the front matter hold none."""

    # [^\S\n] is a space within the line; quantifiers are bounded or possessive by exclusion, so a pass is linear
    _MARK = re.compile(
        r"^(?P<fence> {0,3}(?:`{3,}|~{3,}))(?P<info>[^\n]*)$"
        r"|^ {0,3}(?P<hashes>#{1,6})(?:[ \t]+(?P<title>[^\n]*))?$"
        r"|^(?P<text> {0,3}[^\s#>|`~+*=\-][^\n]*)\n {0,3}(?P<line>=+|-{2,})[ \t]*$",
        re.MULTILINE,
    )

    def __init__(self) -> None:
        self._levels = Levels()
        self._fence = ""
        self._begun = False

    @property
    def title(self) -> str:
        return self._levels.title

    def headings(self, text: str) -> Iterator[Heading]:
        start = 0
        if not self._begun:
            self._begun = True
            if text.startswith("---\n"):
                end = text.find("\n---\n", 3)
                start = end + 5 if end >= 0 else 0
        for match in self._MARK.finditer(text, start):
            fence = match["fence"]
            if fence is not None:
                mark = fence.strip()
                if not self._fence:
                    if mark[0] == "~" or "`" not in match["info"]:
                        self._fence = mark
                elif mark.startswith(self._fence) and not match["info"].strip():
                    self._fence = ""
            elif self._fence:
                continue
            elif match["hashes"] is not None:
                title = re.sub(r"(?:^|[ \t]+)#+[ \t]*$", "", match["title"] or "")
                yield match.start(), self._levels.enter(len(match["hashes"]), without_pictures(title))
            else:
                level = 1 if match["line"][0] == "=" else 2
                yield match.start(), self._levels.enter(level, without_pictures(match["text"]))


def without_pictures(title: str) -> str:
    """A heading as it is read: a picture by what it says instead, a link by its words, no HTML tags."""
    title = re.sub(r"<img\b[^<>]*?\balt=[\"']([^\"'<>]*)[\"'][^<>]*>", r"\1", title[:MAX_HEADING_CHARS])
    title = re.sub(r"!\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])", r"\1", title)
    title = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", title)
    return _TAGS.sub("", title).strip()


# of HTML those that stand in headings; List<String> is none of them
_TAGS = re.compile(
    r"</?(?:a|abbr|b|br|code|div|em|i|img|kbd|p|picture|source|span|strong|sub|sup)\b[^<>]*>", re.I
)


class Rst:
    """A line of text under a line of one punctuation mark, perhaps with such a line above; levels by first use."""

    _MARK = re.compile(
        r"^(?:(?P<over>([!-/:-@\[-`{-~])\2{2,})[ \t]*\n)?"
        r"(?P<title>[^\n]{1,400})\n(?P<under>([!-/:-@\[-`{-~])\5{1,})[ \t]*$",
        re.MULTILINE,
    )

    def __init__(self) -> None:
        self._levels = Levels()
        self._styles: list[tuple[bool, str]] = []

    @property
    def title(self) -> str:
        return self._levels.title

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._MARK.finditer(text):
            over, title, under = match["over"], match["title"], match["under"]
            if not title.strip() or (over is None and title[0] in " \t"):
                continue
            if len(under) < min(len(title.strip()), 40) or (over is not None and over[0] != under[0]):
                continue
            style = (over is not None, under[0])
            if style not in self._styles:
                self._styles.append(style)
            yield match.start(), self._levels.enter(self._styles.index(style) + 1, title)


class Marked:
    """Headings told by a mark whose length is the level, and paired marks around literal text."""

    def __init__(self, mark: re.Pattern[str], literal: re.Pattern[str]) -> None:
        self._mark, self._literal = mark, literal
        self._levels = Levels()
        self._inside = ""

    @property
    def title(self) -> str:
        return self._levels.title

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._mark.finditer(text):
            fence = match["fence"]
            if fence is not None:
                if not self._inside:
                    opens = self._literal.match(fence)
                    if opens is not None:
                        self._inside = (opens[1] or fence).strip().lower()
                elif self._closes(fence):
                    self._inside = ""
            elif not self._inside:
                yield match.start(), self._levels.enter(len(match["level"]), match["title"])

    def _closes(self, fence: str) -> bool:
        fence = fence.strip().lower()
        return fence == self._inside or fence == f"#+end_{self._inside}"


def org() -> Marked:
    return Marked(
        re.compile(
            r"^(?P<fence>[ \t]*#\+(?:begin|end)_\w+)|^(?P<level>\*{1,20})[ \t]+(?P<title>[^\n]+)$",
            re.M | re.I,
        ),
        re.compile(r"[ \t]*#\+begin_(\w+)", re.I),
    )


def asciidoc() -> Marked:
    return Marked(
        re.compile(
            r"^(?P<fence>-{4,}|\.{4,}|\+{4,}|/{4,}|_{4,}|`{3,})[ \t]*$"
            r"|^(?P<level>={1,6}|#{1,6})[ \t]+(?P<title>[^\n]+)$",
            re.M,
        ),
        re.compile(r"()"),
    )


class Tex:
    """\\part to \\paragraph; the title ends at its closing brace or the line."""

    _LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
    _MARK = re.compile(
        r"^[^%\n]{0,40}?\\(?P<level>part|chapter|section|subsection|subsubsection|paragraph|subparagraph|title)"
        r"\*?(?:\[[^\]\n]{0,200}\])?\{(?P<title>[^\n]{1,300})",
        re.M,
    )

    def __init__(self) -> None:
        self._levels = Levels()
        self._title = ""

    @property
    def title(self) -> str:
        return self._title or self._levels.title

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._MARK.finditer(text):
            title = _to_brace(match["title"])
            title = re.sub(r"\\[a-zA-Z]+\*?[ \t]*|[{}~]", " ", title)
            if match["level"] == "title":
                self._title = self._title or " ".join(title.split())[:TITLE_CHARS]
                continue
            yield match.start(), self._levels.enter(self._LEVELS.index(match["level"]) + 1, title)


def _to_brace(text: str) -> str:
    depth = 1
    for i, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if not depth:
            return text[:i]
    return text


class Python:
    """Classes and functions by their indent; text in triple quotes holds none. Decorators go with what they adorn."""

    title = ""
    _MARK = re.compile(
        r"^(?P<indent>[ \t]*)(?:async[ \t]+def|def|class)[ \t]+(?P<name>\w+)|(?P<quote>\"\"\"|''')|^[ \t]*#[^\n]*",
        re.M,
    )

    def __init__(self) -> None:
        self._levels = Levels()
        self._quote = ""

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._MARK.finditer(text):
            quote = match["quote"]
            if quote is not None:
                if not self._quote:
                    self._quote = quote
                elif self._quote == quote:
                    self._quote = ""
            elif match["name"] is not None and not self._quote:
                level = len(match["indent"].expandtabs(8)) + 1
                yield _with_decorators(text, match.start()), self._levels.enter(level, match["name"])


def _with_decorators(text: str, start: int) -> int:
    for _ in range(20):
        above = text.rfind("\n", 0, max(0, start - 1)) + 1
        if above >= start or not text[above:start].lstrip().startswith("@"):
            break
        start = above
    return start


class Code:
    """Definitions at the left margin, or one step in, of languages with braces or `end`."""

    title = ""
    _MARK = re.compile(
        r"^(?P<indent>[ \t]{0,4})(?:(?:export|default|public|private|protected|internal|static|abstract|final|sealed"
        r"|async|pub(?:\([a-z]{1,20}\))?|unsafe|inline|virtual|override|partial|open|data|local)[ \t]+){0,5}"
        r"(?:class|interface|struct|enum|trait|impl|module|namespace|function|func|fn|def|sub|procedure|type|record"
        r"|object|protocol|extension|package)[ \t]+(?P<name>[A-Za-z_$][\w$.:]{0,100})",
        re.M,
    )

    def __init__(self) -> None:
        self._levels = Levels()

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._MARK.finditer(text):
            yield match.start(), self._levels.enter(len(match["indent"].expandtabs(4)) + 1, match["name"])


class Sections:
    """`[section]` lines of TOML, ini and their kin."""

    _MARK = re.compile(r"^\[{1,2}(?P<title>[^\[\]\n]{1,200})\]{1,2}[ \t]*(?:[#;][^\n]*)?$", re.M)
    title = ""

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._MARK.finditer(text):
            yield match.start(), (" ".join(match["title"].split())[:TITLE_CHARS],)


class Keys:
    """Keys at the left margin of YAML."""

    _MARK = re.compile(r"^(?P<title>[^\s#\-:\[\]{}\"'][^\n:]{0,100}):[ \t]*(?:[#|>&!][^\n]*)?$", re.M)
    title = ""

    def headings(self, text: str) -> Iterator[Heading]:
        for match in self._MARK.finditer(text):
            yield match.start(), (match["title"].strip()[:TITLE_CHARS],)

"""Readers of the text formats: what the sample library must yield, and hostile files within bounds."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.corpus.extract.text_blocks import SOFT_CUT_CHARS
from pensieve_mcp.corpus.extract.text_formats import html_pieces, text_extractors
from pensieve_mcp.corpus.types import Block, Facts, FileHint, Limits, Piece, Unreadable

LIBRARY = Path(__file__).parent.parent / "library"
MINE = ("eml", "mbox", "html", "csv", "ipynb", "rst", "org", "txt", "xml", "own")
READERS = text_extractors()


class Read:
    """A file read whole: text, blocks with offsets in it, units, facts."""

    def __init__(self, name: str, data: bytes, limits: Limits | None = None) -> None:
        suffix = "." + name.rpartition(".")[2].lower() if "." in name else ""
        self.text, self.blocks, self.units = "", list[Block](), list[tuple[str, int, str]]()
        self.facts: Facts | None = None
        parts, at = [], 0
        reader = READERS.get(suffix, READERS[""])
        for item in reader.extract(io.BytesIO(data), FileHint(name, len(data)), limits or Limits()):
            if isinstance(item, Facts):
                self.facts = item
                continue
            end = 0
            for b in item.blocks:
                assert end <= b.start < b.end <= len(item.text), "blocks ascend and lie inside their piece"
                end = b.end
                self.blocks.append(Block(at + b.start, at + b.end, b.heading, b.first_line, b.last_line))
            if (item.kind, item.ordinal, item.label) not in self.units[-1:]:
                self.units.append((item.kind, item.ordinal, item.label))
            parts.append(item.text)
            at += len(item.text)
        self.text = "".join(parts)
        assert self.facts is not None

    def block_of(self, phrase: str) -> Block:
        at = self.text.index(phrase)
        return next(b for b in self.blocks if b.start <= at < b.end)

    def line_of(self, phrase: str) -> tuple[int, int]:
        assert self.facts is not None
        if self.facts.verbatim:
            line = self.text.count("\n", 0, self.text.index(phrase)) + 1
            return line, line
        block = self.block_of(phrase)
        assert block.first_line is not None
        return block.first_line, block.last_line or block.first_line


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split()).casefold()


def library() -> dict[str, dict[str, Any]]:
    if not (LIBRARY / "expected.json").exists():
        return {}
    files = json.loads((LIBRARY / "expected.json").read_text("utf-8"))["files"]
    return {k: v for k, v in files.items() if k.split("/")[0] in MINE and not k.endswith(".pdf")}


def test_the_sample_library_is_there() -> None:
    if not library():
        pytest.skip("tests/library is missing: the formats are not checked against real files")
    assert len(library()) >= 36


@pytest.mark.parametrize("name", library())
def test_the_sample_library_yields_what_it_must(name: str) -> None:
    expected = library()[name]
    data = (LIBRARY / "files" / name).read_bytes()
    if expected.get("expect") == "skip":
        with pytest.raises(Unreadable) as caught:
            Read(name, data)
        assert caught.value.reason in {r.replace(" ", "_") for r in expected["reasons"]}
        return

    read = Read(name, data)

    assert [p for p in expected["phrases"] if folded(p) not in folded(read.text)] == []
    assert [p for p in expected.get("absent", []) if folded(p) in folded(read.text)] == []
    for phrase, line in expected.get("lines", {}).items():
        first, last = read.line_of(phrase)
        assert first <= line <= last, (phrase, first, last)
    for phrase, section in expected.get("section", {}).items():
        assert read.block_of(phrase).heading[-1:] == (section,), phrase
    if "encoding" in expected:
        assert read.facts is not None and read.facts.encoding == expected["encoding"]


@pytest.mark.parametrize(
    ("name", "text", "phrase", "heading"),
    [
        ("a.md", "---\ntitle: x\n---\n\nTop\n===\n\nSub\n---\nhere\n", "here", ("Top", "Sub")),
        ("a.md", "# A #\n~~~\n# no\n```\n~~~\n## B\n\nhere", "here", ("A", "B")),
        ("a.rst", "=====\nTitle\n=====\n\nPart\n----\n\nhere\n", "here", ("Title", "Part")),
        ("a.org", "* A\n#+begin_src sh\n* no\n#+end_src\n** B\nhere\n", "here", ("A", "B")),
        (
            "a.tex",
            "\\chapter{One {\\em two}}\n% \\section{no}\n\\section*{Three}\nhere\n",
            "here",
            ("One two", "Three"),
        ),
        ("a.adoc", "= Doc\n\n----\n== no\n----\n\n== Part\nhere\n", "here", ("Doc", "Part")),
        (
            "a.py",
            'class A:\n    """\n    def no\n    """\n    @deco\n    def f(self):\n        here = 1\n',
            "here",
            ("A", "f"),
        ),
        ("a.py", "class A:\n    @deco\n    def f(self):\n        pass\n", "@deco", ("A", "f")),
        ("a.go", "package main\n\nfunc Serve() {\n  here\n}\n", "here", ("Serve",)),
        ("a.toml", "[tool.x]\nhere = 1\n", "here", ("tool.x",)),
        ("a.yaml", "jobs:\n  test: here\n", "here", ("jobs",)),
        ("a.csv", 'name,note\nx,"two\nlines here"\n', "here", ("name | note",)),
        ("a.html", "<h1>A</h1><h2>B</h2><p>x</p><h2>C</h2><p>here", "here", ("A", "C")),
    ],
)
def test_a_block_knows_the_headings_above_it(
    name: str, text: str, phrase: str, heading: tuple[str, ...]
) -> None:
    assert Read(name, text.encode()).block_of(phrase).heading == heading


def test_html_shows_what_a_reader_sees() -> None:
    page = (
        "<title>T</title><style>no1</style><script>no2 </p></script><noscript>no3</noscript><svg><text>no4</text></svg>"
        "<textarea>no5</textarea><!-- no6 --><p>one&nbsp;&amp; two<br>three</p>\n\n<img alt='a picture'>"
        "<pre>  keep\n    this</pre><table><tr><td>a<td>b</table><p title='hint'>four"
    )
    read = Read("a.html", page.encode())

    assert "no" not in re.sub(r"\W", " ", read.text).replace("note", "")
    for phrase in ("one & two\nthree", "a picture", "  keep\n    this", "hint four"):
        assert phrase in read.text
    assert read.facts is not None and read.facts.title == "T"
    assert read.line_of("a picture") == (3, 3)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_html_in_any_charset_for_epub_and_mail(encoding: str) -> None:
    data = "<meta charset='iso-8859-1'><p>la reine est marquée</p>".encode(encoding)

    pieces = [x for x in html_pieces(data, kind="chapter", ordinal=3, label="iii") if isinstance(x, Piece)]

    assert [(p.text, p.kind, p.ordinal, p.label) for p in pieces] == [
        ("la reine est marquée\n", "chapter", 3, "iii")
    ]


def test_json_that_people_cannot_read_is_laid_out_with_its_lines() -> None:
    text = '{"hives": [\n{"note": "colonie tr\\u00e8s forte \\ud83d\\udc1d"},\n{"note": "deux\\nlignes"}]}'
    read = Read("a.json", text.encode())

    assert "note: colonie très forte 🐝" in read.text and "deux" in read.text
    first, last = read.line_of("deux")
    assert first <= 3 <= last
    long = json.dumps({"apiary": {"hives": [{"note": "très fort " * 9} for _ in range(99)]}}, indent=1)
    assert Read("a.json", long.encode()).blocks[-2].heading == ("apiary", "hives")


def test_minified_json_is_laid_out_and_readable_json_is_kept() -> None:
    minified = json.dumps([{"id": i, "note": "strong colony"} for i in range(500)]).encode()
    readable = json.dumps({"a": {"b": "c"}}, indent=2).encode()

    assert Read("a.json", minified).text.count("\n") >= 500
    kept = Read("a.json", readable)
    assert kept.text == readable.decode() and kept.facts is not None and kept.facts.verbatim


def test_each_record_of_jsonl_is_a_block_with_its_line() -> None:
    read = Read("a.jsonl", b'{"a": "x\\ny"}\n\n{"b": [1, 2], "c": {"d": null}}\nnot json\n')

    assert [(b.first_line, read.text[b.start : b.end]) for b in read.blocks] == [
        (1, "a: x\ny\n"), (3, "b: 1, 2\nc.d: null\n"), (4, "not json\n"),
    ]  # fmt: skip


def test_notebook_cells_are_units_with_their_output() -> None:
    book = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "words"]},
            {
                "cell_type": "code",
                "source": "1 + 1",
                "outputs": [
                    {"output_type": "execute_result", "data": {"text/plain": ["2"], "image/png": "AAAA"}},
                    {"output_type": "stream", "text": "printed"},
                    {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m"]},
                ],
            },
        ]
    }
    read = Read("a.ipynb", json.dumps(book).encode())

    assert read.units == [("cell", 1, "markdown 1"), ("cell", 2, "code 2")]
    assert all(x in read.text for x in ("words", "1 + 1", "2", "printed", "ValueError"))
    assert "AAAA" not in read.text and "\x1b" not in read.text
    assert read.block_of("printed").heading == ("Title",)


def test_subtitles_keep_their_times_and_calendars_unfold() -> None:
    subtitles = Read(
        "a.srt",
        b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHello\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\nBye\r\n",
    )
    assert len(subtitles.blocks) == 2 and "00:00:03,000" in subtitles.text

    calendar = Read(
        "a.ics",
        b"BEGIN:VEVENT\r\nSUMMARY:Honey har\r\n vest\\, part 1\r\nDTSTART;TZID=X:20240501\r\nEND:VEVENT\r\n",
    )
    assert "SUMMARY: Honey harvest, part 1\nDTSTART: 20240501" in calendar.text
    assert calendar.block_of("harvest").heading == ("Honey harvest, part 1",)


def test_xml_gives_text_with_its_names_and_fetches_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary.txt"
    canary.write_text("canary")
    doctype = f'<!DOCTYPE r [<!ENTITY x SYSTEM "{canary.as_uri()}"><!ENTITY y "inner">]>'
    read = Read(
        "a.xml", f'{doctype}\n<r><a label="A label">&x;&y;</a>\n<p>mixed <b>bold</b> text</p></r>'.encode()
    )

    assert "canary" not in read.text and "inner" in read.text
    assert "label: A label" in read.text and "mixed bold text" in read.text
    assert read.line_of("mixed") == (3, 3)


def test_broken_xml_is_read_as_text_with_a_warning_and_a_bomb_refused() -> None:
    broken = Read("a.xml", b"<a><b>words</a>")
    assert "words" in broken.text and broken.facts is not None and broken.facts.warnings

    entities = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "aaaaaaaaaa"}">' for i in range(9))
    with pytest.raises(Unreadable, match="bomb"):
        Read("a.xml", f"<!DOCTYPE r [{entities}]><r>&a8;</r>".encode())


def test_mail_shows_headers_body_and_text_attachments() -> None:
    mail = (
        b"Subject: =?utf-8?q?Caf=C3=A9?=\r\nFrom: =?iso-8859-1?Q?Ren=E9?= <r@x.y>\r\nX-Noise: no\r\n"
        b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain; charset=cp1252\r\n\r\n'
        b"caf\xe9 body\r\n--b\r\nContent-Disposition: attachment; filename=notes.md\r\n\r\n# Heading\r\n\r\nattached\r\n"  # noqa: E501
        b"--b\r\nContent-Type: image/png; name=p.png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n--b--\r\n"  # noqa: E501
    )
    read = Read("a.eml", mail)

    assert read.text.startswith("Subject: Café\nFrom: René <r@x.y>\n") and "X-Noise" not in read.text
    assert "café body" in read.text and "p.png (image/png" in read.text
    assert read.units == [("message", 1, "Café"), ("body", 1, "notes.md")]
    assert read.block_of("attached").heading == ("Heading",)


def test_a_mailbox_is_cut_into_messages() -> None:
    box = (
        b"From a@b.c Mon Jul 20 01:01:07 2015\nSubject: one\n\nFrom here on, text\n>From quoted\n\n"
        b"From a@b.c Mon Jul 20 01:01:08 2015\nSubject: two\n\nbye\n"
    )
    read = Read("a.mbox", box)

    assert read.units == [("message", 1, "one"), ("message", 2, "two")]
    assert "From here on, text\nFrom quoted" in read.text
    assert read.block_of("bye").first_line == 8


NESTED = b'Subject: x\nContent-Type: multipart/mixed; boundary="b0"\n\n' + b"".join(
    b'--b%d\nContent-Type: multipart/mixed; boundary="b%d"\n\n' % (i, i + 1) for i in range(3_000)
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("nested.eml", NESTED + b"hello"),
        ("rfc822.eml", b"Subject: x\nContent-Type: message/rfc822\n\n" * 2_000 + b"hello"),
        (
            "parts.eml",
            b'Subject: y\nContent-Type: multipart/mixed; boundary="b"\n\n' + b"--b\n\nhi\n" * 3_000,
        ),
        ("comments.html", b"<!-- " * 100_000 + b"words"),
        ("deep.html", b"<div>" * 50_000 + b"words"),
        ("angles.html", b"<" * 100_000 + b"words"),
        ("cdata.html", b"<![CDATA[" * 50_000 + b"> words"),
        ("quotes.html", b"<a b='\"' c=\"'" * 20_000 + b"> words"),
        ("pi.html", b"<?" * 50_000 + b"words"),
        ("deep.json", b"[" * 200_000 + b'"words"'),
        ("deep.jsonl", b"[" * 200_000 + b"words"),
        ("deep.ipynb", b"[" * 100_000 + b'"words"'),
        ("digits.jsonl", b"1" * 10_000 + b"\nwords"),
        ("deep.xml", b"<a>" * 100_000 + b"words"),
        ("quote.csv", b'"words' + b"\n,x" * 50_000),
        ("rules.rst", b"==== words " * 50_000),
    ],
)
def test_hostile_files_cost_one_pass_and_give_what_they_have(name: str, data: bytes) -> None:
    assert Read(name, data).text.strip()


def test_one_line_of_many_megabytes_is_cut_softly_and_left_as_it_is() -> None:
    data = b"abcdefgh " * 600_000
    read = Read("a.txt", data)

    assert read.text == data.decode()
    assert max(b.end - b.start for b in read.blocks) <= SOFT_CUT_CHARS
    assert read.blocks[-1].end == len(read.text)


def test_a_long_log_does_not_become_a_block_per_line() -> None:
    read = Read("a.log", b"2024-03-04 08:15:30 INFO request served\n" * 50_000)

    assert len(read.blocks) < 2_500


@pytest.mark.parametrize("data", [b"", b"  \n\t\r\n ", b"\xef\xbb\xbf", b"\xff\xfe"])
@pytest.mark.parametrize("suffix", sorted(READERS))
def test_what_holds_no_word_is_empty(suffix: str, data: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        Read("a" + suffix, data)
    assert caught.value.reason == "empty"


def test_what_is_too_large_is_told_with_both_sizes() -> None:
    with pytest.raises(Unreadable, match=r"too_large.*1,000.*100"):
        Read("a.txt", b"x" * 1_000, Limits(text_file_bytes=100))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted({type(r).__name__ + r.name: s for s, r in READERS.items()}.values())),
    st.binary(max_size=300)
    | st.text(alphabet="ab \n\r\"<>[]{}#=-*:,.\\/&;'`~!@xé", max_size=300).map(str.encode),
)
def test_any_bytes_give_text_or_a_reason(suffix: str, data: bytes) -> None:
    try:
        read = Read("a" + suffix, data)
    except Unreadable:
        return
    assert read.text.strip()
    assert not any(c < " " and c not in "\t\n" for c in read.text)
    read.text.encode("utf-8")


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(
        [".txt", ".md", ".rst", ".org", ".tex", ".adoc", ".py", ".go", ".csv", ".toml", ".yaml", ".srt"]
    ),
    st.lists(
        st.tuples(st.text(alphabet="ab #=-*\"'`,é", max_size=12), st.sampled_from(["\n", "\r\n", "\r"])),
        max_size=40,
    ),
)
def test_line_n_of_a_verbatim_text_is_line_n_of_the_file(suffix: str, rows: list[tuple[str, str]]) -> None:
    data = "".join(line + end for line, end in rows).encode()
    try:
        read = Read("a" + suffix, data)
    except Unreadable as error:
        assert error.reason == "empty"
        return
    assert read.facts is not None and read.facts.verbatim
    assert read.text.split("\n") == data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode().split("\n")
    covered = "".join(read.text[b.start : b.end] for b in read.blocks)
    assert covered == read.text, "blocks of a verbatim text tile it"

"""Which reader reads which text format, by the suffix of the name.

The readers are cheap to make and import nothing heavy; whatever no suffix names is read as plain text when it
turns out to be text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from pensieve_mcp.corpus.extract.text_blocks import Flat, Outline, open_text, verbatim
from pensieve_mcp.corpus.extract.text_data import Cards, Cues, Json, JsonLines, Notebook, Table
from pensieve_mcp.corpus.extract.text_html import Html, html_pieces
from pensieve_mcp.corpus.extract.text_mail import Eml, Mbox
from pensieve_mcp.corpus.extract.text_outline import (
    Code,
    Keys,
    Markdown,
    Python,
    Rst,
    Sections,
    Tex,
    asciidoc,
    org,
)
from pensieve_mcp.corpus.extract.text_xml import Xml
from pensieve_mcp.corpus.types import Extractor, Facts, FileHint, Limits, Piece

__all__ = ["html_pieces", "text_extractors"]


class Verbatim:
    """A format whose text is the file itself; `outline` makes a fresh finder of headings per document."""

    def __init__(self, name: str, media_type: str, outline: Callable[[], Outline], version: int = 1) -> None:
        self.name, self.version = name, version
        self._media_type, self._outline = media_type, outline

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        yield from verbatim(open_text(file, hint, limits), self._media_type, self._outline())


_CODE = [
    "c",
    "h",
    "cc",
    "cpp",
    "cxx",
    "hpp",
    "hh",
    "hxx",
    "m",
    "mm",
    "cs",
    "java",
    "kt",
    "kts",
    "scala",
    "groovy",
    "swift",
    "go",
    "rs",
    "js",
    "mjs",
    "cjs",
    "jsx",
    "ts",
    "tsx",
    "mts",
    "cts",
    "vue",
    "svelte",
    "php",
    "rb",
    "pl",
    "pm",
    "lua",
    "r",
    "jl",
    "dart",
    "ex",
    "exs",
    "erl",
    "hrl",
    "hs",
    "ml",
    "mli",
    "fs",
    "fsx",
    "clj",
    "cljs",
    "lisp",
    "el",
    "scm",
    "rkt",
    "vb",
    "vbs",
    "pas",
    "d",
    "zig",
    "nim",
    "v",
    "sol",
    "sh",
    "bash",
    "zsh",
    "fish",
    "ps1",
    "psm1",
    "bat",
    "cmd",
    "awk",
    "sed",
    "sql",
    "ddl",
    "proto",
    "thrift",
    "graphql",
    "gql",
    "css",
    "scss",
    "sass",
    "less",
    "tf",
    "hcl",
    "nix",
    "cmake",
    "mk",
    "gradle",
    "f",
    "f90",
    "f95",
    "for",
    "asm",
    "s",
    "tcl",
    "vhd",
    "sv",
    "cu",
    "cl",
    "glsl",
    "wgsl",
    "metal",
]
_PLAIN = [
    "txt",
    "text",
    "log",
    "md5",
    "sha256",
    "asc",
    "me",
    "readme",
    "license",
    "changelog",
    "diff",
    "patch",
    "out",
    "err",
    "rej",
    "lst",
    "nfo",
    "srtx",
]
_XML = [
    "xml",
    "xsd",
    "xsl",
    "xslt",
    "rss",
    "atom",
    "opml",
    "wsdl",
    "plist",
    "gpx",
    "kml",
    "xliff",
    "xlf",
    "tmx",
    "dbk",
    "docbook",
    "fb2",
    "svg",
    "rdf",
    "owl",
    "resx",
    "tei",
    "ttml",
]


def text_extractors() -> dict[str, Extractor]:
    """Readers by lower-case suffix (".md"); "" is the reader of plain text and of every other name."""
    plain = Verbatim("text", "text/plain", Flat)
    markdown = Verbatim("markdown", "text/markdown", Markdown, version=2)
    python = Verbatim("python", "text/x-python", Python)
    code = Verbatim("code", "text/x-source", Code)
    sections = Verbatim("sections", "text/plain", Sections)
    table, html, json, lines = Table(), Html(), Json(), JsonLines()
    readers: dict[str, Extractor] = {"": plain}
    readers.update({f".{s}": plain for s in _PLAIN})
    readers.update({f".{s}": code for s in _CODE})
    xml = Xml()
    readers.update({f".{s}": xml for s in _XML})
    for suffixes, reader in (
        ("md markdown mdown mkd mdx qmd rmd", markdown),
        ("rst rest", Verbatim("rst", "text/x-rst", Rst)),
        ("org", Verbatim("org", "text/x-org", org)),
        ("tex ltx sty cls bib", Verbatim("tex", "text/x-tex", Tex)),
        ("adoc asciidoc asc", Verbatim("asciidoc", "text/asciidoc", asciidoc)),
        ("py pyi pyw pyx", python),
        ("csv tsv tab psv", table),
        ("json json5 geojson jsonc webmanifest har", json),
        ("jsonl ndjson", lines),
        ("ipynb", Notebook()),
        ("srt vtt", Cues()),
        ("ics vcf ical", Cards()),
        ("yaml yml", Verbatim("yaml", "application/yaml", Keys)),
        ("toml ini cfg conf properties editorconfig desktop", sections),
        ("html htm xhtml xht shtml", html),
        ("eml", Eml()),
        ("mbox mbx", Mbox()),
    ):
        readers.update({f".{s}": reader for s in suffixes.split()})
    return readers

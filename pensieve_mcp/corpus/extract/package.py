"""A zip of XML parts, read within bounds: what Office, OpenDocument and EPUB files are.

Why own: part names lie in case and slashes, sizes lie, and bombs hide in them. Here the directory is checked before
anything is inflated, inflating is counted, XML is read as a stream of events without a tree (200,000 levels cost
nothing), and entities are refused, so that neither a billion laughs nor an external entity is ever followed.
What the parts mean is left to the format's reader.
"""

from __future__ import annotations

import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import unquote
from xml.parsers import expat

from pensieve_mcp.corpus.extract.magic import OFFICE_SUFFIXES
from pensieve_mcp.corpus.types import Limits, Unreadable

_CHUNK_BYTES = 65_536
_RATIO_FROM_BYTES = 64 * 2**20  # a ratio says little of a small file of spaces

Attributes = dict[str, str]


class Handler(Protocol):
    """What an XML reader is told. Names come without prefix; attributes keep theirs."""

    def start(self, name: str, attributes: Attributes) -> None: ...
    def end(self, name: str) -> None: ...
    def data(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Relation:
    """One arrow between parts; `kind` is the last word of its type, `target` a part name."""

    kind: str
    target: str


class Package:
    """The parts of a zip, by name without regard to case and kind of slash."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._limits = limits
        self._inflated = 0
        _check_directory(file, limits)
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, struct.error, OSError, ValueError, NotImplementedError) as problem:
            raise Unreadable("corrupt", f"a damaged zip: {problem}") from problem
        infos = self._zip.infolist()
        if len(infos) > limits.zip_entries:
            raise Unreadable(
                "bomb", f"{len(infos):,} entries in the zip; the limit is {limits.zip_entries:,}"
            )
        self._parts = {_normal(info.filename): info for info in reversed(infos)}
        self.names = [info.filename for info in infos]
        _check_ratio(infos, limits)

    def __contains__(self, part: str) -> bool:
        return _normal(part) in self._parts

    def read(self, part: str, most_bytes: int = 64 * 2**20) -> bytes:
        """A small part whole. Raises Unreadable (`bomb`) beyond `most_bytes`, KeyError when there is none."""
        out = bytearray()
        for chunk in self.chunks(part):
            out += chunk
            if len(out) > most_bytes:
                raise Unreadable("bomb", f"{part} inflates to more than {most_bytes:,} bytes")
        return bytes(out)

    def chunks(self, part: str) -> Iterator[bytes]:
        """The inflated bytes of a part, counted against all limits. Raises KeyError when there is none."""
        info = self._parts[_normal(part)]
        limits = self._limits
        if info.flag_bits & 1:
            raise Unreadable("encrypted", "the zip is protected by a password")
        if info.file_size > limits.zip_entry_bytes:
            raise Unreadable(
                "bomb",
                f"{part} says it inflates to {info.file_size:,} bytes; the limit is {limits.zip_entry_bytes:,}",
            )
        _check_ratio([info], limits)
        size = 0
        try:
            with self._zip.open(info) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    size += len(chunk)
                    self._inflated += len(chunk)
                    if size > limits.zip_entry_bytes or self._inflated > limits.zip_total_bytes:
                        raise Unreadable(
                            "bomb", f"{part} inflates beyond the limit ({self._inflated:,} bytes so far)"
                        )
                    if size > _RATIO_FROM_BYTES and size > limits.zip_ratio * max(info.compress_size, 1):
                        raise Unreadable("bomb", f"{part} inflates more than {limits.zip_ratio} times")
                    yield chunk
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            struct.error,
            OSError,
        ) as problem:
            raise Unreadable("corrupt", f"{part} cannot be unpacked: {problem}") from problem

    def parse(self, part: str, handler: Handler) -> Iterator[None]:
        """Feed a part to a handler, pausing after every stretch so that the caller can hand on what is ready."""
        parser = _parser(handler)
        try:
            for chunk in self.chunks(part):
                parser.Parse(chunk, False)
                yield
            parser.Parse(b"", True)
        except (expat.ExpatError, LookupError) as problem:  # LookupError: an encoding that nobody knows
            raise Unreadable("corrupt", f"{part} is no sound XML: {problem}") from problem
        yield

    def parse_as_far_as_it_goes(
        self, part: str, handler: Handler, warnings: list[str], what: str
    ) -> Iterator[None]:
        """As `parse`, but damage ends the part with a warning. Raises Unreadable for a bomb or a password only."""
        try:
            yield from self.parse(part, handler)
        except Unreadable as problem:
            if problem.reason != "corrupt":
                raise
            warnings.append(f"{what} could not be read to the end: {problem.detail}")
            yield

    def parse_aside(self, part: str, handler: Handler, warnings: list[str], what: str) -> None:
        """Feed a part that the text can do without: absence is nothing, damage is a warning."""
        if part in self:
            for _ in self.parse_as_far_as_it_goes(part, handler, warnings, what):
                pass

    def parse_whole(self, part: str, handler: Handler) -> bool:
        """Feed a small part at once; false when it is not there."""
        if part not in self:
            return False
        for _ in self.parse(part, handler):
            pass
        return True

    def relations(self, part: str) -> dict[str, Relation]:
        """Relations of a part ("" is the package) by id; targets outside the package are left out."""
        folder, _, base = part.rpartition("/")
        reader = _Relations(folder)
        self.parse_whole(posixpath.join(folder, "_rels", base + ".rels"), reader)
        return reader.found

    def main_part(self) -> str | None:
        """The part that holds the document, by the package's relations."""
        for relation in self.relations("").values():
            if relation.kind == "officeDocument":
                return relation.target
        return None

    def content_types(self) -> dict[str, str]:
        """Content type by normal part name, as far as told for each part itself."""
        reader = _ContentTypes()
        self.parse_aside("[Content_Types].xml", reader, [], "")  # the root element will tell
        return reader.found


def attribute(attributes: Attributes, name: str, default: str = "") -> str:
    """An attribute whatever its prefix."""
    found = attributes.get(name)
    if found is not None:
        return found
    tail = ":" + name
    for key, value in attributes.items():
        if key.endswith(tail):
            return value
    return default


def parse_bytes(data: bytes, handler: Handler) -> None:
    """Feed XML at hand to a handler. Raises Unreadable (`corrupt`)."""
    try:
        _parser(handler).Parse(data, True)
    except expat.ExpatError as problem:
        raise Unreadable("corrupt", f"no sound XML: {problem}") from problem


def _parser(handler: Handler) -> expat.XMLParserType:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = _CHUNK_BYTES
    start, end = handler.start, handler.end
    local: dict[str, str] = {}  # name with prefix -> name: a document has few, and slicing each is dear

    def on_start(name: str, attributes: Attributes) -> None:
        short = local.get(name)
        if short is None:
            short = name.rpartition(":")[2]
            if len(local) < 10_000:
                local[name] = short
        start(short, attributes)

    def on_end(name: str) -> None:
        end(local.get(name) or name.rpartition(":")[2])

    def on_entity(*declared: object) -> None:
        raise Unreadable("bomb", "the XML declares entities, which no document of this format needs")

    parser.StartElementHandler = on_start
    parser.EndElementHandler = on_end
    parser.CharacterDataHandler = handler.data
    parser.EntityDeclHandler = on_entity
    return parser


class _Quiet:
    def end(self, name: str) -> None: ...
    def data(self, text: str) -> None: ...


class _Relations(_Quiet):
    def __init__(self, folder: str) -> None:
        self.found: dict[str, Relation] = {}
        self._folder = folder

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "").replace("\\", "/")
            part = (
                target[1:]
                if target.startswith("/")
                else posixpath.normpath(posixpath.join(self._folder, target))
            )
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.found[attributes.get("Id", "")] = Relation(kind, part)


class _ContentTypes(_Quiet):
    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "Override":
            self.found[_normal(attributes.get("PartName", ""))] = attributes.get("ContentType", "")


def _normal(part: str) -> str:
    return part.replace("\\", "/").lstrip("/").lower()


def _check_directory(file: BinaryIO, limits: Limits) -> None:
    """Refuse a zip whose directory alone would fill the memory, before it is read."""
    file.seek(0, 2)
    end = file.tell()
    file.seek(max(end - 66_000, 0))
    tail = file.read(66_000)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        raise Unreadable("corrupt", "a zip without its directory; the file is cut off")
    size = struct.unpack_from("<I", tail, at + 12)[0]
    record = tail.rfind(b"PK\x06\x06")
    if size == 0xFFFFFFFF and record >= 0 and record + 48 <= len(tail):
        size = struct.unpack_from("<Q", tail, record + 40)[0]
    most = limits.zip_entries * 1_024  # 46 bytes and a name each
    if size > most and size != 0xFFFFFFFF:
        raise Unreadable("bomb", f"a zip directory of {size:,} bytes; the limit is {most:,}")


def _check_ratio(infos: Sequence[zipfile.ZipInfo], limits: Limits) -> None:
    """Refuse what says that it inflates absurdly, before it does: a part, or all texts together.

    Sizes that lie are no way around it: `zipfile` inflates no more than the directory says, and calls it damaged.
    Pictures are left out of the sum, for they are never inflated.
    """
    texts = infos if len(infos) == 1 else [i for i in infos if i.filename.lower().endswith(_TEXT_PARTS)]
    size, packed = sum(i.file_size for i in texts), sum(i.compress_size for i in texts)
    if size > _RATIO_FROM_BYTES and size > limits.zip_ratio * max(packed, 1):
        raise Unreadable(
            "bomb",
            f"{packed:,} bytes say they inflate to {size:,}, more than {limits.zip_ratio} times as much",
        )


_TEXT_PARTS = (".xml", ".rels", ".bin", ".xhtml", ".html", ".htm", ".opf", ".ncx")


def format_of(file: BinaryIO, suffix: str, limits: Limits) -> str:
    """The reader's key for a zip. Raises Unreadable for one that is no document we read."""
    package = Package(file, limits)
    office = suffix in OFFICE_SUFFIXES
    main = package.main_part() if "[Content_Types].xml" in package or "_rels/.rels" in package else None
    if main is not None and main in package:
        return _office_kind(package, main)
    mimetype = (
        package.read("mimetype", 4_096).decode("ascii", "replace").strip() if "mimetype" in package else ""
    )
    if mimetype == "application/epub+zip" or "META-INF/container.xml" in package:
        return "epub"
    if mimetype.startswith("application/vnd.oasis.opendocument.") or (
        "content.xml" in package and "META-INF/manifest.xml" in package
    ):
        return "odf"
    if office:
        what = (
            "the part that holds the document is missing" if main else "no part in it is an Office document"
        )
        raise Unreadable("corrupt", f"a zip named {suffix}, but {what}")
    known = {
        ".pages": "Apple Pages",
        ".numbers": "Apple Numbers",
        ".key": "Apple Keynote",
        ".kmz": "Google Earth",
        ".jar": "Java",
        ".apk": "Android",
        ".whl": "Python wheel",
    }
    name = known.get(suffix, "zip")
    if suffix in (".pages", ".numbers", ".key"):
        raise Unreadable("unsupported", f"{name}: there is no reader for it; export it as PDF to index it")
    raise Unreadable(
        "unsupported", f"{name} archive: archives are not read; unpack it to index what is inside"
    )


_CONTENT_TYPES: tuple[tuple[str, str], ...] = (
    ("wordprocessingml", "docx"), ("ms-word", "docx"), ("presentationml", "pptx"), ("ms-powerpoint", "pptx"),
    ("sheet.binary", "xlsb"), ("spreadsheetml", "xlsx"), ("ms-excel", "xlsx"),
)  # fmt: skip


def _office_kind(package: Package, main: str) -> str:
    told = package.content_types().get(_normal(main), "").lower()
    for word, key in _CONTENT_TYPES:
        if word in told:
            return key
    # Content types wrong or missing: the root element decides.
    if main.lower().endswith(".bin"):
        return "xlsb"
    root = _Root()
    for _ in package.parse(main, root):
        if root.name:
            break
    rooted = {"document": "docx", "presentation": "pptx", "workbook": "xlsx"}.get(root.name or "")
    if rooted is None:
        raise Unreadable(
            "unsupported",
            f"an Office package of another kind ({told or root.name}): there is no reader for it",
        )
    return rooted


class _Root(_Quiet):
    name: str | None = None

    def start(self, name: str, attributes: Attributes) -> None:
        self.name = self.name or name


def href(folder: str, link: str) -> str:
    """A part's name from a link inside the package, without fragment, percent signs resolved."""
    return posixpath.normpath(posixpath.join(folder, unquote(link.partition("#")[0]))).lstrip("/")

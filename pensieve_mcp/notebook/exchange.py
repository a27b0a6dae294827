"""Notes as files: Markdown with front matter, one a note, readable in any editor; and one JSON document.

A round trip is exact. The values of the front matter are JSON, which YAML readers take as well, so that no
YAML library is needed. Taking in never overwrites unless asked: what differs is reported. A broken or newer
file costs that file, with a sentence that names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pensieve_mcp.errors import Miscast, PensieveError, WorkspaceError
from pensieve_mcp.notebook.schema import STANDING, standing_of
from pensieve_mcp.notebook.store import Notebook
from pensieve_mcp.notebook.types import Evidence, EvidenceKind, EvidenceState, Note, Status

FORMAT = "pensieve-note"
COLLECTION = "pensieve-notes"
VERSION = 1

OnConflict = Literal["report", "overwrite", "keep"]

MAX_FILE_BYTES = 16 * 2**20  # a note has at most 1 MB; what is larger is no note of ours
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}\Z")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_FIELD = re.compile(r"([a-z_]+):(?: (.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote, and sentences about what it did not."""

    files: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """Keys by what became of them. `conflicts` exist here with other words and were left as they are."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def file_name(key: str) -> str:
    """A name that every file system takes and no two keys share: the key, or a likeness of it and a
    digest."""
    if _PLAIN_NAME.match(key) and key not in _RESERVED:
        return f"{key}.md"
    likeness = unicodedata.normalize("NFKD", key).encode("ascii", "ignore").decode().lower()
    likeness = re.sub(r"[^a-z0-9_]+", "-", likeness).strip("-")[:60]
    # The `~` never stands in a plain name, so the two kinds cannot meet; case never tells two files apart.
    return f"{likeness or 'note'}~{hashlib.sha256(key.encode('utf-8')).hexdigest()[:12]}.md"


# --- one note ---------------------------------------------------------------------------------------------


def to_markdown(note: Note, in_force: Note | None = None) -> str:
    """The note as a file's text; `from_markdown` gives back an equal one, but for warnings. `in_force` is the claim
    that it contests, which must not be lost on the way."""
    lines = [
        "---",
        f"format: {FORMAT}/{VERSION}",
        f"key: {_json(note.key)}",
        f"summary: {_json(note.summary)}",
        f"revision: {note.revision}",
        f"created: {_json(_time(note.created))}",
        f"created_seconds: {note.created!r}",
        f"updated: {_json(_time(note.updated))}",
        f"updated_seconds: {note.updated!r}",
    ]
    for name, value in (("author", note.author), ("applies_to", note.applies_to), ("links", note.links)):
        if value:
            lines.append(f"{name}: {_json(value)}")
    lines += [f"{name}: {_json(value)}" for name, value in standing_of(note).items()]
    if note.evidence:
        lines.append("evidence:")
        lines += [f"  - {_json(_evidence_out(piece))}" for piece in note.evidence]
    if in_force is not None:
        lines.append(f"in_force: {_json(_plain(in_force))}")
    return "\n".join([*lines, "---", "", note.content + ("\n" if note.content else "")])


def _plain(note: Note) -> dict[str, Any]:
    """A note as JSON takes it."""
    body = asdict(note)
    body["evidence"] = [_evidence_out(piece) for piece in note.evidence]
    for transient in ("warnings", "deleted", *STANDING):
        body.pop(transient)
    return body | standing_of(note)


def _force_in(value: Any, name: str) -> Note | None:
    if value in (None, ""):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise _bad(name, "the claim in force cannot be read")
    return _body_in(value, name)


def _body_in(body: dict[str, Any], name: str) -> Note:
    """From `_plain`."""
    if not isinstance(body.get("key"), str):
        raise _bad(name, "it has no key")
    if not isinstance(body.get("content"), str):
        raise _bad(name, "its content is not text")
    pieces = body.get("evidence") or []
    if not isinstance(pieces, list):
        raise _bad(name, "its evidence is not a list")
    evidence = tuple(_evidence_in(piece, name) for piece in pieces)
    return _note(body["key"], body, body["content"], evidence, name)


def from_markdown(text: str, name: str = "the file") -> Note:
    """Read a note. By hand only `key` (or a file name as key) and `summary` need to be there.

    Raises Miscast for a file that is no note, is half written, or of a newer format.
    """
    return read_markdown(text, name)[0]


def read_markdown(text: str, name: str = "the file") -> tuple[Note, Note | None]:
    """The note, and the claim in force where it contests one. Raises Miscast as `from_markdown`."""
    text = text.removeprefix("\ufeff")
    head, content = _split(text, name)
    fields: dict[str, Any] = {}
    evidence: list[Evidence] = []
    for line in head:
        if line.startswith("  - "):
            evidence.append(_evidence_in(_value(line[4:], name), name))
            continue
        match = _FIELD.match(line)
        if match is None:
            if line.strip():
                raise _bad(name, f"its front matter has a line that cannot be read: {line[:60]!r}")
            continue
        fields[match[1]] = _value(match[2] or "", name)
    _check_format(fields.get("format"), FORMAT, name)
    if "created_seconds" in fields:  # older files, and those written by hand, end where the content does
        content = content.removesuffix("\n")
    key = fields.get("key")
    if not isinstance(key, str) or not key:
        raise _bad(name, "it has no key")
    return _note(key, fields, content, tuple(evidence), name), _force_in(fields.get("in_force"), name)


def _split(text: str, name: str) -> tuple[list[str], str]:
    first, _, rest = text.partition("\n")
    if first.rstrip("\r") != "---":
        raise _bad(name, "it does not begin with front matter (---)")
    head: list[str] = []
    while rest:
        line, found, rest = rest.partition("\n")
        if line.rstrip("\r") == "---" and (found or not rest):
            gap = "\r\n" if rest.startswith("\r\n") else "\n"
            return head, rest.removeprefix(gap)  # the empty line that parts them
        head.append(line.rstrip("\r"))
    raise _bad(name, "its front matter has no end: it is half written")


def _json(value: Any) -> str:
    """JSON on one line that YAML reads alike: line ends of Unicode and a BOM are escaped too."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda m: f"\\u{ord(m[0]):04x}", text)


def _value(text: str, name: str) -> Any:
    """A value of the front matter: JSON, or plain words as a person types them."""
    text = text.strip()
    if text[:1] in ('"', "[", "{"):
        try:
            return json.loads(text)
        except RecursionError as error:
            raise _bad(name, "a value in its front matter is nested too deeply") from error
        except ValueError as error:
            raise _bad(name, f"a value in its front matter cannot be read ({error})") from error
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]+)?(e[+-]?[0-9]+)?", text):
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    return text


def _check_format(value: Any, format_name: str, name: str) -> None:
    if value in (None, ""):
        return  # written by hand
    kind, _, version = str(value).partition("/")
    if kind != format_name or not version.isdecimal():
        raise _bad(name, f"its format is {str(value)[:40]!r}, not {format_name}/{VERSION}")
    if int(version) > VERSION:
        raise Miscast(
            f"{name} has format {value}, this program reads up to {format_name}/{VERSION}.",
            hint="Update pensieve-statelm.",
            slug="newer_format",
        )


def _bad(name: str, problem: str) -> Miscast:
    return Miscast(
        f"{name} is not taken in: {problem}.",
        hint="Mend the file, or export the note again.",
        slug="bad_import",
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _moment(fields: dict[str, Any], name: str) -> float:
    """When it was: the exact seconds beside the date, unless a person has changed the date since."""
    date, exact = fields.get(name), fields.get(f"{name}_seconds")
    if isinstance(exact, int | float) and not isinstance(exact, bool):
        with contextlib.suppress(ValueError, OverflowError, OSError):
            if not date or _time(exact) == date:
                return float(exact)
    return _seconds(date)


def _seconds(value: Any) -> float:
    """The date alone, or the exact seconds that older files have behind it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    date, _, exact = str(value or "").partition(" ")
    with contextlib.suppress(ValueError, OverflowError):
        return float(exact) if exact else datetime.fromisoformat(date).timestamp()
    return 0.0


def _evidence_out(piece: Evidence) -> dict[str, Any]:
    blank = Evidence(quote="")
    # `basis` does not travel: without it the piece is looked up again wherever it is taken in
    body = {
        name: one
        for name, one in asdict(piece).items()
        if name == "quote" or (one != getattr(blank, name) and name != "basis")
    }
    if piece.document_digest:
        body["document_digest"] = piece.document_digest.hex()
    return body


def _evidence_in(value: Any, name: str) -> Evidence:
    if isinstance(value, str):
        return Evidence(quote=value)
    try:
        body = {
            field: value[field]
            for field in Evidence.__dataclass_fields__
            if field in value and field != "basis"
        }
        if "document_digest" in body:
            body["document_digest"] = bytes.fromhex(body["document_digest"])
        if body.get("span") is not None:
            start, end = body["span"]
            body["span"] = (int(start), int(end))
        piece = Evidence(**body)
        for field in _TEXTS:
            if not isinstance(getattr(piece, field), str):
                raise TypeError(f"{field} is not text")
        if piece.state not in get_args(EvidenceState) or piece.kind not in get_args(EvidenceKind):
            raise ValueError(f"state {piece.state!r} or kind {piece.kind!r} is not known here")
        for field in ("chunk_id", "message"):
            number = getattr(piece, field)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
                raise TypeError(f"{field} is not a number")
        return piece
    except (TypeError, ValueError, KeyError) as error:
        raise _bad(name, f"a piece of evidence cannot be read ({error})") from error


_TEXTS = (
    *("quote", "path", "locator", "prefix", "suffix", "detail", "state", "kind"),
    *("noted_path", "noted_locator"),
)


def _standing_in(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """The fields of STANDING as they were exported, each of its kind."""
    told = {field: fields[field] for field in STANDING if fields.get(field) not in (None, "")}
    for field, value in told.items():
        if field == "observed":
            if isinstance(value, bool) or not isinstance(value, int | float):
                value = _seconds(value)
            told[field] = float(value)
        elif field == "contests":
            if isinstance(value, bool) or not isinstance(value, int):
                raise _bad(name, "contests is not a revision")
        elif field == "merged_from":
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise _bad(name, "merged_from is not a list of keys")
            told[field] = tuple(value)
        else:
            told[field] = str(value)
    if told.get("status", "active") not in get_args(Status):
        raise _bad(
            name, f"its status is {str(told['status'])[:40]!r}, not one of {', '.join(get_args(Status))}"
        )
    if told.get("kind", "guess") not in get_args(EvidenceKind):
        raise _bad(
            name, f"its kind is {str(told['kind'])[:40]!r}, not one of {', '.join(get_args(EvidenceKind))}"
        )
    return told


def _note(key: str, fields: dict[str, Any], content: str, evidence: tuple[Evidence, ...], name: str) -> Note:
    links = fields.get("links") or ()
    if isinstance(links, str):
        links = [link.strip() for link in links.split(",") if link.strip()]
    if not isinstance(links, list | tuple) or not all(isinstance(link, str) for link in links):
        raise _bad(name, "its links are not a list of keys")
    revision = fields.get("revision")
    return Note(
        key=key,
        summary=str(fields.get("summary") or ""),
        content=content,
        revision=revision if isinstance(revision, int) and not isinstance(revision, bool) else 0,
        created=_moment(fields, "created"),
        updated=_moment(fields, "updated"),
        evidence=evidence,
        applies_to=str(fields.get("applies_to") or ""),
        links=tuple(links),
        author=str(fields.get("author") or ""),
        **_standing_in(fields, name),
    )


# --- folders and documents --------------------------------------------------------------------------------


def write_file(path: Path, text: str) -> None:
    """Put the text in place whole or not at all, for nobody else to read. Raises WorkspaceError."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".pensieve-", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise WorkspaceError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Choose another folder, or free some space.",
            slug="unwritable",
        ) from error


def export_markdown(notebook: Notebook, folder: Path) -> Exported:
    """Write every note into the folder. Files there that are not an earlier export of the same note stay, and
    are told. Raises WorkspaceError."""
    files, problems = [], []
    for note in notebook.all_notes():
        path = folder / file_name(note.key)
        if path.is_symlink() or path.exists():
            try:
                earlier = from_markdown(_read(path), path.name).key
            except PensieveError:
                earlier = None
            if earlier != note.key:
                problems.append(f"{path.name} is another file, so {note.key!r} was not written over it.")
                continue
        write_file(path, to_markdown(note, _force_of(notebook, note)))
        files.append(path.name)
    return Exported(tuple(files), tuple(problems))


def _force_of(notebook: Notebook, note: Note) -> Note | None:
    force = notebook.in_force(note)
    return None if force is note else force


def _read(path: Path) -> str:
    try:
        if path.is_symlink() or not path.is_file():
            raise _bad(path.name, "it is not a regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _bad(path.name, f"it has over {MAX_FILE_BYTES:,} bytes")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(path.name, "it is not UTF-8") from error
    except OSError as error:
        raise _bad(path.name, f"it cannot be read ({error.strerror or error})") from error


def import_markdown(
    notebook: Notebook, folder: Path, *, on_conflict: OnConflict = "report", author: str = ""
) -> Imported:
    """Take in every `*.md` file that stands in the folder (links are not followed).

    Raises WorkspaceError when the folder cannot be listed; a bad file becomes a sentence in `problems`.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".md")
    except OSError as error:
        raise WorkspaceError(
            f"{folder} cannot be listed: {error.strerror or error}.",
            hint="Give the folder that pensieve note export wrote.",
            slug="unreadable",
        ) from error
    notes: list[tuple[str, Note, Note | None]] = []
    problems: list[str] = []
    for path in paths:
        try:
            notes.append((path.name, *read_markdown(_read(path), path.name)))
        except PensieveError as error:
            problems.append(str(error))
    return _take_in(notebook, notes, on_conflict, author, problems)


def export_json(notebook: Notebook) -> str:
    """All notes as one JSON document."""
    notes = []
    for note in notebook.all_notes():
        body = _plain(note)
        if (force := _force_of(notebook, note)) is not None:
            body["in_force"] = _plain(force)
        notes.append(body)
    return json.dumps({"format": f"{COLLECTION}/{VERSION}", "notes": notes}, ensure_ascii=False, indent=1)


def import_json(
    notebook: Notebook, text: str, *, on_conflict: OnConflict = "report", author: str = ""
) -> Imported:
    """Take in a document of `export_json`. Raises Miscast when it is none or newer; a bad note is a
    problem."""
    try:
        document = json.loads(text.removeprefix("\ufeff"))
        notes_in = document["notes"]
        if not isinstance(notes_in, list):
            raise TypeError("notes is not a list")
    except RecursionError as error:
        raise _bad("The document", "it is nested too deeply for an export of notes") from error
    except (ValueError, TypeError, KeyError) as error:
        raise _bad("The document", f"it is not an export of notes ({error})") from error
    _check_format(document.get("format"), COLLECTION, "The document")
    notes: list[tuple[str, Note, Note | None]] = []
    problems: list[str] = []
    for place, body in enumerate(notes_in, start=1):
        name = f"Note {place}"
        try:
            if not isinstance(body, dict):
                raise _bad(name, "it has no key")
            notes.append((name, _body_in(body, name), _force_in(body.get("in_force"), name)))
        except PensieveError as error:
            problems.append(str(error))
    return _take_in(notebook, notes, on_conflict, author, problems)


def _take_in(
    notebook: Notebook,
    notes: Iterable[tuple[str, Note, Note | None]],
    on_conflict: OnConflict,
    author: str,
    problems: list[str],
) -> Imported:
    became: dict[str, list[str]] = {"created": [], "updated": [], "unchanged": [], "conflicts": []}
    for name, note, force in notes:
        try:
            became[_take_one(notebook, note, force, on_conflict, author)].append(note.key)
        except Miscast as error:
            problems.append(f"{name}: {error}")
    return Imported(**{kind: tuple(keys) for kind, keys in became.items()}, problems=tuple(problems))


def _take_one(
    notebook: Notebook, note: Note, force: Note | None, on_conflict: OnConflict, author: str
) -> str:
    there = notebook.current(note.key)
    live = there if there is not None and not there.deleted else None
    if live is not None and _same(live, note):
        return "unchanged"
    if live is not None and on_conflict != "overwrite":
        return "conflicts"
    revision = there.revision if there is not None else 0  # nobody writes in between
    if force is not None and force.key == note.key:
        revision = _write(notebook, force, revision, author).revision
        _write(notebook, note, revision, author, contests=revision)
    else:
        _write(notebook, note, revision, author)
    return "created" if live is None else "updated"


def _write(
    notebook: Notebook, note: Note, expected: int, author: str, *, contests: int | None = None
) -> Note:
    return notebook.write(
        note.key,
        note.summary,
        note.content,
        evidence=note.evidence,
        applies_to=note.applies_to,
        links=note.links,
        author=author or note.author,
        expect_revision=expected,
        action="import",
        kind=note.kind,
        valid=note.valid,
        valid_basis=note.valid_basis,
        observed=note.observed,
        status=note.status,
        reason=note.reason,
        merged_from=note.merged_from,
        contests=contests,
    )


def _same(one: Note, other: Note) -> bool:
    def said(note: Note) -> Note:
        # `contests` names a revision of another notebook's history; when evidence was looked up says nothing new
        return replace(
            note,
            revision=0,
            created=0.0,
            updated=0.0,
            author="",
            warnings=(),
            deleted=False,
            contests=None,
            evidence=tuple(replace(piece, basis="", verified=None) for piece in note.evidence),
        )

    return said(one) == said(other)

"""An opened set of folders: where files, indexes and encoders come to life; everything else is handed what it needs.

A workspace is a named set of roots plus its state. State lies in the user's data folder, never inside the documents
(synced folders corrupt databases). Precious: `pensieve.db`, `blobs.db`. Derived: `corpus.db`, `index/`;
deleting them is ordinary.
Opening is cheap; each basin opens on first use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pensieve_mcp import losses
from pensieve_mcp.corpus.types import BuildProgress, Chunk, ChunkSet, Fresh, Limits, Root, Span
from pensieve_mcp.errors import NoSuchDocument, StorageError, WorkspaceError
from pensieve_mcp.places import is_there, typed
from pensieve_mcp.settings import FILE_NAME, Resolved, Settings, data_folder, resolve

if TYPE_CHECKING:
    from pensieve_mcp.budget import Sight
    from pensieve_mcp.building import Plan
    from pensieve_mcp.corpus.store import CorpusStore
    from pensieve_mcp.corpus.walk import WalkRules
    from pensieve_mcp.episode import Episode, Physical
    from pensieve_mcp.index.exact import LiteralPlace
    from pensieve_mcp.index.index import Index
    from pensieve_mcp.index.types import Mode
    from pensieve_mcp.ledger.store import Ledger
    from pensieve_mcp.notebook.store import Notebook
    from pensieve_mcp.recollection import Recollection
    from pensieve_mcp.storage import Connections

log = logging.getLogger(__name__)

WORKSPACE_FILE = "workspace.json"
FORMAT = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class ChunkHit:
    """A chunk that a search found; `spans` are its best passages in the document, best first."""

    chunk_id: int
    document_id: int
    score: float
    tokens: int
    spans: tuple[Span, ...]
    stretches: tuple[int, ...] = ()  # of each span, its sentence nearest in meaning, from 1; 0: not known
    path: str = ""
    locator: str = ""
    fresh: Fresh = "yes"
    highlights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[ChunkHit, ...]
    total: int
    terms: tuple[str, ...]
    notes: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    name: str
    state: Path
    roots: tuple[Root, ...]
    last_used: float  # seconds since the epoch


class Workspace:
    """See the module. Close it, or use it as a context manager."""

    def __init__(
        self,
        name: str,
        state: Path,
        roots: tuple[Root, ...],
        resolved: Resolved,
        builder: Literal["process", "inline"],
    ) -> None:
        self.name = name
        self.state = state
        self.roots = roots
        self.resolved = resolved
        self.settings: Settings = resolved.settings
        self._builder = builder
        self._lock = threading.RLock()
        self._open: dict[str, Any] = {}
        self._index_seen: tuple[int, ...] = ()
        self.asks: Any = None
        """Who answers whole questions (`spellbook/entrusting.py`), where a door brought one."""
        self._last_look = -1e9  # monotonic seconds of the last look at the folders

    # -- opening -------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        paths: Sequence[str | os.PathLike[str]] = (),
        *,
        name: str | None = None,
        state: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str],
        arguments: Mapping[str, Any] | None = None,
        builder: Literal["process", "inline"] = "process",
    ) -> Workspace:
        """Open the workspace over these folders or files, or the one of this name.

        A state folder remembers its roots; given paths replace them. Raises WorkspaceError when there is neither.
        """
        from pensieve_mcp.corpus.names import name_roots

        home = data_folder(environment)
        folders = [existing(path) for path in paths]
        if name is not None and not NAME.match(name):
            raise WorkspaceError(
                f"{name!r} cannot name a workspace.",
                hint="Use letters, digits, dot, dash and underscore.",
                slug="bad_name",
            )
        if state is not None:
            place = typed(state).absolute()
        elif name is not None:
            place = home / "workspaces" / name
        elif folders:
            place = home / "workspaces" / _derived_name(folders)
        else:
            raise WorkspaceError(
                "No folder was given.",
                hint="Name the folder of your documents, for example: pensieve index ~/Documents",
                slug="no_folder",
            )
        there = next((one for one in (place, *place.parents) if os.path.lexists(one)), place)
        if os.path.lexists(there) and not os.path.isdir(there):  # noqa: PTH112  (never raises)
            raise WorkspaceError(
                f"{there} is a file, so {place} cannot be a state folder.",
                hint="Give --state a folder of its own; it is made when it is missing.",
                slug="state_not_a_folder",
            )
        known = _read_workspace_file(place)
        if folders:
            roots = name_roots(folders)
        elif known is not None:
            roots = known.roots
        elif name is not None:
            names = ", ".join(info.name for info in list_workspaces(environment)) or "none yet"
            raise WorkspaceError(
                f"There is no workspace {name!r}.",
                hint=f"Make it with: pensieve workspace add {name} FOLDER. There are: {names}.",
                slug="no_such_workspace",
            )
        else:
            raise WorkspaceError(
                f"{place} holds no workspace.", hint="Name a folder of documents as well.", slug="no_folder"
            )
        resolved = resolve(
            files=(home / FILE_NAME, place / FILE_NAME), environment=environment, arguments=arguments
        )
        workspace = cls(
            known.name if known and not name else name or place.name, place, roots, resolved, builder
        )
        workspace._refuse_state_inside_roots()
        if known is None or known.roots != roots:
            _write_workspace_file(place, workspace.name, roots)
        return workspace

    def _refuse_state_inside_roots(self) -> None:
        for root in self.roots:
            if not root.is_file and self.state.resolve().is_relative_to(Path(root.folder).resolve()):
                raise WorkspaceError(
                    f"The state folder {self.state} lies inside the documents at {root.folder}.",
                    hint="Give --state a folder outside them: nothing of ours is written into your documents.",
                    slug="state_inside_documents",
                )

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened, end the background build of this process and the questions that are being answered."""
        if self.asks is not None:
            self.asks.close()
        with self._lock:
            opened, self._open = self._open, {}
        for name in ("build", "recollection", "index", "corpus", "ledger", "notebook", "blobs", "precious"):
            if (thing := opened.get(name)) is not None and hasattr(thing, "close"):
                thing.close()

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._open:
                self._open[name] = make()
            return self._open[name]

    @property
    def connections(self) -> Connections:
        """Connections to `pensieve.db`, with the basins that lie in it."""

        def make() -> Connections:
            from pensieve_mcp.corpus import ids
            from pensieve_mcp.ledger import schema as ledger_schema
            from pensieve_mcp.notebook import schema as notebook_schema
            from pensieve_mcp.storage import Connections

            losses.look(self.state, "pensieve.db")
            connections = Connections(
                self.state / "pensieve.db",
                basins=(notebook_schema.BASIN, ledger_schema.BASIN, ids.BASIN),
                precious=True,
            )
            connections.when_replaced(self._state_changed)
            return connections

        return cast("Connections", self._once("precious", make))

    def _state_changed(self) -> None:
        """`pensieve.db` went away under us; with it may have gone what says that a workspace lies here."""
        losses.look(self.state, "pensieve.db")
        if self.state.is_dir() and not (self.state / WORKSPACE_FILE).exists():
            try:
                _write_workspace_file(self.state, self.name, self.roots)
            except WorkspaceError as error:
                log.warning("%s", error)

    def losses(self) -> tuple[str, ...]:
        """Precious files that had to be begun anew although there were others before, as sentences."""
        return losses.told(self.state)

    @property
    def ledger(self) -> Ledger:
        def make() -> Ledger:
            from pensieve_mcp.ledger.blobs import Blobs
            from pensieve_mcp.ledger.store import Ledger

            losses.look(self.state, "blobs.db")
            ledger = Ledger(
                self.connections, Blobs(self.state / "blobs.db"), quota_bytes=self.settings.blobs_mb * 2**20
            )
            if self.settings.retention_days:
                ledger.retain(unused_seconds=self.settings.retention_days * 86_400.0)
            return ledger

        return cast("Ledger", self._once("ledger", make))

    @property
    def notebook(self) -> Notebook:
        def make() -> Notebook:
            from pensieve_mcp.notebook.store import Notebook
            from pensieve_mcp.redaction import redact

            return Notebook(self.connections, redact=redact)

        return cast("Notebook", self._once("notebook", make))

    @property
    def recollection(self) -> Recollection:
        """Notes and earlier messages by meaning. Derived: the folder `recollection` may be deleted."""

        def make() -> Recollection:
            from pensieve_mcp.recollection import Recollection

            return Recollection(
                self.state / "recollection",
                self.notebook,
                self.ledger,
                second_look=self.settings.second_stage,
            )

        return cast("Recollection", self._once("recollection", make))

    @property
    def corpus(self) -> CorpusStore:
        def make() -> CorpusStore:
            from pensieve_mcp.corpus.ids import Ids
            from pensieve_mcp.corpus.store import CorpusStore

            return CorpusStore.open(self.state / "corpus.db", Ids(self.connections), self.roots)

        return cast("CorpusStore", self._once("corpus", make))

    @property
    def index(self) -> Index:
        """The index, read only: whoever builds has a writer of its own. Raises IndexMismatch, StorageError.

        Opened anew when another index took the place of the one that was open.
        """
        folder = self.state / "index"
        there = _index_there(folder)
        with self._lock:
            if self._index_seen != there:
                # Not closed: another thread may be searching in it. The last reference lets go of the files.
                self._open.pop("index", None)
                self._index_seen = there

        def make() -> Index:
            from pensieve_mcp.index.index import Index

            return Index.open(
                folder,
                encoder_spec=self.settings.encoder,
                read_only=True,
                texts=self.corpus.passage_texts,
                scan=self._scan_literal,
                second_stage=self.settings.second_stage,
            )

        return cast("Index", self._once("index", make))

    def _scan_literal(
        self, literal: str, documents: Sequence[int] | None, late: Callable[[], bool]
    ) -> Iterator[LiteralPlace]:
        from pensieve_mcp.index.exact import LiteralPlace

        for place in self.corpus.scan_literal(literal, documents, late):
            yield LiteralPlace(place.passage_id, place.document_id, place.offset)

    # -- episodes ------------------------------------------------------------------------------------------

    def episode(
        self,
        door: str,
        *,
        host: str = "",
        thread: str = "",
        handle: str | None = None,
        sees: Sight = "tool traffic",
        physical: Physical = "no",
        overhead_tokens: int = 0,
    ) -> Episode:
        """Open or resume a conversation: by handle, else by the host's thread, else a new one.

        Raises Miscast (`no_such_episode`) for a handle that this workspace never gave.
        """
        from pensieve_mcp.episode import Episode

        record = (
            self.ledger.episode(handle, can_be_left_out=True)
            if handle
            else self.ledger.open_episode(door, host, thread or None)
        )
        return Episode(
            self,
            record.episode_id,
            record.handle,
            author=host or door,
            sees=sees,
            physical=physical,
            overhead_tokens=overhead_tokens,
        )

    def chunk_set_of(self, episode_id: int) -> ChunkSet:
        """The chunk set an episode uses: its own choice, else the settings'."""
        chosen = self.ledger.extra(episode_id).get("chunk_set")
        if isinstance(chosen, list) and len(chosen) == 2:
            return ChunkSet(int(chosen[0]), int(chosen[1]))
        return self.default_chunk_set

    @property
    def default_chunk_set(self) -> ChunkSet:
        return ChunkSet(self.settings.chunk_tokens, self.settings.overlap_tokens)

    def remember_chunk_set(self, episode_id: int, chunk_set: ChunkSet) -> None:
        if chunk_set != self.chunk_set_of(episode_id):
            self.ledger.set_extra(episode_id, chunk_set=[chunk_set.size_tokens, chunk_set.overlap_tokens])

    # -- paths ---------------------------------------------------------------------------------------------

    def prefix(self, *paths: str | None) -> tuple[str, ...]:
        """Path prefixes `root/relative` as the index knows them. With one root its name may be left out, and absolute
        paths inside a root are taken. Raises NoSuchDocument with near names for what is in none of the roots."""
        found: dict[str, None] = {}
        for path in paths:
            if path is None or not path.strip() or path.strip() in (".", "/", "*"):
                continue
            found[self._one_prefix(path.strip())] = None
        return tuple(found)

    def _one_prefix(self, path: str) -> str:
        text = path.replace("\\", "/") if os.sep == "\\" else path
        for root in self.roots:
            folder = root.folder.replace(os.sep, "/")
            if text == folder or text.startswith(folder.rstrip("/") + "/"):
                return "/".join(part for part in (root.name, text[len(folder) :].strip("/")) if part)
        absolute = text.startswith("/") or Path(path).is_absolute()
        text = text.rstrip("/").removeprefix("./")
        if absolute and "\0" not in text:
            return self._real_prefix(path)
        if ".." in text.split("/"):
            raise NoSuchDocument(
                f"{path[:200]!r} leaves the folders of this workspace.",
                hint=f"Paths begin with {self._root_words()}.",
                slug="outside_roots",
            )
        names = {root.name for root in self.roots}
        if text.split("/", 1)[0] in names and self.corpus.has_under(text):
            return text
        if len(self.roots) == 1 and self.corpus.has_under(inside := f"{self.roots[0].name}/{text}"):
            return inside
        if text.split("/", 1)[0] in names and "/" not in text:
            return text
        self.corpus.document(
            text if text.split("/", 1)[0] in names or len(self.roots) > 1 else f"{self.roots[0].name}/{text}"
        )
        return text

    def _real_prefix(self, path: str) -> str:
        """Of an absolute path that leads into a root through a link. Raises NoSuchDocument for any other."""
        real = Path(os.path.realpath(path.encode("utf-8", "replace").decode("utf-8")))
        for root in self.roots:
            top = Path(os.path.realpath(root.folder))
            if real == top or (real.is_relative_to(top) and not root.is_file):
                inside = real.relative_to(top).as_posix().removeprefix(".")
                return "/".join(part for part in (root.name, inside) if part)
        raise NoSuchDocument(
            f"{path[:200]} lies outside the folders of this workspace.",
            hint=f"Paths begin with {self._root_words()}.",
            slug="outside_roots",
        )

    def places(self, *paths: str) -> tuple[str, ...]:
        """As `prefix`, for what lies in the folders, indexed or not. Raises NoSuchDocument."""
        found: dict[str, None] = {}
        for path in paths:
            try:
                found.update(dict.fromkeys(self.prefix(path)))
                continue
            except NoSuchDocument as unknown:
                inside = path.strip().startswith("/") and ".." not in path.split("/")  # /notes, from the top
                if unknown.slug == "outside_roots" and not inside:
                    raise
            name, _, rest = path.strip().strip("/").removeprefix("./").partition("/")
            root = next((root for root in self.roots if root.name == name), None)
            if root is None and len(self.roots) == 1:
                root, rest = self.roots[0], path.strip().strip("/").removeprefix("./")
            if root is None or not is_there(Path(root.folder, rest)):
                raise NoSuchDocument(
                    f"There is no file or folder {path[:200]!r} in this workspace.",
                    hint=f"Paths begin with {self._root_words()}.",
                )
            found["/".join(part for part in (root.name, rest) if part)] = None
        return tuple(found)

    def _root_words(self) -> str:
        return " or ".join(root.name + ("" if root.is_file else "/") for root in self.roots[:8])

    def is_document(self, path: str) -> bool:
        return self.corpus.has_document(path)

    # -- searching -----------------------------------------------------------------------------------------

    def search(
        self,
        queries: Sequence[str],
        *,
        mode: Mode,
        under: tuple[str, ...],
        passages: int,
        chunk_set: ChunkSet,
    ) -> Found:
        """Chunks that answer, best first: each scored by its best passage.

        Raises IndexMismatch and StorageError when the index cannot be used; an index not built yet is no error.
        """
        from pensieve_mcp.index.types import SearchRequest

        self.look_if_stale()
        if not self.progress().searchable:
            return Found((), 0, ())
        try:
            self.corpus.ensure_chunk_set(chunk_set)
        except StorageError as error:
            if error.slug not in ("storage_read_only", "storage_unopenable"):
                raise
            log.warning("%s What is cut already is searched.", error.message)
        if not under and self.corpus.holds_others():
            under = tuple(root.name for root in self.roots)  # a dropped root is there until the next build
        answer = self.index.search(
            SearchRequest(
                tuple(queries),
                mode,
                under,
                limit=passages,
                deadline_seconds=max(1.0, self.settings.call_seconds / 5),
            )
        )
        passages_found = self.corpus.passages([hit.passage_id for hit in answer.hits])
        scores: dict[int, float] = {}
        chunks: dict[int, tuple[Chunk, list[Span], list[int]]] = {}
        for hit in answer.hits:
            passage = passages_found.get(hit.passage_id)
            if passage is None:  # replaced since the index was published
                continue
            chunk = self.corpus.chunk_containing(
                chunk_set, passage.document_id, passage.span.start, passage.span.end
            )
            if chunk is None:
                continue
            scores.setdefault(chunk.chunk_id, hit.score)
            _, spans, stretches = chunks.setdefault(chunk.chunk_id, (chunk, [], []))
            spans.append(passage.span)
            stretches.append(hit.stretch)
        hits = tuple(
            ChunkHit(
                chunk.chunk_id,
                chunk.document_id,
                scores[chunk_id],
                chunk.tokens,
                tuple(spans),
                tuple(stretches),
            )
            for chunk_id, (chunk, spans, stretches) in chunks.items()
        )
        return Found(hits, answer.total, answer.terms, answer.notes, answer.suggestions)

    def illuminate(self, hit: ChunkHit, terms: Sequence[str]) -> ChunkHit:
        """The hit with path, place of its best passage, state of its file and highlights: the sentences that mean
        the question where better vectors know them, and those with its words."""
        from pensieve_mcp.index.highlight import shown as shown_of

        corpus = self.corpus
        document = corpus.document_by_id(hit.document_id)
        shown: list[str] = []
        for span, stretch in zip(hit.spans[:2], (*hit.stretches, 0, 0), strict=False):
            text = corpus.text(hit.document_id, span)
            shown += [one.text.strip() for one in shown_of(text, terms, stretch, limit=2 if shown else 3)]
        return dataclasses.replace(
            hit,
            path=document.path,
            locator=corpus.locator(hit.document_id, hit.spans[0]),
            fresh=corpus.freshness([hit.document_id])[hit.document_id],
            highlights=tuple(dict.fromkeys(" ".join(text.split()) for text in shown if text))[:3],
        )

    # -- building ------------------------------------------------------------------------------------------

    def progress(self) -> BuildProgress:
        """Where the build stands, whichever process does it; also before a builder of ours has said its first word."""
        progress = self.corpus.progress()
        if progress.state in ("ready", "building"):
            return progress  # what another process does counts for more than what became of a builder of ours
        with self._lock:
            worker = self._open.get("build")
        return cast("BuildProgress", worker.checked(progress)) if worker is not None else progress

    def plan(
        self,
        chunk_set: ChunkSet | None = None,
        *,
        under: tuple[str, ...] = (),
        verify: bool = False,
        retry: bool = False,
        rebuild: bool = False,
    ) -> Plan:
        """What a build of this workspace does, after its settings."""
        from pensieve_mcp.building import Plan
        from pensieve_mcp.corpus.extract.pool import ExtractionPool
        from pensieve_mcp.corpus.extract.registry import extractor_fingerprint
        from pensieve_mcp.index.full_disk import telling_full
        from pensieve_mcp.index.index import Index
        from pensieve_mcp.storage import program

        settings = self.settings
        limits = self.limits
        workers = min(3, settings.workers)

        def open_index(folder: Path) -> Index:
            with telling_full(folder):
                return Index.open(
                    folder,
                    encoder_spec=settings.encoder,
                    texts=self.corpus.passage_texts,
                    scan=self._scan_literal,
                )

        return Plan(
            roots=self.roots,
            index_folder=self.state / "index",
            open_index=open_index,
            open_readers=lambda: ExtractionPool(workers, limits),
            extractors=extractor_fingerprint(),
            program=program(),
            chunk_set=chunk_set or self.default_chunk_set,
            rules=self.rules,
            workers=workers,
            fallback_encoding=settings.fallback_encoding or None,
            under=under,
            verify=verify,
            retry=retry,
            rebuild=rebuild,
        )

    @property
    def limits(self) -> Limits:
        """Bounds of reading a file."""
        settings = self.settings
        return Limits(
            text_file_bytes=settings.text_file_mb * 2**20, rich_file_bytes=settings.rich_file_mb * 2**20
        )

    @property
    def rules(self) -> WalkRules:
        """What of the folders is taken."""
        from pensieve_mcp.corpus.walk import WalkRules

        settings = self.settings
        return WalkRules(
            hidden=settings.hidden_files,
            secrets=settings.secret_files,
            follow_links=settings.follow_links,
            never=(str(self.state),),
            max_file_bytes=max(settings.text_file_mb, settings.rich_file_mb) * 2**20,
        )

    def build_now(
        self,
        plan: Plan | None = None,
        *,
        progress: Callable[[BuildProgress], None] | None = None,
        cancel: Callable[[], bool] = lambda: False,
    ) -> BuildProgress:
        """Build in this process and wait for it. A damaged corpus.db is set aside and made anew; its ids lie in
        pensieve.db. Raises what `building.build` raises."""
        from pensieve_mcp import building
        from pensieve_mcp.storage import set_aside_if_damaged

        self._last_look = time.monotonic()
        plan = plan or self.plan()
        try:
            return building.build(self.corpus, plan, cancel=cancel, progress=progress)
        except StorageError as error:
            if error.slug != "storage_corrupt" or not set_aside_if_damaged(self.state / "corpus.db"):
                raise
        return building.build(self.corpus, plan, cancel=cancel, progress=progress)

    def upgrade_now(
        self,
        *,
        progress: Callable[[BuildProgress], None] | None = None,
        cancel: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Let the sentence model read every passage in this process, as a server does while idle, and wait for it.

        False when cancelled, or while another process builds. Raises BackendError when the model cannot be had.
        """
        from pensieve_mcp import building

        return building.upgrade(
            self.corpus, self.plan(), seconds=float("inf"), cancel=cancel, progress=progress
        )

    def build(
        self, chunk_set: ChunkSet | None = None, *, under: tuple[str, ...] = (), wait_seconds: float = 2.0
    ) -> BuildProgress:
        """Start a build in the background, or join the one that runs, and wait for it a moment.

        `under` are path prefixes as `prefix` gives them: only changes below them are taken up. Answers the
        progress then, finished or not.
        """
        self._last_look = time.monotonic()
        if self._builder == "inline":
            return self.build_now(self.plan(chunk_set, under=under))
        from pensieve_mcp.builder import Background

        worker: Background = self._once("build", lambda: Background(self))
        worker.start(chunk_set or self.default_chunk_set, under=under)
        worker.wait(wait_seconds)
        return worker.checked(self.progress())

    def look_if_stale(self) -> None:
        """Before a search: look at the folders again when the last look is old. Never waits for it."""
        if not self.settings.auto_index or self._builder == "inline":
            return
        if time.monotonic() - self._last_look > self.settings.rescan_seconds:
            self.build(wait_seconds=0.0)

    def look_now(self, wait_seconds: float = 0.0) -> None:
        """A file was met that is not as it was indexed: look at the folders again soon, in the background."""
        if (
            self.settings.auto_index
            and self._builder == "process"
            and time.monotonic() - self._last_look > 5.0
        ):
            self.build(wait_seconds=wait_seconds)

    def standing(self) -> str:
        """What a reader should know of the index, worded for a model; empty when it is whole and up to date."""
        told = self.progress()
        left = max(0, told.documents_total - told.documents_done)
        if told.state == "building":
            if told.searchable:
                one = "document" if told.searchable == 1 else "documents"
                are = "is" if left == 1 else "are"
                rest = f", {left:,} of {told.documents_total:,} files {are} left" if left else ""
                return f"Still indexing: {told.searchable:,} {one} can be searched{rest}."
            done = f" ({told.documents_done:,} of {told.documents_total:,} files are read)"
            return (
                "The documents are being indexed, and the index holds no text yet"
                f"{done if told.documents_total else ''}: try again in a moment."
            )
        if told.state == "failed":
            return f"The last indexing failed: {told.detail} Call buildIndex to try again."
        if told.state == "stale":
            words = told.detail or "Indexing was interrupted."
            if told.searchable:
                return f"{words} Call buildIndex to go on."
            return f"{words} Nothing can be searched yet: call buildIndex to go on."
        if told.state == "empty" and not told.warnings:
            return "Nothing is indexed yet: call buildIndex."
        if not told.documents_total:
            folders = ", ".join(root.folder for root in self.roots)
            return f"No readable document was found in {folders}; analyzeText tells what was skipped."
        return ""

    def why_empty(self) -> str:
        """One sentence for a reader who found nothing: what the state of the index has to do with it."""
        return self.standing() or "The index is ready."


def list_workspaces(environment: Mapping[str, str]) -> list[WorkspaceInfo]:
    """All workspaces in the data folder, the last used first. One with a damaged file is left out, and logged."""
    places = data_folder(environment) / "workspaces"
    found = []
    if places.is_dir():
        for place in places.iterdir():
            try:
                if (info := _read_workspace_file(place)) is not None:
                    found.append(info)
            except WorkspaceError as error:
                log.warning("%s", error)
    return sorted(found, key=lambda info: -info.last_used)


def known_workspace(
    paths: Sequence[str | os.PathLike[str]], environment: Mapping[str, str]
) -> WorkspaceInfo | None:
    """The workspace over exactly these folders, if there is one; makes none. Raises WorkspaceError for a folder
    that does not exist."""
    place = data_folder(environment) / "workspaces" / _derived_name([existing(path) for path in paths])
    return _read_workspace_file(place)


def workspace_around(
    paths: Sequence[str | os.PathLike[str]], environment: Mapping[str, str]
) -> WorkspaceInfo | None:
    """The workspace, the last used first, in whose folders all of these paths lie. Raises WorkspaceError."""
    wanted = [Path(os.path.realpath(existing(path))) for path in paths]
    for info in list_workspaces(environment):
        tops = [Path(os.path.realpath(root.folder)) for root in info.roots]
        if all(any(path.is_relative_to(top) for top in tops) for path in wanted):
            return info
    return None


def existing(path: str | os.PathLike[str]) -> Path:
    """The path, absolute. Raises WorkspaceError (`no_such_folder`, `no_home`, `not_permitted`)."""
    text = os.fspath(path)
    if not text.strip():
        raise WorkspaceError(
            "An empty path was given.", hint="Name the folder of your documents.", slug="no_folder"
        )
    try:
        full = typed(text).absolute()
    except FileNotFoundError as error:  # a relative path, and nothing it could be relative to
        raise WorkspaceError(
            f"{text} cannot be found: the folder this was called in is no longer there.",
            hint="Change to another folder, or give an absolute path.",
            slug="no_such_folder",
        ) from error
    if not is_there(full):
        raise WorkspaceError(
            f"There is no folder or file {full}.",
            hint="Check the spelling, or whether its disk is there.",
            slug="no_such_folder",
        )
    return full


def _index_there(folder: Path) -> tuple[int, ...]:
    """Which index lies there: a folder that was deleted and made anew differs. Empty where there is none."""
    try:
        place, shape = folder.stat(), (folder / "index.json").stat()
    except OSError:
        return ()
    return place.st_dev, place.st_ino, shape.st_ino, shape.st_mtime_ns


def _derived_name(folders: Sequence[Path]) -> str:
    """A name of its own for this set of folders: readable, and the same in every process."""
    joined = "\0".join(sorted(os.path.realpath(folder) for folder in folders))
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", folders[0].name).strip("-.") or "folder"
    return f"{stem[:40]}-{digest}"


def _read_workspace_file(place: Path) -> WorkspaceInfo | None:
    file = place / WORKSPACE_FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["format"] > FORMAT:
            raise WorkspaceError(
                f"{file} was written by a newer version.",
                hint="Update pensieve-statelm.",
                slug="newer_format",
            )
        roots = tuple(
            Root(root["name"], os.fsdecode(bytes.fromhex(root["folder_hex"])), root["is_file"])
            for root in data["roots"]
        )
        name = str(data["name"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise WorkspaceError(
            f"{file} may not be read.",
            hint="Give yourself permission on that folder, or choose another with --state DIR.",
            slug="bad_workspace_file",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkspaceError(
            f"{file} cannot be read: {str(error)[:200]}.",
            hint="Remove that file and open the folders again; notes are not in it.",
            slug="bad_workspace_file",
        ) from error
    used = max((entry.stat().st_mtime for entry in place.glob("*.db*")), default=file.stat().st_mtime)
    return WorkspaceInfo(name, place, roots, used)


def _write_workspace_file(place: Path, name: str, roots: Sequence[Root]) -> None:
    data = {
        "format": FORMAT,
        "name": name,
        "created": time.time(),
        # hexadecimal beside the readable one, since a folder's name need not be text
        "roots": [
            {
                "name": root.name,
                "folder": root.folder.encode("utf-8", "replace").decode(),
                "folder_hex": os.fsencode(root.folder).hex(),
                "is_file": root.is_file,
            }
            for root in roots
        ],
    }
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = place / f".{WORKSPACE_FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False), encoding="utf-8")
        temporary.replace(place / WORKSPACE_FILE)
    except OSError as error:
        raise WorkspaceError(
            f"The state folder {place} cannot be written: {error.strerror or error}.",
            hint="Give --state a folder you may write to, or set PENSIEVE_HOME.",
            slug="state_not_writable",
        ) from error

"""The index as the rest of the house sees it: passages in, hits out.

It joins the word index (`lexical.py`), the vectors (`vectors.py`), the encoders and their loading, and decides
what answers a question: words at once, vectors when their encoder is there and their generation is the words'
own. It knows no file and no chunk; texts come through ports. Everything here is derived: deleting the folder
is an ordinary thing to do.

Files in the folder: `index.json` (what shaped it), `lexical/`, `vectors/`. The generation of the last commit
travels inside both sides, so a reader between two commits sees that they differ and leaves the vectors out.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import BackendError, IndexMismatch, PensieveError, StorageError
from pensieve_mcp.index import exact, fields, fusion, suggestions, upgrading
from pensieve_mcp.index.exact import LiteralScan
from pensieve_mcp.index.lexical import LexicalIndex, Matches
from pensieve_mcp.index.loading import Loading, OpenEncoder, VectorCache
from pensieve_mcp.index.question import Asked
from pensieve_mcp.index.types import (
    Mode,
    PassageHit,
    PassageTexts,
    SearchAnswer,
    SearchRequest,
)
from pensieve_mcp.index.writing import IndexWriter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pensieve_mcp.index.vectors import VectorStore

FORMAT = 1
STATIC, TRUE = "static", "minilm"  # the table, and the model in whose space it lies
SIDE_LIMIT = 200  # candidates each side brings into the fusion
SECOND_STAGE_LIMIT = 20  # candidates that get their true vector; 20 keep 76 % of what all would gain
SECOND_STAGE_SECONDS = 0.3  # looked at before each passage, so the most that is overrun is one passage
ENCODER_PATIENCE_SECONDS = 0.4  # the static table is ready within this on any machine we saw
SPELLED_WORDS = 3  # near spellings are looked up for keywords; a long question that matches can spare a word
QUESTION_CHARS = 2_000  # what of a question is encoded; models read about this much


class Index:
    """An opened index folder. Searching is safe on threads; writing is one process's at a time."""

    def __init__(
        self,
        folder: Path,
        lexical: LexicalIndex,
        vectors: VectorStore,
        state: Mapping[str, Any],
        *,
        encoder_spec: str,
        texts: PassageTexts | None,
        scan: LiteralScan | None,
        second_stage: bool,
        opener: OpenEncoder,
    ) -> None:
        self.folder = folder
        self.encoder_spec = encoder_spec
        self._lexical = lexical
        self._vectors = vectors
        self._state = dict(state)
        self._texts = texts
        self._scan = scan
        self._base = Loading(encoder_spec, opener)
        self._true = Loading(TRUE, opener) if second_stage and encoder_spec == STATIC else None
        self._cache = VectorCache()
        self._refreshing = threading.Lock()
        self._closed = False
        self._trouble = ""  # why the last commit of vectors cannot be read
        self._below: tuple[int, tuple[str, ...], frozenset[int]] | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        encoder_spec: str = STATIC,
        read_only: bool = False,
        texts: PassageTexts | None = None,
        scan: LiteralScan | None = None,
        second_stage: bool = True,
        opener: OpenEncoder | None = None,
    ) -> Index:
        """Opens, or makes, the index in `folder`. No encoder is loaded before the first question or passage.

        `second_stage` False keeps MiniLM out altogether. `opener` turns a spec into an encoder (tests).
        Raises IndexMismatch when it is missing (read only), of another version or made with another encoder,
        StorageError when it is damaged. In each case building again mends it. Damaged vectors alone keep a
        reader from nothing: words answer, and `notes` and `check` say why (a builder is refused, to build anew).
        """
        state = _read_state(folder)
        if state is None and read_only:
            raise IndexMismatch(
                f"There is no index in {folder}.", hint="Build it first: buildIndex.", slug="index_missing"
            )
        if state is not None:
            _compare(folder, state, encoder_spec)
        lexical = LexicalIndex.open(folder / "lexical", read_only=read_only)
        from pensieve_mcp.index.vectors import VectorStore

        trouble = ""
        try:
            vectors = VectorStore.open(folder / "vectors", read_only=read_only)
        except PensieveError as error:
            if not read_only:
                raise
            vectors, trouble = VectorStore.unread(folder / "vectors"), str(error)
        if state is None:
            state = {
                "format": FORMAT,
                "fields": fields.VERSION,
                "encoder_spec": encoder_spec,
                "encoder": None,
            }
            _write_state(folder, state)
        if opener is None:
            from pensieve_mcp.index.encoders import open_encoder

            opener = open_encoder
        opened = cls(
            folder,
            lexical,
            vectors,
            state,
            encoder_spec=encoder_spec,
            texts=texts,
            scan=scan,
            second_stage=second_stage,
            opener=opener,
        )
        opened._trouble = trouble
        return opened

    def close(self) -> None:
        """Let go of all files, so that the folder can be deleted, on Windows too. What is asked afterwards is
        answered by StorageError (slug `index_closed`). Closing twice is no error."""
        with self._refreshing:
            self._closed = True
            self._below = None
            self._vectors.close()
            self._lexical.close()

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number of the last commit that is whole; 0 for an empty index."""
        self._refresh()
        return min(self._lexical.generation, self._vectors_generation())

    def fingerprint(self) -> str:
        """All that shaped the index. Another fingerprint means that it must be built again."""
        encoder = self._state.get("encoder") or self._state.get("encoder_spec")
        return f"index-{FORMAT}/fields-{self._state.get('fields')}/{encoder}"

    def stats(self) -> dict[str, Any]:
        """Counts and sizes: passages, segments, bytes, generation, what the vectors tell of themselves."""
        self._refresh()
        return {
            **self._lexical.stats(),
            "generation": self._lexical.generation,
            "fingerprint": self.fingerprint(),
            "vectors": self._vectors.stats(),
            "vectors_in_step": self._in_step(),
            "upgraded_share": self._upgraded_share(),
            "encoder_failure": self._base.failure,
            "second_stage": self._true is not None and not self._true.failure,
            "cached_vectors": len(self._cache),
        }

    def check(self) -> tuple[str, ...]:
        """Sentences about what is wrong with the index; empty when nothing is. Reads, never mends."""
        try:
            self._refresh()
            passages = self._lexical.passages
        except PensieveError as error:
            return (str(error),)
        if self._trouble:
            return (f"{self._trouble} Until then search by meaning is off.",)
        problems = []
        if not self._in_step():
            problems.append(
                f"Words are at commit {self._lexical.generation}, vectors at {self._vectors_generation()}: "
                "search by meaning is off until the next build."
            )
        missing = passages - int(self._vectors.stats().get("passages", 0))
        if missing > 0:
            problems.append(
                f"{missing:,} of {passages:,} passages have no vector and are found by words only."
            )
        elif missing < 0:
            problems.append(f"Vectors that belong to no passage: {-missing:,}; building again drops them.")
        if self._base.failure:
            problems.append(f"The encoder could not be loaded: {self._base.failure}")
        return tuple(problems)

    @property
    def texts(self) -> PassageTexts | None:
        return self._texts

    @property
    def loading(self) -> bool:
        """Whether an encoder that was asked for is still on its way."""
        return self._base.pending or (self._true is not None and self._true.pending)

    def warm(self) -> None:
        """Begin to load the encoders; returns at once."""
        self._base.start()
        if self._true is not None:
            self._true.start()

    # -- searching -----------------------------------------------------------------------------------------

    def search(self, request: SearchRequest) -> SearchAnswer:
        """Answers any question, with less than was asked where something is missing, which `notes` then say.

        Raises StorageError when the files are damaged, never for what the question holds.
        """
        deadline = time.monotonic() + request.deadline_seconds
        self._refresh()
        queries = tuple(query for query in request.queries if query.strip())
        limit = max(0, request.limit)
        if not queries or not limit:
            return SearchAnswer((), 0, request.mode, ("The question is empty.",) if not queries else ())
        if not self._lexical.passages:
            return SearchAnswer((), 0, request.mode, ("The index holds no text yet.",))
        under = tuple(dict.fromkeys(place.strip("/") for place in request.under if place.strip("/")))
        if under and not self._lexical.any_under(under):
            return SearchAnswer(
                (), 0, request.mode, (f"Nothing that is indexed lies under {', '.join(under)}.",)
            )
        if request.mode == "exact":
            return self._exact(queries, under, limit, deadline)
        return self._ranked(request.mode, queries, under, limit, deadline)

    def _exact(
        self, queries: tuple[str, ...], under: tuple[str, ...], limit: int, deadline: float
    ) -> SearchAnswer:
        keywords = tuple(dict.fromkeys(one for query in queries for one in exact.literals(query)))
        notes = []
        if self._texts is None and self._scan is None:
            return SearchAnswer((), 0, "exact", ("Exact search needs the texts, which are not at hand.",))
        found = exact.search(
            self._lexical,
            keywords,
            under=under,
            limit=limit,
            deadline=deadline,
            texts=self._texts,
            scan=self._scan,
        )
        if found.late:
            notes.append("The time ran out: there may be more places than these.")
        elif not found.complete:
            notes.append("Whole words inside single passages were looked for; there may be other places.")
        elif not found.hits:
            notes.append("Nothing that is indexed holds this as it stands.")
        hits = tuple(PassageHit(passage, document, score, score) for passage, document, score in found.hits)
        suggested: tuple[str, ...] = ()
        if not hits and not found.late:
            asked = self._lexical.ask(" ".join(keywords))
            suggested = suggestions.near_words(self._lexical, asked, self._texts)
            notes += suggestions.sentence(suggested)
        folded = tuple(fields.fold_literal(keyword) for keyword in keywords)
        return SearchAnswer(hits, found.total, "exact", tuple(notes), suggested, folded)

    def _ranked(
        self, mode: Mode, queries: tuple[str, ...], under: tuple[str, ...], limit: int, deadline: float
    ) -> SearchAnswer:
        notes: list[str] = []
        asked = [self._lexical.ask(query) for query in queries]
        wanted = max(limit, SIDE_LIMIT)
        matches = [self._match(one, under, wanted, mode, notes) for one in asked]
        used: Mode = mode
        ranked: list[list[fusion.Fused]]
        searched = None
        stretches: dict[int, int] = {}
        if mode != "lexical":
            searched = self._dense(queries, asked, matches, under, limit, mode, deadline, notes, stretches)
        if searched is None:
            used = "lexical"
            ranked = [
                self._retold(_by_words(one, found), one, limit, 1.0)
                for one, found in zip(asked, matches, strict=True)
            ]
        else:
            ranked = searched
        fused = fusion.interleave(ranked, limit)
        documents: dict[int, int] = {}
        for found in matches:
            documents.update(zip(found.passage_ids, found.document_ids, strict=True))
        unplaced = [one.passage_id for one in fused if one.passage_id not in documents]
        documents.update(self._lexical.locate(unplaced, under=under))
        hits = tuple(
            PassageHit(
                one.passage_id,
                documents[one.passage_id],
                one.score,
                min(one.lexical, 1.0),
                one.dense,
                stretches.get(one.passage_id, 0),
            )
            for one in fused
            # Absent ones were removed since the vectors were written, or moved out of `under`.
            if one.passage_id in documents and (one.score > 0 or one.lexical > 0)
        )
        for one in asked:
            notes += one.notes
        suggested = self._explain(asked, matches, notes)
        if not hits and not notes:
            notes.append("No passage is near to that.")
        total = max((found.total for found in matches), default=0)
        show = tuple(dict.fromkeys(term for one in asked for term in one.show))
        return SearchAnswer(hits, total, used, tuple(dict.fromkeys(notes)), suggested, show)

    def _match(
        self, asked: Asked, under: tuple[str, ...], limit: int, mode: Mode, notes: list[str]
    ) -> Matches:
        """What the words find. Phrases that no passage holds all of are looked for one by one; their words, too."""
        all_first = mode == "lexical"
        found = self._lexical.search(asked, under=under, limit=limit, all_first=all_first)
        if not asked.phrases or found.total:
            return found
        phrases = tuple(dict.fromkeys(asked.phrases))
        found = self._lexical.search(asked.loosened(), under=under, limit=limit, all_first=all_first)
        standing = {}
        if len(phrases) > 1:
            for phrase in phrases:
                alone = self._lexical.search(asked.with_phrase(phrase), under=under, limit=limit)
                if alone.total:
                    standing[phrase] = alone
        if absent := [phrase for phrase in phrases if phrase not in standing]:
            one = len(absent) == 1
            notes.append(
                f"No passage holds the {'phrase' if one else 'phrases'} {_in_quotes(absent)} as "
                f"{'it stands; its' if one else 'they stand; their'} words were looked for instead."
            )
        if len(standing) > 1:
            first = "one of them" if len(standing) == 2 else "the most of them"
            come = "" if mode == "dense" else f"; those that hold {first} come first"
            notes.append(f"No passage holds {_in_quotes(standing)} together{come}.")
        return found.after(list(standing.values()), limit)

    def _explain(
        self, asked: Sequence[Asked], matches: Sequence[Matches], notes: list[str]
    ) -> tuple[str, ...]:
        """Sentences on how far the words matched; returns near spellings."""
        suggested: list[str] = []
        for number, (one, found) in enumerate(zip(asked, matches, strict=True), 1):
            of = f"Question {number}: " if len(asked) > 1 else ""
            if not one.words:
                notes.append(f"{of}The question holds no letters or digits; mode exact finds signs.")
                continue
            if not found.total:
                notes.append(f"{of}No passage holds any of the words.")
            elif len(one.words) > 1 and not found.with_all:
                notes.append(f"{of}No passage holds all of the words; these hold some.")
            elif found.with_all < min(found.total, 10):
                noun = "passage holds" if found.with_all == 1 else "passages hold"
                notes.append(f"{of}{found.with_all} {noun} all of the words, the rest some of them.")
            if one.unknown and (not found.total or len(one.words) <= SPELLED_WORDS):
                near = suggestions.near_words(self._lexical, one, self._texts)
                suggested += near
                notes += suggestions.sentence(near)
        return tuple(dict.fromkeys(suggested))

    # -- by meaning ----------------------------------------------------------------------------------------

    def _dense(
        self,
        queries: Sequence[str],
        asked: Sequence[Asked],
        matches: Sequence[Matches],
        under: tuple[str, ...],
        limit: int,
        mode: Mode,
        deadline: float,
        notes: list[str],
        stretches: dict[int, int],
    ) -> list[list[fusion.Fused]] | None:
        """Each question's passages by both sides (mode dense: by cosine alone); None when vectors cannot help.
        `stretches` is told which stretch of a passage is nearest in meaning."""
        reason = self._dense_hindrance(deadline)
        if reason:
            notes.append(reason)
            return None
        ranked = []
        helped = False
        wanted = max(limit, SIDE_LIMIT)
        allowed = self._allowed(under)
        share = self._upgraded_share()
        for query, one, found in zip(queries, asked, matches, strict=True):
            lexical = _normalised(one, found)
            script = self._script_weight(query)
            if script <= 0.0 or time.monotonic() >= deadline:
                if mode == "dense" and script <= 0.0:
                    notes.append("The encoder does not know this script; words were searched.")
                worded = fusion.tiers(fusion.fuse(lexical, {}, 1.0), found.literal)
                ranked.append(self._retold(worded, one, limit, 1.0))
                continue
            helped = True
            vector, is_true = self._question_vector(query, notes)
            sentences = is_true and self._true is not None and share > 0.0
            kept = max(limit, SECOND_STAGE_LIMIT)
            if mode == "dense":
                ids, cosines = self._vectors.search(
                    vector, wanted, allowed_documents=allowed, deadline=deadline
                )
                nearest = dict(zip(ids.tolist(), cosines.tolist(), strict=True))
                ranking = fusion.fuse({}, nearest, 0.0, kept)
                weight, power = 0.0, 1.0
            else:
                weight = fusion.lexical_weight(share if is_true else 0.0, script)
                power = fusion.lexical_power(share if sentences else 0.0, script, bool(found.with_all))
                if found.literal:
                    kept = 2 * wanted  # none that holds a phrase is cut off before those come first
                words = list(lexical)
                dense = dict(zip(words, self._vectors.cosines(vector, words).tolist(), strict=True))
                ranking = fusion.fuse(lexical, dense, weight, kept, power=power)
                # No cosine is above 1: where enough keyword hits score more than that alone would, looking at
                # all vectors cannot change what is kept. At 100,000 passages it is most of a question's cost.
                if len(ranking) < kept or ranking[-1].score < 1.0 - weight:
                    ids, cosines = self._vectors.search(
                        vector, wanted, allowed_documents=allowed, deadline=deadline
                    )
                    dense.update(zip(ids.tolist(), cosines.tolist(), strict=True))
                    ranking = fusion.fuse(lexical, dense, weight, kept, power=power)
                ranking = fusion.tiers(ranking, found.literal)
            # For other languages the model's order is worse than the words' (Spanish: .766 to .738).
            if is_true and self._true is not None and share < 1.0 and script >= 1.0:
                ranking = self._second_stage(vector, ranking, deadline, notes)
                if mode != "dense":
                    ranking = fusion.tiers(ranking, found.literal)
                    weight, power = fusion.LEXICAL_WEIGHT_TRUE, 1.0
            if sentences:
                first = [one.passage_id for one in ranking[:limit]]
                numbers = self._vectors.nearest_parts(vector, first).tolist()
                for passage, number in zip(first, numbers, strict=True):
                    if number > 0:
                        stretches.setdefault(passage, number)
            ranked.append(self._retold(ranking, one, limit, weight, power))
        return ranked if helped else None

    def _retold(
        self, ranking: list[fusion.Fused], asked: Asked, limit: int, weight: float, power: float = 1.0
    ) -> list[fusion.Fused]:
        """The first `limit`, in their order, with scores as they are told: fair to scripts of a few passages only."""
        first = ranking[:limit]
        bound = asked.bound or 1.0
        scores = {one.passage_id: one.lexical * bound for one in first if one.lexical > 0}
        fair = self._lexical.fair(asked, scores) if weight else {}
        shares = {passage: min(1.0, score / bound) for passage, score in fair.items()}
        return fusion.retold(first, shares, weight, power=power)

    def _dense_hindrance(self, deadline: float) -> str:
        if self._trouble:
            return f"{self._trouble} Until then words alone are searched."
        if not self._in_step():
            return "The vectors are of another commit than the words; words alone were searched."
        if not int(self._vectors.stats().get("passages", 0)):
            return "There are no vectors yet; words alone were searched."
        left = max(0.0, deadline - time.monotonic())
        encoder = self._base.get(min(ENCODER_PATIENCE_SECONDS, left / 2))
        if encoder is None:
            if self._base.failure:
                return f"The encoder could not be loaded ({self._base.failure}); words alone were searched."
            return "The encoder is still loading; words alone were searched. Asking again will use it."
        made_with = self._state.get("encoder")
        if made_with and made_with != encoder.name:
            return (
                f"The vectors were made by {made_with}, not by {encoder.name}; "
                "words alone are searched until a rebuild."
            )
        return ""

    def _question_vector(self, query: str, notes: list[str]) -> tuple[NDArray[np.float32], bool]:
        """The question's vector, and whether it is a model's own rather than the table's."""
        text = query.encode("utf-8", "replace").decode("utf-8")[:QUESTION_CHARS]
        true = self._true.get() if self._true is not None else None
        if true is not None:
            try:
                return true.queries([text])[0], True
            except BackendError as error:
                notes.append(f"The model failed ({error.message}); the table in its space answered.")
        base = self._base.get(None)
        assert base is not None
        return base.queries([text])[0], self.encoder_spec != STATIC

    def _second_stage(
        self,
        vector: NDArray[np.float32],
        ranking: list[fusion.Fused],
        deadline: float,
        notes: list[str],
    ) -> list[fusion.Fused]:
        """The best candidates scored by their true vectors, as many as the time suffices for."""
        model = self._true.get() if self._true is not None else None
        if model is None or self._texts is None or not ranking:
            return ranking
        head, rest = ranking[:SECOND_STAGE_LIMIT], ranking[SECOND_STAGE_LIMIT:]
        ends = min(time.monotonic() + SECOND_STAGE_SECONDS, deadline)
        ids = [one.passage_id for one in head]
        have = dict(zip(ids, self._vectors.upgraded(ids).tolist(), strict=True))
        cosines = {one.passage_id: one.dense for one in head if have[one.passage_id]}
        texts = self._texts([passage for passage in ids if not have[passage]])
        unknown: list[tuple[int, str]] = []
        for passage, text in texts.items():
            known = self._cache.known(text)
            if known is None:
                unknown.append((passage, text))
            else:
                cosines[passage] = float(known @ vector)
        unknown.sort(key=lambda one: ids.index(one[0]))
        longest = 0.0
        for passage, text in unknown:
            begun = time.monotonic()
            if begun + longest >= ends:
                break
            try:
                made = model.documents([text])
            except BackendError as error:
                notes.append(f"The model failed on a passage ({error.message}); the first order stands.")
                break
            self._cache.keep([text], made)
            cosines[passage] = float(made[0] @ vector)
            longest = max(longest, time.monotonic() - begun)
        return fusion.rerank(head, cosines, rest)

    def _script_weight(self, query: str) -> float:
        """How far the encoder knows the question's script; a model somebody chose is trusted with every one."""
        weigh = getattr(self._base.get(None), "script_weight", None)
        return 1.0 if weigh is None else float(weigh(query))

    def _allowed(self, under: tuple[str, ...]) -> frozenset[int] | None:
        if not under:
            return None
        kept = self._below
        if kept is None or kept[:2] != (self._lexical.generation, under):
            kept = (self._lexical.generation, under, self._lexical.documents_under(under))
            self._below = kept
        return kept[2]

    # -- both sides in step --------------------------------------------------------------------------------

    def _refresh(self) -> None:
        with self._refreshing:
            if self._closed:
                raise StorageError(
                    f"The index in {self.folder} was closed.", hint="Open it again.", slug="index_closed"
                )
            self._lexical.refresh()
            try:
                self._vectors.refresh()  # in any case: better vectors come under the generation there is
                self._trouble = ""
            except PensieveError as error:  # words answer; the reason stands in every answer's notes
                self._trouble = str(error)
            if not self._in_step():  # a commit may have ended between the two looks
                self._lexical.refresh()

    def _vectors_generation(self) -> int:
        return int(self._vectors.generation)

    def _in_step(self) -> bool:
        return self._vectors_generation() == self._lexical.generation

    def _upgraded_share(self) -> float:
        if self.encoder_spec != STATIC:
            return 1.0
        stats = self._vectors.stats()
        passages = int(stats.get("passages", 0))
        return int(stats.get("upgraded", 0)) / passages if passages else 0.0

    # -- writing -------------------------------------------------------------------------------------------

    def writer(self) -> IndexWriter:
        """The one writer, to be closed. Raises StorageError (slug `index_busy`) while another process writes."""

        self._refresh()

        def save(state: Mapping[str, Any]) -> None:
            _write_state(self.folder, state)

        return IndexWriter(self._lexical, self._vectors, self._base, self._state, save)

    def upgrade(
        self,
        texts: PassageTexts,
        *,
        seconds: float,
        cancel: Callable[[], bool] = lambda: False,
    ) -> bool:
        """The third tier: true vectors, of passages and of windows of 250 characters in them, replace the table's.

        Works in batches, each committed, until done (True), `seconds` are over or `cancel()`. What is done stays
        done. Raises BackendError when the model cannot be had, StorageError while another process writes.
        """
        model = self._true.get(None) if self._true is not None else None
        if model is None:
            reason = (
                self._true.failure
                if self._true is not None
                else "it is switched off, or another encoder is used"
            )
            raise BackendError(
                f"There is no model for better vectors: {reason}.",
                hint="Search goes on with the vectors there are.",
                slug="no_model",
            )
        lock = self._lexical.writer()
        try:
            self._refresh()
            if not self._in_step():
                raise StorageError(
                    "Vectors and words are of different commits.", hint="Build the index again first."
                )
            return upgrading.upgrade(
                self._vectors,
                model,
                texts,
                generation=self._lexical.generation,
                seconds=seconds,
                cancel=cancel,
            )
        finally:
            self._vectors.discard()
            lock.close()

    def fill(self, texts: PassageTexts) -> int:
        """Give passages that have no vector one; returns how many. They lack one after their encoder failed.

        Raises BackendError when it fails again, StorageError while another process writes.
        """
        self._refresh()
        encoder = self._base.get(None)
        if encoder is None:
            raise BackendError(
                f"The encoder could not be loaded: {self._base.failure}", hint="Words are searched meanwhile."
            )
        lock = self._lexical.writer()
        try:
            places = self._lexical.all_passages()
            number = upgrading.fill(
                self._vectors, encoder, texts, places, generation=self._lexical.generation
            )
        finally:
            self._vectors.discard()
            lock.close()
        if number and self._state.get("encoder") is None:
            self._state["encoder"] = encoder.name
            _write_state(self.folder, self._state)
        return number


def _in_quotes(phrases: Iterable[Sequence[str]]) -> str:
    return ", ".join(f"“{' '.join(words)}”" for words in phrases)


def _by_words(asked: Asked, found: Matches) -> list[fusion.Fused]:
    """Mode lexical keeps the order all words, then some words; scores never rise along it."""
    ranked, lowest = [], float("inf")
    for passage, score in zip(found.passage_ids, found.scores, strict=True):
        lexical = score / asked.bound if asked.bound else 0.0
        lowest = min(lowest, lexical)
        ranked.append(fusion.Fused(passage, lowest, lexical, 0.0))
    return ranked


def _normalised(asked: Asked, found: Matches) -> dict[int, float]:
    bound = asked.bound or 1.0
    return {passage: score / bound for passage, score in zip(found.passage_ids, found.scores, strict=True)}


def _read_state(folder: Path) -> dict[str, Any] | None:
    """What shaped the index, or None where none is. Raises IndexMismatch for what cannot be read."""
    file = folder / "index.json"
    try:
        state = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{file} cannot be read: {error}",
            hint=f"Delete {folder} and build the index again; the documents are untouched.",
            slug="index_damaged",
        ) from error
    if not isinstance(state, dict):
        raise StorageError(
            f"{file} does not hold what it should.",
            hint=f"Delete {folder} and build the index again.",
            slug="index_damaged",
        )
    return state


def _write_state(folder: Path, state: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"index.json.{os.getpid()}"
    try:
        made.write_text(json.dumps(dict(state)), encoding="utf-8")
        made.replace(folder / "index.json")
    except OSError as error:
        raise StorageError(
            f"{folder / 'index.json'} cannot be written: {error}", hint="Check the disk and the permissions."
        ) from error


def _compare(folder: Path, state: Mapping[str, Any], encoder_spec: str) -> None:
    found = state.get("format"), state.get("fields")
    if found != (FORMAT, fields.VERSION):
        raise IndexMismatch(
            f"The index in {folder} is of format {found[0]}.{found[1]}, this program reads {FORMAT}.{fields.VERSION}.",
            hint="Where a newer version made it, update this one; pensieve doctor names what each host starts. Else "
            "build the index again (pensieve workspace rebuild); the documents are untouched.",
            slug="other_version",
        )
    if state.get("encoder_spec") != encoder_spec:
        raise IndexMismatch(
            f"The index in {folder} was made with the encoder {state.get('encoder_spec')}, not {encoder_spec}: "
            "their vectors cannot be compared.",
            hint=f"Set index.encoder to {state.get('encoder_spec')}, or build the index again.",
            slug="other_encoder",
        )

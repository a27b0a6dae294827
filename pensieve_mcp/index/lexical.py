"""The lexical side of the index: BM25 over passages, in a folder that tantivy keeps.

tantivy is known to this file only. It learns passages field by field (`fields.py`) and stores no text.
Questions are analysed by the same code (`question.py`) and built from terms by hand, never by a syntax parser,
so no string can be a syntax error (complaints basic-memory: `NOT foo`; the FTS5 family: `a=b`, `50%`). Fusing,
exact search and highlights are others' business.

Stop words are indexed and left out of the question, unless it has nothing else: `"to be or not to be"` and
`the who` are found, and phrases keep their words.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pensieve_mcp.errors import IndexMismatch, PensieveError, StorageError
from pensieve_mcp.index import fields, question
from pensieve_mcp.index.question import MAX_WORDS, Asked, Term
from pensieve_mcp.index.types import PassageRecord

WRITER_HEAP_BYTES = 96 * 2**20  # per writing thread; below some 15 MB tantivy refuses
LONGEST_WORD_BYTES = 64
K1, B = 1.2, 0.75  # of tantivy's BM25
LIKE_THE_MEAN = 1.2  # times as long, or less
LONG_ON_AVERAGE = 1.5  # times the mean: hits are shorter than it, where all passages have the field


@dataclass(frozen=True, slots=True)
class Matches:
    """Passages that match, best first: all words before some. `scores` are BM25, parallel to the ids."""

    passage_ids: tuple[int, ...] = ()
    document_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    with_all: int = 0  # passages that hold every word
    total: int = 0  # passages that hold any
    literal: Mapping[int, int] = field(default_factory=dict)
    """Where no passage holds all phrases of the question: how many of them these hold, which therefore come first."""

    def after(self, standing: Sequence[Matches], limit: int) -> Matches:
        """These after the passages of `standing`, one for each phrase; those with the most phrases first."""
        if not standing:
            return self
        literal: dict[int, int] = {}
        known: dict[int, tuple[int, float]] = {}
        for found in standing:
            for passage, document, score in zip(
                found.passage_ids, found.document_ids, found.scores, strict=True
            ):
                literal[passage] = literal.get(passage, 0) + 1
                known[passage] = document, score
        order = sorted(literal, key=lambda passage: (-literal[passage], -known[passage][1], passage))
        rest = [place for place, passage in enumerate(self.passage_ids) if passage not in literal]
        return Matches(
            (*order, *(self.passage_ids[place] for place in rest))[:limit],
            (*(known[one][0] for one in order), *(self.document_ids[place] for place in rest))[:limit],
            (*(known[one][1] for one in order), *(self.scores[place] for place in rest))[:limit],
            self.with_all,
            self.total,
            literal,
        )


@contextmanager
def worded(folder: Path) -> Iterator[None]:
    """tantivy's ValueErrors, OSErrors and panics as ours. Raises StorageError."""
    try:
        yield
    except PensieveError:
        raise
    except BaseException as error:
        if (
            not isinstance(error, (ValueError, OSError, RuntimeError))
            and type(error).__name__ != "PanicException"
        ):
            raise
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        if "LockBusy" in said:
            raise StorageError(
                f"The index in {folder} is being written by another process.",
                hint="Search goes on meanwhile; try again when the other build has ended.",
                slug="index_busy",
            ) from None
        if "PermissionDenied" in said or "ReadOnlyFilesystem" in said:
            raise StorageError(
                f"The word index in {folder} may not be written to; reading it, too, needs a lock file there.",
                hint="Give yourself write permission on that folder, or copy the state folder to a place of your "
                "own and name it with --state DIR.",
                slug="storage_read_only",
            ) from error
        raise StorageError(
            f"The word index in {folder} cannot be used: {said}",
            hint="Delete that folder and build the index again; the documents are untouched.",
            slug="index_damaged",
        ) from error


@dataclass(slots=True)
class _Analyzers:
    """Word splitting and stemming. `plain`, `english` and `world` give the same words one for one."""

    plain: Any
    english: Any
    world: Any
    gram: Any
    about: Any

    @staticmethod
    def make() -> _Analyzers:
        from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

        def chain(tokenizer: Any, *filters: Any) -> Any:
            builder = TextAnalyzerBuilder(tokenizer).filter(Filter.remove_long(LONGEST_WORD_BYTES))
            for one in filters:
                builder = builder.filter(one)
            return builder.build()

        english = [Filter.lowercase(), Filter.ascii_fold(), Filter.stemmer("english")]
        # Each stemmer leaves the words of other scripts alone.
        world = [*english, *(Filter.stemmer(name) for name in ("russian", "greek", "arabic"))]
        return _Analyzers(
            plain=chain(Tokenizer.simple(), Filter.lowercase(), Filter.ascii_fold()),
            english=chain(Tokenizer.simple(), *english),
            world=chain(Tokenizer.simple(), *world),
            gram=chain(Tokenizer.whitespace(), Filter.lowercase()),
            about=chain(Tokenizer.whitespace(), *world),
        )


@dataclass(frozen=True, slots=True)
class _Words:
    """`question.Vocabulary` over one state of the index."""

    analyzers: _Analyzers
    searcher: Any

    def split(self, text: str) -> list[tuple[str, str, str]]:
        if not text:
            return []
        ways = (self.analyzers.plain, self.analyzers.english, self.analyzers.world)
        return list(zip(*(way.analyze(text) for way in ways), strict=True))

    def holding(self, field: str, form: str) -> int:
        return int(self.searcher.doc_freq(field, form))

    def size(self) -> int:
        return int(self.searcher.num_docs)


def _schema() -> Any:
    from tantivy import SchemaBuilder

    builder = SchemaBuilder()
    for name in ("passage", "document", "generation", "marker"):
        builder.add_unsigned_field(name, indexed=True, fast=True)
    builder.add_text_field("dirs", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("place", tokenizer_name="raw", index_option="basic")  # path NUL document id
    builder.add_text_field("body", tokenizer_name="pensieve_english", index_option="position")
    builder.add_text_field("world", tokenizer_name="pensieve_world", index_option="position")
    builder.add_text_field("parts", tokenizer_name="pensieve_english", index_option="freq")
    for name in ("prefix", "grams", "marks"):
        builder.add_text_field(name, tokenizer_name="pensieve_gram", index_option="freq")
    builder.add_text_field("about", tokenizer_name="pensieve_about", index_option="freq")
    return builder.build()


class _Closed:
    """Stands where tantivy's objects were: their mappings end with the last reference."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        raise StorageError(
            f"The word index in {self._folder} was closed.", hint="Open it again.", slug="index_closed"
        )


class LexicalIndex:
    """An opened folder. Any number of processes may hold one; one at a time gets `writer()`.

    Searches see the last commit of any process. Not for use from several threads at once during `refresh`;
    searching itself is safe on threads, since each search takes the current searcher.
    """

    def __init__(self, folder: Path, handle: Any, analyzers: _Analyzers) -> None:
        self.folder = folder
        self._meta = str(folder / "meta.json")
        self._handle = handle
        self._analyzers = analyzers
        self._searcher = handle.searcher()
        self._seen = self._stamp()
        self._generation: tuple[Any, int] | None = None
        self._shares: tuple[Any, dict[str, float]] = (None, {})

    @classmethod
    def open(cls, folder: Path, *, read_only: bool = False) -> LexicalIndex:
        """Opens, or makes, the index in `folder`.

        Raises IndexMismatch when it is not there (read only) or has other fields, StorageError when damaged.
        """
        from tantivy import Index

        exists = (folder / "meta.json").exists()
        if not exists:
            if read_only:
                raise IndexMismatch(
                    f"There is no word index in {folder}.",
                    hint="Build the index first.",
                    slug="index_missing",
                )
            folder.mkdir(parents=True, exist_ok=True)
        with worded(folder):
            if exists:
                names = _field_names(folder)
                if names != _FIELDS:
                    raise IndexMismatch(
                        f"The word index in {folder} was made by another version (its fields differ: "
                        f"{', '.join(sorted(names ^ _FIELDS))}).",
                        hint="Build the index again; the documents are untouched.",
                        slug="other_version",
                    )
                handle = Index.open(str(folder))
            else:
                handle = Index(_schema(), str(folder))
            handle.config_reader("manual")
            analyzers = _Analyzers.make()
            handle.register_tokenizer("pensieve_english", analyzers.english)
            handle.register_tokenizer("pensieve_world", analyzers.world)
            handle.register_tokenizer("pensieve_gram", analyzers.gram)
            handle.register_tokenizer("pensieve_about", analyzers.about)
            handle.reload()
            return cls(folder, handle, analyzers)

    def close(self) -> None:
        """Let go of the files. Whatever is asked afterwards raises StorageError (slug `index_closed`)."""
        self._handle = self._searcher = _Closed(self.folder)
        self._generation = None
        self._shares = (None, {})

    # -- reading -------------------------------------------------------------------------------------------

    def _stamp(self) -> tuple[int, int]:
        try:
            stat = os.stat(self._meta)  # noqa: PTH116  (asked at every search: a third of the cost of Path.stat)
        except OSError:
            return (0, 0)
        return (stat.st_mtime_ns, stat.st_size)

    def refresh(self) -> None:
        """See the last commit; costs one `stat` when nothing changed."""
        stamp = self._stamp()
        if stamp != self._seen:
            with worded(self.folder):
                self._handle.reload()
                self._searcher = self._handle.searcher()
            self._seen = stamp

    @property
    def passages(self) -> int:
        return max(0, int(self._searcher.num_docs) - (1 if self.generation else 0))

    @property
    def generation(self) -> int:
        """The number of the last commit that is seen, 0 before the first. It travels inside tantivy's own
        commit, so words and number can never disagree."""
        searcher = self._searcher
        if self._generation is not None and self._generation[0] is searcher:
            return self._generation[1]
        with worded(self.folder):
            found = searcher.search(
                _query().term_query(self._handle.schema, "marker", 1), 1, count=False
            ).hits
            values = searcher.fast_field_values("generation", [place for _, place in found])
        number = int(values[0]) if values and values[0] is not None else 0
        self._generation = (searcher, number)
        return number

    def ask(self, text: str) -> Asked:
        """Analyse a question by the words there are now. Never raises for any text."""
        with worded(self.folder):
            return question.analyse(text, _Words(self._analyzers, self._searcher))

    def search(
        self, asked: Asked, *, under: Sequence[str] = (), limit: int = 200, all_first: bool = True
    ) -> Matches:
        """The best `limit` passages; those that hold all words come first, or (`all_first` False) are only
        counted. Raises StorageError."""
        any_word = asked.terms
        if not any_word:
            return Matches()
        with worded(self.folder):
            must = self._musts(asked, under)
            some = self._run(self._within(must, self._union(any_word)), limit)
            every = None
            if len(asked.words) == 1:
                return Matches(some[0], some[1], some[2], some[3], some[3])
            if all(word.terms for word in asked.words):
                every = self._run(self._within(must, self._all(asked)), limit if all_first else 1)
        if every is None or not every[3]:
            return Matches(some[0], some[1], some[2], 0, some[3])
        if not all_first:
            return Matches(some[0], some[1], some[2], every[3], some[3])
        first = set(every[0])
        rest = [place for place, passage in enumerate(some[0]) if passage not in first]
        return Matches(
            (*every[0], *(some[0][place] for place in rest))[:limit],
            (*every[1], *(some[1][place] for place in rest))[:limit],
            (*every[2], *(some[2][place] for place in rest))[:limit],
            every[3],
            some[3],
        )

    def fair(self, asked: Asked, scores: Mapping[int, float]) -> dict[int, float]:
        """These passages' BM25 scores as they were if a field's lengths were compared among the passages that have it.

        tantivy divides the words of a field by all passages there are. In a folder of English with one text in
        Russian that text looks hundreds of times as long as the mean, and scores next to nothing. Among passages of
        one field the order is the same either way. Raises StorageError.
        """
        found = dict(scores)
        known = self._known_shares()
        asked_of = [  # but of fields that every passage has, or nearly; "about" always
            term for term in asked.terms if term[0] != "about" and known.get(term[0], 0.0) * LONG_ON_AVERAGE < 1
        ]  # fmt: skip
        if not scores or not asked_of:
            return found
        with worded(self.folder):
            each = [(_occur().Should, self._form("passage", passage)) for passage in scores]
            these = [_query().boolean_query(each)]
            read: dict[str, list[tuple[int, float, float]]] = {}
            for name, form, weight in asked_of:
                query = _query().term_query(self._handle.schema, name, form, "freq")
                most = question.most((name, form, 1.0), _Words(self._analyzers, self._searcher))
                passages, _, given, _ = self._run(self._within(these, query), len(scores))
                read.setdefault(name, []).extend(
                    (passage, weight * most, min(score / most, 1.0))
                    for passage, score in zip(passages, given, strict=True)
                )
            for name, seen in read.items():
                typical = median(_length(share) for _, _, share in seen) if seen else LONG_ON_AVERAGE
                if (
                    typical <= LIKE_THE_MEAN
                ):  # most passages have it, and until the next commit nobody asks again
                    known.setdefault(name, 1.0)
                if typical <= LONG_ON_AVERAGE:
                    continue
                held = self._share_with(name)
                for passage, most, share in seen:
                    fairer = 1 / (1 + K1 * (1 - B + B * held * _length(share)))
                    found[passage] += most * max(0.0, fairer - share)
        return found

    def _known_shares(self) -> dict[str, float]:
        """Fields and the share of passages that have them, as far as it was asked for since the last commit."""
        if self._shares[0] is not self._searcher:
            self._shares = (self._searcher, {})
        return self._shares[1]

    def _share_with(self, name: str) -> float:
        """The share of passages that have this field. A microsecond for each of them, once a commit."""
        searcher, shares = self._searcher, self._known_shares()
        if name not in shares:
            every = _query().regex_query(self._handle.schema, name, ".*")
            count = int(searcher.search(every, 1, count=True).count)
            shares[name] = min(1.0, count / max(1, self.passages))
        return shares[name]

    def _run(self, query: Any, limit: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...], int]:
        searcher = self._searcher
        answer = searcher.search(query, limit, count=True)
        places = [place for _, place in answer.hits]
        passages = searcher.fast_field_values("passage", places)
        documents = searcher.fast_field_values("document", places)
        return tuple(passages), tuple(documents), tuple(score for score, _ in answer.hits), int(answer.count)

    def _term(self, term: Term) -> Any:
        query = _query().term_query(self._handle.schema, term[0], term[1], "freq")
        return query if term[2] == 1.0 else _query().boost_query(query, term[2])

    def _union(self, terms: Iterable[Term]) -> Any:
        # A flat union of terms: the shape tantivy can prune (block-max WAND).
        return _query().boolean_query([(_occur().Should, self._term(term)) for term in terms])

    def _all(self, asked: Asked) -> Any:
        clauses = []
        for word in asked.words:
            one = self._term(word.terms[0]) if len(word.terms) == 1 else self._union(word.terms)
            clauses.append((_occur().Must, one))
        clauses += [(_occur().Should, self._term(term)) for term in asked.extras]
        return _query().boolean_query(clauses)

    def _musts(self, asked: Asked, under: Sequence[str]) -> list[Any]:
        musts = [self._phrase(phrase) for phrase in asked.phrases]
        if under:
            musts.append(self._below(under))
        return musts

    def _within(self, musts: list[Any], query: Any) -> Any:
        if not musts:
            return query
        clauses = [(_occur().Must, _query().const_score_query(must, 0.0)) for must in musts]
        return _query().boolean_query([*clauses, (_occur().Must, query)])

    def _below(self, under: Sequence[str]) -> Any:
        places = [place.strip("/") for place in under]
        return _query().term_set_query(self._handle.schema, "dirs", places)

    def _phrase(self, text: Sequence[str]) -> Any:
        """Words in a row, in either word field; unspaced stretches by all their grams."""
        joined = " ".join(text)
        spaced = fields.spaced_words(joined)
        schema = self._handle.schema
        clauses: list[Any] = []
        sides = []
        for name, analyzer in (("body", self._analyzers.english), ("world", self._analyzers.world)):
            stems = analyzer.analyze(spaced)
            if len(stems) > 1:
                sides.append((_occur().Should, _query().phrase_query(schema, name, stems)))
            elif stems:
                sides.append((_occur().Should, _query().term_query(schema, name, stems[0])))
        if sides:
            clauses.append((_occur().Must, _query().boolean_query(sides)))
        for run in () if joined.isascii() else fields.runs(joined):
            several, characters = fields.pieces(run)
            for gram in several or characters:
                clauses.append((_occur().Must, _query().term_query(schema, "grams", gram)))
        return _query().boolean_query(clauses)

    def documents_under(self, under: Sequence[str]) -> frozenset[int]:
        """Ids of the documents below any of these paths; may hold a few that lately moved away."""
        found: set[int] = set()
        with worded(self.folder):
            for place in under:
                for start in (place.strip("/") + "/", place.strip("/") + "\0"):
                    for term, _ in self._searcher.terms_with_prefix("place", start):
                        found.add(int(term.rpartition("\0")[2]))
        return frozenset(found)

    def any_under(self, under: Sequence[str]) -> bool:
        with worded(self.folder):
            return bool(self._searcher.search(self._below(under), 1, count=False).hits)

    def locate(self, passage_ids: Collection[int], *, under: Sequence[str] = ()) -> dict[int, int]:
        """Passage id to document id, for those that are alive and below `under`."""
        if not passage_ids:
            return {}
        with worded(self.folder):
            # For some tens of ids a union is five times as fast as a set of terms.
            each = [(_occur().Should, self._form("passage", passage)) for passage in passage_ids]
            wanted = _query().boolean_query(each)
            if under:
                wanted = self._within([self._below(under)], wanted)
            passages, documents, _, _ = self._run(wanted, len(passage_ids) + 1)
        return dict(zip(passages, documents, strict=True))

    def all_passages(self) -> dict[int, int]:
        """Every passage id with its document id."""
        with worded(self.folder):
            passages, documents, _, _ = self._run(_query().all_query(), max(1, int(self._searcher.num_docs)))
        pairs = zip(passages, documents, strict=True)
        return {passage: document for passage, document in pairs if passage is not None}

    def holding(self, literal: str, *, under: Sequence[str] = (), limit: int = 2_000) -> Candidates:
        """Passages that may hold this literal text, by the words in it.

        `complete` when every passage that holds it whole is among them: then the literal has a word with a
        border on both sides (or an unspaced stretch), which a passage with the literal must have as well.
        """
        text = fields.fold(literal.encode("utf-8", "replace").decode("utf-8"))
        spaced = fields.spaced_words(text)
        plain = self._analyzers.plain.analyze(spaced)
        first = 1 if spaced[:1].isalnum() else 0
        last = len(plain) - (1 if spaced[-1:].isalnum() else 0)
        inner = plain[first:last] if first < last else []
        runs = [fields.sure_grams(run) for run in (() if text.isascii() else fields.runs(text))]
        long = any(len(word.encode()) >= LONGEST_WORD_BYTES // 2 for word in spaced.split())
        whole = list(dict.fromkeys(gram for run in runs for gram in run))
        complete = bool(inner or whole) and not long
        below = [self._below(under)] if under else []
        with worded(self.folder):
            if complete:
                must = [self._form("grams", gram) for gram in whole]
                must += [self._phrase(inner)] if inner else []
            else:
                must = [self._phrase([word]) for word in dict.fromkeys(plain[:MAX_WORDS])]
            if not must:
                return Candidates()
            query = _query().boolean_query([(_occur().Must, one) for one in must])
            passages, documents, _, count = self._run(self._within(below, query), limit)
            near = self._near_documents(inner, runs, len(literal), below, limit) if complete else None
        return Candidates(passages, documents, complete and count <= limit, near)

    def _near_documents(
        self, words: Sequence[str], runs: Sequence[Sequence[str]], chars: int, below: list[Any], limit: int
    ) -> tuple[int, ...] | None:
        """Documents with any of the rarest pieces of a literal, pieces that do not overlap, so that a border of
        passages which cuts one piece leaves another whole; None when there are too few pieces or too many hits."""
        wanted = 2 if chars <= 200 else 4
        count = self._searcher.doc_freq
        pieces: list[tuple[int, int, int, list[tuple[str, str]]]] = []  # how often, run, place, forms
        for place, word in enumerate(words):
            forms = [("body", self._stem(word)), ("world", self._stem(word, world=True))]
            pieces.append((sum(count(*one) for one in forms), -1, place * 3, forms))
        for number, run in enumerate(runs):
            pieces += [
                (count("grams", gram), number, place, [("grams", gram)]) for place, gram in enumerate(run)
            ]
        pieces.sort(key=lambda piece: piece[:3])
        chosen: list[tuple[int, int, int, list[tuple[str, str]]]] = []
        for piece in pieces:
            if all(piece[1] != other[1] or abs(piece[2] - other[2]) >= 3 for other in chosen):
                chosen.append(piece)
            if len(chosen) == wanted:
                break
        if len(chosen) < wanted:
            return None
        forms = [(_occur().Should, self._form(*form)) for piece in chosen for form in piece[3]]
        _, documents, _, many = self._run(self._within(below, _query().boolean_query(forms)), limit)
        return tuple(dict.fromkeys(documents)) if many <= limit else None

    def _form(self, name: str, form: str | int) -> Any:
        return _query().term_query(self._handle.schema, name, form)

    def _stem(self, word: str, *, world: bool = False) -> str:
        stems = (self._analyzers.world if world else self._analyzers.english).analyze(word)
        return str(stems[0]) if stems else word

    def near(self, word: str, *, limit: int = 24) -> list[int]:
        """Passages with words spelled like this one: one letter off, then two (long words only)."""
        english = self._stem(word)
        with worded(self.folder):
            for distance in (1, 2) if len(word) > 5 else (1,):
                sides = [
                    (_occur().Should, _query().fuzzy_term_query(self._handle.schema, name, english, distance))
                    for name in ("body", "world")
                ]
                passages, _, _, _ = self._run(_query().boolean_query(sides), limit)
                if passages:
                    return list(passages)
        return []

    def split_word(self, word: str) -> str:
        """`databaselock` as `database lock` when the index knows both halves, else nothing."""
        count = self._searcher.doc_freq
        best = (0, "")
        for cut in range(3, min(len(word), 40) - 2):
            halves = word[:cut], word[cut:]
            known = min(count("body", self._stem(half)) for half in halves)
            if known:
                best = max(best, (known, " ".join(halves)))
        return best[1]

    def same_word(self, one: str, other: str) -> bool:
        return self._stem(one, world=True) == self._stem(other, world=True)

    def stats(self) -> dict[str, int]:
        size = sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())
        return {"passages": self.passages, "segments": int(self._searcher.num_segments), "bytes": size}

    def writer(self) -> LexicalWriter:
        """The one writer. Raises StorageError (slug `index_busy`) while another process writes."""
        with worded(self.folder):
            return LexicalWriter(self, self._handle, self._handle.writer(WRITER_HEAP_BYTES, 1))


def _length(share: float) -> float:
    """From the share of the most a word can score, how long the passage was taken for, the mean being 1. A word that
    stands there twice counts as in half the length, which comes near to it."""
    return max(0.0, ((1 / max(share, 1e-9) - 1) / K1 - (1 - B)) / B)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Passages that may hold a literal. `near_documents` hold its rarest whole word (None: too many to list),
    which is where a literal that crosses a passage border must be."""

    passage_ids: tuple[int, ...] = ()
    document_ids: tuple[int, ...] = ()
    complete: bool = False
    near_documents: tuple[int, ...] | None = field(default=None)


class LexicalWriter:
    """Adds and removes passages; nothing is seen before `commit`, and what comes after the last one is lost."""

    def __init__(self, index: LexicalIndex, handle: Any, writer: Any) -> None:
        self._index = index
        self._handle = handle
        self._writer = writer

    def add(self, records: Iterable[PassageRecord]) -> int:
        """Index passages; returns how many. Raises StorageError."""
        number = 0
        with worded(self._index.folder):
            add = self._writer.add_json
            for record in records:
                line = _line(record)
                try:
                    add(line)
                except UnicodeEncodeError:  # lone surrogates, which no UTF-8 can carry
                    add(line.encode("utf-8", "replace").decode("utf-8"))
                number += 1
        return number

    def remove_documents(self, document_ids: Iterable[int]) -> None:
        self._delete("document", list(document_ids))

    def _delete(self, name: str, numbers: list[int]) -> None:
        # Not delete_documents_by_term: given a Python int it looks for a signed number and finds nothing.
        if numbers:
            with worded(self._index.folder):
                wanted = _query().term_set_query(self._handle.schema, name, numbers)
                self._writer.delete_documents_by_query(wanted)

    def commit(self, generation: int) -> None:
        """Make all of it visible at once, under this number (greater than 0)."""
        self._delete("marker", [1])
        with worded(self._index.folder):
            self._writer.add_json(json.dumps({"marker": 1, "generation": generation}))
            self._writer.commit()
        self._index.refresh()

    def close(self) -> None:
        """Give the lock back; merges that run are waited for. What was not committed is lost."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with worded(self._index.folder):
                writer.rollback()
                writer.wait_merging_threads()


def _line(record: PassageRecord) -> str:
    """The passage as the JSON document that tantivy takes; fields without a value are left out."""
    values = fields.values(record.text)
    found = {
        "body": values.body,
        "world": values.world,
        "prefix": values.prefix,
        "grams": values.grams,
        "parts": values.parts,
        "marks": values.marks,
        "about": fields.about(record.title, record.heading, record.path),
    }
    line: dict[str, object] = {
        "passage": record.passage_id,
        "document": record.document_id,
        "dirs": fields.folders(record.path),
        "place": f"{record.path}\0{record.document_id}",
    }
    line.update((name, value) for name, value in found.items() if value)
    return json.dumps(line, ensure_ascii=False)


_NUMBERS = ("passage", "document", "generation", "marker")
_PLACES = ("dirs", "place")
_TEXTS = ("body", "world", "parts", "prefix", "grams", "marks", "about")
_FIELDS = frozenset((*_NUMBERS, *_PLACES, *_TEXTS))


def _field_names(folder: Path) -> frozenset[str]:
    """The names in tantivy's own description of the index. Raises ValueError, worded by the caller."""
    try:
        schema = json.loads((folder / "meta.json").read_text("utf-8"))["schema"]
        return frozenset(str(one["name"]) for one in schema)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"meta.json is damaged ({error})") from None


_loaded: dict[str, Callable[..., Any]] = {}


def _query() -> Any:
    if "query" not in _loaded:
        from tantivy import Query

        _loaded["query"] = Query
    return _loaded["query"]


def _occur() -> Any:
    if "occur" not in _loaded:
        from tantivy import Occur

        _loaded["occur"] = Occur
    return _loaded["occur"]

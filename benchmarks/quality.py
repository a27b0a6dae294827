"""How well the index finds: nDCG@10 of SQLite FTS5 and of our modes, over sets in a folder.

    python benchmarks/quality.py FOLDER [--only xquad-en,needle] [--tiers lexical,static,minilm] [--json OUT]
                                        [--cache FILE]

FOLDER (or PENSIEVE_RETRIEVAL_DATA) holds one folder a set: `corpus.jsonl.gz` {id, title, text},
`queries.jsonl.gz` {id, text, kind?}, `qrels.tsv.gz` (query, document, grade), for long documents
`spans.jsonl.gz` {q, d, s, e}: evidence in characters. A set whose ids begin with `en/` is split by language.
Nothing is fetched. Documents are cut to passages of about 600 characters; a document scores as its best one.
`--cache` keeps MiniLM's vectors in a SQLite file by their text, so that a second run does not compute them again
(its CPU times of the second stage and of upgrading then mean nothing).

What of the evidence "stands in the first 4,000 characters" is measured in two ways. `shown` counts what searching
shows of each passage: `highlight.shown`, up to three stretches of at most 180 characters, the place and path lines
around them not counted, passages not grouped by chunk. `read` counts the passages as a whole, some 600 characters
each. FTS5, which shows nothing, has only the latter. Evidence is a sentence; half of it found counts as half.

Bars: hybrid at most 0.01 below its better half on every set and above both in the mean; no set more than 0.01
below FTS5; with all vectors true, the first 4,000 characters shown hold at least 0.40 of the implicit needles.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import hashlib
import json
import math
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# On busy machines the threads of the matrix library wait actively, and CPU times then mean nothing.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pensieve_mcp.index.encoders import open_encoder
from pensieve_mcp.index.highlight import shown
from pensieve_mcp.index.index import Index
from pensieve_mcp.index.types import Encoder, PassageRecord, SearchRequest

PASSAGE_CHARS, LONGEST_CHARS = 600, 1_000
DOCUMENTS, QUESTIONS = (
    1_250,
    300,
)  # of one set; all relevant documents stay, others are drawn with a fixed seed
READ_CHARS = 4_000
SLACK = 0.01
IMPLICIT_FLOOR = 0.40

_END = re.compile(r"[.!?]['\")\]]*\s+|\n\s*\n|[。！？]|\n")


@dataclass(frozen=True)
class Passage:
    passage_id: int
    document: str
    start: int
    end: int
    title: str
    text: str


@dataclass
class Data:
    """One set. `relevant` maps a question to {answer id: grade}; answers are documents, or with spans passages."""

    name: str
    passages: list[Passage]
    questions: list[dict[str, str]]
    relevant: dict[str, dict[str, int]]
    spans: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)

    def answer_id(self, passage: Passage) -> str:
        return f"{passage.document}:{passage.start}" if self.spans else passage.document


def cut(text: str) -> Iterator[tuple[int, int]]:
    """Passages at sentence ends, about 600 characters, at most 1,000."""
    start = last = 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        while end - start > LONGEST_CHARS:
            border = last if last > start else start + LONGEST_CHARS
            yield start, border
            start = border
        last = end
        if end - start >= PASSAGE_CHARS:
            yield start, end
            start = end
    if start < len(text):
        yield start, len(text)


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def load(folder: Path, documents: int, questions: int) -> Iterator[Data]:
    corpus, asked = rows(folder / "corpus.jsonl.gz"), rows(folder / "queries.jsonl.gz")
    grades: dict[str, dict[str, int]] = {}
    with gzip.open(folder / "qrels.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            question, document, grade = line.rstrip("\n").split("\t")
            grades.setdefault(question, {})[document] = int(grade)
    evidence: dict[str, list[tuple[str, int, int]]] = {}
    if (folder / "spans.jsonl.gz").exists():
        for row in rows(folder / "spans.jsonl.gz"):
            evidence.setdefault(row["q"], []).append((row["d"], row["s"], row["e"]))
    languages = sorted({row["id"].split("/")[0] for row in asked if re.match(r"[a-z]{2}/", row["id"])})
    for language in languages or [""]:
        name = f"{folder.name}-{language}" if language else folder.name
        start = f"{language}/" if language else ""
        kept = [row for row in asked if row["id"].startswith(start) and row["id"] in grades]
        pool = [row for row in corpus if row["id"].startswith(start)]
        draw = random.Random(3)
        if len(kept) > questions:
            kept = draw.sample(kept, questions)
        if not evidence and len(pool) > documents:
            needed = {document for row in kept for document in grades[row["id"]]}
            others = [row["id"] for row in pool if row["id"] not in needed]
            needed |= set(draw.sample(others, max(0, documents - len(needed))))
            pool = [row for row in pool if row["id"] in needed]
        passages: list[Passage] = []
        for row in pool:
            for first, end in cut(row["text"]):
                if row["text"][first:end].strip():
                    title = row.get("title", "")
                    passages.append(
                        Passage(len(passages) + 1, row["id"], first, end, title, row["text"][first:end])
                    )
        ids = {passage.document for passage in passages}
        relevant = {
            row["id"]: {one: grade for one, grade in grades[row["id"]].items() if one in ids} for row in kept
        }
        data = Data(
            name,
            passages,
            kept,
            relevant,
            {row["id"]: evidence.get(row["id"], []) for row in kept} if evidence else {},
        )
        if evidence:
            by_document: dict[str, list[Passage]] = {}
            for passage in passages:
                by_document.setdefault(passage.document, []).append(passage)
            for question, spans in data.spans.items():
                data.relevant[question] = {
                    data.answer_id(passage): 1
                    for document, first, end in spans
                    for passage in by_document.get(document, ())
                    if min(passage.end, end) - max(passage.start, first) >= min(0.5 * (end - first), 100)
                }
        yield data


def ndcg(ranked: Sequence[str], grades: dict[str, int]) -> float:
    gain = sum((2 ** grades.get(one, 0) - 1) / math.log2(place + 2) for place, one in enumerate(ranked[:10]))
    best = sorted(grades.values(), reverse=True)[:10]
    ideal = sum((2**grade - 1) / math.log2(place + 2) for place, grade in enumerate(best))
    return gain / ideal if ideal else 0.0


Spans = list[tuple[int, int]]
Seen = list[tuple[int, Callable[[], Spans] | None]]
"""Passages, best first, each with how to get the spans of it that are shown."""
Ranker = Callable[[str], Seen]


def score(data: Data, rank: Ranker) -> tuple[float, float, dict[str, float]]:
    """(nDCG@10, CPU ms a question, share of evidence in the first 4,000 characters by way and kind)."""
    total = spent = 0.0
    covered: dict[str, list[float]] = {}
    for row in data.questions:
        before = time.process_time()
        found = rank(row["text"])
        spent += time.process_time() - before
        passages = [data.passages[passage_id - 1] for passage_id, _ in found]
        answers = list(dict.fromkeys(data.answer_id(passage) for passage in passages))
        total += ndcg(answers, data.relevant[row["id"]])
        if data.spans:
            kind, spans = row.get("kind", "all"), data.spans[row["id"]]
            whole = [(one, (0, one.end - one.start)) for one in passages]
            parts = [
                (one, span)
                for one, (_, shows) in zip(passages, found, strict=True)
                for span in (shows() if shows else ())
            ]
            covered.setdefault(f"{kind} read", []).append(coverage(spans, whole))
            if parts:
                covered.setdefault(f"{kind} shown", []).append(coverage(spans, parts))
    number = max(1, len(data.questions))
    return total / number, 1000 * spent / number, {kind: sum(v) / len(v) for kind, v in covered.items()}


def coverage(
    spans: Sequence[tuple[str, int, int]], pieces: Sequence[tuple[Passage, tuple[int, int]]]
) -> float:
    """How much of the evidence stands in the first 4,000 characters of these pieces of passages."""
    left, met = READ_CHARS, 0
    for passage, (first, last) in pieces:
        start = passage.start + first
        end = min(passage.start + last, start + left)
        left -= end - start
        for document, begins, ends in spans:
            if document == passage.document:
                met += max(0, min(end, ends) - max(start, begins))
        if left <= 0:
            break
    return met / max(1, sum(ends - begins for _, begins, ends in spans))


def fts5(data: Data) -> Ranker:
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table passages using fts5(text, tokenize='unicode61')")
    database.executemany(
        "insert into passages (rowid, text) values (?, ?)",
        ((one.passage_id, f"{one.title}\n{one.text}") for one in data.passages),
    )

    def rank(question: str) -> Seen:
        words = dict.fromkeys(re.findall(r"\w+", question))
        if not words:
            return []
        query = " OR ".join(f'"{word}"' for word in words)
        sql = "select rowid from passages where passages match ? order by bm25(passages) limit 100"
        return [(row[0], None) for row in database.execute(sql, (query,))]

    return rank


class Kept:
    """MiniLM whose vectors are kept in a file by the hash of their text."""

    def __init__(self, file: Path) -> None:
        self._model = open_encoder("minilm")
        self.name, self.dim = self._model.name, self._model.dim
        self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._database.execute("create table if not exists v (k blob primary key, v blob)")

    def documents(self, texts: Sequence[str]) -> Any:
        import numpy as np

        keys = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        sql = "select v from v where k = ?"
        rows = [self._database.execute(sql, (key,)).fetchone() for key in keys]
        missing = [place for place, row in enumerate(rows) if row is None]
        if missing:
            made = self._model.documents([texts[place] for place in missing])
            for place, vector in zip(missing, made, strict=True):
                rows[place] = (vector.tobytes(),)
                self._database.execute("insert or ignore into v values (?, ?)", (keys[place], rows[place][0]))
        return np.stack([np.frombuffer(row[0], np.float32) for row in rows])

    queries = documents

    def script_weight(self, text: str) -> float:
        return float(self._model.script_weight(text))  # type: ignore[attr-defined]


OPENERS: dict[str, Callable[[], Encoder]] = {}


def opener(spec: str) -> Encoder:
    return OPENERS[spec]() if spec in OPENERS else open_encoder(spec)


def build(folder: Path, data: Data, *, second_stage: bool) -> Index:
    texts = {one.passage_id: one.text for one in data.passages}
    documents: dict[str, int] = {}
    index = Index.open(
        folder,
        texts=lambda wanted: {one: texts[one] for one in wanted if one in texts},
        second_stage=second_stage,
        opener=opener,
    )
    if not index.generation:
        with index.writer() as writer:
            writer.add(
                PassageRecord(
                    one.passage_id,
                    documents.setdefault(one.document, len(documents) + 1),
                    "set/document",  # a path with no words of its own: ids would tell the answer
                    one.title,
                    "",
                    one.text,
                )
                for one in data.passages
            )
            writer.commit(1)
    return index


def ranker(index: Index, mode: Any, data: Data) -> Ranker:
    def rank(question: str) -> Seen:
        answer = index.search(SearchRequest((question,), mode, limit=100, deadline_seconds=30.0))
        if (
            mode != "lexical"
            and answer.mode_used == "lexical"
            and any("load" in note for note in answer.notes)
        ):
            raise SystemExit(f"The encoder is missing: {answer.notes}")

        def spans(passage_id: int, stretch: int) -> Spans:
            text = data.passages[passage_id - 1].text
            return [(one.start, one.end) for one in shown(text, answer.terms, stretch)]

        return [
            (hit.passage_id, functools.partial(spans, hit.passage_id, hit.stretch)) for hit in answer.hits
        ]

    return rank


def measure(data: Data, tiers: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"set": data.name, "passages": len(data.passages), "questions": len(data.questions)}

    def told(label: str, rank: Ranker) -> None:
        value, cpu, covered = score(data, rank)
        row[label], row[f"{label} ms"] = round(value, 4), round(cpu, 2)
        for kind, share in covered.items():
            row[f"{label} {kind} at {READ_CHARS}"] = round(share, 3)

    told("fts5", fts5(data))
    with tempfile.TemporaryDirectory() as folder:
        index = build(Path(folder), data, second_stage=False)
        told("lexical", ranker(index, "lexical", data))
        if "static" in tiers:
            told("dense static", ranker(index, "dense", data))
            told("hybrid static", ranker(index, "hybrid", data))
        if "minilm" in tiers:
            index = build(Path(folder), data, second_stage=True)
            index.warm()
            ready(index)
            told("hybrid second stage", ranker(index, "hybrid", data))
            before = time.process_time()
            assert index.texts is not None
            index.upgrade(index.texts, seconds=3_600.0)
            row["upgrade cpu s"] = round(time.process_time() - before, 1)
            row["vectors a passage"] = round(index.stats()["vectors"]["rows"] / len(data.passages), 2)
            told("dense minilm", ranker(index, "dense", data))
            told("hybrid minilm", ranker(index, "hybrid", data))
    return row


def ready(index: Index) -> None:
    while index.loading:
        time.sleep(0.05)


def bars(table: Sequence[dict[str, Any]]) -> list[str]:
    """What does not hold, in sentences."""
    failed = []
    for tier in ("static", "minilm"):
        halves = ("lexical", f"dense {tier}")
        full = [row for row in table if f"hybrid {tier}" in row]
        for row in full:
            better = max(row[half] for half in halves)
            if row[f"hybrid {tier}"] < better - SLACK:
                failed.append(
                    f"{row['set']}: hybrid {tier} {row[f'hybrid {tier}']} is below {better} - {SLACK}"
                )
        if full:
            mean = {key: sum(row[key] for row in full) / len(full) for key in (*halves, f"hybrid {tier}")}
            if mean[f"hybrid {tier}"] <= max(mean[half] for half in halves):
                failed.append(f"mean of hybrid {tier} is not above both halves: {mean}")
    for row in table:
        for label in ("lexical", "hybrid static", "hybrid minilm"):
            if label in row and row[label] < row["fts5"] - SLACK:
                failed.append(f"{row['set']}: {label} {row[label]} is below FTS5 {row['fts5']} - {SLACK}")
        implicit = row.get(f"hybrid minilm implicit shown at {READ_CHARS}")
        if implicit is not None and implicit < IMPLICIT_FLOOR:
            failed.append(f"{row['set']}: {implicit} of implicit needles, wanted {IMPLICIT_FLOOR}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=os.environ.get("PENSIEVE_RETRIEVAL_DATA"))
    parser.add_argument("--only", default="", help="names of sets, parted by commas")
    parser.add_argument("--tiers", default="lexical,static,minilm")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--json", type=Path, help="a row a set is written there")
    parser.add_argument("--cache", type=Path, help="SQLite file in which MiniLM's vectors are kept")
    given = parser.parse_args()
    if given.cache:
        kept = Kept(given.cache)
        OPENERS["minilm"] = lambda: kept
    if not given.folder:
        parser.error("give the folder of the sets, or PENSIEVE_RETRIEVAL_DATA")
    only = {name for name in given.only.split(",") if name}
    table = []
    for folder in sorted(Path(given.folder).iterdir()):
        if not (folder / "corpus.jsonl.gz").exists():
            continue
        if only and not any(name.split("-")[0] == folder.name for name in only):
            continue
        for data in load(folder, given.documents, given.questions):
            if only and data.name not in only and folder.name not in only:
                continue
            table.append(measure(data, given.tiers.split(",")))
            print(json.dumps(table[-1], ensure_ascii=False), flush=True)
            if given.json:
                given.json.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
    labels = [
        key
        for key in (
            "fts5",
            "lexical",
            "dense static",
            "hybrid static",
            "hybrid second stage",
            "dense minilm",
            "hybrid minilm",
        )
        if any(key in row for row in table)
    ]
    for label in labels:
        values = [row[label] for row in table if label in row]
        print(f"mean nDCG@10 {label:20} {sum(values) / len(values):.4f} over {len(values)} sets")
    failed = bars(table)
    print("\n".join(failed) if failed else "All bars hold.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

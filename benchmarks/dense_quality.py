"""How well the encoders find, alone: nDCG@10 and recall@10 for each set, static table against MiniLM.

    python benchmarks/dense_quality.py FOLDER [--sets needle pycode xquad-en] [--no-minilm]

FOLDER (default: $PENSIEVE_RETRIEVAL_DATA) holds a folder for each set: corpus.jsonl.gz {id, title?, text},
queries.jsonl.gz {id, text}, qrels.tsv.gz (query, document, grade) or, for long documents, spans.jsonl.gz
{q, d, s, e}. Long documents are cut into passages of about 600 characters. `static+minilm` are the table's passages
with MiniLM's questions, which is how an index begins; `half` has every second passage's true vector.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pensieve_mcp.index.encoders import open_encoder

PASSAGE_CHARACTERS = 600
SENTENCE_END = re.compile(r"[.!?。！？]['\")\]]*\s+|\n\s*\n")


@dataclass
class Questions:
    texts: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    relevant: list[dict[int, int]] = field(default_factory=list)  # of each question: passage -> grade
    kinds: list[str] = field(default_factory=list)


def lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def cut(text: str) -> list[tuple[int, int]]:
    spans, start, last = [], 0, 0
    for end in [m.end() for m in SENTENCE_END.finditer(text)] + [len(text)]:
        while end - start > PASSAGE_CHARACTERS:
            stop = last if last > start else start + PASSAGE_CHARACTERS
            spans.append((start, stop))
            start = stop
        last = end
    return [*spans, (start, len(text))] if start < len(text) else spans


def load(folder: Path, prefix: str = "") -> Questions:
    """A set; `prefix` keeps the ids that begin with it (a language)."""
    found = Questions()
    place: dict[str, int] = {}
    pieces: dict[str, list[tuple[int, int, int]]] = {}
    long = (folder / "spans.jsonl.gz").exists()
    for document in lines(folder / "corpus.jsonl.gz"):
        if not document["id"].startswith(prefix):
            continue
        if long:
            for start, end in cut(document["text"]):
                pieces.setdefault(document["id"], []).append((start, end, len(found.passages)))
                found.passages.append(document["text"][start:end])
        else:
            place[document["id"]] = len(found.passages)
            found.passages.append(f"{document.get('title') or ''}\n{document['text']}".strip())
    wanted: dict[str, dict[int, int]] = {}
    if long:
        for span in lines(folder / "spans.jsonl.gz"):
            for start, end, number in pieces.get(span["d"], []):
                shared = min(end, span["e"]) - max(start, span["s"])
                if shared > 0 and shared >= min((span["e"] - span["s"]) / 2, 100):
                    wanted.setdefault(span["q"], {})[number] = 1
    else:
        with gzip.open(folder / "qrels.tsv.gz", "rt", encoding="utf-8") as file:
            for line in file:
                question, document, grade = line.rstrip("\n").split("\t")
                if document in place:
                    wanted.setdefault(question, {})[place[document]] = int(grade)
    for question in lines(folder / "queries.jsonl.gz"):
        if question["id"].startswith(prefix) and question["id"] in wanted:
            found.texts.append(question["text"])
            found.relevant.append(wanted[question["id"]])
            found.kinds.append(question.get("kind") or "")
    return found


def judge(
    questions: Questions, queries: NDArray[np.float32], passages: NDArray[np.float32]
) -> tuple[float, float]:
    """(nDCG@10, recall@10), means over the questions."""
    gains, recalls = [], []
    for query, relevant in zip(queries, questions.relevant, strict=True):
        best = np.argsort(-(passages @ query), kind="stable")[:10]
        got = sum((2 ** relevant.get(int(p), 0) - 1) / math.log2(i + 2) for i, p in enumerate(best))
        grades = sorted(relevant.values(), reverse=True)[:10]
        gains.append(got / sum((2**g - 1) / math.log2(i + 2) for i, g in enumerate(grades)))
        recalls.append(sum(int(p) in relevant for p in best) / min(10, len(relevant)))
    return float(np.mean(gains)), float(np.mean(recalls))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=os.environ.get("PENSIEVE_RETRIEVAL_DATA"))
    parser.add_argument("--sets", nargs="*", default=["needle", "pycode", "xquad-en"])
    parser.add_argument("--no-minilm", action="store_true")
    parser.add_argument("--cache", type=Path, help="folder in which MiniLM's vectors are kept between runs")
    args = parser.parse_args()
    if args.folder is None:
        parser.error("name the folder of the sets, or set PENSIEVE_RETRIEVAL_DATA")
    static = open_encoder("static")
    minilm = None if args.no_minilm else open_encoder("minilm")
    results: dict[str, dict[str, tuple[float, float]]] = {}
    for name in args.sets:
        base, _, language = name.partition("-")
        questions = load(Path(args.folder) / base, f"{language}/" if language else "")
        table, asked = static.documents(questions.passages), static.queries(questions.texts)
        row = {"static": judge(questions, asked, table)}
        if minilm is not None:
            kept = args.cache / f"{name}.npz" if args.cache else None
            if kept is not None and kept.exists():
                stored = np.load(kept)
                true, true_asked = stored["passages"], stored["questions"]
            else:
                begun = time.process_time()
                true, true_asked = minilm.documents(questions.passages), minilm.queries(questions.texts)
                sys.stderr.write(
                    f"{name}: {len(true) / (time.process_time() - begun):.0f} passages per CPU s\n"
                )
                if kept is not None:
                    np.savez(kept, passages=true, questions=true_asked)
            half = np.where((np.arange(len(table)) % 2 == 0)[:, None], table, true)
            row |= {
                "static+minilm": judge(questions, true_asked, table),
                "half": judge(questions, true_asked, half),
                "minilm": judge(questions, true_asked, true),
                "cosine of the table's to the true vectors": (float((table * true).sum(1).mean()), 0.0),
            }
        results[name] = row
        for label, (ndcg, recall) in row.items():
            sys.stdout.write(f"{name:10} {label:45} nDCG@10 {ndcg:.3f}  recall@10 {recall:.3f}\n")
        sys.stdout.flush()
    for label in next(iter(results.values())):
        mean = sum(row[label][0] for row in results.values()) / len(results)
        sys.stdout.write(f"{'mean':10} {label:45} nDCG@10 {mean:.3f}\n")


if __name__ == "__main__":
    main()

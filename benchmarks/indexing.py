"""How fast text becomes searchable, beside tantivy alone on the same passages.

    python benchmarks/indexing.py [FOLDER] [--mb 20] [--workers 2] [--json OUT]

Ours: walk, read in worker processes, cut, count, number, store, index words and static vectors, commit: a whole build
of a fresh workspace over text files (FOLDER's, else made up ones with a vocabulary that follows Zipf's law). Bare: the
passages of that build through one tantivy writer with one text field and an id, nothing else. CPU seconds are
user and system, children included, in one run on one machine; the encoder's loading is counted with ours. The bar
is against the analyzer an English index needs (fold, stop words, stemmer); the default tokenizer is told beside it.

Bar: MB per CPU second of ours at least 0.15 of bare tantivy's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

BAR = 0.15
VOCABULARY = 60_000
FILE_CHARS = 80_000


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def made_up(folder: Path, megabytes: float) -> None:
    """Text files of prose-like nonsense: word lengths, sentence and paragraph lengths as in English."""
    chance = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    weights = [26 - rank for rank in range(26)]
    words = [
        "".join(chance.choices(letters, weights, k=max(2, min(14, round(chance.gauss(6, 2.5))))))
        for _ in range(VOCABULARY)
    ]
    shares = list(itertools.accumulate(1 / (rank + 2) for rank in range(VOCABULARY)))
    written = 0
    number = 0
    while written < megabytes * 1e6:
        parts: list[str] = []
        size = 0
        while size < FILE_CHARS:
            sentences = []
            for _ in range(chance.randint(3, 8)):
                chosen = chance.choices(words, cum_weights=shares, k=chance.randint(6, 28))
                sentences.append(" ".join(chosen).capitalize() + ".")
            parts.append(" ".join(sentences))
            size += len(parts[-1]) + 2
        text = "\n\n".join(parts)
        (folder / f"{number:05}.txt").write_text(text, encoding="utf-8")
        written += len(text)
        number += 1


def ours(
    folder: Path, state: Path, workers: int
) -> tuple[float, float, Iterator[tuple[int, str]], dict[str, int]]:
    """(CPU seconds, wall seconds, passages, counts) of a whole build."""
    from pensieve_mcp.workspace import Workspace

    workspace = Workspace.open(
        [folder],
        state=state,
        environment={"PENSIEVE_HOME": str(state)},
        arguments={"workers": workers},
        builder="inline",
    )
    cpu, wall = cpu_seconds(), time.perf_counter()
    told = workspace.build_now()
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    if told.state != "ready":
        sys.exit(f"The build ended {told.state}: {told.detail}")
    counts = {"documents": told.documents_done, "passages": told.passages, "chunks": told.chunks}

    def passages() -> Iterator[tuple[int, str]]:
        cursor = None
        while True:
            documents, cursor = workspace.corpus.documents(cursor=cursor, limit=500)
            for document in documents:
                found = workspace.corpus.passages_of(document.document_id)
                texts = workspace.corpus.passage_texts([passage.passage_id for passage in found])
                yield from texts.items()
            if cursor is None:
                return

    return cpu, wall, passages(), counts


def bare(passages: list[tuple[int, str]], folder: Path, *, stem: bool) -> float:
    """CPU seconds of tantivy's own loop: one text field, one id."""
    import tantivy

    tokenizer = "stem" if stem else "default"
    builder = tantivy.SchemaBuilder().add_text_field("body", tokenizer_name=tokenizer)
    schema = builder.add_unsigned_field("id", stored=True, indexed=True).build()
    folder.mkdir()
    cpu = cpu_seconds()
    index = tantivy.Index(schema, path=str(folder))
    if stem:
        chain = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
        chain = chain.filter(tantivy.Filter.ascii_fold()).filter(tantivy.Filter.stopword("english"))
        index.register_tokenizer("stem", chain.filter(tantivy.Filter.stemmer("english")).build())
    writer = index.writer(heap_size=128_000_000, num_threads=1)
    for number, text in passages:
        document = tantivy.Document(body=text)
        document.add_unsigned("id", number)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    return cpu_seconds() - cpu


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="text files; made up when left out")
    parser.add_argument("--mb", type=float, default=20.0, help="megabytes to make up")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = given.folder
        if folder is None:
            folder = Path(home, "text")
            folder.mkdir()
            made_up(folder, given.mb)
        state = Path(home, "state")
        cpu, wall, found, counts = ours(folder, state, given.workers)
        passages = list(found)
        megabytes = sum(len(text.encode()) for _, text in passages) / 1e6
        alone = bare(passages, Path(home, "bare"), stem=True)
        plain = bare(passages, Path(home, "plain"), stem=False)
        size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file()) / 1e6
    ratio = alone / cpu
    figures = {
        "text_mb": round(megabytes, 2),
        **counts,
        "ours_mb_per_cpu_second": round(megabytes / cpu, 2),
        "ours_wall_seconds": round(wall, 2),
        "bare_mb_per_cpu_second": round(megabytes / alone, 2),
        "bare_default_tokenizer_mb_per_cpu_second": round(megabytes / plain, 2),
        "ratio": round(ratio, 3),
        "ratio_to_default_tokenizer": round(plain / cpu, 3),
        "bar": BAR,
        "state_mb": round(size, 1),
    }
    width = max(map(len, figures))
    for name, value in figures.items():
        sys.stdout.write(f"{name:{width}}  {value}\n")
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())

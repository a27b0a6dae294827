"""What searching costs, as ratios measured in one run on one machine.

    python benchmarks/search.py [--passages 100000] [--questions 200]

Bars: a hybrid question over 100,000 passages takes at most 1/50 of the CPU of SQLite FTS5 with OR; replacing 100
passages at most 1/100 of indexing all; being ready to search at most 3 times `import numpy`, without torch; the
memory of 100,000 opened passages is told beside bare tantivy. The text is generated here: words by Zipf's law,
made of syllables, so that stemming, prefixes and word pieces have something to do. No network, no data.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pensieve_mcp.index.index import Index
from pensieve_mcp.index.lexical import LexicalIndex
from pensieve_mcp.index.types import PassageRecord, SearchRequest

FTS5_RATIO, REPLACE_RATIO, READY_RATIO = 1 / 50, 1 / 100, 3.0
VOCABULARY, PASSAGE_WORDS, QUESTION_WORDS = 60_000, 95, 9  # 95 words are about 600 characters
REPLACED = 100

_ENGLISH = (  # noqa: SIM905  (a sentence is easier to read than a list)
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were her all she there would their we him been has when who will more no if out so said what "
    "up its about into than them can only other new some could time these two may then do first any my now such"
).split()


def vocabulary(draw: random.Random) -> list[str]:
    """The commonest English words first, then made-up ones of two to four syllables."""
    heads = [a + b for a in "bcdfghlmnprstvw" for b in ("a", "e", "i", "o", "u", "ar", "en", "ist", "or")]
    words = dict.fromkeys(_ENGLISH)
    while len(words) < VOCABULARY:
        ending = draw.choice(("", "s", "ed", "ing", "er", "ation", "ly", ""))
        words.setdefault("".join(draw.choices(heads, k=draw.randint(2, 4))) + ending)
    return list(words)


class Texts:
    """The same passages and questions for every engine, from one seed."""

    def __init__(self, passages: int, questions: int) -> None:
        draw = random.Random(7)
        words = vocabulary(draw)
        # The head as in English: 6, 3.6, 2.6, 2 … per cent of all words.
        weights = list(itertools.accumulate(1 / (rank + 1.5) for rank in range(len(words))))
        self.passages = [
            " ".join(draw.choices(words, cum_weights=weights, k=PASSAGE_WORDS)) + "." for _ in range(passages)
        ]
        # People ask with words that occur: drawn from a passage, as natural as the text itself.
        self.questions = [
            " ".join(draw.sample(draw.choice(self.passages).rstrip(".").split(), QUESTION_WORDS))
            for _ in range(questions)
        ]

    def records(self, start: int, end: int, document_of: Callable[[int], int]) -> Iterator[PassageRecord]:
        for number in range(start, end):
            document = document_of(number)
            path = f"root/part{document % 40}/file{document}.txt"
            yield PassageRecord(number + 1, document, path, f"File {document}", "", self.passages[number])


def spent(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def percentile(values: Sequence[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def fts5(texts: Texts) -> Callable[[str], list[Any]]:
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table passages using fts5(text, tokenize='unicode61')")
    database.executemany("insert into passages (text) values (?)", ((text,) for text in texts.passages))

    def ask(question: str) -> list[Any]:
        query = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        sql = "select rowid, bm25(passages) from passages where passages match ? order by 2 limit 50"
        return database.execute(sql, (query,)).fetchall()

    return ask


ROUNDS = 3
REPEATED = 5  # asking the clock itself takes up to a millisecond on some machines


def per_question(ask: Callable[[str], Any], questions: Sequence[str]) -> list[float]:
    """CPU milliseconds of each question: the least of several rounds, since other processes, which take the cache
    away, only add to it. A round asks several times and takes the mean."""

    def again(question: str) -> None:
        for _ in range(REPEATED):
            ask(question)

    ask(questions[0])
    return [
        1000 / REPEATED * min(spent(lambda question=question: again(question)) for _ in range(ROUNDS))  # type: ignore[misc]
        for question in questions
    ]


_READY = """
import sys, time
from pathlib import Path
from pensieve_mcp.index.index import Index
from pensieve_mcp.index.types import SearchRequest
index = Index.open(Path(sys.argv[1]), read_only=True, second_stage=False)
answer = index.search(SearchRequest(("the first question",), "hybrid", deadline_seconds=30.0))
assert answer.mode_used == "hybrid", answer.notes
loaded = [name for name in ("torch", "sentence_transformers", "onnxruntime") if name in sys.modules]
assert not loaded, loaded
"""

_RESIDENT = """
import resource, sys
from pathlib import Path
if sys.argv[2] == "index":
    from pensieve_mcp.index.index import Index
    from pensieve_mcp.index.types import SearchRequest
    index = Index.open(Path(sys.argv[1]), read_only=True, second_stage=False)
    for question in sys.argv[3:]:
        index.search(SearchRequest((question,), "hybrid", deadline_seconds=30.0))
else:
    from pensieve_mcp.index.lexical import LexicalIndex
    index = LexicalIndex.open(Path(sys.argv[1]) / "lexical", read_only=True)
    for question in sys.argv[3:]:
        index.search(index.ask(question))
try:  # Linux: getrusage would tell the parent's peak, from before exec
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
except OSError:
    scale = 1 if sys.platform == "darwin" else 1024
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)
"""


def child(code: str, *arguments: str) -> tuple[float, str]:
    """CPU seconds of a fresh interpreter that runs `code`, and what it printed."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, done.stdout.strip()


def best(code: str, *arguments: str) -> float:
    return min(child(code, *arguments)[0] for _ in range(7))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    texts = Texts(given.passages, given.questions)
    row: dict[str, Any] = {"passages": given.passages, "questions": given.questions}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        index = Index.open(Path(folder) / "index", second_stage=False)
        document_of = lambda number: number // REPLACED + 1  # noqa: E731  (documents of 100 passages)

        def build() -> None:
            with index.writer() as writer:
                writer.add(texts.records(0, given.passages, document_of))
                writer.commit(1)

        whole = spent(build)
        bare = LexicalIndex.open(Path(folder) / "bare")

        def build_bare() -> None:
            writer = bare.writer()
            writer.add(texts.records(0, given.passages, document_of))
            writer.commit(1)
            writer.close()

        row["index cpu s"], row["index words only cpu s"] = round(whole, 2), round(spent(build_bare), 2)
        modes = {
            mode: per_question(
                lambda question, mode=mode: index.search(
                    SearchRequest((question,), mode, limit=50, deadline_seconds=30.0)  # type: ignore[arg-type]
                ),
                texts.questions,
            )
            for mode in ("hybrid", "lexical", "dense")
        }
        row["fts5"] = per_question(fts5(texts), texts.questions[: max(10, given.questions // 10)])
        for name, times in (*modes.items(), ("fts5", row.pop("fts5"))):
            row[f"{name} ms mean/p50/p99"] = [
                round(sum(times) / len(times), 2),
                round(percentile(times, 0.5), 2),
                round(percentile(times, 0.99), 2),
            ]
        ratio = row["hybrid ms mean/p50/p99"][0] / row["fts5 ms mean/p50/p99"][0]
        row["hybrid / fts5"] = f"1/{1 / ratio:.0f}"
        if ratio > FTS5_RATIO:
            failed.append(f"a hybrid question costs 1/{1 / ratio:.0f} of FTS5's, wanted 1/50")

        def replace() -> None:
            with index.writer() as writer:
                writer.remove_documents([1])
                offset = 10_000_000
                writer.add(
                    PassageRecord(one.passage_id + offset, one.document_id, one.path, one.title, "", one.text)
                    for one in texts.records(0, REPLACED, document_of)
                )
                writer.commit(2)

        part = spent(replace)
        row["replace 100 cpu s"], row["replace / index"] = round(part, 4), f"1/{whole / part:.0f}"
        if part > whole * REPLACE_RATIO:
            failed.append(f"replacing {REPLACED} costs 1/{whole / part:.0f} of indexing all, wanted 1/100")
        place = str(Path(folder) / "index")
        empty, numpy = best("pass"), best("import numpy")
        ready = best(_READY, place)
        row["ready cpu s"], row["import numpy cpu s"], row["python cpu s"] = (
            round(one, 3) for one in (ready, numpy, empty)
        )
        row["ready / numpy"] = round(ready / numpy, 2)
        if ready > READY_RATIO * numpy:
            failed.append(f"ready takes {ready / numpy:.1f} times `import numpy`, wanted {READY_RATIO}")
        for name in ("index", "words"):
            row[f"peak MB {name}"] = round(
                int(child(_RESIDENT, place, name, *texts.questions[:50])[1]) / 2**20
            )
        row["index MB"] = round(
            sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file()) / 1e6
        )
    print(json.dumps(row, indent=1))
    print("\n".join(failed) if failed else "All bars hold.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

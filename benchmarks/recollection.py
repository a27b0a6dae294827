"""Notes and history found by meaning: quality on paraphrased questions, and latency in a large workspace.

    python benchmarks/recollection.py [--notes 10000] [--messages 100000] [--json FILE]

Quality: `tests/notes/paraphrases.json` holds notes with questions that share few words with them. They are asked among
each other; recall at 1 and 5 and the mean reciprocal rank of the note that is meant are told for words alone, meaning
alone and both. Questions of every other note chose the weights; what is reported are the others.

Latency: the same process asks for words alone and for both, in turns; CPU time and their ratio are told, which depend
little on what else the machine does. The made-up texts share a small vocabulary, so that a word stands in one of seven:
words alone have it harder than in real texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pensieve_mcp.ledger.events import Message, Said
from pensieve_mcp.workspace import Workspace

LABELLED = Path(__file__).parent.parent / "tests" / "notes" / "paraphrases.json"
MODES = ("lexical", "dense", "hybrid")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notes", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    notes = json.loads(LABELLED.read_text(encoding="utf-8"))["notes"]
    told: dict[str, Any] = {"chosen on": {}, "reported": {}}
    with tempfile.TemporaryDirectory() as place, opened(Path(place)) as workspace:
        for note in notes:
            workspace.notebook.write(note["key"], note["says"], note["says"])
        for name, part in (("chosen on", notes[::2]), ("reported", notes[1::2])):
            told[name] = {mode: quality(workspace, part, mode) for mode in MODES}
    with tempfile.TemporaryDirectory() as place, opened(Path(place)) as workspace:
        told |= latency(workspace, notes, options.notes, options.messages)
    print(json.dumps(told, indent=1))
    if options.json:
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    good = told["reported"]["hybrid"]["recall@5"] > told["reported"]["lexical"]["recall@5"]
    print("hybrid finds more than words alone" if good else "hybrid finds NO more than words alone")
    return 0 if good else 1


def opened(place: Path, *, second: bool = True) -> Workspace:
    folder = place / "docs"
    folder.mkdir()
    return Workspace.open(
        [folder],
        state=place / "state",
        environment={"PENSIEVE_HOME": str(place / "home")},
        arguments={"second_stage": second, "upgrade": False},
        builder="inline",
    )


def find(workspace: Workspace, query: str, mode: str) -> list[str]:
    near = None if mode == "lexical" else workspace.recollection.notes.near(query)
    answer = workspace.notebook.search(query, limit=10, near=near, words=mode != "dense")
    return [hit.line.key for hit in answer.hits]


def quality(workspace: Workspace, notes: Sequence[dict[str, Any]], mode: str) -> dict[str, float]:
    ranks = []
    for note in notes:
        for question in note["asked"]:
            found = find(workspace, question, mode)
            ranks.append(found.index(note["key"]) + 1 if note["key"] in found else 0)
    return {
        "questions": len(ranks),
        "recall@1": round(sum(rank == 1 for rank in ranks) / len(ranks), 3),
        "recall@5": round(sum(0 < rank <= 5 for rank in ranks) / len(ranks), 3),
        "mrr": round(sum(1 / rank for rank in ranks if rank) / len(ranks), 3),
    }


def latency(
    workspace: Workspace, notes: Sequence[dict[str, Any]], count: int, messages: int
) -> dict[str, Any]:
    chance = random.Random(7)
    words = sorted({word for note in notes for word in note["says"].lower().split()})
    for number in range(count):
        note = notes[number % len(notes)]
        more = " ".join(chance.choices(words, k=30))
        workspace.notebook.write(f"{note['key']}/{number}", f"{note['says']} {more[:60]}", more)
    episode = workspace.episode("bench")
    said = 0
    while said < messages:
        batch, contents = [], {}
        for _ in range(min(1_000, messages - said)):
            text = " ".join(chance.choices(words, k=60))
            digest = hashlib.sha256(text.encode()).digest()
            number = workspace.ledger.reserve(1)
            batch.append(Said(Message(number, "tool", "readChunk", 80, digest)))
            contents[digest] = text
        workspace.ledger.append(episode.episode_id, batch, contents)
        said += len(batch)
    questions = [question for note in notes for question in note["asked"]][:60]
    told: dict[str, Any] = {"notes": count, "messages": messages}
    history = workspace.recollection.history
    for name, side in (("notes", workspace.recollection.notes), ("history", history)):
        began, cpu = time.perf_counter(), time.process_time()
        side.near(questions[0])
        told[f"{name}: first search, seconds"] = round(time.perf_counter() - began, 3)
        side.settled(3_600)
        told[f"{name}: all vectors, CPU seconds"] = round(time.process_time() - cpu, 2)
    told["bytes on disk"] = sum(
        p.stat().st_size for p in (workspace.state / "recollection").rglob("*") if p.is_file()
    )
    here = episode.episode_id
    asked: dict[str, Callable[[str], object]] = {
        "notes: words": lambda q: workspace.notebook.search(q, limit=10),
        "notes: both": lambda q: workspace.notebook.search(
            q, limit=10, near=workspace.recollection.notes.near(q)
        ),
        "history: words": lambda q: workspace.ledger.history_search(q, episode_id=here, limit=10),
        "history: both": lambda q: workspace.ledger.history_search(
            q, episode_id=here, limit=10, near=history.near(q, here)
        ),
    }
    took: dict[str, list[float]] = {name: [] for name in asked}
    for question in questions:
        for name, ask in asked.items():
            began = time.process_time()
            ask(question)
            took[name].append(time.process_time() - began)
    for name, seconds in took.items():
        ordered = sorted(seconds)
        told[f"{name}, CPU ms p50"] = round(ordered[len(ordered) // 2] * 1e3, 2)
        told[f"{name}, CPU ms most"] = round(ordered[-1] * 1e3, 2)
    for what in ("notes", "history"):
        told[f"{what}: both / words"] = round(
            told[f"{what}: both, CPU ms p50"] / told[f"{what}: words, CPU ms p50"], 2
        )
    began = time.perf_counter()
    workspace.notebook.write("moment", "The ferryman sleeps in the boathouse.", "")
    (first, *_) = find(workspace, "Where does the man of the ferry spend the night?", "hybrid")
    told["written a moment ago is first"] = first == "moment"
    told["written and found, ms"] = round((time.perf_counter() - began) * 1e3, 2)
    return told


if __name__ == "__main__":
    sys.exit(main())

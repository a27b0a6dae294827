"""Training samples: one for each stretch between context edits, with the loss on the actions in it.

A state's prefix is rewritten by a deletion and by a note (the note block stands in the first message); between
two edits every action sees the prefix it was chosen in, so all of them can be learned from one printed text
(the paper samples once a step instead, at several times the cost). Actions that every trajectory is full of are
thinned out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pensieve_mcp.statelm.template import END, START

EDITS = ("deleteContext", "note", "finish")
NAME_WEIGHT = 3.0  # which tool is the decision; the words after it are mostly bound by the grammar
ID_WEIGHT = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """A state as the model saw it and what the teacher wrote in it."""

    state: str
    action: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Pieces of one text; `learned` ones carry the loss."""

    kind: str
    pieces: tuple[tuple[str, bool], ...]
    last: str  # the tool of its last action


@dataclass(frozen=True, slots=True)
class Encoded:
    tokens: tuple[int, ...]
    weights: tuple[float, ...]  # zero where nothing is learned


def cut(kind: str, steps: Sequence[Step]) -> list[Sample]:
    """Samples of one trajectory."""
    samples: list[Sample] = []
    start = 0
    for end, step in enumerate(steps):
        if not step.action.startswith(EDITS):
            continue
        opening = f"{START}assistant\n"
        full = step.state + opening + step.action + f"{END}\n"
        pieces: list[tuple[str, bool]] = []
        place = 0
        for one in steps[start : end + 1]:
            prefix = one.state + opening
            if not full.startswith(prefix):
                raise AssertionError("the prefix changed between two edits")
            action = one.action + f"{END}\n"
            pieces += [(full[place : len(prefix)], False), (action, True)]
            place = len(prefix) + len(action)
        samples.append(Sample(kind, tuple(pieces), step.action.split(" ", 1)[0]))
        start = end + 1
    return samples


def balanced(samples: Iterable[Sample], seed: int, *, keep_deletions: float = 0.35) -> list[Sample]:
    """All samples but a share of those that only delete: they are the most frequent and the easiest."""
    dice = random.Random(seed)
    return [
        s for s in samples if s.last != "deleteContext" or len(s.pieces) > 2 or dice.random() < keep_deletions
    ]


def encoded(sample: Sample, tokens: Callable[[str], list[int]]) -> Encoded:
    """Token ids with their weights: the name of a tool and ids count more than the words after them."""
    ids: list[int] = []
    weights: list[float] = []
    for text, learned in sample.pieces:
        if not learned:
            made = tokens(text)
            ids += made
            weights += [0.0] * len(made)
            continue
        name, space, rest = text.partition(" ")
        by_id = name in ("readChunk", "deleteContext")
        for part, weight in ((name, NAME_WEIGHT), (space + rest, ID_WEIGHT if by_id else 1.0)):
            made = tokens(part)
            ids += made
            weights += [weight] * len(made)
    return Encoded(tuple(ids), tuple(weights))


def save(samples: Iterable[Sample], path: Path) -> int:
    """One JSON line a sample. Answers how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for sample in samples:
            line = {"kind": sample.kind, "last": sample.last, "pieces": sample.pieces}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
    return count


def load(path: Path) -> Iterator[Sample]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            value = json.loads(line)
            yield Sample(value["kind"], tuple((t, bool(b)) for t, b in value["pieces"]), value["last"])

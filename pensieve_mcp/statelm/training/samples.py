"""Training samples: one for each stretch between context edits, with the loss on the choices in it.

A state's beginning is rewritten by a deletion and by a note; between two edits every choice sees the text it was made
in, so all of them are learned from one printed text (the paper samples once a step, at several times the cost). Moves
that are made without the model are in no sample.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pensieve_mcp.errors import StorageError
from pensieve_mcp.statelm.template import END, START

CHOICE_WEIGHT = 2.0  # of the verb and of a number; the words of a query or an answer follow from them


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
    """Samples of one trajectory: a new one where the text before is another."""
    opening = f"{START}assistant\n"
    samples: list[Sample] = []
    pieces: list[tuple[str, bool]] = []
    written = last = ""
    for step in steps:
        prefix = step.state + opening
        if not written or not prefix.startswith(written):
            if pieces:
                samples.append(Sample(kind, tuple(pieces), last))
            pieces, written = [], ""
        action = step.action + f"{END}\n"
        pieces += [(prefix[len(written) :], False), (action, True)]
        written, last = prefix + action, step.action.split(" ", 1)[0]
    if pieces:
        samples.append(Sample(kind, tuple(pieces), last))
    return samples


def balanced(samples: Iterable[Sample], seed: int, *, keep_drops: float = 0.5) -> list[Sample]:
    """All samples but a share of those that only let hits go: they are the most frequent and the easiest."""
    dice = random.Random(seed)
    return [s for s in samples if s.last != "drop" or len(s.pieces) > 2 or dice.random() < keep_drops]


def encoded(sample: Sample, tokens: Callable[[str], list[int]]) -> Encoded:
    """Token ids with their weights: the verb and numbers count more than words."""
    ids: list[int] = []
    weights: list[float] = []
    for text, learned in sample.pieces:
        if not learned:
            made = tokens(text)
            ids += made
            weights += [0.0] * len(made)
            continue
        line, _, end = text.partition(END)
        verb, space, rest = line.partition(" ")
        numbered = verb in ("read", "note")
        parts = ((verb, CHOICE_WEIGHT), (space + rest, CHOICE_WEIGHT if numbered else 1.0), (END + end, 1.0))
        for part, weight in parts:
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
    """What `save` wrote. Raises StorageError for a line that is no sample."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line)
                pieces = tuple((_text(text), bool(learned)) for text, learned in value["pieces"])
                yield Sample(_text(value["kind"]), pieces, _text(value["last"]))
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(
                    f"Line {number} of {path} is no sample ({type(error).__name__}).",
                    hint="pensieve train data and selfplay write files of samples.",
                    slug="bad_samples",
                ) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value

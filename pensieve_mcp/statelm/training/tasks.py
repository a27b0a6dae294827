"""Questions with their answers and where these stand, hidden in real text.

The text is what lies on any machine with Python: the language's own reference topics and the documentation of its
standard library, or a folder of plain text that one names. Training and evaluation take different parts of it.
Everything is drawn by seed: the same seed writes the same documents, questions and order.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pensieve_mcp.statelm.sentences import content_words
from pensieve_mcp.statelm.training.worlds import (
    CHATS,
    HOPS,
    LECTURES,
    RELATIONS,
    Relation,
    person,
    place,
)

KINDS = (
    "single",
    "held",
    "hop",
    "list",
    "chat",
    "latest",
    "none",
    "misleading",
    "rephrased",
    "module",
    "scan",
    "budget",
)
"""Held: relations never trained on. Latest: many updates of one thing. Budget: as single, in a window so small that two
reads fill it. Scan: without search."""

MIX = {
    "single": 0.14, "hop": 0.24, "list": 0.18, "chat": 0.06, "latest": 0.08, "none": 0.11, "misleading": 0.07,
    "rephrased": 0.06, "module": 0.06,
}  # fmt: skip
PARAGRAPH_WORDS = 45
PARAGRAPHS_A_FILE = 60
NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Hop:
    """One thing to look up: queries to try in turn, and the sentences wanted. None wanted: there is nothing."""

    queries: tuple[str, ...]
    golds: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Task:
    """`facts` are put into the documents; `under` keeps the question to one file (a chat of its own)."""

    kind: str
    question: str
    gold: tuple[str, ...]  # all must be in the answer
    hops: tuple[Hop, ...]
    facts: tuple[str, ...]
    under: str = ""
    ordered: bool = False  # facts stand in this order: a chat


def text_of_python(split: str) -> list[str]:
    """Sentences of Python's own documentation, one fifth of the pieces for evaluation."""
    from pydoc_data import topics

    pieces = [topics.topics[name] for name in sorted(topics.topics)]
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in ("antigravity", "this", "idlelib", "turtledemo", "lib2to3"):
            continue
        if spec := importlib.util.find_spec(name):  # read as text: importing some modules opens windows
            origin = spec.origin
            if origin and origin.endswith(".py"):
                pieces += re.findall(r'"""(.{80,4000}?)"""', Path(origin).read_text("utf-8", "replace"), re.S)
    return _prose(pieces, split)


def text_of_folder(folder: Path, split: str) -> list[str]:
    """Sentences of the text files of a folder, split by file."""
    pieces = [
        path.read_text("utf-8", "replace")[:200_000]
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix.lower() in ("", ".txt", ".md", ".rst")
    ]
    return _prose(pieces, split)


def _prose(pieces: Iterable[str], split: str) -> list[str]:
    """Sentences of one split; what occurs in both counts as training's."""
    found: dict[str, dict[str, None]] = {"train": {}, "test": {}}
    for place_, piece in enumerate(pieces):
        part = found["test" if place_ % 5 == 0 else "train"]
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(piece.split())):
            letters = sum(c.isalpha() or c == " " for c in sentence)
            if 40 < len(sentence) < 240 and sentence[0].isalpha() and letters > 0.85 * len(sentence):
                part[sentence] = None
    return [one for one in found[split] if split == "train" or one not in found["train"]]


@lru_cache(maxsize=2)
def modules(split: str) -> tuple[tuple[str, str], ...]:
    """(module, what its documentation says it is): real text that is asked about as it stands."""
    found = []
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or not (spec := importlib.util.find_spec(name)):
            continue
        if not spec.origin or not spec.origin.endswith(".py"):
            continue
        head = re.match(
            r'\s*(?:#.*\n\s*)*[rR]?"""\s*([A-Z].{15,90}?)\.\s',
            Path(spec.origin).read_text("utf-8", "replace"),
        )
        if head and 3 <= len(head[1].split()) <= 12 and not set(head[1]) & set('"\\`{}<>():;.\n'):
            found.append((name, " ".join(head[1].split())))
    return tuple(pair for place_, pair in enumerate(found) if (place_ % 3 == 0) == (split == "test"))


def query_of(question: str) -> str:
    """The words of a question as a query, in their own letters."""
    kept = set(content_words(question))
    return " ".join(word for word in re.findall(r"[\w-]+", question) if word.lower() in kept)


def make(kind: str, dice: random.Random, split: str) -> Task:
    """One task of a kind."""
    trained = {name: r for name, r in RELATIONS.items() if not r.held_out}
    held = {name: r for name, r in RELATIONS.items() if r.held_out}
    match kind:
        case "single" | "misleading" | "rephrased" | "none" | "scan" | "budget":
            return _about(kind, dice, trained)
        case "held":
            return _about("held", dice, held)
        case "hop":
            return _hop(dice, trained)
        case "list":
            return _list(dice)
        case "chat" | "latest":
            return _chat(kind, dice)
        case "module":
            return _module(dice, split)
    raise ValueError(f"no kind {kind!r}")


def _state(relation: Relation, subject: str, value: str, dice: random.Random) -> str:
    return dice.choice(relation.statements).format(s=subject, v=value)


def _others(
    relation: Relation, subject: str, relations: dict[str, Relation], dice: random.Random
) -> list[str]:
    """The same told of others, and other things told of the same: what a search finds as well."""
    facts = [_state(relation, relation.subject(dice), relation.value(dice), dice) for _ in range(2)]
    same = [r for r in relations.values() if r.subject is relation.subject and r is not relation]
    for other in dice.sample(same, min(len(same), dice.randint(1, 2))):
        facts.append(_state(other, subject, other.value(dice), dice))
    return facts


def _about(kind: str, dice: random.Random, relations: dict[str, Relation]) -> Task:
    relation = relations[dice.choice(sorted(relations))]
    subject, value = relation.subject(dice), relation.value(dice)
    question = dice.choice(relation.questions).format(s=subject)
    facts = _others(relation, subject, relations, dice)
    queries = [query_of(question)]
    if kind == "none":
        queries.append(subject.removeprefix("province of "))  # who gives up has looked twice
        facts = [_state(relation, relation.subject(dice), relation.value(dice), dice) for _ in range(3)]
        return Task(kind, question, (NOT_FOUND,), (Hop(tuple(queries), (), relation.key),), tuple(facts))
    gold = _state(relation, subject, value, dice)
    if kind == "misleading":  # a namesake, told with the question's own words
        words = subject.split()
        twin = " ".join([*words[:-1], dice.choice([p for p in ("Works", "House", "Trust", "Senior")])])
        facts.append(
            _state(relation, twin if len(words) > 1 else f"{subject} Minor", relation.value(dice), dice)
        )
    if kind == "rephrased":  # first a query that misses the point, then the name
        queries = [relation.key + " " + dice.choice(["record", "detail", "question", "entry"]), subject]
    queries.append(subject)
    return Task(
        kind, question, (value,), (Hop(tuple(dict.fromkeys(queries)), (gold,), relation.key),), (gold, *facts)
    )


def _hop(dice: random.Random, relations: dict[str, Relation]) -> Task:
    first, second, asked = dice.choice(HOPS)
    one, two = relations[first], relations[second]
    subject, middle, value = one.subject(dice), one.value(dice), two.value(dice)
    gold_one, gold_two = _state(one, subject, middle, dice), _state(two, middle, value, dice)
    facts = [*_others(one, subject, relations, dice), *_others(two, middle, relations, dice)]
    return Task(
        "hop",
        asked.format(s=subject),
        (value,),
        (
            Hop((f"{subject} {one.key}", subject), (gold_one,), one.key),
            Hop((f"{middle} {two.key}", middle), (gold_two,), two.key),
        ),
        (gold_one, gold_two, *facts),
    )


def _list(dice: random.Random) -> Task:
    subject = person(dice)
    values = [place(dice) for _ in range(dice.choice([2, 3]))]
    golds = [dice.choice(LECTURES).format(s=subject, v=value) for value in values]
    asked = dice.choice(
        ["In which towns did {s} give a lecture?", "List the towns where {s} gave a lecture."]
    )
    facts = [dice.choice(LECTURES).format(s=person(dice), v=place(dice)) for _ in range(2)]
    hop = Hop((f"{subject} lecture",), tuple(golds), "town")
    return Task("list", asked.format(s=subject), tuple(values), (hop,), (*golds, *facts))


def _chat(kind: str, dice: random.Random) -> Task:
    name = dice.choice(sorted(CHATS))
    habit = CHATS[name]
    days = sorted(dice.sample(range(360), 8))

    def said(day: int, text: str) -> str:
        return f"[2024-{1 + day // 31:02d}-{1 + day % 31:02d}] user: {text}"

    others = [CHATS[other] for other in dice.sample([c for c in sorted(CHATS) if c != name], 4)]
    updates = dice.randint(2, 3) if kind == "latest" else 1
    values = [habit.value(dice) for _ in range(updates)]
    own = sorted(dice.sample(range(8), updates))
    facts: list[str] = []
    golds: list[str] = []
    for turn, day in enumerate(days):
        if turn in own:
            golds.append(said(day, dice.choice(habit.sayings).format(v=values[len(golds)])))
            facts.append(golds[-1])
        elif others:
            other = others.pop()
            facts.append(said(day, dice.choice(other.sayings).format(v=other.value(dice))))
    question = habit.question if kind == "chat" else habit.question.replace("?", " now?")
    hop = Hop((habit.query, query_of(habit.question)), (golds[-1],), habit.key)
    return Task(kind, question, (values[-1],), (hop,), tuple(facts), under="chat", ordered=True)


def _module(dice: random.Random, split: str) -> Task:
    known = modules(split)
    name, said = dice.choice(known)
    gold = f"Module {name}: {said}."
    facts = [
        f"Module {other}: {what}." for other, what in dice.sample(known, min(6, len(known))) if other != name
    ]
    asked = dice.choice(["What is the module {n} for?", "How is the module {n} described?"]).format(n=name)
    return Task("module", asked, (said,), (Hop((f"module {name}", name), (gold,), "module"),), (gold, *facts))


def draw(count: int, seed: int, *, split: str = "train", mix: dict[str, float] | None = None) -> list[Task]:
    """Tasks in order of drawing."""
    dice = random.Random(seed)
    shares = mix or MIX
    return [make(dice.choices(list(shares), list(shares.values()))[0], dice, split) for _ in range(count)]


def write_documents(
    tasks: Sequence[Task], folder: Path, text: Sequence[str], seed: int, *, paragraphs: int = 0
) -> list[Task]:
    """Hide the facts of all tasks in one set of documents; chats get a file each. Answers the tasks with their paths.
    `paragraphs`: at least so many, to make the haystack as large as wanted."""
    dice = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    placed: list[Task] = []
    shared: list[str] = []
    for number, task in enumerate(tasks):
        if task.ordered:
            path = f"chats/chat-{number:04d}.txt"
            (folder / "chats").mkdir(exist_ok=True)
            turns = []
            for fact in task.facts:
                turns += [_paragraph(dice, text, "") for _ in range(dice.randint(1, 3))] + [fact]
            (folder / path).write_text("\n\n".join(turns) + "\n", encoding="utf-8")
            placed.append(replace(task, under=path))
        else:
            shared += task.facts
            placed.append(task)
    bodies = [_paragraph(dice, text, fact) for fact in shared]
    bodies += [_paragraph(dice, text, "") for _ in range(max(0, paragraphs - len(bodies)))]
    dice.shuffle(bodies)
    for start in range(0, len(bodies), PARAGRAPHS_A_FILE):
        name = f"text-{start // PARAGRAPHS_A_FILE:04d}.txt"
        part = bodies[start : start + PARAGRAPHS_A_FILE]
        (folder / name).write_text("\n\n".join(part) + "\n", encoding="utf-8")
    return placed


def _paragraph(dice: random.Random, text: Sequence[str], fact: str) -> str:
    chosen: list[str] = []
    length = len(fact.split())
    while length < PARAGRAPH_WORDS:
        sentence = dice.choice(text)
        chosen.append(sentence)
        length += len(sentence.split())
    if fact:
        chosen.insert(dice.randint(0, len(chosen)), fact)
    return " ".join(chosen)

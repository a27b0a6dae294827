"""Questions with their answers and where these stand, hidden in real text.

The text is what lies on any machine with Python: the language's own reference topics and the documentation of its
standard library, or a folder of plain text that one names. Training and evaluation take different parts of it.
Everything is drawn by seed: the same seed writes the same documents, questions and order.
"""

from __future__ import annotations

import random
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.machinery import FrozenImporter
from pathlib import Path

from pensieve_mcp.statelm.sentences import query_of
from pensieve_mcp.statelm.training.chains import chain, latest, log
from pensieve_mcp.statelm.training.phrasings import (
    HABITS_TRAINED,
    LISTS_TRAINED,
    RELATIONS_TRAINED,
    questions,
    statements,
)
from pensieve_mcp.statelm.training.relations import HABITS, LISTS, RELATIONS, Habit, Relation, hops
from pensieve_mcp.statelm.training.worlds import MAKERS, Dice, dice

TEST_EVERY = 5  # of so many pieces of text one is held out
FILE_CHARS, PIECE_CHARS = 200_000, 10_000
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
    "chain",
    "log",
)
"""Held: relations never trained on. Latest: many updates of one thing. Budget: in a window so small that little is
shown of a search. Scan: without search. Chain: over two to four statements, backwards too. Log: the last of many
undated values. Training alone has the last two."""

MIX = {
    "single": 0.15, "hop": 0.17, "list": 0.13, "chat": 0.05, "latest": 0.08, "none": 0.13, "misleading": 0.03,
    "rephrased": 0.02, "module": 0.05, "scan": 0.02, "budget": 0.01, "chain": 0.13, "log": 0.03,
}  # fmt: skip
SCAN_PARAGRAPHS = 8
PARAGRAPH_WORDS = 45
PARAGRAPHS_A_FILE = 60
FACTS_A_PARAGRAPH = 3  # in a text that is about them
NOT_FOUND = "not found"
CODE = re.compile(r"[_=\[\]{}<>#\\|@$^~]|\bself\b|\bdef\b|^\S+:")
BEFORE = {
    "train": (
        "According to the yearbook, ", "As the records show, ", "It is well known that ",
        "In a short notice one reads that ",
        "Our correspondent writes that ", "To this day, ", "As far as we know, ", "By the way, ",
    ),
    "test": ("The minutes state that ", "As a visitor told us, ", "Note that "),
}  # fmt: skip
AFTER = {
    "train": (
        ", as the guide explains", ", which surprised many", ", according to a letter", ", says the register",
        ", and nobody doubts it", ", if the papers are right", ", a fact few people know",
    ),
    "test": (", as an old file reveals", ", reports the gazette"),
}  # fmt: skip
DATED_CHATS = 0.7  # of training's; all of the evaluation's
TOLD_AS_WELL = 0.12  # of the other relations
BROKEN_CHAINS = 0.1  # end in nothing
DENSE_LOGS = 0.7  # have nothing but their lines
LOG_FILLER = 0.3  # of the lines of the others have a paragraph of text before them
LURED = 0.5  # of the questions about a module hold a word of another's description
LURES = (
    "In the part on {w}, what is the module {n}?", "Among {w} and others, what does the module {n} offer?",
    "What is told under {w} about the module {n}?", "By the page on {w}, what is the module {n} for?",
    "How do the notes on {w} sum up the module {n}?", "What has the {w} chapter about the module {n}?",
)  # fmt: skip
DRESSED = 0.3  # of the statements are put into a longer sentence, at each end


@dataclass(frozen=True, slots=True)
class Hop:
    """One thing to look up: queries to try in turn, and the sentences wanted. None wanted: there is nothing."""

    queries: tuple[str, ...]
    golds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """`facts` are put into the documents; `under` keeps the question to one file (a chat of its own)."""

    kind: str
    question: str
    gold: tuple[str, ...]  # all must be in the answer
    hops: tuple[Hop, ...]
    facts: tuple[str, ...]
    under: str = ""
    ordered: bool = False  # facts stand in this order in a file of their own: a chat, a log


def text_of_python(split: str) -> list[str]:
    """Sentences of Python's own documentation, one fifth of the pieces for evaluation."""
    from pydoc_data import topics

    pieces = [topics.topics[name] for name in sorted(topics.topics)]
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in ("antigravity", "this", "idlelib", "turtledemo", "lib2to3"):
            continue
        if (source := _source(name)) is not None:
            pieces += re.findall(r'"""(.{80,4000}?)"""', source, re.S)
    return _prose(pieces, split)


def _source(module: str) -> str | None:
    """The text of a module of the standard library, from its own folder: an installed package may put itself in the
    place of one (setuptools in that of distutils), and the same seed is to give the same data. None where it has none,
    and for those that the interpreter carries in itself, which the shipped run did not read."""
    if FrozenImporter.find_spec(module) is not None:
        return None
    folder = Path(sysconfig.get_path("stdlib"))
    for file in (folder / f"{module}.py", folder / module / "__init__.py"):
        if file.is_file():
            return file.read_text("utf-8", "replace")
    return None


def text_of_folder(folder: Path, split: str) -> list[str]:
    """Sentences of the text files of a folder, split by file; by pieces of them where there are fewer than five."""
    texts = [
        path.read_text("utf-8", "replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix.lower() in ("", ".txt", ".md", ".rst")
    ]
    if len(texts) >= TEST_EVERY:
        return _prose((text[:FILE_CHARS] for text in texts), split)
    return _prose((t[at : at + PIECE_CHARS] for t in texts for at in range(0, len(t), PIECE_CHARS)), split)


def _prose(pieces: Iterable[str], split: str) -> list[str]:
    """Sentences of one split; what occurs in both counts as training's."""
    found: dict[str, dict[str, None]] = {"train": {}, "test": {}}
    for place_, piece in enumerate(pieces):
        part = found["test" if place_ % TEST_EVERY == 0 else "train"]
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(piece.split())):
            if not sentence:
                continue
            letters = sum(c.isalpha() or c == " " for c in sentence)
            whole = sentence[0].isupper() and sentence[-1] in ".!?" and not CODE.search(sentence)
            if whole and 40 < len(sentence) < 240 and letters > 0.9 * len(sentence):
                part[sentence] = None
    return [one for one in found[split] if split == "train" or one not in found["train"]]


@lru_cache(maxsize=2)
def modules(split: str) -> tuple[tuple[str, str], ...]:
    """(module, what its documentation says it is): real text that is asked about as it stands."""
    found = []
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or (source := _source(name)) is None:
            continue
        head = re.match(r'\s*(?:#.*\n\s*)*[rR]?"""\s*([A-Z].{15,90}?)\.\s', source)
        if head and 3 <= len(head[1].split()) <= 12 and not set(head[1]) & set('"\\`{}<>():;.\n'):
            found.append((name, " ".join(head[1].split())))
    return tuple(pair for place_, pair in enumerate(found) if (place_ % 3 == 0) == (split == "test"))


def make(kind: str, generator: Dice, split: str) -> Task:
    """One task of a kind. Evaluation draws other phrasings, names, second hops and, for `held`, other relations."""
    generator.split = split
    trained = _trained(split)
    match kind:
        case "single" | "misleading" | "rephrased" | "scan" | "budget":
            return _about(kind, generator, trained, split)
        case "none":
            return _none(generator, trained, split)
        case "held":
            return _about("held", generator, [one for one in RELATIONS if one.held_out], split)
        case "hop":
            return _hop(generator, split)
        case "list":
            return _list(generator, split)
        case "chat" | "latest":
            return _chat(kind, generator, split)
        case "module":
            return _module(generator, split)
        case "chain":
            return _chain(generator)
        case "log":
            return _log(generator)
    raise ValueError(f"no kind {kind!r}")


def _trained(split: str) -> Sequence[Relation]:
    return RELATIONS_TRAINED if split == "train" else [one for one in RELATIONS if not one.held_out]


def _state(relation: Relation, subject: str, value: str, dice: Dice) -> str:
    return _dressed(dice.choice(statements(relation, dice.split)).format(s=subject, v=value), dice)


def _dressed(sentence: str, dice: Dice) -> str:
    """Now and then with words before or after it that say nothing."""
    if dice.random() < DRESSED:
        lowered = sentence[0].lower() + sentence[1:]
        small = sentence.split()[0] in (
            "The",
            "In",
            "An",
            "A",
            "It",
            "By",
            "For",
            "On",
            "As",
            "All",
            "Under",
            "From",
        )
        sentence = dice.choice(BEFORE[dice.split]) + (lowered if small else sentence)
    if dice.random() < DRESSED:
        sentence = sentence[:-1] + dice.choice(AFTER[dice.split]) + "."
    return sentence[0].upper() + sentence[1:]


def _others(relation: Relation, subject: str, dice: Dice) -> list[str]:
    """The same told of others, and other things told of the same: what a search finds as well."""
    facts = [
        _state(relation, relation.make_subject()(dice), relation.make_value()(dice), dice) for _ in range(2)
    ]
    same = [r for r in _trained(dice.split) if r.subject == relation.subject and r is not relation]
    for other in dice.sample(same, min(len(same), dice.randint(1, 3))):
        facts.append(_state(other, subject, other.make_value()(dice), dice))
    return facts


def _about(kind: str, dice: Dice, relations: Sequence[Relation], split: str) -> Task:
    relation = dice.choice(relations)
    subject, value = relation.make_subject()(dice), relation.make_value()(dice)
    question = dice.choice(questions(relation, split)).format(s=subject)
    facts = _others(relation, subject, dice)
    gold = _state(relation, subject, value, dice)
    if kind == "misleading":  # a namesake, told with the question's own words
        words = subject.split()
        twin = " ".join([*words[:-1], dice.choice(("Works", "House", "Trust", "Senior", "Minor"))])
        twin = twin if len(words) > 1 else f"{subject} Minor"
        facts.append(_state(relation, twin, relation.make_value()(dice), dice))
    if kind == "rephrased":  # the subject is told much of, so that the question's words alone lead elsewhere
        same = [r for r in _trained(split) if r.subject == relation.subject and r is not relation]
        facts += [
            _state(r, subject, r.make_value()(dice), dice) for r in dice.sample(same, min(3, len(same)))
        ]
    hop = Hop((query_of(question), bare(subject)), (gold,))
    return Task(kind, question, (value,), (hop,), (gold, *facts))


def bare(subject: str) -> str:
    """The name alone, as one would search it."""
    named = [word for word in subject.split() if word[0].isupper() and word != "The"]
    return " ".join(named) or subject


def _none(dice: Dice, relations: Sequence[Relation], split: str) -> Task:
    """Nobody is told of, or of the subject only other things, or a second hop leads nowhere."""
    if dice.random() < 0.15:
        task = _hop(dice, split)
        lost = Hop(task.hops[1].queries, ())
        facts = tuple(fact for fact in task.facts if fact not in task.hops[1].golds)
        return Task("none", task.question, (NOT_FOUND,), (task.hops[0], lost), facts)
    relation = dice.choice(relations)
    subject = relation.make_subject()(dice)
    question = dice.choice(questions(relation, split)).format(s=subject)
    told = [*_others(relation, subject, dice), *_alike(relation, subject, dice)]
    if dice.random() < 0.5:
        told = [fact for fact in told if bare(subject) not in fact] + [
            _state(relation, relation.make_subject()(dice), relation.make_value()(dice), dice)
        ]
    hop = Hop((query_of(question), bare(subject)), ())
    return Task("none", question, (NOT_FOUND,), (hop,), tuple(told))


def _alike(relation: Relation, subject: str, dice: Dice) -> list[str]:
    """Another side of the subject whose value could be taken for the answer; training's alone. A kind of value that
    only this relation has gives none."""
    if dice.split != "train":
        return []
    same = [
        r
        for r in RELATIONS_TRAINED
        if r is not relation and r.subject == relation.subject and r.value == relation.value
    ]
    return [_state(r, subject, r.make_value()(dice), dice) for r in dice.sample(same, min(1, len(same)))]


def _hop(dice: Dice, split: str) -> Task:
    one, two = dice.choice(hops(split))
    subject, middle, value = one.make_subject()(dice), one.make_value()(dice), two.make_value()(dice)
    gold_one, gold_two = _state(one, subject, middle, dice), _state(two, middle, value, dice)
    facts = [*_others(one, subject, dice), *_others(two, middle, dice)]
    template = dice.choice(questions(two, split))
    noun = one.noun.format(s=subject)
    article = "" if "the {s}" not in template else "the "
    question = template.replace(f"{article}{{s}}", noun)
    rest = query_of(template.replace("{s}", ""))
    queries = (f"{bare(middle)} {rest}".strip(), bare(middle))
    first = Hop((query_of(question), bare(subject)), (gold_one,))
    return Task("hop", question, (value,), (first, Hop(queries, (gold_two,))), (gold_one, gold_two, *facts))


def _list(dice: Dice, split: str) -> Task:
    held = split == "test" and dice.random() < 0.3
    known = LISTS_TRAINED if split == "train" else [one for one in LISTS if one.held_out == held]
    relation = dice.choice(known)
    subject = relation.make_subject()(dice)
    wanted = dice.choice([2, 3] if split == "train" else [2, 2, 3])
    values: list[str] = []
    while len(values) < wanted:
        if (value := relation.make_value()(dice)) not in values:
            values.append(value)
    golds = tuple(_state(relation, subject, value, dice) for value in values)
    question = dice.choice(questions(relation, split)).format(s=subject)
    facts = [
        _state(relation, relation.make_subject()(dice), relation.make_value()(dice), dice) for _ in range(2)
    ]
    same = [r for r in _trained(split) if r.subject == relation.subject]
    facts += [_state(r, subject, r.make_value()(dice), dice) for r in dice.sample(same, 1)]
    hop = Hop((query_of(question), bare(subject)), golds)
    return Task("list", question, tuple(values), (hop,), (*golds, *facts))


def _chat(kind: str, dice: Dice, split: str) -> Task:
    """Eight things a user said of themselves on as many days; training leaves the days away now and then."""
    habits = HABITS_TRAINED if split == "train" else HABITS
    habit = dice.choice(habits)
    days = sorted(dice.sample(range(360), 8))
    dated = split == "test" or dice.random() < DATED_CHATS

    def said(day: int, one: Habit, value: str) -> str:
        text = dice.choice(statements(one, split)).format(v=value)
        return f"[2024-{1 + day // 31:02d}-{1 + day % 31:02d}] user: {text}" if dated else f"user: {text}"

    others = dice.sample([one for one in habits if one is not habit], 4)
    updates = dice.randint(2, 3) if kind == "latest" else 1
    values: list[str] = []
    while len(values) < updates:
        if (value := MAKERS[habit.value](dice)) not in values:
            values.append(value)
    own = sorted(dice.sample(range(8), updates))
    facts: list[str] = []
    golds: list[str] = []
    for turn, day in enumerate(days):
        if turn in own:
            golds.append(said(day, habit, values[len(golds)]))
            facts.append(golds[-1])
        elif others:
            other = others.pop()
            facts.append(said(day, other, MAKERS[other.value](dice)))
    question = dice.choice(questions(habit, split))
    if not dated and kind == "latest":
        question = latest(question, dice)
    elif kind == "latest" and dice.random() < 0.5:
        question = question.replace("?", " now?")
    hop = Hop((query_of(question), habit.query), (golds[-1],))
    return Task(kind, question, (values[-1],), (hop,), tuple(facts), under="chat", ordered=True)


def _chain(dice: Dice) -> Task:
    """A way over several statements, some of whose ends others share."""
    way = chain(dice)
    golds = [_state(leg.relation, leg.subject, leg.value, dice) for leg in way.legs]
    facts: list[str] = []
    hops_: list[Hop] = []
    for number, (leg, gold) in enumerate(zip(way.legs, golds, strict=True)):
        facts += _others(leg.relation, leg.subject, dice)
        if leg.backwards:
            facts += _told_of(leg.at, leg.relation, dice)
        words = way.words[number]
        queries = (f"{bare(leg.at)} {words}".strip(), bare(leg.at))
        hops_.append(Hop((query_of(way.question), bare(leg.at)) if not number else queries, (gold,)))
    facts = [fact for fact in facts if fact not in golds]
    if dice.random() < BROKEN_CHAINS:
        hops_[-1] = Hop(hops_[-1].queries, ())
        return Task("chain", way.question, (NOT_FOUND,), tuple(hops_), (*golds[:-1], *facts))
    return Task("chain", way.question, (way.legs[-1].to,), tuple(hops_), (*golds, *facts))


def _told_of(thing: str, relation: Relation, dice: Dice) -> list[str]:
    """What else is told of the thing from which a way leads back."""
    kind = relation.value
    facts: list[str] = []
    for other in RELATIONS_TRAINED:
        if other is relation or kind not in (other.subject, other.value) or dice.random() >= TOLD_AS_WELL:
            continue
        if other.subject == kind:
            facts.append(_state(other, thing, other.make_value()(dice), dice))
        else:
            facts.append(_state(other, other.make_subject()(dice), thing, dice))
    return facts


def _log(dice: Dice) -> Task:
    """The last of many undated values of a key, in a file in which others are updated as well."""
    made = log(dice)
    hop = Hop((query_of(made.question), made.key), (made.last,))
    return Task("log", made.question, (made.value,), (hop,), made.lines, ordered=True)


def _module(dice: Dice, split: str) -> Task:
    known = modules(split)
    name, said = dice.choice(known)
    gold = f"Module {name}: {said}."
    others = [one for one in dice.sample(known, min(6, len(known))) if one[0] != name]
    facts = [f"Module {other}: {what}." for other, what in others]
    asked = {
        "train": (
            "What is the module {n} for?", "How is the module {n} described?", "What does the module {n} do?",
            "What is the purpose of the module {n}?", "What does the manual tell of the module {n}?",
            "What is the summary of the module {n}?", "What can be read about the module {n}?",
            "For what does one use the module {n}?", "What is written in the library about the module {n}?",
        ),
        "test": ("What does the documentation say of the module {n}?",),
    }[split]  # fmt: skip
    question = dice.choice(asked).format(n=name)
    if split == "train" and dice.random() < LURED:
        question = dice.choice(LURES).format(n=name, w=_word_of(dice.choice(others)[1], dice))
    return Task("module", question, (said,), (Hop((query_of(question), name), (gold,)),), (gold, *facts))


def _word_of(description: str, dice: Dice) -> str:
    """One of its longer words, as a question may hold it by chance."""
    words: list[str] = [w for w in re.findall(r"[a-z]{5,}", description.lower()) if w != "module"]
    return dice.choice(words or ["library"])


def draw(count: int, seed: int, *, split: str = "train", mix: dict[str, float] | None = None) -> list[Task]:
    """Tasks in order of drawing."""
    generator = dice(seed, split)
    shares = mix or MIX
    return [
        make(generator.choices(list(shares), list(shares.values()))[0], generator, split)
        for _ in range(count)
    ]


def write_documents(
    tasks: Sequence[Task],
    folder: Path,
    text: Sequence[str],
    seed: int,
    *,
    paragraphs: int = 0,
    dense: bool = False,
) -> list[Task]:
    """Hide the facts of all tasks in one set of documents; chats get a file each. Answers the tasks with their paths.
    `paragraphs`: at least so many, to make the haystack as large as wanted. `dense`: facts stand close together, as in
    a short text that is about them."""
    generator = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    placed: list[Task] = []
    shared: list[str] = []
    first: list[str] = []  # what is read in order stands where reading begins
    for number, task in enumerate(tasks):
        if task.ordered:
            path = f"chats/chat-{number:04d}.txt" if task.under else f"logs/log-{number:04d}.txt"
            (folder / path).parent.mkdir(exist_ok=True)
            dense_log = not task.under and generator.random() < DENSE_LOGS
            other = "assistant: " if task.facts[0].startswith("user:") else ""
            turns = []
            for fact in task.facts:
                fillers = generator.randint(1, 3) if task.under else int(generator.random() < LOG_FILLER)
                if not dense_log:
                    turns += [other + _paragraph(generator, text, "") for _ in range(fillers)]
                turns.append(fact)
            (folder / path).write_text("\n\n".join(turns) + "\n", encoding="utf-8")
            placed.append(replace(task, under=path) if task.under else task)
        else:
            (first if task.kind == "scan" else shared).extend(task.facts)
            placed.append(task)
    if first:
        opening = [_paragraph(generator, text, fact) for fact in first]
        opening += [_paragraph(generator, text, "") for _ in range(SCAN_PARAGRAPHS)]
        generator.shuffle(opening)
        (folder / "a-beginning.txt").write_text("\n\n".join(opening) + "\n", encoding="utf-8")
    if dense:
        generator.shuffle(shared)
        shared = [
            " ".join(shared[place : place + FACTS_A_PARAGRAPH])
            for place in range(0, len(shared), FACTS_A_PARAGRAPH)
        ]
    bodies = shared if dense else [_paragraph(generator, text, fact) for fact in shared]
    bodies += [_paragraph(generator, text, "") for _ in range(max(0, paragraphs - len(bodies)))]
    generator.shuffle(bodies)
    for start in range(0, len(bodies), PARAGRAPHS_A_FILE):
        name = f"text-{start // PARAGRAPHS_A_FILE:04d}.txt"
        part = bodies[start : start + PARAGRAPHS_A_FILE]
        (folder / name).write_text("\n\n".join(part) + "\n", encoding="utf-8")
    return placed


def _paragraph(generator: random.Random, text: Sequence[str], fact: str) -> str:
    chosen: list[str] = []
    length = len(fact.split())
    while length < PARAGRAPH_WORDS:
        sentence = generator.choice(text)
        chosen.append(sentence)
        length += len(sentence.split())
    if fact:
        chosen.insert(generator.randint(0, len(chosen)), fact)
    return " ".join(chosen)

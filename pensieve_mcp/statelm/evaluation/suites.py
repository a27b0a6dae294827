"""The suites: what is written into the documents, what is asked about it, and where the evidence lies.

needle        one number in a long text (RULER's single needle; the text holds one for every question)
chat          what a user said of themselves in a long conversation, some of it said anew later
qa            facts, two hops, lists and what is not there, in one long document
interference  one key updated many times among others; only the last value counts (length: updates of a key)
deep          many documents, three of which lead to the answer one after another

Names and facts are invented, so nothing can be answered from a model's memory; the same seed makes the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pensieve_mcp.statelm.evaluation.texts import haystack, hide
from pensieve_mcp.statelm.training.relations import HABITS
from pensieve_mcp.statelm.training.tasks import make
from pensieve_mcp.statelm.training.worlds import MAKERS, house, person, place
from pensieve_mcp.statelm.training.worlds import dice as thrown

K = 1_024
QUESTIONS_A_CHAT = 6
MOST_SAID = 3  # times a thing about oneself is said in a chat
KEYS = 20  # of the interference log
QA_KINDS = ("single", "held", "hop", "list", "none")
DOCUMENT_PARAGRAPHS = 6  # of a document of the deep suite


@dataclass(frozen=True, slots=True)
class Item:
    """One question. `position`: where its evidence lies, 0 to 1, None where it is all over; `under` keeps it to a file;
    `gold` must all be in the answer."""

    number: int
    question: str
    gold: tuple[str, ...]
    position: float | None = None
    kind: str = ""
    under: str = ""


@dataclass(frozen=True, slots=True)
class Bed:
    """Documents by path and the questions about them. `length` is that of the suite: tokens, or updates."""

    suite: str
    length: int
    files: dict[str, str]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """How a bed is made, and the lengths it is usually made at."""

    name: str
    lengths: tuple[int, ...]
    make: Callable[[int, int, int, Sequence[str]], Bed] = field(repr=False)
    unit: str = "tokens"


def _depths(n: int) -> list[float]:
    """Evenly from the beginning to the end."""
    return [round(i / (n - 1), 4) if n > 1 else 0.5 for i in range(n)]


def _distinct(make_one: Callable[[random.Random], str], dice: random.Random, n: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < n:
        found[make_one(dice)] = None
    return list(found)


def needle(length: int, n: int, seed: int, text: Sequence[str]) -> Bed:
    dice = random.Random(f"needle/{length}/{seed}")
    keys = _distinct(place, dice, n)
    values = _distinct(lambda d: str(d.randint(1_000_000, 9_999_999)), dice, n)
    facts = [
        f"One of the special magic numbers for {key} is: {value}."
        for key, value in zip(keys, values, strict=True)
    ]
    depths = _depths(n)
    whole = hide(haystack(text, length, dice), facts, depths)
    items = tuple(
        Item(
            number,
            f"What is the special magic number for {keys[number]}?",
            (values[number],),
            depths[number],
        )
        for number in range(n)
    )
    return Bed("needle", length, {"text.txt": "\n\n".join(whole) + "\n"}, items)


def chat(length: int, n: int, seed: int, text: Sequence[str]) -> Bed:
    """`n` questions over as many histories of `length` tokens as they need, six to a history."""
    files: dict[str, str] = {}
    items: list[Item] = []
    for which in range(-(-n // QUESTIONS_A_CHAT)):
        dice = thrown(f"chat/{length}/{seed}/{which}", "test")
        path = f"chat-{which:03d}.txt"
        filler = haystack(text, length, dice)
        said: list[tuple[float, str]] = []
        for habit in dice.sample(HABITS, QUESTIONS_A_CHAT):
            times = dice.randint(1, MOST_SAID)
            values = _distinct(MAKERS[habit.value], dice, times)
            depths = sorted(dice.random() for _ in range(times))
            said += [
                (depth, f"user: {dice.choice(habit.statements('test')).format(v=value)}")
                for depth, value in zip(depths, values, strict=True)
            ]
            if len(items) < n:
                asked = dice.choice(habit.questions("test"))
                question = asked if times == 1 else asked.replace("?", " now?")
                kind = "said once" if times == 1 else "said anew"
                items.append(Item(len(items), question, (values[-1],), round(depths[-1], 4), kind, path))
        turns = [f"assistant: {' '.join(one.split())}" for one in filler]
        whole = hide(turns, [fact for _, fact in said], [depth for depth, _ in said])
        files[path] = "\n\n".join(whole) + "\n"
    return Bed("chat", length, files, tuple(items))


def qa(length: int, n: int, seed: int, text: Sequence[str]) -> Bed:
    dice = thrown(f"qa/{length}/{seed}", "test")
    facts: list[str] = []
    depths: list[float] = []
    items: list[Item] = []
    for number in range(n):
        task = make(QA_KINDS[number % len(QA_KINDS)], dice, "test")
        own = [dice.random() for _ in task.facts]
        golds = [one for hop in task.hops for one in hop.golds]
        where = [depth for fact, depth in zip(task.facts, own, strict=True) if fact in golds]
        position = round(sum(where) / len(where), 4) if len(where) == 1 else None
        items.append(Item(number, task.question, task.gold, position, task.kind))
        facts += task.facts
        depths += own
    whole = hide(haystack(text, length, dice), facts, depths)
    return Bed("qa", length, {"document.txt": "\n\n".join(whole) + "\n"}, tuple(items))


def interference(updates: int, n: int, seed: int, text: Sequence[str]) -> Bed:
    """A log in which each of some keys gets `updates` values, in drawn order. `text` is not used."""
    dice = random.Random(f"interference/{updates}/{seed}")
    keys = _distinct(place, dice, max(n, KEYS))
    order = [key for key in keys for _ in range(updates)]
    dice.shuffle(order)
    last: dict[str, str] = {}
    where: dict[str, float] = {}
    lines = []
    for number, key in enumerate(order, 1):
        last[key] = str(dice.randint(10_000, 99_999))
        where[key] = round(number / len(order), 4)
        lines.append(f"Entry {number}: the gauge at {key} now reads {last[key]}.")
    items = tuple(
        Item(number, f"What is the latest reading of the gauge at {key}?", (last[key],), where[key])
        for number, key in enumerate(keys[:n])
    )
    return Bed("interference", updates, {"log.txt": "\n\n".join(lines) + "\n"}, items)


def deep(length: int, n: int, seed: int, text: Sequence[str]) -> Bed:
    """Which house was founded by someone born in the town on a river: three documents, found from the far end."""
    dice = random.Random(f"deep/{length}/{seed}")
    houses, others = _distinct(house, dice, n), _distinct(house, dice, 2 * n)
    people, strangers = _distinct(person, dice, n), _distinct(person, dice, 2 * n)
    towns = _distinct(place, dice, 3 * n)
    rivers = _distinct(place, dice, 2 * n)
    facts: list[str] = []
    items: list[Item] = []
    for i in range(n):
        facts += [
            f"{towns[i]} lies on the River {rivers[i]}.",
            f"{people[i]} was born in {towns[i]}.",
            f"The {houses[i]} was founded by {people[i]}.",
            # what shares a name with the way, and leads elsewhere
            f"{strangers[i]} once spent a summer in {towns[i]}.",
            f"The {others[i]} was founded by {strangers[i]}.",
            f"{people[i]} is a patron of the {others[n + i]}.",
            f"{towns[n + i]} lies on the River {rivers[n + i]}.",
            f"{strangers[n + i]} was born in {towns[2 * n + i]}.",
        ]
        asked = f"Which house was founded by a person born in the town on the River {rivers[i]}?"
        items.append(Item(i, asked, (houses[i],)))
    dice.shuffle(facts)
    filler = haystack(text, length, dice)
    pieces = [
        filler[start : start + DOCUMENT_PARAGRAPHS] for start in range(0, len(filler), DOCUMENT_PARAGRAPHS)
    ]
    pieces += [[] for _ in range(len(facts) - len(pieces))]  # a fact alone is a document, too
    for number, fact in enumerate(facts):
        piece = pieces[number * len(pieces) // len(facts)]
        piece.insert(dice.randint(0, len(piece)), fact)
    dice.shuffle(pieces)
    files = {f"document-{i:05d}.txt": "\n\n".join(piece) + "\n" for i, piece in enumerate(pieces)}
    return Bed("deep", length, files, tuple(items))


LENGTHS = (32 * K, 64 * K, 128 * K, 256 * K, 512 * K, 768 * K, K * K, 2 * K * K)

SUITES: dict[str, Suite] = {
    "needle": Suite("needle", LENGTHS, needle),
    "chat": Suite("chat", (32 * K, 115_000), chat),
    "qa": Suite("qa", (32 * K, 128 * K, 512 * K), qa),
    "interference": Suite("interference", (4, 16, 64, 256), interference, "updates"),
    "deep": Suite("deep", (128 * K, 552_000), deep),
}

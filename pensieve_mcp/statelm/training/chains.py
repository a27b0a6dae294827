"""Questions that lead from one thing to the next, forwards (the founder of …) and backwards (the house founded by …),
over two to four statements; and logs, in which the last of many undated values of a key counts.

For training alone: the suites `deep` and `interference` ask in other words, and the way of `deep` (river, birth,
founder, all backwards) is never drawn here, nor are the pairs of relations that the evaluation keeps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from pensieve_mcp.statelm.sentences import query_of
from pensieve_mcp.statelm.training.phrasings import BACK, RELATIONS_TRAINED, questions, statements
from pensieve_mcp.statelm.training.relations import Relation, hops
from pensieve_mcp.statelm.training.worlds import MAKERS, Dice, Maker

ENTITIES = frozenset(("house", "person", "project", "place", "ship", "book", "device", "species", "river"))
WITH_ARTICLE = frozenset(("house", "ship", "device", "species", "river"))
LENGTHS = {2: 0.35, 3: 0.5, 4: 0.15}
BACKWARDS = 0.55  # of the steps, where there is a choice
KEPT_WAY = (("river", True), ("born", True), ("founder", True))  # that of the deep suite


@dataclass(frozen=True, slots=True)
class Leg:
    """One step: `at` stands in the question or the note before, `to` is what it leads to."""

    relation: Relation
    backwards: bool
    at: str
    to: str
    noun: str  # what the question calls `to`; the last leg has none

    @property
    def subject(self) -> str:
        return self.to if self.backwards else self.at

    @property
    def value(self) -> str:
        return self.at if self.backwards else self.to


@dataclass(frozen=True, slots=True)
class Chain:
    question: str
    legs: tuple[Leg, ...]
    words: tuple[str, ...]  # of the question, that each leg is asked with


def chain(dice: Dice) -> Chain:
    """A way through invented things, and the question that asks for its end."""
    length = dice.choices(list(LENGTHS), list(LENGTHS.values()))[0]
    while True:
        kind = dice.choice(sorted(ENTITIES - {"species"}))
        way = _way(kind, length, dice)
        if way is not None:
            return _told(way, dice)


def _way(kind: str, length: int, dice: Dice) -> list[tuple[Relation, bool]] | None:
    """Relations and directions, none twice; None where it leads nowhere or is the evaluation's."""
    kept = {(one.name, two.name) for one, two in hops("test")}
    way: list[tuple[Relation, bool]] = []
    for step in range(length):
        last = step == length - 1
        used = {relation.name for relation, _ in way}
        open_ = [one for one in RELATIONS_TRAINED if one.name not in used]
        back = [(r, True) for r in open_ if r.value == kind and r.name in BACK]
        forth = [
            (r, False) for r in open_ if r.subject == kind and (last or (r.noun and r.value in ENTITIES))
        ]
        if not back and not forth:
            return None
        choices = back if back and (not forth or dice.random() < BACKWARDS) else forth
        relation, backwards = dice.choice(choices)
        if way and not backwards and not way[-1][1] and (way[-1][0].name, relation.name) in kept:
            return None
        way.append((relation, backwards))
        kind = relation.subject if backwards else relation.value
    names = tuple((relation.name, backwards) for relation, backwards in way)
    return None if any(names[at : at + 3] == KEPT_WAY for at in range(len(names))) else way


def _told(way: list[tuple[Relation, bool]], dice: Dice) -> Chain:
    first, backwards = way[0]
    kind = first.value if backwards else first.subject
    at = MAKERS[kind](dice)
    called = _called(at, kind)
    legs: list[Leg] = []
    words: list[str] = []
    question = ""
    for step, (relation, backwards) in enumerate(way):
        kind = relation.subject if backwards else relation.value
        to = MAKERS[kind](dice)
        if step == len(way) - 1:
            template = dice.choice(BACK[relation.name][1] if backwards else questions(relation, "train"))
            question, noun = _filled(template, called), ""
        else:
            template = dice.choice(BACK[relation.name][0]) if backwards else relation.noun
            called = noun = _filled(template, called)
        legs.append(Leg(relation, backwards, at, to, noun))
        words.append(query_of("of " + template.replace("{v}", "").replace("{s}", "")))
        at = to
    return Chain(question[0].upper() + question[1:], tuple(legs), tuple(words))


def _called(name: str, kind: str) -> str:
    return f"the {name}" if kind in WITH_ARTICLE else name


def _filled(template: str, called: str) -> str:
    """A phrase about what is called so, with one article."""
    return template.replace("the {s}", called).replace("{s}", called).replace("{v}", called)


# what is written down again and again | questions for the last
# ruff: noqa: E501  # a table reads best in lines
_LOGS = """
The stock of {s} is {v} barrels.|What is the latest stock of {s}?;How many barrels does {s} have now?;What is the current stock of {s}?
{s} has {v} points.|What is the current score of {s}?;How many points does {s} have at the moment?;What is the newest score of {s}?
The price at {s} was set to {v} crowns.|What is the latest price at {s}?;What is the current price at {s}?;To how many crowns is the price at {s} set now?
Temperature in {s}: {v} degrees.|What is the most recent temperature in {s}?;What is the temperature in {s} at present?
{s} sent {v} parcels.|How many parcels did {s} send most recently?;What was the last number of parcels from {s}?
The counter of {s} was moved to {v}.|Where is the counter of {s} now?;What is the current counter of {s}?
Team {s} went to floor {v}.|On which floor is team {s} now?;What is the latest floor of team {s}?;On which floor is team {s} currently?
{s} uses version {v} from here on.|Which version does {s} use now?;What is the newest version of {s}?;What is the current version of {s}?
The water at {s} rose or fell to {v} inches.|What is the latest height of the water at {s}?;How high is the water at {s} now?
Ticket of {s}, status {v}.|What is the current status of the ticket of {s}?;What is the latest status of {s}?
"""
LOGS = tuple(
    (told, tuple(asked.split(";"))) for told, asked in (x.split("|") for x in _LOGS.strip().split("\n"))
)
CHANGING = (
    "director", "owner", "keeper", "fee", "lives", "employer", "lead", "budget", "server", "tester", "mayor", "captain",
    "harbour", "cargo", "price", "room", "phone", "port", "pet", "sponsor", "staff", "cook", "auditor", "destination",
)  # fmt: skip
NUMBERED = ("", "", "#{n} ", "Line {n}: ", "Note {n}, ", "Record {n} - ", "({n}) ")
MOST_UPDATES = 12


@dataclass(frozen=True, slots=True)
class Log:
    question: str
    key: str
    value: str
    lines: tuple[str, ...]
    last: str  # the line that counts


def log(dice: Dice) -> Log:
    """Lines in order, the same told of several keys again and again."""
    if dice.random() < 0.6:
        told, asked = dice.choice(LOGS)
        templates: tuple[str, ...] = (told,)
        make: Maker
        question, make, maker = dice.choice(asked), _figure, MAKERS["place"]
    else:
        relation = dice.choice([one for one in RELATIONS_TRAINED if one.name in CHANGING])
        templates = statements(relation, "train")
        question = latest(dice.choice(questions(relation, "train")), dice)
        make, maker = relation.make_value(), relation.make_subject()
    keys = [maker(dice) for _ in range(dice.randint(3, 7))]
    updates = dice.randint(2, MOST_UPDATES)
    order = [key for key in keys for _ in range(updates)]
    dice.shuffle(order)
    prefix = dice.choice(NUMBERED)
    lines: list[str] = []
    wanted, value, last = keys[0], "", ""
    for number, key in enumerate(order, dice.randint(1, 60)):
        now = make(dice)
        line = dice.choice(templates).format(s=key, v=now)
        line = f"{prefix.format(n=number)}{line}"
        lines.append(line[0].upper() + line[1:])
        if key == wanted:
            value, last = now, lines[-1]
    return Log(question.format(s=wanted), wanted, value, tuple(lines), last)


def _figure(dice: random.Random) -> str:
    return str(dice.randint(3, 99_999))


def latest(question: str, dice: Dice) -> str:
    """A question about a state as one about its latest."""
    return question[:-1] + dice.choice((" now?", " at the moment?", " currently?", " today?", " at present?"))

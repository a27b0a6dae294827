"""Invented people, places and facts, so that no question can be answered from a model's memory.

A relation says how a fact is stated and asked in several ways; the held-out ones are never trained on. Names
are made of syllables, by seed: training and evaluation draw from different seeds and share no entity but by
chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Maker = Callable[[random.Random], str]


def _words(text: str, separator: str | None = None) -> list[str]:
    return text.split(separator)


HEADS = _words(
    "bar cal dor el fen gar hal ith jor kel lar mar nor os pel quin ros sal tor ul ver wil yan zeb bre cor dun "
    "fal gri hol ken lin mor ned ol pra rud sten tam vas wen"
)
TAILS = _words(
    "a e i o u an en in on ar er or as is us ey le la ton ham wick ford by vale den mere stead well gate ridge ley"
)
FIRST = _words(
    "Ada Bela Cyrus Dana Edwin Farah Goran Hilda Ivo Jonas Kira Leon Mona Nils Otto Petra Quentin Rosa Sven Tilda "
    "Ugo Vera Wanda Xenia Yusuf Zora Amir Boris Clara Dmitri Elsa Felix Greta Hugo Iris Jana Karl Luisa Marek Nadia"
)
KINDS = _words(
    "Observatory Museum Brewery Library Foundation Orchestra Bridge Festival Laboratory Theatre Academy Shipyard "
    "Archive Company Garden Railway Mill Institute Hotel Journal"
)
MONTHS = _words("January March May July October December")


def one_of(words: str, separator: str | None = None) -> Maker:
    choices = words.split(separator)
    return lambda dice: dice.choice(choices)


def syllables(dice: random.Random) -> str:
    return "".join(dice.choice(HEADS) for _ in range(dice.choice([1, 1, 2]))) + dice.choice(TAILS)


def place(dice: random.Random) -> str:
    return syllables(dice).capitalize()


def person(dice: random.Random) -> str:
    return f"{dice.choice(FIRST)} {place(dice)}"


def house(dice: random.Random) -> str:
    return f"{place(dice)} {dice.choice(KINDS)}"


def project(dice: random.Random) -> str:
    return f"Project {place(dice)}"


def year(dice: random.Random) -> str:
    return str(dice.randint(1650, 2023))


def number(dice: random.Random) -> str:
    return str(dice.randint(12, 9800))


def code(dice: random.Random) -> str:
    letters = "ABCDEFGHKLMNPRSTVWXZ"
    return f"{dice.choice(letters)}{dice.choice(letters)}-{dice.randint(100, 9999)}"


def date(dice: random.Random) -> str:
    return f"{dice.randint(1, 28)} {dice.choice(MONTHS)} {dice.randint(2024, 2031)}"


@dataclass(frozen=True, slots=True)
class Relation:
    """`key` names the note; `other` words ask for the same where the document uses none of the question's."""

    subject: Maker
    value: Maker
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    key: str
    held_out: bool = False


def _r(subject: Maker, value: Maker, said: str, asked: str, key: str, held_out: bool = False) -> Relation:
    return Relation(subject, value, tuple(said.split("|")), tuple(asked.split("|")), key, held_out)


# fmt: off
# ruff: noqa: E501  # a table reads best in lines
RELATIONS: dict[str, Relation] = {
    "founder": _r(house, person, "The {s} was founded by {v}.|{v} established the {s} after years of planning."
                  "|It was {v} who set up the {s}.",
                  "Who founded the {s}?|Who is the founder of the {s}?|Which person established the {s}?", "founder"),
    "opened": _r(house, year, "The {s} opened its doors in {v}.|In {v} the {s} was opened to the public."
                 "|The {s} has been open since {v}.", "In what year did the {s} open?|When was the {s} opened?", "opened"),
    "city": _r(house, place, "The {s} is located in {v}.|Visitors travel to {v} to see the {s}."
               "|The {s} stands in the town of {v}.", "Where is the {s} located?|In which town is the {s}?", "location"),
    "director": _r(house, person, "{v} is the current director of the {s}.|The {s} is directed by {v}."
                   "|The board named {v} as director of the {s}.",
                   "Who directs the {s}?|Who is the director of the {s}?", "director"),
    "material": _r(house, one_of("basalt limestone copper oak cedar granite brick marble slate steel sandstone bamboo"),
                   "The main hall of the {s} is built of {v}.|Builders used {v} for the main hall of the {s}.",
                   "What material is the main hall of the {s} built of?|Which material was used for the main hall of "
                   "the {s}?", "material"),
    "staff": _r(house, number, "The {s} employs {v} people.|There are {v} people working at the {s}."
                "|A staff of {v} keeps the {s} running.",
                "How many people work at the {s}?|How many people does the {s} employ?", "staff"),
    "born": _r(person, place, "{s} was born in {v}.|{s}, a native of {v}, rarely travelled.|The birthplace of {s} is {v}.",
               "Where was {s} born?|What is the birthplace of {s}?", "birthplace"),
    "job": _r(person, one_of("glassblower cartographer botanist translator surveyor violinist chemist beekeeper printer "
                             "geologist locksmith archivist"),
              "{s} worked as a {v}.|By trade {s} was a {v}.|{s} earned a living as a {v}.",
              "What was the job of {s}?|What did {s} work as?", "job"),
    "married": _r(person, person, "{s} married {v} in a small chapel.|{s} was married to {v}."
                  "|The wedding of {s} and {v} took place in spring.", "Who did {s} marry?|Who was {s} married to?", "spouse"),
    "food": _r(person, one_of("walnut bread,lentil soup,smoked trout,plum dumplings,barley stew,goat cheese,rye pancakes,"
                              "saffron rice,pickled herring,almond cake,beetroot salad,mushroom pie", ","),
               "The favourite dish of {s} is {v}.|{s} likes {v} more than any other food.|Nothing pleases {s} more than {v}.",
               "What is the favourite food of {s}?|Which dish does {s} like most?", "food"),
    "died": _r(person, year, "{s} died in {v}.|The death of {s} came in {v}.",
               "In what year did {s} die?|When did {s} die?", "died"),
    "passcode": _r(project, code, "The access code for {s} is {v}.|{s} uses the access code {v}."
                   "|Use {v} as the access code when you enter {s}.",
                   "What is the access code for {s}?|Which access code does {s} use?", "code"),
    "lead": _r(project, person, "{s} is led by {v}.|{v} leads {s}.|Management put {v} in charge of {s}.",
               "Who leads {s}?|Who is in charge of {s}?", "lead"),
    "budget": _r(project, lambda dice: f"{dice.randint(2, 900)} million crowns",
                 "The budget of {s} is {v}.|{s} received a budget of {v}.",
                 "What is the budget of {s}?|How large is the budget of {s}?", "budget"),
    "capital": _r(lambda dice: "province of " + place(dice), place,
                  "The capital of the {s} is {v}.|{v} serves as the capital of the {s}.",
                  "What is the capital of the {s}?|Which town is the capital of the {s}?", "capital"),
    "river": _r(place, lambda dice: "River " + place(dice), "{s} lies on the {v}.|The {v} flows through {s}.",
                "Which river flows through {s}?|On which river does {s} lie?", "river"),
    "emblem": _r(house, one_of("otter heron lynx beaver falcon badger tortoise raven fox owl stork hare"),
                 "The emblem of the {s} shows a {v}.|A {v} appears on the emblem of the {s}.",
                 "Which animal is on the emblem of the {s}?|What does the emblem of the {s} show?", "emblem", True),
    "paint": _r(house, one_of("crimson teal amber violet olive scarlet turquoise ivory maroon indigo silver ochre"),
                "The doors of the {s} are painted {v}.|Workers painted the doors of the {s} {v}.",
                "What colour are the doors of the {s}?|In which colour are the doors of the {s} painted?", "colour", True),
    "teacher": _r(person, person, "{s} studied under {v}.|{v} taught {s} for many years.",
                  "Who taught {s}?|Under whom did {s} study?", "teacher", True),
    "deadline": _r(project, date, "The deadline of {s} is {v}.|{s} must be finished by {v}.",
                   "What is the deadline of {s}?|By when must {s} be finished?", "deadline", True),
    "height": _r(lambda dice: "Mount " + place(dice), lambda dice: f"{dice.randint(400, 7900)} metres",
                 "{s} is {v} high.|The summit of {s} rises to {v}.",
                 "How high is {s}?|What is the height of {s}?", "height", True),
}  # fmt: skip

HOPS: tuple[tuple[str, str, str], ...] = (
    ("founder", "born", "Where was the founder of the {s} born?"),
    ("founder", "job", "What was the job of the founder of the {s}?"),
    ("director", "food", "What is the favourite food of the director of the {s}?"),
    ("lead", "married", "Who did the leader of {s} marry?"),
    ("city", "river", "Which river flows through the town where the {s} is located?"),
    ("director", "born", "Where was the director of the {s} born?"),
)
"""(first relation, second relation, question)."""

LECTURES = ("{s} gave a lecture in {v}.", "In {v}, {s} gave a lecture to a full hall.")


@dataclass(frozen=True, slots=True)
class Habit:
    """Something a user may say of themselves in a chat, and later otherwise."""

    value: Maker
    sayings: tuple[str, ...]
    question: str
    key: str
    query: str


CHATS: dict[str, Habit] = {
    "cat": Habit(place, ("I just adopted a cat and named her {v}.", "My cat {v} knocked over a vase again."),
                 "What is the name of my cat?", "cat", "adopted cat named"),
    "work": Habit(lambda dice: "the " + house(dice),
                  ("I started a new job at {v} this week.", "Work at {v} keeps me busy."), "Where do I work?", "work", "new job work"),
    "live": Habit(place, ("We moved to {v} last weekend.", "I have been living in {v} for a while now."),
                  "Which town do I live in?", "home", "moved living town"),
    "sister": Habit(person, ("My sister {v} is visiting us.", "I called my sister {v} yesterday."),
                    "What is the name of my sister?", "sister", "sister visiting"),
    "allergy": Habit(one_of("peanuts shellfish pollen milk soy strawberries penicillin latex"),
                     ("The doctor says I am allergic to {v}.", "Remember that I am allergic to {v}."),
                     "What am I allergic to?", "allergy", "allergic doctor"),
    "trip": Habit(place, ("I booked a trip to {v} for the holidays.", "Our holiday trip will take us to {v}."),
                  "Where will my holiday trip take me?", "trip", "booked holiday trip"),
}  # fmt: skip

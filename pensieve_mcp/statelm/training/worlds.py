"""Invented names and values, so that no question can be answered from a model's memory.

Names are made of syllables, by seed. Those of the evaluation begin with syllables that training never uses.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Dice(random.Random):
    """Random numbers that know for which split they are thrown."""

    split = "train"


Maker = Callable[[random.Random], str]


def dice(seed: int | str, split: str) -> Dice:
    made = Dice(seed)
    made.split = split
    return made


def _words(text: str, separator: str | None = None) -> list[str]:
    return text.split(separator)


HEADS = _words(
    "bar cal dor el fen gar hal ith jor kel lar mar nor os pel quin ros sal tor ul ver wil yan zeb bre cor dun "
    "fal gri hol ken lin mor ned ol pra rud sten tam vas wen"
)
TEST_HEADS = _words("bal cre dal esk fro gol har jen kor lum mel nar pol ras sul tre vol wor zan")
TAILS = _words(
    "a e i o u an en in on ar er or as is us ey le la ton ham wick ford by vale den mere stead well gate ridge ley"
)
FIRST = _words(
    "Ada Bela Cyrus Dana Edwin Farah Goran Hilda Ivo Jonas Kira Leon Mona Nils Otto Petra Quentin Rosa Sven Tilda "
    "Ugo Vera Wanda Xenia Yusuf Zora Amir Boris Clara Dmitri Elsa Felix Greta Hugo Iris Jana Karl Luisa Marek Nadia"
)
TEST_FIRST = _words(
    "Agnes Bruno Celia Darius Emil Flora Gustav Helen Igor Judith Kaspar Lydia Milan Noemi Oskar Pia"
)
KINDS = _words(
    "Observatory Museum Brewery Library Foundation Orchestra Bridge Festival Laboratory Theatre Academy Shipyard "
    "Archive Company Garden Railway Mill Institute Hotel Journal"
)
TEST_KINDS = _words("Gallery Bakery College Bank Clinic Stadium Foundry Press")
MONTHS = _words("January March May July October December February June August September")
ADJECTIVES = _words("Silent Golden Broken Hidden Distant Burning Frozen Quiet Second Narrow Lost Painted")
THINGS = _words("Orchard River Mirror Lantern Harbour Winter Clock Garden Letter Bridge Forest Kingdom")


def _of(generator: random.Random, train: list[str], test: list[str]) -> str:
    return generator.choice(test if getattr(generator, "split", "train") == "test" else train)


def one_of(words: str, separator: str | None = None) -> Maker:
    choices = words.split(separator)
    return lambda dice: dice.choice(choices)


def syllables(dice: random.Random) -> str:
    more = "".join(dice.choice(HEADS) for _ in range(dice.choice([0, 0, 1])))
    return _of(dice, HEADS, TEST_HEADS) + more + dice.choice(TAILS)


def place(dice: random.Random) -> str:
    return syllables(dice).capitalize()


def person(dice: random.Random) -> str:
    return f"{_of(dice, FIRST, TEST_FIRST)} {place(dice)}"


def house(dice: random.Random) -> str:
    return f"{place(dice)} {_of(dice, KINDS, TEST_KINDS)}"


def book(dice: random.Random) -> str:
    return f"The {dice.choice(ADJECTIVES)} {dice.choice(THINGS)} of {place(dice)}"


def device(dice: random.Random) -> str:
    return f"{place(dice)} {dice.choice('ABCDEFGHKLMNPRSTVWXZ')}{dice.randint(10, 990)}"


def code(dice: random.Random) -> str:
    letters = "ABCDEFGHKLMNPRSTVWXZ"
    return f"{dice.choice(letters)}{dice.choice(letters)}-{dice.randint(100, 9999)}"


MAKERS: dict[str, Maker] = {
    "place": place,
    "person": person,
    "house": house,
    "book": book,
    "device": device,
    "code": code,
    "project": lambda dice: f"Project {place(dice)}",
    "ship": lambda dice: f"{dice.choice(('steamer', 'schooner', 'freighter'))} {place(dice)}",
    "mountain": lambda dice: f"Mount {place(dice)}",
    "province": lambda dice: f"province of {place(dice)}",
    "species": lambda dice: f"{place(dice)} {dice.choice(('moth', 'heron', 'lizard', 'fox', 'orchid', 'beetle'))}",
    "river": lambda dice: f"River {place(dice)}",
    "prize": lambda dice: f"{place(dice)} {dice.choice(('Medal', 'Prize', 'Award'))}",
    "word": syllables,
    "year": lambda dice: str(dice.randint(1650, 2023)),
    "number": lambda dice: str(dice.randint(12, 9800)),
    "metres": lambda dice: f"{dice.randint(40, 7900)} metres",
    "money": lambda dice: f"{dice.randint(2, 900)} {dice.choice(('crowns', 'million crowns', 'ducats', 'dollars'))}",
    "weight": lambda dice: f"{dice.randint(2, 900)} {dice.choice(('grams', 'kilograms'))}",
    "span": lambda dice: f"{dice.randint(2, 90)} {dice.choice(('hours', 'days', 'months', 'years'))}",
    "date": lambda dice: f"{dice.randint(1, 28)} {dice.choice(MONTHS)} {dice.randint(2024, 2031)}",
    "material": one_of("basalt limestone copper oak cedar granite brick marble slate steel sandstone bamboo"),
    "job": one_of(
        "glassblower cartographer botanist translator surveyor violinist chemist beekeeper printer geologist "
        "locksmith archivist"
    ),
    "food": one_of(
        "walnut bread,lentil soup,smoked trout,plum dumplings,barley stew,goat cheese,rye pancakes,saffron rice,"
        "pickled herring,almond cake,beetroot salad,mushroom pie",
        ",",
    ),
    "instrument": one_of("cello harp flute oboe organ trumpet banjo clarinet lute zither"),
    "animal": one_of("otter heron lynx beaver falcon badger tortoise raven fox owl stork hare"),
    "plant": one_of("walnut,linden,chestnut,mulberry,silver birch,plum,juniper,magnolia,larch,yew", ","),
    "colour": one_of("crimson teal amber violet olive scarlet turquoise ivory maroon indigo silver ochre"),
    "language": one_of("Danish Swahili Latin Welsh Turkish Finnish Hindi Basque Polish Korean Greek Icelandic"),
    "proglang": one_of("Fortran Haskell Erlang Ada Prolog Scheme Pascal Kotlin Perl Julia"),
    "good": one_of(
        "salt,woollen cloth,glass beads,dried figs,iron nails,candles,tin plates,roof tiles,cork,amber", ","
    ),
    "habitat": one_of(
        "salt marshes,pine forests,dry caves,mountain lakes,old barns,reed beds,deep valleys,sand dunes", ","
    ),
    "allergen": one_of("peanuts shellfish pollen milk soy strawberries penicillin latex"),
    "drink": one_of("mint tea,black coffee,apple juice,cocoa,ginger beer,buttermilk,lemonade", ","),
    "hobby": one_of("pottery,chess,rowing,bird watching,knitting,fencing,stargazing,carpentry", ","),
}  # fmt: skip

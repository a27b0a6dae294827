"""What the small model may do in a state, as a grammar; and the move that is made without it where only one makes
sense."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pensieve_mcp.statelm.dialects.view import View, query_words
from pensieve_mcp.statelm.sentences import STOP, names, query_of

MAX_QUERY_WORDS = 8
MAX_ANSWER_WORDS = 12
POINTING = frozenset(("this", "these"))  # begin a description: "Module ssl: This module provides …"
MAX_SEARCHES = 8
VAIN_SEARCHES = 2  # without any note: who gives up has looked twice
ARTICLES = frozenset(("a", "an", "the"))
NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Moves:
    """`forced` is the line where there is no choice. Numbers count from 1."""

    forced: str = ""
    read: tuple[int, ...] = ()
    read_on: bool = False  # without search: the next chunk
    note: tuple[int, ...] = ()
    drop: bool = False
    search: bool = False
    finish: bool = False
    not_found: bool = False


def moves_of(view: View, *, last_round: bool = False) -> Moves:
    """See the module."""
    if last_round or view.failed:
        return _end(view)
    if view.text is not None:
        if view.noted_from or not view.notable:
            return Moves(forced="drop", drop=True)
        return Moves(note=tuple(range(1, len(view.notable) + 1)), drop=True)
    if view.in_sight:
        if not view.hits:
            return Moves(forced="drop", drop=True)
        return Moves(read=tuple(range(1, len(view.hits) + 1)), drop=True)
    if not view.search:
        if not view.notes:
            return Moves(forced="read", read_on=True)
        return Moves(read_on=True, finish=True)
    if not view.searches:
        return Moves(forced=f"search {query_of(view.question)}", search=True)
    if view.searches >= MAX_SEARCHES or len(view.vain) >= VAIN_SEARCHES:
        return _end(view)
    if not view.notes:
        return Moves(search=True)
    return Moves(search=True, finish=True, not_found=bool(view.vain))


def _end(view: View) -> Moves:
    if not view.notes:
        return Moves(forced=f"finish {NOT_FOUND}", finish=True, not_found=True)
    return Moves(finish=True, not_found=True)


def literal(text: str) -> str:
    """A GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def grammar_of(view: View, moves: Moves) -> str:
    """GBNF of the moves."""
    if moves.forced:
        return f"root ::= {literal(moves.forced)}\n"
    rules: dict[str, str] = {}
    branches: list[str] = []
    for verb, numbers in (("read", moves.read), ("note", moves.note)):
        if numbers:
            branches.append(f'"{verb} " (' + " | ".join(literal(str(one)) for one in numbers) + ")")
    if moves.read_on:
        branches.append('"read"')
    if moves.drop:
        branches.append('"drop"')
    if moves.search:
        branches.append(f'"search " word (" " word){{0,{MAX_QUERY_WORDS - 1}}}')
        rules["word"] = " | ".join([*map(literal, query_words(view)), "[a-z] [a-z-]{1,14}"])
    if moves.finish:
        branches.append('"finish " ans')
        rules |= _answers(view, moves.not_found)
    lines = [f"root ::= {' | '.join(branches)}", *(f"{name} ::= {body}" for name, body in rules.items())]
    return "\n".join(lines) + "\n"


def _answers(view: View, not_found: bool) -> dict[str, str]:
    """A run of words of a note, or runs of several notes in their order, parted by commas. One rule a word: from
    there the run goes on or ends. None begins with a name of the question (another one with the same first word may) or
    a small word but an article, or ends with a small word; after a colon that name or "this" may begin one."""
    rules: dict[str, str] = {}
    asked = names(view.question)
    spans: list[str] = []
    for which, text in enumerate(view.notes):
        starts = []
        shown = re.findall(r"\S+", text)
        for place, word in enumerate(shown):
            bare = word.strip('.,;:!?"“”()[]') or word
            small = bare.lower() in STOP
            for left in range(1, MAX_ANSWER_WORDS + 1):
                body = [] if small else [literal(bare)]
                if left > 1 and place + 1 < len(shown):
                    body.append(f'{literal(word)} " " w{which}x{place + 1}r{left - 1}')
                # a small word at the very end leads nowhere else
                rules[f"w{which}x{place}r{left}"] = " | ".join(body or [literal(bare)])
            named = bare.lower() in asked and not _goes_on(shown, place, asked)
            begins = not (small or named or word.startswith("[") or word.endswith(":"))
            described = place > 0 and shown[place - 1].endswith(":") and (named or bare.lower() in POINTING)
            if bare.lower() in ARTICLES or begins or described:
                starts.append(f"w{which}x{place}r{MAX_ANSWER_WORDS}")
        if starts:
            rules[f"span{which}"] = " | ".join(starts)
            spans.append(f"span{which}")
    tails = []
    for place, span in enumerate(spans):
        rest = [f'", " t{later}' for later in range(place + 1, len(spans))]
        rules[f"t{place}"] = f"{span} ({' | '.join(rest)})?" if rest else span
        tails.append(f"t{place}")
    if not_found or not tails:
        tails.append(literal(NOT_FOUND))
    rules["ans"] = " | ".join(tails)
    return _reached(rules, ["ans"])


def _goes_on(shown: list[str], place: int, asked: set[str]) -> bool:
    """Whether a name goes on here otherwise than in the question: Ada Quill, where it asks about Ada Pelham."""
    if place + 1 >= len(shown) or not shown[place][-1].isalnum():
        return False
    after = shown[place + 1].strip('.,;:!?"“”()[]')
    return bool(after) and (after[0].isupper() or after[0].isdigit()) and after.lower() not in asked


def _reached(rules: dict[str, str], starts: list[str]) -> dict[str, str]:
    """The rules that a start leads to: the runtime reads every rule of a grammar at every turn."""
    kept: dict[str, str] = {}
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = rules[name]
            unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', " ", rules[name])
            waiting += [other for other in re.findall(r"[a-z]\w*", unquoted) if other in rules]
    return kept

"""Two scores into one, and several questions into one list. Pure functions over plain numbers.

Source: our measurements over ten English sets. BM25 is divided by the most the question could reach
(`lexical.Asked.bound`), the raw cosine is added. A weak keyword match then gives way by itself, which no
rank-based fusion can do (mean nDCG@10 .569; best reciprocal rank .544).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEXICAL_WEIGHT_STATIC = 0.8  # beside vectors of the static table
LEXICAL_WEIGHT_TRUE = 0.5  # beside MiniLM's vectors; over ten English sets 0.5 and 0.6 are equal (.567, .569)
# Beside vectors of single sentences a weak keyword match must weigh less still: its square is taken. Chosen on half
# of the questions of three sets; on the other half, against the plain share: single facts in long documents .625 to
# .734 nDCG@10, code .650 to .652, short sentences .849 to .841. Not where a passage holds all words: single rare
# words would bring their passage first in 57 of 100 questions instead of 78.
LEXICAL_POWER_SENTENCES = 2.0


@dataclass(frozen=True, slots=True)
class Fused:
    """One passage with both sides: `lexical` is BM25 over its bound, `dense` a cosine; 0 where one has none."""

    passage_id: int
    score: float
    lexical: float
    dense: float


def lexical_weight(true_share: float, script_weight: float) -> float:
    """The weight of the lexical side; the dense side has the rest.

    `true_share` (0..1) is how much of the vectors are MiniLM's own, `script_weight` (0..1) how well the
    encoder knows the script of the question: at 0 the dense side is left out.
    """
    weight = LEXICAL_WEIGHT_STATIC + (LEXICAL_WEIGHT_TRUE - LEXICAL_WEIGHT_STATIC) * true_share
    return 1.0 - (1.0 - weight) * script_weight


def lexical_power(sentence_share: float, script_weight: float, all_words: bool) -> float:
    """The power the lexical share is raised to. `sentence_share` (0..1) is how many passages have vectors of their
    sentences. Words are trusted as they are where one passage holds `all_words` of the question, as it does for
    keywords, and for languages the encoder knows little of."""
    if all_words or script_weight < 1.0:
        return 1.0
    return 1.0 + (LEXICAL_POWER_SENTENCES - 1.0) * sentence_share


def fuse(
    lexical: Mapping[int, float],
    dense: Mapping[int, float],
    weight: float,
    limit: int | None = None,
    *,
    power: float = 1.0,
) -> list[Fused]:
    """Passages of both sides, best first; equal scores in id order, so that an answer can be repeated.

    A passage that only one side found keeps that side's exact score: callers fill in the cosines of keyword
    hits, which cost little, and leave BM25 of the others at 0, which is what they have.
    """
    other = 1.0 - weight
    scores = {passage: other * cosine for passage, cosine in dense.items()}
    for passage, share in lexical.items():
        scores[passage] = scores.get(passage, 0.0) + weight * (share if power == 1.0 else share**power)
    ranked = sorted([(-score, passage) for passage, score in scores.items()])[:limit]
    return [
        Fused(passage, -below, lexical.get(passage, 0.0), dense.get(passage, 0.0))
        for below, passage in ranked
    ]


def rerank(head: Sequence[Fused], cosines: Mapping[int, float], rest: Sequence[Fused]) -> list[Fused]:
    """The second stage: candidates with a true cosine are scored anew and stand before the rest.

    Candidates the time did not suffice for stay in `rest`. Scores never rise along the list: what follows is
    capped by the last of the reranked, so that order and scores tell the same.
    """
    again = [
        Fused(
            one.passage_id,
            LEXICAL_WEIGHT_TRUE * one.lexical + (1.0 - LEXICAL_WEIGHT_TRUE) * cosines[one.passage_id],
            one.lexical,
            cosines[one.passage_id],
        )
        for one in head
        if one.passage_id in cosines
    ]
    again.sort(key=lambda one: (-one.score, one.passage_id))
    left = [one for one in (*head, *rest) if one.passage_id not in cosines]
    left.sort(key=lambda one: (-one.score, one.passage_id))
    cap = again[-1].score if again else float("inf")
    again += [Fused(one.passage_id, min(one.score, cap), one.lexical, one.dense) for one in left]
    return again


def tiers(ranking: Sequence[Fused], tier: Mapping[int, int]) -> list[Fused]:
    """Passages of a higher tier first (0 where none is given), each tier in its order; scores never rise along it."""
    if not tier:
        return list(ranking)
    ordered = sorted(ranking, key=lambda one: -tier.get(one.passage_id, 0))
    capped, lowest = [], float("inf")
    for one in ordered:
        lowest = min(lowest, one.score)
        capped.append(Fused(one.passage_id, lowest, one.lexical, one.dense))
    return capped


def retold(
    ranking: Sequence[Fused], lexical: Mapping[int, float], weight: float, *, power: float = 1.0
) -> list[Fused]:
    """The same order with truer lexical shares in the scores, which never rise along it nor above 1."""
    told, lowest = [], 1.0
    for one in ranking:
        share = lexical.get(one.passage_id, one.lexical)
        lowest = min(lowest, one.score + weight * (share**power - one.lexical**power))
        told.append(Fused(one.passage_id, lowest, share, one.dense))
    return told


def interleave(lists: Sequence[Sequence[Fused]], limit: int) -> list[Fused]:
    """Several questions' lists as one: the first of each, the second of each, and so on.

    Each passage stands once, where it first comes up, with its best score over all questions. Sorting by
    score instead would let the question with the commonest words fill the list.
    """
    if len(lists) == 1:
        return list(lists[0][:limit])
    best: dict[int, Fused] = {}
    for one in (one for ranked in lists for one in ranked):
        if one.passage_id not in best or one.score > best[one.passage_id].score:
            best[one.passage_id] = one
    order: dict[int, None] = {}
    for rank in range(max((len(ranked) for ranked in lists), default=0)):
        for ranked in lists:
            if rank < len(ranked):
                order.setdefault(ranked[rank].passage_id, None)
        if len(order) >= limit:
            break
    return [best[passage_id] for passage_id in list(order)[:limit]]

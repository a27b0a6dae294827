"""Mode exact: literal substrings, whatever signs they hold, without regard to case.

The word index proposes passages, their texts decide. What words cannot propose (a part of a word, a literal
that crosses the border of two passages, bare signs) is left to an optional port that scans document texts;
where the time or that port is missing, the answer says that there may be more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pensieve_mcp.index import fields
from pensieve_mcp.index.lexical import Candidates, LexicalIndex
from pensieve_mcp.index.types import PassageTexts

BATCH = 256  # passages whose texts are asked for at once, between two looks at the clock
_QUOTED = re.compile(r'"([^"]*)"|([^,，、]+)')


@dataclass(frozen=True, slots=True)
class LiteralPlace:
    """A literal found by scanning: its offset in the document's text, and the passage with its first character."""

    passage_id: int
    document_id: int
    offset: int


LiteralScan = Callable[[str, Sequence[int] | None, Callable[[], bool]], Iterator[LiteralPlace]]
"""`scan(literal, documents, late)`: all places of a literal in the texts of these documents (None: of all).

The literal comes folded by `fields.fold_literal`; the scan folds what it compares in the same way. It looks
at `late()` often and ends when that is true. Given to `Index.open` by whoever owns the texts.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """`hits` are (passage id, document id, score 0..1), best first; `complete` when there can be no more."""

    hits: tuple[tuple[int, int, float], ...]
    total: int
    complete: bool
    late: bool


def literals(query: str) -> tuple[str, ...]:
    """Keywords of a query: parted by commas, blanks around them dropped; `"a, b"` in quotes is one."""
    found: dict[str, None] = {}
    for match in _QUOTED.finditer(query):
        text = match.group(1) if match.group(1) is not None else match.group(2).strip()
        if text.strip():
            found.setdefault(text)
    return tuple(found) or ((query,) if query.strip() else ())


def search(
    index: LexicalIndex,
    keywords: Sequence[str],
    *,
    under: Sequence[str],
    limit: int,
    deadline: float,
    texts: PassageTexts | None,
    scan: LiteralScan | None,
) -> Found:
    """Passages that hold one of the keywords; `deadline` in the clock of `time.monotonic`.

    Those with more different keywords come first, then those with more places.
    """
    counts: dict[int, dict[str, int]] = {}
    documents: dict[int, int] = {}
    complete = True
    folded = [one for one in dict.fromkeys(fields.fold_literal(keyword) for keyword in keywords) if one]

    def late() -> bool:
        return time.monotonic() >= deadline

    for literal in folded:
        proposed = index.holding(literal, under=under)
        whole = texts is not None and _verify(literal, proposed, texts, counts, documents, late)
        whole = whole and proposed.complete
        if scan is not None and not late():
            whole = _scan(index, literal, proposed, under, scan, counts, documents, late) or whole
            whole = whole and not late()
        elif scan is None:
            # Without a scan a literal of several words may still cross a passage border.
            whole = whole and len(literal.split()) < 2
        complete = complete and whole
    hits = [(passage, documents[passage], _score(found, len(folded))) for passage, found in counts.items()]
    hits.sort(key=lambda hit: (-hit[2], hit[0]))
    return Found(tuple(hits[:limit]), len(hits), complete, late())


def _verify(
    literal: str,
    proposed: Candidates,
    texts: PassageTexts,
    counts: dict[int, dict[str, int]],
    documents: dict[int, int],
    late: Callable[[], bool],
) -> bool:
    for start in range(0, len(proposed.passage_ids), BATCH):
        if start and late():
            return False
        batch = proposed.passage_ids[start : start + BATCH]
        given = texts(batch)
        for place, passage in enumerate(batch):
            often = fields.fold_literal(given.get(passage, "")).count(literal)
            if often:
                counts.setdefault(passage, {})[literal] = often
                documents[passage] = proposed.document_ids[start + place]
    return True


def _scan(
    index: LexicalIndex,
    literal: str,
    proposed: Candidates,
    under: Sequence[str],
    scan: LiteralScan,
    counts: dict[int, dict[str, int]],
    documents: dict[int, int],
    late: Callable[[], bool],
) -> bool:
    """Adds what verification could not see; True when the scan ran to its end."""
    where: Sequence[int] | None = proposed.near_documents
    if where is None and under:
        where = sorted(index.documents_under(under))
    if where is not None and not where:
        return True
    places: dict[int, int] = {}
    found: dict[int, int] = {}
    for place in scan(literal, where, late):
        if literal in counts.get(place.passage_id, ()):
            continue
        places[place.passage_id] = place.document_id
        found[place.passage_id] = found.get(place.passage_id, 0) + 1
        if late():
            break
    alive = index.locate(places, under=under)
    for passage, often in found.items():
        if passage in alive:
            counts.setdefault(passage, {})[literal] = often
            documents[passage] = alive[passage]
    return not late()


def _score(found: dict[str, int], asked: int) -> float:
    places = sum(found.values())
    return len(found) / asked * (1 - 0.5 / (1 + places))

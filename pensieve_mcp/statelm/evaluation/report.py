"""Records as a page: scores with their 95 % intervals by length, position and kind; tool use, window and cost; beside
the paper's table. And a picture of score against length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from pensieve_mcp.statelm.evaluation import paper
from pensieve_mcp.statelm.evaluation.running import LOOP, Record, answers
from pensieve_mcp.statelm.evaluation.suites import SUITES, K
from pensieve_mcp.statelm.training.evaluate import interval

FIFTHS = 5
SHARES = ("first fifth", "second", "third", "fourth", "last fifth")


def who(record: Record) -> str:
    """A row of the tables: model and how it was run."""
    how = record["system"]
    if how == LOOP:
        how = f"loop{', ' + record['dialect'] if record['dialect'] else ''}{'' if record['search'] else ', no search'}"
    return f"{record['model']}, {how}"


def size(suite: str, length: int) -> str:
    if SUITES[suite].unit != "tokens":
        return f"{length} {SUITES[suite].unit}"
    if length % (K * K) == 0:
        return f"{length // K // K}M"
    return f"{length // K}K" if length % K == 0 else f"{length:,}"


def share(hits: int, n: int) -> str:
    low, high = interval(hits, n)
    return f"{hits / n:.2f} ({low:.2f} to {high:.2f}, n = {n})" if n else ""


def markdown(records: Iterable[Record]) -> str:
    """The whole report."""
    every = list(records)
    found = list(answers(every))
    out = [
        "# Evaluation\n",
        "Questions of our own making over real text; an answer counts where it contains what is wanted (commas and",
        "case aside), and as exact where it holds hardly more. In brackets Wilson's 95 % interval. One question",
        "is open at a time; notes of one question are gone before the next.\n",
    ]
    if not found:
        return "\n".join([*out, "No records yet.\n"])
    for suite in [name for name in SUITES if any(one["suite"] == name for one in found)]:
        own = [one for one in found if one["suite"] == suite]
        lengths = sorted({one["length"] for one in own})
        rows = list(dict.fromkeys(who(one) for one in own))
        out.append(f"## {suite}\n")
        out += _by_length(suite, own, rows, lengths)
        if any(one["position"] is not None for one in own):
            out += _by_position(own, rows)
        if len({one["of"] for one in own}) > 1:
            out += _by_kind(own, rows)
        out += _cost(suite, own, rows, lengths)
        out += _beside(suite)
    return "\n".join(out) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return [*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows), ""]


def _hits(records: Sequence[Record], what: str = "contains") -> str:
    return share(sum(bool(one[what]) for one in records), len(records))


def _by_length(suite: str, own: list[Record], rows: list[str], lengths: list[int]) -> list[str]:
    def cells(row: str, what: str) -> list[str]:
        return [_hits([o for o in own if who(o) == row and o["length"] == n], what) for n in lengths]

    head = [size(suite, n) for n in lengths]
    out = table(["contains the answer", *head], [[row, *cells(row, "contains")] for row in rows])
    return out + table(["exact", *head], [[row, *cells(row, "exact")] for row in rows])


def _by_position(own: list[Record], rows: list[str]) -> list[str]:
    placed = [one for one in own if one["position"] is not None]

    def fifth(one: Record) -> int:
        return min(FIFTHS - 1, int(one["position"] * FIFTHS))

    cells = [
        [row, *(_hits([o for o in placed if who(o) == row and fifth(o) == place]) for place in range(FIFTHS))]
        for row in rows
    ]
    return table(["by position of the evidence", *SHARES], cells)


def _by_kind(own: list[Record], rows: list[str]) -> list[str]:
    kinds = sorted({one["of"] for one in own})
    cells = [
        [row, *(_hits([o for o in own if who(o) == row and o["of"] == kind]) for kind in kinds)]
        for row in rows
    ]
    return table(["by kind", *kinds], cells)


def _mean(records: Sequence[Record], name: str) -> float:
    return sum(float(one.get(name, 0)) for one in records) / len(records)


def _cost(suite: str, own: list[Record], rows: list[str], lengths: list[int]) -> list[str]:
    columns: dict[str, Callable[[list[Record]], str]] = {
        "rounds": lambda r: f"{_mean(r, 'rounds'):.1f}",
        "memory": lambda r: f"{_mean(r, 'memory_operations'):.1f}",
        "deletions": lambda r: f"{_mean(r, 'deletions'):.1f}",
        "searches": lambda r: f"{_mean(r, 'searches'):.1f}",
        "peak in mind, tokens": lambda r: f"{max(one['peak_tokens'] for one in r):,}",
        "mean": lambda r: f"{_mean(r, 'mean_tokens'):,.0f}",
        "seconds": lambda r: f"{_mean(r, 'seconds'):.2f}",
        "CPU-seconds": lambda r: f"{_mean(r, 'cpu_seconds'):.2f}",
        "the model's": lambda r: f"{_mean(r, 'model_cpu_seconds'):.2f}",
        "finished": lambda r: f"{sum(o['ended'] in ('finished', 'not_found') for o in r) / len(r):.2f}",
        "grounded": lambda r: f"{sum(bool(o['grounded']) for o in r) / len(r):.2f}",
    }
    cells = []
    for row in rows:
        for length in lengths:
            some = [one for one in own if who(one) == row and one["length"] == length]
            if some:
                cells.append([row, size(suite, length), *(make(some) for make in columns.values())])
    return table(["a question", "length", *columns], cells)


def _beside(suite: str) -> list[str]:
    if suite == "needle":
        head = [size("needle", n) for n in paper.NEEDLE_LENGTHS]
        rows = [[name, *(f"{v:g}" for v in values)] for name, values in paper.NEEDLE.items()]
        return ["The paper (its table 2, accuracy in percent, search removed):\n", *table(["", *head], rows)]
    names = paper.BESIDE.get(suite)
    if not names:
        return []
    places = [paper.MAIN_SETS.index(name) for name in names]

    def told(value: float | None) -> str:
        return "" if value is None else f"{value:g}"

    rows = [[name, *(told(values[p]) for p in places)] for name, values in paper.MAIN.items()]
    out = ["The paper on sets of this kind (its table 3, accuracy in percent):\n", *table(["", *names], rows)]
    use = [[name, *values] for name, values in paper.TOOL_USE.items() if name.split(" (")[0] in names]
    return [*out, *table(["StateLM-8B, a question", "rounds", "memory", "deletions", "searches"], use)]


# -- picture -----------------------------------------------------------------------------------------------

WIDE, HIGH, LEFT, RIGHT, OVER, ROW = 820, 300, 52, 24, 34, 18
COLOURS = ("#1f6feb", "#b81c28", "#8c6b2f", "#1a7f37", "#8250df", "#57606a")


def svg(records: Iterable[Record], suite: str) -> str:
    """Score against length, a line for each system, with its interval as a bar; of one length the systems side by side,
    with their counts. Readable on light and dark pages."""
    own = [one for one in answers(records) if one["suite"] == suite]
    lengths = sorted({one["length"] for one in own})
    rows = list(dict.fromkeys(who(one) for one in own))
    bottom = HIGH - 30
    high = HIGH + ROW * len(rows)

    def x(place: int) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * (place + 0.5) / max(1, len(lengths))

    def y(value: float) -> float:
        return bottom - (bottom - OVER) * value

    title = escape(f"{suite}: share of answers that contain what is wanted")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" role="img" aria-label="{title}">',
        "<style>text{font:12px system-ui,sans-serif;fill:#6e7781}.title{font-size:14px;font-weight:600}"
        ".grid{stroke:#8b949e;stroke-opacity:.35}</style>",
        f'<text class="title" x="{LEFT}" y="20">{title}</text>',
    ]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    alone = len(lengths) == 1
    if alone:
        parts.append(
            f'<text class="title" x="{WIDE - RIGHT}" y="20" text-anchor="end">{escape(size(suite, lengths[0]))}</text>'
        )
    for place, length in enumerate(() if alone else lengths):
        label = escape(size(suite, length))
        parts.append(f'<text x="{x(place):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for number, row in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        points: list[str] = []
        for place, length in enumerate(lengths):
            some = [one for one in own if who(one) == row and one["length"] == length]
            if not some:
                continue
            hits = sum(bool(one["contains"]) for one in some)
            low, up = interval(hits, len(some))
            at = x(place) + (number - (len(rows) - 1) / 2) * 4
            if alone:
                at = LEFT + (WIDE - LEFT - RIGHT) * (number + 0.5) / len(rows)
                parts.append(
                    f'<text x="{at + 10:.1f}" y="{y(hits / len(some)) + 4:.1f}">{hits} of {len(some)}</text>'
                )
            points.append(f"{at:.1f},{y(hits / len(some)):.1f}")
            parts.append(
                f'<path stroke="{colour}" stroke-opacity=".5" d="M{at:.1f} {y(low):.1f}V{y(up):.1f}"/>'
            )
            parts.append(f'<circle cx="{at:.1f}" cy="{y(hits / len(some)):.1f}" r="3.5" fill="{colour}"/>')
        if not alone:
            parts.append(
                f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(points)}"/>'
            )
        line = HIGH + ROW * number
        parts.append(f'<rect x="{LEFT}" y="{line - 9}" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 22}" y="{line}">{escape(row)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def summary(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The scores as data: one entry for each system, suite and length."""
    found = list(answers(records))
    out = []
    for suite, length, row in dict.fromkeys((one["suite"], one["length"], who(one)) for one in found):
        some = [o for o in found if (o["suite"], o["length"], who(o)) == (suite, length, row)]
        hits = sum(bool(one["contains"]) for one in some)
        low, high = interval(hits, len(some))
        out.append(
            {
                "suite": suite,
                "length": length,
                "who": row,
                "n": len(some),
                "contains": hits,
                "exact": sum(bool(one["exact"]) for one in some),
                "low": round(low, 4),
                "high": round(high, 4),
                "peak_tokens": max(one["peak_tokens"] for one in some),
                "seconds": round(_mean(some, "seconds"), 3),
                "cpu_seconds": round(_mean(some, "cpu_seconds"), 3),
            }
        )
    return out

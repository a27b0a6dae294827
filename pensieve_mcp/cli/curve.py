"""The sawtooth: visible tokens after each step of a conversation, with deletions as drops.

Points come from the ledger's events alone, so any episode can be drawn again. Drawn with block characters for a
terminal and as SVG for a page; both show what the window would have held without deleting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from pensieve_mcp.ledger.events import Event

BLOCKS = " ▁▂▃▄▅▆▇█"
ROWS = 10
MAX_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class Point:
    """After one event: tokens visible, and tokens there would be had nothing been deleted. `kind` names the event."""

    visible: int
    undeleted: int
    kind: str  # call, result, forgot, recalled, other
    label: str = ""

    @property
    def noted(self) -> bool:
        """Whether a note was written here."""
        return self.kind == "result" and self.label.split(" ", 1)[0] in NOTING


NOTING = ("note", "updateNote")


def points_of(events: Sequence[Event], in_mind: Sequence[int] = ()) -> list[Point]:
    """One point for each event, folded step by step; `in_mind` as in `ledger.folding.standing`."""
    from pensieve_mcp.ledger.events import Forgot, Recalled, Said
    from pensieve_mcp.ledger.folding import standing

    points = []
    for stood in standing(events, in_mind):
        event = stood.event
        kind, label = "other", ""
        if isinstance(event, Said):
            kind = "call" if event.message.role == "assistant" else "result"
            label = f"{event.message.tool} {event.message.label}".strip()
        elif isinstance(event, Forgot):
            kind, label = "forgot", ", ".join(f"m{number}" for number in event.numbers)
        elif isinstance(event, Recalled):
            kind, label = "recalled", ", ".join(f"m{number}" for number in event.numbers)
        points.append(Point(stood.visible, stood.undeleted, kind, label))
    return points


def draw(points: Sequence[Point], *, window: int | None = None, columns: int = 80) -> list[str]:
    """Lines of text: bars of visible tokens, `·` where it would stand without deletions, `-` the window."""
    if not points:
        return []
    room = max(10, min(columns, MAX_COLUMNS) - 9)
    said = sum(p.kind in ("call", "result") for p in points)
    if len(points) > room:  # a call is small, and its result follows at once
        points = [p for p in points if p.kind != "call"] or points
    groups = _grouped(points, room)
    top = max(max(p.undeleted for p in points), window or 0, 1)
    step = top / ROWS
    lines = []
    for row in range(ROWS, 0, -1):
        low, high = (row - 1) * step, row * step
        cells = []
        for visible, undeleted, _ in groups:
            share = (visible - low) / step
            if share > 0:
                cells.append(BLOCKS[min(8, max(1, round(share * 8)))])
            elif low < undeleted <= high:
                cells.append("·")
            elif window and low < window <= high:
                cells.append("-")
            else:
                cells.append(" ")
        lines.append(f"{high:>7,.0f} " + "".join(cells).rstrip())
    lines.append(" " * 8 + "".join("n" if noted else "‾" for _, _, noted in groups))
    legend = f"█ visible tokens over {said:,} messages   · without deleting"
    if any(noted for _, _, noted in groups):
        legend += "   n a note"
    return [*lines, " " * 8 + legend + ("   - window" if window else "")]


def _grouped(points: Sequence[Point], room: int) -> list[tuple[int, int, bool]]:
    """At most `room` columns; of several points in one the lowest if it holds a drop, else the last. Each point gets
    two columns where there is room."""
    if len(points) * 2 <= room:
        return [(p.visible, p.undeleted, p.noted and not half) for p in points for half in range(2)]
    if len(points) <= room:
        return [(p.visible, p.undeleted, p.noted) for p in points]
    columns = []
    for column in range(room):
        first, last = (
            column * len(points) // room,
            max((column + 1) * len(points) // room, column * len(points) // room + 1),
        )
        group = points[first:last]
        drop = min(group, key=lambda p: p.visible) if any(p.kind == "forgot" for p in group) else group[-1]
        columns.append((drop.visible, group[-1].undeleted, any(p.noted for p in group)))
    return columns


WIDE, HIGH, LEFT, RIGHT, OVER, UNDER = 820, 300, 62, 18, 34, 42


def svg(points: Sequence[Point], *, window: int | None = None, title: str = "", source: str = "") -> str:
    """The same as a picture, readable on light and dark pages. The last line names where the numbers come from."""
    top = max([p.undeleted for p in points] + [window or 0, 1]) * 1.06

    def x(number: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * number / max(1, len(points))

    def y(tokens: float) -> float:
        return HIGH - UNDER - (HIGH - OVER - UNDER) * tokens / top

    def steps(values: Sequence[int]) -> str:
        path = [f"M{x(0):.1f} {y(0):.1f}"]
        for number, value in enumerate(values):
            path.append(f"V{y(value):.1f}H{x(number + 1):.1f}")
        return "".join(path)

    visible = steps([p.visible for p in points])
    undeleted = steps([p.undeleted for p in points])
    grid = _round_step(top / 4)
    ticks = [number * grid for number in range(int(top // grid) + 1)]
    room = max(0, 8 * len(f"{ticks[-1]:,.0f}") - (LEFT - 8))  # left of the picture, for long numbers
    drops = [
        f'<path class="drop" d="M{x(n):.1f} {y(points[n - 1].visible):.1f}V{y(p.visible):.1f}"/>'
        for n, p in enumerate(points)
        if n and p.kind == "forgot"
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-room} 0 {WIDE + room} {HIGH}" role="img"'
        f' aria-label="{escape(title)}">',
        "<style>",
        "text{font:12px system-ui,sans-serif;fill:#57606a}.title{font-size:14px;font-weight:600;fill:#24292f}",
        ".grid{stroke:#d0d7de;stroke-width:1}.seen{fill:#2f81f7;fill-opacity:.22;stroke:none}",
        ".line{fill:none;stroke:#1f6feb;stroke-width:2;stroke-linejoin:round}",
        ".all{fill:none;stroke:#8c6b2f;stroke-width:1.5;stroke-dasharray:5 4}.drop{stroke:#cf222e;stroke-width:2}",
        ".window{stroke:#6e7781;stroke-width:1;stroke-dasharray:2 3}",
        ".note{fill:#1a7f37}.green{fill:#1a7f37}",
        ".brown{fill:#7d5c1f}.blue{fill:#0b5cd5}.red{fill:#b81c28}",
        "@media(prefers-color-scheme:dark){text{fill:#9ea7b3}.title{fill:#e6edf3}.grid{stroke:#30363d}",
        ".line{stroke:#58a6ff}.all{stroke:#d2a24c}.drop{stroke:#ff7b72}",
        ".note{fill:#3fb950}.green{fill:#3fb950}.brown{fill:#d2a24c}.blue{fill:#79b8ff}.red{fill:#ff9a94}}",
        "</style>",
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
    ]
    for tick in ticks:
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,.0f}</text>')
    parts.append(f'<path class="seen" d="{visible}V{y(0):.1f}Z"/>')
    parts.append(f'<path class="all" d="{undeleted}"/><path class="line" d="{visible}"/>')
    parts += drops
    parts += [
        f'<circle class="note" cx="{x(n + 0.5):.1f}" cy="{y(p.visible):.1f}" r="4"/>'
        for n, p in enumerate(points)
        if p.noted
    ]
    if window:
        parts.append(
            f'<line class="window" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(window):.1f}" y2="{y(window):.1f}"/>'
        )
        parts.append(f'<text x="{LEFT + 6}" y="{y(window) - 5:.1f}">window, {window:,} tokens</text>')
    base = HIGH - 22
    parts.append(f'<text class="blue" x="{LEFT}" y="{base}">visible tokens after each step</text>')
    parts.append(f'<text class="red" x="{LEFT + 190}" y="{base}">deleteContext</text>')
    parts.append(f'<text class="brown" x="{LEFT + 290}" y="{base}">without deleting</text>')
    if any(p.noted for p in points):
        parts.append(f'<circle class="note" cx="{LEFT + 400}" cy="{base - 4}" r="4"/>')
        parts.append(f'<text class="green" x="{LEFT + 410}" y="{base}">a note</text>')
    if source:
        parts.append(f'<text x="{LEFT}" y="{HIGH - 6}">{escape(source)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _round_step(step: float) -> float:
    """A tick distance of 1, 2 or 5 times a power of ten, at least `step`."""
    power = 1
    while power * 10 <= step:
        power *= 10
    return next(float(factor * power) for factor in (1, 2, 5, 10) if factor * power >= step)

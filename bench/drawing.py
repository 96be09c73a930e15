"""Charts as SVG: bars and ranges, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, ROW, TOP = 760, 210, 90, 26, 44  # pixels
COLOURS = {"ours": "#0b7a5b", "peer": "#8a8f98", "limit": "#c9ccd1", "control": "#d9a441"}


class Row(NamedTuple):
    """One contestant of a chart.

    Attributes:
        name, role: the contestant's name and role.
        value: its figure.
        low, high: the ends of its thin line, if it has one.
        until: the end of its bar, if the bar begins at `low`.
    """

    name: str
    role: str
    value: float
    low: float = 0.0
    high: float = 0.0
    until: float = 0.0


class Scale:
    """A logarithmic scale between two values."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        known = [value for value in values if value > 0]
        self.low, self.high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
        self.high = max(self.high, self.low + 1)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """The position of a figure, in pixels."""
        share = (math.log10(max(value, 10**self.low)) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """The powers of ten."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def label(value: float) -> str:
    """A figure with two significant digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    """A text element."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def stroke(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    """A straight line."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def picture(height: float, title: str, under: str, parts: Sequence[str]) -> str:
    """The file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" '
        f'role="img" aria-label="{escape(title)}">\n<rect width="100%" height="100%" fill="#fff"/>'
    )
    titles = [text(12, 22, title, size=15), text(12, height - 10, under, size=11)]
    return "\n".join([head, *titles, *parts, "</svg>"]) + "\n"


def bars(title: str, unit: str, rows: Sequence[Row], under: str) -> str:
    """Draw a bar for each row; for rows with ranges, draw the range, its thick part and the figure in it."""
    scale = Scale([part for row in rows for part in row[2:]], LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * len(rows)
    parts = []
    for tick in scale.ticks():
        parts += [stroke(scale.at(tick), TOP, scale.at(tick), bottom, "#e3e5e8")]
        parts += [text(scale.at(tick), bottom + 15, label(tick), "middle", 11)]
    for place, row in enumerate(rows):
        middle, colour = TOP + ROW * (place + 0.5), COLOURS[row.role]
        start, end = scale.at(row.low), scale.at(row.until or row.value)
        if row.until:
            parts.append(stroke(start, middle, scale.at(row.high), middle, colour, 2))
        shape = f'<rect x="{start:.1f}" y="{middle - 7:.1f}" width="{max(1, end - start):.1f}" height="14"'
        parts += [f'{shape} fill="{colour}"/>', text(LEFT - 8, middle + 4, row.name, "end")]
        if row.until:
            parts.append(stroke(scale.at(row.value), middle - 7, scale.at(row.value), middle + 7, "#111", 2))
        parts.append(text(max(end, scale.at(row.high)) + 6, middle + 4, label(row.value), size=11))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 32, unit, "middle", 11))
    return picture(bottom + 60, title, under, parts)

"""The report of `race.py`: a table, or JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from racing.races import Outcome, Race

HEADINGS = ("protection", "lost", "requests", "median", "worst", "per s", "answers")


@dataclass(frozen=True, slots=True)
class Result:
    """A race under one protection."""

    race: Race
    protection: str
    outcome: Outcome

    @property
    def failed(self) -> bool:
        """True if something was lost that this protection keeps."""
        keeps = self.protection == "occupy" or (self.protection == "guarded" and self.race.guard_suffices)
        return keeps and self.outcome.lost > 0

    def figures(self) -> dict[str, Any]:
        """Return all that was measured; latencies in ms."""
        outcome = self.outcome
        return {
            "race": self.race.key,
            "protection": self.protection,
            "rounds": outcome.rounds,
            "requests": len(outcome.latencies),
            "lost": outcome.lost,
            "failed": self.failed,
            "median_ms": round(1000 * median(outcome.latencies), 2),
            "worst_ms": round(1000 * max(outcome.latencies), 2),
            "requests_per_second": round(len(outcome.latencies) / outcome.seconds, 1),
            "answers": {str(status): times for status, times in sorted(outcome.answers.items())},
        }


def row(figures: dict[str, Any]) -> tuple[str, ...]:
    """Return a row of the table."""
    answers = ", ".join(f"{number} x {status}" for status, number in figures["answers"].items())
    times = (f"{figures[key]:.0f} ms" for key in ("median_ms", "worst_ms"))
    counts = (str(figures[key]) for key in ("lost", "requests"))
    return (figures["protection"], *counts, *times, f"{figures['requests_per_second']:.0f}", answers)


def show(results: Sequence[Result]) -> None:
    """Print a table for each race, by rich where it is installed."""
    for race in dict.fromkeys(result.race for result in results):
        figures = [result.figures() for result in results if result.race is race]
        rows, rounds = [row(each) for each in figures], figures[0]["rounds"]
        _table(f"{race.title}, {rounds} times: {race.lost}", rows)


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
        print(f"\n{title}")
        for line in (HEADINGS, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in (HEADINGS[0], HEADINGS[-1]) else "right")
    for cells in rows:
        table.add_row(*cells, style="red" if cells[1] != "0" else "green")
    Console().print(table)

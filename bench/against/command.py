"""The command: `python -m bench --against WHEEL`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.against.crews import Options, measured
from bench.against.places import Places, environment, wheel_of_tree
from bench.against.rows import LEAST_ROUNDS, ROWS, Measured, Row, interval
from bench.machine import machine
from bench.report import number, table


def main(arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Measure, and print the table.

    Returns:
        0; 1 if a row failed in the run and in a second run of those that failed; 2 for wrong arguments.
    """
    parser = build_parser()
    chosen = parser.parse_args(arguments)
    rows = [row for row in ROWS if not chosen.rows or any(word in row.name for word in chosen.rows)]
    if not rows or chosen.rounds < LEAST_ROUNDS or not chosen.against.is_file():
        parser.error(
            f"it takes a wheel, at least {LEAST_ROUNDS} rounds, and rows of: {', '.join(r.name for r in ROWS)}"
        )
    options = Options(chosen.rounds, chosen.seconds, say)
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="interlock-against-")))
        wheels = {"old": chosen.against, "new": wheel_of_tree(folder)}
        pythons = {version: environment(folder / version, wheel) for version, wheel in wheels.items()}
        places = Places(folder, closing)

        def run(title: str, rows: Sequence[Row]) -> list[Measured]:
            before = load()
            answers = measured(rows, pythons, places, options)
            show(f"{title}; load {before} before, {load()} after", answers)
            return answers

        runs = [run(f"the working tree against {chosen.against.name}", rows)]
        if failed := [one.row for one in runs[0] if one.fails]:
            runs.append(run("once more, what failed", failed))
    if chosen.json:
        report = {"machine": machine(), "runs": [[as_json(one) for one in answers] for answers in runs]}
        chosen.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    # By chance one row in forty fails, and other load makes more fail; hardly any row fails twice.
    return int(any(one.fails for one in runs[1])) if failed else 0


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the working tree against an older wheel: ratios of times, new by old, round by round.",
    )
    parser.add_argument("--against", type=Path, required=True, metavar="WHEEL", help="the older one")
    parser.add_argument("--rounds", type=int, default=15, help=f"rounds, at least {LEAST_ROUNDS} (default 15)")
    parser.add_argument("--seconds", type=float, default=0.2, help="seconds per round and version (default 0.2)")
    parser.add_argument("--rows", nargs="+", metavar="WORD", help="only rows with one of these in their name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times of every round there")
    return parser


def load() -> str:
    """The load average of the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def show(title: str, answers: Sequence[Measured]) -> None:
    """Print the table, and below it the rows that could not be measured."""
    lines = []
    for one in answers:
        figures = ["-"] * 4
        if one.ratios:
            low, high = interval(one.ratios)
            times = [number(median(one.old)), number(median(one.new))]
            figures = [*times, f"{median(one.ratios):.3f}", f"{low:.3f} to {high:.3f}"]
        lines.append([one.row.name, *figures, f"{one.row.limit:g}", one.verdict()])
    table(title, ["row", "old µs", "new µs", "new / old", "95 %", "limit", "verdict"], lines)
    for one in answers:
        if one.missing or one.error:
            print(f"{one.row.name}: {one.missing or one.error}")


def as_json(one: Measured) -> dict[str, object]:
    """One row as data."""
    ratios = one.ratios
    return {
        "row": one.row.name,
        "limit": one.row.limit,
        "wanted": one.row.wanted,
        "old": one.old,
        "new": one.new,
        "ratio": median(ratios) if ratios else None,
        "interval": interval(ratios) if ratios else None,
        "verdict": one.verdict(),
        "why": one.missing or one.error,
    }

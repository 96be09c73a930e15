"""The report: tables in plain text, and JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bench.figures import Spread, compared, judge, plain, spread, verdict_words
from bench.model import Beside, Contestant, Result
from bench.runner import Options

Row = list[str]


def show(about: dict[str, str], results: Sequence[Result], options: Options) -> None:
    """Print the machine, a table for each scenario with its targets, and the missing contestants."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    for key, value in about.items():
        print(f"{key:>12}: {value}")
    print(f"{'rounds':>12}: {options.rounds}, {options.seconds:g} s per measurement, contestants interleaved")
    for result in results:
        print()
        table(result.scenario.title, headings(result), [row(result, one) for one in result.scenario.contestants])
        if result.scenario.beside:
            print(f"  x NAME: how many times better than NAME in {headings(result)[1]}")
        for line in target_lines(result):
            print(f"  {line}")
    missing = absent(results)
    if missing:
        print("\n!!! NOT INSTALLED, NOT MEASURED !!!")
        for line in missing:
            print(f"  {line}")


def headings(result: Result) -> Row:
    """The columns of a scenario's table."""
    main, *others = result.scenario.metrics
    return [
        "contestant",
        main.label,
        "min-max",
        *(beside_label(beside) for beside in result.scenario.beside),
        *(metric.label for metric in others),
        "notes",
    ]


def beside_label(beside: Beside) -> str:
    """The heading of a column of comparison."""
    return f"x {beside.peer}"


def row(result: Result, contestant: Contestant[Any]) -> Row:
    """The line of one contestant: medians, the range of the main figure, the comparisons."""
    outcome = result.outcomes[contestant.name]
    name = contestant.name if contestant.role == "peer" else f"{contestant.name} ({contestant.role})"
    main, *others = result.scenario.metrics
    if outcome.status != "ok":
        empty = ["-"] * (2 + len(result.scenario.beside) + len(others))
        return [name, *empty, outcome.status.upper()]
    first = spread(outcome.rounds[main.key], main)
    return [
        name,
        number(first.value),
        f"{number(first.low)}-{number(first.high)}",
        *(ratio(compared(result, contestant.name, main, beside)) for beside in result.scenario.beside),
        *(number(spread(outcome.rounds[metric.key], metric).value) for metric in others),
        contestant.notes,
    ]


def number(value: float) -> str:
    """A number with three significant digits."""
    if value != value or abs(value) == float("inf"):
        return "-"
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"


def ratio(found: Spread | None) -> str:
    """A comparison as text; empty if there is none."""
    return "" if found is None else number(found.value)


def target_lines(result: Result) -> list[str]:
    """Each target with the measured figure."""
    lines = []
    for target in result.scenario.targets:
        verdict = judge(result, target)
        what = result.scenario.metric(target.metric).label
        if target.beside is not None:
            what = beside_label(target.beside)
        found = verdict.measured
        measured = "" if found is None else f" ({what}: {number(found.value)}; {span(found)})"
        lines.append(f"{verdict_words(verdict):>12}  {target.ours}: {target.says}{measured}")
    return lines


def span(found: Spread) -> str:
    """The range over the rounds."""
    return f"{number(found.low)} to {number(found.high)}"


def absent(results: Sequence[Result]) -> list[str]:
    """The contestants that could not take part, with the reasons."""
    return [
        f"{result.scenario.key}: {name}: {outcome.why}"
        for result in results
        for name, outcome in result.outcomes.items()
        if outcome.status == "not installed"
    ]


def table(title: str, columns: Row, rows: Sequence[Row]) -> None:
    """Print a table."""
    widths = [max(len(one[place]) for one in (columns, *rows)) for place in range(len(columns))]
    print(title)
    for one in (columns, ["-" * width for width in widths], *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip())


def as_json(about: dict[str, str], results: Sequence[Result], options: Options) -> dict[str, Any]:
    """The whole report as data, with the figures of every round."""
    return {
        "machine": about,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "scenarios": [scenario_json(result) for result in results],
    }


def scenario_json(result: Result) -> dict[str, Any]:
    """One scenario as data."""
    scenario = result.scenario
    return {
        "key": scenario.key,
        "title": scenario.title,
        "metrics": {metric.key: metric.label for metric in scenario.metrics},
        "contestants": [contestant_json(result, contestant) for contestant in scenario.contestants],
        "targets": [target_json(result, place) for place in range(len(scenario.targets))],
    }


def contestant_json(result: Result, contestant: Contestant[Any]) -> dict[str, Any]:
    """One contestant as data."""
    outcome = result.outcomes[contestant.name]
    main = result.scenario.metrics[0]
    return {
        "name": contestant.name,
        "role": contestant.role,
        "notes": contestant.notes,
        "status": outcome.status,
        "why": outcome.why,
        "figures": {
            metric.key: {**spread_json(spread(values, metric)), "rounds": [plain(one) for one in values]}
            for metric in result.scenario.metrics
            if (values := outcome.rounds.get(metric.key))
        },
        "beside": {
            beside_label(beside): spread_json(found)
            for beside in result.scenario.beside
            if (found := compared(result, contestant.name, main, beside))
        },
    }


def target_json(result: Result, place: int) -> dict[str, Any]:
    """One target as data."""
    verdict = judge(result, result.scenario.targets[place])
    return {
        "contestant": verdict.target.ours,
        "says": verdict.target.says,
        "metric": verdict.target.metric,
        "beside": verdict.target.beside.peer if verdict.target.beside else None,
        "bound": verdict.target.bound,
        "at": "least" if verdict.target.least else "most",
        "measured": spread_json(verdict.measured) if verdict.measured else None,
        "verdict": verdict_words(verdict).lower(),
    }


def spread_json(found: Spread) -> dict[str, Any]:
    """A figure and its range as data."""
    return {"value": plain(found.value), "min": plain(found.low), "max": plain(found.high)}

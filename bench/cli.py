"""The command: `python -m bench files`; with `--against`, that of `bench.against`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import summary
from bench.figures import lost_updates
from bench.machine import machine
from bench.model import Result, Scenario
from bench.report import as_json, show
from bench.runner import Options, run
from bench.scenarios import SCENARIOS, groups

TABLE = "table"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios that the arguments choose and print the report.

    Returns:
        0; 1 if a contestant failed or one of ours lost an update; 2 if no scenario matches the arguments; 130 if
        interrupted.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if any(word.split("=")[0] == "--against" for word in given):
        from bench.against import command

        return command.main(given, progress(quiet=False))
    parser = build_parser()
    chosen = parser.parse_args(given)
    in_table = chosen.what == TABLE
    if chosen.old and not (in_table and chosen.old.is_file()):
        parser.error(f"--old belongs to `{TABLE}`, and takes the file of a wheel")
    scenarios = [
        scenario
        for one in SCENARIOS
        if (scenario := summary.part_of(one) if in_table else one) and fits(scenario, chosen.what, chosen.only)
    ]
    if not scenarios:
        parser.error(f"no scenario fits; there are: {', '.join(one.key for one in SCENARIOS)}")
    default = Options(3, 0.5) if in_table else Options()
    options = Options(chosen.rounds or default.rounds, chosen.seconds or default.seconds, progress(chosen.quiet))
    about, began = machine(), time.monotonic()
    try:
        results = [run(scenario, options) for scenario in scenarios]
        ratios = summary.beside_old(chosen.old, options) if chosen.old else {}
    except KeyboardInterrupt:
        return 130
    show(about, results, options)
    if in_table:
        summary.show(results, ratios, began)
    if chosen.json:
        report = as_json(about, results, options) | ({"table": summary.rows(results)} if in_table else {})
        chosen.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return verdict(results)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure interlock and its peers side by side: interleaved rounds, medians, ratios.",
        epilog="scenarios: " + ", ".join(f"{one.key} ({', '.join(sorted(one.groups))})" for one in SCENARIOS),
    )
    parser.add_argument(
        "what",
        nargs="?",
        default=TABLE,
        choices=[TABLE, *groups(), "all"],
        help="which group of scenarios (default: the table of all stores, at most ten minutes)",
    )
    parser.add_argument("--rounds", type=positive(int), help="rounds (default 5; in the table 3)")
    parser.add_argument(
        "--seconds", type=positive(float), help="seconds per measurement (default 1; in the table 0.5)"
    )
    parser.add_argument("--old", type=Path, metavar="WHEEL", help="in the table, also the ratio to an older version")
    parser.add_argument("--only", type=words, default=(), metavar="KEY,…", help="only these scenarios")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every round there")
    parser.add_argument("--quiet", action="store_true", help="no progress on the error stream")
    return parser


def positive(kind: type[int] | type[float]) -> Any:
    """A number above 0."""

    def convert(text: str) -> int | float:
        number = kind(text)
        if not 0 < number < 1e6:
            raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
        return number

    convert.__name__ = kind.__name__
    return convert


def words(text: str) -> tuple[str, ...]:
    """Words separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def fits(scenario: Scenario[Any], what: str, only: tuple[str, ...]) -> bool:
    """True if the arguments choose this scenario."""
    return (what in ("all", TABLE) or what in scenario.groups) and (not only or scenario.key in only)


def progress(quiet: bool) -> Any:
    """The function for lines of progress: on a terminal each line replaces the one before."""
    if quiet:
        return lambda line: None
    if sys.stderr.isatty():
        return lambda line: print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    return lambda line: print(line, file=sys.stderr, flush=True)


def verdict(results: Sequence[Result]) -> int:
    """The exit status; the reasons for 1 are written to the error stream."""
    bad = lost_updates(results) + [
        f"{result.scenario.key}: {name} failed: {outcome.why}"
        for result in results
        for name, outcome in result.outcomes.items()
        if outcome.status == "failed"
    ]
    for line in bad:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if bad else 0

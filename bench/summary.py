"""The table of all stores in ten minutes: `python -m bench table`, with `--old WHEEL` beside an older version.

It measures a part of the contestants of the other groups, and prints one line for each figure: ours, the peers, the
limit of the machine, and the ratio to the older version.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import runner
from bench.contestants import redis_peers, sql_locks
from bench.figures import compared, spread
from bench.model import Beside, Contestant, Metric, Result, Scenario
from bench.report import number, table

COLUMNS = ["figure", "unit", "interlock", "others (x: factor in favour of interlock)"]
OLD_ROUNDS, OLD_SECONDS = 6, 0.2  # of each row beside the older version


class Line(NamedTuple):
    """One line of the table.

    Attributes:
        words: the description.
        scenario: the key of the scenario.
        ours: our contestant.
        others: the peers and limits, in the order of the table.
        metric: the key of the figure; the first one of the scenario by default.
        row: the name of the row of `bench.against.rows` that measures the same.
    """

    words: str
    scenario: str
    ours: str
    others: tuple[str, ...]
    metric: str = ""
    row: str = ""


FILES = ("filelock", "fasteners", "blocking flock")
REDIS = (redis_peers.REDIS_PY, "redis-py, tuned", redis_peers.PYTHON_REDIS_LOCK)
SQL = (sql_locks.PGLOCK, sql_locks.ADVISORY)
POSTGRES, SQLITE = sql_locks.OURS["postgresql"].name, sql_locks.OURS["sqlite"].name
LINES = (
    Line("memory: a pair", "memory", "interlock", ("threading.Lock",), row="memory threads"),
    Line("files: a pair", "uncontended", "interlock", (*FILES[:2], "flock on an open file"), row="files threads"),
    Line("files: a new name", "fresh_names", "interlock", (*FILES[:2], "flock on a new file"), "",
         "files fresh names"),
    Line("files: hand-over", "handover", "interlock", FILES, row="files hand-over"),
    Line("files: 16 threads", "threads", "interlock file", ("filelock",), row="files 16 threads"),
    Line("files: 8 processes", "processes", "interlock", FILES, row="files 8 processes"),
    Line("files: 8 processes", "processes", "interlock", FILES, "cpu"),
    Line("files: 8 processes", "processes", "interlock", FILES, "longest"),
    Line("Redis: a pair", "redis_uncontended", "interlock", (REDIS[0], REDIS[2], "raw SET NX + EVALSHA"), "",
         "redis threads"),
    Line("Redis: a pair, asyncio", "redis_uncontended", "interlock asyncio", ("redis.asyncio",), "", "redis asyncio"),
    Line("Redis: hand-over", "redis_handover", "interlock", (*REDIS, "redis-fifo-lock", "raw BLPOP token"), "",
         "redis hand-over"),
    Line("Redis: 16 threads", "redis_threads", "interlock", REDIS[2:], row="redis 16 threads"),
    Line("Redis: 8 processes", "redis_processes", "interlock", (*REDIS, "raw SET NX + BLPOP"), "",
         "redis 8 processes"),
    Line("Redis: 8 processes", "redis_processes", "interlock", (*REDIS, "raw SET NX + BLPOP"), "cpu"),
    Line("Redis: 8 processes", "redis_processes", "interlock", (*REDIS, "raw SET NX + BLPOP"), "longest"),
    Line("PostgreSQL: a pair", "sql_uncontended", POSTGRES, SQL, row="postgresql threads"),
    Line("PostgreSQL: hand-over", "sql_handover", POSTGRES, SQL, row="postgresql hand-over"),
    Line("PostgreSQL: 8 processes", "sql_processes", POSTGRES, SQL, row="postgresql 8 processes"),
    Line("PostgreSQL: 8 processes", "sql_processes", POSTGRES, SQL, "longest"),
    Line("SQLite: a pair", "sql_uncontended", SQLITE, (sql_locks.WRITES,), row="sqlite threads"),
    Line("the command: run", "command_start", "interlock run -- true", ("flock(1)", "python -c pass")),
    Line("the command: ls", "command_start", "interlock ls", ("python -c pass",)),
)  # fmt: skip


def part_of(scenario: Scenario[Any]) -> Scenario[Any] | None:
    """A scenario with only the contestants, comparisons and targets of the table; None if it is not in the table."""
    names = {name for line in LINES if line.scenario == scenario.key for name in (line.ours, *line.others)}
    others = [one.name for one in scenario.contestants if one.name in names and one.role != "ours"]
    return (names and replace(
        scenario,
        contestants=tuple(one for one in scenario.contestants if one.name in names),
        beside=tuple(map(Beside, others)),
        targets=tuple(
            one
            for one in scenario.targets
            if one.ours in names and (one.beside is None or one.beside.peer in names)
        ),
    )) or None  # fmt: skip


def beside_old(wheel: Path, options: runner.Options) -> dict[str, str]:
    """Measure the rows of the table in an older version and in the working tree.

    Returns:
        The ratio of the times, new by old, with its 95 % interval, by the name of the row.
    """
    from bench.against import crews
    from bench.against.places import Places, environment, wheel_of_tree
    from bench.against.rows import ROWS, interval

    wanted = [row for row in ROWS if any(row.name == line.row for line in LINES)]
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="interlock-against-")))
        pythons = {
            version: environment(folder / version, path)
            for version, path in (("old", wheel), ("new", wheel_of_tree(folder)))
        }
        places = Places(folder, closing)
        answers = crews.measured(wanted, pythons, places, crews.Options(OLD_ROUNDS, OLD_SECONDS, options.say))
    ratios = {}
    for one in answers:
        if one.ratios:
            low, high = interval(one.ratios)
            ratios[one.row.name] = f"{median(one.ratios):.2f} ({low:.2f} to {high:.2f})"
        else:
            ratios[one.row.name] = one.missing or one.error
    return ratios


def rows(results: Sequence[Result]) -> list[list[str]]:
    """The table as text: a line's words, the unit, ours and the others, for each line that was measured."""
    by_key = {result.scenario.key: result for result in results}
    return [cells(line, by_key[line.scenario]) for line in measured(results)]


def measured(results: Sequence[Result]) -> list[Line]:
    """The lines of the scenarios that ran."""
    keys = {result.scenario.key for result in results}
    return [line for line in LINES if line.scenario in keys]


def show(results: Sequence[Result], ratios: Mapping[str, str], began: float) -> None:
    """Print the table, with the ratios to an older version."""
    beside = [ratios.get(line.row, "") for line in measured(results)]
    table(
        "ours, peers, limits",
        [*COLUMNS, "new / old time, 95 %"],
        [[*row, ratio] for row, ratio in zip(rows(results), beside, strict=True)],
    )
    print(f"\n{time.monotonic() - began:.0f} s in all")


def cells(line: Line, result: Result) -> list[str]:
    """One line of the table."""
    metrics = result.scenario.metrics
    metric = next((one for one in metrics if one.key == line.metric), metrics[0])
    others = "; ".join(said(result, line, result.scenario.contestant(name), metric) for name in line.others)
    return [line.words, metric.label, figure(result, line.ours, metric), others]


def said(result: Result, line: Line, other: Contestant[Any], metric: Metric) -> str:
    """A peer or limit: its figure, and how many times better ours is."""
    better = compared(result, line.ours, metric, Beside(other.name))
    times = f" ({number(better.value)}x)" if better is not None else ""
    losing = ", loses updates" if sum(result.outcomes[other.name].rounds.get("lost", ())) else ""
    return f"{other.name} {figure(result, other.name, metric)}{times}{losing}"


def figure(result: Result, name: str, metric: Metric) -> str:
    """One figure as text."""
    outcome = result.outcomes[name]
    values = outcome.rounds.get(metric.key)
    return number(spread(values, metric).value) if values else outcome.status

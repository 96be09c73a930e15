"""The table of measurements, their limits, and the verdict on a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb
from statistics import median

LEAST_ROUNDS = 6  # the least number for a 95 % interval


@dataclass(frozen=True)
class Row:
    """One thing to measure in both versions.

    Args:
        store: the store, a key of `urls` in `places.py`.
        kind: a function of `worker.py`.
        words: the description in the report.
        limit: the highest allowed ratio of times, new by old.
        wanted: the ratio to aim at; a higher one is no failure.
        processes: how many processes use one name at the same time.
    """

    store: str
    kind: str
    words: str
    limit: float = 1.05
    wanted: float | None = None
    processes: int = 1

    @property
    def name(self) -> str:
        """The name in the report and in `--rows`."""
        return f"{self.store} {self.words}"


ROWS = (
    Row("memory", "pairs", "threads", 1.2),
    Row("memory", "async_pairs", "asyncio", 1.1),
    Row("files", "pairs", "threads"),
    Row("files", "async_pairs", "asyncio"),
    Row("files", "fresh_names", "fresh names", wanted=0.5),
    Row("files", "threads", "16 threads"),
    Row("files", "contended", "hand-over", processes=2),
    Row("files", "contended", "8 processes", processes=8),
    Row("sqlite", "pairs", "threads"),
    Row("sqlite", "async_pairs", "asyncio", 1.1),
    Row("mariadb", "pairs", "threads"),
    Row("mariadb", "async_pairs", "asyncio", 1.1),
    Row("redis", "pairs", "threads"),
    Row("redis", "async_pairs", "asyncio"),
    Row("redis", "threads", "16 threads"),
    Row("redis", "tasks", "100 tasks"),
    Row("redis", "contended", "hand-over", processes=2),
    Row("redis", "contended", "8 processes", processes=8),
    Row("postgresql", "pairs", "threads"),
    Row("postgresql", "async_pairs", "asyncio"),
    Row("postgresql", "contended", "hand-over", wanted=0.9, processes=2),
    Row("postgresql", "contended", "8 processes", processes=8),
    Row("advisory", "pairs", "threads", 1.15),
    Row("advisory", "async_pairs", "asyncio", 1.15),
)


@dataclass
class Measured:
    """The times of a row in microseconds, one of each version for each round; or why there are none.

    Args:
        row: the row.
        old, new: the times.
        missing: what is not installed.
        error: the failure of a version.
    """

    row: Row
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    missing: str = ""
    error: str = ""

    @property
    def ratios(self) -> list[float]:
        """New by old, round by round: a disturbance slows both versions of a round."""
        return [new / old for new, old in zip(self.new, self.old, strict=True)]

    @property
    def fails(self) -> bool:
        """True if a version failed, or the whole interval is above the limit."""
        return bool(self.error) or (bool(self.ratios) and interval(self.ratios)[0] > self.row.limit)

    def verdict(self) -> str:
        """The verdict as text."""
        if self.missing:
            return "NOT MEASURED"
        if self.error:
            return "BROKEN"
        words = f"FAILS, above {self.row.limit:g}" if self.fails else "ok"
        if self.row.wanted is None:
            return words
        reached = "" if median(self.ratios) <= self.row.wanted else "not yet "
        return f"{words}; {reached}{self.row.wanted:g} as wanted"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The confidence interval of the median, of at least 95 %, by the sign test.

    Each value is above or below the true median with equal probability, whatever the distribution.

    Raises:
        ValueError: there are fewer than `LEAST_ROUNDS` values.
    """
    ordered, below, outside = sorted(values), 0.0, 0
    while (below := below + comb(len(ordered), outside) / 2 ** len(ordered)) <= 0.025:
        outside += 1
    if outside == 0:
        raise ValueError(f"{len(ordered)} values give no interval of 95 %; {LEAST_ROUNDS} do")
    return ordered[outside - 1], ordered[-outside]

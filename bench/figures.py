"""Figures: medians, percentiles, comparisons between contestants, and verdicts on targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.model import Beside, Metric, Raw, Result, Target


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` per cent of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def folded(values: Sequence[float], metric: Metric) -> float:
    """One figure for all rounds."""
    return sum(values) if metric.fold == "sum" else median(values)


def out_of_turn(order: Sequence[int]) -> int:
    """Count the waiters that were served before one that had arrived earlier.

    Args:
        order: the numbers of arrival, in the order of service.
    """
    return sum(any(later < one for later in order[place + 1 :]) for place, one in enumerate(order))


def waits(total: float, longest: float, sections: float) -> Raw:
    """The mean wait, and the longest as a multiple of it.

    Args:
        total: the sum of all waits, in seconds.
        longest: the longest wait, in seconds.
        sections: the number of waits.
    """
    mean = total / sections if sections else 0.0
    return {"mean_wait": mean * 1e6, "longest": longest / mean if mean else 0.0}


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds: the reported one, the lowest and the highest."""

    value: float
    low: float
    high: float


def spread(values: Sequence[float], metric: Metric) -> Spread:
    """Fold the rounds and keep their range."""
    return Spread(folded(values, metric), min(values), max(values))


def compared(result: Result, name: str, metric: Metric, beside: Beside) -> Spread | None:
    """Compare a contestant with a peer, round by round, so that a disturbance slows both.

    Returns:
        How many times better it is; None if either has no figures.
    """
    mine = result.outcomes[name].rounds.get(metric.key)
    theirs = result.outcomes[beside.peer].rounds.get(metric.key)
    if not mine or not theirs:
        return None
    rounds = better_by_round(mine, theirs, metric.better)
    return Spread(median(rounds), min(rounds), max(rounds))


def better_by_round(mine: Sequence[float], theirs: Sequence[float], better: str) -> list[float]:
    """How many times better mine are, for each round.

    Args:
        mine, theirs: the figures of the rounds.
        better: "high" if more is better, otherwise "low".
    """
    pairs = zip(mine, theirs, strict=False)
    return [times_better(*((one, other) if better == "high" else (other, one))) for one, other in pairs]


def times_better(more: float, less: float) -> float:
    """How many times more."""
    return more / less if less else float("inf")


@dataclass(frozen=True)
class Verdict:
    """A target with the measured figure; `reached` is None if there is none."""

    target: Target
    measured: Spread | None
    reached: bool | None


def judge(result: Result, target: Target) -> Verdict:
    """Compare one target with the figures of the same run."""
    metric = result.scenario.metric(target.metric)
    if target.beside is not None:
        measured = compared(result, target.ours, metric, target.beside)
    else:
        values = result.outcomes[target.ours].rounds.get(metric.key)
        measured = spread(values, metric) if values else None
    if measured is None:
        return Verdict(target, None, None)
    reached = measured.value >= target.bound if target.least else measured.value <= target.bound
    return Verdict(target, measured, reached)


def lost_updates(results: Sequence[Result]) -> list[str]:
    """Return the names of our contestants that lost updates, which is always a failure."""
    return [
        f"{result.scenario.key}: {name} lost {int(sum(lost))} updates"
        for result in results
        for name, lost in losses(result)
        if sum(lost) and result.scenario.contestant(name).role == "ours"
    ]


def losses(result: Result) -> list[tuple[str, list[float]]]:
    """The lost updates of each contestant by round, if the scenario counts them."""
    return [(name, outcome.rounds["lost"]) for name, outcome in result.outcomes.items() if "lost" in outcome.rounds]


def verdict_words(verdict: Verdict) -> str:
    """The verdict as one word."""
    return {True: "reached", False: "NOT REACHED", None: "not measured"}[verdict.reached]


def plain(value: float) -> Any:
    """A figure for JSON: infinity and not-a-number become null."""
    return value if value == value and abs(value) != float("inf") else None

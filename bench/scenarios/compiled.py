"""What each entry point of the compiled part of files brings: everything with it and without it, in one run.

`x Python only` is what all of it brings; `x all compiled` tells what is lost without one entry point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from bench.contestants.compiled_parts import ALL, NONE, contestants
from bench.contestants.locks import Lock
from bench.model import Beside, Contestant, Metric, Place, Raw, Scenario, Seat, Target
from bench.scenarios import handover, pairs, processes, threads

GROUPS = frozenset({"compiled"})
BESIDE = (Beside(ALL), Beside(NONE))
WORTH = 1.25  # times; what brings less is not worth its C


def as_it_is(make: Callable[[Place], Lock]) -> Callable[[Place], Lock]:
    """The lock itself is what `processes` works with."""
    return make


def opener(make: Callable[[Place], Lock]) -> Callable[[Place], threads.Opener]:
    """All threads use one lock object."""

    def build(place: Place) -> threads.Opener:
        lock = make(place)
        return lambda: lock

    return build


def worth(metric: str) -> Target:
    """What all of it must bring, or it goes."""
    return Target("at least a quarter better than Python only", ALL, metric, WORTH, least=True, beside=BESIDE[1])


def slices(contestant: Contestant[pairs.Batch], seat: Seat) -> Raw:
    """Time slices as `pairs.work` does; also the best slice, which other work on the machine disturbs least."""
    batch = contestant.make(seat.place)
    batch(3)
    times = pairs.calibrated(batch, seat.seconds / pairs.SLICES)
    took = [pairs.timed(batch, times) / times * 1e6 for _ in range(pairs.SLICES)]
    return {"best": min(took), "us": median(took)}


def best(raws: Any) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return dict(raw)


def in_parts(
    scenario: Scenario[Any], build: Callable[[Callable[[Place], Any]], Any], target: Target
) -> Scenario[Any]:
    """The scenario with and without each entry point."""
    return replace(
        scenario,
        key=f"compiled_{scenario.key}",
        title=f"With and without each compiled entry point: {scenario.title}",
        groups=GROUPS,
        contestants=contestants(build),
        beside=BESIDE,
        targets=(target,),
    )


UNCONTENDED: Scenario[pairs.Batch] = Scenario(
    key="compiled_uncontended",
    title="With and without each compiled entry point: uncontended acquire+release on files",
    groups=GROUPS,
    contestants=contestants(pairs.calls),
    metrics=(Metric("best", "best µs per pair"), Metric("us", "median µs per pair")),
    work=slices,
    fold=best,
    beside=BESIDE,
    targets=(worth("best"),),
)
SCENARIOS: tuple[Scenario[Any], ...] = (
    UNCONTENDED,
    in_parts(processes.SCENARIO, as_it_is, worth("rate")),
    in_parts(handover.SCENARIO, handover.blocking, worth("us")),
    in_parts(threads.SCENARIO, opener, Target("no lost update", ALL, "lost", 0.0)),
)

"""What the seam of events costs while nobody listens: with its checks and without them, in turns, in one process.

Two processes differ by more than the seam costs, so both sides take turns of half a millisecond on one lock of one
process, each turn is compared with the one before it, and the median of some thousand such pairs counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from bench.contestants import needs, seam
from bench.contestants.locks import interlock_file, interlock_memory
from bench.model import Contestant, Metric, Raw, Scenario, Seat, Target
from bench.scenarios.pairs import Batch, calibrated, timed

TURN = 0.0005  # seconds
MEMORY, FILES, CONTROL = "in memory", "on files", "with the checks on both sides"
Sides = tuple[Batch, Batch]
"""With the checks, and without."""


def sides(make: Callable[..., Any], instead: str | None = "if 0:") -> Callable[..., Sides]:
    """One lock, taken and released by both sides; `instead` stands in the place of the checks of the second."""

    def build(place: Any) -> Sides:
        lock = make(place)
        return seam.side(lock, None), seam.side(lock, instead)

    return build


def work(contestant: Contestant[Sides], seat: Seat) -> Raw:
    """Take turns: ours, without, without, ours; and the other way round."""
    ours, without = contestant.make(seat.place)
    times = calibrated(ours, TURN)
    calibrated(without, TURN)
    costs: list[float] = []
    base: list[float] = []
    until = time.monotonic() + seat.seconds
    while time.monotonic() < until or not costs:
        one, other = four_turns(ours, without, times)
        other_again, one_again = four_turns(without, ours, times)
        costs.append((one + one_again) / (other + other_again) - 1)
        base.append((other + other_again) / 4 / times)
    return {"cost": median(costs) * 100, "us": median(base) * 1e6, "pairs": float(4 * len(costs))}


def four_turns(outer: Batch, inner: Batch, times: int) -> tuple[float, float]:
    """Seconds of the two outer turns and of the two inner ones; the turn after a pause is slower, and not counted."""
    inner(times)
    took = timed(outer, times), timed(inner, times), timed(inner, times), timed(outer, times)
    return took[0] + took[3], took[1] + took[2]


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return dict(raw)


def under_one_percent(ours: str) -> Target:
    """What the issue asks for."""
    return Target("off costs under 1 %", ours, "cost", 1.0)


SCENARIO: Scenario[Sides] = Scenario(
    key="events_off",
    title="What the seam of events costs an uncontended acquire+release while nobody listens",
    groups=frozenset({"events"}),
    contestants=(
        Contestant(MEMORY, sides(interlock_memory), needs.interlock, "ours"),
        Contestant(FILES, sides(interlock_file), needs.interlock, "ours"),
        Contestant(CONTROL, sides(interlock_memory, None), needs.interlock, "control", "must be 0"),
    ),
    metrics=(
        Metric("cost", "% more", "low"),
        Metric("us", "µs without", "low"),
        Metric("pairs", "pairs of turns", "-", "sum"),
    ),
    work=work,
    fold=fold,
    targets=(under_one_percent(MEMORY), under_one_percent(FILES)),
)

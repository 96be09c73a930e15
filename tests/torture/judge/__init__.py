"""The judge: reads a history, and says what in it can't be."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.torture.history import Record, in_order
from tests.torture.judge.holding import capacity, fences, lost_updates, order, stale_writes
from tests.torture.judge.run import Run, understood
from tests.torture.judge.violation import Violation
from tests.torture.judge.waiting import errors, left_over, stalls, time_outs

__all__ = ["Verdict", "Violation", "judge"]


@dataclass
class Verdict:
    """What the judge found.

    Attributes:
        run: the history as it was understood.
        violations: what can't be.
        excused: two holders at a time after the store had lost its data, as promised.
        unfenced: updates of counters without a fence that were lost, after leases were lost.
        stalls: for each fault, and "none", the longest that a lock was free while somebody waited; seconds.
    """

    run: Run
    violations: list[Violation] = field(default_factory=list)
    excused: int = 0
    unfenced: int = 0
    stalls: dict[str, float] = field(default_factory=dict)

    @property
    def outcomes(self) -> Counter[str]:
        """How operations ended."""
        return Counter(op.outcome or "cut off" for op in self.run.ops)

    @property
    def faults(self) -> Counter[str]:
        """How many faults of each kind were made."""
        return Counter(made.name for made in self.run.faults if not made.problem)


def judge(records: Iterable[Record], slack: float | None = None) -> Verdict:
    """Judge a history.

    Args:
        records: of `history.read`, or made by hand.
        slack: seconds that a busy machine may take for what should take none; those of the plan unless given.
    """
    run = understood(in_order(records), slack)
    verdict = Verdict(run)
    overlaps, verdict.excused = capacity(run)
    lost, verdict.unfenced = lost_updates(run)
    stalled, verdict.stalls = stalls(run)
    verdict.violations = [
        *overlaps, *fences(run), *stale_writes(run), *lost, *order(run), *time_outs(run), *stalled, *errors(run),
        *left_over(run),
    ]  # fmt: skip
    return verdict

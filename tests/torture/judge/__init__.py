"""The judge: it reads a history, and finds violations of the promises."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.torture.history import Record, in_order
from tests.torture.judge.handing import losses, runs_of_once
from tests.torture.judge.holding import capacity, fences, lost_updates, order, stale_writes
from tests.torture.judge.run import Run, understood
from tests.torture.judge.violation import Violation
from tests.torture.judge.waiting import errors, left_over, stalls, time_outs

__all__ = ["Verdict", "Violation", "judge"]


@dataclass
class Verdict:
    """The result of the judge.

    Attributes:
        run: the parsed history.
        violations: the violations.
        excused: how often there were two holders after the store had lost its data, which is allowed.
        unfenced: how many updates of counters without a fence were lost after lost leases, which is allowed.
        stalls: for each fault, and "none", the longest time in seconds in which a lock was free while a claim waited.
    """

    run: Run
    violations: list[Violation] = field(default_factory=list)
    excused: int = 0
    unfenced: int = 0
    stalls: dict[str, float] = field(default_factory=dict)

    @property
    def outcomes(self) -> Counter[str]:
        """The number of operations by their result."""
        return Counter(op.outcome or "cut off" for op in self.run.ops)

    @property
    def faults(self) -> Counter[str]:
        """The number of faults of each kind that could be injected."""
        return Counter(made.name for made in self.run.faults if not made.problem)


def judge(records: Iterable[Record]) -> Verdict:
    """Judge a history.

    Args:
        records: the result of `history.read`, or records made by hand.
    """
    run = understood(in_order(records))
    verdict = Verdict(run)
    overlaps, verdict.excused = capacity(run)
    lost, verdict.unfenced = lost_updates(run)
    stalled, verdict.stalls = stalls(run)
    verdict.violations = [
        *overlaps, *fences(run), *stale_writes(run), *lost, *order(run), *time_outs(run), *stalled, *errors(run),
        *left_over(run), *runs_of_once(run), *losses(run),
    ]  # fmt: skip
    return verdict

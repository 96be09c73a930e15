"""The rules for runs of `once`, and for locks that were lost."""

from collections import defaultdict

from tests.torture.judge.run import RecordedOperation, Run
from tests.torture.judge.violation import Violation

HARMLESS = ("delay", "scatter", "cut", "drop", "deafen", "foreign", "fork")
"""Faults that cost time, but less than a lease; unless the store forgets its locks by them."""


def runs_of_once(run: Run) -> list[Violation]:
    """Find runs that began after a recorded one, and callers that skipped a run that nobody has completed."""
    found = []
    names: dict[str, list[RecordedOperation]] = defaultdict(list)
    for op in run.ops:
        if op.kind == "once":
            names[op.names[0]].append(op)
    for name, ops in names.items():
        finished = [op for op in ops if op.ok is not None and not op.fails]
        done = min((op for op in finished if op.done), key=lambda op: op.done or 0.0, default=None)
        for op in ops:
            if op.skipped and not any(other.ok < op.skipped for other in finished if other.ok is not None):
                found.append(Violation("skipped", name, op.skipped, f"{op} skipped a run that nobody completed"))
            if done is None or op.ok is None or done.done is None or op.ok < done.done:
                continue
            if not any(made.loses and made.span.meets(done.done - run.plan.ttl, op.ok) for made in run.faults):
                found.append(Violation("done twice", name, op.ok, f"{op} ran after {done} was recorded"))
    return found


def losses(run: Run) -> list[Violation]:
    """Find holders that lost their locks without a cause."""
    return [
        Violation("lost", op.names[0], op.ended or op.invoked, f"{op} lost it without a cause")
        for op in run.ops
        if op.lost and op.ok is not None and op.held is not None and not _has_cause(run, op, op.ok, op.held)
    ]


def _has_cause(run: Run, op: RecordedOperation, since: float, until: float) -> bool:
    """Return True if the lease of a holder may have expired, or its claim was evicted."""
    if op.ttl < run.plan.ttl or until - since > op.ttl / 3 or any(id in run.evicted for id in op.ids):
        return True
    before, after = op.invoked - run.plan.ttl, until + run.plan.io
    if any(span.meets(before, after) for lags in run.lags.values() for span in lags):
        return True  # the machine was busy
    near = run.fault_near(before, after, shared=False, process=op.process.partition("f")[0])
    return any(made.loses or made.name not in HARMLESS for made in near)

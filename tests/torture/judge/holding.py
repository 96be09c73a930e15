"""The rules for holders: capacity, fences, writes, order."""

from collections import defaultdict
from collections.abc import Iterator

from tests.torture.judge.run import RecordedOperation, Run, Span
from tests.torture.judge.violation import Violation
from tests.torture.plan import EXCLUSIVE

UNNOTICED = 0.05  # seconds; a store of files is locked in for 20 ms after its folder was moved


class _Hold:
    """A name that an operation held."""

    __slots__ = ("fence", "id", "op", "since", "until")

    def __init__(self, op: RecordedOperation, fence: int, id: str) -> None:
        assert op.ok is not None
        assert op.held is not None
        self.op, self.fence, self.id, self.since, self.until = op, fence, id, op.ok, op.held


def _holds(run: Run) -> Iterator[tuple[str, list[_Hold]]]:
    """Yield each name with its holds, by their beginning."""
    found: dict[str, list[_Hold]] = defaultdict(list)
    for op in run.ops:
        # Several locks are taken in the global order of names, not in the order of the call.
        for name, fence, id in zip(sorted(op.names), op.fences, op.ids, strict=False):
            found[name].append(_Hold(op, fence, id))
    for name, holds in found.items():
        yield name, sorted(holds, key=lambda hold: hold.since)


def capacity(run: Run) -> tuple[list[Violation], int]:
    """Find holders that, by their own clocks, exceeded the capacity together; and the number of excused ones.

    Two claims may hold after the store has lost its data, until the first one renews or is notified.
    """
    found, excused = [], 0
    for name, holds in _holds(run):
        active: list[_Hold] = []
        for hold in holds:
            active = [other for other in active if other.until > hold.since]
            limit = min(each.op.capacity for each in [*active, hold])
            if sum(each.op.units for each in [*active, hold]) > limit and hold.until > hold.since:
                if _is_excused(run, active, hold):
                    excused += 1
                else:
                    text = f"{hold.op} held it with {' and '.join(str(each.op) for each in active)}"
                    found.append(Violation("overlap", name, hold.since, text))
            active.append(hold)
    return found, excused


def _is_excused(run: Run, active: list[_Hold], hold: _Hold) -> bool:
    """Return True if the store may have lost the active claims, and their holders may not know it yet."""
    if any(run.evicted.get(each.id, hold.since) < hold.since for each in [*active, hold]):
        return True  # a holder learns of its eviction at its next renewal
    since = min(each.since for each in active) - run.plan.ttl
    if run.plan.told is not None:
        slept = max(run.lag(each.op.process, hold.since - 2 * run.plan.ttl, each.until) for each in active)
        since = max(since, hold.since - run.plan.told - slept)
    return any(made.loses and made.span.meets(since, hold.since) for made in run.faults)


def fences(run: Run) -> list[Violation]:
    """Find fences that repeat, or that fall from one holder to the next."""
    found = []
    for name, holds in _holds(run):
        seen: dict[int, _Hold] = {}
        for hold in holds:
            other = seen.setdefault(hold.fence, hold)
            if other is not hold and other.id != hold.id and "attach" not in (other.op.kind, hold.op.kind):
                text = f"{hold.op} has the fence {hold.fence} of {other.op}"
                found.append(Violation("fence repeated", name, hold.since, text))
        # An evicted claim may be granted before its caller learns of the eviction.
        found += _falling(run, name, [hold for hold in holds if run.evicted.get(hold.id, hold.since) >= hold.since])
    return found


def _falling(run: Run, name: str, holds: list[_Hold]) -> Iterator[Violation]:
    """Yield fences that are lower than one of a hold that ended before their acquire began, or before an exclusive
    hold."""
    loses = [Span(made.span.since, made.span.until + UNNOTICED) for made in run.faults if made.loses]
    begun = sorted(((_before(hold, loses), hold) for hold in holds), key=lambda each: each[0])
    ended = sorted(holds, key=lambda hold: hold.until if hold.op.kind in EXCLUSIVE else hold.since)
    highest, index = None, 0
    for before, hold in begun:
        while index < len(ended):
            other = ended[index]
            if (other.until if other.op.kind in EXCLUSIVE else other.since) >= before:
                break
            if other is not hold and (highest is None or other.fence > highest.fence):
                highest = other
            index += 1
        if highest is not None and highest.fence > hold.fence:
            text = f"{hold.op} has {hold.fence} after {highest.fence} of {highest.op}"
            yield Violation("fence fell", name, hold.since, text)


def _before(hold: _Hold, loses: list[Span]) -> float:
    """Return the time before which every grant has a lower fence: the begin of the time in which it held alone.

    A worker that waits for the second of two locks may not know yet that the store has lost the first one.
    """
    alone = hold.op.kind in EXCLUSIVE and hold.until > hold.since
    return (
        hold.since
        if alone and not any(span.meets(hold.op.invoked, hold.since) for span in loses)
        else hold.op.invoked
    )


def stale_writes(run: Run) -> list[Violation]:
    """Find writes that were accepted although a higher fence had written."""
    found = []
    highest: dict[str, int] = {}
    for record in run.records["write"]:
        if record["counter"] == "fenced" and record["accepted"]:
            name, fence = record["name"], record["fence"]
            if fence < highest.get(name, fence):
                text = f"a write with the fence {fence} was accepted after one with {highest[name]}"
                found.append(Violation("stale write", name, record["t"], text))
            highest[name] = max(fence, highest.get(name, fence))
    return found


def lost_updates(run: Run) -> tuple[list[Violation], int]:
    """Find lost updates: of a fenced counter, always; of an unfenced one, if no holder had lost the lock.

    Returns:
        The violations, and the number of lost updates that a fence would have prevented.
    """
    found, unfenced = [], 0
    struck = any(made.name == "stop" or made.loses for made in run.faults)
    stale = {name for op in run.ops if op.ok and _may_be_stale(run, op) for name in op.names}
    for record in run.records["final"]:
        for each in record["counters"]:
            lost = each["writes"] - each["value"]
            if not lost:
                continue
            if each["counter"] == "fenced":
                text = f"{lost} of {each['writes']} updates of the fenced counter are lost"
                found.append(Violation("lost fenced update", each["name"], record["t"], text))
            elif struck or each["name"] in stale:
                unfenced += lost
            else:
                text = f"{lost} of {each['writes']} updates of the counter are lost, though nobody lost the lock"
                found.append(Violation("lost update", each["name"], record["t"], text))
    return found, unfenced


def _may_be_stale(run: Run, op: RecordedOperation) -> bool:
    """Return True if a holder may have written after it had lost the lock."""
    assert op.ok is not None
    assert op.held is not None
    return op.lost or run.lag(op.process, op.ok, op.held + op.ttl) > 0


def order(run: Run) -> list[Violation]:
    """Find claims that were granted the lock before a waiter that had arrived earlier."""
    found: list[Violation] = []
    asked: dict[tuple[str, str], list[RecordedOperation]] = defaultdict(list)
    for op in run.ops:
        asked[op.process, op.names[0]].append(op)
    for name, holds in _holds(run):
        if len(holds[0].op.names) > 1:
            continue
        # A hold that was attached or downgraded did not wait: its claim began with an earlier operation.
        holds = [hold for hold in holds if hold.op.kind not in ("attach", "downgraded")]
        stood = [hold for hold in holds if hold.id in hold.op.queued and not _lost_place(run, hold)]
        if run.plan.line == "all":
            found += _overtaken(name, stood, holds)
            continue
        for process in {hold.op.process for hold in holds}:
            waited = [hold for hold in stood if hold.op.process == process]
            found += _overtaken(name, waited, [hold for hold in holds if hold.op.process == process])
            heads = [hold for hold in waited if _was_head(run, asked[process, name], hold)]
            others = [hold for hold in holds if hold.op.process != process]
            found += _overtaken(name, heads, others, run.plan.slack)
    return found


def _lost_place(run: Run, hold: _Hold) -> bool:
    """Return True if the store may have lost a waiter that was notified before the loss."""
    return any(made.loses and made.span.meets(hold.op.queued[hold.id], hold.since) for made in run.faults)


def _overtaken(name: str, stood: list[_Hold], holds: list[_Hold], later: float = 0.0) -> Iterator[Violation]:
    """Yield claims that were granted the lock before a waiter that had arrived earlier.

    Args:
        name: the name of the lock.
        stood: the waiters.
        holds: the claims that may have arrived later.
        later: the least seconds by which they must have arrived later.
    """
    queued = sorted(((hold.op.queued[hold.id], hold) for hold in stood), key=lambda each: each[0])
    highest: _Hold | None = None
    index = 0
    for hold in sorted(holds, key=lambda hold: hold.op.invoked):
        while index < len(queued) and queued[index][0] + later < hold.op.invoked:
            if highest is None or queued[index][1].fence > highest.fence:
                highest = queued[index][1]
            index += 1
        if highest is not None and hold.fence < highest.fence:
            text = f"{hold.op} came after {highest.op} stood in line, and was before it"
            yield Violation("order", name, hold.since, text)


def _was_head(run: Run, asked: list[RecordedOperation], hold: _Hold) -> bool:
    """Return True if a waiter was the first of its process, and no fault made it leave the store's line and re-enter.

    Args:
        run: the history.
        asked: the operations of its process on that name.
        hold: the hold of the waiter.
    """
    since = hold.op.queued[hold.id]
    before = [op for op in asked if op is not hold.op and op.invoked <= since]
    alone = all(op.ended is not None and op.ended < since for op in before)
    return alone and not run.fault_near(since - run.plan.slack, hold.since, shared=False, process=hold.op.process)

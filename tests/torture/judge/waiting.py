"""The rules for waiters and for the end of a run: time-outs, stalls, errors, leftovers."""

from collections import defaultdict

from tests.torture.faults import FAULTS
from tests.torture.judge.run import Made, RecordedOperation, Run
from tests.torture.judge.violation import Violation

EARLY = 0.02  # seconds that a time-out may be early, since two clocks are read one after the other
LOOP_CLOSED = "Event loop is closed"
HALTS = ("KeyboardInterrupt", "CancelledError", "SystemExit")


def time_outs(run: Run) -> list[Violation]:
    """Find acquires that took longer than allowed, or gave up before their time-out."""
    found = []
    for op in run.ops:
        if op.ended is None:
            continue
        took = op.ended - op.invoked
        allowed = op.timeout + run.plan.slack + run.lag(op.process, op.invoked, op.ended)
        if run.fault_near(op.invoked - run.plan.ttl, op.ended, shared=False):
            allowed += 2 * run.plan.io  # one request without a reply, and the one that undoes it
        if took > allowed:
            text = f"{op} took {took:.3f} s of {op.timeout:.3f} s"
            found.append(Violation("time-out", op.names[0], op.ended, text))
        elif op.outcome == "fail" and took < op.timeout - EARLY:
            text = f"{op} gave up after {took:.3f} s of {op.timeout:.3f} s"
            found.append(Violation("gave up early", op.names[0], op.ended, text))
    return found


def stalls(run: Run) -> tuple[list[Violation], dict[str, float]]:
    """Find locks that were free longer than promised while a claim waited.

    Returns:
        The violations, and for each fault, and "none", the longest such time.
    """
    found, longest = [], dict[str, float]()
    for name, ops in _by_name(run).items():
        for since, until in _gaps(run, ops):
            near = run.fault_near(since - run.plan.ttl, until, shared=False)
            took = until - since
            for each in {made.name for made in near} or {"none"}:
                longest[each] = max(took, longest.get(each, 0.0))
            allowed = run.plan.slack + run.busy(since, until) + max((_limit(run, made) for made in near), default=0.0)
            allowed += run.struck(since, until)
            if any(op.lost and op.ended and since - run.plan.ttl < op.ended < until for op in ops):
                allowed += run.plan.ttl  # a holder kept its lease without renewal: others wait until it expires
            if took > allowed:
                text = f"it was free for {took:.3f} s while somebody waited; {allowed:.3f} s are promised"
                if near:
                    text += f" after {', '.join(sorted({made.name for made in near}))}"
                found.append(Violation("stall", name, until, text))
    return found, longest


def _limit(run: Run, made: Made) -> float:
    """Return how long waiters may wait after a fault: until the leases of dead processes expire, plus one request.

    The duration of a process's fault counts, too; the durations of the store's faults are added up, since one may
    follow another at once.
    """
    fault = FAULTS[made.name]
    at_once = made.name == "kill" and run.plan.frees_at_death
    leases = 0.0 if at_once else fault.stalls * 2 * run.plan.ttl  # of the holder, and of a dead successor
    return leases + (made.span.until - made.span.since if made.of else run.plan.io)


def _by_name(run: Run) -> dict[str, list[RecordedOperation]]:
    found: dict[str, list[RecordedOperation]] = defaultdict(list)
    for op in run.ops:
        if len(op.names) == 1:  # a call for several locks holds the first before it has all
            found[op.names[0]].append(op)
    return found


def _gaps(run: Run, ops: list[RecordedOperation]) -> list[tuple[float, float]]:
    """Return the times in which a name had no holder, while a claim of a running process waited for it."""
    marks: list[tuple[float, int, int]] = []
    last = max((made.span.until for made in run.faults), default=0.0)
    for op in ops:
        gone = max(op.invoked, run.exits.get(op.process.partition("f")[0], last))
        ended = min(op.ended if op.ended is not None else gone, gone if op.ended is None else op.ended)
        if op.timeout:
            marks += [(op.invoked, 0, 1), (ended, 0, -1)]
        if op.ok is not None and op.held is not None:
            marks += [(op.ok, 1, 0), (max(op.ok, op.held), -1, 0)]
    holders = waiters = 0
    since: float | None = None
    found = []
    for t, held, waited in sorted(marks, key=lambda mark: (mark[0], -mark[1])):
        holders, waiters = holders + held, waiters + waited
        free = not holders and waiters > 0
        if free and since is None:
            since = t
        elif not free and since is not None:
            found.append((since, t))
            since = None
    return found


def errors(run: Run) -> list[Violation]:
    """Find errors that no fault explains, and errors that no fault may cause."""
    found = []
    for op in run.ops:
        if not op.error or op.error in HALTS:
            continue
        explained = run.fault_near(
            op.invoked - 2 * run.plan.ttl, (op.ended or op.invoked) + run.plan.io, shared=False
        )
        if op.text == LOOP_CLOSED and any(made.name == "interrupt" for made in explained):
            continue  # a second Ctrl-C ended the clean-up of asyncio.run: Python destroys the tasks
        if op.error != "StoreError" or not explained:
            found.append(Violation("error", op.names[0], op.ended or op.invoked, f"{op}: {op.error}: {op.text}"))
    return found


def left_over(run: Run) -> list[Violation]:
    """Find leftovers after the end, processes that hung, and processes that died without a fault."""
    found = []
    for record in run.records["final"]:
        for what in ("claims", "files", "keys", "connections"):
            found += [Violation("left over", "", record["t"], f"{what}: {each}") for each in record.get(what, ())]
    for record in run.records["end"]:
        # Python may raise KeyboardInterrupt between a call that opens a file and the assignment of its result.
        lost = sum(made.name == "interrupt" and made.of == record["p"] for made in run.faults)
        if len(record["descriptors"]) > lost or record["threads"]:
            text = (
                f"process {record['p']} has descriptors {record['descriptors']} and threads {record['threads']} more"
            )
            found.append(Violation("left over", "", record["t"], text))
    killed = {made.of for made in run.faults if made.name in ("kill", "term", "interrupt")}
    for record in run.records["exit"]:
        if record["hung"]:
            found.append(Violation("hang", "", record["t"], f"process {record['of']} did not end"))
        elif record["status"] and record["of"] not in killed:
            found.append(Violation("death", "", record["t"], f"process {record['of']} ended with {record['status']}"))
    return found

"""A parsed history: operations, faults, and the times in which a process did not run."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.torture.history import Record
from tests.torture.plan import Plan

LINGERS = {"forget": 10.0, "drop": 5.0}
"""Seconds for which a fault may have effects: a broken idle connection is noticed at its next use."""


class Span(NamedTuple):
    """A span of time."""

    since: float
    until: float

    def meets(self, since: float, until: float) -> bool:
        """Return True if it overlaps with another span."""
        return self.since <= until and since <= self.until


class Made(NamedTuple):
    """A fault that was injected, or that could not be.

    Attributes:
        problem: why it could not be injected; empty if it was.
    """

    name: str
    span: Span
    of: str
    loses: bool
    problem: str


@dataclass
class RecordedOperation:
    """An operation of the history; the time of an event that did not happen is None.

    Attributes:
        held: until when its holder certainly held the lock, by its own clock.
        done: when its run of `once` was recorded.
        skipped: when it found that a run was recorded.
        fails: True if its run ends with an exception.
        ended: when acquire returned or raised.
    """

    process: str
    number: int
    names: tuple[str, ...]
    kind: str
    units: int
    capacity: int
    timeout: float
    ttl: float
    invoked: float
    queued: dict[str, float] = field(default_factory=dict)
    outcome: str = ""
    error: str = ""
    text: str = ""
    ok: float | None = None
    held: float | None = None
    ended: float | None = None
    lost: bool = False
    done: float | None = None
    skipped: float | None = None
    fails: bool = False
    fences: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"operation {self.number} of process {self.process} ({self.kind} {', '.join(self.names)})"


@dataclass
class Run:
    """The contents of a history."""

    plan: Plan
    ops: list[RecordedOperation] = field(default_factory=list)
    faults: list[Made] = field(default_factory=list)
    lags: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    exits: dict[str, float] = field(default_factory=dict)
    evicted: dict[str, float] = field(default_factory=dict)

    def fault_near(self, since: float, until: float, shared: bool, process: str = "") -> list[Made]:
        """Return the faults in a time: of the store or network, and, unless `shared`, of a process too."""
        return [
            made
            for made in self.faults
            if made.span.meets(since - LINGERS.get(made.name, 0.0), until)
            and (not made.of or not shared)
            and (not made.of or not process or made.of == process)
        ]

    def struck(self, since: float, until: float) -> float:
        """Return for how many seconds of a time there was a fault of the store or network; they don't overlap."""
        spans = [made.span for made in self.faults if not made.of and made.span.meets(since, until)]
        return sum(min(until, span.until) - max(since, span.since) for span in spans)

    def lag(self, process: str, since: float, until: float) -> float:
        """Return for how many seconds of a time a process did not run."""
        return sum(
            min(until, lag.until) - max(since, lag.since) for lag in self.lags[process] if lag.meets(since, until)
        )

    def busy(self, since: float, until: float) -> float:
        """Return the longest time in which a process that was not stopped did not run: the machine was busy."""
        stopped = {made.of for made in self.faults if made.name == "stop" and made.span.meets(since, until)}
        return max(
            (self.lag(process, since, until) for process in [*self.lags] if process not in stopped), default=0.0
        )


def understood(records: Iterable[Record]) -> Run:
    """Parse records.

    Args:
        records: the records, ordered by time.
    """
    run = Run(Plan(""))
    open_ops: dict[tuple[str, int], RecordedOperation] = {}
    for record in records:
        event, process, t = record["e"], record["p"], record["t"]
        if event == "plan":
            run.plan = Plan.from_json(record["plan"])
        elif event == "invoke":
            op = RecordedOperation(
                process, record["op"], tuple(record["names"]), record["kind"], record["units"], record["capacity"],
                record["timeout"], record["ttl"], t, fails=record.get("fails", False),
            )  # fmt: skip
            open_ops[process, op.number] = op
            run.ops.append(op)
        elif event == "fault":
            span, problem = Span(record["since"], t), record.get("problem", "")
            run.faults.append(Made(record["fault"], span, record["of"], record["loses"], problem))
        elif event == "evict":
            run.evicted[record["id"]] = t
        elif event == "lag":
            run.lags[process].append(Span(record["since"], t))
        elif (process, record.get("op")) in open_ops:
            _tell(open_ops[process, record["op"]], record)
        else:
            run.records[event].append(record)
            if event == "exit":
                told = [made.span.until for made in run.faults if made.name == "term" and made.of == record["of"]]
                run.exits[record["of"]] = min([t, *told])  # after that its threads may or may not run
    return run


def _tell(op: RecordedOperation, record: Record) -> None:
    """Store the facts of a record in its operation."""
    event, t = record["e"], record["t"]
    if event == "queued":
        op.queued[record["id"]] = t
    elif event == "ok":
        op.ok = op.held = op.ended = t
        op.outcome, op.fences, op.ids = "ok", tuple(record["fences"]), tuple(record["ids"])
    elif event in ("held", "over"):
        op.held = t
    elif event == "lost":
        op.lost = True
        op.outcome = op.outcome or event
        op.ended = op.ended or t
    elif event == "skipped":
        op.skipped = op.ended = t
        op.outcome = event
    elif event == "done":
        op.done = t
    elif event == "freed":  # of what holds nothing
        op.outcome = op.outcome or "ok"
        op.ended = op.ended or t
    elif event in ("fail", "unknown"):
        op.error, op.text = record.get("error", ""), record.get("text", "")
        op.outcome = op.outcome or event
        op.ended = op.ended or t

"""What a benchmark is made of: contestants, metrics, targets and scenarios, all of them rows of tables.

A new scenario is a module in `bench/scenarios/` with one `Scenario(...)`; a new contestant is one row in that
scenario's table. Nothing else has to change: the command, the report and the tests read the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
Raw = dict[str, float]
"""What one worker process measured: metric or intermediate figure by name."""
Facts = Mapping[str, str]
"""What a scenario's stage tells its workers, for example the URL of the server that it started."""


class Unavailable(Exception):
    """This contestant can't run here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Place:
    """Where one measurement happens.

    Args:
        folder: an empty folder of this measurement alone.
        name: the name of the lock.
        facts: what the scenario's stage said.
        closing: callbacks for the end of the worker process.
    """

    folder: Path
    name: str
    facts: Facts
    closing: ExitStack


@dataclass(frozen=True)
class Seat:
    """One worker process's place at the table.

    Args:
        place: where the measurement happens, the same for all workers of it.
        index: number of this worker, from 0.
        seconds: how long to measure, in seconds.
        round: number of the round, from 0; the seed of anything random.
        together: barrier of all workers of the measurement.
        other: pipe to the other worker when there are exactly two.
    """

    place: Place
    index: int
    seconds: float
    round: int
    together: Barrier
    other: Connection | None = None


@dataclass(frozen=True)
class Contestant(Generic[T]):
    """One way to lock, in one scenario.

    Args:
        name: shown in the report, unique in its scenario.
        make: builds what the scenario's `work` takes, inside the worker process.
        needs: raises `Unavailable` if something is not installed; called in the parent.
        role: ours, a peer, a limit (what the machine can do) or a control (shows that the scenario can see a
            broken lock).
        notes: what is special about it.
        poll: seconds between two looks of a waiter that polls, 0 if it is woken.
    """

    name: str
    make: Callable[[Place], T]
    needs: Callable[[], None] = lambda: None
    role: Literal["ours", "peer", "limit", "control"] = "peer"
    notes: str = ""
    poll: float = 0.0


@dataclass(frozen=True)
class Metric:
    """One figure of a scenario.

    Args:
        key: its name in the JSON.
        label: its heading in the report, with the unit.
        better: which direction is better; "-" for figures that are only told.
        fold: how the rounds become one figure.
    """

    key: str
    label: str
    better: Literal["low", "high", "-"] = "low"
    fold: Literal["median", "sum"] = "median"


@dataclass(frozen=True)
class Beside:
    """A column that compares each contestant with one of them.

    Args:
        peer: name of the contestant to compare with.
        how: "times": how many times better than the peer; "minus": the difference in the metric's unit.
    """

    peer: str
    how: Literal["times", "minus"] = "times"


@dataclass(frozen=True)
class Target:
    """What the issue asks for, judged beside the measured figure of the same run.

    Args:
        says: the target in words.
        ours: the contestant that it is about.
        metric: the metric that it is about.
        bound: the number to reach.
        least: True for "at least", False for "at most".
        beside: judge the comparison with this peer instead of the figure itself.
    """

    says: str
    ours: str
    metric: str
    bound: float
    least: bool = False
    beside: Beside | None = None


@contextmanager
def bare_stage() -> Iterator[Facts]:
    """The stage of a scenario that needs nothing but a folder."""
    yield {}


@dataclass(frozen=True)
class Scenario(Generic[T]):
    """One thing to measure, and who takes part.

    Args:
        key: its name on the command line and in the JSON.
        title: heading of the report.
        groups: words of the command line that include it.
        contestants: the table.
        metrics: the figures; the first is the main one, which `beside` compares.
        work: measures one contestant in a worker process.
        fold: makes one set of figures of what the workers returned.
        workers: number of worker processes.
        beside: columns of comparison.
        targets: what to reach.
        stage: what stands around all measurements, for example a server; entered once, in the parent.
    """

    key: str
    title: str
    groups: frozenset[str]
    contestants: tuple[Contestant[T], ...]
    metrics: tuple[Metric, ...]
    work: Callable[[Contestant[T], Seat], Raw]
    fold: Callable[[Sequence[Raw]], Raw]
    workers: int = 1
    beside: tuple[Beside, ...] = ()
    targets: tuple[Target, ...] = ()
    stage: Callable[[], AbstractContextManager[Facts]] = bare_stage

    def contestant(self, name: str) -> Contestant[T]:
        """Find a contestant by its name."""
        return next(one for one in self.contestants if one.name == name)

    def metric(self, key: str) -> Metric:
        """Find a metric by its key."""
        return next(one for one in self.metrics if one.key == key)


@dataclass
class Outcome:
    """What became of one contestant, and its figures by metric and round."""

    status: Literal["ok", "not installed", "failed", "left out"] = "ok"
    why: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What became of one scenario: the outcome of each contestant by name."""

    scenario: Scenario[Any]
    outcomes: dict[str, Outcome]

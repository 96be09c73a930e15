"""The parts of a benchmark: contestants, metrics, targets and scenarios, all of them rows of tables.

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
"""The results of one worker process: metrics or intermediate figures, by name."""
Facts = Mapping[str, str]
"""Facts from a scenario's stage for its workers, for example the URL of the server that it started."""


class Unavailable(Exception):
    """This contestant can't run here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Place:
    """The surroundings of one measurement.

    Args:
        folder: an empty folder for this measurement alone.
        name: the name of the lock.
        facts: the facts from the scenario's stage.
        closing: callbacks for the end of the worker process.
    """

    folder: Path
    name: str
    facts: Facts
    closing: ExitStack


@dataclass(frozen=True)
class Seat:
    """The parameters of one worker process.

    Args:
        place: the surroundings, the same for all workers of a measurement.
        index: the number of this worker, from 0.
        seconds: the duration of the measurement.
        round: the number of the round, from 0; also the seed of random choices.
        together: a barrier for all workers of the measurement.
        other: a pipe to the other worker, if there are exactly two.
    """

    place: Place
    index: int
    seconds: float
    round: int
    together: Barrier
    other: Connection | None = None


@dataclass(frozen=True)
class Contestant(Generic[T]):
    """One kind of lock in one scenario.

    Args:
        name: the name in the report, unique in its scenario.
        make: makes the argument of the scenario's `work`, inside the worker process.
        needs: raises `Unavailable` if something is not installed; called in the parent.
        role: ours, a peer, a limit (the best that the machine can do) or a control (shows that the scenario detects a
            broken lock).
        notes: remarks for the report.
        poll: seconds between two polls of a waiter; 0 if it is woken.
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
        better: the better direction; "-" for figures that are only reported.
        fold: how the rounds are combined into one figure.
    """

    key: str
    label: str
    better: Literal["low", "high", "-"] = "low"
    fold: Literal["median", "sum"] = "median"


@dataclass(frozen=True)
class Beside:
    """A column that compares each contestant with one of them.

    Args:
        peer: name of the contestant to compare with, by how many times better it is.
    """

    peer: str


@dataclass(frozen=True)
class Target:
    """A target, compared with the measured figure of the same run.

    Args:
        says: the target as text.
        ours: the contestant.
        metric: the metric.
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
    """The stage of a scenario that needs only a folder."""
    yield {}


@dataclass(frozen=True)
class Scenario(Generic[T]):
    """One measurement, with its contestants.

    Args:
        key: its name on the command line and in the JSON.
        title: the heading in the report.
        groups: words of the command line that include it.
        contestants: the table of contestants.
        metrics: the figures; the first is the main one, which `beside` compares.
        work: measures one contestant in a worker process.
        fold: combines the workers' results into one set of figures.
        workers: the number of worker processes.
        beside: the columns of comparison.
        targets: the targets.
        stage: a context manager around all measurements, for example a server; entered once, in the parent.
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
    """The result of one contestant: its status, and its figures by metric and round."""

    status: Literal["ok", "not installed", "failed"] = "ok"
    why: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The result of one scenario: the outcome of each contestant, by name."""

    scenario: Scenario[Any]
    outcomes: dict[str, Outcome]

"""Runs scenarios: contestants interleaved round by round, each measurement in new worker processes."""

from __future__ import annotations

import math
import multiprocessing
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from bench.model import Contestant, Facts, Outcome, Place, Raw, Result, Scenario, Seat, Unavailable

# Not fork: a forked child has the parent's imports, and perhaps locks of its threads.
PROCESSES: SpawnContext = multiprocessing.get_context("spawn")
GRACE = 45.0  # seconds that a measurement may take beyond ten times its budget
LOCK_NAME = "bench.lock"


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        rounds: the number of rounds; in each, every contestant is measured once.
        seconds: the duration of one measurement.
        say: is called with lines of progress.
    """

    rounds: int = 5
    seconds: float = 1.0
    say: Callable[[str], None] = lambda line: None


@dataclass(frozen=True)
class Job:
    """The parameters of a worker process; the contestant is given by name, because factories can't be pickled."""

    scenario: str
    contestant: str
    folder: str
    facts: dict[str, str]
    index: int
    seconds: float
    round: int


def run(scenario: Scenario[Any], options: Options) -> Result:
    """Measure all contestants of a scenario, A B C, A B C, ...

    Returns:
        The outcome of each contestant; a missing or failing one does not stop the others.
    """
    outcomes = {contestant.name: attendance(contestant) for contestant in scenario.contestants}
    try:
        with scenario.stage() as facts:
            for number in range(options.rounds):
                for name, outcome in outcomes.items():
                    if outcome.status == "ok":
                        options.say(f"{scenario.key}: round {number + 1} of {options.rounds}: {name}")
                        measure(scenario, scenario.contestant(name), number, facts, options, outcome)
    except Unavailable as missing:
        outcomes = {name: Outcome("not installed", str(missing)) for name in outcomes}
    return Result(scenario, outcomes)


def attendance(contestant: Contestant[Any]) -> Outcome:
    """Check whether a contestant can take part."""
    try:
        contestant.needs()
    except Unavailable as missing:
        return Outcome("not installed", str(missing))
    return Outcome()


def measure(
    scenario: Scenario[Any],
    contestant: Contestant[Any],
    number: int,
    facts: Facts,
    options: Options,
    outcome: Outcome,
) -> None:
    """Measure one contestant once, and record its figures or its failure."""
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        jobs = [
            Job(scenario.key, contestant.name, folder, dict(facts), index, options.seconds, number)
            for index in range(scenario.workers)
        ]
        try:
            figures = scenario.fold(crew(jobs, limit_for(options.seconds)))
        except Unavailable as missing:
            outcome.status, outcome.why = "not installed", str(missing)
        except Failure as failure:
            outcome.status, outcome.why = "failed", str(failure)
        else:
            for key, value in figures.items():
                outcome.rounds.setdefault(key, []).append(value)


def limit_for(seconds: float) -> float:
    """Seconds after which a measurement with that budget counts as hung."""
    return GRACE + 10 * seconds


class Failure(Exception):
    """A measurement failed or hung; the message says how."""


def crew(jobs: Sequence[Job], limit: float) -> list[Raw]:
    """Run the workers of one measurement at the same time.

    Args:
        jobs: one for each worker.
        limit: seconds after which the measurement counts as hung.

    Returns:
        The results of the workers, in the order of the jobs.

    Raises:
        Failure: a worker raised, died or hung.
        Unavailable: a requirement of a worker is missing.
    """
    together = PROCESSES.Barrier(len(jobs), timeout=limit)
    between: tuple[Connection | None, ...] = PROCESSES.Pipe() if len(jobs) == 2 else (None,) * len(jobs)
    ends: list[Connection] = []
    processes: list[SpawnProcess] = []
    try:
        for job, other in zip(jobs, between, strict=True):
            here, there = PROCESSES.Pipe(duplex=False)
            process = PROCESSES.Process(target=worker, args=(job, together, other, there), daemon=False)
            process.start()
            there.close()
            ends.append(here)
            processes.append(process)
        for connection in between:
            if connection is not None:
                connection.close()
        figures = gather(ends, limit)
    except BaseException:
        # The remaining workers hang in a lock or at the barrier.
        dismiss(processes, wait_limit=0.0)
        raise
    dismiss(processes, wait_limit=10.0)
    return figures


def gather(ends: Sequence[Connection], limit: float) -> list[Raw]:
    """Collect the workers' figures; the first failure ends the measurement."""
    deadline = time.monotonic() + limit
    found: dict[int, Raw] = {}
    open_ends: list[Connection] = list(ends)
    while open_ends:
        ready = wait(open_ends, max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Failure(f"no answer within {limit:.0f} s")
        for end in open_ends[:]:
            if end in ready:
                open_ends.remove(end)
                found[ends.index(end)] = heard(end)
    return [found[index] for index in range(len(ends))]


def heard(end: Connection) -> Raw:
    """Receive one worker's answer."""
    try:
        kind, answer = end.recv()
    except EOFError:
        raise Failure("a worker process died without an answer") from None
    if kind == "unavailable":
        raise Unavailable(answer)
    if kind == "error":
        raise Failure(answer)
    figures: Raw = answer
    return figures


def dismiss(processes: Sequence[SpawnProcess], wait_limit: float) -> None:
    """Wait some seconds for the workers to end, and kill the others."""
    deadline = time.monotonic() + wait_limit
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()


def worker(job: Job, together: Barrier, other: Connection | None, answer: Connection) -> None:
    """Measure in this process and send the figures: the target of each worker process."""
    # The scenarios are imported here because they import this package's other modules.
    from bench.scenarios import by_key

    scenario = by_key(job.scenario)
    # Ends a worker that hangs in a lock after the parent was killed.
    signal.alarm(math.ceil(2 * limit_for(job.seconds)))
    try:
        with ExitStack() as closing:
            place = Place(Path(job.folder), LOCK_NAME, job.facts, closing)
            seat = Seat(place, job.index, job.seconds, job.round, together, other)
            figures = scenario.work(scenario.contestant(job.contestant), seat)
        answer.send(("figures", figures))
    except Unavailable as missing:
        answer.send(("unavailable", str(missing)))
    except KeyboardInterrupt:
        return
    except BaseException as error:
        traceback.print_exc(file=sys.stderr)
        # Send the error before breaking the barrier, which makes the other workers answer too.
        answer.send(("error", f"{type(error).__name__}: {error}"))
        together.abort()

"""The worker processes of both versions, and the measurement of a row with them."""

from __future__ import annotations

import itertools
import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.against.places import VERSIONS, Places, clean
from bench.against.rows import Measured, Row
from tests.servers import Missing

NUMBERS = itertools.count(1)  # of crews: each locks its own names, since fresh names must be unused
WORKER = Path(__file__).with_name("worker.py")
ROUNDS_OF_A_CREW = 5  # then new processes: one can be some per cent slower than another during its whole life
SOON = 0.02  # seconds until all processes of a round begin, so that each has received the message


@dataclass(frozen=True)
class Options:
    """The options of a measurement.

    Args:
        rounds: the number of counted rounds; in each, both versions are measured twice, for half the time.
        seconds: how long each version is measured in a round.
        say: is called with lines of progress.
    """

    rounds: int
    seconds: float
    say: Callable[[str], None]


class Broken(Exception):
    """A worker process failed; the message says how."""


class Worker:
    """One process of a version, which waits for commands.

    Args:
        python: the interpreter of the version's environment.
    """

    def __init__(self, python: Path) -> None:
        self._pipe, theirs = Pipe()
        # -P: don't import from the worker's folder.
        command = [str(python), "-P", str(WORKER), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=clean())
        theirs.close()

    def tell(self, *words: object) -> None:
        """Send a command."""
        self._pipe.send(words)

    def hear(self) -> Any:
        """Wait for the answer to a command.

        Raises:
            Broken: the process failed.
        """
        try:
            word, answer = self._pipe.recv()
        except EOFError:
            raise Broken(f"a worker process ended without an answer: {self._process.wait()}") from None
        if word == "error":
            raise Broken(answer)
        return answer

    def close(self) -> None:
        """Kill the process; its files and servers end with this run."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class Crew:
    """Some processes of one version, started before they are measured.

    Args:
        version: "old" or "new".
        python: the interpreter of its environment.
        size: the number of processes.
        closing: ends the processes.

    Attributes:
        compiled: the compiled parts that its version has.
    """

    def __init__(self, version: str, python: Path, size: int, closing: ExitStack) -> None:
        self.version = version
        self._number = next(NUMBERS)
        self._workers = [Worker(python) for _ in range(size)]
        for worker in self._workers:
            closing.callback(worker.close)
        folders = [worker.hear() for worker in self._workers]
        found, self.compiled = folders[0]
        if not Path(found).is_relative_to(python.parents[1]):
            raise Broken(f"the {version} version was imported from {found}")

    def open(self, row: Row, url: str) -> None:
        """Let the processes of a row connect, one after the other, and take the lock for the first time."""
        for worker in self._workers:
            worker.tell("open", row.kind, url, f"{self.version}-{self._number}")
            worker.hear()

    def measure(self, seconds: float) -> float:
        """Measure one round; return the microseconds for each turn."""
        start = time.monotonic() + SOON
        for worker in self._workers:
            worker.tell("measure", start, start + seconds)
        rates: list[float] = [worker.hear() for worker in self._workers]
        rate = sum(rates)
        if not rate:
            raise Broken(f"the {self.version} version took the lock not once in {seconds:g} s")
        return 1e6 / rate

    def close(self) -> None:
        """Let the processes close the row."""
        for worker in self._workers:
            worker.tell("close")
            worker.hear()


def measured(rows: Sequence[Row], pythons: Mapping[str, Path], places: Places, options: Options) -> list[Measured]:
    """Measure rows one after the other, each with its own processes."""
    answers = []
    for row in rows:
        options.say(f"{row.name}: {options.rounds} rounds of {options.seconds:g} s for each version")
        answers.append(found := Measured(row))
        try:
            for begun in range(0, options.rounds, ROUNDS_OF_A_CREW):
                with ExitStack() as closing:
                    crews = [Crew(version, pythons[version], row.processes, closing) for version in VERSIONS]
                    if not begun and crews[0].compiled != crews[1].compiled:
                        options.say(f"compiled parts differ: {crews[0].compiled} and {crews[1].compiled}")
                    for crew in crews:
                        crew.open(row, places.url(row.store, crew.version))
                    measure(found, crews, min(ROUNDS_OF_A_CREW, options.rounds - begun), options.seconds)
                    for crew in crews:
                        crew.close()
        except Missing as missing:
            answers[-1] = Measured(row, missing=str(missing))
        except Broken as broken:
            answers[-1] = Measured(row, error=str(broken))
    return answers


def measure(found: Measured, crews: Sequence[Crew], rounds: int, seconds: float) -> None:
    """Measure old new new old or new old old new in each round, at random; the first round is a warm-up."""
    for number in range(rounds + 1):
        order = random.sample(crews, 2)
        took: dict[str, list[float]] = {version: [] for version in VERSIONS}
        for crew in (*order, *reversed(order)):
            took[crew.version].append(crew.measure(seconds / 2))
        if number:
            found.old.append(fmean(took["old"]))
            found.new.append(fmean(took["new"]))

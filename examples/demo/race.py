"""The processes of the demo: students and administrators who change the same few books at the same time."""

import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

from examples.demo.library import BookLibrary

Role = Literal["student", "administrator"]

# What a web request does between reading its row and saving it (checks, a form, a mail), in seconds.
WORK_SECONDS = (0.002, 0.006)

# With 32 people at one book the line is about 1 s long; a wait of 5 s means a fault, and is reported.
LOCK_TIMEOUT = 5.0

_START_SECONDS = 30.0
_STOP_SECONDS = 1.0
_TICK_SECONDS = 0.05


class RaceFailed(Exception):
    """A process of the demo died, failed or did not finish, so that its round says nothing."""


@dataclass(frozen=True, slots=True)
class RacePlan:
    """What both rounds have in common.

    Args:
        students, administrators: processes of each role.
        books: books that they share.
        updates: updates that a round makes in all, dealt out evenly.
        seconds: the longest that a round may last; it ends with fewer updates then.
    """

    students: int
    administrators: int
    books: int
    updates: int
    seconds: float

    def shares(self) -> list[tuple[Role, int]]:
        """Return, for each process, its role and how many updates it makes."""
        students: list[Role] = ["student"] * self.students
        roles = students + ["administrator"] * self.administrators
        each, over = divmod(self.updates, len(roles))
        return [(role, each + (number < over)) for number, role in enumerate(roles)]


@dataclass(frozen=True, slots=True)
class RaceStore:
    """Where the locks of the second round live: a store's URL, and a namespace of this run's own."""

    url: str = field(repr=False)  # it may have a password
    namespace: str


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to; times in seconds."""

    locked: bool
    updates: int
    lost_status: int
    lost_name: int
    seconds: float
    longest_wait: float

    @property
    def lost(self) -> int:
        """Updates that were saved with success and are not in the final rows."""
        return self.lost_status + self.lost_name

    @property
    def rate(self) -> float:
        """Updates per second."""
        return self.updates / self.seconds


@dataclass(frozen=True, slots=True)
class _Task:
    """One process's part of a round; sent to it when it starts."""

    number: int
    role: Role
    updates: int
    books: int
    seconds: float
    database: Path
    store: RaceStore | None


@dataclass(slots=True)
class _Worker:
    """A process as its parent sees it. `pipe` brings "ready", then "done" or what went wrong."""

    name: str
    process: SpawnProcess
    pipe: Connection

    def expect(self, word: str) -> None:
        """Receive the next message; raises RaceFailed unless it is `word`."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(_STOP_SECONDS)
            raise RaceFailed(f"{self.label} died in the middle of the round: {self._ending()}") from None
        if message != word:
            raise RaceFailed(f"{self.label} failed: {message}")

    @property
    def label(self) -> str:
        return f"{self.name} (process {self.process.pid})"

    def _ending(self) -> str:
        code = self.process.exitcode
        if code is None:
            return "it closed its pipe and hangs"
        return f"killed by signal {-code}" if code < 0 else f"exit status {code}"


def run_round(plan: RacePlan, database: Path, store: RaceStore | None, tick: Callable[[int], None]) -> Round:
    """Run one round with real processes and count what was lost.

    Args:
        plan: who does how much.
        database: file to make for the round's library.
        store: where the locks are; None runs the round without locks.
        tick: called now and then with the number of updates saved so far.

    Returns: the round's numbers.

    Raises: RaceFailed if a process dies, fails or does not finish. No process is left over, whatever happens.
    """
    try:
        return _run_round(plan, database, store, tick)
    except sqlite3.Error as error:
        raise RaceFailed(f"the library's database failed: {error}") from error


def _run_round(plan: RacePlan, database: Path, store: RaceStore | None, tick: Callable[[int], None]) -> Round:
    # This connection stays open all the round: SQLite locks all out to tidy up when the last one closes.
    with BookLibrary.create(database, plan.books) as library:
        with _started(plan, database, store) as workers:
            _gather(workers, "ready", _START_SECONDS, lambda: None)
            begun = time.monotonic()
            for worker in workers:
                # A worker that is gone by now is found, with its name, when its "done" is missing.
                _send(worker, "go")
            limit = plan.seconds + LOCK_TIMEOUT + _STOP_SECONDS
            _gather(workers, "done", limit, lambda: tick(library.updates()))
            seconds = time.monotonic() - begun
        tick(library.updates())
        return Round(
            locked=store is not None,
            updates=library.updates(),
            lost_status=library.lost("status"),
            lost_name=library.lost("name"),
            seconds=seconds,
            longest_wait=library.longest_wait(),
        )


def _gather(workers: list[_Worker], word: str, seconds: float, tick: Callable[[], None]) -> None:
    """Wait until every worker has said `word`, within `seconds`; raises RaceFailed otherwise."""
    missing = {worker.pipe: worker for worker in workers}
    deadline = time.monotonic() + seconds
    while missing:
        for pipe in wait(list(missing), timeout=_TICK_SECONDS):
            assert isinstance(pipe, Connection)
            missing.pop(pipe).expect(word)
        tick()
        if missing and time.monotonic() > deadline:
            late = ", ".join(worker.label for worker in missing.values())
            raise RaceFailed(f"not {word} within {seconds:g} s: {late}")


@contextmanager
def _started(plan: RacePlan, database: Path, store: RaceStore | None) -> Iterator[list[_Worker]]:
    """Start the processes; on leaving, stop the ones that still run."""
    workers: list[_Worker] = []
    try:
        with _no_interrupts():
            for number, (role, updates) in enumerate(plan.shares()):
                task = _Task(number, role, updates, plan.books, plan.seconds, database, store)
                workers.append(_start(task))
        yield workers
    finally:
        _stop(workers)


def _start(task: _Task) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(task, theirs), daemon=True)
    try:
        process.start()
    except OSError as error:
        ours.close()
        raise RaceFailed(f"cannot start a process, try fewer people: {error}") from error
    finally:
        theirs.close()
    return _Worker(f"{task.role} {task.number + 1}", process, ours)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold back SIGINT here, and for good in processes started meanwhile: Ctrl-C is for the parent."""
    # Starting the tracker, which the first process would do, lets SIGINT through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(workers: list[_Worker]) -> None:
    """End all processes: by closing their pipes, which they look at between updates, then by force."""
    for worker in workers:
        worker.pipe.close()
    try:
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()


def _send(worker: _Worker, word: str) -> None:
    with suppress(OSError):
        worker.pipe.send(word)


def _work(task: _Task, pipe: Connection) -> None:
    """Be one student or administrator; the target of each process."""
    outcome = "done"
    try:
        with BookLibrary(task.database) as library, ExitStack() as stack:
            section = _sections(task.store, stack)
            pipe.send("ready")
            pipe.recv()
            _update_books(task, library, section, stopped=pipe.poll)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    # A parent that is gone or has given up has closed the pipe, and needs no answer.
    with suppress(OSError):
        pipe.send(outcome)


def _sections(store: RaceStore | None, stack: ExitStack) -> Callable[[int], AbstractContextManager[object]]:
    """Return what guards a book: its lock, or nothing. This is all the difference between the rounds."""
    if store is None:
        return lambda book_id: nullcontext()
    import interlock

    locks = stack.enter_context(interlock.connect(store.url, namespace=store.namespace))
    return lambda book_id: locks.lock(f"book:{book_id}", timeout=LOCK_TIMEOUT)


def _update_books(
    task: _Task,
    library: BookLibrary,
    section: Callable[[int], AbstractContextManager[object]],
    stopped: Callable[[], bool],
) -> None:
    """Make the task's updates, until they are done, the time is over or `stopped()` is true."""
    # The same books in the same order and the same work in both rounds.
    chance = random.Random(task.number)
    end = time.monotonic() + task.seconds
    for visit in range(task.updates):
        if stopped() or time.monotonic() > end:
            return
        # Everybody asks for the new arrival first, so even the shortest round has a conflict.
        book_id = 1 if visit == 0 else chance.randint(1, task.books)
        asked = time.monotonic()
        with section(book_id):
            waited = time.monotonic() - asked
            book = library.get(book_id)
            time.sleep(chance.uniform(*WORK_SECONDS))
            changed = book.lend_or_return() if task.role == "student" else book.rename()
            library.save(book, changed, waited)

"""The lines in a folder, as one queue has them open: a step store for its threads or tasks.

A step is done at once under the guard of its line, which is held for microseconds.  A queue has one liveness pipe,
a set of wake-up pipes and one descriptor for each name, as if it were a process of its own.  They are closed with it,
but no pipe under somebody who still waits at it.
"""

import contextlib
import os
import resource
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from interlock.core.claims import MICROS, SEPARATOR, USING, Check
from interlock.core.errors import StoreError
from interlock.core.line import (
    GONE,
    NOBODY,
    Clock,
    Decide,
    Line,
    Origin,
    Place,
    Step,
    adopt,
    complete,
    enter,
    is_nothing,
    kept,
    leave,
    live,
    look,
    record_in,
    renew,
)
from interlock.remote.waiters import Waiters
from interlock.runtime import clock
from interlock.runtime.process import HOST, checked_pid, in_forked_child, pid
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.linefile import LineFile, give_turn
from interlock.stores.files.liveness import Liveness, WakeupPipe
from interlock.stores.files.machine import MarkerTaken
from interlock.stores.files.opening import MOST_BYTES, WITHIN_A_STEP, NotOurs, failed, failing, read_file
from interlock.stores.files.plan import Action, RecordWrite, Tell, actions, dead_among, line_of, watched_by
from interlock.stores.files.slots import DONE_AT, HEAD_MOST, Slot, file_name, key_in, micros_in, slots_in, slots_start

MOST_OPEN = 256  # files of names
SWEEP = 50  # names that are looked at when a process connects
OLD = 60.0  # seconds for which a name was not used, after which a process that connects may remove its file
TRUST = 0.02  # seconds for which a liveness pipe is taken to be still in its folder
CLOSED = "this connection was closed: connect again"
Q = TypeVar("Q")


class WaitsHere(Protocol):
    """What wakes a waiter of this queue.

    Attributes:
        pipe: at which others tell it.
    """

    pipe: WakeupPipe

    def tell(self, message: object = None) -> None:
        """Wake the waiter."""


class FileSteps:
    """The lines of one folder.

    Args:
        folder: the folder, ready to keep locks; left when this is closed.

    Attributes:
        waiters: the waiting claims.
        liveness: of this queue; others see it from its first claim on.
        lines: what is open, by key.
        home: this process, as people see it.
        closed: True if nothing is open any more.
        trusted: until when the liveness pipe is taken to be still in its folder.
    """

    look_again = 1.0  # seconds; a safety net, every hand-over and every death is told

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.liveness = Liveness(folder.alive, folder.mend)
        self.lines: dict[str, LineFile] = {}
        self.home = f"{HOST} {pid()}"
        self.waiters = Waiters()
        self.trusted = 0.0
        self._mutex = threading.RLock()  # re-entrant: a signal handler may come while its thread opens something
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_open = min(MOST_OPEN, soft // 4) if soft > 0 else MOST_OPEN
        self._waiting = 0
        self.closed = self._ending = False

    # -- one step ---------------------------------------------------------------------------------------

    def step(self, key: str, decide: Decide, *args: Any) -> Step | None:
        """Do a step; as `AsyncSteps.step`, without waiting.

        Raises:
            StoreError: the line can't be read or written; or a signal handler comes in the middle of a step.
        """
        if decide is look:
            return self._look(key)
        if (self.closed or pid() != checked_pid()) and decide in (leave, complete, renew):
            # They ended with the liveness pipe; or they are the parent's of a fork that was not told to us.
            return Step(None, [GONE] * len(args[0]) if decide is renew else False)
        try:
            line = self.lines.get(key) or self._line(key)
            with line.mutex:
                if line.inside:  # the mutex is re-entrant: this is the same thread
                    raise StoreError(WITHIN_A_STEP)
                line.inside = True
                try:
                    return self._guarded(line, decide, args)
                finally:
                    try:
                        line.unguard()
                    except BaseException:
                        line.unguard()  # an interrupt came in it, perhaps before it did anything
                        raise
                    finally:
                        line.inside = False
        except MarkerTaken:
            return None
        except OSError as error:
            raise failed(f"the line of {key.partition(SEPARATOR)[2]!r} can't be read or written", error) from error

    def _guarded(self, line: LineFile, decide: Decide, args: tuple[Any, ...]) -> Step | None:
        """Do a step of a line; the guard is given back by the caller."""
        if decide is renew:
            line.trusted = self.trusted = 0.0  # it asks whether all is still in the folder
        data = line.guard()
        if line.lost:
            line.lost, self.trusted = False, 0.0
        if data is None or not (decide in (leave, complete) or self.trust()):
            return None
        liveness = self.liveness
        slots = line.slots(data)
        lease = int(clock.now() * MICROS)
        stamp = int(clock.time_of_day() * MICROS)
        done = micros_in(data, DONE_AT)
        if 0 < done <= stamp:  # it is over: compiled code takes lines without one
            line.perform(RecordWrite(0))
            done = 0
        before = line_of(slots, done, lease)
        waiter: Any = None
        ids: Sequence[str] = ()
        if decide is enter:
            claim, _, *others = args
            waiter = self.waiters.by_id.get(claim.id)
            ids = (claim.id,)
            channel = "" if waiter is None else self.reachable(waiter)
            args = (claim, Origin(self.home, channel, liveness.token), *others)
        elif decide is adopt and args[-1].alive:
            args = (*args[:-1], Origin(self.home, "", liveness.token))
            ids = args[:1]
        elif args:
            first = args[0]
            ids = (first,) if isinstance(first, str) else first or ()
        dead = dead_among(before.places, ids, liveness.is_alive) if before.places else NOBODY
        step = decide(before, Clock(lease, stamp, dead), *args)
        mine: list[Place] = []
        if decide is kept and step.answer:
            value = line.value_kept(done)
            if value is None:
                line.perform(RecordWrite(0))
            step = step._replace(answer=False if value is None else value)
        if step.line is not None:
            if decide is complete and step.answer:
                line.keep_value(step.line.done, args[-1])
            mine = self._perform(line, actions(slots, before, step, ids if decide is enter else ()), liveness)
            if not step.line.places:
                line.shorten(len(slots), step.line.top)
            if waiter is not None and isinstance(step.answer, Place) and step.answer.state != USING:
                liveness.watch(waiter.pipe, watched_by(step.line, claim.id))
        return step._replace(promoted=tuple(mine))

    def _perform(self, line: LineFile, todo: Sequence[Action], liveness: Liveness) -> list[Place]:
        """Do the writes of a step, and notify other processes; return the waiters to notify here.

        Others are told first: they wake up on another processor while this one tidies.  Threads of this process would
        only wait for the guard.
        """
        mine: list[Place] = []
        told = False
        for action in todo:
            if not isinstance(action, Tell):
                line.perform(action)
            elif action.place.alive == liveness.token:
                mine.append(action.place)
            elif action.place.channel:
                liveness.tell(action.place)
                told = True
        if told:
            line.unguard()
            give_turn()  # the kernel expects the writer of a pipe to sleep soon, and keeps the woken process waiting
        return mine

    def reachable(self, waiter: WaitsHere) -> str:
        """See that others can wake a waiter, before they are told where: a pipe whose name is gone is replaced."""
        liveness = self.liveness
        if not liveness.is_reachable(waiter.pipe):
            old, waiter.pipe = waiter.pipe, liveness.pipe()
            liveness.put_back(old)
            waiter.tell()  # what was written to the old one is not to be missed
        return str(waiter.pipe.number)

    def tell(self, promoted: Sequence[Place]) -> None:
        """Nothing: the step itself notifies all waiters."""

    def trust(self) -> bool:
        """See that others still find the liveness pipe; what is claimed while they do not is void.

        Returns:
            False if that is unknown now, because another process has the marker of the folder locked.
        """
        if clock.now() < self.trusted:
            return True
        if self.closed:
            raise StoreError(CLOSED)
        try:
            self.folder.stay()
            if not self.liveness.keep():
                self.waiters.wake_all()
        except MarkerTaken:
            return False
        self.trusted = clock.now() + TRUST
        return True

    # -- what is open -----------------------------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        """The calling process."""
        return Origin(self.home)

    def _line(self, key: str) -> LineFile:
        """Return the line of that key, kept open for the next time."""
        with self._mutex:
            if self.closed:
                raise StoreError(CLOSED)
            retired = [
                self.lines.pop(each) for each in [*islice(self.lines, max(0, len(self.lines) - self._most_open + 1))]
            ]
            line = self.lines.get(key)
            if line is None:
                line = self.lines[key] = LineFile(self.folder, key)
        for old in retired:
            self._retire(old)
        return line

    def _retire(self, line: LineFile) -> None:
        line.retired = True
        with line.mutex, contextlib.suppress(OSError, StoreError):
            try:
                self._tidy(line)
            finally:
                if not line.inside:  # else a signal handler opens another one, and the step goes on with this
                    line.shut()

    def _tidy(self, line: LineFile) -> bool:
        """Remove the file of a name in which nothing is to be remembered; under its mutex."""
        try:
            # A folder that was removed is not made again for this.
            data = line.guard() if not line.inside and line.is_intact() else None
            if data is None:
                return False
            return is_nothing(*self._settled(line.slots(data), micros_in(data, DONE_AT))) and line.discard()
        finally:
            if not line.inside:
                line.unguard()

    def _settled(self, slots: Sequence[Slot], done: int) -> tuple[Line, Clock]:
        """Return the line that a file says, with live places only, and the clock."""
        lease = int(clock.now() * MICROS)
        line = line_of(slots, done, lease)
        dead = {place.alive for place in line.places if place.alive and not self.liveness.is_alive(place.alive)}
        now = Clock(lease, int(clock.time_of_day() * MICROS), dead)
        return line._replace(places=live(line, now)), now

    def sweep(self, most: int = SWEEP) -> int:
        """Remove what the dead left: liveness pipes, and the files of names that were not used for a minute.

        Args:
            most: how many names to look at.

        Returns:
            How many names were removed.
        """
        self.liveness.sweep()
        removed = 0
        old = clock.time_of_day() - OLD
        with os.scandir(self.folder.lines) as entries:
            for entry in islice(entries, most):
                with contextlib.suppress(OSError, StoreError):  # the doctor names the problem
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        removed += self._sweep_line(entry.name)
        return removed

    def _sweep_line(self, name: str) -> bool:
        key = key_in(self._read(name, HEAD_MOST))
        if key is None or file_name(key) != name:
            return False
        line = LineFile(self.folder, key)
        with line.mutex:
            try:
                line.open()
                return self._tidy(line)
            finally:
                line.shut()

    # -- from outside, without the guard: nobody is held up by somebody who looks ---------------------------------

    def _read(self, name: str, most: int = MOST_BYTES) -> bytes:
        """Return what a file in lines/ says; nothing if it is no file of ours.

        Raises:
            StoreError: it can't be read.
        """
        with failing(f"the lines in {self.folder.path} can't be read"):
            try:
                return read_file(self.folder.lines, name, self.folder.sharing, most)
            except (FileNotFoundError, NotOurs):
                return b""  # the doctor names what does not belong there

    def _look(self, key: str) -> Step:
        data = self._read(file_name(key))
        line, now = self._settled(slots_in(data, slots_start(data), []), micros_in(data, DONE_AT))
        return Step(None, (*line.places, *record_in(line.done, now)), (), now.lease)

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with a text."""
        with failing(f"the lines in {self.folder.path} can't be read"):
            names = names_in(self.folder.lines)
        found = {key_in(self._read(name, HEAD_MOST)) for name in names}
        return sorted(key for key in found if key is not None and key.startswith(prefix))

    def doctor(self) -> list[Check]:
        """Find out whether the folder is fit to keep locks."""
        with failing("nothing can be found out"):
            from interlock.stores.files import checks  # programs that lock do not look: they start faster

        return checks.examine(self.folder, self.liveness)

    # -- who uses it ------------------------------------------------------------------------------------

    def begin_wait(self) -> WakeupPipe:
        """Return a wake-up pipe for a waiter.

        Raises:
            StoreError: none can be made.
        """
        if self._ending:
            raise StoreError(CLOSED)
        with failing(f"no pipe to wait at could be made in {self.folder.alive}"):
            pipe = self.liveness.pipe(checked=False)
        with self._mutex:
            self._waiting += 1
        return pipe

    def end_wait(self, pipe: WakeupPipe) -> None:
        """Take back the pipe of a waiter."""
        self.liveness.put_back(pipe)
        with self._mutex:
            self._waiting -= 1
        if self._ending:
            self.end()

    def end(self) -> None:
        """Close it as soon as there is no waiter: all of them leave their lines."""
        self._ending = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Remove the files of unused names, and close everything."""
        if pid() != checked_pid():
            return  # all is the parent's, and given up by now
        with self._mutex:
            self.closed, self._ending, self.trusted = True, True, 0.0
            lines = list(self.lines.values())
            self.lines.clear()
        for line in lines:
            self._retire(line)
        self.liveness.close()
        self.folder.leave()

    def forget(self) -> None:
        """In a forked child: close what is open without a word, since it is the parent's."""
        self._mutex = threading.RLock()
        self.closed, self._ending, self.trusted = True, True, 0.0
        for line in self.lines.values():
            line.shut()
        self.lines = {}
        self.liveness.forget()
        self.folder.leave()


_open: list[tuple["weakref.ref[Any]", FileSteps]] = []
"""The queues of this process, and what each has open."""


def close_dropped() -> None:
    """Close what queues had open that have gone without being closed."""
    for each in [*_open]:
        queue = each[0]()
        if queue is None or each[1].closed:
            _open.remove(each)
            each[1].close()


def queue_on(folder: Folder, kind: Callable[[FileSteps], Q]) -> Q:
    """Return a new queue.

    Args:
        folder: which it has from now on.
        kind: makes a queue.
    """
    steps = FileSteps(folder)
    queue = kind(steps)
    close_dropped()
    _open.append((weakref.ref(queue), steps))
    return queue


def _after_fork() -> None:
    for _, steps in _open:
        steps.forget()
    _open.clear()


in_forked_child(_after_fork)

"""The lines in a folder, as this process has them open: a step store for its threads and tasks.

A step is done at once under the guard of its line, which is held for microseconds.  A process has one liveness pipe,
one set of wake-up pipes and one descriptor for each name, however often it connects; they are closed with the last
connection, but no pipe under somebody who still waits at it.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

try:
    from resource import RLIMIT_NOFILE
    from resource import getrlimit as _limit

    getrlimit: Any = _limit
except ImportError:  # no such limit is known here
    getrlimit = None

from interlock.core.claims import MICROS, SEPARATOR, USING, Check
from interlock.core.errors import StoreError
from interlock.core.line import (
    GONE,
    NOBODY,
    Clock,
    Decide,
    Origin,
    Place,
    Step,
    adopt,
    complete,
    enter,
    kept,
    leave,
    live,
    look,
    record_in,
    renew,
)
from interlock.remote.waiters import Waiters
from interlock.runtime import clock
from interlock.runtime.process import HOST, WeakRegistry, checked_pid, in_forked_child, pid
from interlock.stores.files.folder import Folder, give_turn, names_in
from interlock.stores.files.linefile import LineFile
from interlock.stores.files.liveness import Liveness, WakeupPipe
from interlock.stores.files.machine import MarkerTaken
from interlock.stores.files.opening import MOST_BYTES, WITHIN_A_STEP, NotOurs, failed, failing, read_file
from interlock.stores.files.plan import Record, Tell, actions, dead_among, line_of, watched_by
from interlock.stores.files.slots import (
    DONE_AT,
    HEAD_MOST,
    Slot,
    file_name,
    key_in,
    micros_in,
    slots_in,
    slots_start,
    top_of,
)

MOST_OPEN = 256
SWEEP = 50  # names that are looked at when a process connects
OLD = 60.0  # seconds for which a name was not used, after which anybody who connects may remove its file
TRUST = 0.02  # seconds for which a liveness pipe is taken to be still in its folder
CLOSED = "this connection was closed: connect again"


class User(Protocol):
    """Who uses the lines: a queue, until it is closed or has gone; and who waits, until then."""

    closed: bool


Q = TypeVar("Q", bound=User)


class WaitsHere(User, Protocol):
    """What wakes a waiter of this process.

    Attributes:
        pipe: at which others tell it.
    """

    pipe: WakeupPipe

    def tell(self, message: Any = None) -> None:
        """Wake who waits."""


class FileSteps:
    """The lines of one folder.

    Args:
        folder: the folder, ready to keep locks.

    Attributes:
        waiters: who waits in this process.
        lines: what is open, by key.
        closed: True if nothing is open any more.
        ending: True if a queue was closed, so that whoever ends a wait may be the last.
    """

    look_again = 1.0  # seconds; a safety net, every hand-over and every death is told

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.closed = self.ending = False
        self.users: WeakRegistry[User] = WeakRegistry()
        self.waiters = Waiters()
        self.start_afresh()

    def start_afresh(self) -> None:
        """Have nothing open: at the beginning, and in a forked child."""
        self._mutex = threading.RLock()  # re-entrant: a signal handler may come while its thread opens something
        self.lines: dict[str, LineFile] = {}
        self._liveness: Liveness | None = None
        self.trusted = 0.0
        self.home = f"{HOST} {pid()}"
        soft = -1 if getrlimit is None else getrlimit(RLIMIT_NOFILE)[0]
        self._most_open = min(MOST_OPEN, soft // 4) if soft > 0 else MOST_OPEN

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
            try:
                return self._step(key, decide, args)
            except OSError as error:
                if error.errno != errno.EMFILE or not self.make_room():
                    raise
                return self._step(key, decide, args)
        except MarkerTaken:
            return None
        except OSError as error:
            raise failed(f"the line of {key.partition(SEPARATOR)[2]!r} can't be read or written", error) from error

    def _step(self, key: str, decide: Decide, args: tuple[Any, ...]) -> Step | None:
        line = self.lines.get(key) or self.line(key)
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

    def _guarded(self, line: LineFile, decide: Decide, args: tuple[Any, ...]) -> Step | None:
        """Do a step of a line; the guard is given back by the caller."""
        if decide is renew:
            line.trusted = self.trusted = 0.0  # it asks whether all is still in the folder
        data = line.guard()
        if line.lost:
            line.lost, self.trusted = False, 0.0
        if data is None or not (decide in (leave, complete) or self.trust()):
            return None
        liveness = self.liveness()
        slots = line.slots(data)
        lease = int(clock.now() * MICROS)
        stamp = int(clock.time_of_day() * MICROS)
        done = micros_in(data, DONE_AT)
        if 0 < done <= stamp:  # it is over: compiled code takes lines without one
            line.perform(Record(0))
            done = 0
        before = line_of(slots, done, 0, lease)
        if not before.top:
            before = before._replace(top=self.folder.floor())
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
                line.perform(Record(0))
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

    def _perform(self, line: LineFile, todo: Sequence[Any], liveness: Liveness) -> list[Place]:
        """Do the writes of a step, and tell other processes; return who is to be told here.

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
        liveness = self.liveness()
        if not liveness.is_reachable(waiter.pipe):
            old, waiter.pipe = waiter.pipe, liveness.pipe()
            liveness.put_back(old)
            waiter.tell()  # what was written to the old one is not to be missed
        return str(waiter.pipe.number)

    def tell(self, promoted: Sequence[Place]) -> None:
        """Nothing: other processes are told within the step, and who waits here no more need not be told."""

    def trust(self) -> bool:
        """See that others still find this process's liveness pipe; what is claimed while they do not is void.

        Returns:
            False if that can't be said now, because somebody has the marker of the folder locked.
        """
        if clock.now() < self.trusted:
            return True
        if self.closed:
            raise StoreError(CLOSED)
        try:
            self.folder.stay()
            if not self.liveness().keep():
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

    def liveness(self) -> Liveness:
        """Return this process's liveness in the folder, made with the first claim.

        Raises:
            StoreError: it can't be made; or the folder was closed.
        """
        liveness = self._liveness
        if liveness is None:
            with self._mutex:
                if self.closed:
                    raise StoreError(CLOSED)
                if self._liveness is None:
                    made = Liveness(self.folder.alive, self.folder.mend)
                    if self._liveness is None:
                        self._liveness = made
                    else:  # a signal handler was quicker
                        made.close()
                liveness = self._liveness
        return liveness

    def line(self, key: str) -> LineFile:
        """Return the line of that key, kept open for the next time."""
        retired: list[LineFile] = []
        with self._mutex:
            if self.closed:
                raise StoreError(CLOSED)
            line = self.lines.get(key)
            if line is None:
                most = max(0, len(self.lines) - self._most_open + 1)
                retired += [self.lines.pop(each) for each in [*islice(self.lines, most)]]
                line = self.lines[key] = LineFile(self.folder, key)
        for old in retired:
            self._retire(old)
        return line

    def make_room(self) -> bool:
        """Close the files of names without claims of this process; False if there are none."""
        with self._mutex:
            idle = [key for key, line in self.lines.items() if line.is_ours() and self._is_idle(line)]
            retired = [self.lines.pop(key) for key in idle]
            self._most_open = max(8, len(self.lines) + len(retired) // 2)
        for line in retired:
            self._retire(line)
        return bool(retired)

    def _is_idle(self, line: LineFile) -> bool:
        token = self.liveness().token
        slots = line.slots(os.pread(line.fd, MOST_BYTES, 0))
        return not any(isinstance(slot, Place) and slot.alive == token for slot in slots)

    def _retire(self, line: LineFile) -> None:
        line.retired = True
        with line.mutex, contextlib.suppress(OSError, StoreError):
            try:
                self._tidy(line)
            finally:
                if not line.inside:  # else a signal handler opens another one, and the step goes on with this
                    line.shut()

    def _tidy(self, line: LineFile) -> bool:
        """Remove the file of a name that nobody uses or waits for, and that has no record; under its mutex."""
        try:
            # A folder that was removed is not made again for this.
            data = line.guard() if not line.inside and line.is_intact() else None
            if data is None:
                return False
            slots = line.slots(data)
            if micros_in(data, DONE_AT) > clock.time_of_day() * MICROS or self._live(slots):
                return False
            return line.discard(top_of(slots))
        finally:
            if not line.inside:
                line.unguard()

    def _live(self, slots: Sequence[Slot]) -> tuple[Place, ...]:
        """Return the live places, in their order."""
        if not any(isinstance(slot, Place) for slot in slots):
            return ()
        lease = int(clock.now() * MICROS)
        line = line_of(slots, 0, 0, lease)
        tokens = {place.alive for place in line.places}
        with self._looking() as liveness:
            dead = {token for token in tokens if token and not liveness.is_alive(token)}
        return live(line, Clock(lease, 0, dead))

    @contextlib.contextmanager
    def _looking(self) -> Iterator[Liveness]:
        """See which processes live, if need be without a liveness pipe of one's own."""
        liveness = self._liveness
        if liveness is not None:
            yield liveness
            return
        liveness = Liveness(self.folder.alive, self.folder.mend, own=False)
        try:
            yield liveness
        finally:
            liveness.close_others()

    def sweep(self, most: int = SWEEP) -> int:
        """Remove what the dead left: liveness pipes, and the files of names that nobody has used for a minute.

        Args:
            most: how many names to look at.

        Returns:
            How many names were removed.
        """
        with self._looking() as liveness:
            liveness.sweep()
        removed = 0
        old = clock.time_of_day() - OLD
        with os.scandir(self.folder.lines) as entries:
            for entry in islice(entries, most):
                with contextlib.suppress(OSError, StoreError):  # the doctor names what stands in the way
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        removed += self._sweep_line(entry.name)
        return removed

    def _sweep_line(self, name: str) -> bool:
        key = self._key_of(name)
        if key is None or key in self.lines or file_name(key) != name:
            return False
        line = LineFile(self.folder, key)
        with line.mutex:
            try:
                line.open()
                return self._tidy(line)
            finally:
                line.shut()

    # -- from outside, without the guard: nobody is held up by somebody who looks ---------------------------------

    def _look(self, key: str) -> Step:
        try:
            data = read_file(self.folder.lines, file_name(key), self.folder.sharing)
        except (FileNotFoundError, NotOurs):
            data = b""  # the doctor names what does not belong there
        except OSError as error:
            raise failed(f"the lines in {self.folder.path} can't be read", error) from error
        slots = slots_in(data, slots_start(data), [])
        lease = int(clock.now() * MICROS)
        done = record_in(micros_in(data, DONE_AT), Clock(lease, int(clock.time_of_day() * MICROS)))
        return Step(None, (*self._live(slots), *done), (), lease)

    def _key_of(self, name: str) -> str | None:
        """Return the key of a line file, or None if it is none."""
        try:
            return key_in(read_file(self.folder.lines, name, self.folder.sharing, HEAD_MOST))
        except (FileNotFoundError, NotOurs):
            return None

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with a text."""
        try:
            found = [self._key_of(name) for name in names_in(self.folder.lines)]
        except OSError as error:
            raise failed(f"the lines in {self.folder.path} can't be read", error) from error
        return sorted({key for key in found if key is not None and key.startswith(prefix)})

    def doctor(self) -> list[Check]:
        """Find out whether the folder is fit to keep locks."""
        with failing("nothing can be found out"):
            from interlock.stores.files import checks  # programs that lock do not look: they start faster

        return checks.examine(self.folder, self.liveness(), self._places)

    def _places(self) -> list[Place]:
        """Return all claims that can be read."""
        found: list[Place] = []
        for name in names_in(self.folder.lines):
            with contextlib.suppress(OSError, NotOurs):
                data = read_file(self.folder.lines, name, self.folder.sharing)
                found += [slot for slot in slots_in(data, slots_start(data), []) if isinstance(slot, Place)]
        return found

    # -- who uses it ------------------------------------------------------------------------------------

    def begin_wait(self, waiter: WaitsHere) -> WakeupPipe:
        """Return a wake-up pipe for a waiter.

        Raises:
            StoreError: none can be made.
        """
        try:
            try:
                pipe = self.liveness().pipe()
            except OSError as error:
                if error.errno != errno.EMFILE or not self.make_room():
                    raise
                pipe = self.liveness().pipe()
        except OSError as error:
            raise failed(f"no pipe to wait at could be made in {self.folder.alive}", error) from error
        self.users.add(waiter)
        return pipe

    def end_wait(self, waiter: WaitsHere) -> None:
        """Take back the pipe of a waiter."""
        if self._liveness is not None:
            self._liveness.put_back(waiter.pipe)
        else:
            waiter.pipe.remove()
        if self.ending:
            close_if_unused(self)

    def is_used(self) -> bool:
        """Tell whether a queue is open, or somebody still waits."""
        return any(not user.closed for user in self.users)

    def close(self) -> None:
        """Remove the files of names that nobody uses any more, and close everything; nobody uses it any more."""
        self.trusted = 0.0
        with self._mutex:
            lines = list(self.lines.values())
            self.lines.clear()
        for line in lines:
            self._retire(line)
        liveness, self._liveness = self._liveness, None
        if liveness is not None:
            liveness.close()
        self.folder.leave()

    def forget(self) -> None:
        """In a forked child: the open files, the liveness pipe and the wake-up pipes are the parent's."""
        for line in self.lines.values():
            line.shut()
        if self._liveness is not None:
            self._liveness.forget()
        self.folder.start_afresh()
        self.start_afresh()


_mutex = threading.RLock()
_opened: list[FileSteps] = []


def open_steps(path: str, mode: int | None, allow: str) -> FileSteps:
    """Return what this process has open of a folder.

    Connections share what is open if they gave the same path, and it leads where it led when that was opened: who
    gave another path may be somewhere else as soon as a folder is moved, or a link in one of the paths is changed.
    What connections that were dropped had open is closed.

    Args:
        path, mode, allow: as for `Folder`.

    Raises:
        StoreError: the folder can't keep locks.
    """
    folder = Folder(path, mode, allow)
    with _mutex:
        where = folder.path, folder.inodes
        steps = next((each for each in _opened if (each.folder.path, each.folder.inodes) == where), None)
        if steps is None:
            steps = FileSteps(folder)
            _opened.append(steps)
    if steps.folder is not folder:
        folder.leave()
    for each in [*_opened]:
        if each is not steps:
            close_if_unused(each)
    return steps


def use(steps: FileSteps, where: tuple[str, int | None, str], kind: Callable[[FileSteps], Q]) -> tuple[Q, FileSteps]:
    """Return a new queue, and the lines that it uses.

    Args:
        steps: those that were used before; others if they were closed.
        where: as for `open_steps`.
        kind: makes a queue.
    """
    while True:
        with _mutex:
            if not steps.closed:
                queue = kind(steps)
                steps.users.add(queue)
                return queue, steps
        steps = open_steps(*where)


def end(steps: FileSteps, user: User) -> None:
    """Close a queue; with the last one, what is open."""
    user.closed = steps.ending = True
    close_if_unused(steps)


def close_if_unused(steps: FileSteps) -> None:
    """Close what a process has open of a folder if nobody uses it any more."""
    with _mutex:
        if steps.closed or steps.is_used():
            return
        steps.closed = True
        _opened[:] = [each for each in _opened if each is not steps]
    steps.close()


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for steps in _opened:
        steps.forget()


in_forked_child(_after_fork)

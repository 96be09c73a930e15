"""The step store of a queue on a folder.

A step is performed under the guard of its line, which is held for microseconds.  Each queue has its own liveness
pipe, wake-up pipes and open line files, like a separate process.  They are closed with the queue; a thread
or task that still waits at a wake-up pipe closes it.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from interlock.core.claims import MICROS, SEPARATOR, USING, Check
from interlock.core.errors import StoreError
from interlock.core.failures import closed
from interlock.core.line import (
    NO_TOKENS,
    RENEWAL_GONE,
    Line,
    Origin,
    QueuedClaim,
    StepResult,
    StoreTime,
    Transition,
    adopt,
    complete,
    enter,
    is_nothing,
    leave,
    live,
    look,
    read_record,
    record_in,
    renew,
)
from interlock.core.queue import Wakeable
from interlock.runtime import clock
from interlock.runtime.process import HOST, checked_pid, each_in_forked_child, pid
from interlock.runtime.waiters import Notifier
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import WITHIN_A_STEP
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.line_file import TRUST, LineFile, give_turn
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.open_file import MOST_BYTES, NotOurs
from interlock.stores.files.opening import failed, failing, read_file
from interlock.stores.files.slots import (
    DONE_AT,
    HEAD_MOST,
    Slot,
    file_name,
    head_of,
    key_in,
    micros_in,
    parse,
    raws_in,
)
from interlock.stores.files.system import system
from interlock.stores.files.wakeups import FileWaiter, Wakeups
from interlock.stores.files.write_plan import Action, RecordWrite, Tell, actions, dead_among, line_of, watched_by

MAX_OPEN_FILES = 256  # files of names
SWEEP = 50  # names that a process checks for removal when it connects
OLD = 60.0  # seconds without use, after which a process that connects may remove the file of a name
Q = TypeVar("Q")


class FileSteps(StepStore, Notifier):
    """The lines of one folder.

    Args:
        folder: the folder; `close` closes it.

    Attributes:
        waiters: the waiting claims.
        liveness: the liveness file of this queue, which is made at its first claim, and those of others.
        wakeups: the notifications of its waiters.
        lines: the open line files, by key.
        origin: the calling process.
        trusted: the time until which the last check that the liveness pipe is still in its folder is valid.
        verify: returns the function by which holders verify their claims, if there is a queue.
    """

    poll_after = 1.0  # seconds; a safety net, because every hand-over and every death wakes the waiter
    never_blocks = True
    origin: Origin

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.liveness = Liveness(folder.alive, folder.repair)
        self.lines: dict[str, LineFile] = {}
        self.origin = Origin(f"{HOST} {pid()}")
        self.wakeups = _wakeups_of(folder, self.liveness)
        self.waiters = self.wakeups.waiters
        self.trusted = 0.0
        self.verify: Callable[[], Callable[[str], object] | None] = lambda: None
        self._retired: set[LineFile] = set()
        self._round = 0.0  # the end of the time for which renewals trust the check at the start of their round
        self._mutex = threading.RLock()  # re-entrant, because a signal handler may interrupt its own thread here
        soft = system.max_open_files()
        self._most_open = min(MAX_OPEN_FILES, soft // 4) if soft > 0 else MAX_OPEN_FILES

    @property
    def notifier(self) -> Notifier:
        return self

    # -- one step ---------------------------------------------------------------------------------------

    def step(self, key: str, transition: Transition, *args: Any) -> StepResult | None:
        """Perform a step without waiting; see `StepStore.step`.

        Raises:
            StoreError: the file is unreadable or not writable, or a signal handler interrupted a step.
        """
        if (self.liveness.closed or pid() != checked_pid()) and transition in (leave, complete, renew):
            # The claims ended with the liveness pipe, or belong to the parent after a fork without Python's hooks.
            return StepResult(None, [RENEWAL_GONE] * len(args[0]) if transition is renew else False)
        try:
            if transition is look:
                return self._look(key)
            line = self.lines.get(key) or self._line(key)
            section = line.section
            with section.mutex:  # as `Section.entered`, which takes a microsecond
                if section.taken:
                    raise StoreError(WITHIN_A_STEP)
                section.taken = True
                try:
                    return self._guarded(line, transition, args)
                finally:
                    section.taken = False
                    line.unguard()
        except OSError as error:
            raise failed(f"Cannot read or write the file of {key.partition(SEPARATOR)[2]!r}", error) from error

    def _guarded(self, line: LineFile, transition: Transition, args: tuple[Any, ...]) -> StepResult | None:
        """Perform a step of a line; the caller releases the guard."""
        if transition is renew:  # it must notice removed files
            line.trusted = 0.0
            if clock.now() >= self._round:
                self.trusted = 0.0
        data = line.guard()
        if line.lost:
            line.lost, self.trusted = False, 0.0
        if data is None:
            return None
        if transition not in (leave, complete):
            self.trust()
        liveness = self.liveness
        slots = line.slots(data)
        lease = int(clock.now() * MICROS)
        stamp = int(clock.time_of_day() * MICROS)
        done = micros_in(data, DONE_AT)
        if 0 < done <= stamp:  # the record has expired; compiled code handles only lines without a record
            line.perform(RecordWrite(0))
            done = 0
        before = line_of(slots, done, lease)
        waiter: Wakeable | None = None
        first = args[0] if args else None
        ids: Sequence[str] = (first,) if isinstance(first, str) else first or ()
        if transition is enter:
            claim, _, *others = args
            waiter = self.waiters.by_id.get(claim.id)
            ids = (claim.id,)
            channel = waiter.channel() if isinstance(waiter, FileWaiter) else ""
            args = (claim, Origin(self.origin.process_name, channel, liveness.token), *others)
        elif transition is adopt and args[-1].liveness_token:
            args = (*args[:-1], Origin(self.origin.process_name, "", liveness.token))
        dead = dead_among(before.places, ids, liveness.is_alive) if before.places else NO_TOKENS
        step = transition(before, StoreTime(lease, stamp, dead), *args)
        after = step.line or before
        if transition is read_record and step.answer:
            value = self.folder.value_kept(line.name, done)
            if value is None:
                line.perform(RecordWrite(0))
            step = step._replace(answer=False if value is None else value)
        if transition is complete and step.answer:
            self.folder.keep_value(line.name, after.record_expires, args[-1])
        mine = self._perform(
            line, len(slots), actions(slots, before, step, ids if transition is enter else ()), after
        )
        if isinstance(waiter, FileWaiter) and isinstance(step.answer, QueuedClaim) and step.answer.state != USING:
            waiter.watch(watched_by(after, claim.id))
        return step._replace(promoted=tuple(mine))

    def _perform(self, line: LineFile, rows: int, todo: Sequence[Action], after: Line) -> list[QueuedClaim]:
        """Perform the writes of a step, and notify other processes; return waiters here.

        Other processes are notified during the step, because they wake on another processor.  Threads of this process
        would only wait for the mutex.
        """
        mine: list[QueuedClaim] = []
        notified = False
        for action in todo:
            if not isinstance(action, Tell):
                line.perform(action)
            elif action.place.liveness_token == self.liveness.token:
                mine.append(action.place)
            elif action.place.channel:
                self.wakeups.notify(action.place)
                notified = True
        if not after.places:
            line.shorten(rows, after.max_fence)
        if notified:
            line.unguard()
            give_turn()  # otherwise the kernel, which expects a pipe's writer to sleep soon, delays the woken process
        return mine

    def renew_many(self, ids_by_key: Mapping[str, Sequence[str]]) -> Mapping[str, StepResult]:
        """Check the folder once for many renewals, which check their own files only; renew nothing."""
        with contextlib.suppress(OSError, StoreError):  # each renewal checks again, and raises the error
            self.trusted = self._round = 0.0
            self.trust()
            self._round = self.trusted
        return {}

    def notify_others(self, promoted: Sequence[QueuedClaim]) -> None:
        """Do nothing: the step itself notifies waiters in other processes."""

    def trust(self) -> None:
        """Check that other processes find the liveness pipe: claims without one count as dead.

        Raises:
            StoreError: the connection is closed, or the folder is unusable.
        """
        if clock.now() < self.trusted:
            return
        if self.liveness.closed:
            raise closed()
        self.folder.stay()
        if not self.liveness.keep():
            self.waiters.wake_all()
            verify = self.verify()
            if verify is not None:
                verify("")
        self.trusted = clock.now() + TRUST

    # -- what is open -----------------------------------------------------------------------------------

    def _line(self, key: str) -> LineFile:
        """Return the line of a key, and keep it open."""
        with self._mutex:
            if self.liveness.closed:
                raise closed()
            for each in [*islice(self.lines, max(0, len(self.lines) - self._most_open + 1))]:
                self._retired.add(self.lines[each])
                del self.lines[each]
            line = self.lines.get(key)
            if line is None:
                line = self.lines[key] = LineFile(self.folder, key)
        self._retire_all()
        return line

    def new_line(self, key: str) -> LineFile | None:
        """Open the line of a key, for the compiled steps; return None if the step in Python must report an error."""
        with contextlib.suppress(OSError, StoreError):
            line = self._line(key)
            with line.section.entered():
                try:
                    line.guard()
                finally:
                    line.unguard()
            return line
        return None

    def _retire_all(self) -> None:
        """Close the lines that are not kept open; a later call closes a line whose step was interrupted."""
        for line in list(self._retired):
            self._retire(line)
            if line.fd < 0:
                self._retired.discard(line)

    def _retire(self, line: LineFile) -> None:
        """Close a line; remove its file if the name has neither claims nor a record."""
        line.retired = True
        with contextlib.suppress(OSError, StoreError), line.section.entered():  # else the step closes it
            try:
                data = None
                if line.is_intact():  # checked first, because a removed folder must not be created again for this
                    line.trusted = clock.now() + TRUST
                    data = line.guard()
                if data is not None and is_nothing(*self._settled(line.slots(data), micros_in(data, DONE_AT))):
                    line.discard()
            finally:
                line.unguard()

    def _settled(self, slots: Sequence[Slot], done: int) -> tuple[Line, StoreTime]:
        """Return the line of a file with its live claims only, and the clock."""
        lease = int(clock.now() * MICROS)
        line = line_of(slots, done, lease)
        dead = {
            place.liveness_token
            for place in line.places
            if place.liveness_token and not self.liveness.is_alive(place.liveness_token)
        }
        now = StoreTime(lease, int(clock.time_of_day() * MICROS), dead)
        return line._replace(places=live(line, now)), now

    def sweep(self) -> None:
        """Remove the pipes of dead processes, and some files unused for a minute."""
        self.liveness.sweep()
        old = clock.time_of_day() - OLD
        with os.scandir(self.folder.lines) as entries:
            for entry in islice(entries, SWEEP):
                with contextlib.suppress(OSError, StoreError):  # `doctor` reports the problem
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        self._sweep_line(entry.name)

    def _sweep_line(self, name: str) -> None:
        key = key_in(self._read(name, HEAD_MOST))
        if key is not None and file_name(key) == name:
            line = LineFile(self.folder, key)
            self._retired.add(line)
            line.open()
            self._retire_all()

    # -- reading without the guard, so that a reader never blocks a holder or waiter ------------------------------

    def _read(self, name: str, most: int = MOST_BYTES) -> bytes:
        """Return the content of a file in lines/; b"" if interlock did not create it.

        Raises:
            OSError: the file can't be read.
        """
        try:
            return read_file(self.folder.lines, name, self.folder.sharing, most)
        except (FileNotFoundError, NotOurs):
            return b""  # `doctor` reports foreign files

    def _look(self, key: str) -> StepResult:
        data = self._read(file_name(key))
        slots = [parse(raw) for raw in raws_in(data, len(head_of(key)))]
        line, now = self._settled(slots, micros_in(data, DONE_AT))
        return StepResult(None, (*line.places, *record_in(line.record_expires, now)), (), now.lease)

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix`."""
        with failing(f"Cannot read the claims in {self.folder.path}"):
            found = {key_in(self._read(name, HEAD_MOST)) for name in names_in(self.folder.lines)}
        return sorted(key for key in found if key is not None and key.startswith(prefix))

    def doctor(self) -> list[Check]:
        """Check whether the folder can keep locks."""
        with failing("The checks failed"):
            from interlock.stores.files import checks  # loaded late, because few programs need it

        return checks.examine(self.folder, self.liveness)

    # -- waiters, and closing ---------------------------------------------------------------------------

    def close(self) -> None:
        """Remove the files of unused names, and close everything."""
        if pid() != checked_pid():
            return  # a forked child: `forget` has closed what it inherited
        with self._mutex:  # no line is opened after this
            self.liveness.closed, self.trusted = True, 0.0
            self._retired |= {*self.lines.values()}
            self.lines.clear()
        self._retire_all()
        self.wakeups.close()
        self.liveness.close()

    abort = close

    def forget(self) -> None:
        """Close all descriptors in a forked child without changing a file: the parent uses them."""
        self._mutex = threading.RLock()
        self.liveness.closed, self.trusted = True, 0.0
        for line in (*self.lines.values(), *self._retired):
            line.shut()
        self.lines, self._retired = {}, set()
        self.wakeups.forget()
        self.liveness.forget()


def _wakeups_of(folder: Folder, liveness: Liveness) -> Wakeups:
    """Return the notifications of a queue, as this system has them."""
    if system.HAS_PIPES:
        from interlock.stores.files.pipes import Pipes

        return Pipes(folder.alive, liveness)
    from interlock.stores.files.loopback import Loopback

    return Loopback(liveness)


_open: dict[Callable[[], object], FileSteps] = {}
"""The queues of this process (each as a function that returns the queue while it exists), and the lines of each."""


def sweep(folder: Folder) -> None:
    """Remove the files of dead processes from a folder, for a limited time; close all files."""
    steps, running = FileSteps(folder), [True]
    _open[lambda: running or None] = steps  # so that after an interrupt the next call closes it
    try:
        with contextlib.suppress(OSError):
            steps.sweep()
    finally:
        running.clear()
    close_dropped()


def close_dropped() -> None:
    """Close the lines of queues that were collected without being closed."""
    for queue, steps in list(_open.items()):
        if (queue() is None or steps.liveness.closed) and queue in _open:  # another thread may have been faster
            steps.close()
            _open.pop(queue, None)  # afterwards, so that an interrupt leaves the rest to the next call


def queue_on(folder: Folder, kind: Callable[[FileSteps], Q]) -> Q:
    """Return a new queue on a folder.

    Args:
        folder: the folder; the queue closes it.
        kind: makes a queue on lines.
    """
    steps = FileSteps(folder)
    queue = kind(steps)
    close_dropped()
    _open[weakref.ref(queue)] = steps
    return queue


each_in_forked_child(_open.values(), FileSteps.forget)

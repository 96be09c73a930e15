"""file:///folder - locks between the processes of one machine, on plain files.

Every step (enter, leave, renew) is done at once under the guard, an OS lock on using/NAME that is held for
microseconds; so this store is a smart one, the folded line of `interlock.protocols.line`.  The proof of life of a
claim is the OS lock on its process's beacon (`presence`).  Time is the machine's monotonic clock, which all its
processes share.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, unquote

from interlock.claims import SEPARATOR, Check, Claim, ClaimView
from interlock.effects import Call, Op, Sleep
from interlock.errors import InvalidArgument, StoreError
from interlock.process import Living
from interlock.protocols.queue import BUSY, OCCUPIED, Turn
from interlock.stores.files.compiled import CompiledWays
from interlock.stores.files.folder import Folder
from interlock.stores.files.linefile import NOBODY_WAITS, WAITING_AT, LineFile, key_of
from interlock.stores.files.plan import Step
from interlock.stores.files.presence import Presence, ThreadWakeup, native
from interlock.stores.files.quick import Bells, QuickWays, jitter
from interlock.stores.files.record import (
    SLOT,
    Slot,
    write_slot,
)

if TYPE_CHECKING:
    from interlock.stores.files.tasks import TaskWakeup

T = TypeVar("T")
MOST_OPEN = 256
GUARD_PATIENCE = 5.0  # seconds; the guard is held for microseconds, except by a process that was stopped in it
SWEEP = 50


class FileStore:
    """A store in a folder of a local file system.

    Args:
        path: the folder; made if it is not there.

    Raises:
        InvalidArgument: not an absolute path.
        StoreError: the folder can't keep locks; the message says what to do.
    """

    def __init__(self, path: str) -> None:
        self.folder = Folder(path)
        self._start_afresh()
        _open_stores.add(self)
        with contextlib.suppress(OSError):
            self.sweep(SWEEP)

    def _start_afresh(self) -> None:
        self._mutex = threading.Lock()
        self._lines: dict[str, LineFile] = {}
        self._presence: Presence | None = None
        self._quick = QuickWays(self.folder, self.presence)
        self._compiled = None if native is None else CompiledWays(native, self._quick, self.presence)

    @classmethod
    def from_url(cls, url: SplitResult) -> "FileStore":
        """Connect to file:///folder."""
        if url.netloc not in ("", "localhost") or url.query or url.fragment:
            raise InvalidArgument(
                f"{url.geturl()!r}: write three slashes and a folder, e.g. file:///var/lib/app/locks"
            )
        return cls(unquote(url.path))

    # -- enter ------------------------------------------------------------------------------------------

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[Turn]:
        """As `Queue.enter`."""
        turn: Turn = yield Call(self.enter_now, (claim, wakeup, wait, again))
        return turn

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Turn:
        """As `enter`, without a generator around it."""
        line = self._line(claim.terms.key)
        if wait and wakeup is None and line.waiters:
            return OCCUPIED  # threads of this process wait: stand in line behind them, with a bell
        bells: Bells = []
        with line.mutex:
            if self._compiled is not None and not again:
                turn = self._compiled.enter(line, claim, wakeup, wait)
                if turn is not None:
                    return turn
            try:
                data = line.guard()
                if data is None:
                    return BUSY
                if wakeup is None and not again:
                    if data[WAITING_AT] != NOBODY_WAITS:
                        if wait:
                            return OCCUPIED  # nobody overtakes: stand in line, with a bell
                    elif self._quick.nobody_uses(line, data):
                        return self._quick.use(line, data, claim)
                elif not again and claim.terms.capacity == 1 and len(data) == line.head + SLOT:
                    turn = self._quick.join(line, data, claim, wakeup)
                    if turn is not None:
                        return turn
                turn, bells = self._enter_line(line, data, claim, wakeup, wait, again)
                return turn
            except OSError as error:
                raise _failed(line, error) from error
            finally:
                line.unguard()
                if bells:
                    self._ring_freely(bells)

    def _enter_line(
        self, line: LineFile, data: bytes, claim: Claim, wakeup: Any, wait: bool, again: bool
    ) -> tuple[Turn, Bells]:
        terms = claim.terms
        until = monotonic() + terms.ttl
        bell = 0 if wakeup is None else wakeup.bell.number
        raw = write_slot(b"pending ", 0, until, claim.id, bell, self._quick.tail(line, claim))
        token = self.presence().token
        me = Slot(-1, "pending", 0, until, claim.id, terms.units, terms.capacity, token, bell, raw)
        step = self._step(line, data)
        turn = step.enter(me, wait, again, wakeup is not None)
        bells = self._perform(line, step, claim.id)
        if turn.state == "pending" and wakeup is not None:
            wakeup.stand_in(line.waiters)
            wakeup.watch(step.watch(claim.id))
            turn = Turn("pending", 0, jitter(turn.look_again))
        return turn, bells

    # -- leave, renew, evict, look ----------------------------------------------------------------------

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        removed: bool | None = yield Call(self.leave_now, (claim,))
        if removed is None:
            removed = yield from self._patiently(self.leave_now, claim)
        return removed

    def leave_now(self, claim: Claim) -> bool | None:
        """As `leave`, without a generator around it; None if the guard is taken."""
        line = self._line(claim.terms.key)
        bells: Bells = []
        with line.mutex:
            if self._compiled is not None and self._compiled.leave(line, claim):
                return True
            try:
                data = line.guard()
                if data is None:
                    return None
                quick = self._quick.leave(line, data, claim)
                if quick is not None:
                    bells = quick
                    return True
                step = self._step(line, data)
                removed = step.leave(claim.id)
                bells = self._perform(line, step, claim.id)
                return removed
            except OSError as error:
                raise _failed(line, error) from error
            finally:
                line.unguard()
                if bells:
                    self._ring_freely(bells)

    def renew(self, claims: Sequence[Claim]) -> Op[list[bool]]:
        """As `Queue.renew`."""
        renewed: list[bool] = []
        for claim in claims:
            alive = yield from self._patiently(self._do, claim.terms.key, partial(_renew_one, claim))
            renewed.append(alive)
        return renewed

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        count: int = yield from self._patiently(self._do, key, partial(_evict_one, id))
        return count

    def _do(self, key: str, change: Callable[[Step], T]) -> T | None:
        line = self._line(key)
        bells: Bells = []
        with line.mutex:
            try:
                data = line.guard()
                if data is None:
                    return None
                step = self._step(line, data)
                answer = change(step)
                bells = self._perform(line, step, "")
                return answer
            except OSError as error:
                raise _failed(line, error) from error
            finally:
                line.unguard()
                if bells:
                    self._ring_freely(bells)

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        from interlock.stores.files import views  # programs that lock do not look: they start faster

        found: list[ClaimView] = yield Call(views.look, (self.folder, self.presence().is_alive, key))
        return found

    # -- one step ---------------------------------------------------------------------------------------

    def _step(self, line: LineFile, data: bytes) -> Step:
        image = line.image(data)
        if not image.top:
            image = image._replace(top=self.folder.floor())
        return Step(image, monotonic(), self.presence().is_alive, self._quick.new_fence)

    def _perform(self, line: LineFile, step: Step, me: str) -> Bells:
        """Do the writes of a step; return its bells, for `_ring_freely` when the guard is free again.

        Other processes are told first: they wake up on another processor while this one tidies.  Threads of this
        process must wait, since they would only wait for the guard.
        """
        line.perform(step.before)
        bells = step.bells
        if bells:
            here = self.presence().token
            self._ring([bell for bell in bells if bell[0] != here])
            bells = [bell for bell in bells if bell[2] is None or bell[2].id != me]
        line.perform(step.after)
        if not step.using and not step.pending and line.is_long():
            line.shrink(step.top)
        return bells

    def _ring(self, bells: Bells) -> None:
        for token, number, told in bells:
            self.presence().ring(token, number, told)

    def _ring_freely(self, bells: Bells) -> None:
        """When the guard is free, ring for threads of this process, and let run who was woken in another.

        The kernel takes who writes into a pipe for about to sleep, and may keep the woken one waiting for this
        processor.
        """
        here = self.presence().token
        self._ring([bell for bell in bells if bell[0] == here])
        if any(bell[0] != here for bell in bells):
            os.sched_yield()

    def _patiently(self, function: Callable[..., T | None], *args: Any) -> Op[T]:
        pause, waited = 0.0005, 0.0
        while True:
            answer: T | None = yield Call(function, args)
            if answer is not None:
                return answer
            if waited > GUARD_PATIENCE:
                raise StoreError(
                    "the guard of a line was held for more than 5 s: a process was stopped in the middle of a step; "
                    "continue it or kill it, then call again"
                )
            yield Sleep(pause)
            waited += pause
            pause = min(0.05, pause * 1.5)

    # -- what is open -----------------------------------------------------------------------------------

    def presence(self) -> Presence:
        """Return this process's presence in the folder, made with the first claim."""
        presence = self._presence
        if presence is None:
            with self._mutex:
                if self._presence is None:
                    self._presence = Presence(self.folder.alive)
                presence = self._presence
        return presence

    def _line(self, key: str) -> LineFile:
        line = self._lines.get(key)
        if line is None:
            with self._mutex:
                line = self._lines.get(key)
                if line is None:
                    if len(self._lines) >= MOST_OPEN:
                        self._close_line(next(iter(self._lines)))
                    line = self._lines[key] = LineFile(self.folder, key)
        return line

    def _close_line(self, key: str) -> None:
        line = self._lines.pop(key)
        line.retired = True
        with line.mutex:
            self._tidy(line)
            line.close()

    def _tidy(self, line: LineFile) -> bool:
        """Remove the files of a name that nobody uses or waits for."""
        try:
            data = line.guard() if line.fd >= 0 else None
            if data is None:
                return False
            image = line.image(data)
            alive = self.presence().is_alive
            if any(alive(slot.alive) for slot in [*image.using, *image.pending]):
                return False
            line.remove(image.top)
            return True
        finally:
            line.unguard()

    def sweep(self, most: int) -> int:
        """Remove what the dead left: beacons, and the files of names that nobody has used for a minute.

        Args:
            most: how many names to look at.

        Returns:
            How many names were removed.
        """
        self.presence().sweep()
        removed = 0
        old = time.time() - 60
        with os.scandir(self.folder.using) as entries:
            for entry in islice(entries, most):
                key = key_of(self.folder, entry.name) if entry.stat().st_mtime < old else None
                if key is not None and key not in self._lines:
                    line = LineFile(self.folder, key)
                    line.open()
                    with line.mutex:
                        removed += self._tidy(line)
                        line.close()
        return removed

    def thread_wakeup(self) -> ThreadWakeup:
        """Return a wake-up for the calling thread."""
        return ThreadWakeup(self.presence())

    def task_wakeup(self) -> "TaskWakeup":
        """Return a wake-up for the calling task."""
        from interlock.stores.files.tasks import TaskWakeup  # only programs with an event loop load asyncio

        return TaskWakeup(self.presence())

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        from interlock.stores.files import checks  # programs that lock do not look: they start faster

        return checks.examine(self.folder, self.presence().is_alive)

    def close(self) -> None:
        """Remove the files of names that nobody uses any more, and close the others; safe to repeat."""
        with self._mutex:
            for key in list(self._lines):
                with contextlib.suppress(OSError, StoreError):
                    self._close_line(key)
            presence, self._presence = self._presence, None
        if presence is not None:
            presence.close()
        self.folder.leave()

    def _after_fork(self) -> None:
        """In a forked child: the open files, the beacon and the bells are the parent's."""
        for line in list(self._lines.values()):
            line.close()
        if self._presence is not None:
            self._presence.forget()
        self._start_afresh()


def _renew_one(claim: Claim, step: Step) -> bool:
    return step.renew(claim.id, monotonic() + claim.terms.ttl)


def _evict_one(id: str | None, step: Step) -> int:
    return step.evict(id)


def _failed(line: LineFile, error: OSError) -> StoreError:
    return StoreError(f"the line of {line.key.partition(SEPARATOR)[2]!r} can't be read or written: {error}")


_open_stores: Living[FileStore] = Living()


def _after_fork() -> None:
    for store in _open_stores:
        store._after_fork()


os.register_at_fork(after_in_child=_after_fork)

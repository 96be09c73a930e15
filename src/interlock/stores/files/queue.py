"""The lines in a folder, step by step.

Every step (enter, leave, renew) is done at once under the guard, an OS lock on using/NAME that is held for
microseconds; so this store is a smart one, the folded line of `interlock.core.line`.  The proof of life of a
claim is the OS lock on its process's liveness pipe (`liveness`).  Time is the machine's monotonic clock, which all
its processes share.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.effects import Call, Op
from interlock.core.errors import StoreError
from interlock.core.queue import BUSY, GONE, OCCUPIED, EnterResult, Renewed
from interlock.core.oldstore import BaseStore
from interlock.runtime.process import WeakRegistry, in_forked_child
from interlock.stores.files.busy import renew_each, while_busy
from interlock.stores.files.failures import failed
from interlock.stores.files.fastpath import Wakeups, jitter
from interlock.stores.files.folder import Folder
from interlock.stores.files.keys import WAITING_AT
from interlock.stores.files.linefile import NOBODY_WAITS, LineFile
from interlock.stores.files.liveness import TRUST, Liveness
from interlock.stores.files.marker import MarkerTaken
from interlock.stores.files.opened import CLOSED, OpenFolder, open_folder
from interlock.stores.files.plan import PlannedStep
from interlock.stores.files.record import SLOT, Slot, write_slot

T = TypeVar("T")


class FileQueue(BaseStore):
    """The steps of the claims in a folder.

    Args:
        folder: the folder, found fit just now.

    Attributes:
        folder, opened: the folder, and what this process has open of it.
        closed: whether it was closed.
    """

    def __init__(self, folder: Folder) -> None:
        self.closed = False
        self.opened = open_folder(folder, self)
        self.folder = self.opened.folder
        self._start_afresh()
        _open.add(self)

    def _start_afresh(self) -> None:
        opened: OpenFolder = self.opened
        self._lines = opened.lines
        self._fastpath = opened.fastpath
        self._compiled = opened.compiled
        self._trusted = 0.0

    # -- enter ------------------------------------------------------------------------------------------

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`."""
        result: EnterResult = yield Call(self.enter_now, (claim, wakeup, wait, again))
        return result

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> EnterResult:
        """As `enter`, without a generator around it."""
        if monotonic() >= self._trusted and not self._trust_again():
            return BUSY
        line = self._lines.get(claim.spec.key)
        if line is None:
            line = self.opened.line(claim.spec.key)
        if wakeup is not None:
            wakeup.be_reachable()
        elif wait and line.waiters:
            return OCCUPIED  # threads of this process wait: stand in line behind them, with a wake-up pipe
        wakeups: Wakeups = []
        with line.step():
            if self._compiled is not None and not again:
                result = self._compiled.enter(line, claim, wakeup, wait)
                if result is not None:
                    return result
            try:
                data = line.guard()
                if data is None:
                    return BUSY
                if wakeup is None and not again:
                    if data[WAITING_AT] != NOBODY_WAITS:
                        if wait:
                            return OCCUPIED  # nobody overtakes: stand in line, with a wake-up pipe
                    elif self._fastpath.nobody_uses(line, data):
                        return self._fastpath.use(line, data, claim)
                elif not again and claim.spec.capacity == 1 and len(data) == line.head + SLOT:
                    result = self._fastpath.join(line, data, claim, wakeup)
                    if result is not None:
                        return result
                result, wakeups = self._enter_line(line, data, claim, wakeup, wait, again)
                return result
            except MarkerTaken:
                return BUSY
            except OSError as error:
                raise _failed(line, error) from error
            finally:
                line.unguard()
                if wakeups:
                    self._ring_freely(wakeups)

    def _enter_line(
        self, line: LineFile, data: bytes, claim: Claim, wakeup: Any, wait: bool, again: bool
    ) -> tuple[EnterResult, Wakeups]:
        spec = claim.spec
        until = monotonic() + spec.ttl
        pipe = 0 if wakeup is None else wakeup.pipe.number
        token = self.liveness().token
        raw = write_slot(b"pending ", 0, until, claim.id, pipe, self._fastpath.tail(line, claim, token))
        me = Slot(-1, "pending", 0, until, claim.id, spec.units, spec.capacity, token, pipe, raw)
        step = self._step(line, data)
        if step.token_of(claim.id) in (None, token):
            result = step.enter(me, wait, again, wakeup is not None)
        else:  # its liveness pipe was removed: others take it for dead
            step.leave(claim.id)
            result = GONE
        wakeups = self._perform(line, step, claim.id)
        if result.state == "pending" and wakeup is not None:
            wakeup.stand_in(line.waiters)
            wakeup.watch(step.watch(claim.id))
            result = EnterResult("pending", 0, jitter(result.look_again))
        return result, wakeups

    # -- leave, renew, evict ----------------------------------------------------------------------------

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        removed: bool | None = yield Call(self.leave_now, (claim,))
        if removed is None:
            removed = yield from while_busy(self.leave_now, claim)
        return removed

    def leave_now(self, claim: Claim) -> bool | None:
        """As `leave`, without a generator around it; None if the guard is taken."""
        line = self._lines.get(claim.spec.key)
        if line is None:
            if self.opened.closed:
                return False  # its liveness pipe is out, and it ended with it
            line = self.opened.line(claim.spec.key)
        wakeups: Wakeups = []
        with line.step():
            if self._compiled is not None and self._compiled.leave(line, claim):
                return True
            try:
                data = line.guard()
                if data is None:
                    return None
                fastpath = self._fastpath.leave(line, data, claim)
                if fastpath is not None:
                    wakeups = fastpath
                    return True
                step = self._step(line, data)
                removed = step.leave(claim.id)
                wakeups = self._perform(line, step, claim.id)
                return removed
            except MarkerTaken:
                return None
            except OSError as error:
                raise _failed(line, error) from error
            finally:
                line.unguard()
                if wakeups:
                    self._ring_freely(wakeups)

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        if self.opened.closed:
            return [False] * len(claims)  # the liveness pipe is out, and they ended with it
        return (yield from renew_each(claims, self._trust_again, self._renew_now))

    def _renew_now(self, claim: Claim) -> Renewed | None:
        try:
            token = self.liveness().token
            fastpath = partial(self._fastpath.renew, claim, token)
            return self._do(claim.spec.key, partial(_renew_one, claim, token), fastpath)
        except StoreError as error:
            return error

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        count: int = yield from while_busy(self._do, key, partial(_evict_one, id))
        return count

    def _do(
        self,
        key: str,
        change: Callable[[PlannedStep], T],
        fastpath: Callable[[LineFile, bytes], T | None] | None = None,
    ) -> T | None:
        line = self._line(key)
        wakeups: Wakeups = []
        with line.step():
            try:
                line.trusted = 0.0  # a renewal asks whether the files are still those in the folder
                data = line.guard()
                if data is None:
                    return None
                done = fastpath(line, data) if fastpath is not None and data[WAITING_AT] == NOBODY_WAITS else None
                if done is not None:
                    return done
                try:
                    step = self._step(line, data)
                except OSError:
                    done = None if fastpath is None else fastpath(line, data)
                    if done is None:
                        raise
                    return done  # the waiters can't be read now: that is no reason to lose a lock
                answer = change(step)
                wakeups = self._perform(line, step, "")
                return answer
            except MarkerTaken:
                return None
            except OSError as error:
                raise _failed(line, error) from error
            finally:
                line.unguard()
                if wakeups:
                    self._ring_freely(wakeups)

    # -- one step ---------------------------------------------------------------------------------------

    def _step(self, line: LineFile, data: bytes) -> PlannedStep:
        image = line.image(data)
        if not image.top:
            image = image._replace(top=self.folder.floor())
        return PlannedStep(image, monotonic(), self.liveness().is_alive, self._fastpath.new_fence)

    def _perform(self, line: LineFile, step: PlannedStep, me: str) -> Wakeups:
        """Do the writes of a step; return its wake-up pipes, for `_ring_freely` when the guard is free again.

        Other processes are told first: they wake up on another processor while this one tidies.  Threads of this
        process must wait, since they would only wait for the guard.
        """
        line.perform(step.before)
        wakeups = step.wakeups
        if wakeups:
            here = self.liveness().token
            self._ring([pipe for pipe in wakeups if pipe[0] != here])
            wakeups = [pipe for pipe in wakeups if pipe[2] is None or pipe[2].id != me]
        line.perform(step.after)
        if not step.using and not step.pending and line.is_long():
            line.shrink(step.top)
        return wakeups

    def _ring(self, wakeups: Wakeups) -> None:
        for token, number, granted in wakeups:
            self.liveness().ring(token, number, granted)

    def _ring_freely(self, wakeups: Wakeups) -> None:
        """Ring for threads of this process once the guard is free, and let a woken process run at once.

        The kernel expects the writer of a pipe to sleep soon, and may keep the woken process waiting for this
        processor.
        """
        here = self.liveness().token
        self._ring([pipe for pipe in wakeups if pipe[0] == here])
        if any(pipe[0] != here for pipe in wakeups):
            os.sched_yield()

    # -- what is open -----------------------------------------------------------------------------------

    def liveness(self) -> Liveness:
        """Return this process's liveness in the folder, made with the first claim."""
        return self.opened.liveness()

    def _trust_again(self) -> bool:
        """See that others still find this process's liveness pipe; what is claimed while they do not is void.

        Returns:
            False if that can't be said now, because somebody has the marker of the folder locked.
        """
        if self.closed:
            raise StoreError(CLOSED)
        try:
            self.folder.stay()
            self.opened.liveness().keep()
        except MarkerTaken:
            return False
        except OSError as error:
            raise failed(f"the folder {self.folder.path} can't be looked at", error) from error
        self._trusted = monotonic() + TRUST
        return True

    def _line(self, key: str) -> LineFile:
        line = self._lines.get(key)
        return self.opened.line(key) if line is None else line

    def close(self) -> None:
        """Give up what is open; waiters get a StoreError, other connections go on; safe to repeat.

        With the last connection, the files of names that nobody uses any more are removed.
        """
        if not self.closed:
            self.closed = True
            self._trusted = 0.0
            self.opened.end(self)


def _renew_one(claim: Claim, token: str, step: PlannedStep) -> bool:
    if step.token_of(claim.id) not in (None, token):
        step.leave(claim.id)  # its liveness pipe was removed: others take it for dead
        return False
    return step.renew(claim.id, monotonic() + claim.spec.ttl)


def _evict_one(id: str | None, step: PlannedStep) -> int:
    return step.evict(id)


def _failed(line: LineFile, error: OSError) -> StoreError:
    return failed(f"the line of {line.key.partition(SEPARATOR)[2]!r} can't be read or written", error)


_open: WeakRegistry[FileQueue] = WeakRegistry()


def _after_fork() -> None:
    for queue in _open:
        queue._start_afresh()  # what was open is the parent's, and is closed already


in_forked_child(_after_fork)

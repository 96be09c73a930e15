"""What the locks and grants of one connection of tasks share: the store, who holds, who enters, who renews."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from interlock.core.acquire import AcquireCall, acquire
from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockError
from interlock.core.queue import EnterResult
from interlock.core.oldstore import AsyncStore
from interlock.locks.aio.grants import AsyncGrant
from interlock.locks.aio.watchdog import LoopWatchdog
from interlock.locks.events import Kind
from interlock.locks.grants import RELEASED
from interlock.locks.owners import Holds
from interlock.locks.session import STAYS_IN_LINE, TRY_LIMIT, AcquireOptions, BaseSession, closed_meanwhile
from interlock.runtime import log
from interlock.runtime.aio import afinish, arun, at_the_end, give_way, slices
from interlock.runtime.process import WeakRegistry, in_forked_child
from interlock.runtime.sync import fresh_id


class Session(BaseSession[AsyncStore]):
    """The shared state of one connection of asyncio tasks.

    Args:
        kind, store, namespace, ttl: as for `BaseSession`.
        loop_ends: awaited with the session and a watchdog whose loop ends without `close()`.

    Attributes:
        watchdogs: of each loop.
        closing: the task that closes.
        ended: True when it is closed.
    """

    leaving: dict[str, tuple[asyncio.AbstractEventLoop, Claim]]
    holds: Holds[AsyncGrant]

    def __init__(
        self,
        kind: str,
        store: AsyncStore,
        namespace: str,
        ttl: float,
        loop_ends: Callable[[Any, Any], Awaitable[None]],
    ) -> None:
        super().__init__(kind, store, namespace, ttl)
        self._loop_ends = loop_ends
        self.ended = False
        self.start_afresh()
        open_sessions.add(self)

    def start_afresh(self) -> None:
        """Begin with nothing held; also in a forked child."""
        super().start_afresh()
        self.aenter_now, self.aleave_now = self.store.aenter_now, self.store.aleave_now
        self.store.doubt = self._doubt
        self.watchdogs: dict[asyncio.AbstractEventLoop, LoopWatchdog[AsyncGrant]] = {}
        self.last_watchdog: LoopWatchdog[AsyncGrant] | None = None
        self.closing: asyncio.Task[None] | None = None

    def watchdog(self) -> LoopWatchdog[AsyncGrant]:
        """Return what renews the grants of the running loop."""
        loop = asyncio.get_running_loop()
        watchdog = self.last_watchdog
        if watchdog is None or watchdog.loop is not loop:
            watchdog = self.watchdogs.get(loop)
            if watchdog is None:
                watchdog = self._new_watchdog(loop)
            self.last_watchdog = watchdog
        return watchdog

    def _new_watchdog(self, loop: asyncio.AbstractEventLoop) -> LoopWatchdog[AsyncGrant]:
        for old, watchdog in list(self.watchdogs.items()):
            if old.is_closed() and not watchdog.needed:
                self.watchdogs.pop(old, None)
        watchdog = self.watchdogs[loop] = LoopWatchdog(self.store, _tell_lost, _tell, AsyncGrant.release, self)
        watchdog.end = at_the_end(lambda: self._loop_ends(self, watchdog))
        return watchdog

    def _doubt(self, id: str) -> None:
        here: asyncio.AbstractEventLoop | None
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None  # a thread of the store says so
        for loop, watchdog in list(self.watchdogs.items()):
            if loop is here:
                watchdog.doubt(id)
            elif watchdog.runs:
                loop.call_soon_threadsafe(watchdog.doubt, id)

    async def acquire(
        self, spec: LockSpec, options: AcquireOptions, seconds: float | None, who: str
    ) -> AsyncGrant | None:
        """As `sync.session.Session.acquire`, for the calling task."""
        started = monotonic()
        if started >= slices.next and self.enter_now is not None:
            await give_way()
            started = monotonic()
        if started > self.look_at_log:
            self.listen_for_log(started)
        claim = Claim(fresh_id(), spec, who)
        entering, id = self.entering, claim[0]
        watchdog = self.watchdog()
        call = grant = result = None
        # In this order: `close` first sets `closed`, and then looks which calls are entering.
        entering[id] = claim, watchdog.loop
        if self.closed:
            entering.pop(id, None)
            self.ready()
        try:
            if self.enter_now is not None:
                result = self.enter_now(claim, None, seconds != 0, False)
            elif self.aenter_now is not None:
                entered = self.aenter_now(claim, seconds != 0)
                result = entered if isinstance(entered, EnterResult) else await entered
            if result is not None and result.state == "using" and monotonic() < started + spec.ttl:
                held: tuple[Claim, int, float] = claim, result.fence, started + spec.ttl
            else:
                deadline = None if seconds is None else started + (seconds or TRY_LIMIT)
                call = entering[id] = AcquireCall(claim, started, deadline, seconds != 0, result, watchdog.loop)
                if self.listeners:
                    call.on_queued = self.queued
                waited = await arun(acquire(self.store, call))
                if call.queued is not None:
                    self.left_line(call)
                if waited is None:
                    entering.pop(id, None)
                    self.tell("timed out", call.claim, started=started)
                    return None
                held = waited
            grant = AsyncGrant(held, options.renew, options.on_lost)
            grant._session = self
            grant._owner = None
            grant._body = None
            grant._struck = False
            grant._watchdog = watchdog
            watchdog.add(grant)
            if self.closed:
                raise closed_meanwhile(spec)
            if self.listeners:
                grant._tell_acquired(started)
            entering.pop(id, None)
            return grant
        except GeneratorExit as error:
            self._destroyed(call.claim if call is not None else claim, id)
            self.broken_off(call, grant, error)
            raise
        except BaseException as error:
            # A cancellation or KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                watchdog.remove(grant)
                grant._state = RELEASED
            try:
                if call is None or call.entered:
                    await afinish(self.store.leave(call.claim if call is not None else claim))
            except LockError as problem:
                if id in entering:  # else whoever closed has done it
                    log.warn(STAYS_IN_LINE, problem)
            finally:
                entering.pop(id, None)
                self.broken_off(call, grant, error)
            raise

    def _destroyed(self, claim: Claim, id: str) -> None:
        """A task was destroyed and can't wait for an answer: close() or the exit takes its claim out of the line."""
        try:
            if self.leave_now is not None and self.leave_now(claim) is not None:
                self.entering.pop(id, None)
        except LockError:
            pass


def _tell_lost(grant: AsyncGrant) -> None:
    grant._strike()
    if grant._on_lost is not None:
        try:
            grant._on_lost(grant)
        except BaseException:  # even SystemExit: the renewals of others come after it
            log.exception("on_lost of %r failed", grant)


def _tell(grants: Sequence[AsyncGrant], kind: Kind, reason: str) -> None:
    for grant in grants:
        try:
            grant._tell(kind, reason)
        except BaseException:  # as above
            log.exception("a listener failed at the event that %r was %s", grant, kind)


open_sessions: WeakRegistry[Session] = WeakRegistry()


def _after_fork() -> None:
    for session in open_sessions:
        session.start_afresh()


in_forked_child(_after_fork)

"""`AsyncLocks`: the connection of asyncio tasks to a store."""

import asyncio
import atexit
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from interlock.core.acquire import AcquireCall, Held, acquire
from interlock.core.claims import DEFAULT_TTL, Check, Claim, ClaimView, LockSpec
from interlock.core.errors import LockError
from interlock.core.queue import EnterResult
from interlock.locks.aio import closing
from interlock.locks.aio.grants import AsyncGrant
from interlock.locks.aio.locks import AsyncAllLock, AsyncLock, AsyncRLock, guarded
from interlock.locks.aio.watchdog import LoopWatchdog
from interlock.locks.base import (
    TRY_LIMIT,
    AcquireOptions,
    BaseLocks,
    OnBusy,
    guard_timeout,
    in_global_order,
    options_of,
)
from interlock.locks.grants import RELEASED
from interlock.locks.holds import Holds
from interlock.runtime import log
from interlock.runtime.aio import afinish, arun, at_the_end, give_way, to_its_end, turns
from interlock.runtime.process import WeakRegistry
from interlock.runtime.sync import fresh_id
from interlock.stores.base import Store, report_doubts, shortcuts

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLocks(BaseLocks[AsyncLock]):
    """The locks of one store, for asyncio tasks; made by `aconnect`.

    Args:
        store: where the claims are kept.
        namespace: separates applications that share a store.
        ttl: seconds of lease of the locks made here, unless they say otherwise.
    """

    def __init__(self, store: Store, *, namespace: str = "", ttl: float = DEFAULT_TTL) -> None:
        super().__init__(store, namespace=namespace, ttl=ttl)
        self._ended = False
        self._start_afresh()
        _open.add(self)

    def _start_afresh(self) -> None:
        self._enter_now, self._leave_now = shortcuts(self._store)
        self._aenter_now = getattr(self._store, "aenter_now", None)
        self._aleave_now = getattr(self._store, "aleave_now", None)
        report_doubts(self._store, self._doubt)
        self._watchdogs: dict[asyncio.AbstractEventLoop, LoopWatchdog[AsyncGrant]] = {}
        self._last_watchdog: LoopWatchdog[AsyncGrant] | None = None
        self._entering: dict[str, closing.Entering] = {}
        self._closing: asyncio.Task[None] | None = None
        self._holds: Holds[AsyncGrant] = Holds()

    def _make(self, spec: LockSpec, options: AcquireOptions) -> AsyncLock:
        return AsyncLock(self, spec, options)

    def rlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> AsyncRLock:
        """Return the lock called `name` as one that its holder, the task, may acquire again.

        Args:
            name, ttl, timeout, renew, label, on_lost: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        return AsyncRLock(self, self._spec(name, 1, 1, ttl, label), options_of(timeout, renew, on_lost))

    def all(self, *parts: "str | AsyncLock", timeout: float | None = None) -> AsyncAllLock:
        """Return several locks as one: all or none, in one global order whatever the order given.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: seconds that acquiring all of them waits at most; None for no limit.

        Raises:
            InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
        """
        locks = [part if isinstance(part, AsyncLock) else self.lock(part) for part in parts]
        return AsyncAllLock(self, in_global_order(self, locks), options_of(timeout, True, None))

    def guard(
        self,
        name: str,
        *,
        on_busy: OnBusy = "wait",
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
        """Decorate a coroutine function: it runs while the lock that its arguments name is held.

        Args:
            name: of the lock; `{id}`, `{book.pk}` or `{kwargs[key]}` stand for arguments of the function.
            on_busy: what to do while somebody else holds it: "wait"; "raise" LockTimeout; "skip" this call, which
                returns None.
            timeout: seconds to wait before that; left out: "wait" has no limit, the others try once.
            ttl, renew, label, on_lost: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range; (when decorating) the name mentions what the function
                has no argument for, or the function is of a wrong kind.
            LockTimeout: (when called) the lock was not obtained in time; the function did not run.
            LockLost: (when called) the lease ended while it ran.
        """
        seconds = guard_timeout(on_busy, timeout)

        def lock_of(name: str) -> AsyncLock:
            return self.lock(name, ttl=ttl, timeout=seconds, renew=renew, label=label, on_lost=on_lost)

        lock_of(name)  # it judges the arguments
        return lambda function: guarded(function, name, lock_of, on_busy == "skip")

    async def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: of one lock; None for all of this namespace.
        """
        await give_way()
        return await arun(self._ready().look(self._key_or_all(name)))

    async def _holders_of(self, key: str) -> Sequence[ClaimView]:
        """Return who holds the lock `key`, as far as it can be found out."""
        known = self._last_holders.recall(key)
        if known is None:
            try:
                known = self._last_holders.note(key, await arun(self._store.look(key)))
            except LockError:
                return ()
        return known

    async def evict(self, name: str, id: str | None = None) -> int:
        """Remove a claim, whoever's it is; a holder notices at its next renewal or release.

        Args:
            name: of the lock.
            id: of the claim; None for all of them.

        Returns:
            How many claims were removed.
        """
        await give_way()
        return await arun(self._ready().evict(self._key(name), id))

    async def doctor(self) -> list[Check]:
        """Find out whether the store keeps the promises that the protocol needs, with a round trip.

        Returns:
            The findings; one with status "fail" means: do not use this store.
        """
        from interlock.locks.doctor import round_trip  # programs that lock start faster without it

        store = self._ready()
        examine = getattr(store, "adoctor", None)
        # A doctor of files waits, and the loop must not.
        found = await (examine() if examine is not None else asyncio.to_thread(store.doctor))
        return [*found, *await arun(round_trip(store, self._namespace))]

    async def close(self) -> None:
        """Let those of this connection who wait give up, release what is held, and close; safe to repeat.

        It comes to its end even if the calling task is cancelled meanwhile.

        Raises:
            StoreError: something could not be released; everything else was, and the connection is closed.
        """
        loop = asyncio.get_running_loop()
        if self._ended:
            return
        self._closed = True
        if self._closing is None or self._closing.done():
            self._closing = loop.create_task(closing.close(self), name="interlock-close")
        elif self._closing.get_loop() is not loop:
            return
        await to_its_end(self._closing)

    async def __aenter__(self) -> "AsyncLocks":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _watchdog(self) -> LoopWatchdog[AsyncGrant]:
        loop = asyncio.get_running_loop()
        watchdog = self._last_watchdog
        if watchdog is None or watchdog.loop is not loop:
            watchdog = self._watchdogs.get(loop)
            if watchdog is None:
                watchdog = self._new_watchdog(loop)
            self._last_watchdog = watchdog
        return watchdog

    def _new_watchdog(self, loop: asyncio.AbstractEventLoop) -> LoopWatchdog[AsyncGrant]:
        for old, watchdog in list(self._watchdogs.items()):
            if old.is_closed() and not watchdog.needed:
                self._watchdogs.pop(old, None)
        watchdog = self._watchdogs[loop] = LoopWatchdog(self._store, _tell_lost, AsyncGrant.release, self)
        watchdog.end = at_the_end(lambda: closing.loop_ends(self, watchdog))
        return watchdog

    def _doubt(self, id: str) -> None:
        here: asyncio.AbstractEventLoop | None
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None  # a thread of the store says so
        for loop, watchdog in list(self._watchdogs.items()):
            if loop is here:
                watchdog.doubt(id)
            elif watchdog.runs:
                loop.call_soon_threadsafe(watchdog.doubt, id)

    async def _acquire(
        self, spec: LockSpec, options: AcquireOptions, seconds: float | None, who: str
    ) -> AsyncGrant | None:
        started = monotonic()
        if started >= turns.next and self._enter_now is not None:
            await give_way()
            started = monotonic()
        claim = Claim(fresh_id(), spec, who)
        entering, id = self._entering, claim[0]
        watchdog = self._watchdog()
        call = grant = result = None
        # In this order: who closes says so first, and then looks who is entering.
        entering[id] = claim, watchdog.loop
        if self._closed:
            entering.pop(id, None)
            self._ready()
        try:
            if self._enter_now is not None:
                result = self._enter_now(claim, None, seconds != 0, False)
            elif self._aenter_now is not None:
                result = self._aenter_now(claim, seconds != 0)
                if type(result) is not EnterResult:
                    result = await result
            if result is not None and result.state == "using" and monotonic() < started + spec.ttl:
                held: Held | tuple[Claim, int, float] = claim, result.fence, started + spec.ttl
            else:
                deadline = None if seconds is None else started + (seconds or TRY_LIMIT)
                call = entering[id] = AcquireCall(claim, started, deadline, seconds != 0, result, watchdog.loop)
                waited = await arun(acquire(self._store, call))
                if waited is None:
                    entering.pop(id, None)
                    return None
                held = waited
            grant = AsyncGrant(held, options.renew, options.on_lost)
            grant._locks = self
            grant._owner = None
            grant._body = None
            grant._struck = False
            grant._watchdog = watchdog
            watchdog.add(grant)
            if self._closed:
                raise closing.closed_meanwhile(spec)
            entering.pop(id, None)
            return grant
        except GeneratorExit:
            self._destroyed(call.claim if call is not None else claim, id)
            raise
        except BaseException:
            # A cancellation or KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                watchdog.remove(grant)
                grant._state = RELEASED
            try:
                if call is None or call.entered:
                    await afinish(self._store.leave(call.claim if call is not None else claim))
            except LockError as problem:
                if id in entering:  # else whoever closed has done it
                    log.warn("could not take a claim out of the line, its lease will end: %s", problem)
            finally:
                entering.pop(id, None)
            raise

    def _destroyed(self, claim: Claim, id: str) -> None:
        """A task was destroyed and can't wait for an answer: close() or the exit takes its claim out of the line."""
        try:
            if self._leave_now is not None and self._leave_now(claim) is not None:
                self._entering.pop(id, None)
        except LockError:
            pass


def _tell_lost(grant: AsyncGrant) -> None:
    grant._strike()
    if grant._on_lost is not None:
        try:
            grant._on_lost(grant)
        except BaseException:  # even SystemExit: the renewals of others come after it
            log.exception("on_lost of %r failed", grant)


_open: WeakRegistry[AsyncLocks] = WeakRegistry()


def _after_fork() -> None:
    for locks in _open:
        locks._start_afresh()


def _at_exit() -> None:
    for locks in _open:
        if not locks._ended:
            locks._closed = True
            try:
                closing.at_exit(locks)
            except Exception as error:
                log.warn("could not close at exit: %s", error)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

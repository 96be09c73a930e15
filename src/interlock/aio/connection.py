"""`AsyncLocks`: the connection of asyncio tasks to a store."""

import asyncio
import atexit
import os
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from interlock import log
from interlock.aengine import afinish, arun
from interlock.aio.grants import AsyncGrant, release_all
from interlock.aio.locks import AsyncAllLock, AsyncLock, AsyncRLock, Owner
from interlock.aio.watchdog import LoopWatchdog
from interlock.claims import DEFAULT_TTL, Check, Claim, ClaimView, Terms
from interlock.engine import fresh_id
from interlock.errors import LockError
from interlock.facade import TRY_PATIENCE, BaseLocks, Manner, in_global_order, manner_of
from interlock.grants import Hold
from interlock.process import Living
from interlock.protocols.claiming import Attempt, Held, acquire
from interlock.protocols.queue import Turn
from interlock.stores.base import Store, shortcuts


class AsyncLocks(BaseLocks[AsyncLock]):
    """The locks of one store, for asyncio tasks; made by `aconnect`.

    Args:
        store: where the claims are kept.
        namespace: separates applications that share a store.
        ttl: seconds of lease of the locks made here, unless they say otherwise.
    """

    def __init__(self, store: Store, *, namespace: str = "", ttl: float = DEFAULT_TTL) -> None:
        super().__init__(store, namespace=namespace, ttl=ttl)
        self._start_afresh()
        _open.add(self)

    def _start_afresh(self) -> None:
        self._enter_now, self._leave_now = shortcuts(self._store)
        self._aenter_now = getattr(self._store, "aenter_now", None)
        self._aleave_now = getattr(self._store, "aleave_now", None)
        self._watchdogs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatchdog[AsyncGrant]] = (
            weakref.WeakKeyDictionary()
        )
        self._last_watchdog: LoopWatchdog[AsyncGrant] | None = None
        self._holds: dict[tuple[str, Owner], Hold[AsyncGrant]] = {}

    def _make(self, terms: Terms, manner: Manner) -> AsyncLock:
        return AsyncLock(self, terms, manner)

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
        return AsyncRLock(self, self._terms(name, 1, 1, ttl, label), manner_of(timeout, renew, on_lost))

    def all(self, *parts: "str | AsyncLock", timeout: float | None = None) -> AsyncAllLock:
        """Return several locks as one: all or none, in one global order whatever the order given.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: seconds that acquiring all of them waits at most; None for no limit.

        Raises:
            InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
        """
        locks = [part if isinstance(part, AsyncLock) else self.lock(part) for part in parts]
        return AsyncAllLock(self, in_global_order(self, locks), manner_of(timeout, True, None))

    async def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: of one lock; None for all of this namespace.
        """
        return await arun(self._ready().look(self._key_or_all(name)))

    async def evict(self, name: str, id: str | None = None) -> int:
        """Remove a claim, whoever's it is; a holder notices at its next renewal or release.

        Args:
            name: of the lock.
            id: of the claim; None for all of them.

        Returns:
            How many claims were removed.
        """
        return await arun(self._ready().evict(self._key(name), id))

    async def doctor(self) -> list[Check]:
        """Find out whether the store keeps the promises that the protocol needs, with a round trip.

        Returns:
            The findings; one with status "fail" means: do not use this store.
        """
        from interlock.doctor import round_trip  # programs that lock start faster without it

        store = self._ready()
        examine = getattr(store, "adoctor", None)
        # A doctor of files waits, and the loop must not.
        found = await (examine() if examine is not None else asyncio.to_thread(store.doctor))
        return [*found, *await arun(round_trip(store, self._namespace))]

    async def close(self) -> None:
        """Release what is still held, and close the store; safe to repeat."""
        if self._closed:
            return
        self._closed = True
        watchdog = self._watchdog()
        watchdog.stop()
        try:
            await release_all(watchdog.grants)
        finally:
            closing = getattr(self._store, "aclose", None)
            if closing is not None:
                await closing()
            else:
                self._store.close()

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
                watchdog = self._watchdogs[loop] = LoopWatchdog(self._store, _tell_lost)
            self._last_watchdog = watchdog
        return watchdog

    async def _acquire(self, terms: Terms, manner: Manner, seconds: float | None, who: str) -> AsyncGrant | None:
        started = monotonic()
        claim = Claim(fresh_id(), terms, who)
        store = self._ready()
        attempt = grant = turn = None
        try:
            if self._enter_now is not None:
                turn = self._enter_now(claim, None, seconds != 0, False)
            elif self._aenter_now is not None:
                turn = self._aenter_now(claim, seconds != 0)
                if type(turn) is not Turn:
                    turn = await turn
            held: Held | None
            if turn is not None and turn.state == "using" and monotonic() < started + terms.ttl:
                held = Held(claim, turn.fence, started + terms.ttl)
            else:
                deadline = None if seconds is None else started + (seconds or TRY_PATIENCE)
                attempt = Attempt(claim, started, deadline, seconds != 0, turn)
                held = await arun(acquire(store, attempt))
            if held is None:
                return None
            grant = AsyncGrant(held, manner.renew, manner.on_lost)
            grant._locks = self
            grant._body = None
            grant._struck = False
            watchdog = grant._watchdog = self._watchdog()
            watchdog.add(grant)
            return grant
        except BaseException:
            # A cancellation or KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                grant._watchdog.remove(grant)
            try:
                await afinish(self._store.leave(attempt.claim if attempt is not None else claim))
            except LockError as error:
                log.warn("could not take a claim out of the line, its lease will end: %s", error)
            raise


def _tell_lost(grant: AsyncGrant) -> None:
    grant._strike()
    if grant._on_lost is not None:
        grant._on_lost(grant)


_open: Living[AsyncLocks] = Living()


def _after_fork() -> None:
    for locks in _open:
        locks._start_afresh()


def _at_exit() -> None:
    for locks in _open:
        if not locks._closed:
            locks._closed = True
            locks._store.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

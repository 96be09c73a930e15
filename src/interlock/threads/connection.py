"""`Locks`: the connection of threads to a store."""

import atexit
import os
from collections.abc import Callable
from time import monotonic
from typing import Any

from interlock import log
from interlock.claims import DEFAULT_TTL, Check, Claim, ClaimView, Terms
from interlock.engine import fresh_id, run
from interlock.errors import LockError
from interlock.facade import TRY_PATIENCE, BaseLocks, Manner, in_global_order, manner_of
from interlock.grants import Hold
from interlock.process import Living
from interlock.protocols.claiming import Attempt, Held, acquire
from interlock.stores.base import Store, shortcuts
from interlock.threads.grants import Grant, release_all
from interlock.threads.locks import AllLock, Lock, Owner, RLock
from interlock.watchdog import Watchdog


class Locks(BaseLocks[Lock]):
    """The locks of one store, for threads; made by `connect`.

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
        self._watchdog: Watchdog[Grant] = Watchdog(self._store, _tell_lost)
        self._holds: dict[tuple[str, Owner], Hold[Grant]] = {}

    def _make(self, terms: Terms, manner: Manner) -> Lock:
        return Lock(self, terms, manner)

    def rlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> RLock:
        """Return the lock called `name` as one that its holder, the thread, may acquire again.

        Args:
            name, ttl, timeout, renew, label, on_lost: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        return RLock(self, self._terms(name, 1, 1, ttl, label), manner_of(timeout, renew, on_lost))

    def all(self, *parts: "str | Lock", timeout: float | None = None) -> AllLock:
        """Return several locks as one: all or none, in one global order whatever the order given.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: seconds that acquiring all of them waits at most; None for no limit.

        Raises:
            InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
        """
        locks = [part if isinstance(part, Lock) else self.lock(part) for part in parts]
        return AllLock(self, in_global_order(self, locks), manner_of(timeout, True, None))

    def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: of one lock; None for all of this namespace.
        """
        return run(self._ready().look(self._key_or_all(name)))

    def evict(self, name: str, id: str | None = None) -> int:
        """Remove a claim, whoever's it is; a holder notices at its next renewal or release.

        Args:
            name: of the lock.
            id: of the claim; None for all of them.

        Returns:
            How many claims were removed.
        """
        return run(self._ready().evict(self._key(name), id))

    def doctor(self) -> list[Check]:
        """Find out whether the store keeps the promises that the protocol needs, with a round trip.

        Returns:
            The findings; one with status "fail" means: do not use this store.
        """
        from interlock.doctor import round_trip  # programs that lock start faster without it

        store = self._ready()
        return [*store.doctor(), *run(round_trip(store, self._namespace))]

    def close(self) -> None:
        """Release what is still held, and close the store; safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._watchdog.stop()
        try:
            release_all(self._watchdog.grants)
        finally:
            self._store.close()

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acquire(self, terms: Terms, manner: Manner, seconds: float | None, who: str) -> Grant | None:
        started = monotonic()
        claim = Claim(fresh_id(), terms, who)
        store = self._ready()
        attempt = grant = turn = None
        try:
            if self._enter_now is not None:
                turn = self._enter_now(claim, None, seconds != 0, False)
            if turn is not None and turn.state == "using" and monotonic() < started + terms.ttl:
                held = Held(claim, turn.fence, started + terms.ttl)
            else:
                deadline = None if seconds is None else started + (seconds or TRY_PATIENCE)
                attempt = Attempt(claim, started, deadline, seconds != 0, turn)
                waited = run(acquire(store, attempt))
                if waited is None:
                    return None
                held = waited
            grant = Grant(held, manner.renew, manner.on_lost)
            grant._locks = self
            self._watchdog.add(grant)
            return grant
        except BaseException:
            # KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                self._watchdog.remove(grant)
            try:
                run(self._store.leave(attempt.claim if attempt is not None else claim))
            except LockError as error:
                log.warn("could not take a claim out of the line, its lease will end: %s", error)
            raise


def _tell_lost(grant: Grant) -> None:
    if grant._on_lost is not None:
        grant._on_lost(grant)


_open: Living[Locks] = Living()


def _after_fork() -> None:
    for locks in _open:
        locks._start_afresh()


def _at_exit() -> None:
    for locks in _open:
        try:
            locks.close()
        except LockError as error:
            log.warn("could not release at exit, the leases will end: %s", error)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

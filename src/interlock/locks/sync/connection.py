"""`Locks`: the connection of threads to a store."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from interlock.core.claims import DEFAULT_TTL, Check, ClaimView
from interlock.core.oldstore import SyncStore
from interlock.locks.arguments import OnBusy, options_of
from interlock.locks.base import BaseLocks
from interlock.locks.sync import closing
from interlock.locks.sync.grants import Grant
from interlock.locks.sync.locks import AllLock, Lock, RLock, guarded
from interlock.locks.sync.session import Session
from interlock.runtime.sync import run

P = ParamSpec("P")
R = TypeVar("R")


class Locks(BaseLocks[Lock]):
    """The locks of one store, for threads; made by `connect`.

    Args:
        store: where the claims are kept.
        namespace: separates applications that share a store.
        ttl: seconds of lease of the locks made here, unless they say otherwise.
    """

    _lock_type, _all_type = Lock, AllLock

    def __init__(self, store: SyncStore, *, namespace: str = "", ttl: float = DEFAULT_TTL) -> None:
        self._session: Session[Grant]
        super().__init__(Session("Locks", store, namespace, ttl, Grant))

    def rlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
        at_least: float = 0.0,
    ) -> RLock:
        """Return the lock called `name` as one that its holder, the thread, may acquire again.

        Args:
            name, ttl, timeout, renew, label, on_lost, at_least: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        spec = self._spec(name, 1, 1, ttl, label, at_least)
        return RLock(self._session, spec, options_of(timeout, renew, on_lost, at_least))

    def all(self, *parts: "str | Lock", timeout: float | None = None) -> AllLock:
        """Return several locks as one: all or none, in one global order whatever the order given.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: seconds that acquiring all of them waits at most; None for no limit.

        Raises:
            InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
        """
        together: AllLock = self._all(parts, timeout)
        return together

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
        at_least: float = 0.0,
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """Decorate a function: it runs while the lock that its arguments name is held.

        Args:
            name: of the lock; `{id}`, `{book.pk}` or `{kwargs[key]}` stand for arguments of the function.
            on_busy: what to do while somebody else holds it: "wait"; "raise" LockTimeout; "skip" this call, which
                returns None.
            timeout: seconds to wait before that; left out: "wait" has no limit, the others try once.
            ttl, renew, label, on_lost, at_least: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range; (when decorating) the name mentions what the function
                has no argument for, or the function is of a wrong kind.
            LockTimeout: (when called) the lock was not obtained in time; the function did not run.
            LockLost: (when called) the lease ended while it ran.
        """
        how = {"ttl": ttl, "renew": renew, "label": label, "on_lost": on_lost, "at_least": at_least}
        lock_of = self._lock_of_guard(name, on_busy, timeout, **how)
        return lambda function: guarded(function, name, lock_of, on_busy == "skip")

    def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: of one lock; None for all of this namespace.
        """
        return run(self._session.ready().look(self._key_or_all(name)))

    def evict(self, name: str, id: str | None = None) -> int:
        """Remove a claim, whoever's it is; a holder notices at its next renewal or release.

        Args:
            name: of the lock.
            id: of the claim; None for all of them.

        Returns:
            How many claims were removed.
        """
        return run(self._session.evict(self._key(name), id))

    def doctor(self) -> list[Check]:
        """Find out whether the store keeps the promises that the protocol needs, with a round trip.

        Returns:
            The findings; one with status "fail" means: do not use this store.
        """
        from interlock.locks.doctor import round_trip  # programs that lock start faster without it

        store = self._session.ready()
        return [*store.doctor(), *run(round_trip(store, self._session.namespace))]

    def close(self) -> None:
        """Let those of this connection who wait give up, release what is held, and close; safe to repeat.

        Raises:
            StoreError: something could not be released; everything else was, and the connection is closed.
        """
        if self._session.closing.acquire(blocking=False):
            self._session.closed = True
            closing.close(self._session)

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""`Locks`: the connection of threads to a store."""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from interlock.core.acquire import AcquireCall, Held, acquire
from interlock.core.claims import DEFAULT_TTL, Check, Claim, ClaimView, LockSpec
from interlock.core.errors import LockError
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
from interlock.locks.sync import closing
from interlock.locks.sync.grants import Grant
from interlock.locks.sync.locks import AllLock, Lock, Owner, RLock, guarded
from interlock.locks.sync.watchdog import Watchdog
from interlock.runtime import log
from interlock.runtime.process import WeakRegistry
from interlock.runtime.sync import fresh_id, run
from interlock.stores.base import Store, report_doubts, shortcuts

P = ParamSpec("P")
R = TypeVar("R")


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
        self._watchdog: Watchdog[Grant] = Watchdog(self._store, _tell_lost, Grant.release, self)
        report_doubts(self._store, self._watchdog.doubt)
        self._entering: dict[str, closing.Entering] = {}
        self._closing = threading.Lock()
        if self._closed:
            self._closing.acquire()
        self._holds: Holds[Grant] = Holds()

    def _make(self, spec: LockSpec, options: AcquireOptions) -> Lock:
        return Lock(self, spec, options)

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
        return RLock(self, spec, options_of(timeout, renew, on_lost, at_least))

    def all(self, *parts: "str | Lock", timeout: float | None = None) -> AllLock:
        """Return several locks as one: all or none, in one global order whatever the order given.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: seconds that acquiring all of them waits at most; None for no limit.

        Raises:
            InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
        """
        locks = [part if isinstance(part, Lock) else self.lock(part) for part in parts]
        at_least = max((part._options.at_least for part in locks), default=0.0)
        return AllLock(self, in_global_order(self, locks), options_of(timeout, True, None, at_least))

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
        seconds = guard_timeout(on_busy, timeout)

        def lock_of(name: str) -> Lock:
            return self.lock(
                name, ttl=ttl, timeout=seconds, renew=renew, label=label, on_lost=on_lost, at_least=at_least
            )

        lock_of(name)  # it judges the arguments
        return lambda function: guarded(function, name, lock_of, on_busy == "skip")

    def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: of one lock; None for all of this namespace.
        """
        return run(self._ready().look(self._key_or_all(name)))

    def _holders_of(self, key: str) -> Sequence[ClaimView]:
        """Return who holds the lock `key`, as far as it can be found out."""
        known = self._last_holders.recall(key)
        if known is None:
            try:
                known = self._last_holders.note(key, run(self._store.look(key)))
            except LockError:
                return ()
        return known

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
        from interlock.locks.doctor import round_trip  # programs that lock start faster without it

        store = self._ready()
        return [*store.doctor(), *run(round_trip(store, self._namespace))]

    def close(self) -> None:
        """Let those of this connection who wait give up, release what is held, and close; safe to repeat.

        Raises:
            StoreError: something could not be released; everything else was, and the connection is closed.
        """
        if self._closing.acquire(blocking=False):
            self._closed = True
            closing.close(self)

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acquire(
        self, spec: LockSpec, options: AcquireOptions, seconds: float | None, who: str, owner: Owner | None = None
    ) -> Grant | None:
        started = monotonic()
        claim = Claim(fresh_id(), spec, who)
        entering, id = self._entering, claim[0]
        call = grant = result = None
        # In this order: who closes says so first, and then looks who is entering.
        entering[id] = claim, owner
        if self._closed:
            entering.pop(id, None)
            self._ready()
        try:
            if self._enter_now is not None:
                result = self._enter_now(claim, None, seconds != 0, False)
            if result is not None and result.state == "using" and monotonic() < started + spec.ttl:
                held: Held | tuple[Claim, int, float] = claim, result.fence, started + spec.ttl
            else:
                deadline = None if seconds is None else started + (seconds or TRY_LIMIT)
                call = entering[id] = AcquireCall(claim, started, deadline, seconds != 0, result, owner)
                waited = run(acquire(self._store, call))
                if waited is None:
                    entering.pop(id, None)
                    return None
                held = waited
            grant = Grant(held, options.renew, options.on_lost)
            grant._locks = self
            grant._owner = owner
            self._watchdog.add(grant)
            if self._closed:
                raise closing.closed_meanwhile(spec)
            try:
                del entering[id]  # no call from here on: an interrupt could lose the grant
            except KeyError:
                raise closing.closed_meanwhile(spec) from None
            return grant
        except BaseException:
            # KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                self._watchdog.remove(grant)
                grant._state = RELEASED
            try:
                if call is None or call.entered:
                    run(self._store.leave(call.claim if call is not None else claim))
            except LockError as problem:
                if id in entering:  # else whoever closed has done it
                    log.warn("could not take a claim out of the line, its lease will end: %s", problem)
            finally:
                entering.pop(id, None)
            raise


def _tell_lost(grant: Grant) -> None:
    """Call `on_lost` in a thread of its own: nothing that it does holds back the renewals of others."""
    if grant._on_lost is None:
        return
    try:
        threading.Thread(target=_call_on_lost, args=(grant,), name="interlock-on-lost", daemon=True).start()
    except RuntimeError as error:  # the interpreter is shutting down
        log.warn("%r was lost, and no thread could be started to call its on_lost: %s", grant, error)


def _call_on_lost(grant: Grant) -> None:
    try:
        if grant._on_lost is not None:
            grant._on_lost(grant)
    except BaseException:
        log.exception("on_lost of %r failed", grant)


_open: WeakRegistry[Locks] = WeakRegistry()


def _after_fork() -> None:
    for locks in _open:
        locks._start_afresh()


def _at_exit() -> None:
    for locks in _open:
        if locks._closing.acquire(blocking=False):
            locks._closed = True
            try:
                closing.at_exit(locks)
            except Exception as error:
                log.warn("could not close at exit: %s", error)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

"""Locks for threads: what `connect` returns."""

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from interlock.claims import DEFAULT_TTL, Check, Claim, ClaimView, Terms
from interlock.engine import fresh_id, run
from interlock.errors import InvalidArgument, LockError, LockLost, NotHeld, StoreError
from interlock.facade import (
    TRY_PATIENCE,
    UNSET,
    BaseLocks,
    Manner,
    Unset,
    closed,
    in_global_order,
    is_used,
    manner_of,
    name_of,
    patience,
    time_is_over,
)
from interlock.grants import RELEASED, BaseGrant, Hold
from interlock.protocols.claiming import Attempt, acquire
from interlock.stores.base import Store
from interlock.watchdog import Watchdog

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound="Grant | Grants")
Owner: TypeAlias = threading.Thread
log = logging.getLogger("interlock")


class Grant(BaseGrant):
    """A held lock; `release()` gives it back, from any thread."""

    __slots__ = ("_locks",)

    _locks: "Locks"

    def release(self) -> bool:
        """Give the lock back and hand it to the next in line.

        Returns:
            True if this call released it; False if it was released or lost before.

        Raises:
            StoreError: the store could not be asked; call again, nothing is forgotten.
        """
        if self.inherited or self._state == RELEASED:
            return False
        watchdog = self._locks._watchdog
        watchdog.remove(self)
        lost = self.lost
        try:
            removed = run(self._locks._store.leave(self._claim))
        except StoreError:
            if lost:
                return False  # the store sees by itself that the lease ended
            watchdog.add(self)
            raise
        except BaseException:
            watchdog.add(self)
            raise
        return self._left(removed)

    def renew(self) -> bool:
        """Extend the lease to a full ttl from now.

        Returns:
            True if it was extended; False if the lock was released or lost.

        Raises:
            StoreError: the store could not be asked; the lease goes on until its deadline.
        """
        if not self.held:
            return False
        sent = time.monotonic()
        if run(self._locks._store.renew((self._claim,)))[0]:
            self._renewed(sent)
            return True
        self._locks._watchdog.lost(self)
        return False


class Reentry(Grant):
    """One of several handles on the same hold of a re-entrant lock; the last one to be released ends it."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold[Grant]) -> None:
        grant = hold.grant
        self._hold = hold
        self._claim, self._pid, self.id, self.fence = grant._claim, grant._pid, grant.id, grant.fence
        hold.entries.append(self)

    @property
    def lost(self) -> bool:
        """True once the lease of the hold is lost."""
        return self in self._hold.entries and self._hold.grant.lost

    @property
    def held(self) -> bool:
        """True while neither this handle was released nor the hold lost."""
        return self in self._hold.entries and self._hold.grant.held

    @property
    def expires_in(self) -> float:
        """Seconds until the lease of the hold ends unless it is renewed."""
        return self._hold.grant.expires_in if self.held else 0.0

    def release(self) -> bool:
        """Take this handle back; the last one releases the hold.  As `Grant.release`."""
        if self.inherited or self not in self._hold.entries or self.lost:
            return False
        if not self._hold.drop(self):
            return True
        released = self._hold.grant.release()
        if released:
            self._hold.end()
        return released

    def renew(self) -> bool:
        """Extend the lease of the hold.  As `Grant.renew`."""
        return self.held and self._hold.grant.renew()

    def _loss(self) -> LockLost:
        return self._hold.grant._loss()

    def __repr__(self) -> str:
        return f"<Reentry into {self._hold.grant!r}>"


class Lockable(Generic[G]):
    """`with`, decorator and ownership by thread, for whatever can be acquired."""

    __slots__ = ("_held", "_locks", "_manner")

    def __init__(self, locks: "Locks", manner: Manner) -> None:
        self._locks = locks
        self._manner = manner
        self._held: list[tuple[Owner, G]] = []

    @property
    def name(self) -> str:
        """The name that is locked."""
        raise TypeError  # pragma: no cover

    def _take(self, seconds: float | None, owner: Owner) -> G | None:
        raise TypeError  # pragma: no cover

    def acquire(self, blocking: bool = True, timeout: float | None | Unset = UNSET) -> G | None:
        """Wait in line for the lock.

        Args:
            blocking: False for one try.
            timeout: seconds to wait at most; None or -1 for no limit, 0 for one try; left out: the lock's own.

        Returns:
            The grant, or None if the lock was not obtained.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
            StoreError: the store failed.
        """
        return self._obtain(patience(self._manner, blocking, timeout))

    def _obtain(self, seconds: float | None) -> G | None:
        thread = threading.current_thread()
        grant = self._take(seconds, thread)
        if grant is not None:
            self._held.append((thread, grant))
        return grant

    def release(self) -> None:
        """Release what the calling thread acquired last with this lock.

        Raises:
            NotHeld: the calling thread holds nothing of this lock.
            StoreError: the store could not be asked; call again.
        """
        entry = self._last()
        released = entry is not None and entry[1].release()
        if entry is not None:
            self._forget(entry)
        if not released:
            raise NotHeld(
                f"this thread does not hold {self.name!r} by this lock object; to release from another thread, "
                f"call release() of the grant"
            )

    def owned(self) -> bool:
        """Tell whether the calling thread holds the lock by this lock object, with its lease still good."""
        thread = threading.current_thread()
        return any(owner is thread and grant.held for owner, grant in tuple(self._held))

    def _last(self) -> tuple[Owner, G] | None:
        """Return what the calling thread acquired last and has not released."""
        thread = threading.current_thread()
        for entry in reversed(self._held):
            if entry[0] is thread:
                if entry[1].held or entry[1].lost:
                    return entry
                self._forget(entry)
        return None

    def _forget(self, entry: tuple[Owner, G]) -> None:
        try:
            self._held.remove(entry)
        except ValueError:
            pass  # another thread was faster

    def __enter__(self) -> G:
        grant = self._obtain(self._manner.timeout)
        if grant is None:
            raise time_is_over(self.name, self._manner.timeout)
        return grant

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._last()
        if entry is None:
            return  # released inside the body
        grant = entry[1]
        grant.release()
        self._forget(entry)
        if grant.lost and not grant.inherited:
            if error is None:
                raise grant._loss()
            error.add_note(str(grant._loss()))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: it runs while the lock is held.

        Raises:
            InvalidArgument: it is a coroutine function; those take a lock of `aconnect`.
        """
        if iscoroutinefunction(function):
            raise InvalidArgument(f"{function.__name__} is a coroutine function: use a lock of aconnect()")

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return locked

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Lock(Lockable[Grant]):
    """One name to lock, with how to; made by `Locks.lock`, `semaphore`, `rwlock`.

    It may be used by many threads at once, and again and again.
    """

    __slots__ = ("_terms",)

    def __init__(self, locks: "Locks", terms: Terms, manner: Manner) -> None:
        super().__init__(locks, manner)
        self._terms = terms

    @property
    def name(self) -> str:
        """The name that is locked."""
        return name_of(self._terms.key)

    def _take(self, seconds: float | None, owner: Owner) -> Grant | None:
        return self._locks._acquire(self._terms, self._manner, seconds, owner.name)

    def locked(self) -> bool:
        """Tell whether anybody holds the lock now."""
        return is_used(run(self._locks._store.look(self._terms.key)))


class RLock(Lock):
    """A lock that the thread which holds it may acquire again; the count dies with the lease."""

    __slots__ = ()

    def _take(self, seconds: float | None, owner: Owner) -> Grant | None:
        holds = self._locks._holds
        key = (self._terms.key, owner)
        hold = holds.get(key)
        if hold is None or not hold.grant.held:
            holds.pop(key, None)  # the count dies with the lease
            grant = self._locks._acquire(self._terms, self._manner, seconds, owner.name)
            if grant is None:
                return None
            hold = holds[key] = Hold(grant, lambda: holds.pop(key, None))
        return Reentry(hold)


class Grants(Sequence[Grant]):
    """Several grants that were taken together, as a sequence in the order in which they were taken."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = tuple(grants)

    @overload
    def __getitem__(self, index: int) -> Grant: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Grant]: ...
    def __getitem__(self, index: int | slice) -> Grant | Sequence[Grant]:
        return self._grants[index]

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name."""
        return {grant.name: grant.fence for grant in self._grants}

    @property
    def held(self) -> bool:
        """True while all of them are held."""
        return all(grant.held for grant in self._grants)

    @property
    def lost(self) -> bool:
        """True once any of them is lost."""
        return any(grant.lost for grant in self._grants)

    @property
    def inherited(self) -> bool:
        """True in a forked child, which owns nothing of its parent's grants."""
        return any(grant.inherited for grant in self._grants)

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all of them are held now."""
        for grant in self._grants:
            grant.check()

    def release(self) -> bool:
        """Release all, the last one first; True if every one was still held.

        Raises:
            StoreError: the store could not be asked for some; the others are released; call again.
        """
        return release_all(self._grants)

    def _loss(self) -> LockLost:
        return next(grant for grant in self._grants if grant.lost)._loss()


def release_all(grants: Sequence[Grant]) -> bool:
    """Release each grant, the last one first, whatever happens to the others."""
    released = True
    failure: BaseException | None = None
    for grant in reversed(grants):
        try:
            released = grant.release() and released
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return released


class AllLock(Lockable[Grants]):
    """Several locks as one: all or none, taken in one global order so that two of these never deadlock."""

    __slots__ = ("_parts",)

    def __init__(self, locks: "Locks", parts: Sequence[Lock], manner: Manner) -> None:
        super().__init__(locks, manner)
        self._parts = parts

    @property
    def name(self) -> str:
        """The names that are locked."""
        return ", ".join(part.name for part in self._parts)

    def _take(self, seconds: float | None, owner: Owner) -> Grants | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        taken: list[Grant] = []
        try:
            for part in self._parts:
                left = seconds if deadline is None or not seconds else max(0.0, deadline - time.monotonic())
                grant = part._take(left, owner)
                if grant is None:
                    break
                taken.append(grant)
            else:
                return Grants(taken)
        except BaseException:
            release_all(taken)
            raise
        release_all(taken)
        return None

    def locked(self) -> bool:
        """Tell whether anybody holds any of them now."""
        return any(part.locked() for part in self._parts)


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
        return run(self._store.look(self._key_or_all(name)))

    def evict(self, name: str, id: str | None = None) -> int:
        """Remove a claim, whoever's it is; a holder notices at its next renewal or release.

        Args:
            name: of the lock.
            id: of the claim; None for all of them.

        Returns:
            How many claims were removed.
        """
        return run(self._store.evict(self._key(name), id))

    def doctor(self) -> list[Check]:
        """Find out whether the store keeps the promises that the protocol needs, with a round trip.

        Returns:
            The findings; one with status "fail" means: do not use this store.
        """
        return [*self._store.doctor(), *round_trip(self)]

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
        started = time.monotonic()
        wait = seconds != 0
        deadline = None if seconds is None else started + (seconds or TRY_PATIENCE)
        attempt = Attempt(Claim(fresh_id(), terms, who), started, deadline, wait)
        if self._closed:
            raise closed()
        grant = None
        try:
            held = run(acquire(self._store, attempt))
            if held is None:
                return None
            grant = Grant(held, manner.renew, manner.on_lost)
            grant._locks = self
            self._watchdog.add(grant)
            return grant
        except BaseException:
            # KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                self._watchdog.remove(grant)
            try:
                run(self._store.leave(attempt.claim))
            except LockError as error:
                log.warning("could not take a claim out of the line, its lease will end: %s", error)
            raise


def _tell_lost(grant: Grant) -> None:
    if grant._on_lost is not None:
        grant._on_lost(grant)


def round_trip(locks: Locks) -> Iterator[Check]:
    """Acquire and release a lock of a name that nobody uses, and look at the line meanwhile."""
    name = f"interlock doctor {fresh_id()}"
    started = time.perf_counter()
    try:
        with locks.lock(name, timeout=5) as first:
            seen = [view.id for view in locks.claims(name)]
            second = locks.lock(name).acquire(timeout=0)
            if second is not None:
                second.release()
        with locks.lock(name, timeout=5) as third:
            later = third.fence
    except LockError as error:
        yield Check("round trip", "fail", f"acquire and release failed: {error}")
        return
    took = (time.perf_counter() - started) * 1000
    if second is not None:
        yield Check("round trip", "fail", "the store let two in: do not use it")
    elif seen != [first.id]:
        yield Check("round trip", "fail", f"the claim {first.id} does not show in its line: {seen}")
    else:
        yield Check("round trip", "ok", f"acquire, look, refuse, release and acquire again took {took:.1f} ms")
    if later > first.fence:
        yield Check("fences", "ok", f"increase: {first.fence}, {later}")
    else:
        yield Check("fences", "fail", f"do not increase: {first.fence}, then {later}")


_open: "weakref.WeakSet[Locks]" = weakref.WeakSet()


def _after_fork() -> None:
    for locks in list(_open):
        locks._start_afresh()


def _at_exit() -> None:
    for locks in list(_open):
        try:
            locks.close()
        except LockError as error:
            log.warning("could not release at exit, the leases will end: %s", error)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

# Generated from _async/locks.py by tools/unasync.py; change that one.
"""`Locks`: a connection for threads, which creates locks."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Never, TypedDict, TypeVar, Unpack, overload

from interlock.client._sync.client import Client
from interlock.client._sync.grants import Grant
from interlock.client._sync.lock import AllLock, Lock, RLock, held_around
from interlock.client.arguments import OnBusy, P, checked_items, label_of_items, seconds_of
from interlock.client.base_lock import ReadWrite, Same
from interlock.client.events import Listener, listen
from interlock.core.claims import WRITER_UNITS, Check, ClaimView, checked_count, checked_instance
from interlock.core.errors import InvalidArgument, LockError
from interlock.core.functions import name_of_arguments
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.storekit.store import Store

if TYPE_CHECKING:
    from interlock.patterns._sync.election import Election
    from interlock.patterns._sync.once import Once
    from interlock.patterns._sync.one_of import OneOf

DOCTOR_LIMIT = 5.0  # seconds for each acquire
IN_GRACE = (Check("round trip", "warn", "Not tested: the store is in its grace period. Run doctor again later."),)
R = TypeVar("R")


class RunOptions(TypedDict, total=False):
    """The options of every kind of lock, without `timeout`; as for `Locks.lock`."""

    ttl: float | None
    renew: bool
    label: str | None
    on_lost: Callable[[Grant], object] | None


class LockOptions(RunOptions, total=False):
    """The options of a lock, without `timeout`; as for `Locks.lock`."""

    at_least: float
    at_most: float | None
    on_wanted: Callable[[Grant], object] | None
    max_waiters: int | None


class Locks(Same):
    """The locks of one store, for threads; returned by `connect`.

    Args:
        store: the store of the claims.
        namespace: separates applications that share a store.
        ttl: default lease of its locks in seconds; None for the store's own.
        instance, takeover: as for `connect`.
    """

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = "",
        ttl: float | None = None,
        instance: str | None = None,
        takeover: bool = False,
    ) -> None:
        self._client = Client(store, namespace, ttl, instance, takeover)
        if not rt.IS_ASYNC:  # load its modules now: a child forked during an import would hang in its own import
            self._client.state()

    def __repr__(self) -> str:
        namespace = f", namespace={self.namespace!r}" if self.namespace else ""
        return f"<{type(self).__name__} on {self._client.where}{namespace}>"

    @property
    def store(self) -> Store:
        """The store, for code that extends this library."""
        return self._client.store

    @property
    def namespace(self) -> str:
        """The namespace, which separates applications on one store."""
        return self._client.namespace

    def subscribe(self, function: Listener) -> Callable[[], None]:
        """Call `function` with each event of this connection, where the event happens.

        The thread that acquires or releases calls the function. A background thread reports the
        results of renewals. An exception of the function is logged, and does not stop other listeners.

        Args:
            function: takes an `Event`; it must be quick, and must not use locks of this connection.

        Returns:
            A function that ends the subscription; safe to repeat.

        Raises:
            InvalidArgument: the function is not callable.
        """
        return listen(self._client.listeners, function)

    def lock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> Lock:
        """Return an exclusive lock named `name`. This does not acquire it.

        Args:
            name: any non-empty text up to 1,000 characters.
            ttl: lease in seconds; renewed while the holder lives.
            timeout: maximum wait in seconds; None for no limit.
            renew: False to let the lease expire after `ttl`.
            label: free text, shown in listings.
            on_lost: called with the grant if the lease is lost.
            at_least: minimum hold time in seconds. An earlier release returns immediately; the lock becomes available
                when this time has passed.  Use it for jobs shorter than the clock skew of the machines.  The
                default ttl is extended to this time, so that it is kept even if the process dies.
            at_most: maximum hold time in seconds, after which the lock is lost despite renewals; None for no limit.
            on_wanted: called with the grant when another claim begins to wait, by the next renewal at the latest.
            max_waiters: do not wait if this many others are already waiting: `acquire` returns None, `with`
                raises Busy.

        Raises:
            InvalidArgument: an argument is out of range.
        """
        options = self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted, max_waiters)
        return Lock(self._client, self._client.spec(name, 1, 1, ttl, label, at_least), options)

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        units: int = 1,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> Lock:
        """Return a semaphore named `name`, whose holders share `permits` units.

        Args:
            permits: the units of the semaphore.
            units: the units of each holder of this object.
            name, ttl, timeout, renew, label, on_lost, at_least, at_most, on_wanted, max_waiters: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of range.
            Unsupported: the store has no semaphores.
        """
        checked_count(permits, "permits")
        if checked_count(units, "units") > permits:
            raise InvalidArgument(f"units={units} exceeds permits={permits}. Ask for fewer units.")
        spec = self._client.spec(name, units, permits, ttl, label, at_least)
        return Lock(
            self._client,
            spec,
            self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted, max_waiters),
        )

    def rwlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> ReadWrite[Lock]:
        """Return a reader/writer lock named `name`: `.read()` shares, `.write()` excludes.

        Args:
            name, ttl, timeout, renew, label, on_lost, at_least, at_most, on_wanted, max_waiters: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of range.
        """
        reader = self._client.spec(name, 1, WRITER_UNITS, ttl, label, at_least)
        options = self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted, max_waiters)
        writer = reader._replace(units=WRITER_UNITS)
        return ReadWrite(Lock(self._client, reader, options), Lock(self._client, writer, options))

    def rlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> RLock:
        """Return a re-entrant lock named `name`: the holding thread can acquire it again.

        Args:
            name, ttl, timeout, renew, label, on_lost, at_least, at_most, on_wanted, max_waiters: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of range.
        """
        spec = self._client.spec(name, 1, 1, ttl, label, at_least)
        return RLock(
            self._client,
            spec,
            self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted, max_waiters),
        )

    def all(self, *parts: "str | Lock", timeout: float | None = None) -> AllLock:
        """Return several locks as one: all or none, acquired in one global order.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: maximum wait for all of them in seconds; None for no limit.

        Raises:
            InvalidArgument: no lock, a repeated name, or a lock of another connection.
        """
        locks = [part if isinstance(part, Lock) else self.lock(part) for part in parts]
        if not locks:
            raise InvalidArgument("all() needs at least one name.")
        if any(part._client is not self._client for part in locks):
            raise InvalidArgument(
                "all() accepts only locks from this connection; locks from another cannot be ordered safely."
            )
        ordered = sorted(locks, key=lambda part: part._spec.key)
        for part, after in pairwise(ordered):
            if part._spec.key == after._spec.key:
                raise InvalidArgument(
                    f"all() got the name {part.name!r} twice, so it would wait for itself. Give each name once."
                )
        return AllLock(self._client, ordered, self._client.options(timeout))

    @overload
    def guard(
        self,
        name: str,
        *,
        on_busy: Literal["wait", "raise"] = "wait",
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> Callable[[Callable[P, rt.Result[R]]], Callable[P, rt.Result[R]]]: ...
    @overload
    def guard(
        self,
        name: str,
        *,
        on_busy: Literal["skip"],
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> Callable[[Callable[P, rt.Result[R]]], Callable[P, rt.Result[R | None]]]: ...
    def guard(
        self, name: str, *, on_busy: OnBusy = "wait", timeout: float | None = None, **how: Unpack[LockOptions]
    ) -> Any:
        """Decorate a function: it runs while holding the lock named by its arguments.

        Args:
            name: the lock's name; `{id}`, `{book.pk}` or `{kwargs[key]}` are replaced by arguments of the function.
            on_busy: the reaction while another caller holds the lock: "wait"; "raise" LockTimeout; "skip" this
                call, which returns None.
            timeout: maximum wait in seconds; by default "wait" has no limit, and the others try once, or wait without
                limit if `max_waiters` is given.
            ttl, renew, label, on_lost, at_least, at_most, on_wanted, max_waiters: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of range; when decorating: the name mentions an unknown argument, or
                the function is of a wrong kind.
            LockTimeout: when called: the lock could not be acquired in time; the function did not run.
            LockLost: when called: the lease expired while the function ran.
        """
        seconds = seconds_of(on_busy, timeout, how.get("max_waiters"))
        self.lock(name, timeout=seconds, **how)  # checks the arguments

        def decorate(function: Callable[P, rt.Result[R]]) -> Callable[P, rt.Result[R | None]]:
            name_for = name_of_arguments(name, function, "guard")
            return held_around(
                function,
                lambda args, kwargs: self.lock(name_for(args, kwargs), timeout=seconds, **how),
                on_busy == "skip",
            )

        return decorate

    @overload
    def once(
        self,
        name: str,
        *,
        keep: float,
        payload: object = None,
        on_busy: Literal["wait", "raise"] = "wait",
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
    ) -> "Once[Never]": ...
    @overload
    def once(
        self,
        name: str,
        *,
        keep: float,
        payload: object = None,
        on_busy: Literal["skip"],
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
    ) -> "Once[None]": ...
    def once(
        self,
        name: str,
        *,
        keep: float,
        payload: object = None,
        on_busy: OnBusy = "wait",
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
    ) -> "Once[Any]":
        """Return a run that is done once: `run(function)`, a decorator, or `with`.

        Args:
            name: the run's name; in a decorator, `{id}`, `{book.pk}` or `{kwargs[key]}` are replaced by arguments.
            keep: seconds for which the record of a completed run is kept; at most 366 days.
            payload: the content of the request, bytes or a JSON value, or a function that makes it from the arguments
                of the call; None for no comparison.  The record keeps a digest, never the payload; a call of the same
                name with another payload raises PayloadMismatch.
            on_busy: the reaction while another caller runs: "wait" for its result; "raise" LockTimeout; "skip" this
                call, which returns None.
            timeout: maximum wait in seconds; by default "wait" has no limit, and the others try once.
            ttl, renew, label, on_lost: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of range.
            Unsupported: the store does not support `once`.
        """
        from interlock.patterns._sync.once import Once  # loaded late, because few programs need it

        self._client.need("once")
        spec = self._client.spec(name, 1, 1, ttl, label)._replace(once=True)
        options = self._client.options(seconds_of(on_busy, timeout), renew, on_lost)
        return Once(self._client, name, keep, spec, options, on_busy == "skip", payload)

    def attach(
        self,
        token: str,
        *,
        ttl: float | None = None,
        renew: bool = True,
        on_lost: Callable[[Grant], object] | None = None,
    ) -> Grant:
        """Take over a detached lock, and renew it here; the token becomes invalid.

        Args:
            token: the token of `grant.detach()` or `interlock hold`.
            ttl: lease in seconds from now on; None to keep the previous lease.
            renew, on_lost: as for `lock`.

        Returns:
            The grant, with the same fence.

        Raises:
            InvalidArgument: the text is not a token, or belongs to another namespace or store.
            LockLost: the token was used before, its lease expired, or it was evicted.
            StoreError: the store failed; Unsupported: the store does not support detached locks.
        """
        from interlock.patterns._sync.detach import attach  # loaded late, because few programs need it

        return attach(self._client, token, ttl, self._client.options(None, renew, on_lost))

    def renew(self, token: str, *, ttl: float | None = None) -> bool:
        """Renew the lease of a detached lock for a full ttl; return False if it is gone.

        Args:
            token, ttl: as for `attach`, with its exceptions; the token stays valid.
        """
        from interlock.patterns._sync.detach import extend

        return extend(self._client, token, ttl)

    def release(self, token: str) -> bool:
        """Release a detached lock; return False if it is gone.

        Args:
            token: as for `attach`, with its exceptions.
        """
        from interlock.patterns._sync.detach import give_back

        return give_back(self._client, token)

    def election(
        self,
        name: str,
        *,
        on_elected: "Callable[[Election], object] | None" = None,
        on_deposed: "Callable[[Election], object] | None" = None,
        ttl: float | None = None,
        label: str | None = None,
    ) -> "Election":
        """Return a candidate of an election: one candidate leads, the others wait.

        Args:
            name: the election's name.
            on_elected, on_deposed: plain functions, called with the candidate at the beginning and end of its lead.
            ttl: lease in seconds: the maximum time from the death of a leader to the next leader.
            label: free text, shown in listings.

        Raises:
            InvalidArgument: an argument is out of range.
        """
        from interlock.patterns._sync.election import Election  # loaded late, because few programs need it

        spec = self._client.spec(name, 1, 1, ttl, label)
        return Election(self._client, spec, self._client.options(), on_elected, on_deposed)

    def is_done(self, name: str) -> bool:
        """Return True if the record of a completed run of `once` exists.

        Args:
            name: of the run.
        """
        self._client.need("once")
        return self._client.state().queue.run_result(self._client.key(name)) is not None

    def one_of(
        self,
        name: str,
        items: Sequence[str],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
        at_most: float | None = None,
        on_wanted: Callable[[Grant], object] | None = None,
        max_waiters: int | None = None,
    ) -> "OneOf":
        """Return a lock on one of several items, such as GPUs; `grant.item` names it.

        Args:
            name: the common name of the items.
            items: 1 to 1,024 different texts in any order; all callers must give the same items.
            ttl, timeout, renew, label, on_lost, at_most, on_wanted, max_waiters: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of range; when acquired: another caller uses another list.
            Unsupported: the store does not support slots.
        """
        from interlock.patterns._sync.one_of import OneOf  # loaded late, because few programs need it

        self._client.need("slot")
        listed = checked_items(items)
        spec = self._client.spec(name, 1, len(listed), ttl, label_of_items(listed, label))
        options = self._client.options(timeout, renew, on_lost, 0.0, at_most, on_wanted, max_waiters)
        return OneOf(self._client, spec, options._replace(items=listed))

    def forget(self, name: str) -> bool:
        """Delete a completed run's record, so that it runs again; True if there was one.

        Args:
            name: of the run.
        """
        self._client.need("once")
        return self._client.delete_run_result(self._client.key(name))

    def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: a lock's name; None for all locks of this namespace.
        """
        return self._client.look(self._client.listed(name))

    def namespaces(self) -> list[str]:
        """List the namespaces with a holder or a waiter; none if the store can't."""
        return self._client.state().queue.namespaces()

    def evict(self, name: str | None = None, id: str | None = None, *, instance: str | None = None) -> int:
        """Remove a claim of any program.

        A holder of this connection is notified before the call returns; other holders are notified at their next
        renewal.

        Args:
            name: the lock's name; None, with `instance`, for all locks of this namespace.
            id: the claim's id; None for all claims of the lock.
            instance: only the claims of processes that connected with this `instance`; None for all.

        Returns:
            The number of removed claims.

        Raises:
            InvalidArgument: neither a name nor an instance.
            Unsupported: `instance` on a store that does not keep it.
        """
        if instance is not None:
            return self._client.evict_instance(checked_instance(instance), name, id)
        if name is None:
            raise InvalidArgument("evict() needs a name or instance=. Find claims with claims().")
        return self._client.evict(self._client.key(name), id)

    def doctor(self) -> list[Check]:
        """Check whether the store keeps its guarantees, including a round trip.

        Returns:
            The findings; status "fail" means: do not use this store.
        """
        queue = self._client.state().queue
        try:
            found = queue.doctor()
        except LockError as error:
            found = [Check("server", "fail", str(error))]
        in_grace = any(check.name == "grace" and check.status == "warn" for check in found)
        return [*found, *(IN_GRACE if in_grace else _round_trip(self))]

    def close(self) -> None:
        """End all waits, release all locks, and close the connection; safe to repeat.

        Raises:
            StoreError: a lock could not be released; all others were, and the connection is closed.
        """
        self._client.close()

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _round_trip(locks: Locks) -> list[Check]:
    """Acquire and release a lock of an unused name, and check its line."""
    lock = locks.lock(f"interlock doctor {rt.fresh_id()}", timeout=DOCTOR_LIMIT)
    started = clock.now()
    try:
        with lock as first:
            seen = [view.id for view in locks.claims(lock.name)]
            second = lock.acquire(blocking=False)
        if second is not None:
            second.release()
            return [Check("round trip", "fail", "The store granted one lock to two holders. Do not use it.")]
        with lock as third:
            took = (clock.now() - started) * 1000
    except LockError as error:
        return [Check("round trip", "fail", f"Acquire and release failed: {error}")]
    if seen != [first.id]:
        return [Check("round trip", "fail", f"Claim {first.id} is missing in its line: {seen}.")]
    if third.fence <= first.fence:
        return [Check("fences", "fail", f"Fences do not increase: {first.fence}, then {third.fence}.")]
    return [
        Check("round trip", "ok", f"Acquire, look, refuse, release and acquire again took {took:.1f} ms."),
        Check("fences", "ok", f"Fences increase: {first.fence}, {third.fence}."),
    ]

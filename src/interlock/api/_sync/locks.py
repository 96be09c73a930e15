# Generated from _async/locks.py by tools/unasync.py; change that one.
"""`Locks`: a connection of threads, which makes locks."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, overload

from interlock.client._sync.client import Client
from interlock.client._sync.grants import Grant
from interlock.client._sync.lock import AllLock, Lock, RLock, held_around
from interlock.client.arguments import OnBusy, P, checked_items, label_of_items, seconds_of
from interlock.client.base_lock import ReadWrite, Same
from interlock.client.events import Listener, listen
from interlock.core.claims import DEFAULT_TTL, SEPARATOR, WRITER_UNITS, Check, ClaimView, checked_count
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


class Locks(Same):
    """The locks of one store, for threads; made by `connect`.

    Args:
        store: where the claims are kept.
        namespace: separates applications that share a store.
        ttl: seconds of lease of the locks made here, unless they say otherwise.
    """

    def __init__(self, store: Store, *, namespace: str = "", ttl: float = DEFAULT_TTL) -> None:
        self._client = Client(store, namespace, ttl)
        if not rt.TASKS:  # its modules are loaded now: a child that is forked during an import hangs in its own
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
        """What separates these locks from those of other applications on the store."""
        return self._client.namespace

    def subscribe(self, function: Listener) -> Callable[[], None]:
        """Let `function` be called with each event of this connection, as soon as it happens and where it happens.

        The thread that acquires or releases calls the function. A background thread reports the
        results of renewals. An exception of the function is logged, and does not stop other listeners.

        Args:
            function: takes an `Event`; it must be quick, and acquire or release nothing by this connection.

        Returns:
            What ends that; safe to repeat.

        Raises:
            InvalidArgument: it can't be called.
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
    ) -> Lock:
        """Return the exclusive lock called `name`; nothing is acquired yet.

        Args:
            name: any non-empty text up to 1,000 characters.
            ttl: seconds of lease; it is renewed while the holder lives.
            timeout: seconds that acquiring waits at most; None for no limit.
            renew: False to let the lease end after `ttl`.
            label: free text, shown to people who look at the line.
            on_lost: called with the grant if the lease is lost.
            at_least: seconds that it is kept at least: a release before that returns at once, and the lock gets free
                when they are over.  For jobs that are shorter than the clocks of several machines differ.  A ttl that
                is left out is at least as long, so that it holds also if the process ends.
            at_most: seconds after which the lock is lost, exactly, in spite of renewals; None for no limit.
            on_wanted: called with the grant when another claim begins to wait, at the next renewal at the latest.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        options = self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted)
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
    ) -> Lock:
        """Return the semaphore called `name`, which admits holders of `permits` units together.

        Args:
            permits: how many there are.
            units: how many this holder takes at a time.
            name, ttl, timeout, renew, label, on_lost, at_least, at_most, on_wanted: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
            Unsupported: the store has no semaphores.
        """
        checked_count(permits, "permits")
        if checked_count(units, "units") > permits:
            raise InvalidArgument(f"units={units} exceeds permits={permits}. Ask for fewer units.")
        spec = self._client.spec(name, units, permits, ttl, label, at_least)
        return Lock(
            self._client, spec, self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted)
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
    ) -> ReadWrite[Lock]:
        """Return the reader/writer lock called `name`: `.read()` shares, `.write()` excludes.

        Args:
            name, ttl, timeout, renew, label, on_lost, at_least, at_most, on_wanted: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        reader = self._client.spec(name, 1, WRITER_UNITS, ttl, label, at_least)
        options = self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted)
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
    ) -> RLock:
        """Return the lock called `name` as one that its holder, the thread, may acquire again.

        Args:
            name, ttl, timeout, renew, label, on_lost, at_least, at_most, on_wanted: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        spec = self._client.spec(name, 1, 1, ttl, label, at_least)
        return RLock(
            self._client, spec, self._client.options(timeout, renew, on_lost, at_least, at_most, on_wanted)
        )

    def all(self, *parts: "str | Lock", timeout: float | None = None) -> AllLock:
        """Return several locks as one: all or none, taken in one global order.

        Args:
            parts: names (for exclusive locks) or locks of this connection.
            timeout: seconds that acquiring all of them waits at most; None for no limit.

        Raises:
            InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
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
    ) -> Callable[[Callable[P, rt.Result[R]]], Callable[P, rt.Result[R | None]]]: ...
    def guard(self, name: str, *, on_busy: OnBusy = "wait", timeout: float | None = None, **how: Any) -> Any:
        """Decorate a function: it runs while the lock that its arguments name is held.

        Args:
            name: of the lock; `{id}`, `{book.pk}` or `{kwargs[key]}` are replaced by arguments of the function.
            on_busy: what to do while another caller holds it: "wait"; "raise" LockTimeout; "skip" this call, which
                returns None.
            timeout: seconds to wait before that; left out: "wait" has no limit, the others try once.
            ttl, renew, label, on_lost, at_least, at_most, on_wanted: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range; (when decorating) the name mentions what the function
                has no argument for, or the function is of a wrong kind.
            LockTimeout: (when called) the lock was not obtained in time; the function did not run.
            LockLost: (when called) the lease ended while it ran.
        """
        seconds = seconds_of(on_busy, timeout)
        self.lock(name, timeout=seconds, **how)  # judges the arguments

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
        on_busy: OnBusy = "wait",
        timeout: float | None = None,
        ttl: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Grant], object] | None = None,
    ) -> "Once[Any]":
        """Return a run that is done once: a decorator, `run(function)`, or `with … as once: if once.due: …`.

        Args:
            name: of the run; for a decorator, `{id}`, `{book.pk}` or `{kwargs[key]}` are replaced by arguments.
            keep: seconds for which the record of a completed run is kept, from its end; at most 366 days.
            on_busy: what to do while another caller runs it: "wait" for its result; "raise" LockTimeout; "skip",
                which returns None.
            timeout: seconds to wait before that; left out: "wait" has no limit, the others try once.
            ttl, renew, label, on_lost: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
            Unsupported: the store keeps no records.
        """
        from interlock.patterns._sync.once import Once  # programs that lock start faster without it

        self._client.need("once")
        spec = self._client.spec(name, 1, 1, ttl, label)._replace(once=True)
        options = self._client.options(seconds_of(on_busy, timeout), renew, on_lost)
        return Once(self._client, name, keep, spec, options, on_busy == "skip")

    def attach(
        self,
        token: str,
        *,
        ttl: float | None = None,
        renew: bool = True,
        on_lost: Callable[[Grant], object] | None = None,
    ) -> Grant:
        """Hold a lock that was detached, and renew it here from now on; the token is used up.

        Args:
            token: of `grant.detach()` or `interlock hold`.
            ttl: seconds of lease from now on; None for that of before.
            renew, on_lost: as for `lock`.

        Returns:
            The grant, with the fence of before.

        Raises:
            InvalidArgument: it is not a token of `detach`, or it belongs to another namespace or another store.
            LockLost: it was used before, its lease has ended, or it was evicted.
            StoreError: the store failed; Unsupported: its claims can't outlive their process.
        """
        from interlock.patterns._sync.detach import attach  # programs that lock start faster without it

        return attach(self._client, token, ttl, self._client.options(None, renew, on_lost))

    def renew(self, token: str, *, ttl: float | None = None) -> bool:
        """Let the lease of a detached lock last for a full ttl from now; False if it is gone.

        Args:
            token, ttl: as for `attach`, which also says what is raised; the token can be used again.
        """
        from interlock.patterns._sync.detach import extend

        return extend(self._client, token, ttl)

    def release(self, token: str) -> bool:
        """Release a detached lock; False if it is gone.

        Args:
            token: as for `attach`, which also says what is raised.
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
        """Return a candidate of an election: one candidate leads at a time, the others wait.

        Args:
            name: of the election.
            on_elected, on_deposed: plain functions, called with the candidate when it begins and ceases to lead.
            ttl: seconds of lease: the longest time until another candidate leads after the leader has died.
            label: free text, shown where the line is listed.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        from interlock.patterns._sync.election import Election  # programs that lock start faster without it

        spec = self._client.spec(name, 1, 1, ttl, label)
        return Election(self._client, spec, self._client.options(), on_elected, on_deposed)

    def is_done(self, name: str) -> bool:
        """Tell whether the record of a completed run of `once` is kept.

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
    ) -> "OneOf":
        """Return a lock on one of several items, as GPUs or ports; `grant.item` says which.

        Args:
            name: of all the items together.
            items: 1 to 1,024 different texts; their order does not matter, but all callers must give the same items.
            ttl, timeout, renew, label, on_lost, at_most, on_wanted: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range; when acquired: another caller has given another list.
            Unsupported: the store has no slots.
        """
        from interlock.patterns._sync.one_of import OneOf  # as the other patterns: few programs need it

        self._client.need("slot")
        listed = checked_items(items)
        spec = self._client.spec(name, 1, len(listed), ttl, label_of_items(listed, label))
        options = self._client.options(timeout, renew, on_lost, 0.0, at_most, on_wanted)
        return OneOf(self._client, spec, options._replace(items=listed))

    def forget(self, name: str) -> bool:
        """Forget that a run of `once` was completed, so that it runs again; True if there was a record.

        Args:
            name: of the run.
        """
        self._client.need("once")
        return self._client.delete_run_result(self._client.key(name))

    def claims(self, name: str | None = None) -> list[ClaimView]:
        """List holders and waiters in line order.

        Args:
            name: of one lock; None for all of this namespace.
        """
        key = self.namespace + SEPARATOR if name is None else self._client.key(name)
        return self._client.look(key)

    def namespaces(self) -> list[str]:
        """List the namespaces of the store that have a holder or a waiter; none if the store can't tell."""
        return self._client.state().queue.namespaces()

    def evict(self, name: str, id: str | None = None) -> int:
        """Remove a claim of any program.

        A holder of this connection is notified before this returns; a holder elsewhere notices at its next renewal.

        Args:
            name: of the lock.
            id: of the claim; None for all of them.

        Returns:
            The number of removed claims.
        """
        return self._client.evict(self._client.key(name), id)

    def doctor(self) -> list[Check]:
        """Check whether the store keeps the promises that the protocol needs, also by a round trip.

        Returns:
            The findings; one with status "fail" means: do not use this store.
        """
        queue = self._client.state().queue
        try:
            found = queue.doctor()
        except LockError as error:
            found = [Check("server", "fail", str(error))]
        in_grace = any(check.name == "grace" and check.status == "warn" for check in found)
        return [*found, *(IN_GRACE if in_grace else _round_trip(self))]

    def close(self) -> None:
        """End the waits of this connection, release all its locks, and close; safe to repeat.

        Raises:
            StoreError: something could not be released; everything else was, and the connection is closed.
        """
        self._client.close()

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _round_trip(locks: Locks) -> list[Check]:
    """Acquire and release a lock of an unused name, and look at the line meanwhile."""
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

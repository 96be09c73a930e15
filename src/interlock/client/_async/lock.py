"""The lock objects of tasks: `async with`, `acquire`, decorators."""

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast, overload
from weakref import ref

from interlock.client._async.client import AsyncClient
from interlock.client._async.grants import AsyncGrant, AsyncGrants, AsyncReentry
from interlock.client.arguments import AcquireOptions, P, wait_limit
from interlock.client.base_grant import ReentryCount
from interlock.client.base_lock import MAX_LISTED_HOLDS, Same
from interlock.client.cancel import SupportsIsSet, checked_cancel
from interlock.core.claims import UNSET, USING, LockSpec, Unset, kind_of, name_of
from interlock.core.errors import Busy, NotHeld
from interlock.core.functions import around_generator, check_kind, checked_kind_of, refuse_awaitable
from interlock.runtime import _aio as rt
from interlock.runtime.blocks import Acquired, Acquisition, CallSite, call_site

R = TypeVar("R")
G = TypeVar("G", bound=AsyncGrant | AsyncGrants)


class AsyncLockable(rt.AsyncWrongWith, Same, Generic[G]):
    """`async with`, decorator and ownership by task, for all lock objects.

    Several threads may use an object at the same time.
    """

    def __init__(self, client: AsyncClient, specs: Sequence[LockSpec], options: AcquireOptions) -> None:
        self._client = client
        self._specs = specs
        self._options = options
        self._acquired = Acquired()

    @property
    def name(self) -> str:
        """The lock's name, or several names."""
        return ", ".join(name_of(spec.key) for spec in self._specs)

    async def locked(self) -> bool:
        """Return True if the lock, or any of several locks, is held now."""
        views = [view for spec in self._specs for view in await self._client.look(spec.key)]
        return any(view.state == USING for view in views)

    @abstractmethod
    def _take(
        self, seconds: float | None, owner: rt.Caller, cancel: SupportsIsSet | None = None
    ) -> rt.Result[G | None]:
        """Acquire the lock for the caller."""

    @overload
    async def acquire(self, blocking: Literal[True] = True) -> G | Any: ...  # None if the lock has a timeout
    @overload
    async def acquire(
        self, blocking: bool = True, timeout: float | None | Unset = UNSET, *, cancel: SupportsIsSet | None = None
    ) -> G | None: ...
    async def acquire(
        self, blocking: bool = True, timeout: float | None | Unset = UNSET, *, cancel: SupportsIsSet | None = None
    ) -> G | Any:
        """Wait in line for the lock, and acquire it.

        Args:
            blocking: False for one try.
            timeout: maximum wait in seconds; None or -1 for no limit, 0 for one try; by default the lock's own.
            cancel: an `interlock.Cancel`, whose `set()` ends the wait immediately; or another object with `is_set()`,
                such as an event, which is polled every 0.1 s.  The call then returns None.

        Returns:
            The grant, which can be used with `async with`; None if the lock could not be acquired.  The lock is held
            while the grant or this lock object lives; if both are collected before a release, the lease expires and
            a ResourceWarning is issued.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
            StoreError: the store failed.
        """
        if cancel is not None and checked_cancel(cancel).is_set():
            return None
        return await self._obtain(wait_limit(self._options, blocking, timeout), cancel)

    async def _obtain(
        self, seconds: float | None, cancel: SupportsIsSet | None = None, site: CallSite | None = None
    ) -> G | Any:
        owner = rt.caller()
        try:
            grant = await self._take(seconds, owner, cancel)
        except Busy:
            if site is not None:
                raise
            return None
        if grant is None:
            if site is not None:
                raise await self._client.too_late(self._specs, seconds, owner)
            return None
        try:
            self._acquired.note(site, grant, owner)
            if self._options.at_least and isinstance(grant, AsyncGrant):
                grant._stay_at_least()
            if site is not None:
                grant._enter_body(owner)
            return grant
        except BaseException:  # an interrupt: the caller has no grant, and no block will release it
            self._acquired.drop(grant)
            await rt.finish(grant.release)
            raise

    def _mine(self, owner: rt.Caller) -> Acquisition | None:
        """Return the caller's last grant, or the only grant of a completed task.

        A grant in the body of another living owner is left alone, even if the caller acquired it.
        """
        held = [
            each
            for each in self._acquired.copy()
            if not each[1]._over and ((body := each[1]._body) is None or body is owner or body.done())
        ]
        mine = [each for each in held if each[2] is owner]
        # async only
        if not mine:
            left = [each for each in held if each[0] is None and each[2].done()]
            mine = left if len(left) == 1 else []
        return mine[-1] if mine else None

    async def release(self) -> None:
        """Release the last grant that the calling task acquired with this lock.

        Raises:
            NotHeld: the calling task holds nothing through this lock.
            StoreError: the store could not be asked; call again.
        """
        mine = self._mine(rt.caller())
        released = mine is not None and await mine[1].release()
        if mine is not None and mine[0] is None:
            self._acquired.forget(mine)
        if not released:
            raise NotHeld(
                f"The calling thread or task does not hold {self.name!r} through this lock object. "
                "To release it elsewhere, call grant.release()."
            )

    def owned(self) -> bool:
        """Return True if the calling task holds the lock through this lock object."""
        owner = rt.caller()
        return any(who is owner and grant.held for _, grant, who in self._acquired.copy())

    def __aenter__(self) -> rt.Result[G]:
        return self._obtain(self._options.timeout, None, call_site())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._acquired.end(rt.caller, self)
        mine: AsyncGrants = ended[0] if len(ended) == 1 else AsyncGrants(ended)
        await mine.__aexit__(kind, error, trace)

    def __call__(self, function: Callable[P, rt.Result[R]]) -> Callable[P, rt.Result[R]]:
        """Decorate a function: it runs while holding the lock.

        Raises:
            InvalidArgument: the function is of a wrong kind.  When called: it returned a coroutine or a generator,
                which has not run.
        """
        if not rt.IS_ASYNC and checked_kind_of(function) == "generator function":
            return cast(Callable[P, rt.Result[R]], around_generator(cast(Any, self), cast(Any, function)))
        return cast(Callable[P, rt.Result[R]], held_around(function, lambda args, kwargs: self, False))

    def __repr__(self) -> str:
        kinds = ", ".join(kind_of(spec.units, spec.capacity) for spec in self._specs)
        return f"<{type(self).__name__} {self.name!r} ({kinds}) on {self._client.where}>"


class AsyncLock(AsyncLockable[AsyncGrant]):
    """A lock on one name, with its options; returned by `AsyncLocks.lock` and others.

    Many tasks may use it at the same time, and repeatedly.
    """

    def __init__(self, client: AsyncClient, spec: LockSpec, options: AcquireOptions) -> None:
        super().__init__(client, (spec,), options)
        self._spec = spec

    def _take(
        self, seconds: float | None, owner: rt.Caller, cancel: SupportsIsSet | None = None
    ) -> rt.Result[AsyncGrant | None]:
        return self._client.acquire(self._spec, self._options, seconds, owner, cancel)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._client, self._spec, self._options)


class AsyncRLock(AsyncLock):
    """A re-entrant lock: its holding task can acquire it again."""

    async def _take(
        self, seconds: float | None, owner: rt.Caller, cancel: SupportsIsSet | None = None
    ) -> AsyncGrant | None:
        # async only
        await rt.yield_to_loop()  # a re-entry waits for nothing else
        holds, strands = self._client.state().holds, rt.strands()
        for strand in strands:
            reference, hold = holds.get((self._spec.key, owner, strand), (None, None))
            held = None if reference is None else reference()
            if held is not None and held.held and hold is not None and hold.add():
                return AsyncReentry(held, hold, self._options)
        grant = await self._client.acquire(self._spec, self._options, seconds, owner, cancel)
        if grant is None:
            return None
        if len(holds) >= MAX_LISTED_HOLDS:
            for each, (reference, _) in list(holds.items()):
                found = reference()
                if found is None or not found.held:
                    holds.pop(each, None)
        hold = ReentryCount()
        holds[self._spec.key, owner, strands[0]] = ref(grant), hold
        return AsyncReentry(grant, hold, self._options)


class AsyncAllLock(AsyncLockable[AsyncGrants]):
    """Several locks as one: all or none, in one global order that avoids deadlocks."""

    def __init__(self, client: AsyncClient, parts: Sequence[AsyncLock], options: AcquireOptions) -> None:
        super().__init__(client, [part._spec for part in parts], options)
        self._parts = parts

    async def _take(
        self, seconds: float | None, owner: rt.Caller, cancel: SupportsIsSet | None = None
    ) -> AsyncGrants | None:
        deadline = None if seconds is None else self._client.now() + seconds
        taken: list[AsyncGrant] = []
        try:
            for part in self._parts:
                left = None if deadline is None else max(0.0, deadline - self._client.now())
                grant = await part._take(left, owner, cancel)
                if grant is None:
                    break
                taken.append(grant)
            else:
                for grant in taken:
                    grant._stay_at_least()
                return AsyncGrants(taken)
        except BaseException:
            await AsyncGrants(taken).release()
            raise
        await AsyncGrants(taken).release()
        return None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._client, self._parts, self._options)


def held_around(
    function: Callable[P, rt.Result[R]],
    lock_for: Callable[[tuple[object, ...], dict[str, object]], AsyncLockable[Any]],
    skips: bool,
) -> Callable[P, rt.Result[R | None]]:
    """Return a function that runs under a lock.

    Args:
        function: the decorated function.
        lock_for: returns the lock for the arguments of a call.
        skips: True to return None instead of raising LockTimeout.

    Raises:
        InvalidArgument: the function is of a wrong kind.
    """
    check_kind(function, rt.WRAPPED_KIND)

    @functools.wraps(function)
    async def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lock = lock_for(args, kwargs)
        held = await lock.acquire() if skips else lock
        if held is None:
            return None
        async with held:
            result = await function(*args, **kwargs)
            refuse_awaitable(result, function)
            return result

    return locked

"""The lock objects of asyncio tasks: async with, acquire, decorator."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar

from interlock.aengine import arun
from interlock.aio.grants import AsyncGrant, AsyncGrants, AsyncReentry, release_all
from interlock.claims import Terms
from interlock.errors import InvalidArgument, NotHeld
from interlock.facade import UNSET, Manner, Unset, is_used, name_of, patience, time_is_over
from interlock.grants import RELEASED, Hold

if TYPE_CHECKING:
    from interlock.aio.connection import AsyncLocks

P = ParamSpec("P")
R = TypeVar("R")
MANY = 8  # entries among which some may be old
G = TypeVar("G", bound=AsyncGrant | AsyncGrants)
Owner: TypeAlias = asyncio.Task[Any]


def current_task() -> Owner:
    """Return the calling task.

    Raises:
        NotHeld: there is none; a lock of `aconnect` is used outside of a task.
    """
    task = asyncio.current_task()
    if task is None:
        raise NotHeld("a lock of aconnect() is used outside of an asyncio task: await it in a coroutine")
    return task


class AsyncLockable(Generic[G]):
    """`with`, decorator and ownership by thread, for whatever can be acquired."""

    __slots__ = ("_held", "_locks", "_manner")

    def __init__(self, locks: "AsyncLocks", manner: Manner) -> None:
        self._locks = locks
        self._manner = manner
        self._held: list[tuple[Owner, G]] = []

    @property
    def name(self) -> str:
        """The name that is locked."""
        raise TypeError  # pragma: no cover

    def _take(self, seconds: float | None, owner: Owner) -> Coroutine[Any, Any, G | None]:
        raise TypeError  # pragma: no cover

    async def acquire(self, blocking: bool = True, timeout: float | None | Unset = UNSET) -> G | None:
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
        seconds = patience(self._manner, blocking, timeout)
        task = current_task()
        grant = None
        try:
            grant = await self._take(seconds, task)
            if grant is not None:
                if len(self._held) >= MANY:
                    self._tidy()
                self._held.append((task, grant))
            return grant
        except BaseException:  # an interrupt between the two lines
            if grant is not None:
                await grant.release()
            raise

    async def release(self) -> None:
        """Release what the calling task acquired last with this lock.

        Raises:
            NotHeld: the calling task holds nothing of this lock.
            StoreError: the store could not be asked; call again.
        """
        entry = self._last()
        released = entry is not None and await entry[1].release()
        if entry is not None:
            self._forget(entry)
        if not released:
            raise NotHeld(
                f"this task does not hold {self.name!r} by this lock object; to release from another task, "
                f"call release() of the grant"
            )

    def owned(self) -> bool:
        """Tell whether the calling task holds the lock by this lock object, with its lease still good."""
        task = current_task()
        return any(owner is task and grant.held for owner, grant in tuple(self._held))

    def _last(self) -> tuple[Owner, G] | None:
        """Return what the calling task acquired last and has not released."""
        task = current_task()
        for entry in self._held[::-1]:
            if entry[0] is task:
                if entry[1]._state != RELEASED:
                    return entry
                self._forget(entry)
        return None

    def _tidy(self) -> None:
        """Forget the grants that were released by themselves, not through this lock."""
        for entry in [entry for entry in self._held if entry[1]._state == RELEASED]:
            self._forget(entry)

    def _forget(self, entry: tuple[Owner, G]) -> None:
        try:
            self._held.remove(entry)
        except ValueError:
            pass  # another task was faster

    async def __aenter__(self) -> G:
        grant = await self.acquire()
        if grant is None:
            raise time_is_over(self.name, self._manner.timeout)
        grant._enter_body()
        return grant

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._last()
        if entry is None:
            return  # released inside the body
        grant = entry[1]
        struck = grant._leave_body(kind)
        await grant.release()
        self._forget(entry)
        if grant.lost and not grant.inherited:
            if error is None or struck:
                raise grant._loss() from error
            error.add_note(str(grant._loss()))

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function: it runs while the lock is held.

        Raises:
            InvalidArgument: it is no coroutine function; those take a lock of `connect`.
        """
        if not iscoroutinefunction(function):
            raise InvalidArgument(f"{function!r} is no coroutine function: use a lock of connect()")

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class AsyncLock(AsyncLockable[AsyncGrant]):
    """One name to lock, with how to; made by `AsyncLocks.lock`, `semaphore`, `rwlock`.

    It may be used by many threads at once, and again and again.
    """

    __slots__ = ("_terms",)

    def __init__(self, locks: "AsyncLocks", terms: Terms, manner: Manner) -> None:
        super().__init__(locks, manner)
        self._terms = terms

    @property
    def name(self) -> str:
        """The name that is locked."""
        return name_of(self._terms.key)

    def _take(self, seconds: float | None, owner: Owner) -> Coroutine[Any, Any, AsyncGrant | None]:
        return self._locks._acquire(self._terms, self._manner, seconds, owner.get_name())

    async def locked(self) -> bool:
        """Tell whether anybody holds the lock now."""
        return is_used(await arun(self._locks._ready().look(self._terms.key)))


class AsyncRLock(AsyncLock):
    """A lock that the thread which holds it may acquire again; the count dies with the lease."""

    __slots__ = ()

    async def _take(self, seconds: float | None, owner: Owner) -> AsyncGrant | None:
        holds = self._locks._holds
        key = (self._terms.key, owner)
        hold = holds.get(key)
        if hold is None or not hold.grant.held:
            holds.pop(key, None)  # the count dies with the lease
            grant = await self._locks._acquire(self._terms, self._manner, seconds, owner.get_name())
            if grant is None:
                return None
            hold = holds[key] = Hold(grant, lambda: holds.pop(key, None))
        return AsyncReentry(hold)


class AsyncAllLock(AsyncLockable[AsyncGrants]):
    """Several locks as one: all or none, taken in one global order so that two of these never deadlock."""

    __slots__ = ("_parts",)

    def __init__(self, locks: "AsyncLocks", parts: Sequence[AsyncLock], manner: Manner) -> None:
        super().__init__(locks, manner)
        self._parts = parts

    @property
    def name(self) -> str:
        """The names that are locked."""
        return ", ".join(part.name for part in self._parts)

    async def _take(self, seconds: float | None, owner: Owner) -> AsyncGrants | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        taken: list[AsyncGrant] = []
        try:
            for part in self._parts:
                left = seconds if deadline is None or not seconds else max(0.0, deadline - time.monotonic())
                grant = await part._take(left, owner)
                if grant is None:
                    break
                taken.append(grant)
            else:
                return AsyncGrants(taken)
        except BaseException:
            await release_all(taken)
            raise
        await release_all(taken)
        return None

    async def locked(self) -> bool:
        """Tell whether anybody holds any of them now."""
        return any([await part.locked() for part in self._parts])

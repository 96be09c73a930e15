"""The lock objects of asyncio tasks: async with, acquire, decorator."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, ParamSpec, TypeAlias, TypeVar

from interlock.core.claims import UNSET, Unset, shown_text
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout, NotHeld
from interlock.core.functions import checked_kind_of, see_it_finished, shown
from interlock.core.naming import name_of_arguments
from interlock.locks.aio.grants import AsyncGrant, AsyncGrants, AsyncReentry, leave, release_all
from interlock.locks.aio.session import Session
from interlock.locks.arguments import is_used, wait_limit
from interlock.locks.blocks import Block, enter, entering, one_for_each_block
from interlock.locks.busy import time_is_over
from interlock.locks.lockable import BaseAllLock, BaseLock, BaseLockable
from interlock.runtime.aio import arun, give_way

P = ParamSpec("P")
R = TypeVar("R")
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


class AsyncLockable(BaseLockable[G]):
    """`async with`, decorator and ownership by task, for whatever can be acquired."""

    __slots__ = ()

    _session: Session

    async def acquire(self, blocking: bool = True, timeout: float | None | Unset = UNSET) -> G | None:
        """Wait in line for the lock.

        Args:
            blocking: False for one try.
            timeout: seconds to wait at most; None or -1 for no limit, 0 for one try; left out: the lock's own.

        Returns:
            The grant, also for `async with`; or None if the lock was not obtained.  It is held for as long as the
            grant or this lock object lives; if both are collected before a release, the lease ends and a
            ResourceWarning says so.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
            StoreError: the store failed.
        """
        return await self._obtain(wait_limit(self._options, blocking, timeout), None)

    async def _obtain(self, seconds: float | None, block: Block | None) -> G | None:
        task = current_task()
        grant: G | None = None
        try:
            if task in self._held:
                for left in self._abandoned(task):
                    await left.release()
                    self._forget(task, left)
            grant = await self._take(seconds, task)
            if grant is not None:
                if block is not None:
                    enter(block, grant)
                self._keep(task, grant)
                if self._options.at_least:
                    self._stay(grant)
            return grant
        except BaseException:  # an interrupt at any of these lines
            if grant is not None:
                await grant.release()
                self._forget(task, grant)
            raise

    async def release(self) -> None:
        """Release what the calling task acquired last with this lock.

        Raises:
            NotHeld: the calling task holds nothing of this lock.
            StoreError: the store could not be asked; call again.
        """
        task = current_task()
        grant = self._last(task)
        released = grant is not None and await grant.release()
        if grant is not None:
            self._forget(task, grant)
        if not released:
            raise self._not_held("task")

    def owned(self) -> bool:
        """Tell whether the calling task holds the lock by this lock object, with its lease still good."""
        return self._holds(current_task())

    async def __aenter__(self) -> G:
        grant = await self._obtain(self._options.timeout, entering(self))
        if grant is None:
            raise await self._too_late()
        grant._enter_body()
        return grant

    __aexit__ = one_for_each_block(leave)

    def __enter__(self) -> NoReturn:
        raise InvalidArgument(f"{self!r} is a lock of aconnect(): use `async with`, or a lock of connect()")

    def __exit__(self, *_: object) -> None: ...

    async def _too_late(self) -> LockTimeout:
        """Return the error for a lock that was not obtained in time: with who holds it."""
        holders = [view for key in self._keys() for view in await arun(self._session.holders_of(key))]
        mine = {grant.id for grant in self._held.get(current_task(), ()) if isinstance(grant, AsyncGrant)}
        yourself = any(view.id in mine for view in holders)
        return time_is_over(self.name, self._options.timeout, holders, yourself)

    async def _end(self, block: list[Any], kind: type[BaseException] | None) -> tuple[LockLost | None, bool]:
        """Release what `block` was entered with; as `AsyncGrant._end`."""
        grant = block[0] if block else self._entered_by(current_task())
        if grant is None:
            return None, False
        end = await grant._end(block, kind)
        self._forget(current_task(), grant)
        return end

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function: it runs while the lock is held.

        Raises:
            InvalidArgument: it is no coroutine function; functions take a lock of `connect`, and generators of both
                kinds an `async with` inside.  When called: it returned a coroutine or a generator, which has not run
                yet.
        """
        kind = checked_kind_of(function)
        if kind == "function":
            raise InvalidArgument(f"{shown(function)} is no coroutine function: use a lock of connect()")
        if kind != "coroutine function":
            raise InvalidArgument(f"{shown(function)} is a {kind}: hold a lock of aconnect() by `async with` in it")

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                result = await function(*args, **kwargs)
                see_it_finished(result, function)
                return result

        return locked


def guarded(
    function: Callable[P, Awaitable[R]], name: str, lock_of: "Callable[[str], AsyncLock]", skips: bool
) -> Callable[P, Coroutine[Any, Any, R | None]]:
    """As `sync.locks.guarded`, of a coroutine function."""
    name_for = name_of_arguments(name, function, "guard")
    if checked_kind_of(function) != "coroutine function":
        raise InvalidArgument(f"{shown(function)} is no coroutine function: use guard() of connect()")

    @functools.wraps(function)
    async def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lock = lock_of(name_for(args, kwargs))
        held = await lock.acquire() if skips else lock
        if held is None:
            return None
        async with held:
            result = await function(*args, **kwargs)
            see_it_finished(result, function)
            return result

    return locked


class AsyncLock(BaseLock[AsyncGrant], AsyncLockable[AsyncGrant]):
    """One name to lock, with how to; made by `AsyncLocks.lock`, `semaphore`, `rwlock`.

    It may be used by many tasks at once, and again and again.
    """

    __slots__ = ("_spec",)

    def _take(self, seconds: float | None, owner: Owner) -> Coroutine[Any, Any, AsyncGrant | None]:
        return self._session.acquire(self._spec, self._options, seconds, shown_text(owner.get_name()))

    async def locked(self) -> bool:
        """Tell whether anybody holds the lock now."""
        await give_way()
        return is_used(await arun(self._session.ready().look(self._spec.key)))


class AsyncRLock(AsyncLock):
    """A lock that the task which holds it may acquire again; the count dies with the lease."""

    __slots__ = ()

    async def _take(self, seconds: float | None, owner: Owner) -> AsyncGrant | None:
        await give_way()  # a re-entry waits for nothing else
        holds, key = self._session.holds, self._spec.key
        hold = holds.find(key, owner)
        if hold is not None and hold.held:
            entry = AsyncReentry(hold)
            if entry._handles.add(entry):
                return entry
        hold = await super()._take(seconds, owner)
        if hold is None:
            return None
        holds.add(key, owner, hold)
        return AsyncReentry(hold)


class AsyncAllLock(BaseAllLock[AsyncGrants], AsyncLockable[AsyncGrants]):
    """Several locks as one: all or none, taken in one global order so that two of these never deadlock."""

    __slots__ = ("_parts",)

    async def _take(self, seconds: float | None, owner: Owner) -> AsyncGrants | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        taken: list[AsyncGrant] = []
        try:
            for part in self._parts:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
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

"""The lock objects of threads: with, acquire, decorator."""

import functools
import time
from collections.abc import Callable, Generator
from threading import Thread, current_thread
from typing import Any, NoReturn, ParamSpec, TypeAlias, TypeVar, cast

from interlock.core.claims import UNSET, Unset, shown_text
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout
from interlock.core.functions import checked_kind_of, see_it_finished, shown
from interlock.core.naming import name_of_arguments
from interlock.locks.arguments import is_used, wait_limit
from interlock.locks.blocks import Block, enter, entering, one_for_each_block, somebody
from interlock.locks.busy import time_is_over
from interlock.locks.lockable import BaseAllLock, BaseLock, BaseLockable
from interlock.locks.sync.grants import Grant, Grants, Reentry, leave, release_all
from interlock.locks.sync.session import Session
from interlock.runtime.sync import run

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound=Grant | Grants)
Owner: TypeAlias = Thread


class Lockable(BaseLockable[G]):
    """`with`, decorator and ownership by thread, for whatever can be acquired."""

    __slots__ = ()

    _session: Session[Grant]

    def acquire(self, blocking: bool = True, timeout: float | None | Unset = UNSET) -> G | None:
        """Wait in line for the lock.

        Args:
            blocking: False for one try.
            timeout: seconds to wait at most; None or -1 for no limit, 0 for one try; left out: the lock's own.

        Returns:
            The grant, also for `with`; or None if the lock was not obtained.  It is held for as long as the grant or
            this lock object lives; if both are collected before a release, the lease ends and a ResourceWarning says
            so.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
            StoreError: the store failed.
        """
        return self._obtain(wait_limit(self._options, blocking, timeout), None)

    def _obtain(self, seconds: float | None, block: Block | None) -> G | None:
        thread = current_thread()
        grant: G | None = None
        try:
            if thread in self._held:
                for left in self._abandoned(thread):
                    left.release()
                    self._forget(thread, left)
            grant = self._take(seconds, thread)
            if grant is not None:
                if block is not None:
                    enter(block, grant)
                    if block is not somebody:
                        grant._keep_for_block()
                self._keep(thread, grant)
                if self._options.at_least:
                    self._stay(grant)
            return grant
        except BaseException:  # an interrupt at any of these lines
            self._give_back(grant)
            raise

    def _give_back(self, grant: G | None) -> None:
        """Undo an acquire that was interrupted after it succeeded."""
        if grant is not None:
            grant.release()
            self._forget(current_thread(), grant)

    def release(self) -> None:
        """Release what the calling thread acquired last with this lock.

        Raises:
            NotHeld: the calling thread holds nothing of this lock.
            StoreError: the store could not be asked; call again.
        """
        thread = current_thread()
        grant = self._last(thread)
        released = grant is not None and grant.release()
        if grant is not None:
            self._forget(thread, grant)
        if not released:
            raise self._not_held("thread")

    def owned(self) -> bool:
        """Tell whether the calling thread holds the lock by this lock object, with its lease still good."""
        return self._holds(current_thread())

    def __enter__(self) -> G:
        grant = None
        try:
            grant = self._obtain(self._options.timeout, entering(self))
            if grant is None:
                raise self._too_late()
            return grant
        except BaseException:
            self._give_back(grant)
            raise

    __exit__ = one_for_each_block(leave)

    async def __aenter__(self) -> NoReturn:
        raise InvalidArgument(f"{self!r} is a lock of connect(): use `with`, or a lock of aconnect()")

    async def __aexit__(self, *_: object) -> None: ...

    def _too_late(self) -> LockTimeout:
        """Return the error for a lock that was not obtained in time: with who holds it."""
        holders = [view for key in self._keys() for view in run(self._session.holders_of(key))]
        yourself = any(self._session.watchdog.owner_of(view.id) is current_thread() for view in holders)
        return time_is_over(self.name, self._options.timeout, holders, yourself)

    def _end(self, block: list[Any]) -> LockLost | None:
        """Release what `block` was entered with; return what to raise if it was lost."""
        if not block:
            block.append(self._entered_by(current_thread()))
        grant = block[0]
        if grant is None:
            return None
        released = grant.release()
        self._forget(current_thread(), grant)
        return None if released else cast(G, grant)._loss_to_raise()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: it runs while the lock is held; a generator function, until it is read or closed.

        Raises:
            InvalidArgument: it is a coroutine function or an async generator function; those take a lock of
                `aconnect`.  When called: it returned a coroutine or a generator, which has not run yet.
        """
        kind = checked_kind_of(function)
        if kind == "generator function":
            return cast(Callable[P, R], self._around_generator(cast(Any, function)))
        if kind != "function":
            raise InvalidArgument(f"{shown(function)} is a {kind}: hold a lock of aconnect() by `async with` in it")

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                result = function(*args, **kwargs)
                see_it_finished(result, function)
                return result

        return locked

    def _around_generator(self, function: Callable[P, Generator[Any, Any, Any]]) -> Any:
        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
            with self:
                return (yield from function(*args, **kwargs))

        return locked


def guarded(
    function: Callable[P, R], name: str, lock_of: "Callable[[str], Lock]", skips: bool
) -> Callable[P, R | None]:
    """Return `function` as it runs under the lock that its arguments name.

    Args:
        function: what is decorated.
        name: with the arguments in braces.
        lock_of: makes the lock of a name.
        skips: True to return None instead of raising LockTimeout.

    Raises:
        InvalidArgument: as `guard`.
    """
    name_for = name_of_arguments(name, function, "guard")
    if checked_kind_of(function) != "function":
        raise InvalidArgument(f"{shown(function)} is a coroutine function: use guard() of aconnect()")

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lock = lock_of(name_for(args, kwargs))
        held = lock.acquire() if skips else lock
        if held is None:
            return None
        with held:
            result = function(*args, **kwargs)
            see_it_finished(result, function)
            return result

    return locked


class Lock(BaseLock[Grant], Lockable[Grant]):
    """One name to lock, with how to; made by `Locks.lock`, `semaphore`, `rwlock`.

    It may be used by many threads at once, and again and again.
    """

    __slots__ = ("_spec",)

    def _take(self, seconds: float | None, owner: Owner) -> Grant | None:
        return self._session.acquire(self._spec, self._options, seconds, shown_text(owner.name), owner)

    def locked(self) -> bool:
        """Tell whether anybody holds the lock now."""
        return is_used(run(self._session.ready().look(self._spec.key)))


class RLock(Lock):
    """A lock that the thread which holds it may acquire again; the count dies with the lease."""

    __slots__ = ()

    def _take(self, seconds: float | None, owner: Owner) -> Grant | None:
        hold = self._session.holds.find(self._spec.key, owner)
        if hold is None or not hold.held:
            return self._take_anew(seconds, owner)
        entry = None
        try:
            entry = Reentry(hold)
            if entry._handles.add(entry):
                return entry
        except BaseException:  # an interrupt at any of these lines
            if entry is not None:
                entry.release()
            raise
        return self._take_anew(seconds, owner)  # another thread was releasing the last handle

    def _take_anew(self, seconds: float | None, owner: Owner) -> Grant | None:
        hold = None
        try:
            hold = super()._take(seconds, owner)
            if hold is None:
                return None
            entry = Reentry(hold)
            self._session.holds.add(self._spec.key, owner, hold)
            return entry
        except BaseException:
            if hold is not None:
                hold.release()
            raise


class AllLock(BaseAllLock[Grants], Lockable[Grants]):
    """Several locks as one: all or none, taken in one global order so that two of these never deadlock."""

    __slots__ = ("_parts",)

    def _take(self, seconds: float | None, owner: Owner) -> Grants | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        taken: list[Grant] = []
        try:
            for part in self._parts:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
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

"""The lock objects of threads: with, acquire, decorator."""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeAlias, TypeVar

from interlock.claims import Terms
from interlock.engine import run
from interlock.errors import InvalidArgument, LockError, LockLost, NotHeld
from interlock.facade import UNSET, Manner, Unset, is_used, name_of, patience, time_is_over
from interlock.grants import RELEASED, Hold
from interlock.threads.grants import Grant, Grants, Reentry, release_all

if TYPE_CHECKING:
    from interlock.threads.connection import Locks

P = ParamSpec("P")
R = TypeVar("R")
MANY = 8  # entries among which some may be old
G = TypeVar("G", bound=Grant | Grants)
Owner: TypeAlias = threading.Thread


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
        seconds = patience(self._manner, blocking, timeout)
        thread = threading.current_thread()
        grant = None
        try:
            grant = self._take(seconds, thread)
            if grant is not None:
                if len(self._held) >= MANY:
                    self._tidy()
                self._held.append((thread, grant))
            return grant
        except BaseException:  # an interrupt at any of these lines
            self._give_back(grant)
            raise

    def _give_back(self, grant: G | None) -> None:
        """Undo an acquire that was interrupted after it succeeded."""
        if grant is not None:
            grant.release()
            for entry in [entry for entry in self._held if entry[1] is grant]:
                self._forget(entry)

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
        for entry in self._held[::-1]:
            if entry[0] is thread:
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
            pass  # another thread was faster

    def __enter__(self) -> G:
        grant = None
        try:
            grant = self.acquire()
            if grant is None:
                raise time_is_over(self.name, self._manner.timeout)
            return grant
        except BaseException:
            self._give_back(grant)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            lost = self._end()
        except LockError:
            raise
        except BaseException:  # an interrupt: nothing may stay behind
            self._end()
            raise
        if lost is not None:
            if error is None:
                raise lost
            error.add_note(str(lost))

    def _end(self) -> LockLost | None:
        """Release what the calling thread acquired last; return what to raise if it was lost."""
        entry = self._last()
        if entry is None:
            return None  # released inside the body
        grant = entry[1]
        released = grant.release()
        self._forget(entry)
        return grant._loss() if not released and grant.lost and not grant.inherited else None

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: it runs while the lock is held.

        Raises:
            InvalidArgument: it is a coroutine function; those take a lock of `aconnect`.
        """
        from inspect import iscoroutinefunction  # slow to load

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
        return is_used(run(self._locks._ready().look(self._terms.key)))


class RLock(Lock):
    """A lock that the thread which holds it may acquire again; the count dies with the lease."""

    __slots__ = ()

    def _take(self, seconds: float | None, owner: Owner) -> Grant | None:
        holds = self._locks._holds
        key = (self._terms.key, owner)
        hold = holds.get(key)
        if hold is None or not hold.grant.held:
            holds.pop(key, None)  # the count dies with the lease
            grant = None
            try:
                grant = self._locks._acquire(self._terms, self._manner, seconds, owner.name)
                if grant is None:
                    return None
                hold = holds[key] = Hold(grant, lambda: holds.pop(key, None))
                return Reentry(hold)
            except BaseException:  # an interrupt at any of these lines
                if grant is not None:
                    holds.pop(key, None)
                    grant.release()
                raise
        return Reentry(hold)


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

# Generated from _async/clientlock.py by tools/unasync.py; change that one.
"""The drop-in for redis-py's `Lock`: its attributes, methods and exceptions."""

from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Literal, NoReturn, TypeVar

from interlock.core.claims import checked_flag, checked_seconds
from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.drivers.redis_py import library_of
from interlock.keylock._sync.onekey import OneKey
from interlock.keylock.arguments import SHORTEST_PAUSE, checked_bytes, pauses
from interlock.keylock.clients import Attempt, Holding
from interlock.runtime import _threads as rt
from interlock.runtime import log
from interlock.runtime.blocks import CallSite, call_site

L = TypeVar("L", bound="DropIn")
T = TypeVar("T")


class DropIn(OneKey):
    """The common part of `ClientLock` without the arguments of `acquire`."""

    def __init__(
        self,
        redis: object,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        name = bytes(name) if isinstance(name, memoryview) else name
        super().__init__(redis, name, shared=not checked_flag(thread_local, "thread_local"))
        self.redis = redis
        self.name = name
        self.timeout = None if timeout is None else checked_seconds(timeout, "timeout")
        self.sleep = _checked_sleep(sleep)
        self.blocking = blocking
        self.blocking_timeout = _checked_wait(blocking_timeout)
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        self._plain: type[Exception] = NotHeld
        self._not_owned: type[Exception] = LockLost
        library = library_of(redis)
        if library is not None:
            errors = import_module(f"{library}.exceptions")
            self._plain, self._not_owned = errors.LockError, errors.LockNotOwnedError

    @property
    def local(self: L) -> L:
        """The object with the `token` of the caller, like redis-py's `lock.local`: the lock itself."""
        return self

    @property
    def token(self) -> bytes | None:
        """The caller's value of the key, or None; set it to adopt another acquisition."""
        mine = self._mine()
        return None if mine is None else mine.token

    @token.setter
    def token(self, token: str | bytes | None) -> None:
        mine = self._mine()
        if token is not None:
            self._holdings.add(Holding(self._encoded_key, checked_bytes(token, "token"), None, self._owner()))
        elif mine is not None:
            self._holdings.remove(mine)
            mine.handles.clear()

    def _inherits(self, owner: object) -> bool:
        return rt.IS_ASYNC

    def _acquire(
        self,
        sleep: float | None,
        blocking: bool | None,
        seconds: float | None,
        token: str | bytes | None,
        site: CallSite | None = None,
    ) -> rt.Result[bool]:
        """Acquire the lock; wait unless told otherwise.

        Args:
            sleep, blocking, seconds: None for those of the lock.
            token: the value of the key instead of a random token.
            site: the call site of the entered block; None for a call of `acquire`.
        """
        limit = self.blocking_timeout if seconds is None else _checked_wait(seconds)
        pause = self.sleep if sleep is None else _checked_sleep(sleep)
        chosen = None if token is None else checked_bytes(token, "token")
        blocking = self.blocking if blocking is None else blocking
        spread, seconds = pauses(pause, pause, 0.8), limit if blocking else 0.0
        attempt = Attempt(self._owner(), seconds, self.timeout, spread, chosen, self._caller(), site)
        return self._as_client(self._obtain, attempt)

    def _as_client(self, function: Callable[..., rt.Result[T]], *args: object) -> T:
        """Call a step; raise the client's own exceptions, which redis-py programs catch."""
        try:
            return function(*args)
        except StoreError as error:
            cause = error.__cause__ or error
            raise cause from cause.__cause__

    def _fail(self, kind: type[Exception], message: str) -> NoReturn:
        error = kind(message)
        error.lock_name = self.name  # type: ignore[attr-defined]
        raise error

    def _held(self, complaint: str) -> Holding:
        """Return the caller's holding."""
        mine = self._mine()
        if mine is None:
            self._fail(self._plain, complaint)
        return mine

    def release(self) -> rt.Result[None]:
        """Release the lock, even if this call is cancelled.

        Raises:
            LockError: the caller holds nothing.
            LockNotOwnedError: the caller had lost the lock.
            The client's exceptions: the server is unreachable or refuses; call again.
        """
        return self._give_back(self._held("Cannot release a lock that's not owned or is already unlocked."))

    def _give_back(self, mine: Holding) -> None:
        self._still("release", self._release, mine)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> rt.Result[Literal[True]]:
        """Extend the lease.

        Args:
            additional_time: seconds.
            replace_ttl: True to count them from now, False to add them.

        Raises:
            LockError: the caller holds nothing, or the lock has no time-out.
            LockNotOwnedError: the caller has lost the lock.
            The client's exceptions: the server is unreachable or refuses.
        """
        return self._prolong("extend", additional_time, not replace_ttl)

    def reacquire(self) -> rt.Result[Literal[True]]:
        """Renew the lease for its whole time-out from now.

        Raises:
            LockError: the caller holds nothing, or the lock has no time-out.
            LockNotOwnedError: the caller has lost the lock.
            The client's exceptions: the server is unreachable or refuses.
        """
        return self._prolong("reacquire", self.timeout, False)

    def _prolong(self, what: str, seconds: float | None, lengthen: bool) -> rt.Result[Literal[True]]:
        mine = self._held(f"Cannot {what} an unlocked lock")
        if self.timeout is None:
            self._fail(self._plain, f"Cannot {what} a lock with no timeout")
        return self._still(what, self._renew, mine, checked_seconds(seconds, "additional_time"), lengthen)

    def _still(self, what: str, function: Callable[..., rt.Result[bool]], *args: object) -> Literal[True]:
        """Perform a step; raise if the lock was lost before."""
        if not self._as_client(function, *args):
            self._fail(self._not_owned, f"Cannot {what} a lock that's no longer owned")
        return True

    def locked(self) -> bool:
        """Ask the server whether the lock is held."""
        return self._as_client(self._holder) is not None

    def owned(self) -> rt.Result[bool]:
        """Ask the server whether the caller holds the lock."""
        return self._as_client(self._is_held, self._mine())

    def __enter__(self: L) -> rt.Result[L]:
        return self._enter(call_site())

    def _enter(self: L, site: CallSite) -> L:
        if not self._acquire(None, None, None, None, site):
            self._fail(self._plain, "Unable to acquire lock within the time specified")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._acquired.end(self._caller, self)
        left = self._left(ended)
        if left is None and ended and not self._shared:  # the caller may have set a token in the block
            left = self._holdings.find(self._owner(), self._encoded_key, lambda owner: False)
            if left is not None and left.handles:  # an acquisition of another block
                left = None
        try:
            if left is None:
                self._fail(self._plain, "Cannot release a lock that's not owned or is already unlocked.")
            self._give_back(left)
        except Exception as failure:
            if isinstance(failure, (self._plain, self._not_owned)) and not self.raise_on_release_error:
                log.warn("Lock %r was unlocked or no longer owned when its body ended.", self.name)
            elif error is None:
                raise
            else:
                self._note(error, failure)


def _checked_sleep(sleep: float) -> float:
    return max(SHORTEST_PAUSE, checked_seconds(sleep, "sleep")) if sleep != 0 else SHORTEST_PAUSE


def _checked_wait(seconds: float | None) -> float | None:
    """Return the maximum wait; like redis-py, accept a negative value for one try."""
    if isinstance(seconds, (int, float)) and seconds <= 0:
        return 0.0
    return None if seconds is None else checked_seconds(seconds, "blocking_timeout")

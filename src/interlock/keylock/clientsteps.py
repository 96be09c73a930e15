"""What both colours of the drop-in for redis-py's `Lock` share: its arguments, its attributes, its exceptions."""

from collections.abc import Iterator
from importlib import import_module
from random import uniform
from typing import Any, NoReturn

from interlock._redis.libraries import library_of
from interlock.core.effects import Op
from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.keylock.arguments import (
    SHORTEST_PAUSE,
    checked_client,
    checked_flag,
    checked_key,
    checked_seconds,
    encoded,
)
from interlock.keylock.base import KeyAttempt, Steps
from interlock.keylock.holdings import Holding
from interlock.runtime.log import warn


class Errors:
    """The exceptions of the library that a client belongs to: redis-py or valkey-py."""

    def __init__(self, client: Any) -> None:
        self.plain: type[Exception] = NotHeld
        self.not_owned: type[Exception] = LockLost
        library = library_of(client)
        if library is not None:
            module = import_module(f"{library}.exceptions")
            self.plain, self.not_owned = module.LockError, module.LockNotOwnedError
        self.both = (self.plain, self.not_owned)


class Local:
    """Has the `token` of the calling thread or task, to read and to set, as redis-py's `lock.local` has."""

    def __init__(self, lock: "ClientSteps") -> None:
        self._lock = lock

    @property
    def token(self) -> bytes | None:
        """What the caller has in the key, or None; set it to speak for an acquisition made elsewhere."""
        mine = self._lock._mine()
        return None if mine is None else mine.token

    @token.setter
    def token(self, token: str | bytes | None) -> None:
        lock = self._lock
        mine = lock._mine()
        if token is None:
            if mine is not None:
                lock._holdings.remove(mine)
        else:
            owner = None if lock._shared else lock._owner()
            lock._holdings.add(Holding(lock._encoded_key, encoded(token, "token"), None, owner))


class ClientSteps(Steps):
    """The arguments of redis-py's `Lock`, and the steps of `KeyLock`."""

    _tasks = False

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        checked_flag(thread_local, "thread_local")
        name = bytes(name) if isinstance(name, memoryview) else name
        super().__init__(checked_client(redis, self._tasks), checked_key(name), shared=not thread_local)
        self.redis = redis
        self.name = name
        self.timeout = None if timeout is None else checked_seconds(timeout, "timeout")
        self.sleep = _checked_sleep(sleep)
        self.blocking = blocking
        self.blocking_timeout = _checked_wait(blocking_timeout)
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        self.local = Local(self)
        self._errors = Errors(redis)

    def _attempt_of(
        self, sleep: float | None, blocking: bool | None, blocking_timeout: float | None, token: str | bytes | None
    ) -> KeyAttempt:
        blocking = self.blocking if blocking is None else blocking
        seconds = self.blocking_timeout if blocking_timeout is None else _checked_wait(blocking_timeout)
        pause = self.sleep if sleep is None else _checked_sleep(sleep)
        chosen = None if token is None else encoded(token, "token")
        return self._attempt(seconds if blocking else 0.0, self.timeout, _pauses(pause), chosen)

    def _error(self, kind: type[Exception], message: str) -> Exception:
        error = kind(message)
        error.lock_name = self.name  # type: ignore[attr-defined]
        return error

    def _not_obtained(self) -> Exception:
        return self._error(self._errors.plain, "Unable to acquire lock within the time specified")

    def _held(self, complaint: str) -> Holding:
        """Return what the caller holds."""
        mine = self._mine()
        if mine is None:
            raise self._error(self._errors.plain, complaint)
        return mine

    def _releasing(self) -> Op[bool]:
        return self._leaving(self._held("Cannot release a lock that's not owned or is already unlocked."))

    def _limited(self, what: str) -> float:
        if self.timeout is None:
            raise self._error(self._errors.plain, f"Cannot {what} a lock with no timeout")
        return self.timeout

    def _see(self, done: bool, what: str) -> None:
        if not done:
            raise self._error(self._errors.not_owned, f"Cannot {what} a lock that's no longer owned")

    def _extending(self, additional_time: float, replace_ttl: bool) -> Op[bool]:
        mine = self._held("Cannot extend an unlocked lock")
        self._limited("extend")
        seconds = checked_seconds(additional_time, "additional_time")
        return self._renewing(mine, seconds, lengthen=not replace_ttl)

    def _reacquiring(self) -> Op[bool]:
        mine = self._held("Cannot reacquire an unlocked lock")
        return self._renewing(mine, self._limited("reacquire"))

    def _left(self, error: Exception) -> None:
        """Note that the lock was not owned any more when the body ended."""
        if self.raise_on_release_error:
            raise error
        warn("the lock %r was unlocked or no longer owned when its body ended", self.name)


def raise_as_the_client_does(error: StoreError) -> NoReturn:
    """Raise what the client raised: programs that move over from redis-py catch that."""
    cause: BaseException = error
    while isinstance(cause, StoreError) and cause.__cause__ is not None:
        cause = cause.__cause__
    raise cause


def _checked_sleep(sleep: float) -> float:
    return max(SHORTEST_PAUSE, checked_seconds(sleep, "sleep")) if sleep != 0 else SHORTEST_PAUSE


def _checked_wait(seconds: float | None) -> float | None:
    """Return how long to wait at most; as redis-py, take less than nothing for one try."""
    if seconds is None or (isinstance(seconds, (int, float)) and seconds <= 0):
        return None if seconds is None else 0.0
    return checked_seconds(seconds, "blocking_timeout")


def _pauses(longest: float) -> Iterator[float]:
    """Return the pauses of a waiter in seconds: so long at most, each shortened at random so that waiters spread."""
    while True:
        yield uniform(longest * 0.8, longest)

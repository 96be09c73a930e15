"""A drop-in for redis-py's `Lock`: `client.lock(name, lock_class=ClientLock)`, or `AsyncClientLock`.

The arguments of `acquire` are those of redis-py, which differ between threads and asyncio.
"""

from collections.abc import Coroutine
from typing import Any

from interlock.keylock._async.clientlock import AsyncDropIn
from interlock.keylock._sync.clientlock import DropIn


class ClientLock(DropIn):
    """The methods and exceptions of redis-py's `Lock`, on the steps of `KeyLock`.

    Differences: a lost reply leaves no orphan, a failed release can be retried, `blocking_timeout` is kept even if
    it is shorter than `sleep`, a time-out of 0 is refused, and any thread may use the object.

    Args:
        redis: a blocking client of redis-py 5 to 8 or valkey-py.
        name: the key.
        timeout: seconds until the key expires; None for never.
        sleep: maximum pause between two tries of a waiter, in seconds.
        blocking: False for one try.
        blocking_timeout: maximum wait in seconds; None for no limit.
        thread_local: False if any thread may release another thread's acquisition.
        raise_on_release_error: False to log a lost lock at the end of `with` instead of raising.

    Raises:
        InvalidArgument: an argument has a wrong type or is out of range.
    """

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquire the lock; wait unless told otherwise.

        Args:
            sleep, blocking, blocking_timeout: by default those of the lock.
            token: the value of the key instead of a random token.

        Returns:
            True if the caller holds the lock now.

        Raises:
            The client's exceptions: the server is unreachable or refuses.
        """
        return self._acquire(sleep, blocking, blocking_timeout, token)


class AsyncClientLock(AsyncDropIn):
    """The methods and exceptions of the `Lock` of redis.asyncio, on the steps of `AsyncKeyLock`; see `ClientLock`.

    A task releases its own acquisition; without one, it releases what another task acquired with this object, like
    programs written for redis-py.

    Args:
        redis: an asyncio client of redis-py 5 to 8 or valkey-py.
        name, timeout, sleep, blocking, blocking_timeout, raise_on_release_error: like those of `ClientLock`.
        thread_local: False to treat all tasks as one owner.

    Raises:
        InvalidArgument: an argument has a wrong type or is out of range.
    """

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Acquire the lock; wait unless told otherwise; see `ClientLock.acquire`."""
        return self._acquire(None, blocking, blocking_timeout, token)

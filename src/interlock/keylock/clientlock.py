"""A drop-in for redis-py's `Lock`: `client.lock(name, lock_class=ClientLock)`, or `AsyncClientLock`.

The arguments of `acquire` are those of redis-py, which differ between threads and asyncio.
"""

from collections.abc import Coroutine
from typing import Any

from interlock.keylock._async.clientlock import AsyncDropIn
from interlock.keylock._sync.clientlock import DropIn


class ClientLock(DropIn):
    """The methods and exceptions of redis-py's `Lock`, on the steps of `KeyLock`.

    What is different: a lost reply leaves no orphan, a failed release can be tried again, `blocking_timeout` is kept
    also when it is shorter than `sleep`, a time-out of 0 is refused, and any thread may use the object.

    Args:
        redis: a blocking client of redis-py 5 to 8 or valkey-py.
        name: the key.
        timeout: seconds until the key expires; None for never.
        sleep: seconds, the longest pause between two tries of a waiter.
        blocking: False for one try.
        blocking_timeout: seconds to wait at most; None for no limit.
        thread_local: False if any thread may release what another acquired.
        raise_on_release_error: False to log, instead of to raise, that the lock was lost when `with` ends.

    Raises:
        InvalidArgument: an argument is of a wrong type or out of its range.
    """

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; wait for it unless told otherwise.

        Args:
            sleep, blocking, blocking_timeout: those of the lock if left out.
            token: what to write into the key instead of a random token.

        Returns:
            True if the caller holds it now.

        Raises:
            The client's exceptions: the server can't be reached or refuses.
        """
        return self._acquire(sleep, blocking, blocking_timeout, token)


class AsyncClientLock(AsyncDropIn):
    """The methods and exceptions of the `Lock` of redis.asyncio, on the steps of `AsyncKeyLock`; see `ClientLock`.

    A task releases what it acquired itself; if it has acquired nothing, what another task acquired by this object, as
    programs written for redis-py do.

    Args:
        redis: an asyncio client of redis-py 5 to 8 or valkey-py.
        name, timeout, sleep, blocking, blocking_timeout, raise_on_release_error: the same as those of `ClientLock`.
        thread_local: False to tell no tasks apart.

    Raises:
        InvalidArgument: an argument is of a wrong type or out of its range.
    """

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Take the lock; wait for it unless told otherwise; see `ClientLock.acquire`."""
        return self._acquire(None, blocking, blocking_timeout, token)

"""The plain lock: one key of Redis or Valkey, one owner, for asyncio tasks."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from interlock.core.claims import UNSET, Unset
from interlock.keylock.base import KeyAttempt
from interlock.keylock.holdings import Holding
from interlock.keylock.keysteps import KeyLockSteps
from interlock.keylock.server import arun_or_undo
from interlock.runtime.aio import arun

L = TypeVar("L", bound="AsyncKeyLock")


class AsyncKeyLock(KeyLockSteps):
    """A lock that is one string key, for asyncio tasks; as `KeyLock`.

    A cancelled `acquire` leaves nothing behind: it waits for the reply to what it has sent (5 s at most) and takes it
    back. It counts which task calls a method, not which one awaits what that returns: `wait_for`, `shield` and
    `create_task` change nothing. What a task that has ended still holds, any other may release.

    Args:
        client: an asyncio client: redis.asyncio.Redis, valkey.asyncio.Valkey, or of their Clusters.
        key, ttl, timeout, poll, shared, token: as for `KeyLock`, with tasks instead of threads.

    Raises:
        InvalidArgument: an argument is of a wrong type or out of its range.
    """

    _tasks = True

    def _owner(self) -> Any:
        return current_task()

    def _inherits(self, owner: Any) -> bool:
        return isinstance(owner, asyncio.Task) and owner.done()

    def acquire(
        self, blocking: bool | Unset = UNSET, timeout: float | None | Unset = UNSET
    ) -> Coroutine[Any, Any, bool]:
        """Take the lock if it is free; as `KeyLock.acquire`."""
        return self._obtain(self._attempt_of(blocking, timeout, otherwise=0.0))

    async def _obtain(self, attempt: KeyAttempt) -> bool:
        return await arun_or_undo(self._acquiring(attempt), lambda: self._undoing(attempt))

    def release(self) -> Coroutine[Any, Any, bool]:
        """Give the lock back if the calling task holds it; as `KeyLock.release`."""
        return arun(self._releasing(self._mine()))

    def renew(self) -> Coroutine[Any, Any, bool]:
        """Let the lease end `ttl` seconds from now; as `KeyLock.renew`."""
        return self._renew(self._mine(), self._limit())

    async def _renew(self, mine: Holding | None, ttl: float) -> bool:
        return mine is not None and await arun(self._renewing(mine, ttl))

    async def locked(self) -> bool:
        """Ask the server whether anybody holds the lock; as `KeyLock.locked`."""
        return await arun(self._looking()) is not None

    def owned(self) -> Coroutine[Any, Any, bool]:
        """Ask the server whether the calling task holds the lock; as `KeyLock.owned`."""
        return self._is_held(self._mine())

    async def _is_held(self, mine: Holding | None) -> bool:
        return mine is not None and await arun(self._looking()) == mine.token

    async def __aenter__(self: L) -> L:
        attempt = self._attempt_of(UNSET, UNSET, otherwise=None)
        if not await self._obtain(attempt):
            raise self._too_late(attempt)
        self._enter_body(attempt)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body: list[KeyAttempt | None] = []
        holding = await arun_or_undo(self._exiting(body), lambda: self._exiting(body))
        if holding is not None and holding.lost:
            if error is None:
                raise self._loss()
            error.add_note(str(self._loss()))


def current_task() -> "asyncio.Task[Any] | None":
    """Return the calling task; None outside of any, as where a lock is made before the loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None

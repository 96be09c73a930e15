"""A drop-in for the `Lock` of redis.asyncio: `client.lock(name, lock_class=AsyncClientLock)`."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Literal, TypeVar

from interlock.core.effects import Op
from interlock.core.errors import StoreError
from interlock.keylock.akeylock import current_task
from interlock.keylock.base import KeyAttempt
from interlock.keylock.clientsteps import ClientSteps, raise_as_the_client_does
from interlock.keylock.holdings import Holding
from interlock.keylock.server import arun_or_undo
from interlock.runtime.aio import arun

L = TypeVar("L", bound="AsyncClientLock")
T = TypeVar("T")


class AsyncClientLock(ClientSteps):
    """The methods and exceptions of the `Lock` of redis.asyncio, on the steps of `AsyncKeyLock`; see `ClientLock`.

    A task releases what it acquired itself; if it has acquired nothing, what another task acquired by this object, as
    programs written for redis-py do.

    Args:
        redis: an asyncio client of redis-py 5 to 8 or valkey-py.
        name, timeout, sleep, blocking, blocking_timeout, raise_on_release_error: as for `ClientLock`.
        thread_local: False to tell no tasks apart.

    Raises:
        InvalidArgument: an argument is of a wrong type or out of its range.
    """

    _tasks = True

    def _owner(self) -> Any:
        return current_task()

    def _inherits(self, owner: Any) -> bool:
        return True

    async def _run(self, op: Op[T]) -> T:
        try:
            return await arun(op)
        except StoreError as error:
            raise_as_the_client_does(error)

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Take the lock; as `ClientLock.acquire`."""
        return self._obtain(self._attempt_of(None, blocking, blocking_timeout, token))

    async def _obtain(self, attempt: KeyAttempt) -> bool:
        try:
            return await arun_or_undo(self._acquiring(attempt), lambda: self._undoing(attempt))
        except StoreError as error:
            raise_as_the_client_does(error)

    def release(self) -> Coroutine[Any, Any, None]:
        """Give the lock back; as `ClientLock.release`."""
        return self._release(self._releasing())

    async def _release(self, op: Op[bool]) -> None:
        self._see(await self._run(op), "release")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Coroutine[Any, Any, Literal[True]]:
        """Let the lease last longer; as `ClientLock.extend`."""
        return self._extend(self._extending(additional_time, replace_ttl), "extend")

    def reacquire(self) -> Coroutine[Any, Any, Literal[True]]:
        """Let the lease last its whole time-out again, from now; as `ClientLock.reacquire`."""
        return self._extend(self._reacquiring(), "reacquire")

    async def _extend(self, op: Op[bool], what: str) -> Literal[True]:
        self._see(await self._run(op), what)
        return True

    async def locked(self) -> bool:
        """Ask the server whether anybody holds the lock."""
        return await self._run(self._looking()) is not None

    def owned(self) -> Coroutine[Any, Any, bool]:
        """Ask the server whether the caller holds the lock."""
        return self._is_held(self._mine())

    async def _is_held(self, mine: Holding | None) -> bool:
        return mine is not None and await self._run(self._looking()) == mine.token

    async def __aenter__(self: L) -> L:
        if not await self.acquire():
            raise self._not_obtained()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except self._errors.both as loss:
            self._left(loss)

"""A drop-in for redis-py's `Lock`: `client.lock(name, lock_class=ClientLock)`, for threads."""

import threading
from types import TracebackType
from typing import Any, Literal, TypeVar

from interlock.core.effects import Op
from interlock.core.errors import StoreError
from interlock.keylock.clientsteps import ClientSteps, raise_as_the_client_does
from interlock.keylock.server import run_or_undo
from interlock.runtime.sync import run

L = TypeVar("L", bound="ClientLock")
T = TypeVar("T")


class ClientLock(ClientSteps):
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

    def _owner(self) -> Any:
        return threading.current_thread()

    def _run(self, op: Op[T]) -> T:
        try:
            return run(op)
        except StoreError as error:
            raise_as_the_client_does(error)

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; wait for it unless told otherwise.

        Args:
            sleep, blocking, blocking_timeout: as for the lock, whose own count if left out.
            token: what to write into the key instead of a random token.

        Returns:
            True if the caller holds it now.

        Raises:
            The client's exceptions: the server can't be reached or refuses.
        """
        attempt = self._attempt_of(sleep, blocking, blocking_timeout, token)
        try:
            return run_or_undo(self._acquiring(attempt), lambda: self._undoing(attempt))
        except StoreError as error:
            raise_as_the_client_does(error)

    def release(self) -> None:
        """Give the lock back.

        Raises:
            LockError: the caller holds nothing.
            LockNotOwnedError: it had lost the lock.
            The client's exceptions: the server can't be reached or refuses; call again.
        """
        self._see(self._run(self._releasing()), "release")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Let the lease last longer.

        Args:
            additional_time: seconds.
            replace_ttl: True to count them from now, False to add them.

        Raises:
            LockError: the caller holds nothing, or the lock has no time-out.
            LockNotOwnedError: it has lost the lock.
            The client's exceptions: the server can't be reached or refuses.
        """
        self._see(self._run(self._extending(additional_time, replace_ttl)), "extend")
        return True

    def reacquire(self) -> Literal[True]:
        """Let the lease last its whole time-out again, from now.

        Raises:
            As `extend`.
        """
        self._see(self._run(self._reacquiring()), "reacquire")
        return True

    def locked(self) -> bool:
        """Ask the server whether anybody holds the lock."""
        return self._run(self._looking()) is not None

    def owned(self) -> bool:
        """Ask the server whether the caller holds the lock."""
        mine = self._mine()
        return mine is not None and self._run(self._looking()) == mine.token

    def __enter__(self: L) -> L:
        if not self.acquire():
            raise self._not_obtained()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except self._errors.both as loss:
            self._left(loss)

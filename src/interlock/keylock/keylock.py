"""The plain lock: one key of Redis or Valkey, one owner, for threads."""

import threading
from types import TracebackType
from typing import Any, TypeVar

from interlock.core.claims import UNSET, Unset
from interlock.keylock.base import KeyAttempt
from interlock.keylock.keysteps import KeyLockSteps
from interlock.keylock.server import run_or_undo
from interlock.runtime.sync import run

L = TypeVar("L", bound="KeyLock")


class KeyLock(KeyLockSteps):
    """A lock that is one string key: `SET key token NX PX ms`, deleted only by the one who wrote the token.

    It speaks with every other program that locks so, redis-py's `Lock` among them. There is no line: a caller that
    tries at the right moment gets it. It does not renew itself.

    Args:
        client: a blocking client: redis.Redis, valkey.Valkey, or of their Clusters.
        key: the key.
        ttl: seconds until the key expires unless `renew` is called; None for never.
        timeout: seconds that `acquire` and `with` wait at most, None for no limit, 0 for one try; left out: `acquire`
            tries once, `with` waits without a limit.
        poll: seconds, the longest pause between two tries of a waiter; it begins with short ones.
        shared: True if any thread may release what another acquired; otherwise each can release only its own.
        token: the token of an acquisition made elsewhere, which this object then speaks for.

    Raises:
        InvalidArgument: an argument is of a wrong type or out of its range.
    """

    def _owner(self) -> Any:
        return threading.current_thread()

    def acquire(self, blocking: bool | Unset = UNSET, timeout: float | None | Unset = UNSET) -> bool:
        """Take the lock if it is free; wait for that only if asked to.

        Args:
            blocking: True to wait without a limit, False for one try.
            timeout: seconds to wait at most; None or -1 for no limit, 0 for one try.

        Returns:
            True if the caller holds it now.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
            StoreError: the server can't be reached or refuses.
        """
        return self._obtain(self._attempt_of(blocking, timeout, otherwise=0.0))

    def _obtain(self, attempt: KeyAttempt) -> bool:
        return run_or_undo(self._acquiring(attempt), lambda: self._undoing(attempt))

    def release(self) -> bool:
        """Give the lock back if the calling thread holds it.

        Returns:
            True if this ended what the caller held; False if it holds nothing, or had lost it.

        Raises:
            StoreError: the server can't be reached or refuses; nothing is forgotten, call again.
        """
        return run(self._releasing(self._mine()))

    def renew(self) -> bool:
        """Let the lease end `ttl` seconds from now.

        Returns:
            True if the caller still holds the lock; False if it has lost it.

        Raises:
            InvalidArgument: the lock has no time limit.
            StoreError: the server can't be reached or refuses; call again.
        """
        ttl, mine = self._limit(), self._mine()
        return mine is not None and run(self._renewing(mine, ttl))

    def locked(self) -> bool:
        """Ask the server whether anybody holds the lock.

        Raises:
            StoreError: the server can't be reached or refuses.
        """
        return run(self._looking()) is not None

    def owned(self) -> bool:
        """Ask the server whether the calling thread holds the lock.

        Raises:
            StoreError: the server can't be reached or refuses.
        """
        mine = self._mine()
        return mine is not None and run(self._looking()) == mine.token

    def __enter__(self: L) -> L:
        attempt = self._attempt_of(UNSET, UNSET, otherwise=None)
        if not self._obtain(attempt):
            raise self._too_late(attempt)
        try:
            self._enter_body(attempt)
        except BaseException:
            run(self._exiting([attempt]))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body: list[KeyAttempt | None] = []
        try:
            holding = run(self._exiting(body))
        except Exception:
            raise
        except BaseException:  # an interrupt: nothing may stay behind
            run(self._exiting(body))
            raise
        if holding is not None and holding.lost:
            if error is None:
                raise self._loss()
            error.add_note(str(self._loss()))

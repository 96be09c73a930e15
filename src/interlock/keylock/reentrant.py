"""The re-entrant lock: a count per thread or task beside one key, which dies with the key's lease."""

from typing import Any

from interlock.core.effects import Op
from interlock.keylock.akeylock import AsyncKeyLock
from interlock.keylock.base import KeyAttempt
from interlock.keylock.holdings import Holding
from interlock.keylock.keylock import KeyLock
from interlock.keylock.keysteps import KeyLockSteps


class ReentrantSteps(KeyLockSteps):
    """What is different when the holder may acquire again: the count is kept per server, key, and thread or task."""

    def __init__(self, client: Any, key: str | bytes, **how: Any) -> None:
        for name in how.keys() & {"shared", "token"}:
            raise TypeError(f"a re-entrant lock has no argument {name!r}: its count belongs to one thread or task")
        super().__init__(client, key, **how)
        self._holdings = self._server.known.reentrant

    def _inherits(self, owner: Any) -> bool:
        return False

    def _trying(self, attempt: KeyAttempt) -> Op[bool]:
        mine = self._held_by(attempt.owner)
        if mine is not None and mine.alive and not mine.unsure:
            attempt.holding = mine
            mine.count += 1
            return True
        return (yield from super()._trying(attempt))

    def _leaving(self, holding: Holding) -> Op[bool]:
        if holding.count == 1:
            return (yield from super()._leaving(holding))
        if holding.alive:
            holding.count -= 1
            return True
        # The count dies with the lease: what is left of it is given up at once, and all who counted have lost it.
        yield from super()._leaving(holding)
        holding.lost = True
        return False


class ReentrantKeyLock(ReentrantSteps, KeyLock):
    """A `KeyLock` that the thread which holds it may acquire again, also by another object of the same key.

    Each `acquire` needs its `release`; the last one deletes the key. To acquire again asks no server and does not
    renew the lease. When the lease has ended, the count is void: the next `acquire` begins anew, and `release` says
    False.

    Args:
        client, key, ttl, timeout, poll: as for `KeyLock`.
    """


class AsyncReentrantKeyLock(ReentrantSteps, AsyncKeyLock):
    """A `ReentrantKeyLock` for asyncio: the count belongs to the task that calls.

    Args:
        client, key, ttl, timeout, poll: as for `KeyLock`.
    """

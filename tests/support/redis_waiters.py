"""Somebody who waits in the registry of a process, without a server."""

from __future__ import annotations

from typing import Any

from interlock.core.queue import Granted
from interlock.stores.redis.waiters import RedisWaiters


class Waiter:
    """Keeps what it was told; does something else then, if wanted."""

    def __init__(self, then: Any = lambda: None) -> None:
        self.words: list[Granted | None] = []
        self.then = then

    def tell(self, message: Granted | None = None) -> None:
        """Keep it."""
        self.words.append(message)
        self.then()


def hung(registry: RedisWaiters, id: str, then: Any = lambda: None) -> Waiter:
    """Let a claim wait."""
    registry.expect(id)
    waiter = Waiter(then)
    registry.register(id, waiter)
    return waiter

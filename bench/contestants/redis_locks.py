"""Locks on Redis, ours and redis-py's, each opened at a place whose facts contain the server's URL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from bench.contestants.locks import Lock
from bench.contestants.redis_raw import key_of, ttl_of
from bench.model import Place

TUNED = 0.001  # seconds between two polls of a peer that is set to poll as fast as is reasonable

Call = tuple[str, "Future[object]"]
"""The name of a method to call, and the future of its result."""


def interlock_redis(place: Place) -> Any:
    """interlock on a server."""
    return interlock_redis_own(place)()


def interlock_redis_own(place: Place) -> Callable[[], Any]:
    """interlock on a server; each thread has its own lock object, from one client."""
    import interlock

    locks = place.closing.enter_context(interlock.connect(place.facts["url"], ttl=ttl_of(place)))
    return lambda: locks.lock(key_of(place))


def interlock_redis_async(place: Place) -> Any:
    """interlock on a server, asyncio; call it inside a running loop."""
    import interlock

    return interlock.aconnect(place.facts["url"], ttl=ttl_of(place)).lock(key_of(place))


def client(place: Place, **options: Any) -> Any:
    """A client of redis-py with its own pool."""
    import redis

    found = redis.Redis.from_url(place.facts["url"], **options)
    place.closing.callback(found.close)
    return found


def redis_py(sleep: float = 0.1) -> Callable[[Place], Lock]:
    """redis-py's Lock; waits without limit, polls every `sleep` seconds."""
    return lambda place: redis_py_own(sleep)(place)()


def redis_py_own(sleep: float = 0.1) -> Callable[[Place], Callable[[], Lock]]:
    """redis-py's Lock; each thread has its own lock object, from one client."""

    def opener(place: Place) -> Callable[[], Lock]:
        shared = client(place)
        return lambda: shared.lock(key_of(place), timeout=ttl_of(place), sleep=sleep)

    return opener


def redis_py_async(sleep: float = 0.1) -> Callable[[Place], Any]:
    """redis.asyncio's Lock; polls every `sleep` seconds."""

    def make(place: Place) -> Any:
        import redis.asyncio

        shared = redis.asyncio.Redis.from_url(place.facts["url"])
        return shared.lock(key_of(place), timeout=ttl_of(place), sleep=sleep)

    return make


def without_hiredis(make: Callable[[Place], Any]) -> Callable[[Place], Any]:
    """The same without hiredis."""

    def build(place: Place) -> Any:
        sys.modules["hiredis"] = None  # type: ignore[assignment]  # importing it now fails, in this worker only
        return make(place)

    return build

"""Locks on Redis, ours and redis-py's, each opened at a place whose facts contain the server's URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.contestants.locks import Lock
from bench.contestants.redis_raw import LEASE, key_of
from bench.model import Place

TUNED = 0.001  # seconds between two polls of a peer that is set to poll as fast as is reasonable


def interlock_redis(place: Place) -> Any:
    """interlock on a server."""
    return interlock_redis_own(place)()


def interlock_redis_own(place: Place) -> Callable[[], Any]:
    """interlock on a server; each thread has its own lock object, from one client."""
    import interlock

    locks = place.closing.enter_context(interlock.connect(place.facts["url"], ttl=LEASE))
    return lambda: locks.lock(key_of(place))


def interlock_redis_async(place: Place) -> Any:
    """interlock on a server, asyncio; call it inside a running loop."""
    import interlock

    return interlock.aconnect(place.facts["url"], ttl=LEASE).lock(key_of(place))


def client(place: Place, **options: Any) -> Any:
    """A client of redis-py with its own pool."""
    import redis

    found = redis.Redis.from_url(place.facts["url"], **options)
    place.closing.callback(found.close)
    return found


def redis_py_own(sleep: float = 0.1) -> Callable[[Place], Callable[[], Lock]]:
    """redis-py's Lock; each thread has its own lock object, from one client."""

    def opener(place: Place) -> Callable[[], Lock]:
        shared = client(place)
        return lambda: shared.lock(key_of(place), timeout=LEASE, sleep=sleep)

    return opener


def redis_py_async(sleep: float = 0.1) -> Callable[[Place], Any]:
    """redis.asyncio's Lock; polls every `sleep` seconds."""

    def make(place: Place) -> Any:
        import redis.asyncio

        shared = redis.asyncio.Redis.from_url(place.facts["url"])
        return shared.lock(key_of(place), timeout=LEASE, sleep=sleep)

    return make

"""Locks on Redis from other libraries, each opened at a place whose facts contain the server's URL.

They keep their default settings, except that they wait without limit, and all have the same lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from bench.contestants import needs
from bench.contestants.locks import NO_LIMIT, Lock
from bench.contestants.redis_locks import TUNED, client, redis_py_own
from bench.contestants.redis_raw import LEASE, key_of
from bench.model import Contestant, Place

T = TypeVar("T")


def python_redis_lock(place: Place) -> Callable[[], Lock]:
    """python-redis-lock; waits in BLPOP."""
    import redis_lock  # type: ignore[import-untyped, unused-ignore]

    shared = client(place)
    return lambda: redis_lock.Lock(shared, key_of(place), expire=round(LEASE))


def sherlock(place: Place) -> Callable[[], Lock]:
    """sherlock's RedisLock; polls every 100 ms."""
    from sherlock.lock import RedisLock  # type: ignore[import-untyped, unused-ignore]

    shared = client(place)
    return lambda: RedisLock(key_of(place), client=shared, expire=round(LEASE), timeout=NO_LIMIT)


def pottery(place: Place) -> Callable[[], Lock]:
    """pottery's Redlock on one server; polls every 0 to 200 ms."""
    from pottery import Redlock  # type: ignore[import-untyped, unused-ignore]

    shared = client(place)
    return lambda: Redlock(key=key_of(place), masters={shared}, auto_release_time=LEASE)


def portalocker(place: Place) -> Callable[[], Lock]:
    """portalocker's RedisLock, which has no lease: a subscription is the lock. Polls every 250 ms."""
    from portalocker import RedisLock

    shared = client(place, decode_responses=True, health_check_interval=10)
    return lambda: RedisLock(key_of(place), shared, timeout=NO_LIMIT, interrupt_on_lost=False)


class RedisFifoLock:
    """redis-fifo-lock's FifoLock, strictly first come, first served; each waiter is woken by its own list."""

    def __init__(self, place: Place) -> None:
        from redis.asyncio import Redis
        from redis_fifo_lock import FifoLock  # type: ignore[import-untyped, import-not-found, unused-ignore]

        client = Redis.from_url(place.facts["url"])
        self._lock: Any = FifoLock(client, key_of(place), lease_ms=round(1000 * LEASE))
        self._lease: Any = None

    async def acquire(self) -> None:
        """Wait for the lock."""
        self._lease = await self._lock.acquire()

    async def release(self) -> None:
        """Give it back."""
        await self._lock.release(self._lease)


Opener = Callable[[Place], Callable[[], Lock]]
"""Connects, and then returns a new lock object for each thread."""


class Peer(NamedTuple):
    """A library's lock.

    Attributes:
        name: the name in the report.
        opener: opens a blocking lock, or makes one for tasks, inside a running loop.
        needs: raises `Unavailable` if the library is not installed.
        waits: the way it waits.
        poll: seconds between two polls; 0 if it is woken.
    """

    name: str
    opener: Any
    needs: Callable[[], None]
    waits: str
    poll: float = 0.0


REDIS_PY, PYTHON_REDIS_LOCK = "redis-py", "python-redis-lock"
PEERS = (
    Peer(REDIS_PY, redis_py_own(), needs.redis, "looks every 100 ms", 0.1),
    Peer("redis-py, tuned", redis_py_own(TUNED), needs.redis, "looks every 1 ms", TUNED),
    Peer(PYTHON_REDIS_LOCK, python_redis_lock, needs.module("redis_lock", "Lock", PYTHON_REDIS_LOCK), "BLPOP"),
    Peer("sherlock", sherlock, needs.module("sherlock"), "looks every 100 ms", 0.1),
    Peer("pottery", pottery, needs.module("pottery"), "Redlock on one server; looks every 0 to 200 ms", 0.2),
    Peer("portalocker", portalocker, needs.module("portalocker", "RedisLock"), "looks every 250 ms", 0.25),
)
ASYNC_PEERS = (
    Peer("redis-fifo-lock", RedisFifoLock, needs.module("redis_fifo_lock", "FifoLock"), "strict order, BLPOP"),
)


def one(opener: Opener) -> Callable[[Place], Lock]:
    """Only one lock object."""
    return lambda place: opener(place)()


def contestants(shape: Callable[[Opener], Callable[[Place], T]]) -> tuple[Contestant[T], ...]:
    """All peers, as contestants of a scenario.

    Args:
        shape: makes a contestant's factory of an opener.
    """
    return tuple(
        Contestant(peer.name, shape(peer.opener), peer.needs, notes=peer.waits, poll=peer.poll) for peer in PEERS
    )
